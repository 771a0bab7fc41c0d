//! Sampling schemes as the planner knows them: their names, the schemes that the names stand for, who may take part when under each, and
//! words for people. How a scheme is drawn is the engine's, beside [`Sampling`].

use crate::error::{Error, Result};
use crate::names::{listed, split, unknown, whole};
use crate::privacy::participation::Participation;
use corrnoise_core::Sampling;

/// How batches are drawn from a dataset, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingSpec {
    /// Every unit joins every batch with one probability.
    Poisson,
    /// So many blocks take turns; within the block, as `Poisson`.
    BlockPoisson(u64),
    /// The dataset is shuffled once and cut into batches that take turns.
    Cyclic,
    /// As `Cyclic`, with batches of random size.
    BallsInBins,
    /// As `BallsInBins`, with new bins in every epoch.
    RandomAllocation,
    /// As `Poisson`, with so many steps between two participations of a unit at least.
    SpacedPoisson(u64),
    /// As `Poisson`, or as `BlockPoisson` with more than one block, and of a larger batch so many units are kept.
    TruncatedPoisson {
        /// The size that no batch exceeds.
        max_batch_size: u64,
        /// The number of blocks that take turns.
        num_blocks: u64,
    },
    /// The trainer's own pipeline passes over the dataset, always in the same order.
    None,
}

/// Every scheme that has a name: how it is written, and what it does.
pub const SAMPLINGS: [(&str, &str); 9] = [
    ("poisson", "every unit joins every batch with one probability"),
    ("block-poisson:B", "B blocks take turns; every unit of the block joins with one probability"),
    ("cyclic", "shuffled once and cut into batches that take turns (the default)"),
    ("balls-in-bins", "as cyclic, with batches of random size"),
    ("random-allocation", "as balls-in-bins, drawn anew in every epoch"),
    ("spaced-poisson:B", "as poisson, for units that took no part in the last B − 1 steps"),
    ("truncated-poisson:M", "as poisson; of a batch above M units, M are kept"),
    ("truncated-poisson:M,B", "as block-poisson:B; of a batch above M units, M are kept"),
    ("none", "your own pipeline passes over the dataset, always in the same order"),
];

/// Reads a name that [`SAMPLINGS`] lists.
pub fn sampling(text: &str) -> Result<SamplingSpec> {
    match split(text) {
        ("poisson", None) => Ok(SamplingSpec::Poisson),
        ("block-poisson", blocks) => {
            Ok(SamplingSpec::BlockPoisson(whole("block-poisson", "B", blocks)? as u64))
        }
        ("cyclic", None) => Ok(SamplingSpec::Cyclic),
        ("balls-in-bins", None) => Ok(SamplingSpec::BallsInBins),
        ("random-allocation", None) => Ok(SamplingSpec::RandomAllocation),
        ("spaced-poisson", min_sep) => {
            Ok(SamplingSpec::SpacedPoisson(whole("spaced-poisson", "B", min_sep)? as u64))
        }
        ("truncated-poisson", argument) => {
            let (most, blocks) = argument.and_then(|text| text.split_once(',')).unzip();
            let number = |letter, text| Ok::<_, Error>(whole("truncated-poisson", letter, text)? as u64);
            let num_blocks = if blocks.is_some() { number("B", blocks)? } else { 1 };
            Ok(SamplingSpec::TruncatedPoisson { max_batch_size: number("M", most.or(argument))?, num_blocks })
        }
        ("none", None) => Ok(SamplingSpec::None),
        _ => Err(unknown("sampling", &listed(SAMPLINGS.iter().map(|(name, _)| *name)))),
    }
}

impl std::fmt::Display for SamplingSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SamplingSpec::Poisson => write!(f, "poisson"),
            SamplingSpec::BlockPoisson(blocks) => write!(f, "block-poisson:{blocks}"),
            SamplingSpec::Cyclic => write!(f, "cyclic"),
            SamplingSpec::BallsInBins => write!(f, "balls-in-bins"),
            SamplingSpec::RandomAllocation => write!(f, "random-allocation"),
            SamplingSpec::SpacedPoisson(min_sep) => write!(f, "spaced-poisson:{min_sep}"),
            SamplingSpec::TruncatedPoisson { max_batch_size, num_blocks: 1 } => {
                write!(f, "truncated-poisson:{max_batch_size}")
            }
            SamplingSpec::TruncatedPoisson { max_batch_size, num_blocks } => {
                write!(f, "truncated-poisson:{max_batch_size},{num_blocks}")
            }
            SamplingSpec::None => write!(f, "none"),
        }
    }
}

