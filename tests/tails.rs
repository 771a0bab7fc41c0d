//! Normals far out, by conditional sampling: how many lie beyond 9.5, 10, 10.5 and 11 standard deviations.
//!
//! Such normals are too rare to wait for (2·10⁻²¹ beyond 9.5). But the radius R = √(−2 ln u) of a Box-Muller pair is a function of 96 bits
//! (radius word and both tail words), and |z| > x asks for R > x, so for u < e^(−x²/2). The words are therefore drawn under the condition
//! u < 2^−K, which has the probability 2^−K exactly: all but the last 96 − K bits are zero. Counts are compared with
//! P(|z| > x | u < 2^−K) = 2^K·P(|z| > x, u < 2^−K), from Craig's integral over the angle, which has nothing in common with the transform:
//!
//! P(|z| > x, u < v) = 2/π · ∫₀^{π/2} min(v, exp(−x² / (2 sin² θ))) dθ
//!
//! The two normals of a pair cannot both exceed x where R < √2·x, so that for x ≥ 8.2 the number of pairs with one beyond x is binomial.

use corrnoise::chacha::ChaCha;
use corrnoise::{Rounds, gauss};
use corrnoise_testkit::normal::{chi_square_upper, upper};
use std::f64::consts::{FRAC_PI_2, LN_2, PI};

/// The largest radius there is, √(192·ln 2): that of u = 2⁻⁹⁶.
fn largest_radius() -> f64 {
    (192.0 * LN_2).sqrt()
}

/// P(|z| > x | u < 2^−`bits`), by Simpson's rule on both sides of the angle where the minimum changes its branch.
fn beyond(x: f64, bits: u32) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let radius = (2.0 * LN_2 * f64::from(bits)).sqrt();
    // Where sin θ > x / radius, the condition u < 2^−bits decides: every such u counts.
    let kink = (x / radius).min(1.0).asin();
    let value = |theta: f64| (LN_2 * f64::from(bits) - x * x / (2.0 * theta.sin().powi(2))).exp();
    let (steps, width) = (20_000, kink / 20_000.0);
    let weight = |i: i32| if i == 0 || i == steps { 1.0 } else { f64::from(2 + 2 * (i % 2)) };
    let sum: f64 = (1..=steps).map(|i| weight(i) * value(width * f64::from(i))).sum();
    2.0 / PI * (sum * width / 3.0 + FRAC_PI_2 - kink)
}

/// What a sample of pairs under the condition u < 2^−K gave.
struct Sample {
    /// The number of first and of second normals in each bin of |z|, from 0 to 12.
    counts: [Vec<u64>; 2],
    largest: f32,
}

const BINS_PER_SIGMA: usize = 20;
const BINS: usize = 12 * BINS_PER_SIGMA;

/// Draws `pairs` pairs whose radius has at least `bits` leading zeros. Words are those of ChaCha, an angle word for each pair.
fn sample(bits: u32, pairs: u64, seed: u8) -> Sample {
    let cipher = ChaCha::new(&[seed; 32], Rounds::R8);
    let part = |blocks: std::ops::Range<u64>| {
        let mut sample = Sample { counts: [0, 1].map(|_| vec![0; BINS]), largest: 0.0 };
        for block in blocks {
            let words = cipher.block(u64::from(bits), block);
            for &[w0, w1, w2, angle] in words.as_chunks::<4>().0 {
                let wide = (u128::from(w0) << 64 | u128::from(w1) << 32 | u128::from(w2)) >> bits;
                let [low, middle, high] = [0, 32, 64].map(|shift| (wide >> shift) as u32);
                let (z0, z1) = gauss::normals(gauss::tail_radius(high, middle, low), angle);
                for (counts, z) in sample.counts.iter_mut().zip([z0.abs(), z1.abs()]) {
                    counts[(z * BINS_PER_SIGMA as f32) as usize] += 1;
                    sample.largest = sample.largest.max(z);
                }
            }
        }
        sample
    };
    let blocks = pairs.div_ceil(4);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| part(0..blocks / 2));
        let mut sum = part(blocks / 2..blocks);
        let other = other.join().unwrap();
        for (counts, others) in sum.counts.iter_mut().zip(other.counts) {
            counts.iter_mut().zip(others).for_each(|(a, b)| *a += b);
        }
        sum.largest = sum.largest.max(other.largest);
        sum
    })
}

impl Sample {
    fn beyond(&self, x: f64) -> u64 {
        let first = (x * BINS_PER_SIGMA as f64).round() as usize;
        self.counts.iter().flat_map(|counts| &counts[first..]).sum()
    }
}

