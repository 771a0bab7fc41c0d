//! Matrices in column-major order, and views of parts of them.

use std::ops::{Index, IndexMut, Range};

/// A dense matrix; the entries of a column are next to each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix<T = f64> {
    rows: usize,
    columns: usize,
    entries: Vec<T>,
}

impl<T: Copy + Default> Matrix<T> {
    /// A matrix of zeros.
    pub fn zeros(rows: usize, columns: usize) -> Matrix<T> {
        Matrix { rows, columns, entries: vec![T::default(); rows * columns] }
    }

    /// A matrix from a function of (row, column).
    pub fn from_fn(rows: usize, columns: usize, mut entry: impl FnMut(usize, usize) -> T) -> Matrix<T> {
        let mut entries = Vec::with_capacity(rows * columns);
        for s in 0..columns {
            entries.extend((0..rows).map(|t| entry(t, s)));
        }
        Matrix { rows, columns, entries }
    }

    /// The number of rows.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    pub fn num_columns(&self) -> usize {
        self.columns
    }

    /// One column as a slice.
    pub fn column(&self, s: usize) -> &[T] {
        &self.entries[s * self.rows..(s + 1) * self.rows]
    }

    /// One column as a mutable slice.
    pub fn column_mut(&mut self, s: usize) -> &mut [T] {
        &mut self.entries[s * self.rows..(s + 1) * self.rows]
    }

    /// All columns, from the first to the last.
    pub fn columns(&self) -> impl Iterator<Item = &[T]> {
        self.entries.chunks_exact(self.rows.max(1))
    }

    /// All columns as mutable slices, from the first to the last.
    pub fn columns_mut(&mut self) -> impl Iterator<Item = &mut [T]> {
        self.entries.chunks_exact_mut(self.rows.max(1))
    }

    /// The matrix itself, as an operand of a product.
    pub fn view(&self) -> View<'_, T> {
        View {
            entries: &self.entries,
            rows: self.rows,
            columns: self.columns,
            row_stride: 1,
            column_stride: self.rows,
        }
    }

    /// The transpose, as an operand of a product; nothing is copied.
    pub fn transposed(&self) -> View<'_, T> {
        self.view().transposed()
    }

    /// The entries from (t, s) on, those of the following columns included.
    pub(crate) fn from(&self, t: usize, s: usize) -> &[T] {
        &self.entries[s * self.rows + t..]
    }

    pub(crate) fn view_mut(&mut self) -> ViewMut<'_, T> {
        let (rows, columns) = (self.rows, self.columns);
        ViewMut { entries: &mut self.entries, rows, columns, stride: rows }
    }
}

impl Matrix<f64> {
    /// The identity matrix of this size.
    pub fn identity(n: usize) -> Matrix {
        let mut matrix = Matrix::zeros(n, n);
        (0..n).for_each(|t| matrix[(t, t)] = 1.0);
        matrix
    }
}

impl<T> Index<(usize, usize)> for Matrix<T> {
    type Output = T;

    fn index(&self, (t, s): (usize, usize)) -> &T {
        assert!(t < self.rows, "row {t} of {}", self.rows);
        &self.entries[s * self.rows + t]
    }
}

impl<T> IndexMut<(usize, usize)> for Matrix<T> {
    fn index_mut(&mut self, (t, s): (usize, usize)) -> &mut T {
        assert!(t < self.rows, "row {t} of {}", self.rows);
        &mut self.entries[s * self.rows + t]
    }
}

/// A rectangle of a matrix or of its transpose, to be read.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, T = f64> {
    /// The slice starts at the first entry and may be longer than the rectangle.
    pub(crate) entries: &'a [T],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) row_stride: usize,
    pub(crate) column_stride: usize,
}

impl<'a, T> View<'a, T> {
    /// The transpose of this view; nothing is copied.
    pub fn transposed(self) -> View<'a, T> {
        View {
            entries: self.entries,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }

    /// A rectangle of this view.
    pub(crate) fn block(self, rows: Range<usize>, columns: Range<usize>) -> View<'a, T> {
        assert!(rows.end <= self.rows && columns.end <= self.columns);
        let start = rows.start * self.row_stride + columns.start * self.column_stride;
        let entries = &self.entries[start.min(self.entries.len())..];
        View { entries, rows: rows.len(), columns: columns.len(), ..self }
    }
}

impl<T: Copy> View<'_, T> {
    pub(crate) fn get(&self, t: usize, s: usize) -> T {
        self.entries[t * self.row_stride + s * self.column_stride]
    }
}

/// A rectangle of a matrix, to be written; the entries of a column are next to each other.
#[derive(Debug)]
pub(crate) struct ViewMut<'a, T = f64> {
    /// The slice starts at the first entry and may be longer than the rectangle.
    pub(crate) entries: &'a mut [T],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// The distance from one column to the next.
    pub(crate) stride: usize,
}

impl<'a, T: Copy> ViewMut<'a, T> {
    pub(crate) fn block(&mut self, rows: Range<usize>, columns: Range<usize>) -> ViewMut<'_, T> {
        assert!(rows.end <= self.rows && columns.end <= self.columns);
        let start = (rows.start + columns.start * self.stride).min(self.entries.len());
        let entries = &mut self.entries[start..];
        ViewMut { entries, rows: rows.len(), columns: columns.len(), stride: self.stride }
    }

    /// The columns before `at`, and those from there on.
    pub(crate) fn split(&mut self, at: usize) -> (ViewMut<'_, T>, ViewMut<'_, T>) {
        let (left, right) = self.entries.split_at_mut((at * self.stride).min(self.entries.len()));
        let part = |entries, columns| ViewMut { entries, rows: self.rows, columns, stride: self.stride };
        let columns = self.columns;
        (part(left, at), part(right, columns - at))
    }

    pub(crate) fn as_view(&self) -> View<'_, T> {
        View {
            entries: self.entries,
            rows: self.rows,
            columns: self.columns,
            row_stride: 1,
            column_stride: self.stride,
        }
    }

    pub(crate) fn column(&self, s: usize) -> &[T] {
        &self.entries[s * self.stride..][..self.rows]
    }

    pub(crate) fn column_mut(&mut self, s: usize) -> &mut [T] {
        &mut self.entries[s * self.stride..][..self.rows]
    }

    /// Column `s` to read, and a later column `r` to write.
    pub(crate) fn two_columns(&mut self, s: usize, r: usize) -> (&mut [T], &mut [T]) {
        let (left, right) = self.entries.split_at_mut(r * self.stride);
        (&mut left[s * self.stride..][..self.rows], &mut right[..self.rows])
    }

    pub(crate) fn get(&self, t: usize, s: usize) -> T {
        self.entries[s * self.stride + t]
    }
}
