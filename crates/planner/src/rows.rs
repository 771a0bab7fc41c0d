//! Rows of `C⁻¹`, one after another: what quadratic quantities are made of without writing the matrix down.

use crate::error::Result;
use crate::factorization::{CUBIC_LIMIT, Factorization};
use crate::strategy::Strategy;

/// Most steps of a quantity that costs n² operations.
pub const QUADRATIC_LIMIT: usize = 65_536;

/// Calls `visit(t, first, row)` for every step: `row` holds columns `first..=t` of row `t` of `C⁻¹`, normalisation included.
/// Not for trees, whose rows have a column per node.
pub(crate) fn for_each_noising_row(
    factorization: &Factorization,
    mut visit: impl FnMut(usize, usize, &[f64]),
) -> Result<()> {
    factorization.check_size("an n × n quantity", QUADRATIC_LIMIT, "n²")?;
    if let Some(coefs) = factorization.noising_coefs()? {
        let reversed: Vec<f64> = coefs.iter().rev().copied().collect();
        let mut row = vec![0.0; coefs.len()];
        for t in 0..factorization.num_steps() {
            let first = factorization.block(t).start;
            let values = &reversed[coefs.len() - 1 - (t - first)..];
            let norm = factorization.norm(t);
            row[..values.len()].iter_mut().zip(values).for_each(|(out, value)| *out = norm * value);
            visit(t, first, &row[..values.len()]);
        }
        return Ok(());
    }
    // Every block is the leading part of the first.
    let block = match factorization.strategy() {
        Strategy::Banded(rows) => banded_inverse(&rows[..factorization.restart_every()]),
        Strategy::Dense(matrix) => {
            factorization.check_size("the inverse", CUBIC_LIMIT, "n³/6")?;
            let inverse = matrix.inverse();
            (0..factorization.restart_every()).map(|t| inverse.row(t).to_vec()).collect()
        }
        other => unreachable!("{other:?} is Toeplitz, or a tree"),
    };
    for t in 0..factorization.num_steps() {
        let first = factorization.block(t).start;
        let norm = factorization.norm(t);
        let row: Vec<f64> = block[t - first].iter().map(|value| norm * value).collect();
        visit(t, first, &row);
    }
    Ok(())
}

/// `x_t = (e_t − Σ C[t,t−a] x_{t−a}) / C[t,t]`.
fn banded_inverse(rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut inverse: Vec<Vec<f64>> = Vec::with_capacity(rows.len());
    for (t, row) in rows.iter().enumerate() {
        let mut out = vec![0.0; t + 1];
        for (age, weight) in row.iter().enumerate().skip(1) {
            out.iter_mut().zip(&inverse[t - age]).for_each(|(out, value)| *out -= weight * value);
        }
        out[t] += 1.0;
        out.iter_mut().for_each(|value| *value /= row[0]);
        inverse.push(out);
    }
    inverse
}
