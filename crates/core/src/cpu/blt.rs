//! The BLT kernel: a few buffers per coordinate, each updated in place. Device twin: `kernels/blt.cu`.

use super::assignment::Piece;
use super::kernels::{Fold, Job, Phase, Simd, Span, Tile, add, spans};
use super::lanes::{Lanes, Stored};
use super::prefetch::Streams;
use crate::row::Row;
use std::ops::Range;

/// Runs one BLT step on a piece.
///
/// # Safety
/// The contract is that of [`super::kernels::run`], and `D` is the number of buffers.
#[inline(always)]
pub(super) unsafe fn run<E: Simd, G: Stored, const D: usize>(
    job: &Job<'_>,
    piece: Piece<'_, G>,
    row: Row,
    scale: &[f32],
    decay: &[f32],
    fresh: bool,
) {
    let mut z = Tile::new();
    let stride = piece.len;
    let mut pairs = [(0.0, 0.0); D];
    for i in 0..D {
        pairs[i] = (-scale[i], decay[i]);
    }
    let makes = job.phase == Phase::Make;
    for span in spans(piece.first, stride) {
        let Span { tile, offset, at, len } = span;
        // SAFETY: offset + len ≤ 512, at + len ≤ stride, and buffer i is state[i·stride..][..stride]. Of gradient and staged row, the
        // one that is used has `stride` values.
        unsafe {
            let buffers = Buffers { first: piece.state.as_mut_ptr().add(at), stride };
            let gradient = piece.gradient.as_mut_ptr().wrapping_add(at);
            let staged = piece.staged.as_mut_ptr().wrapping_add(at);
            let first: (*const u8, usize) = match makes {
                true => (staged.cast_const().cast(), len * size_of::<f32>()),
                false => (gradient.cast_const().cast(), len * size_of::<G>()),
            };
            let mut streams = [first; Streams::MAX];
            for i in 0..D {
                streams[1 + i] = (buffers.at(i, 0).cast_const().cast(), len * size_of::<f32>());
            }
            let mut ahead = Streams::new(&streams[..1 + D]);
            E::sample(job.cipher(row), row, tile, &mut z, &mut ahead);
            let z = z.as_mut_ptr().add(offset);
            let wide = len - len % E::Lanes::WIDTH;
            match job.fold {
                // A restart has no use for what lies in the buffers, but a checkpoint before it has.
                _ if fresh && !makes => {}
                Fold::Nothing => {}
                Fold::Update => {
                    fold::<E::Lanes, D>(&pairs, staged, buffers, 0..wide);
                    fold::<f32, D>(&pairs, staged, buffers, wide..len);
                }
                Fold::Reset => {
                    reset::<E::Lanes, D>(staged, buffers, 0..wide);
                    reset::<f32, D>(staged, buffers, wide..len);
                }
            }
            match (fresh, makes) {
                (true, false) => {
                    reset::<E::Lanes, D>(z, buffers, 0..wide);
                    reset::<f32, D>(z, buffers, wide..len);
                }
                (true, true) => {}
                (false, false) => {
                    update::<E::Lanes, D, true>(&pairs, z, buffers, 0..wide);
                    update::<f32, D, true>(&pairs, z, buffers, wide..len);
                }
                (false, true) => {
                    update::<E::Lanes, D, false>(&pairs, z, buffers, 0..wide);
                    update::<f32, D, false>(&pairs, z, buffers, wide..len);
                }
            }
            match makes {
                true => staged.copy_from_nonoverlapping(z, len),
                false => add::<E::Lanes, G>(job, span, z, gradient),
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
unsafe fn reset<V: Lanes, const D: usize>(z: *mut f32, buffers: Buffers, coords: Range<usize>) {
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
