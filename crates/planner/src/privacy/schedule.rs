//! Who takes part when: given from outside, or drawn by one of the engine's samplers.

use crate::error::Result;
use crate::names::participation_name;
use crate::privacy::account::truncated::truncation_delta;
use crate::privacy::participation::Participation;
use crate::privacy::sampling;
use corrnoise_core::Sampling;

/// The schedule that a claim rests on.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// The trainer's own data pipeline guarantees it.
    Participation(Participation),
    /// The engine's sampler draws it.
    Sampling(Sampling),
}

/// Poisson sampling as a claim sees it: `num_rounds` chances to take part, each with the same probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Poisson {
    pub(crate) num_blocks: usize,
    pub(crate) sampling_prob: f64,
    pub(crate) num_rounds: u64,
    /// What is added to δ because units are left out of batches that are too large; `None` where nobody is.
    pub(crate) truncation_delta: Option<f64>,
}

impl Schedule {
    /// The steps that one unit may take part in, however the dice fall.
    pub fn participation(&self, num_steps: usize) -> Result<Participation> {
        let participation = match self {
            Schedule::Participation(participation) => participation.clone(),
            Schedule::Sampling(sampling) => sampling::participation(sampling, num_steps)?,
        };
        participation.check(num_steps)?;
        Ok(participation)
    }

    /// The scheme, if the engine draws it.
    pub fn sampling(&self) -> Option<Sampling> {
        match self {
            Schedule::Sampling(sampling) => Some(*sampling),
            Schedule::Participation(_) => None,
        }
    }

    /// Whether the engine draws Poisson batches, from the whole dataset or from blocks that take turns, truncated or not.
    pub fn is_poisson(&self) -> bool {
        self.sampling().is_some_and(|sampling| sampling::poisson(&sampling).is_some())
    }

    pub(crate) fn poisson(&self, num_steps: usize) -> Option<Poisson> {
        let sampling = self.sampling()?;
        let (num_blocks, sampling_prob) = sampling::poisson(&sampling)?;
        let num_rounds = (num_steps as u64).div_ceil(num_blocks);
        let truncation_delta = match sampling {
            Sampling::TruncatedPoisson { dataset_size, max_batch_size, .. } => {
                let part = dataset_size.div_ceil(num_blocks);
                Some(truncation_delta(part, sampling_prob, num_rounds, max_batch_size))
            }
            _ => None,
        };
        let num_blocks = usize::try_from(num_blocks).unwrap_or(usize::MAX);
        Some(Poisson { num_blocks, sampling_prob, num_rounds, truncation_delta })
    }

    /// The schedule as an assumption that a certificate lists.
    pub(crate) fn assumption(&self, num_steps: usize) -> Result<String> {
        let participation = self.participation(num_steps)?;
        let by = match self {
            Schedule::Sampling(sampling) => {
                if let Some(assumption) = sampling::assumption(sampling, &participation) {
                    return Ok(assumption);
                }
                sampling::DRAWN
            }
            Schedule::Participation(_) => "the data pipeline guarantees it",
        };
        let who = match participation {
            Participation::Single => "a unit takes part in at most one step".into(),
            Participation::Full => "a unit may take part in every step".into(),
            Participation::Cyclic { separation, max_participations } => format!(
                "a unit takes part at most {max_participations} times, every {separation} steps, always at the same place of the cycle"
            ),
            Participation::MinSep { min_sep, max_participations } => format!(
                "a unit takes part at most {max_participations} times, at least {min_sep} steps apart"
            ),
            Participation::Patterns(patterns) => {
                format!("a unit takes part in one of {} listed sets of steps", patterns.len())
            }
        };
        Ok(format!("{who}: {by}"))
    }
}

/// A schedule in a few words, for tables.
impl std::fmt::Display for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Schedule::Sampling(sampling) => f.write_str(&sampling::describe(sampling)),
            Schedule::Participation(participation) => f.write_str(&participation_name(participation)),
        }
    }
}
