//! Rows of `C⁻¹`, one after another: what quadratic quantities are made of without writing the matrix down.

use crate::error::Result;
use crate::factorization::{CUBIC_LIMIT, Factorization};
use crate::strategy::tree::{Estimator, Tree};
use crate::strategy::{Strategy, banded};

/// Most steps of a quantity that costs n² operations.
pub const QUADRATIC_LIMIT: usize = 65_536;

/// Calls `visit(t, first, row)` for every step: `row` holds columns `first..=t` of row `t` of `C⁻¹`, normalisation included.
/// Not for causal trees, whose rows have a column per node.
pub(crate) fn for_each_noising_row(
    factorization: &Factorization,
    mut visit: impl FnMut(usize, usize, &[f64]),
) -> Result<()> {
    factorization.check_size("an n × n quantity", QUADRATIC_LIMIT, "n²")?;
    if let Some(coefs) = factorization.noising_coefs()? {
        let reversed: Vec<f64> = coefs.iter().rev().copied().collect();
        let mut row = vec![0.0; coefs.len()];
        for t in 0..factorization.num_steps() {
            let first = factorization.segment(t).start;
            let values = &reversed[coefs.len() - 1 - (t - first)..];
            let divisor = factorization.divisor(t);
            row[..values.len()].iter_mut().zip(values).for_each(|(out, value)| *out = divisor * value);
            visit(t, first, &row[..values.len()]);
        }
        return Ok(());
    }
    if let Strategy::Banded(rows) = factorization.strategy() {
        return banded::for_each_noising_row(factorization, rows, visit);
    }
    let mut rows = segment_rows(factorization, factorization.restart_every())?;
    for segment in factorization.segments() {
        // Every segment is the leading part of the first, but a full tree over fewer steps is another tree.
        if segment.len() < rows.len() {
            rows = segment_rows(factorization, segment.len())?;
        }
        for t in segment.clone() {
            let divisor = factorization.divisor(t);
            let row: Vec<f64> = rows[t - segment.start].iter().map(|value| divisor * value).collect();
            visit(t, segment.start, &row);
        }
    }
    Ok(())
}

/// Rows of `C⁻¹` of one segment of a strategy that is not Toeplitz.
fn segment_rows(factorization: &Factorization, len: usize) -> Result<Vec<Vec<f64>>> {
    Ok(match factorization.strategy() {
        Strategy::Dense(matrix) => {
            factorization.check_size("the inverse", CUBIC_LIMIT, "n³/6")?;
            let inverse = matrix.inverse();
            (0..len).map(|t| inverse.row(t).to_vec()).collect()
        }
        Strategy::Tree(Estimator::Full) => {
            let tree = Tree::new(Estimator::Full, len)?;
            (0..len).map(|t| dense_row(tree.noising_row(t))).collect()
        }
        other => unreachable!("{other:?} is Toeplitz, or a causal tree"),
    })
}

/// A full tree's rows name the leaves, 2s for step s.
fn dense_row(terms: Vec<(u64, f64)>) -> Vec<f64> {
    let len = terms.last().map_or(0, |(node, _)| *node as usize / 2 + 1);
    let mut row = vec![0.0; len];
    terms.into_iter().for_each(|(node, weight)| row[node as usize / 2] = weight);
    row
}
