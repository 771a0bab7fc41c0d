//! Batches of at most so many units: of a larger one, some are kept, every set of them with the same probability.

use super::Purpose;
use crate::chacha::ChaCha;
use crate::sampler::words::Words;

/// Keeps at most `most` of the units from place `from` on, ascending; which ones, only the key and the step decide.
pub(in crate::sampler) fn truncate(cipher: &ChaCha, step: u64, most: u64, units: &mut Vec<u64>, from: usize) {
    let batch = &mut units[from..];
    let len = batch.len() as u64;
    if len <= most {
        return;
    }
    // The first places of a shuffle by Fisher and Yates from below.
    let mut words = Words::new(cipher, Purpose::Keep, step, 0);
    for place in 0..most {
        batch.swap(place as usize, (place + words.below(len - place)) as usize);
    }
    let kept = most as usize;
    batch[..kept].sort_unstable();
    units.truncate(from + kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chacha::Rounds;

    #[test]
    fn every_set_is_kept_alike() {
        let cipher = ChaCha::new(&[4; 32], Rounds::R12);
        let mut counts = [0.0_f64; 1 << 6];
        for step in 0..40_000 {
            let mut units = vec![99, 0, 1, 2, 3, 4, 5];
            truncate(&cipher, step, 3, &mut units, 1);
            assert!(units[0] == 99 && units.len() == 4 && units[1..].is_sorted_by(|a, b| a < b));
            counts[units[1..].iter().map(|unit| 1 << unit).sum::<usize>()] += 1.0;
        }
        let met: Vec<f64> = counts.into_iter().filter(|count| *count > 0.0).collect();
        let statistic: f64 = met.iter().map(|count| (count - 2000.0).powi(2) / 2000.0).sum();
        // χ² with 19 degrees of freedom exceeds 66.6 with probability 3e-7.
        assert!(met.len() == 20 && statistic < 66.6, "{} sets, {statistic}", met.len());
    }

    #[test]
    fn a_batch_that_fits_stays() {
        let cipher = ChaCha::new(&[4; 32], Rounds::R12);
        for most in [3, 4, u64::MAX] {
            let mut units = vec![7, 8, 2];
            truncate(&cipher, 0, most, &mut units, 0);
            assert_eq!(units, [7, 8, 2]);
        }
    }
}
