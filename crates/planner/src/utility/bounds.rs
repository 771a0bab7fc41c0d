//! What theory says about the least loss, to print beside one.
//!
//! In a stream the least max loss over all factorisations is the γ₂ norm of the workload. With participations: if P patterns together
//! hold every step, gradients of random signs on each of them show `P·sensitivity² ≥ ‖C‖²_F`, and with `A = BC`
//!
//! ```text
//! ‖A‖_* ≤ ‖B‖_F ‖C‖_F ≤ √n · rms error · √P · sensitivity,      so      max loss ≥ rms loss ≥ ‖A‖_* / √(nP)
//! ```

use crate::factorization::lower_triangular::LowerTriangular;
use corrnoise_numerics::{Matrix, singular_values};
use std::f64::consts::PI;

/// Most steps of a workload whose singular values are computed.
pub const SINGULAR_LIMIT: usize = 1024;
/// Steps up to which the singular values of the prefix sums are summed one by one.
const SUMMED: u64 = 100_000;
const EULER_MASCHERONI: f64 = 0.577_215_664_901_532_9;

/// No strategy has a smaller RMS loss for a workload of this nuclear norm, where so many patterns hold every step.
pub fn participation_bound(nuclear_norm: f64, num_steps: usize, cover: usize) -> f64 {
    nuclear_norm / (num_steps as f64).sqrt() / (cover as f64).sqrt()
}

/// The sum of the singular values; `None` if they cannot be computed. Rounding is taken off.
pub fn nuclear_norm(workload: &LowerTriangular) -> Option<f64> {
    let n = workload.len();
    let entry = |t: usize, s: usize| if s <= t { workload.get(t, s) } else { 0.0 };
    let values = singular_values(Matrix::from_fn(n, n, entry))?;
    let sum = values.iter().sum::<f64>() * (1.0 - 1e-10);
    sum.is_finite().then_some(sum)
}

/// `ln(2n + 1)/π`: no factorisation does better (Matoušek, Nikolov and Talwar).
pub fn lower_bound(n: u64) -> f64 {
    (2.0 * n as f64 + 1.0).ln() / PI
}

/// The sum that `lower_bound` bounds from below, closer to the truth: `1/(2n) Σ csc((2t − 1)π/(2(2n + 1)))`. It is the nuclear norm of
/// the prefix sums over n, and therefore below the RMS loss too.
pub fn lower_bound_sum(n: u64) -> f64 {
    let sum = if n <= SUMMED { cosecants(n, 2 * (2 * n + 1)) } else { many_cosecants(n) };
    sum / (2.0 * n as f64)
}

/// The same sum of many cosecants, from below by less than 1e-9 of it: `csc x = 1/x + g(x)`. The reciprocals of odd numbers sum to
/// `(γ + ln n)/2 + ln 2` and a little. The points are the midpoints of n stretches of length `h = π/(2n + 1)`, and g, a power series
/// with positive coefficients, is convex with `g'' < 1/2`: the midpoint rule falls short of its integral by at most `h²/48` times
/// the range.
fn many_cosecants(n: u64) -> f64 {
    let (steps, h) = (n as f64, PI / (2.0 * n as f64 + 1.0));
    let odd = 0.5 * (EULER_MASCHERONI + steps.ln()) + 2.0_f64.ln();
    let end = steps * h;
    let integral = (0.5 * end).tan().ln() - end.ln() + 2.0_f64.ln();
    (2.0 * odd + integral - end * h * h / 48.0) / h
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
    (EULER_MASCHERONI + (n as f64).ln()) / PI + 1.0
}

/// The sum of cosecants `Σ_{t=1..n} |csc((2t − 1)π/denominator)|`.
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

    #[test]
    fn many_cosecants_are_their_sum_from_below() {
        for n in [1_000, 30_000, 1_000_000] {
            let (sum, quick) = (cosecants(n, 2 * (2 * n + 1)), many_cosecants(n));
            assert!(
                quick < sum * (1.0 + 1e-12) && quick > sum * (1.0 - 1e-4 / n as f64),
                "{n}: {quick} {sum}"
            );
        }
        assert!(lower_bound_sum(1 << 40) > lower_bound(1 << 40));
    }

    #[test]
    fn singular_values_of_the_prefix_sums_are_cosecants() {
        for n in [1, 2, 7, 100] {
            let norm = nuclear_norm(&LowerTriangular::from_fn(n, |_, _| 1.0)).unwrap();
            let expected = n as f64 * lower_bound_sum(n as u64);
            assert!(
                norm <= expected * (1.0 + 1e-12) && norm > expected * (1.0 - 1e-9),
                "{n}: {norm} {expected}"
            );
        }
    }
}
