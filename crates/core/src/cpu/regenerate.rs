//! The kernel without state: every row that a step needs is made again. Device twin: `kernels/regenerate.cu`.

use super::assignment::Piece;
use super::kernels::{Job, Phase, Simd, Span, Tile, add, add_plain, spans};
use super::lanes::Stored;
use crate::noise::TILE;
use crate::row::Row;
use std::mem::MaybeUninit;

/// Adds the weighted sum of the step's rows to a piece, or stages it.
///
/// # Safety
/// The contract is that of [`super::kernels::run`].
#[inline(always)]
pub(super) unsafe fn run<E: Simd, G: Stored>(job: &Job<'_>, piece: Piece<'_, G>, terms: &[(Row, f32)]) {
    let mut z = Tile::new();
    for span in spans(piece.first, piece.len) {
        let Span { tile, offset, at, len } = span;
        let mut sum = Tile(MaybeUninit::new([0.0; TILE]));
        // SAFETY: both tiles have 512 floats; offset + len ≤ 512 and at + len is within the gradient.
        unsafe {
            for &(row, weight) in terms {
                E::sample(job.cipher(row), row, tile, &mut z, &mut ());
                add_plain::<E::Lanes, f32>(weight, z.as_mut_ptr(), sum.as_mut_ptr(), TILE);
            }
            let sum = sum.as_mut_ptr().add(offset);
            match job.phase {
                Phase::Make => piece.staged.as_mut_ptr().add(at).copy_from_nonoverlapping(sum, len),
                _ => add::<E::Lanes, G>(job, span, sum, piece.gradient.as_mut_ptr().add(at)),
            }
        }
    }
}
