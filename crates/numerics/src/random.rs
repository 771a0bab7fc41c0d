//! Exponentials and normals for many numbers at once: what sampling a likelihood ratio is made of.

use crate::vector::{multiply_add, vectorised};

vectorised! {
    /// Replaces numbers by their exponentials, to two units in the last place; below −708 they become 0, above 709 infinite.
    fn exponentials(numbers: &mut [f64]) = exponentials_body;

    /// Turns random words into independent standard normals, two per pair of words (Box and Muller). The lengths are equal and multiples of
    /// sixteen: of sixteen words, eight make the radii and eight the angles. With 52 bits, no normal is farther out than 8.58.
    fn normals(words: &[u64], out: &mut [f64]) = normals_body;
}

/// Half of the numbers of a block of words.
const HALF: usize = 8;
/// Adding it rounds a number below 2^51 to a whole one, whose bits are then the last ones.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// The value of a polynomial, coefficients from the highest degree down.
#[inline(always)]
fn polynomial<const FUSED: bool>(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().fold(0.0, |sum, coefficient| multiply_add::<FUSED>(sum, x, *coefficient))
}

#[inline(always)]
fn exponential<const FUSED: bool>(x: f64) -> f64 {
    const TERMS: [f64; 14] = [
        1.0 / 6_227_020_800.0,
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    // ln 2 in two parts, the first of which has few enough digits that its products with exponents are exact.
    const LN2: [f64; 2] = [0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10];
    // A number that is none stays what it is.
    let within = if x < -708.0 { -708.0 } else { x };
    let within = if within > 709.0 { 709.0 } else { within };
    let shifted = within * std::f64::consts::LOG2_E + ROUNDER;
    let power = shifted - ROUNDER;
    let rest = multiply_add::<FUSED>(-LN2[1], power, multiply_add::<FUSED>(-LN2[0], power, within));
    let scale = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1023 << 52));
    let value = polynomial::<FUSED>(&TERMS, rest) * scale;
    let value = if x < -708.0 { 0.0 } else { value };
    if x > 709.0 { f64::INFINITY } else { value }
}

#[inline(always)]
fn exponentials_body<const FUSED: bool>(numbers: &mut [f64]) {
    let (blocks, rest) = numbers.as_chunks_mut::<HALF>();
    for block in blocks {
        *block = std::array::from_fn(|i| exponential::<FUSED>(block[i]));
    }
    for number in rest {
        *number = exponential::<FUSED>(*number);
    }
}

/// A number in [1, 2) with the word's first 52 bits.
#[inline(always)]
fn from_one(word: u64) -> f64 {
    f64::from_bits((word >> 12) | (1023 << 52))
}

/// `−ln u` for u = 2^−53 + k·2^−52 in (0, 1).
#[inline(always)]
fn minus_ln<const FUSED: bool>(u: f64) -> f64 {
    const TERMS: [f64; 11] = [
        2.0 / 21.0,
        2.0 / 19.0,
        2.0 / 17.0,
        2.0 / 15.0,
        2.0 / 13.0,
        2.0 / 11.0,
        2.0 / 9.0,
        2.0 / 7.0,
        2.0 / 5.0,
        2.0 / 3.0,
        2.0,
    ];
    let bits = u.to_bits();
    let mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    // Exponents lie between −53 and −1: 2^52 plus one of them, in units of the last place.
    let exponent = f64::from_bits((bits >> 52) | (1075 << 52)) - 4_503_599_627_370_496.0 - 1023.0;
    let large = mantissa > std::f64::consts::SQRT_2;
    let mantissa = if large { 0.5 * mantissa } else { mantissa };
    let exponent = if large { exponent + 1.0 } else { exponent };
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let sum = polynomial::<FUSED>(&TERMS, ratio * ratio) * ratio;
    -multiply_add::<FUSED>(exponent, std::f64::consts::LN_2, sum)
}

/// Cosine and sine of `2π·turn` for a turn in [−½, ½).
#[inline(always)]
fn on_circle<const FUSED: bool>(turn: f64) -> (f64, f64) {
    const COSINE: [f64; 9] = [
        1.0 / 20_922_789_888_000.0,
        -1.0 / 87_178_291_200.0,
        1.0 / 479_001_600.0,
        -1.0 / 3_628_800.0,
        1.0 / 40_320.0,
        -1.0 / 720.0,
        1.0 / 24.0,
        -0.5,
        1.0,
    ];
    const SINE: [f64; 8] = [
        -1.0 / 1_307_674_368_000.0,
        1.0 / 6_227_020_800.0,
        -1.0 / 39_916_800.0,
        1.0 / 362_880.0,
        -1.0 / 5_040.0,
        1.0 / 120.0,
        -1.0 / 6.0,
        1.0,
    ];
    let quarter = (4.0 * turn + ROUNDER) - ROUNDER;
    let angle = std::f64::consts::TAU * (turn - 0.25 * quarter);
    let square = angle * angle;
    let (cosine, sine) = (polynomial::<FUSED>(&COSINE, square), polynomial::<FUSED>(&SINE, square) * angle);
    let odd = quarter.abs() == 1.0;
    let (cosine, sine) = if odd { (sine, cosine) } else { (cosine, sine) };
    let (left, low) = (quarter == 1.0 || quarter.abs() == 2.0, quarter == -1.0 || quarter.abs() == 2.0);
    (if left { -cosine } else { cosine }, if low { -sine } else { sine })
}

