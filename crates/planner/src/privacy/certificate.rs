//! Certificates: what a plan says of itself, and the check that it is true.
//!
//! A certificate is computed from the plan's own form, scales and sampling scheme, so that it speaks of what runs. Verifying computes it
//! again and compares every statement.

use crate::error::{Error, Result};
use crate::factorization::Factorization;
use crate::privacy::claim::{Basis, Claim, Confident, PrivacyUnit, Proof, Terms};
use crate::privacy::participation::Participation;
use crate::privacy::schedule::Schedule;
use crate::privacy::sensitivity::Adjacency;
use crate::strategy::names::{StrategySpec, named};
use crate::utility::workload::Workload;
use corrnoise_core::Plan;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the certificate's format.
const VERSION: u32 = 3;

/// All that a plan says of itself besides what the engine needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// Version of the certificate's format.
    pub version: u32,
    /// Of the library that wrote it.
    pub planner: String,
    /// The strategy as its user named it (`banded-opt:10`); where it has no name, what the form shows of it.
    pub strategy: String,
    /// The workload that is released.
    pub workload: Workload,
    /// Who takes part when; under a sampling scheme, what it implies.
    pub participation: Participation,
    /// Which datasets are neighbours.
    pub adjacency: Adjacency,
    /// Whose privacy is protected.
    pub unit: PrivacyUnit,
    /// Largest norm of one unit's contribution to a step.
    pub clip_norm: f64,
    /// The guarantee and its assumptions.
    pub claim: Claim,
    /// What the noise does to the released values; absent where that takes too long to compute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utility: Option<Utility>,
}

/// Standard deviations of the noise in the workload's values, per coordinate, in units of the summed gradient.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Utility {
    /// Of the value with the most noise.
    pub max_error: f64,
    /// Root mean square over all values.
    pub rms_error: f64,
}

/// The certificate of a plan, computed from its form, standard deviation and sampling scheme.
///
/// `terms.schedule` must be the plan's own where the plan has one.
pub fn certificate(plan: &Plan, terms: &Terms, workload: &Workload, delta: f64) -> Result<Certificate> {
    certificate_with(plan, terms, workload, delta, Proof::Search, None)
}

/// The same with a proof by balls in bins that is known already, and a confident claim that is checked.
pub(crate) fn certificate_with(
    plan: &Plan,
    terms: &Terms,
    workload: &Workload,
    delta: f64,
    proof: Proof<'_>,
    confident: Option<&Confident>,
) -> Result<Certificate> {
    let num_steps = usize::try_from(plan.num_steps()).unwrap_or(usize::MAX);
    if terms.schedule.sampling() != plan.sampling() {
        let stated = format!("{:?}", terms.schedule.sampling());
        return Err(Error::parameter(
            "sampling scheme",
            stated,
            format!("the plan's, {:?}", plan.sampling()),
        ));
    }
    let basis = Basis::new(plan.form(), num_steps, terms)?;
    let certificate = certify(plan, &basis, terms, workload, delta, None, proof)?;
    match confident {
        Some(confident) => {
            basis.check_confident(plan, claimed_stddev(plan), terms, delta, confident)?;
            Ok(certificate.with_confident(*confident))
        }
        None => Ok(certificate),
    }
}

pub(crate) fn certify(
    plan: &Plan,
    basis: &Basis,
    terms: &Terms,
    workload: &Workload,
    delta: f64,
    strategy: Option<&StrategySpec>,
    proof: Proof<'_>,
) -> Result<Certificate> {
    let stddev = claimed_stddev(plan);
    let strategy = strategy.filter(|strategy| strategy.may_run_as(plan.form()));
    Ok(Certificate {
        version: VERSION,
        planner: env!("CARGO_PKG_VERSION").into(),
        strategy: strategy.map_or_else(|| basis.running.describe_matrix(), StrategySpec::to_string),
        workload: workload.clone(),
        participation: basis.participation.clone(),
        adjacency: terms.adjacency,
        unit: terms.unit,
        clip_norm: terms.clip_norm,
        claim: basis.claim(stddev, delta, terms, proof)?,
        utility: utility(&basis.running, workload, plan.stddev())?,
    })
}

/// The standard deviation that a claim is made for.
pub(crate) fn claimed_stddev(plan: &Plan) -> f64 {
    plan.stddev() * least_kept(plan)
}

/// The least that rounding to f32 leaves of any step's scale. Less noise in some steps divides their columns of `C` by as much, so
/// the sensitivity grows by no more than one over the least.
pub(crate) fn least_kept(plan: &Plan) -> f64 {
    let kept = |step: u64| {
        let exact = plan.stddev() * plan.form().output_scale(step);
        (f64::from(plan.scale(step)) / exact).min(1.0)
    };
    let steps = if plan.form().has_scale_per_step() { plan.num_steps() } else { 1 };
    (0..steps).map(kept).fold(1.0, f64::min)
}

fn utility(running: &Factorization, workload: &Workload, stddev: f64) -> Result<Option<Utility>> {
    match running.errors(workload) {
        Ok(errors) => Ok(Some(Utility { max_error: stddev * errors.max, rms_error: stddev * errors.rms })),
        Err(Error::TooLarge { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Certificate {
    /// The certificate with a confident claim that samples have shown.
    pub(crate) fn with_confident(self, confident: Confident) -> Certificate {
        Certificate { claim: self.claim.with_confident(confident), ..self }
    }

    /// Reads a plan's certificate without checking it.
    pub fn of(plan: &Plan) -> Result<Certificate> {
        let map = plan
            .certificate()
            .ok_or_else(|| Error::Certificate("there is none: this plan makes no privacy claim".into()))?;
        // The version comes first: keys of another one are unknown here, and say less.
        if let Some(version) = map.get("version").filter(|version| **version != VERSION) {
            return Err(Error::Certificate(format!(
                "version {version}, and this library reads version {VERSION}: make the plan again with `corrnoise plan`"
            )));
        }
        serde_json::from_value(Value::Object(map.clone()))
            .map_err(|error| Error::Certificate(error.to_string()))
    }

    /// The strategy that the certificate names, if it has a name and a strategy of this name may run as the plan's form: the class and
    /// the number of bands or buffers fit. Whether the coefficients are the best ones of their class is not checked.
    pub fn named_strategy(&self, plan: &Plan) -> Option<StrategySpec> {
        named(&self.strategy).filter(|strategy| strategy.may_run_as(plan.form()))
    }

    /// What the claim is made for.
    pub fn terms(&self, plan: &Plan) -> Terms {
        let schedule = match plan.sampling() {
            Some(sampling) => Schedule::Sampling(sampling),
            None => Schedule::Participation(self.participation.clone()),
        };
        Terms { schedule, adjacency: self.adjacency, unit: self.unit, clip_norm: self.clip_norm }
    }

    /// The plan with this certificate.
    pub fn attach(&self, plan: Plan) -> Result<Plan> {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => Ok(plan.with_certificate(map)?),
            other => Err(Error::Certificate(format!("cannot be written: {other:?}"))),
        }
    }
}
