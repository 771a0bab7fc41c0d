//! Places where a gradient of 16 bits shows the last bit of noise and dither on the grid, or the rounding of a sum beyond 2²⁴ units.
//!
//! A gradient of few digits can lie exactly on the limit between two points of the grid only where the limit itself is small: once in
//! thousands of values. The tiles below were found by search, for each of a thread's sixteen places and each operation; the tests verify
//! them.

use corrnoise::Element;

/// The scale of the steps on [`EDGES`], in units of the grid: sums stay below 2⁸ units, which bf16 has.
pub(super) const EDGES_SCALE: f32 = 53.718_28;

/// The scale of the steps on [`BEYOND`].
pub(super) const BEYOND_SCALE: f32 = 261_803.4;

/// Limits below this are multiples of 2⁻²² with 8 digits.
const SMALL: f32 = 1.0 / 16_384.0;

/// The gradient in units on the limit next to a noise's fraction, or 2⁻²² below it, if that is small enough for 16 bits.
pub(super) fn fine_edge(fraction: f32, exactly: bool) -> Option<f32> {
    let limit = [3.5 - fraction, 2.5 - fraction].into_iter().find(|limit| limit.abs() < SMALL)?;
    Some(if exactly { limit } else { limit - 2_f32.powi(-22) })
}

/// The sum of two integers in f32, rounded to the nearest or toward zero.
fn sums(a: f32, b: f32) -> [f32; 2] {
    let exact = f64::from(a) + f64::from(b);
    let nearest = exact as f32;
    let further = f64::from(nearest).abs() > exact.abs();
    [nearest, if further { f32::from_bits(nearest.to_bits() - 1) } else { nearest }]
}

/// The gradient of [`super::Onto::Beyond`]: a number of units beyond 2²⁴.
pub(super) fn beyond<E: Element>(integer: f32, fraction: f32, unit: f32) -> Option<f32> {
    let carry = f32::from(fraction >= 3.5) - f32::from(fraction < 2.5);
    let noise = integer + (carry + 3.0);
    let powers =
        (25..=30).flat_map(|power| [0.0, 1.0].map(|digit| 2_f32.powi(power) * (1.0 + digit / 128.0)));
    let values = powers.flat_map(|value| [value, -value]);
    let shows = |value: &f32| {
        let [nearest, cut] = sums(*value, noise).map(|sum| E::from_f32(sum * unit).to_bits());
        nearest != cut
    };
    values
        .map(|units| E::from_f32(units * unit).to_f32() / unit)
        .filter(|units| units.is_finite())
        .find(shows)
        .map(|units| units * unit)
}

/// Tiles, ascending, in which a fraction of the noise or a dither word that is rounded otherwise shows at every place.
pub(super) const EDGES: &[u64] = &[
    3, 32, 49, 50, 56, 239, 246, 264, 269, 295, 323, 347, 349, 378, 435, 438, 459, 460, 482, 496, 534, 550,
    559, 595, 601, 617, 639, 816, 829, 864, 951, 1_008, 1_030, 1_174, 1_195, 1_202, 1_328, 1_346, 1_401,
    1_538, 1_586, 1_678, 1_701, 1_709, 1_828, 2_105, 2_365, 2_370, 2_400, 2_855, 3_597, 4_648, 5_740, 7_525,
    8_453, 9_033, 10_002, 10_936, 11_142, 13_144, 14_809, 15_620, 21_791, 23_697, 24_131, 25_337, 26_615,
    26_640, 27_690, 29_981, 30_990, 31_807, 32_158, 35_223, 37_849, 38_670, 39_746, 41_823, 44_885, 45_146,
    51_599, 52_434, 54_004, 55_882, 56_224, 57_430, 58_227, 61_151, 67_547, 69_253, 72_611, 74_692, 76_413,
    79_621, 84_061, 85_999, 90_601, 91_411, 92_360, 93_730, 98_069, 98_426, 109_281, 114_238, 139_529,
    142_397, 163_708,
];

/// Tiles, ascending, in which a sum that is rounded toward zero shows at every place.
pub(super) const BEYOND: &[u64] = &[
    1, 2, 4, 16, 17, 20, 29, 38, 41, 45, 51, 56, 57, 63, 72, 75, 78, 81, 90, 93, 95, 121, 131, 133, 149, 165,
    200, 209, 254, 256, 262, 314, 335, 348, 446, 469, 500, 515, 525, 541, 779, 871, 882, 986, 1_005, 1_010,
    1_011, 1_135, 1_174, 1_227, 1_278, 1_314, 1_521, 1_870, 2_160, 3_267,
];

#[cfg(test)]
mod tests {
    use super::super::witnesses::key;
    use super::*;
    use corrnoise::chacha::ChaCha;
    use corrnoise::gauss::{TAIL_LIMIT, normals, radius, tail_radius};
    use corrnoise::grid::{DitherBlock, DitherKey, Grid};
    use corrnoise::{Family, Rounds, Row};
    use half::{bf16, f16};

    struct Tiles {
        cipher: ChaCha,
        dither: DitherKey,
    }

    impl Tiles {
        fn new() -> Tiles {
            let cipher = ChaCha::new(key(0).bytes(), Rounds::R8);
            let dither = DitherBlock::new(&cipher, Row::new(Family::Dither, 0, 0).unwrap()).key(0);
            Tiles { cipher, dither }
        }

