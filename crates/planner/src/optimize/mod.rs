//! The best strategy of each class, and how close to the optimum it is.
//!
//! Every optimiser minimises the logarithm of a loss with [`lbfgs`], from analytic gradients, on one thread and without
//! randomness: the same question gets the same answer. What it returns is evaluated again by [`crate::Factorization`], which knows
//! nothing of the optimiser.

pub mod banded;
pub mod blt;
pub mod dense;
pub mod lbfgs;
pub mod toeplitz;

use crate::error::Result;
use crate::factorization::Factorization;
use crate::privacy::participation::Participation;
use crate::privacy::sensitivity::{Adjacency, Exactness};
use crate::utility::bounds;
use crate::utility::workload::Workload;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Which loss is made small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// The largest error of any released value.
    #[default]
    Max,
    /// The root-mean-square error of all released values.
    Rms,
}

const NUCLEAR: &str = "the nuclear norm of the workload over √(steps · patterns that hold every step)";

/// What to optimise for.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The number of steps.
    pub num_steps: usize,
    /// The workload that is released.
    pub workload: Workload,
    /// Who takes part when.
    pub participation: Participation,
    /// Which loss is made small.
    pub objective: Objective,
}

impl Problem {
    /// Prefix sums of a stream.
    pub fn streaming(num_steps: usize, objective: Objective) -> Problem {
        Problem { num_steps, workload: Workload::Prefix, participation: Participation::Single, objective }
    }

    /// The loss of a factorisation, and whether its sensitivity is exact.
    pub fn loss(&self, factorization: &Factorization) -> Result<(f64, Exactness)> {
        let loss = factorization.loss(&self.workload, &self.participation, Adjacency::ZeroOut)?;
        let value = match self.objective {
            Objective::Max => loss.max_loss(),
            Objective::Rms => loss.rms_loss(),
        };
        Ok((value, loss.sensitivity.exactness))
    }

    /// A number that no strategy of any class goes below, and why, without much work: that of [`Problem::nuclear_bound`] for prefix
    /// sums, whose singular values are known. Otherwise the trivial bound: sensitivity is at least `|C[t,t]|`, the error of row `t`
    /// at least `|A[t,t]/C[t,t]|`.
    pub fn lower_bound(&self) -> (f64, &'static str) {
        match (&self.workload, self.workload.coefs(1), self.participation.cover(self.num_steps)) {
            (Workload::Prefix, _, Some(cover)) => (self.prefix_bound(cover), NUCLEAR),
            (_, Some(coefs), Some(_)) => (coefs[0].abs(), "the noise of a value's own step"),
            _ => (0.0, "nothing is below zero"),
        }
    }

    /// The bound of [`crate::utility::bounds`] on the RMS loss, and so on the max loss: from the nuclear norm of the workload and the patterns
    /// that hold every step. `None` where no patterns do, or where nobody knows the singular values of so large a workload.
    pub fn nuclear_bound(&self) -> Result<Option<(f64, &'static str)>> {
        let n = self.num_steps;
        self.participation.check(n)?;
        let Some(cover) = self.participation.cover(n) else { return Ok(None) };
        if self.workload == Workload::Prefix {
            return Ok(Some((self.prefix_bound(cover), NUCLEAR)));
        }
        if n > bounds::SINGULAR_LIMIT {
            return Ok(None);
        }
        let norm = bounds::nuclear_norm(&self.workload.matrix(n)?);
        Ok(norm.map(|norm| (bounds::participation_bound(norm, n, cover), NUCLEAR)))
    }

    fn prefix_bound(&self, cover: usize) -> f64 {
        let n = self.num_steps;
        bounds::participation_bound(n as f64 * bounds::lower_bound_sum(n as u64), n, cover)
    }
}

/// What a long run reports after each iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Iteration {
    /// How many iterations were made so far.
    pub number: usize,
    /// At most this many.
    pub limit: usize,
    /// The loss so far.
    pub loss: f64,
}

/// What a comparison of strategies is doing at the moment; displays as words for a progress line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage<'a> {
    /// It searches for the best strategy of the named class.
    Optimizing(&'a str),
    /// It calibrates the noise of the named strategy and computes its privacy claim.
    Certifying(&'a str),
}

impl std::fmt::Display for Stage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stage::Optimizing(class) => write!(f, "optimising {class}"),
            Stage::Certifying(strategy) => write!(f, "certifying {strategy}"),
        }
    }
}

/// Hears of progress. A closure that takes an [`Iteration`] is an observer that ignores stages.
pub trait Observe {
    /// Hears of an iteration, and may stop the run: the best strategy so far is returned.
    fn iteration(&mut self, progress: Iteration) -> ControlFlow<()>;

    /// Hears what the iterations that follow are for.
    fn stage(&mut self, stage: Stage<'_>) {
        let _ = stage;
    }
}

impl<F: FnMut(Iteration) -> ControlFlow<()>> Observe for F {
    fn iteration(&mut self, progress: Iteration) -> ControlFlow<()> {
        self(progress)
    }
}

/// An observer as the optimisers borrow it.
pub type Observer<'a> = &'a mut dyn Observe;

/// An observer that never stops anything.
pub fn unobserved() -> impl FnMut(Iteration) -> ControlFlow<()> {
    |_| ControlFlow::Continue(())
}

/// An optimised strategy with its certificate.
#[derive(Clone, Debug)]
pub struct Optimum {
    /// The strategy at its number of steps.
    pub factorization: Factorization,
    /// Its loss, evaluated anew.
    pub loss: f64,
    /// Whether the sensitivity in it is exact.
    pub exactness: Exactness,
    /// No strategy goes below this.
    pub lower_bound: f64,
    /// Why no strategy goes below it.
    pub bound_reason: &'static str,
    /// Iterations of the optimiser.
    pub iterations: usize,
    /// Wall time of the optimisation.
    pub time: Duration,
}

impl Optimum {
    /// Evaluates a strategy that an optimiser found; the bound is the problem's own.
    pub(crate) fn evaluate(
        problem: &Problem,
        factorization: Factorization,
        iterations: usize,
        start: Instant,
    ) -> Result<Optimum> {
        let (loss, exactness) = problem.loss(&factorization)?;
        let (lower_bound, bound_reason) = problem.lower_bound();
        Ok(Optimum {
            factorization,
            loss,
            exactness,
            lower_bound,
            bound_reason,
            iterations,
            time: start.elapsed(),
        })
    }

    /// The loss may be this much too large, relative to the bound.
    pub fn gap(&self) -> f64 {
        self.loss / self.lower_bound - 1.0
    }
}
