//! A strategy at a number of steps, perhaps with scaled columns, perhaps restarted: the matrix that runs.
//!
//! Restarts make it block-diagonal, every segment the leading part of the same matrix. Column normalisation divides each column
//! by its norm, so that `C⁻¹` has its rows multiplied: in the engine, an output scale per step.

pub(crate) mod from_form;
pub(crate) mod gram;
pub(crate) mod lower_triangular;
pub(crate) mod rows;
pub(crate) mod to_form;

pub use lower_triangular::LowerTriangular;
pub use rows::QUADRATIC_LIMIT;
pub use to_form::MAX_RING_BANDS;

use crate::error::{Error, Result, check_steps};
use crate::strategy::Strategy;
use crate::strategy::tree::{Estimator, Tree};

/// Most steps of a matrix that is written out.
pub const MATRIX_LIMIT: usize = 8192;
/// Most steps of a quantity that costs n³ operations.
pub const CUBIC_LIMIT: usize = 2048;
/// Most steps of a quantity that is written out step by step: 80 MB per list, and a handful of lists. Closed forms have no such limit.
pub const LINEAR_LIMIT: usize = 10_000_000;
/// Most operations on entries of the Gram matrix, by which sensitivities without a closed form are made.
const GRAM_WORK: usize = 1 << 32;

/// A strategy at a number of steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Factorization {
    strategy: Strategy,
    num_steps: usize,
    restart_every: usize,
    /// What columns are divided by; empty for nothing.
    divisors: Vec<f64>,
}

impl Factorization {
    /// The strategy at `num_steps` steps.
    pub fn new(strategy: Strategy, num_steps: usize) -> Result<Factorization> {
        check_steps(num_steps)?;
        // Output perturbation of a workload that is not Toeplitz is any other dense strategy.
        let strategy = match strategy {
            Strategy::Output(workload) if workload.coefs(1).is_none() => {
                Strategy::Dense(workload.matrix(num_steps)?)
            }
            other => other,
        };
        let rows = match &strategy {
            Strategy::Banded(rows) => Some(rows.len()),
            Strategy::Dense(matrix) => Some(matrix.len()),
            _ => None,
        };
        if let Some(rows) = rows.filter(|rows| *rows < num_steps) {
            return Err(Error::parameter(
                "rows of the strategy",
                rows,
                format!("at least {num_steps}, one per step"),
            ));
        }
        Ok(Factorization { strategy, num_steps, restart_every: num_steps, divisors: Vec::new() })
    }

    /// The same, started anew every `steps` steps. Column norms are those of the restarted matrix: normalise afterwards.
    pub fn restarted(self, steps: usize) -> Result<Factorization> {
        if steps == 0 {
            return Err(Error::parameter("restart_every", 0, "at least 1"));
        }
        if self.has_scaled_columns() {
            return Err(Error::parameter("restart_every", steps, "restarts before columns are scaled"));
        }
        Ok(Factorization { restart_every: steps.min(self.num_steps), ..self })
    }

    /// The same with every column divided by its norm.
    pub fn column_normalized(self) -> Result<Factorization> {
        let norms = self.column_norms_squared()?.into_iter().map(f64::sqrt).collect();
        self.columns_divided(norms)
    }

    /// The same with every column divided by a number of its own.
    pub fn columns_divided(self, divisors: Vec<f64>) -> Result<Factorization> {
        if divisors.len() != self.num_steps {
            let expected = format!("{}, one per step", self.num_steps);
            return Err(Error::parameter("number of column divisors", divisors.len(), expected));
        }
        for (t, divisor) in divisors.iter().enumerate() {
            if !divisor.is_finite() || *divisor == 0.0 {
                return Err(Error::parameter(format!("column divisor {t}"), divisor, "finite and not 0"));
            }
        }
        let divisors = (0..).zip(divisors).map(|(t, divisor)| divisor * self.divisor(t)).collect();
        Ok(Factorization { divisors, ..self })
    }

    /// The strategy, of any number of steps.
    pub fn strategy(&self) -> &Strategy {
        &self.strategy
    }

    /// The number of steps.
    pub fn num_steps(&self) -> usize {
        self.num_steps
    }

    /// Steps between restarts; the number of steps without any.
    pub fn restart_every(&self) -> usize {
        self.restart_every
    }

    /// Whether columns are divided by something.
    pub fn has_scaled_columns(&self) -> bool {
        !self.divisors.is_empty()
    }

    /// Neither scaled nor restarted: what closed forms are about.
    pub fn is_plain(&self) -> bool {
        !self.has_scaled_columns() && self.restart_every == self.num_steps
    }

