//! Random numbers of a sample: words of ChaCha under a key that is a hash, a stream for every eight samples. So no sample depends on how many
//! threads there are, or on how many numbers another one has used.

use corrnoise_core::Rounds;
use corrnoise_core::chacha::ChaCha;
use corrnoise_numerics::{LANES, Lane, normals};

/// The words of one stream, in order.
pub(super) struct Source<'a> {
    cipher: &'a ChaCha,
    stream: u64,
    /// The number of the next block.
    block: u64,
    /// Words that are left of the last block, the next one at the end.
    rest: Vec<u64>,
}

/// The cipher of a key.
pub(super) fn cipher(key: &[u8; 32]) -> ChaCha {
    ChaCha::new(key, Rounds::R8)
}

impl<'a> Source<'a> {
    pub(super) fn new(cipher: &'a ChaCha, stream: u64) -> Source<'a> {
        Source { cipher, stream, block: 0, rest: Vec::with_capacity(8) }
    }

    fn words(&mut self) -> [u64; 8] {
        let block = self.cipher.block(self.stream, self.block);
        self.block += 1;
        std::array::from_fn(|i| u64::from(block[2 * i]) | u64::from(block[2 * i + 1]) << 32)
    }

    /// A number in [0, 1).
    pub(super) fn uniform(&mut self) -> f64 {
        if self.rest.is_empty() {
            let words = self.words();
            self.rest.extend(words);
        }
        let word = self.rest.pop().unwrap_or(0);
        (word >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Fills lanes with standard normals; `words` is memory for their words.
    pub(super) fn normals(&mut self, words: &mut Vec<u64>, out: &mut Vec<Lane>, count: usize) {
        let blocks = count.next_multiple_of(2);
        words.clear();
        (0..blocks).for_each(|_| words.extend(self.words()));
        out.resize(blocks, [0.0; LANES]);
        normals(words, out.as_flattened_mut());
        out.truncate(count);
    }
}
