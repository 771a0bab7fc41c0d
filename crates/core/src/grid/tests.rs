//! The rounding against exact integers, and what the dither words are made of.

use super::*;
use crate::chacha::Rounds;
use crate::row::Family;

/// A finite f32 times 2^`by` as an integer, if it is one of less than 127 bits.
fn scaled(value: f32, by: i32) -> Option<i128> {
    let bits = value.to_bits();
    let field = (bits >> 23 & 0xff) as i32;
    let mantissa = i128::from(bits & 0x7f_ffff | u32::from(field > 0) << 23);
    let shift = field.max(1) - 150 + by;
    let size = match shift {
        0..=100 => mantissa << shift,
        // Exact only if no digit is lost.
        -127..0 if mantissa & ((1 << -shift) - 1) == 0 => mantissa >> -shift,
        _ => return None,
    };
    Some(if bits >> 31 == 1 { -size } else { size })
}

/// The nearest f32 to an integer times a power of two, ties to even: integers only.
fn nearest(value: i128, exponent: i32) -> f32 {
    let size = value.unsigned_abs();
    if size == 0 {
        return 0.0;
    }
    let extra = (128 - size.leading_zeros() as i32 - 24).max(0);
    let (mut top, rest) = (size >> extra, size & ((1_u128 << extra) - 1));
    let half = if extra > 0 { 1_u128 << (extra - 1) } else { u128::MAX };
    if rest > half || (rest == half && top & 1 == 1) {
        top += 1;
    }
    // A 25-bit carry is a power of two, exact in f64; so are all others.
    let result = top as f64 * 2.0_f64.powi(extra + exponent);
    (if value < 0 { -result } else { result }) as f32
}

/// Counters of what the cases met.
#[derive(Default, Debug)]
struct Met {
    up: u64,
    down: u64,
    stay: u64,
    tie: u64,
    large: u64,
    dithered: u64,
}

/// The release by exact integers: `Γ·⌊(g + x)/Γ + ½⌋`, rounded to f32. None where a digit of `g` is too small or too large for
/// 128 bits.
fn exact(grid: &Grid, exponent: i32, g: f32, z: f32, word: u32, met: &mut Met) -> Option<f32> {
    // Both are integers in units of 2^−bits of the grid; a large gradient has no fine digits.
    let bits = if g.abs() >= grid.unit * (1 << 20) as f32 { 60 } else { 100 };
    let (integer, fraction) = grid.noise(z, word);
    let noise = scaled(integer, bits)? + scaled(fraction, bits)?;
    let value = scaled(g, bits - exponent)?;
    if value.unsigned_abs() >= 1 << 125 || noise.unsigned_abs() >= 1 << 124 {
        return None;
    }
    let half = 1_i128 << (bits - 1);
    let rounded = (value + noise + half) >> bits;
    met.tie += u64::from((value + noise + half) & ((1 << bits) - 1) == 0);
    let parts = ((value + half) >> bits) + ((scaled(integer, bits)? >> bits) + 3);
    match rounded - parts {
        0 => met.stay += 1,
        more if more > 0 => met.up += 1,
        _ => met.down += 1,
    }
    met.large += u64::from(rounded.unsigned_abs() >= 1 << 24);
    met.dithered += u64::from(fraction != grid.noise(z, 0).1);
    Some(nearest(rounded, exponent))
}

/// SplitMix64: enough for tests.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
}

pub(crate) fn cases(default: u64) -> u64 {
    std::env::var("CORRNOISE_GRID_CASES").map_or(default, |count| count.parse().expect("a number of cases"))
}

/// A noise value: mostly of usual size, sometimes tiny, zero, or a power of two.
pub(crate) fn noise(random: &mut Random) -> f32 {
    let bits = random.next();
    let sign = if bits & 1 == 1 { -1.0 } else { 1.0 };
    let mantissa = 1.0 + (bits >> 41) as f32 / (1 << 23) as f32;
    let exponent = match bits >> 1 & 15 {
        0 => -((bits >> 8 & 63) as i32) - 4,
        1 => return sign * 2.0_f32.powi((bits >> 8 & 7) as i32 - 4),
        2 => return if bits >> 8 & 15 == 0 { 0.0 } else { sign * mantissa * 48.0 / 2.0 },
        _ => (bits >> 8 & 3) as i32 - 1,
    };
    sign * mantissa * 2.0_f32.powi(exponent)
}

