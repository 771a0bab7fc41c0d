//! Products of matrices, blocked for the caches: panels of both factors are copied into the order in which the kernel reads them.

use crate::kernel::{Kernel, Number};
use crate::matrix::{Matrix, View, ViewMut};

/// Products that are added up in one visit of a tile: a panel of the right factor stays in the first cache.
const DEPTH: usize = 256;
/// Rows of the left factor that are copied at a time: with `DEPTH` columns they fill half of the second cache. Divisible by the rows of
/// every kernel's tile.
const ROWS: usize = 192;
/// Columns of the right factor that are copied at a time. Divisible by the columns of every kernel's tile.
const COLUMNS: usize = 1008;

/// Which entries of the result are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Every entry is computed.
    All,
    /// Entries above the diagonal are left unspecified.
    Lower,
}

/// The product of two matrices.
pub fn product<T: Number>(left: View<'_, T>, right: View<'_, T>) -> Matrix<T> {
    let mut out = Matrix::zeros(left.rows, right.columns);
    add_product(out.view_mut(), T::ONE, left, right, Part::All);
    out
}

/// Overwrites a matrix by the product of two others.
pub fn product_into<T: Number>(out: &mut Matrix<T>, left: View<'_, T>, right: View<'_, T>) {
    out.columns_mut().for_each(|column| column.fill(T::default()));
    add_product(out.view_mut(), T::ONE, left, right, Part::All);
}

/// `MᵀM`: half the work of a product, and symmetric to the last bit.
pub fn gram<T: Number>(matrix: View<'_, T>) -> Matrix<T> {
    let mut out = Matrix::zeros(matrix.columns, matrix.columns);
    add_product(out.view_mut(), T::ONE, matrix.transposed(), matrix, Part::Lower);
    for t in 0..out.num_rows() {
        for s in t + 1..out.num_columns() {
            out[(t, s)] = out[(s, t)];
        }
    }
    out
}

/// Adds a scaled product: `out += scale · left · right`.
pub(crate) fn add_product<T: Number>(
    out: ViewMut<'_, T>,
    scale: T,
    left: View<'_, T>,
    right: View<'_, T>,
    part: Part,
) {
    T::with_scratch(|scratch| add_product_with(T::kernel(), scratch, out, scale, left, right, part));
}

fn add_product_with<T: Number>(
    kernel: Kernel<T>,
    scratch: &mut Vec<T>,
    mut out: ViewMut<'_, T>,
    scale: T,
    left: View<'_, T>,
    right: View<'_, T>,
    part: Part,
) {
    assert!(left.columns == right.rows && out.rows == left.rows && out.columns == right.columns);
    let padded = |size: usize, most: usize, tile: usize| size.min(most).next_multiple_of(tile);
    let depth = left.columns.min(DEPTH);
    let left_size = padded(out.rows, ROWS, kernel.rows) * depth;
    let right_size = padded(out.columns, COLUMNS, kernel.columns) * depth;
    if scratch.len() < left_size + right_size {
        scratch.resize(left_size + right_size, T::default());
    }
    let (packed_left, packed_right) = scratch.split_at_mut(left_size);
    for s in (0..out.columns).step_by(COLUMNS) {
        let columns = s..(s + COLUMNS).min(out.columns);
        for p in (0..left.columns).step_by(DEPTH) {
            let run = p..(p + DEPTH).min(left.columns);
            pack(right.block(run.clone(), columns.clone()).transposed(), kernel.columns, packed_right);
            for t in (0..out.rows).step_by(ROWS) {
                let rows = t..(t + ROWS).min(out.rows);
                if part == Part::Lower && rows.end <= columns.start {
                    continue;
                }
                pack(left.block(rows.clone(), run.clone()), kernel.rows, packed_left);
                // How far the block's diagonal lies below that of the result, or above.
                let lowest = match part {
                    Part::All => None,
                    Part::Lower => Some((rows.start, columns.start)),
                };
                let block = out.block(rows, columns.clone());
                add_packed(&kernel, block, scale, packed_left, packed_right, run.len(), lowest);
            }
        }
    }
}

