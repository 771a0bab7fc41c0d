//! The dense mechanism: the best of all lower-triangular strategies.
//!
//! | participation | what is solved | how |
//! |---|---|---|
//! | a stream | the problem itself, RMS or max loss | its dual (`dual`): loss and bound meet |
//! | cyclic, all epochs | `CᵀC` zero between steps of a residue | the primal (`masked`) |
//! | min-sep; cyclic, some epochs | `CᵀC` banded with a unit diagonal: as many bands as the separation | the primal |
//!
//! Prefix sums of a stream cost O(n) per iteration (`shifted`), other workloads an eigendecomposition. `C` follows from `M = CᵀC` by
//! the Cholesky factorisation that starts at the last row. The bound that is reported holds for every strategy, not only for
//! those with zeros in `CᵀC`. With several participations the max loss is approached by
//! power means of the errors, without a proof that nothing with these zeros is better.
//!
//! Everything here is in f64; the engine rounds the entries of `C⁻¹` to f32, which is its business to account for.

mod dual;
mod masked;
mod shifted;

use super::{Iteration, Objective, Observer, Optimum, Problem};
use crate::error::{Error, Result};
use crate::factorization::lower_triangular::LowerTriangular;
use crate::factorization::{CUBIC_LIMIT, Factorization};
use crate::privacy::participation::Participation;
use crate::privacy::sensitivity::Adjacency;
use crate::strategy::Strategy;
use crate::utility::workload::Workload;
use corrnoise_numerics::{Cholesky, Matrix};
use dual::{Dual, RowWeights};
use masked::{Mask, Masked};
use shifted::Bidiagonal;
use std::ops::ControlFlow;
use std::time::Instant;

/// Iterations at most; a stream needs a few dozen.
const MAX_ITERATIONS: usize = 1000;
/// Sums of a few thousand numbers: the bound must not exceed the loss because of them.
const ROUNDING: f64 = 1e-12;
/// Powers of the squared errors that the max loss is approached with.
const POWERS: [f64; 4] = [1.0, 10.0, 100.0, 1000.0];

/// The best dense strategy.
///
/// # Guarantees
/// The strategy has sensitivity 1. In a stream, [`Optimum::gap`] is the duality gap: below 1e-6, or the best after 1000 iterations.
/// It is [`Strategy::Dense`], but for min-sep participation and cycles of some of the epochs [`Strategy::Banded`], whose sensitivity is
/// exact.
pub fn optimize(problem: &Problem, observer: Observer<'_>) -> Result<Optimum> {
    let start = Instant::now();
    let n = problem.num_steps;
    problem.participation.check(n)?;
    if n > CUBIC_LIMIT {
        let what = "the best dense strategy".into();
        return Err(Error::TooLarge { what, cost: "n³", n, limit: CUBIC_LIMIT });
    }
    let mask = mask(&problem.participation, n)?;
    let lower = problem.workload.matrix(n)?;
    let workload = Matrix::from_fn(n, n, |t, s| lower.get(t, s));
    let mut observe =
        |iteration, loss| observer.iteration(Iteration { number: iteration, limit: MAX_ITERATIONS, loss });
    let inverse = bidiagonal_inverse(&problem.workload, n);
    let toeplitz = problem.workload.coefs(1).is_some();
    let rows = match problem.objective {
        Objective::Rms => RowWeights::Uniform,
        Objective::Max if toeplitz && mask.is_none() => RowWeights::Mirrored,
        Objective::Max => RowWeights::Free,
    };
    let mut dual = Dual::new(workload.clone(), inverse.clone(), rows, (0..n).map(Some).collect());
    let Some((mask, classes)) = mask else {
        let found = dual.maximize(MAX_ITERATIONS, &mut observe)?;
        let factorization = scaled(dense(&dual.primal(&found)?)?, problem)?;
        let mut optimum = Optimum::evaluate(problem, factorization, found.iterations, start)?;
        optimum.lower_bound = found.bound * (1.0 - ROUNDING);
        optimum.bound_reason = "duality: the optimum over all strategies";
        return Ok(optimum);
    };
    // A few iterations in silence: a start, not a result.
    let mut silent = |_, _| ControlFlow::Continue(());
    let stream = dual.maximize(10, &mut silent)?;
    let mut primal = Masked::new(workload.clone(), mask);
    let powers = if problem.objective == Objective::Rms { &POWERS[..1] } else { &POWERS[..] };
    let found = primal.minimize(&dual.primal(&stream)?, powers, MAX_ITERATIONS, &mut observe)?;
    let strategy = dense(&found.gram)?;
    let strategy = match mask {
        Mask::Bands(bands) => banded(&strategy, bands),
        Mask::Residues(_) => strategy,
    };
    let bound = Dual::new(workload, inverse, rows, classes).maximize(MAX_ITERATIONS, &mut silent)?.bound
        * (1.0 - ROUNDING);
    let mut optimum = Optimum::evaluate(problem, scaled(strategy, problem)?, found.iterations, start)?;
    if bound > optimum.lower_bound {
        optimum.lower_bound = bound;
        optimum.bound_reason = "duality: sensitivity is at least the norm of a pattern's columns";
    }
    Ok(optimum)
}

/// Zeros of the Gram matrix, and disjoint patterns for the bound; `None` for a stream.
type Zeros = Option<(Mask, Vec<Option<usize>>)>;

