//! Entries of `CᵀC`, one diagonal at a time: all that sensitivities depend on.

use crate::error::Result;
use crate::factorization::{Factorization, LINEAR_LIMIT, MATRIX_LIMIT};
use crate::strategy::tree::Tree;
use crate::strategy::{Strategy, banded};

/// `CᵀC` of a factorisation.
pub(crate) struct Gram<'a> {
    factorization: &'a Factorization,
    source: Source,
}

enum Source {
    /// The first column of a segment.
    Toeplitz(Vec<f64>),
    /// Columns of `C` from the diagonal down to the last entry that is not zero by structure.
    Columns(Vec<Vec<f64>>),
    /// How many nodes contain each step.
    Tree(Vec<usize>),
}

impl Gram<'_> {
    pub(crate) fn new(factorization: &Factorization) -> Result<Gram<'_>> {
        factorization.check_size("the Gram matrix", LINEAR_LIMIT, "n")?;
        let source = match (factorization.strategy_coefs()?, factorization.strategy()) {
            (Some(coefs), _) => Source::Toeplitz(coefs),
            (None, Strategy::Tree(_)) => {
                let mut levels = Vec::with_capacity(factorization.num_steps());
                for segment in factorization.segments() {
                    let tree = factorization.tree(&segment)?.expect("a tree strategy");
                    levels.extend((0..segment.len()).map(|t| tree.levels_over(t)));
                }
                Source::Tree(levels)
            }
            (None, Strategy::Banded(rows)) => Source::Columns(banded::columns(factorization, rows)),
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
        let mut out = Vec::with_capacity(self.factorization.num_steps().saturating_sub(lag));
        self.diagonal_into(lag, &mut out)?;
        Ok(out)
    }

    /// The same in place of what `out` holds: thousands of diagonals need one list.
    pub(crate) fn diagonal_into(&self, lag: usize, out: &mut Vec<f64>) -> Result<()> {
        let factorization = self.factorization;
        let n = factorization.num_steps();
        out.clear();
        match &self.source {
            Source::Toeplitz(coefs) => {
                for segment in factorization.segments() {
                    // Steps whose partner is in the same segment, and those that have none.
                    let met = segment.len().saturating_sub(lag);
                    if segment.start == 0 {
                        lagged_sums(&coefs[..met], &coefs[lag.min(coefs.len())..], out);
                    } else {
                        // The end of the first segment's, if this one is shorter.
                        let first = factorization.restart_every().saturating_sub(lag);
                        out.extend_from_within(first - met..first);
                    }
                    out.extend(std::iter::repeat_n(0.0, segment.len() - met));
                }
                out.truncate(n.saturating_sub(lag));
                scale(factorization, lag, out);
            }
            Source::Columns(columns) => {
                for s in 0..n.saturating_sub(lag) {
                    let (left, right) = (columns[s].get(lag..).unwrap_or(&[]), &columns[s + lag]);
                    out.push(left.iter().zip(right).map(|(a, b)| a * b).sum());
                }
            }
            Source::Tree(levels) => {
                for segment in factorization.segments() {
                    for s in segment.start..(segment.end).min(n.saturating_sub(lag)) {
                        let (own, other) = (s - segment.start, s + lag - segment.start);
                        let shared = || Tree::shared_nodes([own, other], [levels[s], levels[s + lag]]);
                        out.push(if s + lag < segment.end { shared() } else { 0.0 });
                    }
                }
                scale(factorization, lag, out);
            }
        }
        Ok(())
    }
}

/// Divides entries of a diagonal by what the two columns are divided by.
fn scale(factorization: &Factorization, lag: usize, diagonal: &mut [f64]) {
    let divisors = factorization.divisors();
    let pairs = divisors.iter().zip(divisors.get(lag..).unwrap_or(&[]));
    diagonal.iter_mut().zip(pairs).for_each(|(entry, (left, right))| *entry /= left * right);
}

/// Appends `Σ_{u<l} left_u right_u` for `l` from their length down to 1.
fn lagged_sums(left: &[f64], right: &[f64], out: &mut Vec<f64>) {
    let start = out.len();
    out.resize(start + left.len(), 0.0);
    let mut sum = 0.0;
    for (out, (a, b)) in out[start..].iter_mut().rev().zip(left.iter().zip(right)) {
        sum += a * b;
        *out = sum;
    }
}
