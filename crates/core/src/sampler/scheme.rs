//! Sampling schemes: how a run chooses who takes part in a step. The privacy claim rests on the scheme, so it belongs to the plan.
//!
//! A scheme is here as a whole: [`Sampling`] has its parameters, their checks and the mean size of its batches, and [`Drawn`] has the
//! batches themselves, from rows of words that [`Purpose`] names.

mod bernoulli;
mod calendar;
mod parts;
mod truncated;

use crate::chacha::ChaCha;
use crate::error::{Error, Result};
use crate::row::Row;
use bernoulli::Coin;
use calendar::Calendar;
pub(super) use parts::room;
use parts::{Epochs, Parts};
use serde::{Deserialize, Serialize};
use truncated::truncate;

/// The scheme by which batches are chosen.
///
/// # Cost
/// `Poisson`: `dataset_size / 64` groups per step, about 1.25 ChaCha blocks each; `BlockPoisson`: the same over `num_blocks`; `TruncatedPoisson`: as
/// the one that it truncates.
/// (Skipping from one chosen unit to the next would cost less, but takes logarithms, whose last bits differ between machines.)
/// `Cyclic`, `BallsInBins` and `RandomAllocation` copy the batch. All of these but `Poisson` draw their parts once, in
/// [`Sampler::new`](crate::Sampler::new), and keep 4 bytes per unit (8 beyond 2^32 units) and 8 per part. `RandomAllocation` draws them again
/// where an epoch begins, and wherever a step of another epoch is asked for: a quarter of a ChaCha block per unit. `SpacedPoisson` keeps 4 bytes per unit (8 from 2^32
/// units on) and 8 (16) per step of the separation, and 1 + 1/(64·sampling_prob) groups of coins per member of a batch; a step before the last one that was
/// asked for, and the first after a resume, are reached from the beginning of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Sampling {
    /// Every unit joins every batch with the same probability, independently.
    Poisson {
        /// The number of units in the dataset.
        dataset_size: u64,
        /// The probability of joining a batch, in (0, 1].
        sampling_prob: f64,
    },
    /// The dataset is split once into blocks that take turns; every unit of the block whose turn it is joins with the same
    /// probability, independently. Two batches of one unit are then a multiple of `num_blocks` steps apart.
    BlockPoisson {
        /// The number of units in the dataset.
        dataset_size: u64,
        /// The number of blocks, at most one per unit.
        num_blocks: u64,
        /// The probability of joining within the block, in (0, 1].
        sampling_prob: f64,
    },
    /// The dataset is shuffled once and cut into batches that take turns: every unit takes part once per epoch, always at the same place.
    Cyclic {
        /// The number of units in the dataset.
        dataset_size: u64,
        /// The number of batches per epoch, at most one per unit.
        num_batches: u64,
    },
    /// Every unit falls into one of the bins, which take turns as batches: as in `Cyclic`, but with batches of random size.
    BallsInBins {
        /// The number of units in the dataset.
        dataset_size: u64,
        /// The number of bins, at most one per unit.
        num_bins: u64,
    },
    /// Every unit falls into one of the bins anew in every epoch: as in `BallsInBins`, but its steps of two epochs are independent of each
    /// other, and may be neighbours. A step counts for the epoch `step / num_bins`; the last epoch may be cut off.
    RandomAllocation {
        /// The number of units in the dataset.
        dataset_size: u64,
        /// The number of bins, which is that of the steps of an epoch, at most one per unit.
        num_bins: u64,
    },
    /// Every unit that has not taken part in the last `min_sep − 1` steps joins with the same probability, independently. The run begins in the
    /// middle, so to say: some units sit out its first steps, so that all batches have the same expected size.
    SpacedPoisson {
        /// The number of units in the dataset.
        dataset_size: u64,
        /// The separation, at least 1: a unit of step `t` may join again from step `t + min_sep` on.
        min_sep: u64,
        /// The probability of joining for a unit that may join, in (0, 1].
        sampling_prob: f64,
    },
    /// As `BlockPoisson`, or as `Poisson` if there is one block, but of a batch of more than `max_batch_size` units only so many are kept, every set of
    /// them with the same probability: a fixed shape. Claims for Poisson sampling do not hold for it as they are.
    TruncatedPoisson {
        /// The number of units in the dataset.
        dataset_size: u64,
        /// The number of blocks, at most one per unit; 1 draws from the whole dataset.
        num_blocks: u64,
        /// The probability of joining within the block before any unit is left out, in (0, 1].
        sampling_prob: f64,
        /// The size that no batch exceeds, at least 1.
        max_batch_size: u64,
    },
    /// Participants come by themselves; a guard admits each at most `max_participations` times, at least `min_sep` steps apart.
    #[serde(rename = "minsep")]
    MinSep {
        /// The separation, at least 1: a participant of step `t` is admitted again at step `t + min_sep`.
        min_sep: u64,
        /// The most participations of one participant, at least 1.
        max_participations: u64,
    },
}

