//! The normal distribution function in f64, and what tests of hypotheses need of it.

use std::f64::consts::{PI, TAU};

/// The probability Q(x) that a standard normal exceeds `x`, to a relative 1e-13: a series near 0, a continued fraction in the tail.
pub fn upper(x: f64) -> f64 {
    if x < 0.0 {
        return 1.0 - upper(-x);
    }
    let density = (-x * x / 2.0).exp() / TAU.sqrt();
    if x < 3.0 {
        let mut term = x;
        let mut sum = x;
        for k in 1..200 {
            term *= x * x / f64::from(2 * k + 1);
            sum += term;
        }
        0.5 - sum * density
    } else {
        density / (1..400).rev().fold(x, |tail, k| x + f64::from(k) / tail)
    }
}

/// The distribution function Φ of the standard normal.
pub fn cdf(x: f64) -> f64 {
    upper(-x)
}

/// The `z` with Q(z) = `p`, by bisection: how many standard errors a probability is worth. At most 38, where f64 ends.
pub fn z_score(p: f64) -> f64 {
    let (mut low, mut high) = (-38.0, 38.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if upper(middle) > p { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// The probability that chi-square with `freedom` degrees exceeds `x`: the finite sums for odd and even degrees.
pub fn chi_square_upper(x: f64, freedom: u32) -> f64 {
    // Every term is the one before times x over the next odd (even) number; in logarithms, so that nothing overflows.
    let odd = freedom % 2 == 1;
    let mut log_term = if odd { (2.0 * x / PI).ln() / 2.0 - x / 2.0 } else { -x / 2.0 };
    let mut sum = if odd { 2.0 * upper(x.sqrt()) } else { 0.0 };
    let first = if odd { 3 } else { 2 };
    for k in (first..=freedom).step_by(2) {
        sum += log_term.exp();
        log_term += (x / f64::from(k)).ln();
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_tables() {
        // Values of Φ and Q from mpmath 1.3, 30 digits.
        for (x, expected) in [
            (0.0, 0.5),
            (1.0, 0.841344746068543),
            (-2.5, 0.00620966532577614),
            (-3.5, 2.32629079035525e-4),
            (-5.5, 1.89895624658877e-8),
        ] {
            assert!((cdf(x) / expected - 1.0).abs() < 1e-12, "{x}: {}", cdf(x));
            assert!((z_score(expected) + x).abs() < 1e-9, "{expected}");
        }
        for (x, freedom, expected) in CHI_SQUARE {
            let got = chi_square_upper(x, freedom);
            assert!((got / expected - 1.0).abs() < 1e-10, "{x}, {freedom}: {got}");
        }
    }

    /// Values of the regularised incomplete gamma function Q(freedom/2, x/2) from mpmath 1.3.
    const CHI_SQUARE: [(f64, u32, f64); 6] = [
        (9.0, 1, 0.00269979606326019),
        (3.0, 2, 0.22313016014843),
        (36.0, 3, 7.48837694879548e-8),
        (40.5, 16, 0.000657823824091123),
        (150.0, 127, 0.079941987017492),
        (400.0, 255, 1.66000252441245e-8),
    ];
}
