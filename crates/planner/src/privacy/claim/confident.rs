//! Confident claims: an ε that samples of the run's likelihood ratio show, with a failure probability that δ pays for. No proof, and of another type than one.

use super::{Basis, Claim, MU_ROUNDING, Terms, allocated};
use crate::error::{Error, Result};
use crate::privacy::account::Budget;
use crate::privacy::account::allocation::Bins;
use crate::privacy::account::confident::{Attempt, Law, Search, Wager, attempt};
use crate::privacy::sensitivity::Adjacency;
use corrnoise_core::{Fingerprint, Plan, Sampling};
use serde::{Deserialize, Serialize};

/// Which claims a plan may be calibrated to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claims {
    /// Proofs and nothing else.
    #[default]
    Proven,
    /// Where sampling amplifies, also what samples show with confidence.
    Confident,
}

/// A confident claim: (ε, δ) with the claim's δ, of which `failure` is spent on the probability that the samples mislead. Whoever checks it draws the same samples,
/// under a key that is a hash of the plan and of all that is stated here, and evaluates once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confident {
    /// ε at the claim's δ, unless the samples mislead.
    pub epsilon: f64,
    /// The probability that they do, over the key, all attempts of a calibration counted.
    pub failure: f64,
    /// The number of samples of each direction.
    pub samples: u64,
    /// The samples of the run with the unit.
    pub add: Wager,
    /// The samples of the run without it.
    pub remove: Wager,
}

/// How an attempt at a confident claim ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attempted {
    /// The samples show the claim.
    Shown,
    /// They do not: by how much the logarithm of δ should fall, and the wagers for another attempt.
    Short(f64, [Wager; 2]),
}

/// Attempts of one calibration, each of which may fail to fail.
pub(crate) const ATTEMPTS: u32 = 16;

/// At least as many strategies as a comparison calibrates before it keeps one. A false claim has less noise than it needs and is the more likely to be
/// kept, so every one of them is paid for.
const COMPARED: u32 = 8;

/// The largest failure probability, and its largest part of δ.
const FAILURE: f64 = 1e-9;
const FAILURE_OF_DELTA: f64 = 1e-3;
/// What capitals exceed their need by when a plan is made, for processors that round differently.
const SPARED: f64 = 1e-6;

/// What a confident claim assumes besides the rest.
const ASSUMPTION: &str = "the confident claim: the keys of its samples, hashes of the plan, are as good as random, and whoever made the plan did not try many plans to find one whose samples mislead; every unit's steps are drawn independently of all others and of the data; they and the sizes of batches are never released or used, sums are divided by a fixed number, and no other run draws the same steps";

/// The failure probability of all attempts of a calibration at a δ.
fn failure(delta: f64) -> f64 {
    FAILURE.min(FAILURE_OF_DELTA * delta)
}

/// The logarithm of the capital that a claim takes.
fn need(delta: f64) -> f64 {
    (f64::from(ATTEMPTS * COMPARED) / failure(delta)).ln()
}

