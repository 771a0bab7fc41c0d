//! The ChaCha keystream with a 64-bit block counter and a 64-bit stream number, written to be read.
//!
//! ```text
//! "expa" "nd 3" "2-by" "te k"
//!  key0   key1   key2   key3
//!  key4   key5   key6   key7
//!  block  block  stream stream     low word first
//! ```
//! The words are those of `rand_chacha` with `from_seed(key)` and `set_stream(stream)`, from word position `16·block` on.

use crate::error::{Error, Result};
use crate::secret::{Secret, clear_registers};

/// The number of rounds of the cipher, which is part of the plan.
///
/// The best published attack on ChaCha reaches 7 rounds; 12 are the default, 8 the fastest, 20 the most cautious.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum Rounds {
    /// 8 rounds, the fastest choice.
    R8,
    /// 12 rounds, the default.
    #[default]
    R12,
    /// 20 rounds, as in RFC 8439.
    R20,
}

impl Rounds {
    /// Number of double rounds: a column round and a diagonal round.
    pub fn double_rounds(self) -> u32 {
        u32::from(self) / 2
    }
}

impl From<Rounds> for u32 {
    fn from(rounds: Rounds) -> u32 {
        match rounds {
            Rounds::R8 => 8,
            Rounds::R12 => 12,
            Rounds::R20 => 20,
        }
    }
}

impl TryFrom<u32> for Rounds {
    type Error = Error;
    fn try_from(rounds: u32) -> Result<Rounds> {
        match rounds {
            8 => Ok(Rounds::R8),
            12 => Ok(Rounds::R12),
            20 => Ok(Rounds::R20),
            other => Err(Error::parameter("ChaCha rounds", other, "8, 12 or 20")),
        }
    }
}

/// "expand 32-byte k" as little-endian words.
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// A keyed cipher: everything but block and stream. The key lies in memory that core dumps leave out, and is wiped when dropped.
#[derive(Clone)]
pub struct ChaCha {
    key: Secret<u32>,
    rounds: Rounds,
}

impl ChaCha {
    /// A cipher under this key, whose bytes are read as little-endian words.
    pub fn new(key: &[u8; 32], rounds: Rounds) -> ChaCha {
        let mut own = Secret::zeroed(8);
        for (word, bytes) in own.iter_mut().zip(key.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        clear_registers();
        ChaCha { key: own, rounds }
    }

    /// The rounds this cipher runs.
    pub fn rounds(&self) -> Rounds {
        self.rounds
    }

    /// The state before the rounds, for one block of one stream.
    pub fn initial_state(&self, stream: u64, block: u64) -> [u32; 16] {
        let mut state = [0; 16];
        state[..4].copy_from_slice(&CONSTANTS);
        state[4..12].copy_from_slice(&self.key);
        state[12] = block as u32;
        state[13] = (block >> 32) as u32;
        state[14] = stream as u32;
        state[15] = (stream >> 32) as u32;
        state
    }

    /// The 16 words of one block.
    pub fn block(&self, stream: u64, block: u64) -> [u32; 16] {
        let initial = self.initial_state(stream, block);
        let mut x = initial;
        for _ in 0..self.rounds.double_rounds() {
            for column in 0..4 {
                quarter_round(&mut x, column, 4 + column, 8 + column, 12 + column);
            }
            for diagonal in 0..4 {
                let [b, c, d] = [1, 2, 3].map(|shift| (diagonal + shift) % 4);
                quarter_round(&mut x, diagonal, 4 + b, 8 + c, 12 + d);
            }
        }
        std::array::from_fn(|i| x[i].wrapping_add(initial[i]))
    }
}

/// Columns 2 and 3 of a stream's state after its first column round, each from top to bottom: they hold no block number, so all blocks
/// share them. Half of the key follows from them, since rounds can be undone.
pub fn first_columns(key: &[u32; 8], stream: u64) -> [u32; 8] {
    let mut x = [0; 16];
    x[..4].copy_from_slice(&CONSTANTS);
    x[4..12].copy_from_slice(key);
    x[14] = stream as u32;
    x[15] = (stream >> 32) as u32;
    quarter_round(&mut x, 2, 6, 10, 14);
    quarter_round(&mut x, 3, 7, 11, 15);
    std::array::from_fn(|i| x[4 * (i % 4) + 2 + i / 4])
}

pub(crate) fn quarter_round(x: &mut [u32; 16], a: usize, b: usize, c: usize, d: usize) {
    for (left_d, left_b) in [(16, 12), (8, 7)] {
        x[a] = x[a].wrapping_add(x[b]);
        x[d] = (x[d] ^ x[a]).rotate_left(left_d);
        x[c] = x[c].wrapping_add(x[d]);
        x[b] = (x[b] ^ x[c]).rotate_left(left_b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_continue_from_the_first_columns() {
        let bytes: [u8; 32] = std::array::from_fn(|i| (i * 7 + 3) as u8);
        let cipher = ChaCha::new(&bytes, Rounds::R8);
        let (stream, block) = (0x8123_4567_89ab_cdef, 0x0fed_cba9_8765_4321);
        let initial = cipher.initial_state(stream, block);
        let columns = first_columns(initial[4..12].try_into().unwrap(), stream);
        let mut x = initial;
        for (i, word) in columns.into_iter().enumerate() {
            x[4 * (i % 4) + 2 + i / 4] = word;
        }
        for round in 0..8 {
            // The first round is that of columns, and two of those are done.
            for i in 0..if round == 0 { 2 } else { 4 } {
                let shift = |by: usize| if round % 2 == 0 { i } else { (i + by) % 4 };
                quarter_round(&mut x, i, 4 + shift(1), 8 + shift(2), 12 + shift(3));
            }
        }
        let words: [u32; 16] = std::array::from_fn(|i| x[i].wrapping_add(initial[i]));
        assert_eq!(words, cipher.block(stream, block));
    }
}