    /// The matrix in one line for people, with its number of steps.
    pub fn describe(&self) -> String {
        format!("{}, {} steps", self.describe_matrix(), self.num_steps)
    }

    /// The matrix in one line for people, whatever its number of steps.
    pub fn describe_matrix(&self) -> String {
        let restarts = if self.restart_every < self.num_steps {
            format!(", restarted every {} steps", self.restart_every)
        } else {
            String::new()
        };
        let columns = if self.has_scaled_columns() { ", columns scaled" } else { "" };
        format!("{}{restarts}{columns}", self.strategy.describe())
    }

    /// What row `t` of `C⁻¹` is multiplied by.
    pub(crate) fn divisor(&self, t: usize) -> f64 {
        self.divisors.get(t).copied().unwrap_or(1.0)
    }

    /// What columns are divided by; empty for nothing.
    pub(crate) fn divisors(&self) -> &[f64] {
        &self.divisors
    }

    /// The steps of the segment that step `t` lies in.
    pub(crate) fn segment(&self, t: usize) -> std::ops::Range<usize> {
        let start = t - t % self.restart_every;
        start..(start + self.restart_every).min(self.num_steps)
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        (0..self.num_steps).step_by(self.restart_every).map(|start| self.segment(start))
    }

    /// The first column of `C`, of a segment before columns are scaled, if the strategy is Toeplitz.
    pub fn strategy_coefs(&self) -> Result<Option<Vec<f64>>> {
        self.check_segment("coefficients")?;
        self.strategy.coefs(self.restart_every)
    }

    /// The first column of `C⁻¹`, of a segment before columns are scaled, if the strategy is Toeplitz.
    pub fn noising_coefs(&self) -> Result<Option<Vec<f64>>> {
        self.check_segment("coefficients of the inverse")?;
        self.strategy.inverse_coefs(self.restart_every)
    }

    /// The coefficients of a Toeplitz matrix up to the last that is not zero, if they are few whatever the number of steps: given ones,
    /// or the diagonal alone. Restarts make no difference to a diagonal.
    pub(crate) fn few_coefs(&self) -> Result<Option<Vec<f64>>> {
        Ok(match &self.strategy {
            _ if self.has_scaled_columns() => None,
            Strategy::Toeplitz(coefs) if self.is_plain() => Some(coefs[..self.num_bands()].to_vec()),
            strategy if self.num_bands() == 1 => strategy.coefs(1)?,
            _ => None,
        })
    }

    /// Diagonals of `C` that may hold something else than zero.
    pub fn num_bands(&self) -> usize {
        let bands = match &self.strategy {
            Strategy::Identity => 1,
            Strategy::Toeplitz(coefs) => 1 + coefs.iter().rposition(|coef| *coef != 0.0).unwrap_or(0),
            Strategy::Banded(rows) => rows.iter().map(Vec::len).max().unwrap_or(1),
            Strategy::BandedInverse(coefs) if coefs[1..].iter().all(|coef| *coef == 0.0) => 1,
            _ => self.restart_every,
        };
        bands.min(self.restart_every)
    }

    /// The tree of a segment, for tree strategies.
    pub(crate) fn tree(&self, segment: &std::ops::Range<usize>) -> Result<Option<Tree>> {
        match self.strategy {
            Strategy::Tree(estimator) => Ok(Some(Tree::new(estimator, segment.len())?)),
            _ => Ok(None),
        }
    }

    /// The square of every column's norm.
    pub fn column_norms_squared(&self) -> Result<Vec<f64>> {
        self.check_size("column norms", LINEAR_LIMIT, "n")?;
        let mut norms = self.unscaled_column_norms_squared()?;
        norms.iter_mut().zip(&self.divisors).for_each(|(norm, divisor)| *norm /= divisor * divisor);
        Ok(norms)
    }

    fn unscaled_column_norms_squared(&self) -> Result<Vec<f64>> {
        if let Some(coefs) = self.strategy_coefs()? {
            return Ok(toeplitz_column_norms(&coefs, self.segments()));
        }
        let mut norms = vec![0.0; self.num_steps];
        for segment in self.segments() {
            if let Some(tree) = self.tree(&segment)? {
                let own = (0..segment.len()).map(|t| tree.column_norm_squared(t));
                norms[segment].iter_mut().zip(own).for_each(|(norm, own)| *norm = own);
                continue;
            }
            for t in segment.clone() {
                self.visit_row(t - segment.start, |s, value| norms[segment.start + s] += value * value);
            }
        }
        Ok(norms)
    }

