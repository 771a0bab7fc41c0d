//! Dense lower-triangular matrices, packed by rows.

use crate::error::{Error, Result, check_finite, check_steps};
use serde::{Deserialize, Serialize};

/// A lower-triangular matrix with a diagonal that is nowhere zero.
///
/// ```text
/// 0
/// 1 2
/// 3 4 5      entry (t, s) at t(t+1)/2 + s
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Vec<f64>>", into = "Vec<Vec<f64>>")]
pub struct LowerTriangular {
    n: usize,
    entries: Vec<f64>,
}

impl LowerTriangular {
    /// From full rows of length `n`; what lies above the diagonal must be zero.
    pub fn new(rows: &[Vec<f64>]) -> Result<LowerTriangular> {
        let n = rows.len();
        check_steps(n)?;
        let mut entries = Vec::with_capacity(n * (n + 1) / 2);
        for (t, row) in rows.iter().enumerate() {
            if row.len() != n {
                return Err(Error::parameter(format!("length of row {t}"), row.len(), format!("{n}")));
            }
            if let Some(s) = (t + 1..n).find(|&s| row[s] != 0.0) {
                let name = format!("entry ({t}, {s})");
                return Err(Error::parameter(name, row[s], "0: the matrix is lower triangular"));
            }
            for (s, value) in row[..=t].iter().enumerate() {
                entries.push(check_finite(&format!("entry ({t}, {s})"), *value)?);
            }
            if row[t] == 0.0 {
                return Err(Error::parameter(format!("diagonal entry {t}"), 0, "not 0"));
            }
        }
        Ok(LowerTriangular { n, entries })
    }

    /// From a function of (row, column), for columns up to the row.
    pub(crate) fn from_fn(n: usize, mut entry: impl FnMut(usize, usize) -> f64) -> LowerTriangular {
        let mut entries = Vec::with_capacity(n * (n + 1) / 2);
        for t in 0..n {
            entries.extend((0..=t).map(|s| entry(t, s)));
        }
        LowerTriangular { n, entries }
    }

    /// From rows that end at the diagonal.
    pub(crate) fn from_rows(rows: impl IntoIterator<Item = Vec<f64>>) -> LowerTriangular {
        let (mut n, mut entries) = (0, Vec::new());
        for row in rows {
            debug_assert_eq!(row.len(), n + 1);
            entries.extend(row);
            n += 1;
        }
        LowerTriangular { n, entries }
    }

    /// Number of rows and columns.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Never: a matrix has at least one row.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Row `t` up to its diagonal.
    pub fn row(&self, t: usize) -> &[f64] {
        &self.entries[t * (t + 1) / 2..(t + 1) * (t + 2) / 2]
    }

    /// Entry (t, s); zero above the diagonal.
    pub fn get(&self, t: usize, s: usize) -> f64 {
        if s <= t { self.row(t)[s] } else { 0.0 }
    }

    /// The product with another matrix of the same size.
    pub fn multiply(&self, right: &LowerTriangular) -> LowerTriangular {
        LowerTriangular::from_rows((0..self.n).map(|t| {
            let mut out = vec![0.0; t + 1];
            for (weight, row) in self.row(t).iter().zip((0..).map(|s| right.row(s))) {
                out.iter_mut().zip(row).for_each(|(out, value)| *out += weight * value);
            }
            out
        }))
    }

    /// The inverse, row by row: `x_t = (e_t − Σ_{s<t} C[t,s] x_s) / C[t,t]`.
    pub fn inverse(&self) -> LowerTriangular {
        let mut entries: Vec<f64> = Vec::with_capacity(self.entries.len());
        for t in 0..self.n {
            let row = self.row(t);
            let mut out = vec![0.0; t + 1];
            for (s, weight) in row[..t].iter().enumerate().filter(|(_, weight)| **weight != 0.0) {
                let past = &entries[s * (s + 1) / 2..(s + 1) * (s + 2) / 2];
                out.iter_mut().zip(past).for_each(|(out, value)| *out -= weight * value);
            }
            out[t] += 1.0;
            entries.extend(out.iter().map(|value| value / row[t]));
        }
        LowerTriangular { n: self.n, entries }
    }
}

/// Written as rows that end at the diagonal.
impl From<LowerTriangular> for Vec<Vec<f64>> {
    fn from(matrix: LowerTriangular) -> Self {
        (0..matrix.n).map(|t| matrix.row(t).to_vec()).collect()
    }
}

impl TryFrom<Vec<Vec<f64>>> for LowerTriangular {
    type Error = Error;
    fn try_from(mut rows: Vec<Vec<f64>>) -> Result<LowerTriangular> {
        let n = rows.len();
        for (t, row) in rows.iter_mut().enumerate() {
            if row.len() != t + 1 {
                return Err(Error::parameter(format!("length of row {t}"), row.len(), format!("{}", t + 1)));
            }
            row.resize(n, 0.0);
        }
        LowerTriangular::new(&rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inverse_inverts_and_bad_matrices_are_named() {
        let matrix = LowerTriangular::from_fn(9, |t, s| {
            1.0 + (t * 3 + s * 5) as f64 % 7.0 + f64::from(u8::from(t == s))
        });
        let product = matrix.multiply(&matrix.inverse());
        for t in 0..9 {
            for s in 0..9 {
                assert!((product.get(t, s) - f64::from(u8::from(t == s))).abs() < 1e-9);
            }
        }
        let refuse = |rows: &[Vec<f64>]| LowerTriangular::new(rows).unwrap_err().to_string();
        assert!(refuse(&[]).contains("number of steps is 0"));
        assert!(refuse(&[vec![1.0, 2.0], vec![1.0, 1.0]]).contains("entry (0, 1) is 2: expected 0"));
        assert!(refuse(&[vec![1.0, 0.0], vec![1.0, 0.0]]).contains("diagonal entry 1 is 0"));
        assert!(refuse(&[vec![f64::NAN]]).contains("entry (0, 0) is NaN"));
        assert!(refuse(&[vec![1.0, 0.0], vec![1.0]]).contains("length of row 1 is 1"));
    }
}
