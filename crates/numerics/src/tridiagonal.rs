//! Eigenvalues and eigenvectors of a symmetric tridiagonal matrix, by divide and conquer (Cuppen; Gu and Eisenstat).
//!
//! Without one entry beside the diagonal the matrix falls into two halves, whose decompositions are known; that entry is a matrix of
//! rank one. Eigenvalues that it does not move are set aside (deflation), the others are roots of a secular equation, and one product
//! of matrices gives the vectors. These are computed for weights that have exactly the roots found: they are orthogonal to the last
//! digits, however close the roots are.

use crate::matrix::{Matrix, ViewMut};
use crate::product::{Part, add_product};
use crate::rotations::eigenvalues;
use crate::secular::{Root, root};
use std::f64::consts::FRAC_1_SQRT_2;

/// The largest number of rows for which rotations take the place of splitting.
const FEW: usize = 24;

/// Overwrites the diagonal by the eigenvalues, in ascending order, and returns the vectors as columns. `beside` has as many entries as
/// the diagonal, of which the last is not used. The largest entry is about 1.
pub(crate) fn decompose(diagonal: &mut [f64], beside: &mut [f64]) -> Option<Matrix> {
    let n = diagonal.len();
    let mut vectors = Matrix::zeros(n, n);
    conquer(diagonal, beside, vectors.view_mut())?;
    let order = ascending(diagonal);
    let values: Vec<f64> = order.iter().map(|s| diagonal[*s]).collect();
    diagonal.copy_from_slice(&values);
    let mut sorted = Matrix::zeros(n, n);
    sorted.columns_mut().zip(&order).for_each(|(out, s)| out.copy_from_slice(vectors.column(*s)));
    values.iter().all(|value| value.is_finite()).then_some(sorted)
}

fn ascending(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|s, r| values[*s].total_cmp(&values[*r]));
    order
}

/// Eigenvalues in no order, and their vectors instead of zeros.
fn conquer(diagonal: &mut [f64], beside: &mut [f64], mut vectors: ViewMut<'_>) -> Option<()> {
    let n = diagonal.len();
    if n <= FEW {
        (0..n).for_each(|t| vectors.column_mut(t)[t] = 1.0);
        return eigenvalues(diagonal, beside, |s, cos, sin| {
            let (left, right) = vectors.two_columns(s, s + 1);
            for (left, right) in left.iter_mut().zip(right) {
                (*left, *right) = (cos * *left - sin * *right, sin * *left + cos * *right);
            }
        });
    }
    let half = n / 2;
    let coupling = beside[half - 1];
    diagonal[half - 1] -= coupling.abs();
    diagonal[half] -= coupling.abs();
    conquer(&mut diagonal[..half], &mut beside[..half], vectors.block(0..half, 0..half))?;
    conquer(&mut diagonal[half..], &mut beside[half..], vectors.block(half..n, half..n))?;
    merge(diagonal, vectors, half, coupling);
    Some(())
}

/// Which rows of a vector are other than zero.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Support {
    Top,
    Both,
    Bottom,
}

/// From the eigenvalues and vectors of two halves to those of the whole: adds `|coupling| u uᵀ`, where `u` is 1 in the last row of the
/// upper half and ±1 in the first row of the lower half.
fn merge(values: &mut [f64], mut vectors: ViewMut<'_>, half: usize, coupling: f64) {
    let n = values.len();
    let rho = 2.0 * coupling.abs();
    let lower_weight = FRAC_1_SQRT_2.copysign(coupling);
    let mut weights: Vec<f64> = (0..n)
        .map(|s| match s < half {
            true => FRAC_1_SQRT_2 * vectors.get(half - 1, s),
            false => lower_weight * vectors.get(half, s),
        })
        .collect();
    let mut supports: Vec<Support> =
        (0..n).map(|s| if s < half { Support::Top } else { Support::Bottom }).collect();
    let (mut kept, deflated) = deflate(values, &mut weights, &mut supports, &mut vectors, rho);
    if kept.is_empty() {
        return;
    }
    let poles: Vec<f64> = kept.iter().map(|s| values[*s]).collect();
    let own: Vec<f64> = kept.iter().map(|s| weights[*s]).collect();
    let (roots, mut eigen) = rank_one(&poles, &own, rho);

    // Rows in the order of their supports: what is zero is left out of the products.
    let mut order: Vec<usize> = Vec::with_capacity(kept.len());
    let mut ends = [0; 3];
    for (end, support) in ends.iter_mut().zip([Support::Top, Support::Both, Support::Bottom]) {
        order.extend((0..kept.len()).filter(|i| supports[kept[*i]] == support));
        *end = order.len();
    }
    let mut scratch = vec![0.0; kept.len()];
    for column in eigen.columns_mut() {
        scratch.iter_mut().zip(&order).for_each(|(out, i)| *out = column[*i]);
        column.copy_from_slice(&scratch);
    }
    kept = order.iter().map(|i| kept[*i]).collect();
    let gather = |rows: std::ops::Range<usize>, columns: &[usize]| {
        let mut out = Matrix::zeros(rows.len(), columns.len());
        out.columns_mut()
            .zip(columns)
            .for_each(|(out, s)| out.copy_from_slice(&vectors.column(*s)[rows.clone()]));
        out
    };
    let [top, both, count] = ends;
    let upper = gather(0..half, &kept[..both]);
    let lower = gather(half..n, &kept[top..]);
    let rest = gather(0..n, &deflated);
    let rest_values: Vec<f64> = deflated.iter().map(|s| values[*s]).collect();

    for s in 0..count {
        values[s] = poles[roots[s].pole] + roots[s].distance;
        vectors.column_mut(s).fill(0.0);
    }
    let eigen = eigen.view();
    add_product(
        vectors.block(0..half, 0..count),
        1.0,
        upper.view(),
        eigen.block(0..both, 0..count),
        Part::All,
    );
    add_product(
        vectors.block(half..n, 0..count),
        1.0,
        lower.view(),
        eigen.block(top..count, 0..count),
        Part::All,
    );
    values[count..].copy_from_slice(&rest_values);
    (count..n).zip(rest.columns()).for_each(|(s, column)| vectors.column_mut(s).copy_from_slice(column));
}

