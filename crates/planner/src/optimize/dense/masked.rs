//! The primal problem with several participations: `M = CᵀC` is zero at every pair of steps that one unit may take part in, so that
//! sensitivity is a sum of column norms.
//!
//! The error is convex in `M`, and L-BFGS minimises it over the entries that may differ from zero. For cyclic participation the diagonal is free
//! up to its sum over each residue; gradients are projected onto that. L-BFGS only ever adds gradients up, and does not care which
//! orthonormal coordinates they are written in: this is the same as eliminating the constraints.

use crate::error::Result;
use crate::optimize::Iteration;
use crate::optimize::lbfgs::{Differentiable, Settings, minimize};
use corrnoise_numerics::{Cholesky, Matrix, gram};
use std::ops::ControlFlow;

/// Which entries of `M` may be other than zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mask {
    /// Not those of two steps of the same residue; the diagonal sums to 1 over each residue.
    Residues(usize),
    /// Those fewer than this many steps apart; the diagonal is 1.
    Bands(usize),
}

impl Mask {
    fn allows(self, t: usize, s: usize) -> bool {
        match self {
            Mask::Residues(separation) => t % separation != s % separation,
            Mask::Bands(bands) => t.abs_diff(s) < bands,
        }
    }
}

pub(super) struct Masked {
    workload: Matrix,
    mask: Mask,
    /// Errors are averaged with this power: 1 for the RMS loss, large for the max loss.
    power: f64,
    /// Off-diagonal variables, (t, s) with t > s, then the diagonal for residues.
    pairs: Vec<(usize, usize)>,
}

/// A Gram matrix and how long it took.
pub(super) struct Found {
    pub(super) gram: Matrix,
    pub(super) iterations: usize,
}

impl Masked {
    pub(super) fn new(workload: Matrix, mask: Mask) -> Masked {
        let n = workload.num_rows();
        let pairs = (0..n).flat_map(|t| (0..t).map(move |s| (t, s))).filter(|(t, s)| mask.allows(*t, *s));
        Masked { workload, mask, power: 1.0, pairs: pairs.collect() }
    }

    /// From a positive definite matrix with a unit diagonal, such as the optimum of the stream. `powers` are used one after another.
    pub(super) fn minimize(
        &mut self,
        start: &Matrix,
        powers: &[f64],
        max_iterations: usize,
        observe: &mut dyn FnMut(usize, f64) -> ControlFlow<()>,
    ) -> Result<Found> {
        let mut x = self.start(start);
        let mut iterations = 0;
        let participations = match self.mask {
            Mask::Residues(_) => 1.0,
            Mask::Bands(bands) => self.workload.num_rows().div_ceil(bands) as f64,
        };
        let mut stopped = false;
        for (stage, power) in powers.iter().enumerate() {
            if stopped {
                break;
            }
            self.power = *power;
            // Powers before the last are only on the way; the last is itself only an approximation, but for a single one.
            let value_tolerance = if powers.len() == 1 {
                1e-7
            } else if stage + 1 < powers.len() {
                1e-4
            } else {
                1e-6
            };
            let settings = Settings { memory: 20, max_iterations, gradient_tolerance: 1e-9, value_tolerance };
            let mut hear = |progress: Iteration| {
                let flow = observe(
                    iterations + progress.number,
                    (0.5 * progress.loss).exp() * participations.sqrt(),
                );
                stopped = flow.is_break();
                flow
            };
            let found = minimize(self, x, settings, &mut hear);
            iterations += found.iterations;
            x = found.x;
        }
        Ok(Found { gram: self.gram(&x), iterations })
    }

    /// A feasible start: the Gram entries, tapered linearly to zero at the separation. The taper is positive definite, and so is its
    /// entrywise product with the Gram matrix.
    fn start(&self, gram: &Matrix) -> Vec<f64> {
        let n = gram.num_rows();
        let separation = match self.mask {
            Mask::Residues(separation) | Mask::Bands(separation) => separation,
        };
        let scale = |t: usize| match self.mask {
            Mask::Residues(separation) => 1.0 / ((n - 1 - t % separation) / separation + 1) as f64,
            Mask::Bands(_) => 1.0,
        };
        let triangle = |t: usize, s: usize| (1.0 - (t - s) as f64 / separation as f64).max(0.0);
        let entry = |t: usize, s: usize| triangle(t, s) * gram[(t, s)] * (scale(t) * scale(s)).sqrt();
        let mut x: Vec<f64> = self.pairs.iter().map(|(t, s)| entry(*t, *s)).collect();
        if let Mask::Residues(_) = self.mask {
            x.extend((0..n).map(scale));
        }
        x
    }

    fn gram(&self, x: &[f64]) -> Matrix {
        let n = self.workload.num_rows();
        let mut gram = Matrix::identity(n);
        let (pairs, diagonal) = x.split_at(self.pairs.len());
        for ((t, s), value) in self.pairs.iter().zip(pairs) {
            gram[(*t, *s)] = *value;
            gram[(*s, *t)] = *value;
        }
        diagonal.iter().enumerate().for_each(|(t, value)| gram[(t, t)] = *value);
        gram
    }

    /// Subtracts the mean of each residue.
    fn project(&self, diagonal: &mut [f64]) {
        let Mask::Residues(separation) = self.mask else { return };
        for first in 0..separation.min(diagonal.len()) {
            let members = diagonal[first..].iter().step_by(separation);
            let mean = members.clone().sum::<f64>() / members.len() as f64;
            diagonal[first..].iter_mut().step_by(separation).for_each(|entry| *entry -= mean);
        }
    }
}