impl SamplingSpec {
    /// The scheme for a dataset and batches of this size, exactly or on average; `None` where the engine draws nothing.
    pub fn scheme(self, dataset_size: u64, batch_size: u64) -> Result<Option<Sampling>> {
        let num_batches = num_batches(dataset_size, batch_size)?;
        Ok(Some(match self {
            SamplingSpec::Poisson => block_poisson(dataset_size, batch_size, 1),
            SamplingSpec::BlockPoisson(blocks)
            | SamplingSpec::TruncatedPoisson { num_blocks: blocks, .. }
                if blocks > num_batches =>
            {
                let expected = format!("1 to {num_batches}, the batches of an epoch");
                return Err(Error::parameter("number of blocks", blocks, expected));
            }
            SamplingSpec::BlockPoisson(blocks) => block_poisson(dataset_size, batch_size, blocks),
            SamplingSpec::Cyclic => Sampling::Cyclic { dataset_size, num_batches },
            SamplingSpec::BallsInBins => Sampling::BallsInBins { dataset_size, num_bins: num_batches },
            SamplingSpec::RandomAllocation => {
                Sampling::RandomAllocation { dataset_size, num_bins: num_batches }
            }
            SamplingSpec::SpacedPoisson(min_sep) if min_sep > num_batches => {
                let expected = format!("1 to {num_batches}, the batches of an epoch");
                return Err(Error::parameter("minimum separation", min_sep, expected));
            }
            SamplingSpec::SpacedPoisson(min_sep) => spaced_poisson(dataset_size, batch_size, min_sep),
            SamplingSpec::TruncatedPoisson { max_batch_size, num_blocks } => {
                let sampling_prob = block_prob(dataset_size, batch_size, num_blocks);
                Sampling::TruncatedPoisson { dataset_size, num_blocks, sampling_prob, max_batch_size }
            }
            SamplingSpec::None => return Ok(None),
        }))
    }

    /// The name of a scheme; `None` where participants come by themselves.
    pub fn of(sampling: &Sampling) -> Option<SamplingSpec> {
        Some(match *sampling {
            Sampling::Poisson { .. } => SamplingSpec::Poisson,
            Sampling::BlockPoisson { num_blocks, .. } => SamplingSpec::BlockPoisson(num_blocks),
            Sampling::Cyclic { .. } => SamplingSpec::Cyclic,
            Sampling::BallsInBins { .. } => SamplingSpec::BallsInBins,
            Sampling::RandomAllocation { .. } => SamplingSpec::RandomAllocation,
            Sampling::SpacedPoisson { min_sep, .. } => SamplingSpec::SpacedPoisson(min_sep),
            Sampling::TruncatedPoisson { max_batch_size, num_blocks, .. } => {
                SamplingSpec::TruncatedPoisson { max_batch_size, num_blocks }
            }
            Sampling::MinSep { .. } => return None,
        })
    }
}

/// Batches of an epoch, none larger than `batch_size`: `⌈dataset_size / batch_size⌉`, as a data loader counts them.
pub(crate) fn num_batches(dataset_size: u64, batch_size: u64) -> Result<u64> {
    if dataset_size == 0 {
        return Err(Error::parameter("dataset size", 0, "at least 1"));
    }
    if batch_size == 0 || batch_size > dataset_size {
        let expected = format!("1 to {dataset_size}, the dataset's size");
        return Err(Error::parameter("batch size", batch_size, expected));
    }
    Ok(dataset_size.div_ceil(batch_size))
}

/// Blocks that take turns, with batches of the given expected size; one block is plain Poisson sampling.
pub fn block_poisson(dataset_size: u64, batch_size: u64, num_blocks: u64) -> Sampling {
    let sampling_prob = block_prob(dataset_size, batch_size, num_blocks);
    match num_blocks {
        1 => Sampling::Poisson { dataset_size, sampling_prob },
        _ => Sampling::BlockPoisson { dataset_size, num_blocks, sampling_prob },
    }
}

/// The probability that makes batches of the given expected size from one of so many blocks.
fn block_prob(dataset_size: u64, batch_size: u64, num_blocks: u64) -> f64 {
    (batch_size as f64 * num_blocks as f64 / dataset_size as f64).min(1.0)
}

/// Poisson sampling of units that sat out `min_sep − 1` steps, with batches of the given expected size: a unit comes every
/// `min_sep − 1 + 1/sampling_prob` steps, which is `dataset_size / batch_size`, or `min_sep` where that is more.
fn spaced_poisson(dataset_size: u64, batch_size: u64, min_sep: u64) -> Sampling {
    let free_steps = dataset_size as f64 / batch_size as f64 - (min_sep - 1) as f64;
    Sampling::SpacedPoisson { dataset_size, min_sep, sampling_prob: 1.0 / free_steps.max(1.0) }
}

