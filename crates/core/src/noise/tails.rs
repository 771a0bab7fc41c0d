//! The Gaussian tail: a small radius word is extended by words of the row's tail stream.

use super::{BLOCKS_PER_TILE, TILE, block_normals, place};
use crate::chacha::ChaCha;
use crate::gauss;
use crate::row::Row;

/// True for a radius word that is extended.
pub(super) fn is_tail(radius_word: u32) -> bool {
    radius_word < gauss::TAIL_LIMIT
}

/// The radius of a pair whose radius word is extended, by the pair's own words of the tail stream.
pub(super) fn radius(cipher: &ChaCha, row: Row, block: u64, radius_word: u32, pair: usize) -> f32 {
    let tail = cipher.block(row.tail_stream(), block);
    gauss::tail_radius(radius_word, tail[2 * pair], tail[2 * pair + 1])
}

/// Replaces the normals of one block (`lane` of a tile) whose radius word is small by those of the extended word.
///
/// Engines that sample many words at once ignore the rare extension (one radius word in 65,536) and repair it here.
pub(crate) fn extend_tails(cipher: &ChaCha, row: Row, tile: u64, lane: usize, out: &mut [f32; TILE]) {
    let block = BLOCKS_PER_TILE * tile + lane as u64;
    let words = cipher.block(row.stream(), block);
    for pair in (0..8).filter(|pair| is_tail(words[2 * pair])) {
        let at = place(lane, pair);
        (out[at], out[at + 1]) = block_normals(cipher, row, block, &words, pair);
    }
}
