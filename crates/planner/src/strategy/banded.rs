//! Banded strategies with rows of their own: `C` by rows, the rows of its inverse one after another, its columns.

use super::{Strategy, series};
use crate::error::{Error, Result};
use crate::factorization::Factorization;
use std::collections::VecDeque;

/// Most operations on rows of the inverse of a banded matrix.
const WORK: usize = 10_000_000_000;

impl Strategy {
    /// Rows `[C[t,t], C[t,t−1], …]`, one per step.
    pub fn banded(rows: Vec<Vec<f64>>) -> Result<Strategy> {
        for (t, row) in rows.iter().enumerate() {
            series::check(row, &format!("row {t}, coefficient"))?;
            if row.len() > t + 1 {
                return Err(Error::parameter(
                    format!("length of row {t}"),
                    row.len(),
                    format!("at most {}", t + 1),
                ));
            }
        }
        crate::error::check_steps(rows.len())?;
        Ok(Strategy::Banded(rows))
    }
}

/// `x_t = (e_t − Σ C[t,t−a] x_{t−a}) / C[t,t]`, from as many rows before as there are bands: the inverse is never held as a whole.
pub(crate) fn for_each_noising_row(
    factorization: &Factorization,
    rows: &[Vec<f64>],
    mut visit: impl FnMut(usize, usize, &[f64]),
) -> Result<()> {
    let bands = factorization.num_bands();
    factorization.check_size("rows of the inverse", (2 * WORK / bands).isqrt(), "n²·bands/2")?;
    for segment in factorization.segments() {
        let mut past: VecDeque<Vec<f64>> = VecDeque::with_capacity(bands);
        for t in segment.clone() {
            let own = t - segment.start;
            let coefs = &rows[own];
            let mut out = vec![0.0; own + 1];
            for (weight, past) in coefs[1..].iter().zip(&past) {
                out.iter_mut().zip(past).for_each(|(out, value)| *out -= weight * value);
            }
            out[own] += 1.0;
            out.iter_mut().for_each(|value| *value /= coefs[0]);
            let divisor = factorization.divisor(t);
            let scaled: Vec<f64> = out.iter().map(|value| divisor * value).collect();
            visit(t, segment.start, &scaled);
            past.push_front(out);
            past.truncate(bands - 1);
        }
    }
    Ok(())
}

/// Columns of `C` from the diagonal down to the last entry within the bands.
pub(crate) fn columns(factorization: &Factorization, rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let n = factorization.num_steps();
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); n];
    for t in 0..n {
        let start = factorization.segment(t).start;
        for (age, value) in rows[t - start].iter().enumerate() {
            let column = &mut columns[t - age];
            column.resize(age, 0.0);
            column.push(value / factorization.divisor(t - age));
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_too_long_are_named() {
        let error = Strategy::banded(vec![vec![1.0, 2.0]]).unwrap_err().to_string();
        assert!(error.contains("length of row 0 is 2"), "{error}");
    }
}
