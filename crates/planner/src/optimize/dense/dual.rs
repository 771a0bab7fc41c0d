//! The dual of the dense problem: weights of rows `w` and columns `v` that no strategy can satisfy cheaply.
//!
//! For every `M = CᵀC`, `tr(Ω A M⁻¹ Aᵀ) · tr(V M) ≥ ‖Ω^{1/2} A V^{1/2}‖_*²` (nuclear norm). With weights that sum to 1 the left side
//! is at most the squared loss: errors are averaged over rows (all alike for the RMS loss), and the columns of a participation
//! pattern together have at most the squared sensitivity, as the mean over random signs of its gradients shows. So the largest
//! nuclear norm bounds every strategy, and in a stream it is the optimum (Haagerup; Lee, Shraibman, Špalek: A direct product
//! theorem for discrepancy, theorem 9), attained by `M = V^{-1/2} (V^{1/2} AᵀΩA V^{1/2})^{1/2} V^{-1/2}`.
//!
//! The logarithm of the norm is maximised over logarithms of weights: n variables where the primal has n²/2.
//! With `H = (XᵀX)^{1/2}` and `K = (XXᵀ)^{1/2}` for `X = Ω^{1/2} A V^{1/2}`, `∂‖X‖_*/∂ ln v_t = H[t,t]/2` and
//! `∂‖X‖_*/∂ ln w_t = K[t,t]/2`: diagonals only.

use super::shifted::Bidiagonal;
use crate::error::Result;
use crate::optimize::Iteration;
use crate::optimize::lbfgs::{Differentiable, Settings, minimize};
use corrnoise_numerics::{Eigen, Matrix, gram, product};
use std::ops::ControlFlow;

/// How rows are weighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowWeights {
    /// All alike: RMS loss.
    Uniform,
    /// By variables of their own: max loss.
    Free,
    /// As the columns, read backwards: max loss of a Toeplitz workload in a stream. Reversal turns the problem into itself and the
    /// norm is concave in `(w, v)`, so that some optimum is symmetric. `X` is too, after its rows are reversed.
    Mirrored,
}

pub(super) struct Dual {
    pub(super) workload: Matrix,
    /// `AᵀA/n`, for uniform rows where it is needed.
    pub(super) gram: Option<Matrix>,
    /// `A⁻¹`, if it is bidiagonal.
    pub(super) inverse: Option<Bidiagonal>,
    pub(super) rows: RowWeights,
    /// The participation pattern of each column; `None` for steps where nobody takes part.
    pub(super) classes: Vec<Option<usize>>,
    pub(super) num_classes: usize,
    /// The uniform share of the weights.
    floor: f64,
    /// The smallest gap so far, with its point.
    best: Option<Found>,
}

/// Weights and what they prove.
#[derive(Clone, Debug)]
pub(super) struct Found {
    rows: Vec<f64>,
    columns: Vec<f64>,
    /// No loss is below this.
    pub(super) bound: f64,
    /// The loss of the `M` that belongs to the weights, in a stream.
    pub(super) loss: f64,
    pub(super) iterations: usize,
}

/// The search ends at this relative distance between loss and bound.
const GAP: f64 = 1e-6;
/// Iterations between changes of the variables' scale.
const ROUND: usize = 40;
/// The uniform share of the weights, lowered from round to round. RowWeights that do not matter would go to zero, where `M` is singular, and
/// those that do matter in the end would take thousands of iterations to come back.
const FLOORS: [f64; 4] = [1e-3, 1e-4, 1e-5, 1e-6];

impl Dual {
    pub(super) fn new(
        workload: Matrix,
        inverse: Option<Bidiagonal>,
        rows: RowWeights,
        classes: Vec<Option<usize>>,
    ) -> Dual {
        let num_classes = classes.iter().flatten().max().map_or(0, |last| last + 1);
        // Weights of zero have no inverse.
        let inverse = inverse.filter(|_| classes.iter().all(Option::is_some));
        let n = workload.num_rows() as f64;
        let gram = (inverse.is_none() && rows == RowWeights::Uniform)
            .then(|| scaled(gram(workload.view()), 1.0 / n));
        Dual { workload, gram, inverse, rows, classes, num_classes, floor: 0.0, best: None }
    }

    fn len(&self) -> usize {
        self.workload.num_rows()
    }

