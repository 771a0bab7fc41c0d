//! Candidates: mechanisms that are ready to run, and the recommendation of one of them.

use crate::error::Result;
use crate::factorization::Factorization;
use crate::optimize::Objective;
use crate::plan::calibrate::calibrated;
use crate::plan::compare::independent;
use crate::plan::question::Question;
use crate::privacy::certificate::{Certificate, Utility};
use crate::privacy::sampling::SamplingSpec;
use crate::privacy::schedule::Schedule;
use crate::strategy::names::StrategySpec;
use crate::utility::cost::Cost;
use corrnoise_core::Plan;
use std::fmt::{self, Display};

/// One strategy under one schedule, calibrated and ready to run. `Display` names both: `banded-opt:16, block-cyclic Poisson`.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The strategy, as it was asked for or found.
    pub strategy: StrategySpec,
    /// The schedule that the claim is made for.
    pub schedule: Schedule,
    /// The plan, calibrated and certified.
    pub plan: Plan,
    /// What the plan says of itself.
    pub certificate: Certificate,
    /// Standard deviation of the noise in the released value that counts, per coordinate of the summed gradient.
    pub error: f64,
    /// State per parameter: what a checkpoint stores.
    pub state_bytes: u64,
    /// What the CPU engine holds per parameter: the state, and for some rings rows made ahead.
    pub engine_bytes: u64,
    /// The work of one step.
    pub cost: Cost,
}

/// A strategy that does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The strategy's name, without its number where none was found, and its schedule where that is not the usual one.
    pub strategy: String,
    /// Why it does not apply.
    pub reason: String,
}

/// All candidates and which to take.
#[derive(Clone, Debug)]
pub struct Recommendation {
    /// The candidates by error, least first.
    pub candidates: Vec<Candidate>,
    /// Strategies that do not apply, with the reason.
    pub skipped: Vec<Skipped>,
    /// Index of the recommended candidate.
    pub best: usize,
    /// Why it is recommended, in a sentence.
    pub reason: String,
    /// What is allowed and yet hardly meant, for people to read.
    pub warnings: Vec<String>,
}

impl Candidate {
    /// The strategy calibrated and certified under a schedule, with its error and cost. The question's setting does not matter here, the
    /// schedule takes its place.
    pub(super) fn new(
        question: &Question,
        strategy: StrategySpec,
        factorization: &Factorization,
        schedule: Schedule,
    ) -> Result<Candidate> {
        let terms = question.terms(schedule);
        let (plan, certificate) = calibrated(
            factorization,
            Some(&strategy),
            &terms,
            &question.workload,
            &question.goal,
            question.claims,
        )?;
        let utility = match certificate.utility {
            Some(utility) => utility,
            // What is left out takes too long: asked for alone, it says why.
            None => {
                let running = Factorization::from_form(plan.form(), question.steps)?;
                let errors = running.errors(&question.workload)?;
                let [max_error, rms_error] = [errors.max, errors.rms].map(|error| plan.stddev() * error);
                Utility { max_error, rms_error }
            }
        };
        let error = match question.objective {
            Objective::Max => utility.max_error,
            Objective::Rms => utility.rms_error,
        };
        let (state_bytes, engine_bytes) =
            (plan.form().state_bytes_per_param(), plan.form().engine_bytes_per_param());
        let cost = Cost::of(plan.form(), plan.num_steps());
        let schedule = terms.schedule;
        Ok(Candidate { strategy, schedule, plan, certificate, error, state_bytes, engine_bytes, cost })
    }

    /// How batches are drawn, by name; `None` where the engine does not draw them.
    pub fn sampling(&self) -> Option<SamplingSpec> {
        self.schedule.sampling().and_then(|sampling| SamplingSpec::of(&sampling))
    }

    /// Whether its noise is independent from step to step.
    pub fn is_independent(&self) -> bool {
        self.strategy == StrategySpec::Identity
    }

    /// Bytes per parameter as people read them: "36", or "36 + 28" where the engine holds rows ahead.
    pub fn memory(&self) -> String {
        match self.engine_bytes.saturating_sub(self.state_bytes) {
            0 => self.state_bytes.to_string(),
            ahead => format!("{} + {ahead}", self.state_bytes),
        }
    }
}

impl Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.strategy, sampled(self.sampling()))
    }
}

/// What a candidate's name says of its sampling: nothing of the usual one.
pub(super) fn sampled(sampling: Option<SamplingSpec>) -> &'static str {
    match sampling {
        Some(SamplingSpec::Poisson) => ", Poisson",
        Some(SamplingSpec::BlockPoisson(_)) => ", block-cyclic Poisson",
        Some(SamplingSpec::BallsInBins) => ", balls in bins",
        Some(SamplingSpec::RandomAllocation) => ", random allocation",
        Some(SamplingSpec::TruncatedPoisson { num_blocks: 1, .. }) => ", truncated Poisson",
        Some(SamplingSpec::TruncatedPoisson { .. }) => ", truncated block-cyclic Poisson",
        Some(SamplingSpec::SpacedPoisson(_)) => ", spaced Poisson",
        _ => "",
    }
}

impl Recommendation {
    /// The candidate that is recommended.
    pub fn recommended(&self) -> &Candidate {
        &self.candidates[self.best]
    }

    /// The independent noise with the least error, which the others are compared with.
    pub fn independent(&self) -> Option<&Candidate> {
        independent(&self.candidates)
    }

    /// A candidate's noise over that of the best independent noise at the same (ε, δ); none without such a row.
    pub fn relative_noise(&self, candidate: &Candidate) -> Option<f64> {
        self.independent().and_then(|independent| candidate.noise_relative_to(independent))
    }
}
