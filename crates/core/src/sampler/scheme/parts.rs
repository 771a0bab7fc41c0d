//! Parts of the dataset that take turns: drawn once, by a permutation or by a bin for every unit, or with new bins in every epoch.

use super::Purpose;
use crate::chacha::ChaCha;
use crate::error::{Error, Result};
use crate::sampler::words::Words;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Parts of a dataset, each with its units ascending.
pub(in crate::sampler) struct Parts {
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
pub(in crate::sampler) enum Part<'a> {
    Narrow(&'a [u32]),
    Wide(&'a [u64]),
}

/// An integer type that can hold the units of [`Members`].
trait Unit: Copy + Ord + TryFrom<u64> {}
impl Unit for u32 {}
impl Unit for u64 {}

impl Parts {
    /// Shuffles the dataset and cuts it into parts whose sizes differ by at most one.
    pub(in crate::sampler) fn shuffled(cipher: &ChaCha, dataset_size: u64, num_parts: u64) -> Result<Parts> {
        let starts = even_starts(dataset_size, num_parts)?;
        let members = if is_narrow(dataset_size) {
            Members::Narrow(shuffled(cipher, dataset_size, &starts)?)
        } else {
            Members::Wide(shuffled(cipher, dataset_size, &starts)?)
        };
        Ok(Parts { members, starts })
    }

    /// Puts every unit independently into a uniformly random part.
    pub(in crate::sampler) fn binned(cipher: &ChaCha, dataset_size: u64, num_parts: u64) -> Result<Parts> {
        let mut starts = room(num_parts + 1)?;
        starts.resize(num_parts as usize + 1, 0);
        let members = if is_narrow(dataset_size) {
            Members::Narrow(zeros(dataset_size)?)
        } else {
            Members::Wide(zeros(dataset_size)?)
        };
        let mut parts = Parts { members, starts };
        parts.draw_bins(cipher, 0);
        Ok(parts)
    }

    /// Puts every unit into a part anew, in the memory that there is: the bins of another index are independent of these.
    pub(in crate::sampler) fn draw_bins(&mut self, cipher: &ChaCha, index: u64) {
        match &mut self.members {
            Members::Narrow(units) => draw_bins(cipher, index, units, &mut self.starts),
            Members::Wide(units) => draw_bins(cipher, index, units, &mut self.starts),
        }
    }

    /// The part whose turn it is at a step.
    pub(in crate::sampler) fn at(&self, step: u64) -> Part<'_> {
        let part = (step % (self.starts.len() as u64 - 1)) as usize;
        let range = bounds(&self.starts, part);
        match &self.members {
            Members::Narrow(units) => Part::Narrow(&units[range]),
            Members::Wide(units) => Part::Wide(&units[range]),
        }
    }
}

/// Parts by a bin for every unit that is drawn anew in every epoch. Those of one epoch are in memory, so steps are cheapest in order.
pub(in crate::sampler) struct Epochs(Mutex<Epoch>);

struct Epoch {
    number: u64,
    parts: Parts,
}

impl Epochs {
    /// Draws the first epoch.
    pub(in crate::sampler) fn new(cipher: &ChaCha, dataset_size: u64, num_bins: u64) -> Result<Epochs> {
        let parts = Parts::binned(cipher, dataset_size, num_bins)?;
        Ok(Epochs(Mutex::new(Epoch { number: 0, parts })))
    }

    /// Calls `take` with the part of a step, whose epoch is drawn if it is another one than before.
    pub(in crate::sampler) fn at(&self, cipher: &ChaCha, step: u64, take: impl FnOnce(Part<'_>)) {
        let mut epoch = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = step / (epoch.parts.starts.len() as u64 - 1);
        if epoch.number != number {
            // No epoch has this number: should drawing be cut short by a panic, what it leaves is used by nobody.
            epoch.number = u64::MAX;
            epoch.parts.draw_bins(cipher, number);
            epoch.number = number;
        }
        take(epoch.parts.at(step));
    }
}

impl Part<'_> {
    /// Appends all units of the part.
    pub(in crate::sampler) fn append_to(self, indices: &mut Vec<u64>) {
        match self {
            Part::Narrow(units) => indices.extend(units.iter().map(|unit| u64::from(*unit))),
            Part::Wide(units) => indices.extend_from_slice(units),
        }
    }

