//! Sampling schemes: how a run chooses who takes part in a step. The privacy claim rests on it, so it belongs to the plan.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// How batches are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", deny_unknown_fields)]
pub enum Sampling {
    /// Every unit joins every batch with the same probability, independently.
    Poisson {
        /// Units in the dataset.
        dataset_size: u64,
        /// The probability to join, in (0, 1].
        sampling_prob: f64,
    },
    /// The dataset is split once into blocks that take turns; every unit of the block whose turn it is joins with the same
    /// probability, independently. Two batches of one unit are then a multiple of `num_blocks` steps apart.
    BlockPoisson {
        /// Units in the dataset.
        dataset_size: u64,
        /// At most one per unit.
        num_blocks: u64,
        /// Within the block, in (0, 1].
        sampling_prob: f64,
    },
    /// Shuffled once and cut into batches that take turns: every unit takes part once per epoch, always at the same place.
    Cyclic {
        /// Units in the dataset.
        dataset_size: u64,
        /// Batches per epoch, at most one per unit.
        num_batches: u64,
    },
    /// Every unit falls into one of the bins, which take turns as batches: as `Cyclic`, but with batches of random size.
    BallsInBins {
        /// Units in the dataset.
        dataset_size: u64,
        /// Bins, at most one per unit.
        num_bins: u64,
    },
    /// Participants come by themselves; a guard admits each at most so often, at least so many steps apart.
    MinSep {
        /// At least 1: a participant of step `t` is admitted again at step `t + min_sep`.
        min_sep: u64,
        /// The most participations of one unit, at least 1.
        max_participations: u64,
    },
}

impl Sampling {
    /// Units in the dataset that batches are drawn from; none where participants come by themselves.
    pub fn dataset_size(&self) -> Option<u64> {
        match *self {
            Sampling::Poisson { dataset_size, .. }
            | Sampling::BlockPoisson { dataset_size, .. }
            | Sampling::Cyclic { dataset_size, .. }
            | Sampling::BallsInBins { dataset_size, .. } => Some(dataset_size),
            Sampling::MinSep { .. } => None,
        }
    }

    /// Refuses what is no scheme.
    pub fn check(&self) -> Result<()> {
        match *self {
            Sampling::Poisson { dataset_size, sampling_prob } => {
                check_dataset(dataset_size)?;
                check_prob(sampling_prob)
            }
            Sampling::BlockPoisson { dataset_size, num_blocks, sampling_prob } => {
                check_dataset(dataset_size)?;
                check_parts("number of blocks", num_blocks, dataset_size)?;
                check_prob(sampling_prob)
            }
            Sampling::Cyclic { dataset_size, num_batches } => {
                check_dataset(dataset_size)?;
                check_parts("number of batches", num_batches, dataset_size)
            }
            Sampling::BallsInBins { dataset_size, num_bins } => {
                check_dataset(dataset_size)?;
                check_parts("number of bins", num_bins, dataset_size)
            }
            Sampling::MinSep { min_sep, max_participations } => {
                check_parts("minimum separation", min_sep, u64::MAX)?;
                check_parts("max participations", max_participations, u64::MAX)
            }
        }
    }
}

fn check_dataset(size: u64) -> Result<()> {
    // The permutation and the index arrays hold 64-bit indices in memory; nothing else limits the size.
    if (1..=1 << 40).contains(&size) {
        return Ok(());
    }
    Err(Error::parameter("dataset size", size, "1 to 2^40 = 1099511627776"))
}

fn check_parts(name: &str, parts: u64, most: u64) -> Result<()> {
    let expected =
        || if most == u64::MAX { "at least 1".into() } else { format!("1 to {most}, the dataset's size") };
    if (1..=most).contains(&parts) { Ok(()) } else { Err(Error::parameter(name, parts, expected())) }
}

fn check_prob(prob: f64) -> Result<()> {
    if prob > 0.0 && prob <= 1.0 {
        return Ok(());
    }
    Err(Error::parameter("sampling probability", prob, "in (0, 1]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_scheme_is_named() {
        let message = |sampling: Sampling| sampling.check().unwrap_err().to_string();
        let poisson = |dataset_size, sampling_prob| Sampling::Poisson { dataset_size, sampling_prob };
        assert!(message(poisson(0, 0.1)).contains("dataset size is 0"));
        assert!(message(poisson(9, 0.0)).contains("sampling probability is 0"));
        assert!(message(poisson(9, f64::NAN)).contains("sampling probability is NaN"));
        let cyclic = Sampling::Cyclic { dataset_size: 9, num_batches: 10 };
        assert!(message(cyclic).contains("number of batches is 10: expected 1 to 9"));
        let min_sep = Sampling::MinSep { min_sep: 0, max_participations: 1 };
        assert!(message(min_sep).contains("minimum separation is 0: expected at least 1"));
        assert!(Sampling::BallsInBins { dataset_size: 9, num_bins: 9 }.check().is_ok());
        assert!(poisson(9, 1.0).check().is_ok());
    }
}
