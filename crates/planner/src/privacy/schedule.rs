//! Who takes part when: given from outside, or drawn by one of the engine's samplers.

use crate::error::Result;
use crate::privacy::participation::Participation;
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
}

impl Schedule {
    /// The steps that one unit may take part in, however the dice fall.
    pub fn participation(&self, num_steps: usize) -> Result<Participation> {
        let cyclic = |separation: u64| -> Result<Participation> {
            // More places than steps: nobody comes twice.
            let separation = usize::try_from(separation).unwrap_or(usize::MAX).min(num_steps);
            Ok(Participation::Cyclic { separation, max_participations: num_steps.div_ceil(separation) })
        };
        let participation = match self {
            Schedule::Participation(participation) => participation.clone(),
            Schedule::Sampling(sampling) => {
                sampling.check()?;
                match *sampling {
                    Sampling::Poisson { .. } => Participation::Full,
                    Sampling::BlockPoisson { num_blocks, .. } => cyclic(num_blocks)?,
                    Sampling::Cyclic { num_batches, .. } => cyclic(num_batches)?,
                    Sampling::BallsInBins { num_bins, .. } => cyclic(num_bins)?,
                    Sampling::MinSep { min_sep, max_participations } => {
                        let min_sep = usize::try_from(min_sep).unwrap_or(usize::MAX).min(num_steps);
                        let feasible = num_steps.div_ceil(min_sep) as u64;
                        let max_participations = max_participations.min(feasible) as usize;
                        Participation::MinSep { min_sep, max_participations }
                    }
                }
            }
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

    pub(crate) fn poisson(&self, num_steps: usize) -> Option<Poisson> {
        let (num_blocks, sampling_prob) = match self.sampling()? {
            Sampling::Poisson { sampling_prob, .. } => (1, sampling_prob),
            Sampling::BlockPoisson { num_blocks, sampling_prob, .. } => (num_blocks, sampling_prob),
            _ => return None,
        };
        let num_rounds = (num_steps as u64).div_ceil(num_blocks);
        Some(Poisson {
            num_blocks: usize::try_from(num_blocks).unwrap_or(usize::MAX),
            sampling_prob,
            num_rounds,
        })
    }

    /// In words, as an assumption.
    pub(crate) fn describe(&self, num_steps: usize) -> Result<String> {
        let drawn = "batches come from this plan's sampler, under a key that stays secret";
        Ok(match (self, self.participation(num_steps)?) {
            (Schedule::Sampling(Sampling::Poisson { sampling_prob, .. }), _) => format!(
                "every unit joins every batch with probability {sampling_prob}, independently: {drawn}, and which units took part is not released"
            ),
            (Schedule::Sampling(Sampling::BlockPoisson { num_blocks, sampling_prob, .. }), _) => format!(
                "{num_blocks} blocks take turns, and every unit of the block joins with probability {sampling_prob}, independently: {drawn}, and which units took part is not released"
            ),
            (
                Schedule::Sampling(Sampling::MinSep { .. }),
                Participation::MinSep { min_sep, max_participations },
            ) => {
                format!(
                    "this plan's guard admits a unit at most {max_participations} times, at least {min_sep} steps apart"
                )
            }
            (schedule, participation) => {
                let by =
                    if schedule.sampling().is_some() { drawn } else { "the data pipeline guarantees it" };
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
                format!("{who}: {by}")
            }
        })
    }
}
