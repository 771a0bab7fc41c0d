//! The BLT kernel: a few buffers per coordinate, each updated in place. Device twin: `kernels/blt.cu`.

use super::assignment::Piece;
use super::kernels::{Fold, Job, Simd, Span, Tile, add, spans};
use super::lanes::{Lanes, Stored};
use super::prefetch::Streams;
use crate::row::Row;
use std::ops::Range;

/// What a step does with the buffers: a row of normals, `(−αᵢ, λᵢ)` of every buffer, and whether all of them are zero before.
#[derive(Clone, Copy)]
pub(super) struct Step<const D: usize> {
    row: Row,
    pairs: [(f32, f32); D],
    fresh: bool,
}

impl<const D: usize> Step<D> {
    pub(super) fn new(row: Row, scale: &[f32], decay: &[f32], fresh: bool) -> Step<D> {
        Step { row, pairs: std::array::from_fn(|i| (-scale[i], decay[i])), fresh }
    }
}

/// Runs one BLT step on a piece: its noise is made and added to the gradient.
///
/// # Safety
/// The contract is that of [`super::kernels::run`], and `D` is the number of buffers.
#[inline(always)]
pub(super) unsafe fn run<E: Simd, G: Stored, const D: usize>(
    job: &Job<'_>,
    piece: Piece<'_, G>,
    step: Step<D>,
) {
    let mut z = Tile::new();
    let stride = piece.len;
    for span in spans(piece.first, stride) {
        let Span { tile, offset, at, len } = span;
        // SAFETY: offset + len ≤ 512, at + len ≤ stride, and buffer i is state[i·stride..][..stride]. The gradient has `stride` values,
        // and so has the staged row where there is something to fold.
        unsafe {
            let buffers = Buffers { first: piece.state.as_mut_ptr().add(at), stride };
            let gradient = piece.gradient.as_mut_ptr().add(at);
            let mut ahead = buffers.ahead::<D>((gradient.cast_const().cast(), len * size_of::<G>()), len);
            E::sample(job.cipher(step.row), step.row, tile, &mut z, &mut ahead);
            let z = z.as_mut_ptr().add(offset);
            let wide = len - len % E::Lanes::WIDTH;
            if step.fresh {
                // A restart has no use for what lies in the buffers.
                reset::<E::Lanes, D>(z, buffers, 0..wide);
                reset::<f32, D>(z, buffers, wide..len);
            } else {
                let staged = piece.staged.as_ptr().wrapping_add(at);
                catch_up::<E, D>(job.fold, &step, staged, buffers, len);
                update::<E::Lanes, D, true>(&step.pairs, z, buffers, 0..wide);
                update::<f32, D, true>(&step.pairs, z, buffers, wide..len);
            }
            add::<E::Lanes, G>(job, span, z, gradient);
        }
    }
}

/// Stages the noise of one BLT step, and leaves the buffers as they are before it.
///
/// # Safety
/// The contract is that of [`super::kernels::run`], and `D` is the number of buffers.
#[inline(always)]
pub(super) unsafe fn make<E: Simd, const D: usize>(
    job: &Job<'_>,
    first: u64,
    staged: &mut [f32],
    state: &mut [f32],
    step: Step<D>,
) {
    let mut z = Tile::new();
    let stride = staged.len();
    for Span { tile, offset, at, len } in spans(first, stride) {
        // SAFETY: as in `run`.
        unsafe {
            let buffers = Buffers { first: state.as_mut_ptr().add(at), stride };
            let staged = staged.as_mut_ptr().add(at);
            let mut ahead = buffers.ahead::<D>((staged.cast_const().cast(), len * size_of::<f32>()), len);
            E::sample(job.cipher(step.row), step.row, tile, &mut z, &mut ahead);
            let z = z.as_mut_ptr().add(offset);
            let wide = len - len % E::Lanes::WIDTH;
            // Also before a restart, which has no use for the buffers: a checkpoint of them has.
            catch_up::<E, D>(job.fold, &step, staged, buffers, len);
            if !step.fresh {
                update::<E::Lanes, D, false>(&step.pairs, z, buffers, 0..wide);
                update::<f32, D, false>(&step.pairs, z, buffers, wide..len);
            }
            staged.copy_from_nonoverlapping(z, len);
        }
    }
}