        /// The normals and dither words of a tile, each with its place among a thread's sixteen.
        fn values(&self, tile: u64) -> impl Iterator<Item = (usize, f32, u32)> {
            let dither = self.dither.of_tile(tile);
            (0..32).flat_map(move |lane| {
                let (row, block) = (Row::default(), 32 * tile + lane);
                let words = self.cipher.block(row.stream(), block);
                let tail = words.iter().step_by(2).any(|word| *word < TAIL_LIMIT);
                let tail = if tail { self.cipher.block(row.tail_stream(), block) } else { [0; 16] };
                (0..16).map(move |place| {
                    let pair = place / 2 * 2;
                    let word = words[pair];
                    let small = word < TAIL_LIMIT;
                    let radius =
                        if small { tail_radius(word, tail[pair], tail[pair + 1]) } else { radius(word) };
                    let (first, second) = normals(radius, words[pair + 1]);
                    let z = if place % 2 == 0 { first } else { second };
                    let coord = 128 * (place as u32 / 4) + 4 * lane as u32 + place as u32 % 4;
                    (place, z, dither.word(coord))
                })
            })
        }
    }

    /// `high + low` as f32, rounded toward zero.
    fn cut(high: f64, low: f64) -> f32 {
        let nearest = high as f32;
        let above = (f64::from(nearest) - high) - low;
        let is_too_large = above != 0.0 && (above > 0.0) == (nearest > 0.0);
        if is_too_large { f32::from_bits(nearest.to_bits() - 1) } else { nearest }
    }

    fn fma_cut(a: f32, b: f32, c: f32) -> f32 {
        let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
        let sum = product + c;
        let of_c = sum - product;
        cut(sum, (product - (sum - of_c)) + (c - of_c))
    }

    /// The fraction with one operation rounded toward zero, the dither word, the fraction without it, or the sum; and with the product
    /// of the sum rounded before it is added.
    fn wrong(grid: &Grid, z: f32, word: u32) -> [f32; 4] {
        let (integer, _) = grid.noise(z, word);
        let fraction = grid.scale.mul_add(z, -integer);
        let dither = word as i32 as f32;
        [
            cut(f64::from(word as i32), 0.0).mul_add(grid.dither, fraction),
            dither.mul_add(grid.dither, fma_cut(grid.scale, z, -integer)),
            fma_cut(dither, grid.dither, fraction),
            dither * grid.dither + fraction,
        ]
    }

    /// The operations that a value on the limit shows if they are rounded otherwise.
    fn shown(grid: &Grid, z: f32, word: u32) -> [bool; 4] {
        let fraction = grid.noise(z, word).1;
        let shows = |wrong: f32| {
            [true, false].into_iter().any(|exactly| {
                fine_edge(fraction, exactly).is_some_and(|rest| {
                    let carries = |f: f32| [rest >= 3.5 - f, rest < 2.5 - f];
                    carries(fraction) != carries(wrong)
                })
            })
        };
        wrong(grid, z, word).map(shows)
    }

    fn edges(tiles: impl Iterator<Item = u64>, mut found: impl FnMut(u64, usize, usize)) {
        let (values, grid) = (Tiles::new(), Grid::new(0, EDGES_SCALE));
        for tile in tiles {
            for (place, z, word) in values.values(tile) {
                for (operation, shows) in shown(&grid, z, word).into_iter().enumerate() {
                    if shows {
                        found(tile, place, operation);
                    }
                }
            }
        }
    }

    fn far(tiles: impl Iterator<Item = u64>, mut found: impl FnMut(u64, usize, usize)) {
        let (values, grid) = (Tiles::new(), Grid::new(-20, BEYOND_SCALE * 2_f32.powi(-20)));
        for tile in tiles {
            for (place, z, word) in values.values(tile) {
                let (integer, fraction) = grid.noise(z, word);
                let shows = [
                    beyond::<bf16>(integer, fraction, grid.unit).is_some(),
                    beyond::<f16>(integer, fraction, grid.unit).is_some(),
                ];
                shows
                    .into_iter()
                    .enumerate()
                    .filter(|(_, shows)| *shows)
                    .for_each(|(i, _)| found(tile, place, i));
            }
        }
    }

    #[test]
    fn every_operation_shows_at_every_place() {
        let mut seen = [[0; 4]; 16];
        edges(EDGES.iter().copied(), |_, place, operation| seen[place][operation] += 1);
        assert!(seen.iter().flatten().all(|count| *count >= 2), "{seen:?}");
        let mut seen = [[0; 2]; 16];
        far(BEYOND.iter().copied(), |_, place, dtype| seen[place][dtype] += 1);
        assert!(seen.iter().flatten().all(|count| *count >= 2), "{seen:?}");
    }

    /// Prints tiles for the two lists.
    #[test]
    #[ignore = "a search"]
    fn search() {
        let (mut seen, mut tiles) = ([[0; 4]; 16], std::collections::BTreeSet::new());
        for chunk in 0..1 << 20 {
            edges(64 * chunk..64 * chunk + 64, |tile, place, operation| {
                if seen[place][operation] < 2 {
                    seen[place][operation] += 1;
                    tiles.insert(tile);
                }
            });
            if seen.iter().flatten().all(|count| *count >= 2) {
                break;
            }
        }
        println!("EDGES {tiles:?}");
        let (mut seen, mut tiles) = ([[0; 2]; 16], std::collections::BTreeSet::new());
        for chunk in 0..1 << 20 {
            far(64 * chunk..64 * chunk + 64, |tile, place, dtype| {
                if seen[place][dtype] < 2 {
                    seen[place][dtype] += 1;
                    tiles.insert(tile);
                }
            });
            if seen.iter().flatten().all(|count| *count >= 2) {
                break;
            }
        }
        println!("BEYOND {tiles:?}");
    }
}
