//! A request for a plan: what `corrnoise plan` and `corrnoise.plan` ask for, with one meaning, the same names and the same defaults.

use crate::error::Result;
use crate::optimize::{Objective, Observer};
use crate::plan::candidate::Recommendation;
use crate::plan::one_strategy;
use crate::plan::options::OptionError;
use crate::plan::recommend::{self, Bins};
use crate::privacy::claim::{Claims, PrivacyUnit};
use crate::privacy::large_delta;
use crate::privacy::participation::Participation;
use crate::privacy::sampling::SamplingSpec;
use crate::privacy::sensitivity::Adjacency;
use crate::strategy::names::StrategyChoice;
use crate::utility::workload::Workload;
use corrnoise_core::Rounds;

/// Where training happens, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingName {
    /// One dataset, whose batches the engine draws.
    Centralized,
    /// Clients come by themselves, the engine admits them.
    Federated,
    /// Everyone takes part at most once.
    Streaming,
}

/// What was asked for, with `None` for what was left out.
///
/// ```
/// use corrnoise_planner::optimize::unobserved;
/// use corrnoise_planner::{Request, names, verify};
///
/// let request = Request {
///     epochs: Some(2.0),
///     dataset_size: Some(330),
///     batch_size: Some(20),
///     epsilon: Some(2.0),
///     delta: Some(1e-6),
///     strategy: names::strategy_choice("blt:2")?,
///     ..Request::default()
/// };
/// let plan = &request.recommend(&mut unobserved())?.recommended().plan.clone();
/// assert_eq!(plan.num_steps(), 34); // 2 epochs of 17 batches, the last of 10 examples
/// assert!(verify(plan)?.claim.epsilon <= 2.0);
/// # Ok::<(), corrnoise_planner::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Number of steps; or `epochs`.
    pub steps: Option<u64>,
    /// Passes over the dataset, each of `⌈dataset_size / batch_size⌉` steps; or `steps`.
    pub epochs: Option<f64>,
    /// Units in the dataset.
    pub dataset_size: Option<u64>,
    /// Units in a batch, exactly or on average.
    pub batch_size: Option<u64>,
    /// Who takes part when, guaranteed by the trainer's own pipeline.
    pub participation: Option<Participation>,
    /// By default what the other options are for: clients, a dataset, or else a stream.
    pub setting: Option<SettingName>,
    /// Federated: steps between two participations.
    pub min_sep: Option<u64>,
    /// Federated: participations of one client.
    pub max_participations: Option<u64>,
    /// The budget's ε, with `delta`.
    pub epsilon: Option<f64>,
    /// δ; 1e-6 beside `mu` and `noise_multiplier`.
    pub delta: Option<f64>,
    /// The budget as μ of Gaussian differential privacy; where strategies are compared, the ε that it has at `delta`.
    pub mu: Option<f64>,
    /// The budget as noise: 1/μ, with the same meaning; for one strategy under Poisson sampling that of one round.
    pub noise_multiplier: Option<f64>,
    /// Largest norm of what one unit contributes to a step.
    pub clip_norm: f64,
    /// Which datasets are neighbours.
    pub adjacency: Adjacency,
    /// Whose privacy is protected.
    pub unit: PrivacyUnit,
    /// The workload that is released.
    pub workload: Workload,
    /// Which error of the released values counts.
    pub objective: Objective,
    /// Memory for noise per parameter, at most: of what the CPU engine holds. A CUDA device may hold more rows ahead, unless its own option limits them.
    pub max_state_bytes: Option<u64>,
    /// The strategy, or all of them.
    pub strategy: StrategyChoice,
    /// How one strategy's batches are drawn from one dataset; cyclic by default. Where strategies are compared: `balls-in-bins` beside the
    /// schemes that are always tried, `random-allocation` or `truncated-poisson` alone.
    pub sampling: Option<SamplingSpec>,
    /// Which claims noise is calibrated to: proofs alone, or also what samples show with confidence.
    pub claims: Claims,
    /// Rounds of ChaCha per block.
    pub rounds: Rounds,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            steps: None,
            epochs: None,
            dataset_size: None,
            batch_size: None,
            participation: None,
            setting: None,
            min_sep: None,
            max_participations: None,
            epsilon: None,
            delta: None,
            mu: None,
            noise_multiplier: None,
            clip_norm: 1.0,
            adjacency: Adjacency::ZeroOut,
            unit: PrivacyUnit::Example,
            workload: Workload::Prefix,
            objective: Objective::Max,
            max_state_bytes: None,
            strategy: StrategyChoice::Auto,
            sampling: None,
            claims: Claims::default(),
            rounds: Rounds::default(),
        }
    }
}

impl Request {
    /// Compares all strategies, or the one that was asked for with independent noise, always at one (ε, δ), and recommends one.
    pub fn recommend(&self, observer: Observer<'_>) -> Result<Recommendation> {
        let question = self.question()?;
        let mut answer = match (&self.strategy, self.sampling) {
            (StrategyChoice::Auto, None | Some(SamplingSpec::None)) => {
                recommend::all(&question, Bins::Quick, observer)?
            }
            (StrategyChoice::Auto, Some(SamplingSpec::BallsInBins)) => {
                recommend::all(&question, Bins::Asked, observer)?
            }
            (StrategyChoice::Auto, Some(SamplingSpec::SpacedPoisson(min_sep)))
                if self.claims == Claims::Confident =>
            {
                recommend::all(&question, Bins::Spaced(min_sep), observer)?
            }
            (
                StrategyChoice::Auto,
                Some(alone @ (SamplingSpec::RandomAllocation | SamplingSpec::TruncatedPoisson { .. })),
            ) => recommend::under(&question, alone, observer)?,
            (StrategyChoice::Auto, Some(_)) => return Err(OptionError::SamplingOfAll.into()),
            (StrategyChoice::One(strategy), sampling) => {
                one_strategy::one(&question, strategy, sampling, observer)?
            }
        };
        // The size of the dataset counts, whoever draws the batches.
        let warning = self.dataset_size.and_then(|size| large_delta(question.goal.delta(), size));
        answer.warnings = warning.into_iter().collect();
        for candidate in &mut answer.candidates {
            candidate.plan = candidate.plan.clone().with_rounds(self.rounds)?;
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests;