/// A gradient value for a grid: random of any size, on the grid, half-way between, next to a tie of this very noise, huge or subnormal.
pub(crate) fn gradient(random: &mut Random, grid: &Grid, z: f32, word: u32) -> f32 {
    let bits = random.next();
    let small = ((bits >> 40) as i32 - (1 << 23)) as f32;
    match bits & 7 {
        0 => small * 2.0_f32.powi((bits >> 8 & 63) as i32 - 60) * grid.unit,
        1 => (small / 1024.0).round() * grid.unit,
        2 => ((small / 1024.0).round() + 0.5) * grid.unit,
        3 => {
            // The value that makes the sum a tie, or a neighbour of it.
            let (integer, fraction) = grid.noise(z, word);
            let rest = OFFSET + 0.5 - fraction;
            let tie = (rest + if bits & 8 == 0 { -1.0 } else { 0.0 }) * grid.unit;
            let tie = if bits & 16 == 0 { tie } else { tie - (integer + OFFSET) * grid.unit };
            f32::from_bits((tie.to_bits()).wrapping_add((bits >> 8 & 3) as u32).wrapping_sub(1))
        }
        4 => small * 2.0_f32.powi((bits >> 8 & 15) as i32) * grid.unit,
        5 => f32::from_bits((bits >> 32) as u32 & 0x807f_ffff),
        6 => [0.0, -0.0, 1.0, 0.3, 1e-3, 20_000.0, -1.0, 5.960_464_5e-8][(bits >> 8 & 7) as usize],
        _ => small / (1 << 23) as f32 * 4096.0 * grid.unit * 2.0_f32.powi((bits >> 8 & 7) as i32),
    }
}

/// Scalar results against integers; `CORRNOISE_GRID_CASES` asks for more.
#[test]
fn rounding_is_that_of_the_exact_sum() {
    let mut random = Random(1);
    let (mut met, mut compared) = (Met::default(), 0_u64);
    let count = cases(400_000);
    for case in 0..count {
        let scale = [1.0, 0.75, 1e-3, 3.7, 1.9e-6][(case % 5) as usize];
        let smaller = [1.0, 0.9, 0.12][(case / 5 % 3) as usize];
        let exponent = *crate::plan::grid_exponent::exponents(f64::from(scale * smaller)).start();
        let grid = Grid::new(exponent, scale);
        let (z, word) = (noise(&mut random), random.next() as u32);
        let g = gradient(&mut random, &grid, z, word);
        if let Some(expected) = exact(&grid, exponent, g, z, word, &mut met) {
            let got = grid.add(g, z, word);
            assert_eq!(
                got.to_bits(),
                expected.to_bits(),
                "case {case}: g {g:e}, z {z:e}, word {word:08x}, {grid:?}"
            );
            compared += 1;
        }
    }
    println!("{compared} of {count} compared: {met:?}");
    assert!(compared > count / 2);
    for branch in [met.up, met.down, met.stay, met.tie, met.large, met.dithered] {
        assert!(branch > count / 10_000, "{met:?}");
    }
}

#[test]
fn what_is_not_finite_stays_so_and_zero_has_no_sign() {
    let grid = Grid::new(-12, 1.0);
    assert!(grid.add(f32::NAN, 0.5, 7).is_nan());
    assert_eq!(grid.add(f32::INFINITY, 0.5, 7), f32::INFINITY);
    assert_eq!(grid.add(f32::NEG_INFINITY, 0.5, 7), f32::NEG_INFINITY);
    assert_eq!(grid.add(f32::MAX, 0.5, 7), f32::INFINITY, "MAX / Γ is beyond the range");
    for (g, z) in [(-0.0, 0.0), (0.0, -0.0), (-1.0, 1.0), (-1e-9, 1e-9)] {
        assert_eq!(grid.add(g, z, 0).to_bits(), 0, "{g} + {z}");
    }
}

#[test]
fn a_word_belongs_to_step_and_coordinate() {
    let cipher = ChaCha::new(&[3; 32], Rounds::R12);
    let row = |index| Row::new(Family::Dither, 0, index).unwrap();
    let (first, second) = (DitherBlock::new(&cipher, row(0)), DitherBlock::new(&cipher, row(1)));
    let words: Vec<u32> = [first.key(0), first.key(3), second.key(4)]
        .iter()
        .flat_map(|key| [0, 1, 511, 512, 1 << 41].map(|coord| key.word(coord)))
        .collect();
    let distinct: std::collections::HashSet<_> = words.iter().collect();
    assert_eq!(distinct.len(), words.len());
    let tile = first.key(1).of_tile(9);
    assert_eq!(first.key(1).word(9 * 512 + 77), tile.first.wrapping_add(77_u32.wrapping_mul(tile.stride)));
    assert_eq!(tile.stride % 2, 1);
}