impl Differentiable for Masked {
    /// `ln` of the power mean of the squared errors.
    fn evaluate(&mut self, x: &[f64], gradient: &mut [f64]) -> f64 {
        let n = self.workload.num_rows();
        let Some(factor) = Cholesky::new(self.gram(x)) else { return f64::INFINITY };
        // Row t: row t of the workload times M⁻¹.
        let mut solved = factor.divide(self.workload.clone());
        let mut errors = vec![0.0; n];
        for (solved, workload) in solved.columns().zip(self.workload.columns()) {
            let products = solved.iter().zip(workload).map(|(a, b)| a * b);
            errors.iter_mut().zip(products).for_each(|(error, product)| *error += product);
        }
        let largest = errors.iter().copied().fold(0.0, f64::max);
        let powers: Vec<f64> = errors.iter().map(|error| (error / largest).powf(self.power)).collect();
        let sum: f64 = powers.iter().sum();
        let weights: Vec<f64> =
            powers.iter().zip(&errors).map(|(power, error)| (power / (error * sum)).sqrt()).collect();
        for column in solved.columns_mut() {
            column.iter_mut().zip(&weights).for_each(|(entry, weight)| *entry *= weight);
        }
        let slope = gram(solved.view());
        let (pairs, diagonal) = gradient.split_at_mut(self.pairs.len());
        for (out, (t, s)) in pairs.iter_mut().zip(&self.pairs) {
            *out = -2.0 * slope[(*t, *s)];
        }
        diagonal.iter_mut().enumerate().for_each(|(t, out)| *out = -slope[(t, t)]);
        self.project(diagonal);
        largest.ln() + (sum / n as f64).ln() / self.power
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimize::dense::central_difference;
    use corrnoise_numerics::{product, singular_values};

    fn workload(n: usize) -> Matrix {
        Matrix::from_fn(n, n, |t, s| if s <= t { 1.0 + 0.1 * (t as f64 * 0.7 + s as f64).sin() } else { 0.0 })
    }

    /// A tapered start plus a little of everything, along the constraints.
    fn point(masked: &Masked, n: usize) -> Vec<f64> {
        let mut x = masked.start(&Matrix::from_fn(n, n, |t, s| 0.8_f64.powi(t.abs_diff(s) as i32)));
        let mut moved: Vec<f64> = (0..x.len()).map(|i| 0.01 * (1.3 * i as f64).sin()).collect();
        let (_, diagonal) = moved.split_at_mut(masked.pairs.len());
        masked.project(diagonal);
        x.iter_mut().zip(moved).for_each(|(x, moved)| *x += moved);
        x
    }

    #[test]
    fn gradients_are_those_of_the_error() {
        for (mask, power) in [
            (Mask::Bands(4), 1.0),
            (Mask::Bands(3), 20.0),
            (Mask::Residues(4), 1.0),
            (Mask::Residues(5), 30.0),
        ] {
            let mut masked = Masked::new(workload(11), mask);
            masked.power = power;
            let x = point(&masked, 11);
            // Along directions that keep the sums of the diagonal.
            let error = central_difference(&mut masked, &x, |masked, direction| {
                let (_, diagonal) = direction.split_at_mut(masked.pairs.len());
                masked.project(diagonal);
            });
            assert!(error < 1e-6, "{mask:?} {power}: {error:e}");
        }
    }

    /// Multipliers `Y` of the constraints with `Y ≻ 0` prove that `M` is best: with `G = M⁻¹WM⁻¹`, the part of `G` on the zeros and
    /// the residue's mean on the diagonal. No `M` of the class has less than `(tr (W^{1/2} Y W^{1/2})^{1/2})² / Σ_l Y_ll`.
    #[test]
    fn the_cyclic_optimum_meets_its_own_dual() {
        let (n, separation) = (48, 12);
        let workload = workload(n);
        let mut masked = Masked::new(workload.clone(), Mask::Residues(separation));
        let found = masked
            .minimize(&Matrix::identity(n), &[1.0], 1000, &mut |_, _| ControlFlow::Continue(()))
            .unwrap();
        let solved = Cholesky::new(found.gram).unwrap().divide(workload.clone());
        let primal: f64 =
            (0..n).map(|t| (0..n).map(|s| workload[(t, s)] * solved[(t, s)]).sum::<f64>()).sum();
        let slope = gram(solved.view());
        let mean = |l: usize| {
            (l..n).step_by(separation).map(|t| slope[(t, t)]).sum::<f64>() / (n / separation) as f64
        };
        let multipliers = Matrix::from_fn(n, n, |t, s| match (t == s, t % separation == s % separation) {
            (true, _) => mean(t % separation),
            (false, true) => slope[(t, s)],
            _ => 0.0,
        });
        let factor = Cholesky::new(multipliers).expect("positive definite");
        let factor = Matrix::from_fn(n, n, |t, s| factor.get(t, s));
        let root = product(workload.view(), factor.view());
        let norm: f64 = singular_values(root).unwrap().iter().sum();
        let dual = norm * norm / (0..separation).map(mean).sum::<f64>();
        assert!(dual <= primal * (1.0 + 1e-12) && dual > primal * (1.0 - 1e-4), "{dual} {primal}");
    }
}
