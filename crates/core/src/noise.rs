//! The noise specification in code: `(key, row, coordinate) → f32`, one coordinate at a time.
//!
//! This file and the two it calls ([`crate::chacha`], [`crate::gauss`]) are the reference that every engine is compared
//! with, bit for bit. `docs/noise-spec.md` says the same in words.

mod tails;

use crate::chacha::ChaCha;
use crate::gauss;
use crate::row::Row;
pub(crate) use tails::extend_tails;

/// Coordinates per tile: 32 blocks of 16 words.
pub const TILE: usize = 512;

/// ChaCha blocks per tile.
pub const BLOCKS_PER_TILE: u64 = 32;

/// The ChaCha block, and the word in it, that a coordinate uses.
///
/// Within a tile, a block feeds four runs of four neighbours, 128 coordinates apart: 32 threads that own one block each
/// then touch 512 contiguous bytes per access, and a CPU that computes blocks side by side needs only 4×4 transposes.
pub fn position(coord: u64) -> (u64, usize) {
    let (tile, r) = (coord / TILE as u64, (coord % TILE as u64) as usize);
    let (quad, lane, j) = (r / 128, r % 128 / 4, r % 4);
    (BLOCKS_PER_TILE * tile + lane as u64, 4 * quad + j)
}

/// The standard normal of one coordinate of one row.
pub fn normal(cipher: &ChaCha, row: Row, coord: u64) -> f32 {
    let (block, word) = position(coord);
    let words = cipher.block(row.stream(), block);
    let pair = block_normals(cipher, row, block, &words, word / 2);
    if word % 2 == 0 { pair.0 } else { pair.1 }
}

/// Normals `2·pair` and `2·pair + 1` of a block whose words are already computed.
fn block_normals(cipher: &ChaCha, row: Row, block: u64, words: &[u32; 16], pair: usize) -> (f32, f32) {
    let (radius_word, angle_word) = (words[2 * pair], words[2 * pair + 1]);
    let radius = match tails::is_tail(radius_word) {
        true => tails::radius(cipher, row, block, radius_word, pair),
        false => gauss::radius(radius_word),
    };
    gauss::normals(radius, angle_word)
}

/// The index within its tile of the first normal of a pair; the inverse of [`position`].
fn place(lane: usize, pair: usize) -> usize {
    128 * (pair / 2) + 4 * lane + 2 * (pair % 2)
}

/// All 512 normals of a tile, block by block.
pub fn tile(cipher: &ChaCha, row: Row, tile: u64, out: &mut [f32; TILE]) {
    for lane in 0..BLOCKS_PER_TILE as usize {
        let block = BLOCKS_PER_TILE * tile + lane as u64;
        let words = cipher.block(row.stream(), block);
        for pair in 0..8 {
            let (first, second) = block_normals(cipher, row, block, &words, pair);
            let at = place(lane, pair);
            (out[at], out[at + 1]) = (first, second);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chacha::Rounds;
    use crate::row::Family;

    #[test]
    fn positions_use_every_word_of_a_tile_once() {
        for tile in [0, 7, 1 << 40] {
            let mut seen = [false; TILE];
            for r in 0..TILE as u64 {
                let (block, word) = position(tile * TILE as u64 + r);
                let slot = (block - 32 * tile) as usize * 16 + word;
                assert!(!std::mem::replace(&mut seen[slot], true));
            }
        }
    }

    #[test]
    fn tile_is_the_coordinates_one_by_one() {
        let cipher = ChaCha::new(&[7; 32], Rounds::R8);
        let row = Row::new(Family::Step, 2, 99).unwrap();
        let mut out = [f32::NAN; TILE];
        tile(&cipher, row, 3, &mut out);
        for (r, z) in out.iter().enumerate() {
            assert_eq!(z.to_bits(), normal(&cipher, row, 3 * TILE as u64 + r as u64).to_bits());
        }
    }
}
