//! Blocks of the keystream whose radius words are small (one thread in 8192 has one) or whose words are at a limit that is
//! compared with (one in 2³²): cases go where they are.
//!
//! Found by search, with ChaCha8, the key of incarnation 0 and row 0; the tests below make them again.

use corrnoise::chacha::ChaCha;
use corrnoise::{Rounds, RunKey};
use std::sync::OnceLock;

/// Per pair, a block whose radius word is below 2¹⁶, the limit of a tail.
const SMALL: [u64; 8] = [7_130, 88_098, 40_466, 73_900, 140_946, 86_947, 27_211, 11_138];
/// Per pair, a block whose radius word is 2¹⁶ − 1, the largest that has a tail.
const LARGEST: [u64; 8] = [
    9_303_199_582,
    3_040_133_219,
    919_757_258,
    10_396_970_106,
    15_819_469_847,
    5_612_308_529,
    6_790_601_810,
    6_601_948_620,
];
/// Per pair, a block whose radius word is 2¹⁶, the smallest that has none.
const SMALLEST: [u64; 8] = [
    2_649_108_190,
    3_427_847_624,
    791_706_254,
    6_397_168_515,
    7_009_570_603,
    2_669_659_291,
    968_608_996,
    3_130_080_697,
];

/// Per pair, a block whose radius word lies between 2¹⁶ and 2¹⁷, beside one of another pair that has a tail: a tail in its place
/// would move the uniform by almost half a unit of the word or more, enough for the radius to show it.
const BESIDE: [u64; 8] = [
    671_012_966,
    2_617_882_297,
    1_425_905_082,
    1_376_190_607,
    1_761_996_629,
    2_575_786_347,
    1_581_586_125,
    1_734_215_499,
];

/// Per pair, a block whose angle word is 2³² − 1: −1, the last that swaps the two normals.
const LAST_ANGLE: [u64; 8] = [
    2_924_131_144,
    4_945_987_515,
    2_809_047_119,
    3_275_955_824,
    2_776_287_686,
    2_211_084_555,
    6_986_466_269,
    9_204_622_827,
];
/// Per pair, a block whose angle word is 0, the first that does not.
const FIRST_ANGLE: [u64; 8] = [
    3_729_030_801,
    12_012_337_130,
    2_461_553_403,
    4_792_552_622,
    4_534_154_681,
    4_687_810_708,
    453_534_306,
    9_600_102_693,
];

/// The tiles of all these blocks, ascending.
pub(crate) fn tiles() -> impl Iterator<Item = u64> {
    let mut tiles: Vec<u64> = [SMALL, LARGEST, SMALLEST, BESIDE, LAST_ANGLE, FIRST_ANGLE]
        .concat()
        .into_iter()
        .map(|block| block / 32)
        .collect();
    tiles.sort_unstable();
    tiles.dedup();
    tiles.into_iter()
}

/// Some 2,000 tiles with a small radius word, in all pairs evenly; found once.
pub(crate) fn many_tails() -> impl Iterator<Item = u64> {
    static TILES: OnceLock<Vec<u64>> = OnceLock::new();
    let search = || {
        let cipher = ChaCha::new(key(0).bytes(), Rounds::R8);
        let small = |block: &u64| cipher.block(0, *block).iter().step_by(2).any(|word| *word < 1 << 16);
        let mut tiles: Vec<u64> = (0..1 << 24).filter(small).map(|block| block / 32).collect();
        tiles.dedup();
        tiles
    };
    TILES.get_or_init(search).iter().copied()
}

/// The key of an incarnation; no two are alike.
pub(crate) fn key(incarnation: u16) -> RunKey {
    let mut bytes: [u8; 32] = std::array::from_fn(|i| (i * 29 + 3) as u8);
    for (byte, number) in bytes.iter_mut().zip(incarnation.to_le_bytes()) {
        *byte ^= number;
    }
    RunKey::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_have_these_words() {
        let cipher = ChaCha::new(key(0).bytes(), Rounds::R8);
        for pair in 0..8 {
            let word = |blocks: [u64; 8]| cipher.block(0, blocks[pair])[2 * pair];
            assert!(word(SMALL) < 0xffff, "pair {pair}");
            assert_eq!([word(LARGEST), word(SMALLEST)], [0xffff, 0x1_0000], "pair {pair}");
            assert!((0x1_0001..0x2_0000).contains(&word(BESIDE)), "pair {pair}");
            let beside = cipher.block(0, BESIDE[pair]);
            assert!(beside.iter().step_by(2).any(|word| *word < 1 << 16), "pair {pair}");
            let tail = f64::from(cipher.block(1 << 63, BESIDE[pair])[2 * pair]) / f64::from(u32::MAX);
            let moved = f64::from(word(BESIDE) & 1 ^ 1) - tail;
            assert!(moved.abs() > 0.49, "pair {pair}: {moved}");
            let angle = |blocks: [u64; 8]| cipher.block(0, blocks[pair])[2 * pair + 1];
            assert_eq!([angle(LAST_ANGLE), angle(FIRST_ANGLE)], [u32::MAX, 0], "pair {pair}");
        }
    }
}