#[inline(always)]
fn normals_body<const FUSED: bool>(words: &[u64], out: &mut [f64]) {
    assert_eq!(words.len(), out.len());
    let (words, rest) = words.as_chunks::<{ 2 * HALF }>();
    assert!(rest.is_empty());
    for (words, out) in words.iter().zip(out.as_chunks_mut::<{ 2 * HALF }>().0) {
        for i in 0..HALF {
            let u = from_one(words[i]) - (1.0 - 0.5 * f64::EPSILON);
            let radius = (2.0 * minus_ln::<FUSED>(u)).sqrt();
            let (cosine, sine) = on_circle::<FUSED>(from_one(words[HALF + i]) - 1.5);
            (out[i], out[HALF + i]) = (radius * cosine, radius * sine);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> Vec<u64> {
        let mut state = 1_u64;
        (0..count)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state ^ (state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
            })
            .collect()
    }

    #[test]
    fn exponentials_are_exact_to_the_last_digits() {
        let mut numbers: Vec<f64> = (0..28_333).map(|i| -708.0 + f64::from(i) * 0.05).collect();
        numbers.extend([0.0, -0.0, 1e-300, 709.0, -708.0, f64::NAN]);
        let exact: Vec<f64> = numbers.iter().map(|x| x.exp()).collect();
        exponentials(&mut numbers);
        for (found, exact) in numbers.iter().zip(&exact) {
            let same = (found / exact - 1.0).abs() < 5e-16 || found.is_nan() && exact.is_nan();
            assert!(same, "{found:e} {exact:e}");
        }
        let mut ends = [-709.0, -1e300, f64::NEG_INFINITY, 709.5, 1e300, f64::INFINITY];
        exponentials(&mut ends);
        assert_eq!(ends, [0.0, 0.0, 0.0, f64::INFINITY, f64::INFINITY, f64::INFINITY]);
    }

    #[test]
    fn normals_are_those_of_their_words() {
        let mut words = words(1 << 14);
        // The least radius, the largest, and angles at the edges of quarters.
        words[..8].copy_from_slice(&[0, u64::MAX, 1 << 12, 1 << 63, 0, u64::MAX, 3 << 61, 1 << 61]);
        words[8..16].copy_from_slice(&[0, 0, 1 << 62, 1 << 63, 3 << 62, u64::MAX, 1 << 61, 5 << 61]);
        let mut out = vec![0.0; words.len()];
        normals(&words, &mut out);
        for (words, out) in words.chunks(16).zip(out.chunks(16)) {
            for i in 0..8 {
                let u = ((words[i] >> 12) as f64 + 0.5) / 2_f64.powi(52);
                let turn = (words[8 + i] >> 12) as f64 / 2_f64.powi(52) - 0.5;
                let radius = (-2.0 * u.ln()).sqrt();
                let (sine, cosine) = (std::f64::consts::TAU * turn).sin_cos();
                assert!((out[i] - radius * cosine).abs() < 4e-15 * (1.0 + radius), "{i} {u} {turn}");
                assert!((out[8 + i] - radius * sine).abs() < 4e-15 * (1.0 + radius), "{i} {u} {turn}");
            }
        }
    }

    #[test]
    fn normals_have_their_moments() {
        let mut out = vec![0.0; 1 << 20];
        normals(&words(1 << 20), &mut out);
        let moment = |power: i32| out.iter().map(|x| x.powi(power)).sum::<f64>() / out.len() as f64;
        // Five standard deviations of each.
        for (power, expected, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)] {
            let error = 5.0 * (variance / out.len() as f64).sqrt();
            assert!((moment(power) - expected).abs() < error, "{power}: {}", moment(power));
        }
        let pairs = out.chunks(16).flat_map(|block| (0..8).map(|i| block[i] * block[8 + i]));
        assert!((pairs.sum::<f64>() / (out.len() / 2) as f64).abs() < 5.0 / ((out.len() / 2) as f64).sqrt());
    }
}