impl Sampling {
    /// The number of units in the dataset that batches are drawn from; none where participants come by themselves.
    pub fn dataset_size(&self) -> Option<u64> {
        match *self {
            Sampling::Poisson { dataset_size, .. }
            | Sampling::BlockPoisson { dataset_size, .. }
            | Sampling::Cyclic { dataset_size, .. }
            | Sampling::BallsInBins { dataset_size, .. }
            | Sampling::RandomAllocation { dataset_size, .. }
            | Sampling::SpacedPoisson { dataset_size, .. }
            | Sampling::TruncatedPoisson { dataset_size, .. } => Some(dataset_size),
            Sampling::MinSep { .. } => None,
        }
    }

    /// The mean number of units in a batch, by which a sum over a batch is divided; none where participants come by themselves. Units that
    /// `TruncatedPoisson` leaves out are counted: what they change is far below a unit, unless the limit is close to the mean.
    pub fn expected_batch_size(&self) -> Option<f64> {
        let (parts, prob) = self.parts_and_prob()?;
        Some(self.dataset_size()? as f64 / parts as f64 * prob)
    }

    /// The size that no batch exceeds; none where participants come by themselves. All units of the dataset may meet in one batch, where that is
    /// only unlikely.
    pub fn max_batch_size(&self) -> Option<u64> {
        let size = self.dataset_size()?;
        Some(match *self {
            Sampling::Cyclic { num_batches: parts, .. }
            | Sampling::BlockPoisson { num_blocks: parts, .. } => size.div_ceil(parts),
            Sampling::TruncatedPoisson { num_blocks, max_batch_size, .. } => {
                max_batch_size.min(size.div_ceil(num_blocks))
            }
            _ => size,
        })
    }

    /// The mean fraction of the dataset that is in a batch; none where participants come by themselves.
    pub fn mean_rate(&self) -> Option<f64> {
        self.parts_and_prob().map(|(parts, prob)| prob / parts as f64)
    }

    /// The number of parts of the dataset that take turns, and the mean probability of being in the batch within the part.
    fn parts_and_prob(&self) -> Option<(u64, f64)> {
        match *self {
            Sampling::Poisson { sampling_prob, .. } => Some((1, sampling_prob)),
            Sampling::BlockPoisson { num_blocks, sampling_prob, .. }
            | Sampling::TruncatedPoisson { num_blocks, sampling_prob, .. } => {
                Some((num_blocks, sampling_prob))
            }
            Sampling::Cyclic { num_batches: parts, .. }
            | Sampling::BallsInBins { num_bins: parts, .. }
            | Sampling::RandomAllocation { num_bins: parts, .. } => Some((parts, 1.0)),
            // A unit comes every min_sep − 1 + 1/p steps.
            Sampling::SpacedPoisson { min_sep, sampling_prob, .. } => {
                Some((1, sampling_prob / (1.0 + sampling_prob * (min_sep - 1) as f64)))
            }
            Sampling::MinSep { .. } => None,
        }
    }

    /// Refuses parameters that make no valid scheme.
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
            Sampling::BallsInBins { dataset_size, num_bins }
            | Sampling::RandomAllocation { dataset_size, num_bins } => {
                check_dataset(dataset_size)?;
                check_parts("number of bins", num_bins, dataset_size)
            }
            Sampling::SpacedPoisson { dataset_size, min_sep, sampling_prob } => {
                check_dataset(dataset_size)?;
                check_spacing(min_sep)?;
                check_prob(sampling_prob)
            }
            Sampling::TruncatedPoisson { dataset_size, num_blocks, sampling_prob, max_batch_size } => {
                Sampling::BlockPoisson { dataset_size, num_blocks, sampling_prob }.check()?;
                check_parts("max batch size", max_batch_size, dataset_size)
            }
            Sampling::MinSep { min_sep, max_participations } => {
                check_parts("minimum separation", min_sep, u64::MAX)?;
                check_parts("max participations", max_participations, u64::MAX)
            }
        }
    }
}

/// The purpose of a row of the sampler family. It takes the place of the incarnation in other families' names: batches do not
/// depend on the incarnation, so that a resumed run continues with the batches it would have had.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    /// Decides who joins the batch of a step; the index is the step.
    Join = 0,
    /// The one permutation of the dataset; the index is 0.
    Shuffle = 1,
    /// The bin of every unit; the index is 0, or the epoch where bins are drawn anew.
    Bin = 2,
    /// The coins of a unit, one per step; the index is the unit.
    Coins = 3,
    /// The step from which a unit may join at first; the index is the unit.
    Start = 4,
    /// The units of a batch that are kept where there are too many; the index is the step.
    Keep = 5,
}

