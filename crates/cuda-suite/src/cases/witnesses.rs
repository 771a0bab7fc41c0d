//! Blocks of the keystream whose radius words are small (one thread in 8192 has one) or whose words equal a limit (one in 2³²),
//! so that cases can place segments there.
//!
//! They were found by search with ChaCha8, the key of incarnation 0 and row 0; the tests below verify them.

use corrnoise::chacha::ChaCha;
use corrnoise::{Family, Result, Rounds, Row, RunKey};
use std::sync::{Arc, OnceLock};

/// Per pair, a block whose radius word is below 2¹⁶, the limit of a tail.
const SMALL: [u64; 8] = [7_130, 88_098, 40_466, 73_900, 140_946, 86_947, 27_211, 11_138];
/// Per pair, a block whose radius word is 2¹⁶ − 1, the largest that has a tail.
pub(super) const LARGEST: [u64; 8] = [
    9_303_199_582,
    3_040_133_219,
    919_757_258,
    10_396_970_106,
    15_819_469_847,
    5_612_308_529,
    6_790_601_810,
    6_601_948_620,
];
/// Per pair, a block whose radius word is 2¹⁶, the smallest that is not extended.
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
pub(super) const BESIDE: [u64; 8] = [
    671_012_966,
    2_617_882_297,
    1_425_905_082,
    1_376_190_607,
    1_761_996_629,
    2_575_786_347,
    1_581_586_125,
    1_734_215_499,
];

/// Per pair, a block whose radius word is 0, which takes both words of the tail.
pub(super) const ZERO: [u64; 8] = [
    1_385_828_646,
    2_034_420_659,
    7_965_441_044,
    402_257_703,
    7_324_783_597,
    2_398_365_643,
    1_730_328_125,
    752_631_668,
];

/// Per pair, a block whose angle word is 2³² − 1 (as a signed number −1), the last that swaps the two normals.
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
/// Per pair, a block whose angle word is 0, the first that does not swap the normals.
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

/// Tiles of [`named_row`], ascending, with radius words below 2⁶: in every pair, every bit of an extension from 20 on shows. They lie
/// beyond the low word of the counter.
const NAMED: [u64; 29] = [
    5_685_519_055,
    5_685_937_989,
    5_686_171_985,
    5_686_295_837,
    5_686_389_616,
    5_686_795_996,
    5_686_883_952,
    5_686_963_510,
    5_687_091_924,
    5_687_649_594,
    5_688_120_705,
    5_689_281_065,
    5_690_058_197,
    5_690_211_381,
    5_690_637_284,
    5_690_761_591,
    5_691_804_010,
    5_692_211_513,
    5_692_686_686,
    5_693_066_769,
    5_693_263_310,
    5_693_351_274,
    5_693_906_896,
    5_696_314_385,
    5_696_919_885,
    5_698_965_846,
    5_700_518_667,
    5_700_835_438,
    5_701_114_823,
];

/// Tiles, ascending, that show every single mistake of the normals' arithmetic in every pair: `mistakes` lists those mistakes.
const LAST_BITS: [u64; 95] = [
    23, 123, 277, 341, 349, 543, 768, 770, 1_042, 1_246, 1_297, 1_483, 1_596, 1_701, 2_102, 2_343, 2_573,
    2_679, 2_690, 2_704, 2_889, 3_063, 3_318, 3_378, 3_585, 3_588, 4_021, 4_492, 5_614, 5_933, 6_632, 7_770,
    8_643, 8_815, 11_866, 14_503, 14_504, 14_964, 15_836, 32_868, 33_423, 33_540, 33_907, 35_930, 37_449,
    38_856, 39_112, 39_672, 41_923, 43_973, 45_666, 69_149, 72_125, 79_621, 145_606, 173_202, 189_331,
    225_352, 241_976, 297_743, 322_324, 331_949, 342_718, 426_374, 449_025, 486_499, 525_502, 710_351,
    714_329, 821_149, 900_998, 1_045_349, 1_238_680, 1_241_888, 1_251_532, 1_280_016, 1_334_172, 1_382_949,
    1_593_060, 1_631_720, 2_884_884, 3_028_826, 3_776_889, 3_790_561, 5_549_557, 5_755_774, 5_931_367,
    7_818_677, 8_280_689, 9_691_894, 11_883_824, 15_676_335, 19_237_433, 22_154_288, 28_778_214,
];

/// The tiles of all these blocks, ascending.
pub(crate) fn tiles() -> impl Iterator<Item = u64> {
    let blocks = [SMALL, LARGEST, SMALLEST, BESIDE, ZERO, LAST_ANGLE, FIRST_ANGLE].concat();
    let mut tiles: Vec<u64> = blocks.into_iter().map(|block| block / 32).collect();
    tiles.sort_unstable();
    tiles.dedup();
    tiles.into_iter()
}

/// A row whose name has bits in each part of both words.
pub(crate) fn named_row() -> Result<Row> {
    Row::new(Family::TreeNode, 1, 0x5d_a5c3_9e71)
}

/// The tiles of [`named_row`] with small radius words.
pub(crate) fn named_tiles() -> impl Iterator<Item = u64> {
    NAMED.into_iter()
}

/// The tiles in which a mistake in the last bit of any operation shows.
pub(crate) fn last_bits() -> impl Iterator<Item = u64> {
    LAST_BITS.into_iter()
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

/// The keys of a run's first few incarnations.
pub(super) fn few_keys() -> Arc<Vec<RunKey>> {
    Arc::new((0..3).map(key).collect())
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
            assert_eq!([word(LARGEST), word(SMALLEST), word(ZERO)], [0xffff, 0x1_0000, 0], "pair {pair}");
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
