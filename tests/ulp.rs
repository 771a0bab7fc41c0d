//! Distance of the f32 transform from the exact transform of the same words, in units in the last place.
//!
//! The exact value is taken in f64, whose own error is 2⁻²⁹ of an f32 ulp. Optimised builds without debug assertions
//! (`--release`) visit every word; others every 16th, still more than 10⁸. `docs/noise-spec.md` quotes the exhaustive
//! numbers; the limits here are those numbers, rounded up.

use corrnoise::chacha::ChaCha;
use corrnoise::{Rounds, gauss};
use std::f64::consts::FRAC_PI_2;

const STRIDE: u64 = if cfg!(debug_assertions) { 16 } else { 1 };

/// The error |got − exact| in ulps of the exact value.
fn ulps(got: f32, exact: f64) -> f64 {
    let exponent = ((exact.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    (f64::from(got) - exact).abs() * 2f64.powi(23 - exponent)
}

fn exact_radius(word: u32) -> f64 {
    let odd = u64::from(word | 1);
    let log = if odd < 1 << 31 {
        (odd as f64 / 2f64.powi(32)).ln()
    } else {
        (-(((1u64 << 32) - odd) as f64) / 2f64.powi(32)).ln_1p()
    };
    (-2.0 * log).sqrt()
}

/// The largest value of `error` over `0..count`, on two threads.
fn largest(count: u64, error: impl Fn(u64) -> f64 + Sync) -> f64 {
    let half = |range: std::ops::Range<u64>| range.map(&error).fold(0.0, f64::max);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| half(count / 2..count));
        half(0..count / 2).max(other.join().unwrap())
    })
}

#[test]
fn radius() {
    // The lowest bit is overwritten, so 2³¹ words are all there are; those below the tail limit are extended instead.
    let first = u64::from(gauss::TAIL_LIMIT);
    let error = |i: u64| {
        let word = (first + 2 * STRIDE * i + 1) as u32;
        ulps(gauss::radius(word), exact_radius(word))
    };
    let worst = largest(((1 << 32) - first) / (2 * STRIDE), error);
    println!("radius: {worst:.3} ulp");
    assert!(worst < 1.78, "{worst}");
}

#[test]
fn radius_of_extended_words() {
    let cipher = ChaCha::new(&[3; 32], Rounds::R8);
    let error = |i: u64| {
        let words = cipher.block(1, i);
        let one = |w: &[u32; 4]| {
            // 96 bits, of which every number of leading zeros from 16 on is equally likely.
            let wide =
                (u128::from(w[0]) << 64 | u128::from(w[1]) << 32 | u128::from(w[2])) >> (16 + w[3] % 80);
            let [low, middle, high] = [0, 32, 64].map(|shift| (wide >> shift) as u32);
            // The uniform is the centre of its cell: a word whose lowest bit is set, the others below it left out.
            let (units, bits) = if high > 0 { (wide >> 32, 64) } else { (wide, 96) };
            let exact = (-2.0 * ((units | 1) as f64 / 2f64.powi(bits)).ln()).sqrt();
            ulps(gauss::tail_radius(high, middle, low), exact)
        };
        words.as_chunks::<4>().0.iter().map(one).fold(0.0, f64::max)
    };
    let worst = largest(2_000_000, error);
    println!("extended radius: {worst:.3} ulp");
    assert!(worst < 0.9, "{worst}");
}

#[test]
fn sine_and_cosine() {
    // t is odd in the word's complement, so half of the 2³⁰ angles are all there are; the symmetry itself is checked below.
    let angle = |word: u32| f64::from((word << 2 | 2) as i32) / 2f64.powi(32) * FRAC_PI_2;
    let count = (1 << 29) / STRIDE;
    let sine = largest(count, |i| {
        let word = (STRIDE * i) as u32;
        ulps(gauss::sin_cos(word).0, angle(word).sin())
    });
    let cosine = largest(count, |i| {
        let word = (STRIDE * i) as u32;
        ulps(gauss::sin_cos(word).1, angle(word).cos())
    });
    println!("sine: {sine:.3} ulp, cosine: {cosine:.3} ulp");
    assert!(sine < 1.34, "{sine}");
    assert!(cosine < 1.142, "{cosine}");
    for word in (0..1u32 << 29).step_by(7919) {
        let ((sin, cos), (minus_sin, same_cos)) = (gauss::sin_cos(word), gauss::sin_cos(!word & 0x3fff_ffff));
        assert_eq!((sin, cos), (-minus_sin, same_cos));
    }
}

#[test]
fn normals() {
    let cipher = ChaCha::new(&[4; 32], Rounds::R8);
    let error = |i: u64| {
        let words = cipher.block(2, i);
        let pair = |w: &[u32; 2]| {
            let [radius_word, angle_word] = [w[0].max(gauss::TAIL_LIMIT), w[1]];
            let (z0, z1) = gauss::normals(gauss::radius(radius_word), angle_word);
            let radius = exact_radius(radius_word);
            let (sin, cos) = (f64::from((angle_word << 2 | 2) as i32) / 2f64.powi(32) * FRAC_PI_2).sin_cos();
            let cos = if angle_word >> 30 & 1 == 1 { -cos } else { cos };
            let exact = if angle_word >> 31 == 1 { [sin, cos] } else { [cos, sin] };
            ulps(z0, radius * exact[0]).max(ulps(z1, radius * exact[1]))
        };
        words.as_chunks::<2>().0.iter().map(pair).fold(0.0, f64::max)
    };
    // 8 pairs a block: 1.04·10⁸ pairs of words.
    let worst = largest(13_000_000, error);
    println!("normal: {worst:.3} ulp");
    assert!(worst < 3.7, "{worst}");
}
