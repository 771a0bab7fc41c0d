//! The Cholesky factorisation and division by its triangles, by halves: almost all of the work is in products.

use crate::matrix::{Matrix, View, ViewMut};
use crate::product::{Part, add_product};
use crate::vector::add_columns;

/// Columns that are worked on one by one.
const FEW: usize = 16;

/// The lower-triangular `L` of `M = LLᵀ`.
#[derive(Clone, Debug)]
pub struct Cholesky {
    lower: Matrix,
}

impl Cholesky {
    /// Factors a symmetric matrix, of which the lower triangle is read; `None` if it is not positive definite.
    pub fn new(mut matrix: Matrix) -> Option<Cholesky> {
        assert_eq!(matrix.num_rows(), matrix.num_columns());
        factor(matrix.view_mut()).then_some(Cholesky { lower: matrix })
    }

    /// An entry of `L`; zero above the diagonal.
    pub fn get(&self, t: usize, s: usize) -> f64 {
        if s <= t { self.lower[(t, s)] } else { 0.0 }
    }

    /// Solves for the product `matrix · M⁻¹`.
    pub fn divide(&self, mut matrix: Matrix) -> Matrix {
        assert_eq!(matrix.num_columns(), self.lower.num_rows());
        divide_by_transpose(self.lower.view(), matrix.view_mut());
        divide_by_lower(self.lower.view(), matrix.view_mut());
        matrix
    }
}

/// Overwrites the lower triangle by its factor, as far as that is positive definite.
fn factor(mut matrix: ViewMut<'_>) -> bool {
    let n = matrix.rows;
    if n <= FEW {
        return factor_few(matrix);
    }
    let half = (n / 2).next_multiple_of(FEW);
    let (mut left, mut right) = matrix.split(half);
    if !factor(left.block(0..half, 0..half)) {
        return false;
    }
    // The triangle and what is divided by it share their columns.
    let above = left.as_view();
    let triangle = Matrix::from_fn(half, half, |t, s| above.get(t, s));
    divide_by_transpose(triangle.view(), left.block(half..n, 0..half));
    let below = left.as_view().block(half..n, 0..half);
    add_product(right.block(half..n, 0..n - half), -1.0, below, below.transposed(), Part::Lower);
    factor(right.block(half..n, 0..n - half))
}

fn factor_few(mut matrix: ViewMut<'_>) -> bool {
    for s in 0..matrix.columns {
        let weights: [f64; FEW] = std::array::from_fn(|r| if r < s { -matrix.get(s, r) } else { 0.0 });
        let (done, mut rest) = matrix.split(s);
        let column = &mut rest.column_mut(0)[s..];
        if s > 0 {
            add_columns(&done.entries[s..], done.stride, &weights[..s], column);
        }
        let pivot = column[0].sqrt();
        // Not a number either.
        if !(pivot > 0.0 && pivot.is_finite()) {
            return false;
        }
        column.iter_mut().for_each(|entry| *entry /= pivot);
    }
    true
}

/// Solves in place: `matrix ← matrix · L⁻ᵀ`.
fn divide_by_transpose(lower: View<'_>, mut matrix: ViewMut<'_>) {
    let n = lower.rows;
    if n > FEW {
        let half = (n / 2).next_multiple_of(FEW);
        let (mut left, mut right) = matrix.split(half);
        divide_by_transpose(lower.block(0..half, 0..half), left.block(0..left.rows, 0..half));
        let below = lower.block(half..n, 0..half);
        let rest = right.block(0..right.rows, 0..n - half);
        add_product(rest, -1.0, left.as_view(), below.transposed(), Part::All);
        return divide_by_transpose(lower.block(half..n, half..n), right);
    }
    for s in 0..n {
        let weights: [f64; FEW] = std::array::from_fn(|r| if r < s { -lower.get(s, r) } else { 0.0 });
        let (done, mut rest) = matrix.split(s);
        let column = rest.column_mut(0);
        add_columns(done.entries, done.stride, &weights[..s], column);
        let inverse = 1.0 / lower.get(s, s);
        column.iter_mut().for_each(|entry| *entry *= inverse);
    }
}

/// Solves in place: `matrix ← matrix · L⁻¹`.
fn divide_by_lower(lower: View<'_>, mut matrix: ViewMut<'_>) {
    let n = lower.rows;
    if n > FEW {
        let half = (n / 2).next_multiple_of(FEW);
        let (mut left, mut right) = matrix.split(half);
        divide_by_lower(lower.block(half..n, half..n), right.block(0..right.rows, 0..n - half));
        let below = lower.block(half..n, 0..half);
        let rest = left.block(0..left.rows, 0..half);
        add_product(rest, -1.0, right.as_view(), below, Part::All);
        return divide_by_lower(lower.block(0..half, 0..half), left);
    }
    for s in (0..n).rev() {
        let count = n - 1 - s;
        let weights: [f64; FEW] =
            std::array::from_fn(|r| if r < count { -lower.get(s + 1 + r, s) } else { 0.0 });
        let (mut rest, done) = matrix.split(s + 1);
        let column = rest.column_mut(s);
        add_columns(done.entries, done.stride, &weights[..count], column);
        let inverse = 1.0 / lower.get(s, s);
        column.iter_mut().for_each(|entry| *entry *= inverse);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::product;

    /// Positive definite, with eigenvalues between about 1e-3 and n.
    fn matrix(n: usize) -> Matrix {
        Matrix::from_fn(n, n, |t, s| {
            (-0.1 * t.abs_diff(s) as f64).exp() + if t == s { 1e-3 * t as f64 } else { 0.0 }
        })
    }

    #[test]
    fn a_factor_times_its_transpose_is_the_matrix() {
        for n in [1, 2, 16, 17, 50, 129, 300] {
            let matrix = matrix(n);
            let found = Cholesky::new(matrix.clone()).unwrap();
            let lower = Matrix::from_fn(n, n, |t, s| found.get(t, s));
            let product = product(lower.view(), lower.transposed());
            for s in 0..n {
                for t in 0..n {
                    assert!((product[(t, s)] - matrix[(t, s)]).abs() < 1e-13, "{n} {t} {s}");
                }
            }
        }
    }

    #[test]
    fn what_is_divided_and_multiplied_is_unchanged() {
        for (rows, n) in [(1, 1), (3, 16), (40, 41), (100, 130), (7, 300)] {
            let (matrix, start) =
                (matrix(n), Matrix::from_fn(rows, n, |t, s| (t as f64 - 0.3 * s as f64).sin()));
            let quotient = Cholesky::new(matrix.clone()).unwrap().divide(start.clone());
            let back = product(quotient.view(), matrix.view());
            for s in 0..n {
                for t in 0..rows {
                    assert!((back[(t, s)] - start[(t, s)]).abs() < 1e-10, "{rows} {n} {t} {s}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_positive_definite_has_no_factor() {
        for n in [1, 20, 100] {
            for value in [-1.0, 0.0, f64::NAN, f64::INFINITY] {
                let mut matrix = matrix(n);
                matrix[(n - 1, n - 1)] = value;
                assert!(Cholesky::new(matrix).is_none(), "{n} {value}");
            }
        }
        // Singular, but for rounding.
        assert!(Cholesky::new(Matrix::from_fn(3, 3, |_, _| 1.0)).is_none());
    }
}
