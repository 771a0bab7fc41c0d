//! Singular values: reflections from both sides make a square matrix bidiagonal, and that is, with its rows and columns interleaved, a
//! symmetric tridiagonal matrix without a diagonal, whose eigenvalues are the singular values and their negatives (Golub and Kahan).
//! Nothing is squared, so that small values keep as many digits as the matrix has.

use crate::matrix::{Matrix, View};
use crate::product::{Part, add_product};
use crate::reflect::reflection;
use crate::rotations::eigenvalues;
use crate::vector::{add_columns, dot_columns};

/// Columns and rows that are reduced before the rest of the matrix hears of them.
const PANEL: usize = 32;

/// The singular values of a square matrix, in descending order; `None` if it is not finite.
pub fn singular_values(mut matrix: Matrix) -> Option<Vec<f64>> {
    let n = matrix.num_rows();
    assert_eq!(n, matrix.num_columns());
    let largest = matrix.columns().flatten().fold(0.0_f64, |largest, entry| largest.max(entry.abs()));
    if !matrix.columns().flatten().all(|entry| entry.is_finite()) {
        return None;
    }
    if largest == 0.0 {
        return Some(vec![0.0; n]);
    }
    // Squares must neither overflow nor vanish.
    matrix.columns_mut().for_each(|column| column.iter_mut().for_each(|entry| *entry /= largest));
    let mut beside = reduce(&mut matrix);
    beside.push(0.0);
    let mut values = vec![0.0; 2 * n];
    eigenvalues(&mut values, &mut beside, |_, _, _| ())?;
    values.sort_by(|left, right| right.total_cmp(left));
    values.truncate(n);
    values.iter_mut().for_each(|value| *value = value.max(0.0) * largest);
    Some(values)
}

/// Columns that are next to each other, from a row on: a factor of a panel's update.
struct Panel {
    rows: usize,
    entries: Vec<f64>,
}

impl Panel {
    fn new(rows: usize) -> Panel {
        Panel { rows, entries: vec![0.0; rows * PANEL] }
    }

    /// Columns from a row on.
    fn from(&self, row: usize) -> &[f64] {
        &self.entries[row..]
    }

    /// The first `count` entries of a row, negated.
    fn negated_row(&self, row: usize, count: usize) -> Vec<f64> {
        (0..count).map(|s| -self.entries[s * self.rows + row]).collect()
    }

    fn column_mut(&mut self, s: usize) -> &mut [f64] {
        &mut self.entries[s * self.rows..(s + 1) * self.rows]
    }

    fn view(&self, row: usize) -> View<'_> {
        View {
            entries: &self.entries[row..],
            rows: self.rows - row,
            columns: PANEL,
            row_stride: 1,
            column_stride: self.rows,
        }
    }

    /// `out −= self · (otherᵀ vector)` with the first `count` columns of both, from a row on.
    fn subtract(&self, other: &Panel, rows: [usize; 2], count: usize, vector: &[f64], out: &mut [f64]) {
        if count == 0 {
            return;
        }
        let mut sums = vec![0.0; count];
        dot_columns(other.from(rows[1]), other.rows, vector, &mut sums);
        sums.iter_mut().for_each(|sum| *sum = -*sum);
        add_columns(self.from(rows[0]), self.rows, &sums, out);
    }
}