    /// Entries of row `t` of a segment that is not Toeplitz, by column.
    fn visit_row(&self, t: usize, mut visit: impl FnMut(usize, f64)) {
        match &self.strategy {
            Strategy::Banded(rows) => {
                rows[t].iter().enumerate().for_each(|(age, value)| visit(t - age, *value));
            }
            Strategy::Dense(matrix) => {
                matrix.row(t).iter().enumerate().for_each(|(s, value)| visit(s, *value));
            }
            other => unreachable!("{other:?} is Toeplitz, or a tree"),
        }
    }

    /// `C` itself. Trees are not square; the full least-squares one has a square factor with the same Gram matrix, which is given.
    pub fn matrix(&self) -> Result<LowerTriangular> {
        self.check_size("the matrix", MATRIX_LIMIT, "n²/2")?;
        let segment = match (self.strategy_coefs()?, &self.strategy) {
            (Some(coefs), _) => LowerTriangular::from_fn(self.restart_every, |t, s| coefs[t - s]),
            (None, Strategy::Tree(Estimator::Full)) => {
                self.check_size("the square factor", CUBIC_LIMIT, "n³/6")?;
                return Ok(self.inverse()?.inverse());
            }
            (None, Strategy::Tree(_)) => {
                return Err(Error::parameter(
                    "strategy",
                    self.describe(),
                    "a square matrix; see Tree::strategy_matrix for the nodes of a tree",
                ));
            }
            (None, _) => {
                let mut rows: Vec<Vec<f64>> = (0..self.restart_every).map(|t| vec![0.0; t + 1]).collect();
                for (t, row) in rows.iter_mut().enumerate() {
                    self.visit_row(t, |s, value| row[s] = value);
                }
                LowerTriangular::from_rows(rows)
            }
        };
        let start = |t: usize| self.segment(t).start;
        let entry =
            |t: usize, s: usize| if s >= start(t) { segment.get(t - start(t), s - start(t)) } else { 0.0 };
        Ok(LowerTriangular::from_fn(self.num_steps, |t, s| entry(t, s) / self.divisor(s)))
    }

    /// `C⁻¹` itself; see [`Factorization::matrix`] about trees.
    pub fn inverse(&self) -> Result<LowerTriangular> {
        self.check_size("the inverse", MATRIX_LIMIT, "n²/2")?;
        if matches!(self.strategy, Strategy::Tree(Estimator::Plain | Estimator::Streaming)) {
            return self.matrix();
        }
        let mut rows: Vec<Vec<f64>> = (0..self.num_steps).map(|t| vec![0.0; t + 1]).collect();
        crate::factorization::rows::for_each_noising_row(self, |t, first, values| {
            rows[t][first..].copy_from_slice(values);
        })?;
        Ok(LowerTriangular::from_rows(rows))
    }

    /// Refuses what is made of too many diagonals of the Gram matrix.
    pub(crate) fn check_diagonals(&self, what: &str, count: usize) -> Result<()> {
        self.check_size(what, LINEAR_LIMIT, "n")?;
        // An entry is a difference of sums that are at hand, or a product of two columns.
        let (width, cost) = match self.strategy {
            Strategy::Banded(_) | Strategy::Dense(_) => (self.num_bands().div_ceil(4), "n·diagonals·bands"),
            _ => (1, "n·diagonals"),
        };
        let limit = GRAM_WORK / count.saturating_mul(width).max(1);
        self.check_size(&format!("{what} by {count} diagonals of the Gram matrix"), limit, cost)
    }

    fn check_segment(&self, what: &str) -> Result<()> {
        if self.restart_every <= LINEAR_LIMIT {
            return Ok(());
        }
        self.check_size(what, LINEAR_LIMIT, "n")
    }

    pub(crate) fn check_size(&self, what: &str, limit: usize, cost: &'static str) -> Result<()> {
        if self.num_steps <= limit {
            return Ok(());
        }
        let what = format!("{what} of {}", self.strategy.describe());
        Err(Error::TooLarge { what, cost, n: self.num_steps, limit })
    }
}

/// Column `j` of a segment of length `l` holds the first `l − j` coefficients.
fn toeplitz_column_norms(coefs: &[f64], segments: impl Iterator<Item = std::ops::Range<usize>>) -> Vec<f64> {
    let mut sum = 0.0;
    let prefix: Vec<f64> = coefs
        .iter()
        .map(|coef| {
            sum += coef * coef;
            sum
        })
        .collect();
    segments.flat_map(|segment| prefix[..segment.len()].iter().rev().copied()).collect()
}
