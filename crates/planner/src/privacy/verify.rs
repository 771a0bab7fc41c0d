//! A plan's claim computed again, compared with what the plan states, and remembered: what front ends print of a plan.
//!
//! What a plan's file states may have been edited, and a fingerprint is no signature. So whatever is shown to people comes from
//! [`verified`]: the whole claim computed again, once per plan and process. Loading a plan waits for none of it.

use crate::error::{Error, Result};
use crate::privacy::certificate::{Certificate, certificate_with};
use crate::privacy::claim::{EPSILON_ROUNDING, MU_ROUNDING, Proof};
use corrnoise_core::{Fingerprint, Plan};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

/// The certificate as computed, or why it does not hold.
type Outcome = std::result::Result<Arc<Certificate>, Arc<str>>;

/// Outcomes by fingerprint, which covers everything that a claim is computed from; nobody finds two plans with the same one.
#[derive(Default)]
struct Memory(Mutex<HashMap<Fingerprint, Arc<OnceLock<Outcome>>>>);

static MEMORY: LazyLock<Memory> = LazyLock::new(Memory::default);

/// More plans than a process prints claims of; beyond, all are forgotten, so that no process grows without end.
const MOST: usize = 256;

/// Computes a plan's certificate again from the rest of the plan and compares every statement. Always computes; what it finds is
/// remembered for [`verified`].
///
/// # Guarantees
/// `Ok` means that the claim printed in the plan is the one its coefficients, its standard deviation and its sampling scheme have, under
/// the assumptions it lists.
pub fn verify(plan: &Plan) -> Result<Certificate> {
    let result = recomputed(plan);
    // Another thread may have come first: it found the same.
    let _ = MEMORY.slot(plan).set(outcome(&result));
    result
}

/// A plan's certificate, computed again at the first call for a plan and remembered by its fingerprint; one that does not hold is an
/// error with [`verify`]'s message at every call.
pub fn verified(plan: &Plan) -> Result<Arc<Certificate>> {
    let slot = MEMORY.slot(plan);
    // Threads that ask for the same plan wait for one computation, those that ask for another do not.
    let outcome = slot.get_or_init(|| outcome(&recomputed(plan)));
    outcome.clone().map_err(|message| Error::Refuted(message.to_string()))
}

fn outcome(result: &Result<Certificate>) -> Outcome {
    match result {
        Ok(certificate) => Ok(Arc::new(certificate.clone())),
        Err(error) => Err(error.to_string().into()),
    }
}

impl Memory {
    fn slot(&self, plan: &Plan) -> Arc<OnceLock<Outcome>> {
        // Nothing panics while the map is locked, and no entry is ever half made.
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if map.len() >= MOST && !map.contains_key(&plan.fingerprint()) {
            map.clear();
        }
        map.entry(plan.fingerprint()).or_default().clone()
    }
}

/// The certificate computed again from the rest of the plan, if it has every statement of the plan's own.
fn recomputed(plan: &Plan) -> Result<Certificate> {
    let stated = Certificate::of(plan)?;
    // A proof by balls in bins is checked as it is stated, and none is searched for.
    let proof = match (&stated.claim.allocated, stated.claim.redrawn) {
        (Some(allocated), _) => Proof::Known(allocated),
        (None, Some(_)) => Proof::Without,
        // What was claimed before allocation was amplified is no less true.
        (None, None) => Proof::Neither,
    };
    let (terms, delta) = (stated.terms(plan), stated.claim.delta);
    // So is a confident claim: its samples are drawn once more.
    let confident = stated.claim.confident.as_ref();
    let mut computed = certificate_with(plan, &terms, &stated.workload, delta, proof, confident)?;
    // Which library wrote a plan does not make its claim true or false, and neither does the name of what a form runs.
    computed.planner.clone_from(&stated.planner);
    if stated.named_strategy(plan).is_some() {
        computed.strategy.clone_from(&stated.strategy);
    }
    let [left, right] = [&stated, &computed].map(|certificate| {
        serde_json::to_value(certificate).map_err(|error| Error::Certificate(error.to_string()))
    });
    compare("certificate", &left?, &right?)?;
    Ok(computed)
}