/// A [`Sampling`] together with the parts that were drawn for it: what batches come from.
pub(super) enum Drawn {
    Poisson { dataset_size: u64, coin: Coin },
    BlockPoisson { parts: Parts, coin: Coin },
    Turns(Parts),
    Epochs(Epochs),
    Spaced(Calendar),
    Truncated { drawn: Box<Drawn>, most: u64 },
}

impl Drawn {
    /// Takes all memory that batches need, and draws what stays the same for the whole run.
    pub(super) fn new(sampling: Sampling, num_steps: u64, cipher: &ChaCha) -> Result<Drawn> {
        Ok(match sampling {
            Sampling::Poisson { dataset_size, sampling_prob } => {
                Drawn::Poisson { dataset_size, coin: Coin::new(sampling_prob) }
            }
            Sampling::BlockPoisson { dataset_size, num_blocks, sampling_prob } => Drawn::BlockPoisson {
                parts: Parts::shuffled(cipher, dataset_size, num_blocks)?,
                coin: Coin::new(sampling_prob),
            },
            Sampling::Cyclic { dataset_size, num_batches } => {
                Drawn::Turns(Parts::shuffled(cipher, dataset_size, num_batches)?)
            }
            Sampling::BallsInBins { dataset_size, num_bins } => {
                Drawn::Turns(Parts::binned(cipher, dataset_size, num_bins)?)
            }
            Sampling::RandomAllocation { dataset_size, num_bins } => {
                Drawn::Epochs(Epochs::new(cipher, dataset_size, num_bins)?)
            }
            Sampling::SpacedPoisson { dataset_size, min_sep, sampling_prob } => {
                let coin = Coin::new(sampling_prob);
                Drawn::Spaced(Calendar::new(cipher, dataset_size, min_sep, num_steps, coin)?)
            }
            Sampling::TruncatedPoisson { dataset_size, num_blocks, sampling_prob, max_batch_size } => {
                let whole = match num_blocks {
                    1 => Sampling::Poisson { dataset_size, sampling_prob },
                    _ => Sampling::BlockPoisson { dataset_size, num_blocks, sampling_prob },
                };
                let drawn = Box::new(Drawn::new(whole, num_steps, cipher)?);
                Drawn::Truncated { drawn, most: max_batch_size }
            }
            Sampling::MinSep { .. } => {
                let reason = "under min_sep participants come by themselves: use Guard, which admits them";
                return Err(Error::Plan(reason.into()));
            }
        })
    }

    /// Appends the units of a step.
    pub(super) fn batch(&self, cipher: &ChaCha, step: u64, indices: &mut Vec<u64>) {
        match self {
            Drawn::Poisson { dataset_size, coin } => {
                coin.flip(cipher, step, *dataset_size, |unit| indices.push(unit));
            }
            Drawn::BlockPoisson { parts, coin } => {
                let part = parts.at(step);
                coin.flip(cipher, step, part.len(), |place| indices.push(part.unit(place)));
            }
            Drawn::Turns(parts) => parts.at(step).append_to(indices),
            Drawn::Epochs(epochs) => epochs.at(cipher, step, |part| part.append_to(indices)),
            Drawn::Spaced(calendar) => calendar.batch(cipher, step, indices),
            Drawn::Truncated { drawn, most } => {
                let from = indices.len();
                drawn.batch(cipher, step, indices);
                truncate(cipher, step, *most, indices, from);
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

fn check_spacing(min_sep: u64) -> Result<()> {
    // No plan has more steps.
    if (1..=Row::INDEX_LIMIT).contains(&min_sep) {
        return Ok(());
    }
    Err(Error::parameter("minimum separation", min_sep, "1 to 2^40 = 1099511627776"))
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
        let truncated = |num_blocks, max_batch_size| Sampling::TruncatedPoisson {
            dataset_size: 9,
            num_blocks,
            sampling_prob: 0.5,
            max_batch_size,
        };
        assert!(message(truncated(1, 0)).contains("max batch size is 0: expected 1 to 9"));
        assert!(message(truncated(1, 10)).contains("max batch size is 10: expected 1 to 9"));
        assert!(message(truncated(0, 3)).contains("number of blocks is 0"));
        assert!(truncated(3, 9).check().is_ok());
        let spaced = |min_sep| Sampling::SpacedPoisson { dataset_size: 9, min_sep, sampling_prob: 0.5 };
        assert!(message(spaced(0)).contains("minimum separation is 0: expected 1 to 2^40"));
        assert!(message(spaced((1 << 40) + 1)).contains("minimum separation is 1099511627777"));
        assert!(spaced(1 << 40).check().is_ok() && spaced(1).check().is_ok());
    }
}