    /// Maximises the dual, starting from uniform weights.
    pub(super) fn maximize(
        &mut self,
        max_iterations: usize,
        observe: &mut dyn FnMut(usize, f64) -> ControlFlow<()>,
    ) -> Result<Found> {
        let free = if self.rows == RowWeights::Free { self.len() } else { 0 };
        let mut x = vec![0.0; self.num_classes + free];
        let (mut iterations, mut over, mut stalled, mut floor) = (0, false, true, 0.0);
        let mut floors = FLOORS.into_iter();
        self.floor = 0.0;
        while !over && iterations < max_iterations {
            // At the optimum with a floor the gap is at most the floor.
            let gap = self.best.as_ref().map_or(0.0, |found| found.loss / found.bound - 1.0);
            if stalled || gap <= 2.0 * self.floor {
                let Some(next) = floors.next() else { break };
                floor = next;
            }
            self.lower_floor(floor, &mut x);
            let settings = Settings {
                memory: 40,
                max_iterations: ROUND.min(max_iterations - iterations),
                gradient_tolerance: 0.0,
                value_tolerance: 1e-14,
            };
            // The curvature along a logarithm is about its weight: variables are scaled to make that one.
            let weights =
                [&x[..self.num_classes], &x[self.num_classes..]].map(|part| mixture(part, 0.0)).concat();
            let scale: Vec<f64> =
                weights.iter().map(|weight| 1.0 / (self.len() as f64 * weight).sqrt()).collect();
            // The objective owns the search's best point; the observer needs its loss.
            let best = std::cell::Cell::new((f64::INFINITY, 0.0));
            let mut objective = |z: &[f64], gradient: &mut [f64]| {
                let moved: Vec<f64> = (0..z.len()).map(|i| x[i] + scale[i] * z[i]).collect();
                let value = self.evaluate(&moved, gradient);
                gradient.iter_mut().zip(&scale).for_each(|(slope, scale)| *slope *= scale);
                best.set(self.best.as_ref().map_or(best.get(), |found| (found.loss, found.bound)));
                value
            };
            let mut hear = |progress: Iteration| {
                let (loss, bound) = best.get();
                over = loss <= bound * (1.0 + GAP) || observe(iterations + progress.number, loss).is_break();
                if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let found = minimize(&mut objective, vec![0.0; x.len()], settings, &mut hear);
            iterations += found.iterations;
            stalled = found.iterations < settings.max_iterations;
            x.iter_mut().zip(found.x.iter().zip(&scale)).for_each(|(x, (z, scale))| *x += scale * z);
        }
        let best = self.best.take().ok_or_else(super::not_finite)?;
        Ok(Found { iterations, ..best })
    }

    /// Changes the uniform share of the weights, and moves the variables so that weights stay where they are. A weight at or
    /// below the new floor is raised to a tenth above it, or its gradient would vanish.
    fn lower_floor(&mut self, floor: f64, x: &mut [f64]) {
        for part in [0..self.num_classes, self.num_classes..x.len()] {
            let uniform = floor / part.len() as f64;
            let weights = mixture(&x[part.clone()], self.floor);
            let own = |weight: f64| (weight - uniform).max(0.1 * uniform).ln();
            x[part].iter_mut().zip(weights).for_each(|(x, weight)| *x = own(weight));
        }
        self.floor = floor;
    }

    /// Weights of rows and columns.
    fn weights(&self, x: &[f64]) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let classes = mixture(&x[..self.num_classes], self.floor);
        let columns: Vec<f64> = self.classes.iter().map(|class| class.map_or(0.0, |l| classes[l])).collect();
        let rows = match self.rows {
            RowWeights::Uniform => vec![1.0 / self.len() as f64; self.len()],
            RowWeights::Free => mixture(&x[self.num_classes..], self.floor),
            RowWeights::Mirrored => columns.iter().rev().copied().collect(),
        };
        (rows, columns, classes)
    }

    /// Diagonals of `H` and `K`; that of `K` only for free rows.
    fn square_roots(&self, rows: &[f64], columns: &[f64]) -> Option<(Vec<f64>, Vec<f64>)> {
        if let Some(inverse) = &self.inverse {
            return Some(inverse.square_roots(rows, columns, self.rows == RowWeights::Free));
        }
        let (values, vectors) = self.singular(rows, columns)?;
        let left = weighted_squares(&vectors, &values);
        if self.rows != RowWeights::Free {
            return Some((left, Vec::new()));
        }
        // X Q = U Σ: the rows of K are those of UΣ weighted by 1/σ.
        let image = product(self.weighted(rows, columns).view(), vectors.view());
        let inverse: Vec<f64> =
            values.iter().map(|value| if *value > 0.0 { 1.0 / value } else { 0.0 }).collect();
        Some((left, weighted_squares(&image, &inverse)))
    }

