//! What theory says about the least max loss of prefix sums, to print beside a loss.
//!
//! The least loss over all factorisations is the γ₂ norm of the prefix-sum matrix.

use std::f64::consts::PI;

/// `ln(2n + 1)/π`: no factorisation does better (Matoušek, Nikolov and Talwar).
pub fn lower_bound(n: u64) -> f64 {
    (2.0 * n as f64 + 1.0).ln() / PI
}

/// The sum that `lower_bound` bounds from below, closer to the truth: `1/(2n) Σ csc((2t − 1)π/(2(2n + 1)))`. It is the nuclear norm of
/// the prefix sums over n, and therefore below the RMS loss too.
pub fn lower_bound_sum(n: u64) -> f64 {
    cosecants(n, 2 * (2 * n + 1)) / (2.0 * n as f64)
}

/// `1 + ln(n)/π`: some factorisation does as well.
pub fn upper_bound(n: u64) -> f64 {
    1.0 + (n as f64).ln() / PI
}

/// Mathias' pair of bounds: `1/(2n) + S` and `1/2 + S` with `S = 1/(2n) Σ csc((2t − 1)π/(2n))`.
pub fn mathias(n: u64) -> (f64, f64) {
    let sum = cosecants(n, 2 * n) / (2.0 * n as f64);
    (0.5 / n as f64 + sum, 0.5 + sum)
}

/// `(γ + ln n)/π + 1`: the max loss of the square root of the prefix sums is at most this.
pub fn square_root_upper_bound(n: u64) -> f64 {
    const EULER_MASCHERONI: f64 = 0.577_215_664_901_532_9;
    (EULER_MASCHERONI + (n as f64).ln()) / PI + 1.0
}

/// `Σ_{t=1..n} |csc((2t − 1)π/denominator)|`.
fn cosecants(n: u64, denominator: u64) -> f64 {
    (1..=n).map(|t| 1.0 / ((2 * t - 1) as f64 * PI / denominator as f64).sin().abs()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_enclose_the_optimum_of_the_table() {
        for (n, dense, rms) in [(8, 1.51, 1.494), (64, 2.111, 2.1), (1024, 2.958, 2.955)] {
            assert!(lower_bound_sum(n) < rms, "{n}");
            let (low, high) = mathias(n);
            assert!(lower_bound(n) <= lower_bound_sum(n) && lower_bound_sum(n) < dense, "{n}");
            assert!(low < dense && dense < high && high <= upper_bound(n) + 1e-12, "{n}: {low} {high}");
        }
    }
}