/// The diagonal and what lies right of it, in turns: d₀, e₀, d₁, …, of the bidiagonal matrix.
///
/// A panel of reflections `v` of columns and `u` of rows changes the rest of the matrix by `−VYᵀ − XUᵀ`, at once when the panel is
/// complete; until then a column and a row are computed when their turn comes.
fn reduce(matrix: &mut Matrix) -> Vec<f64> {
    let n = matrix.num_rows();
    let mut beside = Vec::with_capacity(2 * n);
    for start in (0..n).step_by(PANEL) {
        let end = (start + PANEL).min(n);
        let [mut v, mut u, mut x, mut y] = std::array::from_fn(|_| Panel::new(n - start));
        for s in start..end {
            let done = s - start;
            let column = &mut matrix.column_mut(s)[s..];
            add_columns(v.from(done), v.rows, &y.negated_row(done, done), column);
            add_columns(x.from(done), x.rows, &u.negated_row(done, done), column);
            let (image, weight) = reflection(column);
            beside.push(image);
            if s + 1 == n {
                break;
            }
            v.column_mut(done)[done..].copy_from_slice(&matrix.column(s)[s..]);
            let own = &matrix.column(s)[s..];
            let mut sums = vec![0.0; n - s - 1];
            dot_columns(matrix.from(s, s + 1), n, own, &mut sums);
            y.subtract(&v, [done + 1, done], done, own, &mut sums);
            u.subtract(&x, [done + 1, done], done, own, &mut sums);
            sums.iter_mut().for_each(|sum| *sum *= weight);
            y.column_mut(done)[done + 1..].copy_from_slice(&sums);

            let mut row: Vec<f64> = (s + 1..n).map(|r| matrix[(s, r)]).collect();
            add_columns(y.from(done + 1), y.rows, &v.negated_row(done, done + 1), &mut row);
            add_columns(u.from(done + 1), u.rows, &x.negated_row(done, done), &mut row);
            let (image, weight) = reflection(&mut row);
            beside.push(image);
            u.column_mut(done)[done + 1..].copy_from_slice(&row);
            let mut sums = vec![0.0; n - s - 1];
            add_columns(matrix.from(s + 1, s + 1), n, &row, &mut sums);
            v.subtract(&y, [done + 1; 2], done + 1, &row, &mut sums);
            x.subtract(&u, [done + 1; 2], done, &row, &mut sums);
            sums.iter_mut().for_each(|sum| *sum *= weight);
            x.column_mut(done)[done + 1..].copy_from_slice(&sums);
        }
        if end < n {
            let rows = end - start;
            for (left, right) in [(&v, &y), (&x, &u)] {
                let mut rest = matrix.view_mut();
                let rest = rest.block(end..n, end..n);
                add_product(rest, -1.0, left.view(rows), right.view(rows).transposed(), Part::All);
            }
        }
    }
    beside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Eigen;
    use crate::product::gram;

    #[test]
    fn singular_values_of_prefix_sums_are_cosecants() {
        for n in [1, 2, 7, 31, 32, 33, 100, 260] {
            let prefix = Matrix::from_fn(n, n, |t, s| if s <= t { 1.0 } else { 0.0 });
            for (k, value) in singular_values(prefix).unwrap().iter().enumerate() {
                let angle = (2 * k + 1) as f64 * std::f64::consts::FRAC_PI_2 / (2 * n + 1) as f64;
                let expected = 0.5 / angle.sin();
                assert!((value - expected).abs() < 1e-14 * n as f64, "{n} {k} {value} {expected}");
            }
        }
    }

    #[test]
    fn squares_are_eigenvalues_of_the_gram_matrix() {
        for n in [5, 40, 150] {
            let matrix = Matrix::from_fn(n, n, |t, s| (1.0 + 0.9 * t as f64 + 0.4 * (s * s) as f64).sin());
            let squares = Eigen::new(gram(matrix.view())).unwrap().values;
            let found = singular_values(matrix).unwrap();
            for (value, square) in found.iter().zip(squares.iter().rev()) {
                assert!((value * value - square).abs() < 1e-13 * found[0] * found[0], "{n}");
            }
        }
    }

    #[test]
    fn singular_matrices_have_zeros_and_what_is_not_finite_has_nothing() {
        let found = singular_values(Matrix::from_fn(50, 50, |t, s| ((t + 1) * (s + 2)) as f64)).unwrap();
        assert!(found[1..].iter().all(|value| *value < 1e-13 * found[0]), "{:?}", &found[..4]);
        assert_eq!(singular_values(Matrix::zeros(3, 3)).unwrap(), [0.0; 3]);
        assert!(singular_values(Matrix::from_fn(3, 3, |_, _| f64::NAN)).is_none());
    }
}