    /// Singular values of `X` and its right singular vectors.
    fn singular(&self, rows: &[f64], columns: &[f64]) -> Option<(Vec<f64>, Matrix)> {
        let n = self.len();
        if self.rows == RowWeights::Mirrored {
            // Nothing is squared here: singular values are absolute eigenvalues.
            let root: Vec<f64> = columns.iter().map(|v| v.sqrt()).collect();
            let symmetric = Matrix::from_fn(n, n, |t, s| root[t] * self.workload[(n - 1 - t, s)] * root[s]);
            let Eigen { values, vectors } = Eigen::new(symmetric)?;
            return Some((values.into_iter().map(f64::abs).collect(), vectors));
        }
        let gram = match &self.gram {
            Some(gram) => Matrix::from_fn(n, n, |t, s| (columns[t] * columns[s]).sqrt() * gram[(t, s)]),
            None => gram(self.weighted(rows, columns).view()),
        };
        let Eigen { values, vectors } = Eigen::new(gram)?;
        Some((values.into_iter().map(|value| value.max(0.0).sqrt()).collect(), vectors))
    }

    fn weighted(&self, rows: &[f64], columns: &[f64]) -> Matrix {
        let [rows, columns] = [rows, columns].map(|list| list.iter().map(|w| w.sqrt()).collect::<Vec<_>>());
        Matrix::from_fn(self.len(), self.len(), |t, s| rows[t] * self.workload[(t, s)] * columns[s])
    }

    /// `M` of a stream, with a unit diagonal: what is missing to the largest entry is added, which only makes errors smaller.
    /// (Scaling rows and columns instead makes them larger where weights are near zero.)
    pub(super) fn primal(&self, found: &Found) -> Result<Matrix> {
        let (rows, columns) = (&found.rows, &found.columns);
        let (values, mut vectors) = self.singular(rows, columns).ok_or_else(super::not_finite)?;
        for (column, value) in vectors.columns_mut().zip(&values) {
            column.iter_mut().zip(columns).for_each(|(entry, weight)| *entry *= (value / weight).sqrt());
        }
        let gram = gram(vectors.transposed());
        let largest = (0..self.len()).map(|t| gram[(t, t)]).fold(0.0, f64::max);
        let mut gram = scaled(gram, 1.0 / largest);
        (0..self.len()).for_each(|t| gram[(t, t)] = 1.0);
        Ok(gram)
    }
}

impl Differentiable for Dual {
    /// `−ln ‖X‖_*` at logarithms of weights.
    fn evaluate(&mut self, x: &[f64], gradient: &mut [f64]) -> f64 {
        let (rows, columns, classes) = self.weights(x);
        let Some((left, right)) = self.square_roots(&rows, &columns) else { return f64::INFINITY };
        let norm: f64 = left.iter().sum();
        let mut sums = vec![0.0; self.num_classes];
        self.classes.iter().zip(&left).for_each(|(class, h)| class.iter().for_each(|l| sums[*l] += h));
        let factor = if self.rows == RowWeights::Mirrored { 1.0 } else { 0.5 };
        let (of_columns, of_rows) = gradient.split_at_mut(self.num_classes);
        mixture_gradient(of_columns, &classes, sums.iter().map(|sum| factor * sum / norm), self.floor);
        if self.rows == RowWeights::Free {
            mixture_gradient(of_rows, &rows, right.iter().map(|sum| factor * sum / norm), self.floor);
        }
        // Squared sensitivity and error of M, before its diagonal is made one.
        let worst = |sums: &[f64], weights: &[f64]| {
            sums.iter().zip(weights).map(|(sum, weight)| sum / weight).fold(0.0, f64::max)
        };
        let sensitivity_squared = worst(&sums, &classes);
        let error_squared = match self.rows {
            RowWeights::Uniform => norm,
            RowWeights::Free => worst(&right, &rows),
            RowWeights::Mirrored => sensitivity_squared,
        };
        let loss = (sensitivity_squared * error_squared).sqrt();
        if self.best.as_ref().is_none_or(|best| loss / norm < best.loss / best.bound) {
            self.best = Some(Found { rows, columns, bound: norm, loss, iterations: 0 });
        }
        -norm.ln()
    }
}