/// The steps that one unit may take part in, however the dice fall.
pub(super) fn participation(sampling: &Sampling, num_steps: usize) -> Result<Participation> {
    sampling.check()?;
    // More places than steps: nobody comes twice.
    let within_run = |steps: u64| usize::try_from(steps).unwrap_or(usize::MAX).min(num_steps);
    let cyclic = |separation: u64| {
        let separation = within_run(separation);
        Participation::Cyclic { separation, max_participations: num_steps.div_ceil(separation) }
    };
    Ok(match *sampling {
        Sampling::Poisson { .. } => Participation::Full,
        Sampling::BlockPoisson { num_blocks, .. } => cyclic(num_blocks),
        // Whoever is left out only takes part less often.
        Sampling::TruncatedPoisson { num_blocks: 1, .. } => Participation::Full,
        Sampling::TruncatedPoisson { num_blocks, .. } => cyclic(num_blocks),
        Sampling::Cyclic { num_batches, .. } => cyclic(num_batches),
        Sampling::BallsInBins { num_bins, .. } => cyclic(num_bins),
        // Once per epoch, wherever in it: the last step of one epoch and the first of the next may be a unit's.
        Sampling::RandomAllocation { num_bins, .. } => {
            Participation::MinSep { min_sep: 1, max_participations: num_steps.div_ceil(within_run(num_bins)) }
        }
        Sampling::SpacedPoisson { min_sep, .. } => {
            let min_sep = within_run(min_sep);
            Participation::MinSep { min_sep, max_participations: num_steps.div_ceil(min_sep) }
        }
        Sampling::MinSep { min_sep, max_participations } => {
            let min_sep = within_run(min_sep);
            let feasible = num_steps.div_ceil(min_sep) as u64;
            Participation::MinSep { min_sep, max_participations: max_participations.min(feasible) as usize }
        }
    })
}

/// Blocks and probability of (block-cyclic) Poisson sampling, truncated or not; `None` for other schemes.
pub(super) fn poisson(sampling: &Sampling) -> Option<(u64, f64)> {
    match *sampling {
        Sampling::Poisson { sampling_prob, .. } => Some((1, sampling_prob)),
        Sampling::BlockPoisson { num_blocks, sampling_prob, .. }
        | Sampling::TruncatedPoisson { num_blocks, sampling_prob, .. } => Some((num_blocks, sampling_prob)),
        _ => None,
    }
}

/// What a certificate says that the batches come from, where the participation alone does not say it.
pub(super) fn assumption(sampling: &Sampling, participation: &Participation) -> Option<String> {
    match (sampling, participation) {
        (Sampling::Poisson { sampling_prob, .. }, _) => Some(format!(
            "every unit joins every batch with probability {sampling_prob}, independently: {DRAWN}, and {UNSEEN}"
        )),
        (Sampling::BlockPoisson { num_blocks, sampling_prob, .. }, _) => Some(format!(
            "{num_blocks} blocks take turns, and every unit of the block joins with probability {sampling_prob}, independently: {DRAWN}, and {UNSEEN}"
        )),
        (Sampling::TruncatedPoisson { num_blocks, sampling_prob, max_batch_size, .. }, _) => {
            let who = match num_blocks {
                1 => "every unit".into(),
                _ => format!("{num_blocks} blocks take turns, and every unit of the block"),
            };
            Some(format!(
                "{who} is drawn with probability {sampling_prob}, independently, and of a batch above {max_batch_size} units as many are kept by coins and not by data: {DRAWN}, and {UNSEEN}"
            ))
        }
        (Sampling::RandomAllocation { num_bins, .. }, _) => Some(format!(
            "a unit takes part in one step of every epoch of {num_bins} steps, drawn anew in each: {DRAWN}"
        )),
        (Sampling::SpacedPoisson { min_sep, sampling_prob, .. }, _) => Some(format!(
            "every unit that took no part in the last {} steps joins with probability {sampling_prob}, independently: {DRAWN}",
            min_sep - 1
        )),
        (Sampling::MinSep { .. }, Participation::MinSep { min_sep, max_participations }) => Some(format!(
            "this plan's guard admits a unit at most {max_participations} times, at least {min_sep} steps apart"
        )),
        _ => None,
    }
}

/// Who guarantees the participation of batches that the engine draws.
pub(super) const DRAWN: &str = "batches come from this plan's sampler, under a key that stays secret";

/// What Poisson sampling hides a unit behind: an adversary who knows everybody else's coins reads its own from a batch's size.
const UNSEEN: &str = "neither who was drawn nor the sizes of batches are ever released or used: sums are divided by a fixed number, and no other run draws the same batches";