/// Counts beyond limits, each among 10⁷ normals drawn under the strictest condition u < 2^−K that leaves nothing of |z| > x out.
///
/// Eight numbers are looked at; |z-score| > 4.5 happens by chance once in 18,000 runs. The words are fixed, so a run repeats exactly.
#[test]
fn counts_far_out() {
    let pairs = 5_000_000;
    for (i, x) in [5.0, 6.5, 8.0, 9.0, 9.5, 10.0, 10.5, 11.0].into_iter().enumerate() {
        let bits = (x * x / (2.0 * LN_2)) as u32;
        let sample = sample(bits, pairs, i as u8);
        let p = beyond(x, bits);
        // All of the tail beyond x lies under the condition.
        let whole = 2.0 * upper(x) * 2.0_f64.powi(bits as i32);
        assert!((p / whole - 1.0).abs() < 1e-9, "two formulas: {p}, {whole}");
        let (got, expected) = (sample.beyond(x) as f64, 2.0 * p * pairs as f64);
        // Both of a pair exceed x in no pair from 8.2 on and in fewer than 10⁻⁵ before: the events are exclusive.
        let z = (got - expected) / (expected * (1.0 - 2.0 * p)).sqrt();
        println!(
            "beyond {x:5} (K = {bits}, P(|z| > x) = {:.6e}): {got}, expected {expected:.1}, {z:+.2} standard errors",
            2.0 * upper(x)
        );
        assert!(z.abs() < 4.5, "beyond {x}: {got}, expected {expected}");
        assert!(f64::from(sample.largest) < largest_radius() + 1e-6, "{}", sample.largest);
    }
}

/// The shape of the tail under every kind of extension: radius words below 2¹⁶ (K from 16 on), of 0 (from 32 on), and with a first tail
/// word of 0 (from 64 on).
///
/// Chi-square over bins of |z| of first and of second normals; the limit's chance is 10⁻⁵ for each of the twelve.
#[test]
fn shape_of_each_branch() {
    let pairs = 5_000_000;
    let at = |bin: usize| bin as f64 / BINS_PER_SIGMA as f64;
    for (i, bits) in [16, 24, 32, 48, 64, 80].into_iter().enumerate() {
        let sample = sample(bits, pairs, 100 + i as u8);
        let expected: Vec<f64> = (0..BINS).map(|bin| pairs as f64 * beyond(at(bin), bits)).collect();
        // The last cell is open and holds at least 1,000.
        let last = (0..BINS).rfind(|bin| expected[*bin] >= 1000.0).unwrap();
        for counts in sample.counts {
            let cell = |got: u64, expected: f64| (got as f64 - expected).powi(2) / expected;
            let closed = (0..last).map(|bin| cell(counts[bin], expected[bin] - expected[bin + 1]));
            let chi_square = closed.sum::<f64>() + cell(counts[last..].iter().sum(), expected[last]);
            let p = chi_square_upper(chi_square, last as u32);
            println!(
                "K = {bits}, to {:.2}: chi-square {chi_square:.1}, {last} degrees of freedom, p = {p:.3}",
                at(last)
            );
            assert!(p > 1e-5, "K = {bits}: {p}");
        }
    }
}

/// The words 0, 0, 0 give the largest radius, and with it the largest normal, which is √(192·ln 2) rounded to f32.
#[test]
fn the_largest_normal() {
    let largest = gauss::tail_radius(0, 0, 0);
    assert_eq!(largest, largest_radius() as f32);
    assert_eq!(gauss::normals(largest, 0).0, largest);
    // The lowest bit of the last word is overwritten; from there on radii fall.
    assert_eq!(gauss::tail_radius(0, 0, 1), largest);
    assert!(gauss::tail_radius(0, 0, 2) < largest);
    let mut previous = largest;
    // Every power of two and its neighbours, over all 80 bits that a tail's u can begin with.
    for shift in 1..80 {
        for wide in [(1_u128 << shift) - 1, 1 << shift, (1 << shift) + (1 << shift >> 1)] {
            let [low, middle, high] = [0, 32, 64].map(|bits| (wide >> bits) as u32);
            let radius = gauss::tail_radius(high, middle, low);
            assert!(radius <= previous, "{wide:#x}: {radius} after {previous}");
            previous = radius;
        }
    }
    assert!(gauss::radius(gauss::TAIL_LIMIT) <= previous);
    // No sine or cosine exceeds 1, so that no normal exceeds its radius.
    for word in (0..=u32::MAX).step_by(997) {
        let (z0, z1) = gauss::normals(largest, word);
        assert!(z0.abs() <= largest && z1.abs() <= largest, "{word:#x}");
    }
}

/// The two-sided tail probabilities that the counts are compared with, from mpmath 1.3 (`erfc(x/√2)`, 30 digits).
#[test]
fn tail_probabilities() {
    for (x, expected) in [
        (9.5, 2.09890301507252e-21),
        (10.0, 1.52397060483211e-23),
        (10.5, 8.63801263561846e-26),
        (11.0, 3.82131914899735e-28),
    ] {
        assert!((2.0 * upper(x) / expected - 1.0).abs() < 1e-12, "{x}: {}", 2.0 * upper(x));
        assert!((beyond(x, 64) * 2.0_f64.powi(-64) / expected - 1.0).abs() < 1e-9, "{x}: {}", beyond(x, 64));
    }
}
