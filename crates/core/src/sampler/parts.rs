//! Parts of the dataset that take turns, drawn once: by a permutation, or by a bin for every unit.

use super::words::{Purpose, Words};
use crate::chacha::ChaCha;
use crate::error::{Error, Result};
use std::ops::Range;

/// Parts of a dataset, each with its units ascending.
pub(super) struct Parts {
    members: Members,
    /// The bounds of the parts: part `j` is `starts[j]..starts[j + 1]`.
    starts: Vec<u64>,
}

/// The units, part after part; 32 bits while they suffice, since this is the one array as long as the dataset.
enum Members {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

/// The units of one part.
#[derive(Clone, Copy)]
pub(super) enum Part<'a> {
    Narrow(&'a [u32]),
    Wide(&'a [u64]),
}

/// An integer type that can hold the units of [`Members`].
trait Unit: Copy + Ord + TryFrom<u64> {}
impl Unit for u32 {}
impl Unit for u64 {}

impl Parts {
    /// Shuffles the dataset and cuts it into parts whose sizes differ by at most one.
    pub(super) fn shuffled(cipher: &ChaCha, dataset_size: u64, num_parts: u64) -> Result<Parts> {
        let starts = even_starts(dataset_size, num_parts)?;
        let members = if is_narrow(dataset_size) {
            Members::Narrow(shuffled(cipher, dataset_size, &starts)?)
        } else {
            Members::Wide(shuffled(cipher, dataset_size, &starts)?)
        };
        Ok(Parts { members, starts })
    }

    /// Puts every unit independently into a uniformly random part.
    pub(super) fn binned(cipher: &ChaCha, dataset_size: u64, num_parts: u64) -> Result<Parts> {
        let starts = bin_starts(cipher, dataset_size, num_parts)?;
        let members = if is_narrow(dataset_size) {
            Members::Narrow(binned(cipher, dataset_size, &starts)?)
        } else {
            Members::Wide(binned(cipher, dataset_size, &starts)?)
        };
        Ok(Parts { members, starts })
    }

    /// The part whose turn it is at a step.
    pub(super) fn at(&self, step: u64) -> Part<'_> {
        let part = (step % (self.starts.len() as u64 - 1)) as usize;
        let range = bounds(&self.starts, part);
        match &self.members {
            Members::Narrow(units) => Part::Narrow(&units[range]),
            Members::Wide(units) => Part::Wide(&units[range]),
        }
    }
}

impl Part<'_> {
    pub(super) fn len(self) -> u64 {
        match self {
            Part::Narrow(units) => units.len() as u64,
            Part::Wide(units) => units.len() as u64,
        }
    }

    /// The unit at a place of the part, which must be less than its length.
    pub(super) fn unit(self, place: u64) -> u64 {
        match self {
            Part::Narrow(units) => u64::from(units[place as usize]),
            Part::Wide(units) => units[place as usize],
        }
    }
}

fn is_narrow(dataset_size: u64) -> bool {
    dataset_size <= 1 << 32
}

fn bounds(starts: &[u64], part: usize) -> Range<usize> {
    starts[part] as usize..starts[part + 1] as usize
}

/// An empty list with room for `len` items, or an error that says how much memory is missing.
fn room<T>(len: u64) -> Result<Vec<T>> {
    let refuse = || Error::OutOfMemory { bytes: u128::from(len) * size_of::<T>() as u128 };
    let mut list = Vec::new();
    list.try_reserve_exact(usize::try_from(len).map_err(|_| refuse())?).map_err(|_| refuse())?;
    Ok(list)
}

/// The starts `⌊j·size/parts⌋` for `j = 0…parts`, which make parts of even size.
fn even_starts(size: u64, parts: u64) -> Result<Vec<u64>> {
    let mut starts = room(parts + 1)?;
    starts.extend((0..=parts).map(|j| (u128::from(j) * u128::from(size) / u128::from(parts)) as u64));
    Ok(starts)
}

fn unit<T: Unit>(number: u64) -> T {
    T::try_from(number).unwrap_or_else(|_| unreachable!("the width was chosen by the dataset's size"))
}