/// How far a stated number may lie below the computed one, and above it, as a share. Numbers agree to ten digits. Those that a guarantee
/// rests on are computed larger than they are, by the rounding below: a statement that makes up for no more than that is still true.
fn tolerances(path: &str) -> (f64, f64) {
    match path.rsplit('.').next() {
        Some("epsilon") => (0.9 * EPSILON_ROUNDING, 1e-6),
        Some("gdp_mu" | "sensitivity") => (0.5 * MU_ROUNDING, 1e-9),
        // The reciprocal: more of it is the stronger statement.
        Some("noise_multiplier") => (1e-9, 0.5 * MU_ROUNDING),
        // A difference of numbers that may be close.
        Some("tail_delta") => (1e-4, 1e-4),
        // Stated a millionth above what a closed form gives.
        Some("truncation_delta") => (5e-7, 1e-6),
        _ => (1e-10, 1e-10),
    }
}

fn compare(path: &str, stated: &Value, computed: &Value) -> Result<()> {
    let differ = || Error::Disagreement {
        what: path.trim_start_matches("certificate.").into(),
        stated: stated.to_string(),
        computed: computed.to_string(),
    };
    match (stated, computed) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap_or(f64::NAN), b.as_f64().unwrap_or(f64::NAN));
            let (below, above) = tolerances(path);
            let fits = a >= b - below * b.abs() && a <= b + above * b.abs();
            if fits { Ok(()) } else { Err(differ()) }
        }
        (Value::Object(a), Value::Object(b)) => {
            if a.len() != b.len() {
                return Err(differ());
            }
            for (key, value) in a {
                compare(&format!("{path}.{key}"), value, b.get(key).ok_or_else(differ)?)?;
            }
            Ok(())
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().try_for_each(|(i, (a, b))| compare(&format!("{path}[{i}]"), a, b))
        }
        (a, b) => {
            if a == b {
                Ok(())
            } else {
                Err(differ())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Adjacency, Factorization, Goal, Participation, PrivacyUnit, Schedule, Strategy, Terms, Workload,
        calibrate,
    };

    fn plan(gdp_mu: f64) -> Plan {
        let strategy = Factorization::new(Strategy::banded_square_root(4).unwrap(), 20).unwrap();
        let terms = Terms {
            schedule: Schedule::Participation(Participation::Single),
            adjacency: Adjacency::ZeroOut,
            unit: PrivacyUnit::Example,
            clip_norm: 1.0,
        };
        calibrate(&strategy, &terms, &Workload::Prefix, &Goal::GdpMu { gdp_mu, delta: 1e-6 }).unwrap()
    }

    #[test]
    fn a_claim_is_computed_once_and_is_verifys() {
        let plan = plan(1.25);
        let first = verified(&plan).unwrap();
        assert_eq!(*first, recomputed(&plan).unwrap());
        let again = verified(&Plan::from_json(&plan.to_json()).unwrap()).unwrap();
        assert!(Arc::ptr_eq(&first, &again), "remembered by fingerprint");
        assert_eq!(verify(&plan).unwrap(), *first);
    }

    #[test]
    fn what_verify_found_is_remembered() {
        let plan = plan(1.5);
        verify(&plan).unwrap();
        assert!(MEMORY.slot(&plan).get().is_some_and(|outcome| outcome.is_ok()));
    }

    #[test]
    fn a_false_claim_is_refused_with_verifys_message_every_time() {
        let plan = plan(2.0);
        let mut stated = plan.certificate().unwrap().clone();
        stated["claim"]["epsilon"] = 0.5.into();
        let edited = plan.with_certificate(stated).unwrap();
        let message = recomputed(&edited).unwrap_err().to_string();
        assert!(message.contains("the plan's claim does not hold: it states claim.epsilon 0.5"), "{message}");
        for _ in 0..2 {
            let error = verified(&edited).unwrap_err();
            assert!(matches!(error, Error::Refuted(_)) && error.to_string() == message);
        }
        let none = Plan::new(3, corrnoise_core::Form::independent(), 1.0).unwrap();
        assert!(verified(&none).unwrap_err().to_string().contains("makes no privacy claim"));
    }

    #[test]
    fn the_memory_is_bounded() {
        let memory = Memory::default();
        let plan = |i: usize| Plan::new(3, corrnoise_core::Form::independent(), 1.0 + i as f64).unwrap();
        for i in 0..3 * MOST {
            let slot = memory.slot(&plan(i));
            assert!(Arc::ptr_eq(&slot, &memory.slot(&plan(i))) && memory.0.lock().unwrap().len() <= MOST);
        }
    }
}
