//! Diagonals of `(XᵀX)^{1/2}` and `(XXᵀ)^{1/2}` where `X⁻¹` is bidiagonal, in O(n): prefix sums, weighted in any way, are of this kind.
//!
//! `T = (XᵀX)⁻¹` is tridiagonal then, and
//!
//! ```text
//! T^{-1/2} = (2/π) ∫₀^∞ (T + s²)⁻¹ ds = Σ_j weight_j (T + shift_j)⁻¹ + O(exp(−2π²·nodes / ln(16·cond T)))
//! ```
//!
//! with `s = √m · sn/cn` and the trapezoidal rule (Hale, Higham, Trefethen: Computing A^α, log(A), and related matrix functions by
//! contour integrals, method 3): about 40 nodes for 15 digits. `T` is kept as `LDLᵀ` and shifted by the stationary quotient-difference
//! algorithm, where nothing is subtracted: no digits are lost to the condition of `T` there.

use std::f64::consts::PI;

/// A lower bidiagonal matrix: its diagonal, and what lies below it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bidiagonal {
    pub(super) diagonal: Vec<f64>,
    pub(super) below: Vec<f64>,
}

/// Shifts that are worked on side by side: their recurrences are chains of divisions.
const LANES: usize = 8;

impl Bidiagonal {
    /// This matrix as `A⁻¹`: the diagonals of `(XᵀX)^{1/2}` and `(XXᵀ)^{1/2}` for `X = Ω^{1/2} A V^{1/2}`.
    pub(super) fn square_roots(&self, rows: &[f64], columns: &[f64], both: bool) -> (Vec<f64>, Vec<f64>) {
        let n = self.diagonal.len();
        // X⁻¹ = V^{-1/2} A⁻¹ Ω^{-1/2}.
        let inner = |t: usize| self.diagonal[t] / (columns[t] * rows[t]).sqrt();
        let below = |t: usize| self.below[t] / (columns[t + 1] * rows[t]).sqrt();
        let pivots: Vec<f64> = (0..n).map(|t| inner(t).powi(2)).collect();
        let left = (0..n - 1).map(|t| below(t) / inner(t)).collect();
        let from_left = inverse_square_root(&pivots, left);
        if !both {
            return (from_left, Vec::new());
        }
        // X⁻ᵀX⁻¹ is the same read backwards.
        let reversed: Vec<f64> = pivots.into_iter().rev().collect();
        let right = (0..n - 1).rev().map(|t| below(t) / inner(t + 1)).collect();
        let mut from_right = inverse_square_root(&reversed, right);
        from_right.reverse();
        (from_left, from_right)
    }
}

/// The diagonal of `(LDLᵀ)^{-1/2}` for positive pivots `D` and `L = I +` multipliers below the diagonal.
fn inverse_square_root(pivots: &[f64], multipliers: Vec<f64>) -> Vec<f64> {
    let n = pivots.len();
    // The trace of the inverse and the largest row sum enclose the spectrum.
    let mut last = 0.0;
    let mut trace = 0.0;
    for t in (0..n).rev() {
        let factor = multipliers.get(t).map_or(0.0, |l| l * l);
        last = 1.0 / pivots[t] + factor * last;
        trace += last;
    }
    let off = |t: usize| multipliers.get(t).map_or(0.0, |l| pivots[t] * l);
    let row_sum = |t: usize| {
        let above = if t == 0 { 0.0 } else { off(t - 1).abs() + off(t - 1) * multipliers[t - 1] };
        pivots[t] + above + off(t).abs()
    };
    let largest = (0..n).map(row_sum).fold(0.0, f64::max);
    let nodes = nodes(1.0 / trace, largest);
    let mut sums = vec![0.0; n];
    let mut scratch = Scratch { inverse_pivots: vec![[0.0; LANES]; n], multipliers: vec![[0.0; LANES]; n] };
    for chunk in nodes.chunks(LANES) {
        scratch.add(pivots, &multipliers, chunk, &mut sums);
    }
    sums
}

struct Scratch {
    inverse_pivots: Vec<[f64; LANES]>,
    multipliers: Vec<[f64; LANES]>,
}