/// The shuffle of Fisher and Yates, from the last place down; then every part is sorted, since only its set of units matters.
fn shuffled<T: Unit>(cipher: &ChaCha, size: u64, starts: &[u64]) -> Result<Vec<T>> {
    let mut units: Vec<T> = room(size)?;
    units.extend((0..size).map(unit::<T>));
    let mut words = Words::new(cipher, Purpose::Shuffle, 0, 0);
    for place in (1..size).rev() {
        units.swap(place as usize, words.below(place + 1) as usize);
    }
    for part in 0..starts.len() - 1 {
        units[bounds(starts, part)].sort_unstable();
    }
    Ok(units)
}

/// The bins of all units in order. They are drawn twice, once for the sizes and once for the members, which saves storing them.
fn bins(cipher: &ChaCha, size: u64, parts: u64) -> impl Iterator<Item = usize> {
    let mut words = Words::new(cipher, Purpose::Bin, 0, 0);
    (0..size).map(move |_| words.below(parts) as usize)
}

fn bin_starts(cipher: &ChaCha, size: u64, parts: u64) -> Result<Vec<u64>> {
    let mut starts = room(parts + 1)?;
    starts.resize(parts as usize + 1, 0);
    bins(cipher, size, parts).for_each(|bin| starts[bin + 1] += 1);
    for part in 0..parts as usize {
        starts[part + 1] += starts[part];
    }
    Ok(starts)
}

/// A counting sort: units ascend within each part because they are placed in order.
fn binned<T: Unit>(cipher: &ChaCha, size: u64, starts: &[u64]) -> Result<Vec<T>> {
    let mut units: Vec<T> = room(size)?;
    units.resize(size as usize, unit(0));
    let mut free: Vec<u64> = room(starts.len() as u64)?;
    free.extend_from_slice(starts);
    for (number, bin) in bins(cipher, size, starts.len() as u64 - 1).enumerate() {
        units[free[bin] as usize] = unit(number as u64);
        free[bin] += 1;
    }
    Ok(units)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chacha::Rounds;

    fn cipher() -> ChaCha {
        ChaCha::new(&[8; 32], Rounds::R12)
    }

    #[test]
    fn both_widths_hold_the_same_units() {
        let (cipher, size) = (cipher(), 1000);
        let starts = even_starts(size, 7).unwrap();
        let narrow: Vec<u64> =
            shuffled::<u32>(&cipher, size, &starts).unwrap().into_iter().map(u64::from).collect();
        assert_eq!(narrow, shuffled::<u64>(&cipher, size, &starts).unwrap());
        let starts = bin_starts(&cipher, size, 7).unwrap();
        let narrow: Vec<u64> =
            binned::<u32>(&cipher, size, &starts).unwrap().into_iter().map(u64::from).collect();
        let wide = binned::<u64>(&cipher, size, &starts).unwrap();
        assert_eq!(narrow, wide);
        let parts = Parts { members: Members::Wide(wide), starts };
        assert_eq!(parts.at(9).len(), parts.starts[3] - parts.starts[2]);
        assert_eq!(parts.at(9).unit(1), narrow[parts.starts[2] as usize + 1]);
        assert!(is_narrow(1 << 32) && !is_narrow((1 << 32) + 1), "2^32 units have indices below 2^32");
    }

    #[test]
    fn cuts_are_even_and_do_not_overflow() {
        assert_eq!(even_starts(10, 4).unwrap(), [0, 2, 5, 7, 10]);
        let (size, parts) = ((1 << 40) - 1, 1 << 12);
        let starts = even_starts(size, parts).unwrap();
        assert_eq!((starts[0], starts[1 << 12]), (0, size));
        assert!(
            starts.windows(2).all(|pair| [size / parts, size / parts + 1].contains(&(pair[1] - pair[0])))
        );
    }

    #[test]
    fn a_dataset_that_does_not_fit_is_an_error() {
        let error = room::<u64>(1 << 60).unwrap_err().to_string();
        assert!(error.contains("9223372036854775808 bytes"), "{error}");
    }
}