fn mask(participation: &Participation, n: usize) -> Result<Zeros> {
    let (separation, participations) = match participation {
        Participation::Single => return Ok(None),
        Participation::Full => (1, n),
        Participation::Cyclic { separation, max_participations } => (*separation, *max_participations),
        // Patterns as far apart as they can be cover the most steps.
        Participation::MinSep { min_sep, max_participations } => {
            let apart = (*min_sep).max(n / max_participations);
            let class = |t: usize| (t / apart < *max_participations).then_some(t % apart);
            let zeros = (Mask::Bands(*min_sep), (0..n).map(class).collect());
            return Ok((*max_participations > 1).then_some(zeros));
        }
        Participation::Patterns(_) => {
            return Err(Error::parameter(
                "participation",
                "a list of patterns",
                "single, cyclic, min-sep or full, for the dense optimum",
            ));
        }
    };
    // Any one step, since a cycle may begin at any: a stream.
    if participations == 1 {
        return Ok(None);
    }
    // A residue is one cycle after another; with a unit diagonal all of them have the same norm.
    let cycle = |t: usize| Some(t / separation / participations * separation + t % separation);
    let mask = match participations < n.div_ceil(separation) {
        true => Mask::Bands(separation),
        false => Mask::Residues(separation),
    };
    Ok(Some((mask, (0..n).map(cycle).collect())))
}

/// `A⁻¹`, where it has one diagonal below the main one: prefix sums, leaky or not, with any weights.
fn bidiagonal_inverse(workload: &Workload, n: usize) -> Option<Bidiagonal> {
    if let Workload::Scaled { base, rows, columns } = workload {
        let mut inverse = bidiagonal_inverse(base, n)?;
        let factor = |list: &[f64], t: usize| list.get(t).copied().unwrap_or(1.0);
        for t in 0..n {
            inverse.diagonal[t] /= factor(rows, t) * factor(columns, t);
        }
        for t in 0..n - 1 {
            inverse.below[t] /= factor(rows, t) * factor(columns, t + 1);
        }
        return Some(inverse);
    }
    let filter = workload.filter()?;
    let mut poles = filter.poles.iter().filter(|pole| **pole != 0.0);
    let pole = *poles.next()?;
    if filter.numerator.len() > 1 || poles.next().is_some() {
        return None;
    }
    let scale = filter.numerator[0];
    Some(Bidiagonal { diagonal: vec![1.0 / scale; n], below: vec![-pole / scale; n - 1] })
}

/// `C` with a positive diagonal from `M = CᵀC`.
fn dense(gram: &Matrix) -> Result<Strategy> {
    let n = gram.num_rows();
    let flipped = Matrix::from_fn(n, n, |t, s| gram[(n - 1 - t, n - 1 - s)]);
    let factor = Cholesky::new(flipped).ok_or_else(not_finite)?;
    Ok(Strategy::Dense(LowerTriangular::from_fn(n, |t, s| factor.get(n - 1 - s, n - 1 - t))))
}

fn banded(strategy: &Strategy, bands: usize) -> Strategy {
    let Strategy::Dense(matrix) = strategy else { unreachable!("made by dense()") };
    let row = |t: usize| (0..bands.min(t + 1)).map(|age| matrix.get(t, t - age)).collect();
    Strategy::Banded((0..matrix.len()).map(row).collect())
}

/// The strategy divided by its sensitivity.
fn scaled(strategy: Strategy, problem: &Problem) -> Result<Factorization> {
    let n = problem.num_steps;
    let factorization = Factorization::new(strategy, n)?;
    let sensitivity = factorization.sensitivity(&problem.participation, Adjacency::ZeroOut)?.value;
    let strategy = match factorization.strategy() {
        Strategy::Dense(matrix) => {
            Strategy::Dense(LowerTriangular::from_fn(n, |t, s| matrix.get(t, s) / sensitivity))
        }
        Strategy::Banded(rows) => {
            let scale = |row: &Vec<f64>| row.iter().map(|value| value / sensitivity).collect();
            Strategy::Banded(rows.iter().map(scale).collect())
        }
        other => unreachable!("{other:?} is not what the optimiser makes"),
    };
    Factorization::new(strategy, n)
}

fn not_finite() -> Error {
    Error::parameter(
        "workload",
        "too ill-conditioned for f64",
        "one whose dense optimum is positive definite",
    )
}

/// The largest error of a gradient along a few directions, relative to the slope, by central differences.
#[cfg(test)]
fn central_difference<O: super::lbfgs::Differentiable>(
    objective: &mut O,
    x: &[f64],
    project: impl Fn(&O, &mut [f64]),
) -> f64 {
    let mut gradient = vec![0.0; x.len()];
    objective.evaluate(x, &mut gradient);
    let mut worst = 0.0_f64;
    for number in 1..6 {
        let mut direction: Vec<f64> =
            (0..x.len()).map(|i| (f64::from(number) * (i as f64 + 0.3)).cos()).collect();
        project(objective, &mut direction);
        let mut at = |length: f64| {
            let moved: Vec<f64> = x.iter().zip(&direction).map(|(x, d)| x + length * d).collect();
            objective.evaluate(&moved, &mut vec![0.0; x.len()])
        };
        let length = 1e-4;
        // Fourth order: the error is far below the slope's last digits that matter.
        let difference =
            (8.0 * (at(length) - at(-length)) - (at(2.0 * length) - at(-2.0 * length))) / (12.0 * length);
        let slope: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
        worst = worst.max((difference - slope).abs() / slope.abs());
    }
    worst
}
