//! Eigenvalues and eigenvectors of a symmetric matrix: reflections make it tridiagonal, `tridiagonal` decomposes that, and the
//! reflections are applied to its vectors.

use crate::matrix::{Matrix, View};
use crate::product::{Part, add_product};
use crate::reflect::{apply, reflection};
use crate::tridiagonal;
use crate::vector::{add_columns, dot, dot_columns, symmetric_times};

/// Columns that are reduced before the rest of the matrix hears of them.
const PANEL: usize = 32;
/// Reflections that are applied together.
const TOGETHER: usize = 64;

/// The eigendecomposition of a symmetric matrix.
#[derive(Clone, Debug)]
pub struct Eigen {
    /// The eigenvalues, in ascending order.
    pub values: Vec<f64>,
    /// The eigenvectors, one per column, in the order of the values.
    pub vectors: Matrix,
}

impl Eigen {
    /// Decomposes a symmetric matrix, of which the lower triangle is read; `None` if it is not finite.
    pub fn new(mut matrix: Matrix) -> Option<Eigen> {
        let n = matrix.num_rows();
        assert_eq!(n, matrix.num_columns());
        let lower = || (0..n).flat_map(|s| matrix.column(s)[s..].iter());
        let largest = lower().fold(0.0_f64, |largest, entry| largest.max(entry.abs()));
        if !lower().all(|entry| entry.is_finite()) {
            return None;
        }
        if largest == 0.0 {
            return Some(Eigen { values: vec![0.0; n], vectors: Matrix::identity(n) });
        }
        // Squares must neither overflow nor vanish.
        matrix.columns_mut().for_each(|column| column.iter_mut().for_each(|entry| *entry /= largest));
        let Reduced { mut diagonal, mut beside, weights } = reduce(&mut matrix);
        let mut vectors = tridiagonal::decompose(&mut diagonal, &mut beside)?;
        for start in (0..weights.len()).step_by(TOGETHER).rev() {
            let end = (start + TOGETHER).min(weights.len());
            // Reflection s leaves the first s + 1 rows as they are.
            let panel = Matrix::from_fn(n - start - 1, end - start, |t, s| match t.cmp(&s) {
                std::cmp::Ordering::Less => 0.0,
                std::cmp::Ordering::Equal => 1.0,
                std::cmp::Ordering::Greater => matrix[(start + 1 + t, start + s)],
            });
            apply(&panel, &weights[start..end], vectors.view_mut().block(start + 1..n, 0..n));
        }
        diagonal.iter_mut().for_each(|value| *value *= largest);
        Some(Eigen { values: diagonal, vectors })
    }
}

/// A tridiagonal matrix and the reflections that lead to it; their vectors are below the diagonal of what was reduced.
struct Reduced {
    diagonal: Vec<f64>,
    beside: Vec<f64>,
    weights: Vec<f64>,
}

