//! Random words of the sampler's own rows, 64 bits at a time, and whole numbers below a bound.

use super::scheme::Purpose;
use crate::chacha::ChaCha;
use crate::row::{Family, Row};

/// Consecutive 64-bit words of a row: word `k` of a block is its 32-bit words `2k` (low half) and `2k + 1`.
pub(super) struct Words<'a> {
    cipher: &'a ChaCha,
    stream: u64,
    next_block: u64,
    block: [u32; 16],
    used: usize,
}

impl<'a> Words<'a> {
    /// The words of a row from a block on. `index` is a step of a plan or 0, so the row's name is valid.
    pub(super) fn new(cipher: &'a ChaCha, purpose: Purpose, index: u64, first_block: u64) -> Words<'a> {
        let row = Row::new(Family::Sampler, purpose as u16, index).expect("a plan's step has a row");
        Words { cipher, stream: row.stream(), next_block: first_block, block: [0; 16], used: 16 }
    }

    pub(super) fn next(&mut self) -> u64 {
        if self.used == 16 {
            self.block = self.cipher.block(self.stream, self.next_block);
            self.next_block += 1;
            self.used = 0;
        }
        let [low, high] = [0, 1].map(|i| u64::from(self.block[self.used + i]));
        self.used += 2;
        low | high << 32
    }

    /// A number uniform below `bound`, which is at least 1, without bias (Lemire, "Fast random integer generation in an
    /// interval", 2019): the high half of `word · bound`, but a word is drawn again if the low half is below `2^64 mod bound`,
    /// so that each value keeps the same number of words.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        loop {
            let product = u128::from(self.next()) * u128::from(bound);
            // The remainder is less than the bound, and a division is slow: most words need none.
            let low = product as u64;
            if low >= bound || low >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// A number uniform below `bound`, which is 2^64 or more: two words, the second the high half, of which as many low bits count as
    /// `bound − 1` has, are drawn again until they are below `bound`. That is every second time at most.
    pub(super) fn below_wide(&mut self, bound: u128) -> u128 {
        let unused = (bound - 1).leading_zeros();
        loop {
            let [low, high] = [self.next(), self.next()];
            let number = (u128::from(high) << 64 | u128::from(low)) << unused >> unused;
            if number < bound {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chacha::Rounds;

    fn cipher() -> ChaCha {
        ChaCha::new(&std::array::from_fn(|i| (i * 31 + 7) as u8), Rounds::R12)
    }

    #[test]
    fn words_follow_each_other_across_blocks() {
        let cipher = cipher();
        let stream = 2 << 56 | 1 << 40 | 5;
        let mut words = Words::new(&cipher, Purpose::Shuffle, 5, 3);
        for block in 3..6 {
            let expected = cipher.block(stream, block);
            for pair in expected.as_chunks::<2>().0 {
                assert_eq!(words.next(), u64::from(pair[1]) << 32 | u64::from(pair[0]));
            }
        }
    }

    /// At this bound a word in four is drawn again; without that, residue 0 would come half of the time.
    #[test]
    fn numbers_below_a_large_bound_are_unbiased() {
        let cipher = cipher();
        let mut words = Words::new(&cipher, Purpose::Bin, 0, 0);
        let (bound, draws) = (3 << 62, 30_000);
        let mut counts = [0.0_f64; 3];
        for _ in 0..draws {
            let number = words.below(bound);
            assert!(number < bound);
            counts[(number % 3) as usize] += 1.0;
        }
        let expected = f64::from(draws) / 3.0;
        let statistic: f64 = counts.iter().map(|count| (count - expected).powi(2) / expected).sum();
        // χ² with 2 degrees of freedom exceeds x with probability e^{−x/2}: this is 1e-6.
        assert!(statistic < 2.0 * 1e6_f64.ln(), "{statistic}");
    }

    /// Of these 2^65 numbers a quarter is drawn again; the thirds that are left are alike.
    #[test]
    fn wide_numbers_are_unbiased() {
        let cipher = cipher();
        let mut words = Words::new(&cipher, Purpose::Start, 7, 0);
        let bound = 3_u128 << 63;
        let mut counts = [0.0_f64; 3];
        for _ in 0..30_000 {
            let number = words.below_wide(bound);
            assert!(number < bound);
            counts[(number >> 63) as usize] += 1.0;
        }
        let statistic: f64 = counts.iter().map(|count| (count - 1e4).powi(2) / 1e4).sum();
        assert!(statistic < 2.0 * 1e6_f64.ln(), "{statistic}");
        // 2^64 itself needs 64 bits, the most that is asked for 105.
        assert!(words.below_wide(1 << 64) < 1 << 64);
        assert!((0..9).map(|_| words.below_wide((1 << 104) + 1)).any(|number| number > 1 << 100));
    }

    #[test]
    fn every_number_below_a_small_bound_occurs() {
        let cipher = cipher();
        let mut words = Words::new(&cipher, Purpose::Bin, 0, 0);
        assert!((0..100).all(|_| words.below(1) == 0));
        let mut seen = [false; 7];
        (0..500).for_each(|_| seen[words.below(7) as usize] = true);
        assert_eq!(seen, [true; 7]);
    }
}