    pub(in crate::sampler) fn len(self) -> u64 {
        match self {
            Part::Narrow(units) => units.len() as u64,
            Part::Wide(units) => units.len() as u64,
        }
    }

    /// The unit at a place of the part, which must be less than its length.
    pub(in crate::sampler) fn unit(self, place: u64) -> u64 {
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
pub(in crate::sampler) fn room<T>(len: u64) -> Result<Vec<T>> {
    let refuse = || Error::OutOfMemory { bytes: u128::from(len) * size_of::<T>() as u128 };
    let mut list = Vec::new();
    list.try_reserve_exact(usize::try_from(len).map_err(|_| refuse())?).map_err(|_| refuse())?;
    Ok(list)
}

fn zeros<T: Unit>(len: u64) -> Result<Vec<T>> {
    let mut list = room(len)?;
    list.resize(len as usize, unit(0));
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
fn bins(cipher: &ChaCha, index: u64, size: u64, parts: u64) -> impl Iterator<Item = usize> {
    let mut words = Words::new(cipher, Purpose::Bin, index, 0);
    (0..size).map(move |_| words.below(parts) as usize)
}

/// A counting sort: units ascend within each part because they are placed in order.
fn draw_bins<T: Unit>(cipher: &ChaCha, index: u64, units: &mut [T], starts: &mut [u64]) {
    let (size, parts) = (units.len() as u64, starts.len() - 1);
    let bins = || bins(cipher, index, size, parts as u64);
    starts.fill(0);
    bins().for_each(|bin| starts[bin + 1] += 1);
    for part in 0..parts {
        starts[part + 1] += starts[part];
    }
    // Each start moves on to the next place that is free, and so ends where the following part starts.
    for (number, bin) in bins().enumerate() {
        units[starts[bin] as usize] = unit(number as u64);
        starts[bin] += 1;
    }
    starts.copy_within(..parts, 1);
    starts[0] = 0;
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
        let (mut narrow, mut wide) = (vec![0_u32; size as usize], vec![0_u64; size as usize]);
        let (mut starts, mut again) = ([9_u64; 8], [0_u64; 8]);
        draw_bins(&cipher, 3, &mut narrow, &mut starts);
        draw_bins(&cipher, 3, &mut wide, &mut again);
        let narrow: Vec<u64> = narrow.into_iter().map(u64::from).collect();
        assert_eq!((&narrow, starts), (&wide, again));
        let parts = Parts { members: Members::Wide(wide), starts: starts.to_vec() };
        assert_eq!(parts.at(9).len(), parts.starts[3] - parts.starts[2]);
        assert_eq!(parts.at(9).unit(1), narrow[parts.starts[2] as usize + 1]);
        assert!(is_narrow(1 << 32) && !is_narrow((1 << 32) + 1), "2^32 units have indices below 2^32");
    }

    #[test]
    fn bins_drawn_in_old_memory_are_those_drawn_in_new() {
        let cipher = cipher();
        let mut parts = Parts::binned(&cipher, 500, 9).unwrap();
        let members = |parts: &Parts| -> Vec<Vec<u64>> {
            (0..9).map(|j| (0..parts.at(j).len()).map(|place| parts.at(j).unit(place)).collect()).collect()
        };
        let first = members(&parts);
        parts.draw_bins(&cipher, 1);
        let other = members(&parts);
        assert_ne!(first, other);
        assert!(other.iter().all(|units| units.is_sorted_by(|a, b| a < b)));
        parts.draw_bins(&cipher, 0);
        assert_eq!(members(&parts), first);
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
