//! Blocks of the keystream whose radius words are small: one thread in 8192 has one, so cases go where they are.
//!
//! Found by search, with ChaCha8, the key of life 0 and row 0; the tests below make them again.

use corrnoise::RunKey;

/// Per pair, a block whose radius word is below 2¹⁶, the limit of a tail.
const SMALL: [u64; 8] = [7_130, 88_098, 40_466, 73_900, 140_946, 86_947, 27_211, 11_138];
/// Per pair, a block whose radius word is 2¹⁶ − 1, the largest that has a tail.
const LARGEST: [u64; 8] = [
    9_303_199_582,
    3_040_133_219,
    919_757_258,
    10_396_970_106,
    0,
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

/// The tiles of all these blocks, ascending.
pub(crate) fn tiles() -> impl Iterator<Item = u64> {
    let mut tiles: Vec<u64> =
        [SMALL, LARGEST, SMALLEST].concat().into_iter().map(|block| block / 32).collect();
    tiles.sort_unstable();
    tiles.dedup();
    tiles.into_iter()
}

/// The key of a life; no two are alike.
pub(crate) fn key(life: u16) -> RunKey {
    let mut bytes: [u8; 32] = std::array::from_fn(|i| (i * 29 + 3) as u8);
    for (byte, number) in bytes.iter_mut().zip(life.to_le_bytes()) {
        *byte ^= number;
    }
    RunKey::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use corrnoise::Rounds;
    use corrnoise::chacha::ChaCha;

    #[test]
    fn the_blocks_have_these_words() {
        let cipher = ChaCha::new(key(0).bytes(), Rounds::R8);
        for pair in 0..8 {
            let word = |blocks: [u64; 8]| cipher.block(0, blocks[pair])[2 * pair];
            assert!(word(SMALL) < 0xffff, "pair {pair}");
            assert_eq!([word(LARGEST), word(SMALLEST)], [0xffff, 0x1_0000], "pair {pair}");
        }
    }
}