impl Basis {
    /// The law of a unit's steps, if samples may show a claim under this schedule; refuses what it does not cover.
    pub(crate) fn law(&self, terms: &Terms, delta: f64) -> Result<Option<Law>> {
        let sampling = terms.schedule.sampling();
        let (Some(Sampling::BallsInBins { .. }) | Some(Sampling::SpacedPoisson { .. })) = sampling else {
            return Ok(None);
        };
        if terms.adjacency == Adjacency::ReplaceOne {
            let expected = "zero-out for a confident claim: replacing has another dominating pair";
            return Err(Error::parameter("adjacency", "replace-one", expected));
        }
        match sampling {
            Some(Sampling::BallsInBins { num_bins, .. }) => {
                Law::bins(&Bins::of(&self.running, num_bins)?).map(Some)
            }
            Some(Sampling::SpacedPoisson { min_sep, sampling_prob, .. }) => {
                Law::spaced(&self.running, min_sep, sampling_prob, delta).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// What is left of δ for the hockey stick.
    fn confident_level(&self, relative: f64, epsilon: f64, delta: f64) -> f64 {
        let mu = self.sensitivity.value * (1.0 + MU_ROUNDING) / relative;
        delta - self.allocated_tail(mu, epsilon, delta) - failure(delta)
    }

    /// The noise with which samples are likely to show that a budget is met, and how they are drawn, if it is less than without amplification.
    pub(crate) fn confident_stddev(&self, law: &Law, budget: Budget) -> Result<Option<(f64, Confident)>> {
        let Budget { epsilon, delta } = budget;
        if epsilon <= 0.0 {
            return Ok(None);
        }
        let plain = self.stddev_without_bins(budget)? / self.clip_norm;
        let level = |stddev: f64| self.confident_level(stddev, epsilon, delta);
        let found = Search::new(law, need(delta) + SPARED)?.stddev(epsilon, WORTH * plain, level)?;
        Ok(found.map(|found| {
            (found.stddev * self.clip_norm * (1.0 + 2.0 * MU_ROUNDING), Confident::new(&found, delta))
        }))
    }

    /// The ε that samples are likely to show, if it is below the plain one.
    pub(crate) fn confident_epsilon(
        &self,
        law: &Law,
        stddev: f64,
        plain: f64,
        delta: f64,
    ) -> Result<Option<Confident>> {
        let relative = stddev / self.clip_norm;
        if !(plain > 0.0 && plain < MOST_EPSILON) {
            return Ok(None);
        }
        let level = |epsilon: f64| self.confident_level(relative, epsilon, delta);
        let found = Search::new(law, need(delta) + SPARED)?.epsilon(relative, WORTH * plain, level)?;
        Ok(found.map(|found| Confident::new(&found, delta)))
    }

    /// Draws the samples of a claim for a plan's noise; `spared` is by how much a capital must exceed its need.
    #[allow(clippy::too_many_arguments)] // a claim and all that it is made for
    fn attempted(
        &self,
        law: &Law,
        plan: &Plan,
        stddev: f64,
        terms: &Terms,
        delta: f64,
        confident: &Confident,
        spared: f64,
    ) -> Result<Attempted> {
        let relative = stddev / self.clip_norm * (1.0 - MU_ROUNDING);
        let Confident { epsilon, samples, add, remove, .. } = *confident;
        let level = self.confident_level(relative, epsilon, delta);
        if !(epsilon > 0.0 && epsilon <= MOST_EPSILON) || confident.failure != failure(delta) {
            let expected = format!(
                "above 0, at most {MOST_EPSILON}, with a failure probability of {:e}",
                failure(delta)
            );
            return Err(Error::parameter("epsilon of a confident claim", epsilon, expected));
        }
        if level <= 0.0 {
            return Ok(Attempted::Short(1.0, [add, remove]));
        }
        let tried = Attempt { stddev: relative, epsilon, samples, wagers: [add, remove] };
        let need = need(delta) + spared;
        let outcome = attempt(law, &tried, level, need, &key(plan, terms, delta, confident)?)?;
        // Written so that what is no number shows nothing.
        match outcome.capitals.iter().all(|capital| *capital >= need) {
            true => Ok(Attempted::Shown),
            false => Ok(Attempted::Short(outcome.short, outcome.wagers)),
        }
    }

    /// Draws a claim's samples when its plan is made.
    pub(crate) fn attempt(
        &self,
        law: &Law,
        plan: &Plan,
        stddev: f64,
        terms: &Terms,
        delta: f64,
        confident: &Confident,
    ) -> Result<Attempted> {
        self.attempted(law, plan, stddev, terms, delta, confident, SPARED)
    }

    /// Draws a stated claim's samples again, and refuses it if they do not show it.
    pub(crate) fn check_confident(
        &self,
        plan: &Plan,
        stddev: f64,
        terms: &Terms,
        delta: f64,
        stated: &Confident,
    ) -> Result<()> {
        let refuted = |computed: String| Error::Disagreement {
            what: "claim.confident.epsilon".into(),
            stated: stated.epsilon.to_string(),
            computed,
        };
        let Some(law) = self.law(terms, delta)? else {
            return Err(refuted("no law of a unit's steps that samples could show a claim for".into()));
        };
        match self.attempted(&law, plan, stddev, terms, delta, stated, 0.0)? {
            Attempted::Shown => Ok(()),
            Attempted::Short(..) => Err(refuted(format!("samples that do not show it at δ = {delta:e}"))),
        }
    }
}

impl Confident {
    fn new(found: &Attempt, delta: f64) -> Confident {
        let Attempt { epsilon, samples, wagers: [add, remove], .. } = *found;
        Confident { epsilon, failure: failure(delta), samples, add, remove }
    }
}

impl Claim {
    /// The claim with an ε that samples have shown.
    pub(crate) fn with_confident(mut self, confident: Confident) -> Claim {
        self.assumptions.push(ASSUMPTION.into());
        self.confident = Some(confident);
        self
    }

    /// The ε that the noise was made for: the confident one if there is one, or else the proven one. For comparing noise at equal budgets.
    pub(crate) fn budgeted_epsilon(&self) -> f64 {
        self.confident.map_or(self.epsilon, |confident| confident.epsilon)
    }
}

/// The key of a claim's samples: a hash of all that makes the noise, of what the claim is made for, and of the claim.
fn key(plan: &Plan, terms: &Terms, delta: f64, confident: &Confident) -> Result<[u8; 32]> {
    // Neither the rounds of the cipher nor the rest of the certificate change what is claimed.
    let bare = Plan::new(plan.num_steps(), plan.form().clone(), plan.stddev())?;
    let Fingerprint(bare) = match plan.sampling() {
        Some(sampling) => bare.with_sampling(sampling)?.fingerprint(),
        None => bare.fingerprint(),
    };
    let Confident { epsilon, failure, samples, add, remove } = *confident;
    let mut hasher = blake3::Hasher::new_derive_key("corrnoise 2026 confident claim v1");
    hasher.update(&bare);
    let wagers = [add.tilt, add.share, remove.tilt, remove.share];
    for number in [terms.clip_norm, delta, epsilon, failure].into_iter().chain(wagers) {
        hasher.update(&number.to_bits().to_le_bytes());
    }
    hasher.update(&samples.to_le_bytes());
    Ok(hasher.finalize().into())
}

/// Larger ones are no privacy, and their exponentials no numbers.
const MOST_EPSILON: f64 = allocated::MOST_EPSILON;
/// Noise, or an ε, above this much of the plain proof's is no amplification.
const WORTH: f64 = 0.999;

#[cfg(test)]
mod tests {
    use crate::privacy::account::Budget;
    use crate::{
        Adjacency, Factorization, Goal, Method, PrivacyUnit, Schedule, Strategy, Terms, Workload, calibrate,
        calibrate_confident, verify,
    };
    use corrnoise_core::{Plan, Rounds, Sampling};
    use serde_json::json;

    const BINS: Sampling = Sampling::BallsInBins { dataset_size: 600, num_bins: 6 };
    const SPACED: Sampling = Sampling::SpacedPoisson { dataset_size: 600, min_sep: 3, sampling_prob: 0.25 };
    const BUDGET: Goal = Goal::Budget(Budget { epsilon: 1.0, delta: 1e-3 });

    fn terms(sampling: Sampling, adjacency: Adjacency) -> Terms {
        Terms {
            schedule: Schedule::Sampling(sampling),
            adjacency,
            unit: PrivacyUnit::Example,
            clip_norm: 1.5,
        }
    }

    fn strategy(coefs: &[f64]) -> Factorization {
        let coefs = (0..20).map(|t| coefs.get(t).copied().unwrap_or(0.0)).collect();
        Factorization::new(Strategy::toeplitz(coefs).unwrap(), 20).unwrap()
    }

    fn confident(coefs: &[f64], sampling: Sampling, goal: Goal) -> Plan {
        let terms = terms(sampling, Adjacency::ZeroOut);
        calibrate_confident(&strategy(coefs), &terms, &Workload::Prefix, &goal).unwrap()
    }

    #[test]
    fn confident_claims_stand_beside_proofs() {
        for (sampling, coefs) in [(BINS, &[1.0, 0.5, 0.3, 0.2][..]), (SPACED, &[1.0, 0.5, 0.3])] {
            let plan = confident(coefs, sampling, BUDGET);
            let claim = verify(&plan).unwrap().claim;
            let found = claim.confident.unwrap();
            // The proof beside it is that of the whole run as one Gaussian mechanism, with a larger ε.
            assert_eq!((claim.method, found.epsilon, found.failure), (Method::Gaussian, 1.0, 1e-9));
            assert!(claim.epsilon > 1.15, "{}", claim.epsilon);
            assert!(claim.assumptions.iter().any(|line| line.starts_with("the confident claim")));
            // Default claims are proofs alone, and no other noise than before.
            let terms = terms(sampling, Adjacency::ZeroOut);
            let proven = calibrate(&strategy(coefs), &terms, &Workload::Prefix, &BUDGET).unwrap();
            assert!(verify(&proven).unwrap().claim.confident.is_none());
            assert!(plan.stddev() < 0.99 * proven.stddev(), "{} {}", plan.stddev(), proven.stddev());
            // The cipher's rounds do not change what samples are drawn, and the ε of given noise is that of the budget.
            verify(&plan.clone().with_rounds(Rounds::R20).unwrap()).unwrap();
            let again = confident(coefs, sampling, Goal::GdpMu { gdp_mu: claim.gdp_mu, delta: 1e-3 });
            let epsilon = verify(&again).unwrap().claim.confident.unwrap().epsilon;
            assert!((epsilon - 1.0).abs() < 0.02, "{epsilon}");
        }
    }

    #[test]
    fn resealed_claims_that_show_less_are_refused() {
        let found = confident(&[1.0, 0.5, 0.3], SPACED, BUDGET);
        let stated = found.certificate().unwrap().clone();
        let all = |edits: &[(&str, f64)]| {
            let mut map = stated.clone();
            for (key, factor) in edits {
                let value = map["claim"]["confident"].pointer_mut(key).unwrap();
                let number = value.as_f64().unwrap() * factor;
                *value = if *key == "/samples" { json!(number as u64) } else { json!(number) };
            }
            let plan = found.clone().with_certificate(map).unwrap();
            verify(&plan).map(|_| ()).map_err(|error| error.to_string())
        };
        let edited = |key: &str, factor: f64| all(&[(key, factor)]);
        assert!(edited("/epsilon", 1.0).is_ok());
        let message = all(&[("/epsilon", 0.93), ("/add/share", 0.5), ("/remove/share", 0.5)]).unwrap_err();
        assert!(
            message
                .contains("claim.confident.epsilon 0.93, but its numbers give samples that do not show it"),
            "{message}"
        );
        for (key, factor, part) in [
            ("/failure", 10.0, "failure probability of 1e-9"),
            ("/epsilon", -1.0, "epsilon of a confident claim is -1"),
            ("/add/share", 1e6, "share of a confident claim"),
            ("/remove/share", -1.0, "share of a confident claim"),
            ("/add/tilt", 1.25, "tilt of a confident claim"),
            ("/samples", 1e9, "samples of a confident claim"),
            ("/samples", 0.0, "samples of a confident claim"),
            ("/samples", 1e-2, "samples"),
            ("/add/share", 0.0, "samples that do not show it"),
        ] {
            let message = edited(key, factor).unwrap_err();
            assert!(message.contains(part), "{key} {factor}: {message}");
        }
        // A claim for a schedule that has none.
        let cyclic = Sampling::Cyclic { dataset_size: 600, num_batches: 6 };
        let terms = terms(cyclic, Adjacency::ZeroOut);
        let other = calibrate(&strategy(&[1.0]), &terms, &Workload::Prefix, &BUDGET).unwrap();
        let mut map = other.certificate().unwrap().clone();
        map["claim"]["confident"] = stated["claim"]["confident"].clone();
        let message = verify(&other.with_certificate(map).unwrap()).unwrap_err().to_string();
        assert!(message.contains("no law of a unit's steps"), "{message}");
    }

    #[test]
    fn what_no_law_covers_is_refused_by_name() {
        let message = |coefs: &[f64], sampling: Sampling, adjacency: Adjacency| {
            let terms = terms(sampling, adjacency);
            calibrate_confident(&strategy(coefs), &terms, &Workload::Prefix, &BUDGET).unwrap_err().to_string()
        };
        let spaced = |coefs: &[f64]| message(coefs, SPACED, Adjacency::ZeroOut);
        assert!(
            spaced(&[1.0, 0.5, 0.3, 0.2])
                .contains("number of bands is 4: expected at most 3, the separation")
        );
        assert!(spaced(&[1.0, -0.5]).contains("coefficient of the strategy 1 is -0.5"));
        assert!(
            message(&[1.0, -0.5], BINS, Adjacency::ZeroOut).contains("coefficient of the strategy 1 is -0.5")
        );
        for sampling in [BINS, SPACED] {
            let refused = message(&[1.0], sampling, Adjacency::ReplaceOne);
            assert!(
                refused.contains("adjacency is replace-one: expected zero-out for a confident claim"),
                "{refused}"
            );
        }
        // Schedules that have proofs keep them.
        let poisson = Sampling::Poisson { dataset_size: 600, sampling_prob: 0.1 };
        let claim = verify(&confident(&[1.0], poisson, BUDGET)).unwrap().claim;
        assert!(claim.method == Method::Amplified && claim.confident.is_none());
        let none = Goal::Budget(Budget { epsilon: 0.0, delta: 1e-3 });
        assert!(verify(&confident(&[1.0], BINS, none)).unwrap().claim.confident.is_none());
    }
}