/// Reflections from both sides make the matrix tridiagonal. A panel of them changes the rest of the matrix by `−VWᵀ − WVᵀ`, at once
/// when the panel is complete; until then a column is computed when its turn comes. Half of the work is in products of the matrix
/// with the vectors of the reflections, the other half in those updates.
fn reduce(matrix: &mut Matrix) -> Reduced {
    let n = matrix.num_rows();
    let (mut diagonal, mut beside, mut weights) = (vec![0.0; n], vec![0.0; n], vec![0.0; n - 1]);
    let mut sums = [0.0; PANEL];
    for start in (0..n).step_by(PANEL) {
        let end = (start + PANEL).min(n);
        let rows = n - start;
        // The columns of V, those of W, and V again, so that [V W] and [W V] both are runs of columns. Rows from `start` on.
        let mut panel = vec![0.0; 3 * PANEL * rows];
        let (vs, ws) = panel.split_at_mut(PANEL * rows);
        for s in start..end {
            let done = s - start;
            let column = &mut matrix.column_mut(s)[s..];
            for (left, right) in [(&*vs, &*ws), (&*ws, &*vs)] {
                (0..done).for_each(|r| sums[r] = -right[r * rows + done]);
                add_columns(&left[done..], rows, &sums[..done], column);
            }
            diagonal[s] = column[0];
            if s + 1 == n {
                break;
            }
            let (image, weight) = reflection(&mut column[1..]);
            (beside[s], weights[s]) = (image, weight);
            vs[done * rows..][done + 1..rows].copy_from_slice(&column[1..]);
            let v = &vs[done * rows..][done + 1..rows];
            let (before, w) = ws.split_at_mut(done * rows);
            let w = &mut w[done + 1..rows];
            symmetric_times(matrix.from(s + 1, s + 1), n, v, w);
            if done > 0 {
                for (left, right) in [(&*vs, &*before), (&*before, &*vs)] {
                    dot_columns(&right[done + 1..], rows, v, &mut sums[..done]);
                    sums[..done].iter_mut().for_each(|sum| *sum = -*sum);
                    add_columns(&left[done + 1..], rows, &sums[..done], w);
                }
            }
            let shift = -0.5 * weight * weight * dot(v, w);
            w.iter_mut().zip(v).for_each(|(w, v)| *w = weight * *w + shift * v);
        }
        if end < n {
            panel.copy_within(..PANEL * rows, 2 * PANEL * rows);
            let columns = |first: usize| View {
                entries: &panel[first * rows + end - start..],
                rows: n - end,
                columns: 2 * PANEL,
                row_stride: 1,
                column_stride: rows,
            };
            let rest = &mut matrix.view_mut();
            let rest = rest.block(end..n, end..n);
            add_product(rest, -1.0, columns(0), columns(PANEL).transposed(), Part::Lower);
        }
    }
    Reduced { diagonal, beside, weights }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::product;

    /// The largest errors of `A·vectors = vectors·values` and of `vectorsᵀ·vectors = 1`, relative to the largest eigenvalue.
    fn errors(matrix: &Matrix, found: &Eigen) -> (f64, f64) {
        let n = matrix.num_rows();
        let largest = found.values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        let image = product(matrix.view(), found.vectors.view());
        let overlaps = product(found.vectors.transposed(), found.vectors.view());
        let (mut residual, mut overlap) = (0.0_f64, 0.0_f64);
        for s in 0..n {
            for t in 0..n {
                let expected = found.values[s] * found.vectors[(t, s)];
                residual = residual.max((image[(t, s)] - expected).abs() / largest.max(f64::MIN_POSITIVE));
                overlap = overlap.max((overlaps[(t, s)] - if s == t { 1.0 } else { 0.0 }).abs());
            }
        }
        (residual, overlap)
    }

    fn check(name: &str, matrix: Matrix) -> Eigen {
        let found = Eigen::new(matrix.clone()).unwrap();
        let (residual, overlap) = errors(&matrix, &found);
        let n = matrix.num_rows();
        assert!(residual < 1e-14 && overlap < 1e-13, "{name} {n}: {residual:e} {overlap:e}");
        assert!(found.values.is_sorted(), "{name} {n}");
        found
    }

    fn symmetric(n: usize, entry: impl Fn(usize, usize) -> f64) -> Matrix {
        Matrix::from_fn(n, n, |t, s| entry(t.max(s), t.min(s)))
    }

    #[test]
    fn vectors_are_orthonormal_and_their_images_are_multiples() {
        for n in [1, 2, 3, 5, 31, 32, 33, 64, 65, 100, 257, 400] {
            // A hash of the indices: nothing has structure.
            let noise =
                |t: usize, s: usize| (((t * 7919 + s * 104_729) as f64) * 0.618_033_988_75).fract() - 0.5;
            check("random", symmetric(n, noise));
            check("smallest index", symmetric(n, |_, s| (s + 1) as f64));
            check("graded", symmetric(n, |t, s| 0.5_f64.powi((t + s) as i32 / 2) * noise(t, s)));
            check("blocks", symmetric(n, |t, s| if t / 3 == s / 3 { 1.0 } else { 0.0 }));
            check("rank one", symmetric(n, |t, s| ((t + 1) * (s + 1)) as f64));
            check("large numbers", symmetric(n, |t, s| 1e200 * noise(t, s)));
            check("small numbers", symmetric(n, |t, s| 1e-200 * noise(t, s)));
            check(
                "Wilkinson's",
                symmetric(n, |t, s| match t - s {
                    0 => (n as f64 / 2.0 - t as f64).abs(),
                    1 => 1.0,
                    _ => 0.0,
                }),
            );
            check("diagonal", symmetric(n, |t, s| if t == s { (t % 5) as f64 - 2.0 } else { 0.0 }));
            check("nearly one", symmetric(n, |t, s| if t == s { 1.0 } else { 1e-14 * noise(t, s) }));
        }
    }

    #[test]
    fn eigenvalues_of_second_differences_are_squares_of_sines() {
        for n in [10, 100, 333] {
            let found = check(
                "differences",
                symmetric(n, |t, s| match t - s {
                    0 => 2.0,
                    1 => -1.0,
                    _ => 0.0,
                }),
            );
            for (k, value) in found.values.iter().enumerate() {
                let angle = (k + 1) as f64 * std::f64::consts::FRAC_PI_2 / (n + 1) as f64;
                assert!((value - 4.0 * angle.sin().powi(2)).abs() < 1e-14, "{n} {k}");
            }
        }
    }

    #[test]
    fn zero_is_decomposed_and_what_is_not_finite_is_not() {
        check("zero", Matrix::zeros(40, 40));
        for value in [f64::NAN, f64::INFINITY] {
            let mut matrix = Matrix::identity(40);
            matrix[(30, 20)] = value;
            assert!(Eigen::new(matrix).is_none());
        }
    }
}
