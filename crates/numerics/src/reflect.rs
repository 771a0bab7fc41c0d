//! Householder reflections: `I − weight · v vᵀ`, where `v` starts with 1.

use crate::matrix::{Matrix, ViewMut};
use crate::product::{Part, add_product, gram, product};
use crate::vector::{add_columns, dot};

/// Squares below this are of entries that do not matter beside a largest one of about 1.
const NEGLIGIBLE: f64 = 1e-290;

/// Turns a vector into that of the reflection that maps it to a multiple of the first axis. Returns that multiple and the reflection's
/// weight.
pub(crate) fn reflection(vector: &mut [f64]) -> (f64, f64) {
    let first = vector[0];
    let rest = dot(&vector[1..], &vector[1..]);
    vector[0] = 1.0;
    if rest < NEGLIGIBLE {
        vector[1..].fill(0.0);
        return (first, 0.0);
    }
    let image = -first.signum() * (first * first + rest).sqrt();
    let scale = 1.0 / (first - image);
    vector[1..].iter_mut().for_each(|entry| *entry *= scale);
    (image, (image - first) / image)
}

/// `matrix ← H_0 H_1 ⋯ matrix` for reflections whose vectors are the columns of `vectors`: the product of reflections is
/// `I − V T Vᵀ` with an upper-triangular `T` (Schreiber and Van Loan).
pub(crate) fn apply(vectors: &Matrix, weights: &[f64], mut matrix: ViewMut<'_>) {
    let count = weights.len();
    let overlaps = gram(vectors.view());
    let mut triangle = Matrix::zeros(count, count);
    for (s, weight) in weights.iter().enumerate() {
        let factors: Vec<f64> = overlaps.column(s)[..s].iter().map(|overlap| -weight * overlap).collect();
        let mut triangle = triangle.view_mut();
        let (done, mut rest) = triangle.split(s);
        add_columns(done.entries, count, &factors, &mut rest.column_mut(0)[..s]);
        rest.column_mut(0)[s] = *weight;
    }
    let inner = product(vectors.transposed(), matrix.as_view());
    let inner = product(triangle.view(), inner.view());
    let (rows, columns) = (matrix.rows, matrix.columns);
    add_product(matrix.block(0..rows, 0..columns), -1.0, vectors.view(), inner.view(), Part::All);
}
