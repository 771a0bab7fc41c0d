//! One allocation: its bytes, which of them were written, and who touched them in the current launch.

use super::barriers::Barriers;
use super::shadow::Shadow;
use super::uses::Uses;

/// The kind of an allocation, which decides the instructions that may touch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Memory of `cuMemAlloc…`, or a module's `.global` variable.
    Global,
    /// A module's `.const` variable, which kernels can only read.
    Const,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Global => "an allocation",
            Kind::Const => "a constant",
        }
    }
}

/// The byte that fills fresh memory, if the allocation is small enough to be filled: as f32 it is about -3e-26, as an index absurd.
const POISON: u8 = 0x95;
/// The largest allocation that is filled. Larger ones keep the operating system's lazy zero pages; the record of written bytes
/// guards them as well.
const LARGEST_POISONED: usize = 256 << 20;

pub(crate) struct Block {
    pub base: u64,
    pub kind: Kind,
    bytes: Vec<u8>,
    /// One bit per byte: set if the byte was written.
    written: Vec<u64>,
    pub(super) shadow: Shadow,
    /// The shadow for kernels with barriers.
    pub(super) barriers: Barriers,
    pub(super) uses: Uses,
}

impl Block {
    pub(super) fn new(base: u64, len: usize, kind: Kind) -> Self {
        let bytes = if len <= LARGEST_POISONED { vec![POISON; len] } else { vec![0; len] };
        let (shadow, barriers) = (Shadow::new(len), Barriers::new(len));
        Self { base, kind, bytes, written: vec![0; len.div_ceil(64)], shadow, barriers, uses: Uses::new(len) }
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Whether `[address, address + len)` lies inside the allocation; `address` is at or after its base.
    #[inline(always)]
    pub(super) fn holds(&self, address: u64, len: u64) -> bool {
        let at = address.wrapping_sub(self.base);
        at < self.len() && len <= self.len() - at
    }

    pub(super) fn mark_written(&mut self, at: usize, len: usize) {
        for (word, mask) in words(at, len) {
            self.written[word] |= mask;
        }
    }

    /// Whether all of an aligned access of at most 16 bytes was written; such an access never crosses a word.
    #[inline(always)]
    pub(super) fn is_written(&self, at: usize, len: usize) -> bool {
        let mask = ((1u64 << len) - 1) << (at % 64);
        self.written[at / 64] & mask == mask
    }

    /// Marks all of an aligned access of at most 16 bytes as written.
    #[inline(always)]
    pub(super) fn set_written(&mut self, at: usize, len: usize) {
        self.written[at / 64] |= ((1u64 << len) - 1) << (at % 64);
    }

    pub(super) fn check_written(&self, at: usize, len: usize) -> Result<(), String> {
        for (word, mask) in words(at, len) {
            let missing = mask & !self.written[word];
            if missing != 0 {
                let byte = 64 * word + missing.trailing_zeros() as usize;
                return Err(format!(
                    "byte +{byte} of the allocation of {} bytes was never written",
                    self.len()
                ));
            }
        }
        Ok(())
    }
}

/// The words of a bitmap that `[at, at + len)` touches, each with the bits it touches.
fn words(at: usize, len: usize) -> impl Iterator<Item = (usize, u64)> {
    let end = at + len;
    (at / 64..end.div_ceil(64)).map(move |word| {
        let low = if word == at / 64 { u64::MAX << (at % 64) } else { u64::MAX };
        let high = if end < 64 * (word + 1) { (1 << (end % 64)) - 1 } else { u64::MAX };
        (word, low & high)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_cover_exactly_the_range() {
        for (at, len) in [(0, 0), (0, 1), (3, 61), (3, 62), (63, 1), (64, 64), (5, 200), (128, 1)] {
            let bits: usize = words(at, len).map(|(_, mask)| mask.count_ones() as usize).sum();
            assert_eq!(bits, len, "{at} {len}");
            for (word, mask) in words(at, len) {
                assert!(
                    (0..64).all(|bit| (mask >> bit & 1 == 1) == (at..at + len).contains(&(64 * word + bit)))
                );
            }
        }
    }

    #[test]
    fn one_unwritten_byte_is_found() {
        let mut block = Block::new(0, 300, Kind::Global);
        block.mark_written(0, 299);
        assert!(block.check_written(0, 299).is_ok() && block.is_written(288, 8));
        assert!(block.check_written(0, 300).is_err() && !block.is_written(296, 4));
    }
}
