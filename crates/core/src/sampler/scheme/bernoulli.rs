//! Independent coin flips, 64 units at a time, in integer arithmetic.
//!
//! A unit joins if a uniform 64-bit number is below `T = ⌊p·2^64⌋`. The numbers of 64 units are compared bit by bit, from the
//! top, each random word holding one bit of all 64:
//!
//! ```text
//! bit of T   word's bit    the unit is
//!    1           0         in, for good
//!    0           1         out, for good
//!        equal             undecided; after the last bit: equal, hence out
//! ```
//! Every word decides half of the undecided units, so a group takes about 8 words where 64 numbers would take 64.

use super::Purpose;
use crate::chacha::ChaCha;
use crate::sampler::words::Words;

/// The number of blocks that belong to a group of 64 units: 64 words of 64 bits, one per bit of the threshold.
const BLOCKS_PER_GROUP: u64 = 8;

/// A probability as the number of 64-bit words below a threshold.
#[derive(Clone, Copy)]
pub(in crate::sampler) enum Coin {
    /// The unit joins if a uniform word is below this.
    Below(u64),
    /// The unit always joins: 2^64 words are below a threshold that no 64-bit number holds.
    Always,
}

impl Coin {
    /// The largest coin that is not above `prob`, which lies in (0, 1].
    pub(in crate::sampler) fn new(prob: f64) -> Coin {
        if prob >= 1.0 {
            return Coin::Always;
        }
        // Multiplying by a power of two changes no digit, and the cast cuts the fraction off: the result is the same on every machine.
        Coin::Below((prob * 18_446_744_073_709_551_616.0) as u64)
    }

    /// The probability in units of 2^−64.
    pub(in crate::sampler) fn threshold(self) -> u128 {
        match self {
            Coin::Below(threshold) => u128::from(threshold),
            Coin::Always => 1 << 64,
        }
    }

    /// The places among `places`, a set of bits, whose coins in a group of 64 say yes; the row is that of a purpose and an index.
    pub(in crate::sampler) fn heads(
        self,
        cipher: &ChaCha,
        purpose: Purpose,
        index: u64,
        group: u64,
        places: u64,
    ) -> u64 {
        match self {
            Coin::Always => places,
            Coin::Below(threshold) => {
                let mut words = Words::new(cipher, purpose, index, BLOCKS_PER_GROUP * group);
                below(threshold, places, || words.next())
            }
        }
    }

    /// Calls `join` with the units among `size` that join at `step`, ascending.
    pub(in crate::sampler) fn flip(self, cipher: &ChaCha, step: u64, size: u64, mut join: impl FnMut(u64)) {
        for group in 0..size.div_ceil(64) {
            let left = size - 64 * group;
            let units = if left < 64 { (1 << left) - 1 } else { u64::MAX };
            let mut joining = self.heads(cipher, Purpose::Join, step, group, units);
            while joining != 0 {
                join(64 * group + u64::from(joining.trailing_zeros()));
                joining &= joining - 1;
            }
        }
    }
}

/// The units among `units` whose numbers are below the threshold; word `k` holds bit `63 − k` of all numbers.
fn below(threshold: u64, units: u64, mut word: impl FnMut() -> u64) -> u64 {
    let (mut undecided, mut joining) = (units, 0);
    let mut rest = threshold;
    // Once the rest of the threshold is zero, no undecided number can be below it.
    while rest != 0 && undecided != 0 {
        let random = word();
        if rest >> 63 == 1 {
            joining |= undecided & !random;
            undecided &= random;
        } else {
            undecided &= !random;
        }
        rest <<= 1;
    }
    joining
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chacha::Rounds;

    fn threshold(prob: f64) -> u64 {
        match Coin::new(prob) {
            Coin::Below(threshold) => threshold,
            Coin::Always => panic!("{prob} is not certain"),
        }
    }

    #[test]
    fn thresholds_are_exact_and_never_above() {
        assert_eq!(threshold(0.5), 1 << 63);
        assert_eq!(threshold(1.0 - 2.0_f64.powi(-53)), 0xffff_ffff_ffff_f800);
        assert_eq!(threshold(1.0 / 3.0), 0x5555_5555_5555_5400);
        // 1e-4 is 0x1.a36e2eb1c432dp-14: two of its 53 binary digits are cut off.
        assert_eq!(threshold(1e-4), 0x0006_8db8_bac7_10cb);
        assert_eq!(threshold(2.0_f64.powi(-64)), 1);
        assert_eq!(threshold(1.9 * 2.0_f64.powi(-64)), 1);
        assert_eq!(threshold(f64::from_bits(1)), 0);
        assert!(matches!(Coin::new(1.0), Coin::Always));
    }

    /// Builds each unit's number bit by bit and compares it as a whole.
    fn one_by_one(threshold: u64, words: &[u64; 64]) -> u64 {
        let number = |unit: usize| (0..64).fold(0_u64, |n, k| n << 1 | words[k] >> unit & 1);
        (0..64).filter(|&unit| number(unit) < threshold).fold(0, |set, unit| set | 1 << unit)
    }

    #[test]
    fn slices_agree_with_numbers_one_by_one() {
        let cipher = ChaCha::new(&[3; 32], Rounds::R8);
        let fixed = [0.5, 0.75, 1.0 / 3.0, 1e-4, 0.999, 1.0 - 2.0_f64.powi(-53)].map(threshold);
        let mut joined = 0;
        for group in 0..300 {
            let mut source = Words::new(&cipher, Purpose::Join, 9, 8 * group);
            let words: [u64; 64] = std::array::from_fn(|_| source.next());
            // The thresholds are numbers that occur, so that equality and the last bits are reached: units 5 and 60 meet their own numbers.
            let own = [5, 60].map(|unit| (0..64).fold(0_u64, |n, k| n << 1 | words[k] >> unit & 1));
            let near = [own[0], own[0] + 1, own[1], own[1] + 1, own[1] - 1, 0, 1, u64::MAX];
            for threshold in fixed.into_iter().chain(near) {
                let mut next = words.iter().copied();
                let joining = below(threshold, u64::MAX, || next.next().unwrap());
                assert_eq!(joining, one_by_one(threshold, &words), "{threshold:x}, group {group}");
                joined += joining.count_ones();
            }
            assert_eq!(below(own[0], u64::MAX, words_of(&words)) >> 5 & 1, 0, "equal is not below");
            assert_eq!(below(own[0] + 1, u64::MAX, words_of(&words)) >> 5 & 1, 1);
        }
        assert!(joined > 0);
    }

    fn words_of(words: &[u64; 64]) -> impl FnMut() -> u64 {
        let mut next = words.iter().copied();
        move || next.next().unwrap()
    }

    #[test]
    fn a_last_group_that_is_not_full_ends_where_the_units_end() {
        let cipher = ChaCha::new(&[3; 32], Rounds::R8);
        for size in [1, 63, 64, 65, 130] {
            let mut all = Vec::new();
            Coin::Always.flip(&cipher, 0, size, |unit| all.push(unit));
            assert_eq!(all, (0..size).collect::<Vec<_>>());
            let [mut some, mut more] = [Vec::new(), Vec::new()];
            Coin::new(0.4).flip(&cipher, 0, size, |unit| some.push(unit));
            Coin::new(0.4).flip(&cipher, 0, 192, |unit| more.push(unit));
            more.retain(|unit| *unit < size);
            assert_eq!(some, more, "a unit's flips do not depend on how many follow");
        }
    }
}