/// A scheme in a few words, for tables.
pub(super) fn describe(sampling: &Sampling) -> String {
    match *sampling {
        Sampling::Poisson { sampling_prob, .. } => format!("Poisson, p = {}", digits(sampling_prob)),
        Sampling::BlockPoisson { num_blocks, sampling_prob, .. } => {
            format!("{num_blocks} blocks, Poisson, p = {}", digits(sampling_prob))
        }
        Sampling::Cyclic { num_batches, .. } => format!("cyclic, {num_batches} batches"),
        Sampling::BallsInBins { num_bins, .. } => format!("balls in {num_bins} bins"),
        Sampling::RandomAllocation { num_bins, .. } => format!("allocated anew to {num_bins} bins"),
        Sampling::SpacedPoisson { min_sep, sampling_prob, .. } => {
            format!("Poisson, {min_sep} apart, p = {}", digits(sampling_prob))
        }
        Sampling::TruncatedPoisson { num_blocks, sampling_prob, max_batch_size, .. } => {
            let blocks = if num_blocks == 1 { String::new() } else { format!("{num_blocks} blocks, ") };
            format!("{blocks}Poisson, p = {}, at most {max_batch_size}", digits(sampling_prob))
        }
        Sampling::MinSep { min_sep, max_participations } => {
            format!("guard, {min_sep} apart, at most {max_participations}")
        }
    }
}

/// Four digits, without zeros at the end.
fn digits(value: f64) -> String {
    let text = format!("{value:.3e}");
    text.parse::<f64>().map_or(text, |rounded| rounded.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_have_the_names_they_are_made_from() {
        for (name, _) in SAMPLINGS {
            let name = name.replace(":B", ":7").replace(":M", ":12").replace(",B", ",7");
            let spec = sampling(&name).unwrap();
            assert_eq!(spec.to_string(), name);
            let scheme = spec.scheme(80, 10).unwrap();
            assert_eq!(
                scheme.and_then(|scheme| SamplingSpec::of(&scheme)).unwrap_or(SamplingSpec::None),
                spec
            );
        }
        let error = sampling("poisson:3").unwrap_err().to_string();
        assert_eq!(
            error,
            "no such sampling; expected poisson, block-poisson:B, cyclic, balls-in-bins, random-allocation, spaced-poisson:B, truncated-poisson:M, truncated-poisson:M,B or none"
        );
        for (name, part) in [
            ("truncated-poisson", "truncated-poisson needs a number"),
            ("truncated-poisson:0", "M in truncated-poisson:M is \"0\""),
            ("truncated-poisson:5,x", "B in truncated-poisson:B is \"x\""),
        ] {
            let error = sampling(name).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let error = SamplingSpec::SpacedPoisson(9).scheme(80, 10).unwrap_err().to_string();
        assert_eq!(error, "minimum separation is 9: expected 1 to 8, the batches of an epoch");
        let error = SamplingSpec::BlockPoisson(9).scheme(80, 10).unwrap_err().to_string();
        assert_eq!(error, "number of blocks is 9: expected 1 to 8, the batches of an epoch");
    }

    #[test]
    fn spaced_batches_have_the_size_that_was_asked_for() {
        for (min_sep, prob) in [(1, 0.125), (5, 0.25), (7, 0.5), (8, 1.0)] {
            let scheme = spaced_poisson(80, 10, min_sep);
            let expected = Sampling::SpacedPoisson { dataset_size: 80, min_sep, sampling_prob: prob };
            assert_eq!((scheme, scheme.expected_batch_size()), (expected, Some(10.0)));
        }
        // Eight batches of at most 11 of 81 units: a unit that comes every eighth step makes them smaller.
        let scheme = SamplingSpec::SpacedPoisson(8).scheme(81, 11).unwrap().unwrap();
        assert_eq!(scheme.expected_batch_size(), Some(81.0 / 8.0));
    }

    #[test]
    fn whoever_is_left_out_takes_part_less_often() {
        for (num_blocks, expected) in
            [(1, Participation::Full), (4, Participation::Cyclic { separation: 4, max_participations: 4 })]
        {
            let spec = SamplingSpec::TruncatedPoisson { max_batch_size: 30, num_blocks };
            let scheme = spec.scheme(80, 10).unwrap().unwrap();
            assert_eq!(participation(&scheme, 16).unwrap(), expected);
            assert_eq!(poisson(&scheme), Some((num_blocks, 0.125 * num_blocks as f64)));
        }
    }

    #[test]
    fn an_epoch_has_as_many_batches_as_a_data_loader_counts() {
        for (dataset_size, batch_size, expected) in [(512, 1, 512), (330, 20, 17), (80, 10, 8), (80, 80, 1)] {
            assert_eq!(num_batches(dataset_size, batch_size).unwrap(), expected);
        }
        assert!(num_batches(10, 11).unwrap_err().to_string().contains("batch size is 11: expected 1 to 10"));
        assert!(num_batches(0, 1).unwrap_err().to_string().contains("dataset size is 0"));
    }
}