/// Brings the buffers of a span up to the step before, as far as they lack its staged row.
///
/// # Safety
/// `len` lies within the buffers' stride, and within the staged row where there is something to fold.
#[inline(always)]
unsafe fn catch_up<E: Simd, const D: usize>(
    what: Fold,
    step: &Step<D>,
    staged: *const f32,
    buffers: Buffers,
    len: usize,
) {
    let wide = len - len % E::Lanes::WIDTH;
    // SAFETY: the caller's promise.
    unsafe {
        match what {
            Fold::Nothing => {}
            Fold::Update => {
                fold::<E::Lanes, D>(&step.pairs, staged, buffers, 0..wide);
                fold::<f32, D>(&step.pairs, staged, buffers, wide..len);
            }
            Fold::Reset => {
                reset::<E::Lanes, D>(staged, buffers, 0..wide);
                reset::<f32, D>(staged, buffers, wide..len);
            }
        }
    }
}

/// The buffers of a piece from a coordinate on; the next buffer begins `stride` values after one.
#[derive(Clone, Copy)]
struct Buffers {
    first: *mut f32,
    stride: usize,
}

impl Buffers {
    /// The address of a coordinate in buffer `i`.
    ///
    /// # Safety
    /// The buffer has that coordinate.
    #[inline(always)]
    unsafe fn at(self, i: usize, coord: usize) -> *mut f32 {
        // SAFETY: the caller's promise.
        unsafe { self.first.add(i * self.stride + coord) }
    }

    /// What the next `len` coordinates use of a first stream and of `D` buffers, to be prefetched.
    ///
    /// # Safety
    /// There are `D` buffers.
    #[inline(always)]
    unsafe fn ahead<const D: usize>(self, first: (*const u8, usize), len: usize) -> Streams {
        let mut streams = [first; Streams::MAX];
        for i in 0..D {
            // SAFETY: the caller's promise.
            streams[1 + i] = (unsafe { self.at(i, 0) }.cast_const().cast(), len * size_of::<f32>());
        }
        Streams::new(&streams[..1 + D])
    }
}

/// Brings the buffers up to the step before: `mᵢ ← fma(λᵢ, mᵢ, z̃)`, where `z̃` is the row that was staged for it.
///
/// # Safety
/// The contract is that of [`reset`].
#[inline(always)]
unsafe fn fold<V: Lanes, const D: usize>(
    pairs: &[(f32, f32); D],
    staged: *const f32,
    buffers: Buffers,
    coords: Range<usize>,
) {
    // SAFETY: indices as promised.
    unsafe {
        for at in coords.step_by(V::WIDTH) {
            let row = V::load_f32(staged.add(at));
            for (i, (_, decay)) in pairs.iter().enumerate() {
                let m = V::load_f32(buffers.at(i, at));
                V::splat(*decay).fma(m, row).store_f32(buffers.at(i, at));
            }
        }
    }
}

/// The first step of a BLT, when all buffers are zero: `z̃ = z`, `mᵢ = z̃`.
///
/// # Safety
/// `coords` lie below the buffers' stride, their number is a multiple of the lanes' width; `z` and each of `D` buffers hold them.
#[inline(always)]
unsafe fn reset<V: Lanes, const D: usize>(z: *const f32, buffers: Buffers, coords: Range<usize>) {
    // SAFETY: indices as promised.
    unsafe {
        for at in coords.step_by(V::WIDTH) {
            for i in 0..D {
                V::load_f32(z.add(at)).store_f32(buffers.at(i, at));
            }
        }
    }
}

/// Forms `z̃ = z − Σ αᵢ mᵢ` in `z`, and with `KEEP` updates the buffers: `mᵢ ← fma(λᵢ, mᵢ, z̃)`. `pairs` are (−αᵢ, λᵢ).
///
/// # Safety
/// The contract is that of [`reset`].
#[inline(always)]
unsafe fn update<V: Lanes, const D: usize, const KEEP: bool>(
    pairs: &[(f32, f32); D],
    z: *mut f32,
    buffers: Buffers,
    coords: Range<usize>,
) {
    // SAFETY: indices as promised.
    unsafe {
        for at in coords.step_by(V::WIDTH) {
            let mut sum = V::load_f32(z.add(at));
            let mut m = [V::zero(); D];
            for i in 0..D {
                m[i] = V::load_f32(buffers.at(i, at));
                sum = V::splat(pairs[i].0).fma(m[i], sum);
            }
            for i in 0..if KEEP { D } else { 0 } {
                V::splat(pairs[i].1).fma(m[i], sum).store_f32(buffers.at(i, at));
            }
            sum.store_f32(z.add(at));
        }
    }
}