/// Adds the product of packed panels to a block. With the block's place, tiles above the diagonal are left out.
fn add_packed<T: Number>(
    kernel: &Kernel<T>,
    out: ViewMut<'_, T>,
    scale: T,
    left: &[T],
    right: &[T],
    depth: usize,
    place: Option<(usize, usize)>,
) {
    let mut edge = vec![T::default(); kernel.rows * kernel.columns];
    for (s, right) in (0..out.columns).step_by(kernel.columns).zip(right.chunks(kernel.columns * depth)) {
        let columns = kernel.columns.min(out.columns - s);
        for (t, left) in (0..out.rows).step_by(kernel.rows).zip(left.chunks(kernel.rows * depth)) {
            if place.is_some_and(|(row, column)| row + t + kernel.rows <= column + s) {
                continue;
            }
            let rows = kernel.rows.min(out.rows - t);
            let whole = rows.next_multiple_of(kernel.lanes);
            let tile = &mut out.entries[s * out.stride + t..];
            if rows == whole && columns == kernel.columns {
                kernel.run(rows, left, right, scale, tile, out.stride);
                continue;
            }
            edge.fill(T::default());
            kernel.run(whole, left, right, scale, &mut edge, kernel.rows);
            for (out, edge) in tile.chunks_mut(out.stride).zip(edge.chunks(kernel.rows)).take(columns) {
                for (out, edge) in out[..rows].iter_mut().zip(edge) {
                    *out = edge.multiply_add(T::ONE, *out);
                }
            }
        }
    }
}

/// Copies panels of `tile` rows, column after column; what is missing to the last panel is zero.
fn pack<T: Number>(from: View<'_, T>, tile: usize, to: &mut [T]) {
    for (t, panel) in (0..from.rows).step_by(tile).zip(to.chunks_mut(tile * from.columns)) {
        let rows = tile.min(from.rows - t);
        if rows < tile {
            panel.fill(T::default());
        }
        if from.row_stride == 1 {
            for (p, panel) in panel.chunks_exact_mut(tile).enumerate() {
                panel[..rows].copy_from_slice(&from.entries[p * from.column_stride + t..][..rows]);
            }
        } else {
            for row in 0..rows {
                let entries = from.entries[(t + row) * from.row_stride..].iter().step_by(from.column_stride);
                panel[row..].iter_mut().step_by(tile).zip(entries).for_each(|(to, from)| *to = *from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::kernels;

    fn wave(rows: usize, columns: usize, phase: f64) -> Matrix {
        Matrix::from_fn(rows, columns, |t, s| (phase + 1.3 * t as f64 + 0.7 * (s * s) as f64).sin())
    }

    fn naive(left: View<'_>, right: View<'_>) -> Matrix {
        Matrix::from_fn(left.rows, right.columns, |t, s| {
            (0..left.columns).map(|p| left.get(t, p) * right.get(p, s)).sum()
        })
    }

    #[test]
    fn products_of_every_kernel_are_sums_of_products() {
        for kernel in kernels() {
            for (rows, depth, columns) in [(1, 1, 1), (5, 3, 7), (24, 300, 8), (49, 17, 33), (200, 259, 9)] {
                let (left, right) = (wave(rows, depth, 0.1), wave(depth, columns, 0.5));
                let (left_t, right_t) = (wave(depth, rows, 0.1), wave(columns, depth, 0.5));
                for left in [left.view(), left_t.transposed()] {
                    for right in [right.view(), right_t.transposed()] {
                        let start = wave(rows, columns, 0.9);
                        let mut out = start.clone();
                        add_product_with(
                            kernel,
                            &mut Vec::new(),
                            out.view_mut(),
                            -0.5,
                            left,
                            right,
                            Part::All,
                        );
                        let expected = naive(left, right);
                        for t in 0..rows {
                            for s in 0..columns {
                                let expected = start[(t, s)] - 0.5 * expected[(t, s)];
                                assert!((out[(t, s)] - expected).abs() < 1e-12, "{kernel:?} {t} {s}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_gram_matrix_is_the_product_with_the_transpose() {
        for (rows, columns) in [(3, 5), (40, 211), (300, 1100)] {
            let matrix = wave(rows, columns, 0.3);
            let (gram, product) = (gram(matrix.view()), product(matrix.transposed(), matrix.view()));
            assert_eq!(gram, product, "{rows} {columns}");
        }
    }

    #[test]
    fn blocks_of_columns_and_depth_add_up() {
        let (left, right) = (wave(3, 600, 0.2), wave(600, 1500, 0.4));
        let (found, expected) = (product(left.view(), right.view()), naive(left.view(), right.view()));
        for s in 0..1500 {
            for t in 0..3 {
                assert!((found[(t, s)] - expected[(t, s)]).abs() < 1e-11, "{t} {s}");
            }
        }
    }

    #[test]
    fn single_precision_is_computed_by_its_own_kernel() {
        let left = Matrix::from_fn(70, 20, |t, s| ((7 * t + s) % 13) as f32 - 6.0);
        let right = Matrix::from_fn(20, 31, |t, s| ((t + 5 * s) % 11) as f32 - 5.0);
        let found = product(left.view(), right.view());
        for t in 0..70 {
            for s in 0..31 {
                let expected: f32 = (0..20).map(|p| left[(t, p)] * right[(p, s)]).sum();
                assert_eq!(found[(t, s)], expected);
            }
        }
    }
}