impl Scratch {
    /// Adds `Σ weight · diag((LDLᵀ + shift)⁻¹)` over the nodes.
    fn add(&mut self, pivots: &[f64], multipliers: &[f64], nodes: &[(f64, f64)], sums: &mut [f64]) {
        let lane = |i: usize| nodes.get(i).copied().unwrap_or((1.0, 0.0));
        let shifts: [f64; LANES] = std::array::from_fn(|i| lane(i).0);
        let weights: [f64; LANES] = std::array::from_fn(|i| lane(i).1);
        let n = pivots.len();
        // What the shift adds to the pivot: positive throughout.
        let mut added = shifts;
        for (t, pivot) in pivots.iter().enumerate() {
            let l = multipliers.get(t).copied().unwrap_or(0.0);
            let (own, out) = (&mut self.inverse_pivots[t], &mut self.multipliers[t]);
            for i in 0..LANES {
                own[i] = 1.0 / (pivot + added[i]);
                out[i] = l * pivot * own[i];
                added[i] = shifts[i] + l * out[i] * added[i];
            }
        }
        let mut diagonal = [0.0; LANES];
        for t in (0..n).rev() {
            let (own, l) = (&self.inverse_pivots[t], &self.multipliers[t]);
            for i in 0..LANES {
                diagonal[i] = own[i] + l[i] * l[i] * diagonal[i];
            }
            sums[t] += (0..LANES).map(|i| weights[i] * diagonal[i]).sum::<f64>();
        }
    }
}

/// Shifts and weights for a spectrum in [smallest, largest].
fn nodes(smallest: f64, largest: f64) -> Vec<(f64, f64)> {
    let ratio = (smallest / largest).min(0.5);
    // 35 ≈ −ln 1e-15, over the 2π² of the error term; and two more.
    let count = (35.0 / (2.0 * PI * PI) * (16.0 / ratio).ln()).ceil() as usize + 2;
    let (means, differences) = arithmetic_geometric(ratio.sqrt(), (1.0 - ratio).sqrt());
    let mean = means[means.len() - 1];
    let quarter_period = PI / (2.0 * mean);
    (0..count)
        .map(|j| {
            let u = (j as f64 + 0.5) / count as f64 * quarter_period;
            // Descending Landen transformation: the amplitude of u.
            let mut angle = mean * u * (1_u64 << (means.len() - 1)) as f64;
            for (mean, difference) in means.iter().zip(&differences).skip(1).rev() {
                angle = 0.5 * (angle + (difference / mean * angle.sin()).asin());
            }
            let (sn, cn) = angle.sin_cos();
            let dn = (cn * cn + ratio * sn * sn).sqrt();
            let weight = 2.0 / PI * quarter_period / count as f64 * smallest.sqrt() * dn / (cn * cn);
            (smallest * (sn / cn).powi(2), weight)
        })
        .collect()
}

/// The means of 1 and `b`, and half the differences, the first of which is `c = √(1 − b²)`.
fn arithmetic_geometric(b: f64, c: f64) -> (Vec<f64>, Vec<f64>) {
    let (mut a, mut b) = (1.0, b);
    let (mut means, mut differences) = (vec![a], vec![c]);
    while differences[differences.len() - 1] > 1e-16 * a && means.len() < 20 {
        let next = 0.5 * (a + b);
        differences.push(0.5 * (a - b));
        b = (a * b).sqrt();
        a = next;
        means.push(a);
    }
    (means, differences)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inverse_square_root_of_numbers_is_as_good_as_its_angles() {
        for ratio in [0.9, 1e-3, 1e-8, 1e-14] {
            let nodes = nodes(ratio, 1.0);
            for i in 0..=40 {
                let value = ratio.powf(f64::from(i) / 40.0);
                let sum: f64 = nodes.iter().map(|(shift, weight)| weight / (value + shift)).sum();
                let error = sum * value.sqrt() - 1.0;
                assert!(
                    error.abs() < 1e-16 / ratio.sqrt() + 1e-14,
                    "{ratio} {value} {error:e}, {} nodes",
                    nodes.len()
                );
            }
        }
    }

    #[test]
    fn two_by_two_is_the_formula() {
        // X⁻¹ = [2 0; -1 3]: T = [4 -2; -2 10], and T^{1/2} = (T + √det I)/√(tr + 2√det).
        let inverse = Bidiagonal { diagonal: vec![2.0, 3.0], below: vec![-1.0] };
        let (left, right) = inverse.square_roots(&[1.0; 2], &[1.0; 2], true);
        let scale = (14.0_f64 + 12.0).sqrt();
        let root = [[(4.0 + 6.0) / scale, -2.0 / scale], [-2.0 / scale, (10.0 + 6.0) / scale]];
        let det = root[0][0] * root[1][1] - root[0][1] * root[1][0];
        assert!((left[0] - root[1][1] / det).abs() < 1e-14, "{left:?}");
        assert!((left[1] - root[0][0] / det).abs() < 1e-14, "{left:?}");
        // X⁻ᵀX⁻¹ = [5 -3; -3 9].
        let (a, b) = ((5.0 + 6.0) / scale, (9.0 + 6.0) / scale);
        let det = a * b - 9.0 / (scale * scale);
        assert!((right[0] - b / det).abs() < 1e-14 && (right[1] - a / det).abs() < 1e-14, "{right:?}");
    }
}