/// Sets aside what the rank-one matrix does not move: columns of negligible weight, and one of two whose values are so close that a
/// rotation gives all the weight to the other. Returns what is left, with ascending values, and what was set aside.
fn deflate(
    values: &mut [f64],
    weights: &mut [f64],
    supports: &mut [Support],
    vectors: &mut ViewMut<'_>,
    rho: f64,
) -> (Vec<usize>, Vec<usize>) {
    let largest = |list: &[f64]| list.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let tolerance = 8.0 * f64::EPSILON * largest(values).max(largest(weights));
    let (mut kept, mut deflated) = (Vec::new(), Vec::new());
    let mut last: Option<usize> = None;
    for s in ascending(values) {
        if rho * weights[s].abs() <= tolerance {
            deflated.push(s);
            continue;
        }
        if let Some(r) = last {
            let length = weights[r].hypot(weights[s]);
            let (cos, sin) = (weights[s] / length, -weights[r] / length);
            if ((values[s] - values[r]) * cos * sin).abs() <= tolerance {
                (weights[r], weights[s]) = (0.0, length);
                if supports[r] != supports[s] {
                    supports[s] = Support::Both;
                }
                let (left, right) = vectors.two_columns(r.min(s), r.max(s));
                // The rotation turns the earlier value's column by (cos, sin), whichever side it is on.
                let sin_left = if r < s { sin } else { -sin };
                for (left, right) in left.iter_mut().zip(right) {
                    (*left, *right) = (cos * *left + sin_left * *right, cos * *right - sin_left * *left);
                }
                let (low, high) = (values[r], values[s]);
                values[r] = low * cos * cos + high * sin * sin;
                values[s] = low * sin * sin + high * cos * cos;
                deflated.push(r);
            } else {
                kept.push(r);
            }
        }
        last = Some(s);
    }
    kept.extend(last);
    (kept, deflated)
}

/// The roots of the secular equation, and the eigenvectors of `D + ρzzᵀ`.
fn rank_one(poles: &[f64], weights: &[f64], rho: f64) -> (Vec<Root>, Matrix) {
    let n = poles.len();
    let mut moved = vec![0.0; n];
    let roots: Vec<Root> = (0..n).map(|j| root(j, poles, weights, rho, &mut moved)).collect();
    // Distances of poles from roots, whose digits the roots' own distances keep.
    let mut eigen = Matrix::zeros(n, n);
    for (column, root) in eigen.columns_mut().zip(&roots) {
        let origin = poles[root.pole];
        column.iter_mut().zip(poles).for_each(|(out, pole)| *out = (pole - origin) - root.distance);
    }
    // The weights whose roots are exactly these (Löwner's formula).
    let mut products: Vec<f64> = (0..n).map(|i| -eigen[(i, i)]).collect();
    for (j, column) in eigen.columns().enumerate() {
        let factor = |i: usize| column[i] / (poles[i] - poles[j]);
        (0..j).chain(j + 1..n).for_each(|i| products[i] *= factor(i));
    }
    let exact: Vec<f64> =
        products.iter().zip(weights).map(|(product, weight)| product.sqrt().copysign(*weight)).collect();
    for column in eigen.columns_mut() {
        column.iter_mut().zip(&exact).for_each(|(out, weight)| *out = weight / *out);
        let norm = crate::vector::dot(column, column).sqrt();
        column.iter_mut().for_each(|out| *out /= norm);
    }
    (roots, eigen)
}
