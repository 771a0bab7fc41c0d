//! Entries of `CᵀC`, one diagonal at a time: all that sensitivities depend on.

use crate::error::Result;
use crate::factorization::{Factorization, MATRIX_LIMIT};
use crate::strategy::Strategy;

/// `CᵀC` of a factorisation.
pub(crate) struct Gram<'a> {
    factorization: &'a Factorization,
    source: Source,
}

enum Source {
    /// The first column of a block.
    Toeplitz(Vec<f64>),
    /// Columns of `C` from the diagonal down to the last entry that is not zero by structure.
    Columns(Vec<Vec<f64>>),
    Tree,
}

impl Gram<'_> {
    pub(crate) fn new(factorization: &Factorization) -> Result<Gram<'_>> {
        let source = match (factorization.strategy_coefs()?, factorization.strategy()) {
            (Some(coefs), _) => Source::Toeplitz(coefs),
            (None, Strategy::Tree(_)) => Source::Tree,
            (None, Strategy::Banded(rows)) => Source::Columns(banded_columns(factorization, rows)),
            (None, _) => {
                factorization.check_size("the Gram matrix", MATRIX_LIMIT, "n²/2")?;
                let matrix = factorization.matrix()?;
                let n = factorization.num_steps();
                Source::Columns((0..n).map(|s| (s..n).map(|t| matrix.get(t, s)).collect()).collect())
            }
        };
        Ok(Gram { factorization, source })
    }

    /// `(CᵀC)[s, s + lag]` for every `s`.
    pub(crate) fn diagonal(&self, lag: usize) -> Result<Vec<f64>> {
        let factorization = self.factorization;
        let n = factorization.num_steps();
        let mut out = Vec::with_capacity(n.saturating_sub(lag));
        match &self.source {
            Source::Toeplitz(coefs) => {
                let sums = lagged_sums(coefs, lag);
                for s in 0..n.saturating_sub(lag) {
                    let block = factorization.block(s);
                    let within = (block.end).checked_sub(s + lag).filter(|rest| *rest > 0);
                    let entry = within.map_or(0.0, |rest| sums[rest]);
                    out.push(entry / (factorization.divisor(s) * factorization.divisor(s + lag)));
                }
            }
            Source::Columns(columns) => {
                for s in 0..n.saturating_sub(lag) {
                    let (left, right) = (columns[s].get(lag..).unwrap_or(&[]), &columns[s + lag]);
                    out.push(left.iter().zip(right).map(|(a, b)| a * b).sum());
                }
            }
            Source::Tree => {
                for block in factorization.blocks() {
                    let tree = factorization.tree(&block)?.expect("a tree strategy");
                    for s in block.clone().filter(|s| s + lag < n) {
                        let inside = s + lag < block.end;
                        let entry =
                            if inside { tree.gram(s - block.start, s + lag - block.start) } else { 0.0 };
                        out.push(entry / (factorization.divisor(s) * factorization.divisor(s + lag)));
                    }
                }
            }
        }
        Ok(out)
    }
}

/// `sums[l] = Σ_{u<l} c_u c_{u+lag}`.
fn lagged_sums(coefs: &[f64], lag: usize) -> Vec<f64> {
    let mut sums = Vec::with_capacity(coefs.len() + 1);
    sums.push(0.0);
    let mut sum = 0.0;
    for (a, b) in coefs.iter().zip(coefs.get(lag..).unwrap_or(&[])) {
        sum += a * b;
        sums.push(sum);
    }
    sums
}

fn banded_columns(factorization: &Factorization, rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let n = factorization.num_steps();
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); n];
    for t in 0..n {
        let start = factorization.block(t).start;
        for (age, value) in rows[t - start].iter().enumerate() {
            let column = &mut columns[t - age];
            column.resize(age, 0.0);
            column.push(value / factorization.divisor(t - age));
        }
    }
    columns
}
