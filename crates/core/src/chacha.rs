//! The ChaCha keystream with a 64-bit block counter and a 64-bit stream number, written to be read.
//!
//! ```text
//! "expa" "nd 3" "2-by" "te k"
//!  key0   key1   key2   key3
//!  key4   key5   key6   key7
//!  block  block  stream stream     low word first
//! ```
//! Word for word what `rand_chacha` makes of `from_seed(key)`, `set_stream(stream)` at word position `16·block`.

use crate::error::{Error, Result};
use crate::secret::{Secret, clear_registers};

/// How many rounds the cipher runs. Part of the plan.
///
/// The best published attack on ChaCha reaches 7 rounds; 12 are the default, 8 the fastest, 20 the most cautious.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum Rounds {
    /// ChaCha8, the fastest of the three.
    R8,
    /// ChaCha12, the default of a plan.
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

/// A keyed cipher: everything but block and stream. The key lies where core dumps do not look, and is wiped when dropped.
#[derive(Clone)]
pub struct ChaCha {
    key: Secret<u32>,
    rounds: Rounds,
}

impl ChaCha {
    /// Key bytes are read as little-endian words.
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

pub(crate) fn quarter_round(x: &mut [u32; 16], a: usize, b: usize, c: usize, d: usize) {
    for (left_d, left_b) in [(16, 12), (8, 7)] {
        x[a] = x[a].wrapping_add(x[b]);
        x[d] = (x[d] ^ x[a]).rotate_left(left_d);
        x[c] = x[c].wrapping_add(x[d]);
        x[b] = (x[b] ^ x[c]).rotate_left(left_b);
    }
}