/// Weights in proportion to `e^x`, but for a share that is uniform.
fn mixture(x: &[f64], floor: f64) -> Vec<f64> {
    let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let own = |x: &f64| (x - largest).exp();
    let sum: f64 = x.iter().map(own).sum();
    let uniform = floor / x.len() as f64;
    x.iter().map(|x| (1.0 - floor) * own(x) / sum + uniform).collect()
}

/// The gradient of `−ln ‖X‖_*` by the variables of a mixture, from its weights and `∂‖X‖_* / ∂ ln weight`, relative to the norm.
fn mixture_gradient(gradient: &mut [f64], weights: &[f64], slopes: impl Iterator<Item = f64>, floor: f64) {
    let uniform = floor / weights.len() as f64;
    let mut mean = 0.0;
    for ((out, weight), slope) in gradient.iter_mut().zip(weights).zip(slopes) {
        *out = slope / weight;
        mean += (weight - uniform) * *out;
    }
    mean /= 1.0 - floor;
    for (out, weight) in gradient.iter_mut().zip(weights) {
        *out = (weight - uniform) * (mean - *out);
    }
}

fn scaled(mut matrix: Matrix, factor: f64) -> Matrix {
    matrix.columns_mut().for_each(|column| column.iter_mut().for_each(|entry| *entry *= factor));
    matrix
}

/// `Σ_k weight_k · matrix[t,k]²` for every row.
fn weighted_squares(matrix: &Matrix, weights: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; matrix.num_rows()];
    for (column, weight) in matrix.columns().zip(weights) {
        sums.iter_mut().zip(column).for_each(|(sum, entry)| *sum += weight * entry * entry);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimize::dense::central_difference;

    fn prefix(n: usize) -> Matrix {
        Matrix::from_fn(n, n, |t, s| if s <= t { 1.0 } else { 0.0 })
    }

    fn inverse(n: usize) -> Option<Bidiagonal> {
        Some(Bidiagonal { diagonal: vec![1.0; n], below: vec![-1.0; n - 1] })
    }

    fn classes(n: usize, count: usize) -> Vec<Option<usize>> {
        (0..n).map(|t| Some(t % count)).collect()
    }

    fn point(dual: &Dual) -> Vec<f64> {
        let free = if dual.rows == RowWeights::Free { dual.len() } else { 0 };
        (0..dual.num_classes + free).map(|i| (1.7 * i as f64).sin()).collect()
    }

    #[test]
    fn gradients_are_those_of_the_nuclear_norm() {
        for rows in [RowWeights::Uniform, RowWeights::Free, RowWeights::Mirrored] {
            for inverse in [None, inverse(13)] {
                for count in if rows == RowWeights::Mirrored { vec![13] } else { vec![13, 5] } {
                    let mut dual = Dual::new(prefix(13), inverse.clone(), rows, classes(13, count));
                    let x = point(&dual);
                    dual.floor = 0.1;
                    let error = central_difference(&mut dual, &x, |_, _| ());
                    assert!(error < 1e-6, "{rows:?} {count} {}: {error:e}", inverse.is_some());
                }
            }
        }
        let mut gaps = classes(13, 5);
        gaps[11..].fill(None);
        let mut dual = Dual::new(prefix(13), None, RowWeights::Uniform, gaps);
        let x = point(&dual);
        assert!(central_difference(&mut dual, &x, |_, _| ()) < 1e-6);
    }

    #[test]
    fn quadrature_and_eigenvalues_agree() {
        for rows in [RowWeights::Uniform, RowWeights::Free, RowWeights::Mirrored] {
            let [mut fast, mut slow] =
                [inverse(200), None].map(|inverse| Dual::new(prefix(200), inverse, rows, classes(200, 200)));
            let x = point(&fast);
            let mut gradients = [vec![0.0; x.len()], vec![0.0; x.len()]];
            let values = [fast.evaluate(&x, &mut gradients[0]), slow.evaluate(&x, &mut gradients[1])];
            assert!((values[0] - values[1]).abs() < 1e-12, "{values:?}");
            for (fast, slow) in gradients[0].iter().zip(&gradients[1]) {
                assert!((fast - slow).abs() < 1e-12, "{rows:?} {fast} {slow}");
            }
        }
    }
}
