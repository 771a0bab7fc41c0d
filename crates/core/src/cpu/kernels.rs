//! One pass over the coordinates per step: sample a tile into L1, update its state, add it to the gradient.
//!
//! Every function is generic over the engine (how wide, which sampler) and written once; operation order is that of
//! `docs/noise-spec.md`. Memory traffic per coordinate: gradient read and written, each state row read once and (BLT: all,
//! ring: one) written once; the normals themselves never leave L1.

use super::lanes::{Lanes, Stored};
use super::prefetch::{Ahead, Streams};
use super::ring::{self, RingJob};
use crate::backend::StepKernel;
use crate::chacha::ChaCha;
use crate::noise::TILE;
use crate::row::Row;
use std::mem::MaybeUninit;

/// Coordinates per unit of work, and per `[slot][coordinate]` chunk of a BLT's state.
pub(super) const PIECE: usize = 16 * TILE;

/// A vector width and a sampler.
///
/// # Safety
/// `sample` initialises all of a tile. It and the lanes may need CPU features, which must be enabled wherever [`run`] is inlined.
pub(super) unsafe trait Engine {
    type Lanes: Lanes;
    /// Writes the 512 normals of a tile; a vector engine meanwhile pulls `ahead`.
    ///
    /// # Safety
    /// The engine's CPU features must be enabled.
    unsafe fn sample(cipher: &ChaCha, row: Row, tile: u64, out: &mut Tile, ahead: &mut impl Ahead);
}

/// One lane and the reference sampler: any target.
pub(super) struct Portable;

// SAFETY: writes whole tiles and needs no CPU feature.
unsafe impl Engine for Portable {
    type Lanes = f32;
    #[inline(always)]
    unsafe fn sample(cipher: &ChaCha, row: Row, tile: u64, out: &mut Tile, _: &mut impl Ahead) {
        crate::noise::tile(cipher, row, tile, out.0.write([0.0; TILE]));
    }
}

/// What all pieces of a step share.
pub(super) struct Job<'a> {
    /// By number of the life that a row belongs to.
    pub(super) ciphers: &'a [ChaCha],
    pub(super) scale: f32,
    pub(super) kernel: &'a StepKernel<'a>,
    pub(super) slots: usize,
    pub(super) ring: RingJob<'a>,
}

impl Job<'_> {
    pub(super) fn cipher(&self, row: Row) -> &ChaCha {
        &self.ciphers[usize::from(row.incarnation())]
    }
}

/// A run of coordinates with its gradient and its state: `slots` values per coordinate.
pub(super) struct Piece<'a, G> {
    pub(super) first: u64,
    pub(super) gradient: &'a mut [G],
    pub(super) state: &'a mut [f32],
}

/// Room for the normals of a tile, aligned to cache lines.
#[repr(align(64))]
pub(super) struct Tile(pub(super) MaybeUninit<[f32; TILE]>);

impl Tile {
    /// Uninitialised: a sampler writes all of it, and clearing it before would cost a step 2%.
    pub(super) const fn new() -> Tile {
        Tile(MaybeUninit::uninit())
    }

    /// Its first value.
    pub(super) fn as_mut_ptr(&mut self) -> *mut f32 {
        self.0.as_mut_ptr().cast()
    }
}

/// The part of a tile that a piece covers: coordinates `at..at + len` of the piece are `offset..offset + len` of the tile.
pub(super) struct Span {
    pub(super) tile: u64,
    pub(super) offset: usize,
    pub(super) at: usize,
    pub(super) len: usize,
}

pub(super) fn spans(first: u64, len: usize) -> impl Iterator<Item = Span> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let coord = first + at as u64;
        let offset = (coord % TILE as u64) as usize;
        let span = Span { tile: coord / TILE as u64, offset, at, len: (TILE - offset).min(len - at) };
        at += span.len;
        (span.len > 0).then_some(span)
    })
}

/// Runs a piece.
///
/// `AHEAD` is for a ring that makes rows ahead, and for nothing else: it takes 16 KB more of the stack, which is wiped after every step.
///
/// # Safety
/// The engine's CPU features must be enabled in the calling function.
#[inline(always)]
pub(super) unsafe fn run<E: Engine, G: Stored, const AHEAD: bool>(job: &Job<'_>, piece: Piece<'_, G>) {
    // What the pointer arithmetic below relies on: `slots` values of state for each coordinate, and a kernel that uses no more.
    assert_eq!(piece.state.len(), job.slots * piece.gradient.len());
    match job.kernel {
        StepKernel::Blt { scale, decay, .. } => {
            assert_eq!((scale.len(), decay.len()), (job.slots, job.slots))
        }
        StepKernel::Ring { .. } => job.ring.check(job.slots),
        StepKernel::Regenerate { .. } => {}
    }
    assert!(!AHEAD || matches!(job.kernel, StepKernel::Ring { .. }));
    // SAFETY: features as promised; sizes as asserted.
    unsafe {
        if AHEAD {
            return ring::in_batches::<E, G>(job, piece);
        }
        match *job.kernel {
            StepKernel::Blt { row, scale, decay, fresh } => match scale.len() {
                0 => blt::<E, G, 0>(job, piece, row, scale, decay, fresh),
                1 => blt::<E, G, 1>(job, piece, row, scale, decay, fresh),
                2 => blt::<E, G, 2>(job, piece, row, scale, decay, fresh),
                3 => blt::<E, G, 3>(job, piece, row, scale, decay, fresh),
                4 => blt::<E, G, 4>(job, piece, row, scale, decay, fresh),
                5 => blt::<E, G, 5>(job, piece, row, scale, decay, fresh),
                6 => blt::<E, G, 6>(job, piece, row, scale, decay, fresh),
                7 => blt::<E, G, 7>(job, piece, row, scale, decay, fresh),
                8 => blt::<E, G, 8>(job, piece, row, scale, decay, fresh),
                more => unreachable!("a BLT has at most 8 buffers, not {more}"),
            },
            StepKernel::Ring { .. } => ring::row_by_row::<E, G>(job, piece),
            StepKernel::Regenerate { terms } => regenerate::<E, G>(job, piece, terms),
        }
    }
}

/// `g ← fma(scale, z, g)`.
///
/// # Safety
/// Pointers valid for `len` elements, the lanes' features enabled.
#[inline(always)]
pub(super) unsafe fn add<V: Lanes, G: Stored>(scale: f32, z: *const f32, gradient: *mut G, len: usize) {
    // SAFETY: every index is below `len`.
    unsafe {
        let mut at = 0;
        while at + V::WIDTH <= len {
            let sum = V::splat(scale).fma(V::load_f32(z.add(at)), G::load::<V>(gradient.add(at)));
            G::store(sum, gradient.add(at));
            at += V::WIDTH;
        }
        while at < len {
            let sum = scale.mul_add(*z.add(at), G::load::<f32>(gradient.add(at)));
            G::store(sum, gradient.add(at));
            at += 1;
        }
    }
}

/// # Safety
/// As [`run`]; `D` is the number of buffers.
#[inline(always)]
unsafe fn blt<E: Engine, G: Stored, const D: usize>(
    job: &Job<'_>,
    piece: Piece<'_, G>,
    row: Row,
    scale: &[f32],
    decay: &[f32],
    fresh: bool,
) {
    let mut z = Tile::new();
    let stride = piece.gradient.len();
    let mut pairs = [(0.0, 0.0); D];
    for i in 0..D {
        pairs[i] = (-scale[i], decay[i]);
    }
    for Span { tile, offset, at, len } in spans(piece.first, stride) {
        // SAFETY: offset + len ≤ 512, at + len ≤ stride, and buffer i is state[i·stride..][..stride].
        unsafe {
            let buffers = piece.state.as_mut_ptr().add(at);
            let gradient = piece.gradient.as_mut_ptr().add(at);
            let mut streams = [(gradient.cast_const().cast(), len * size_of::<G>()); Streams::MAX];
            for i in 0..D {
                streams[1 + i] = (buffers.add(i * stride).cast_const().cast(), len * size_of::<f32>());
            }
            let mut ahead = Streams::new(&streams[..1 + D]);
            E::sample(job.cipher(row), row, tile, &mut z, &mut ahead);
            let z = z.as_mut_ptr().add(offset);
            let wide = len - len % E::Lanes::WIDTH;
            if fresh {
                blt_fresh::<E::Lanes, D>(z, buffers, stride, 0..wide);
                blt_fresh::<f32, D>(z, buffers, stride, wide..len);
            } else {
                blt_update::<E::Lanes, D>(&pairs, z, buffers, stride, 0..wide);
                blt_update::<f32, D>(&pairs, z, buffers, stride, wide..len);
            }
            add::<E::Lanes, G>(job.scale, z, gradient, len);
        }
    }
}

/// With all buffers zero: `z̃ = z`, `mᵢ = z̃`.
///
/// # Safety
/// `coords` lie below `stride`, their number is a multiple of the lanes' width; `z` and each of `D` buffers hold them.
#[inline(always)]
unsafe fn blt_fresh<V: Lanes, const D: usize>(
    z: *mut f32,
    buffers: *mut f32,
    stride: usize,
    coords: std::ops::Range<usize>,
) {
    // SAFETY: indices as promised.
    unsafe {
        for at in coords.step_by(V::WIDTH) {
            for i in 0..D {
                V::load_f32(z.add(at)).store_f32(buffers.add(i * stride + at));
            }
        }
    }
}

/// `z̃ = z − Σ αᵢ mᵢ`, `mᵢ ← fma(λᵢ, mᵢ, z̃)`, leaving `z̃` in `z`; `pairs` are (−αᵢ, λᵢ).
///
/// # Safety
/// As [`blt_fresh`].
#[inline(always)]
unsafe fn blt_update<V: Lanes, const D: usize>(
    pairs: &[(f32, f32); D],
    z: *mut f32,
    buffers: *mut f32,
    stride: usize,
    coords: std::ops::Range<usize>,
) {
    // SAFETY: indices as promised.
    unsafe {
        for at in coords.step_by(V::WIDTH) {
            let mut sum = V::load_f32(z.add(at));
            let mut m = [V::zero(); D];
            for i in 0..D {
                m[i] = V::load_f32(buffers.add(i * stride + at));
                sum = V::splat(pairs[i].0).fma(m[i], sum);
            }
            for i in 0..D {
                V::splat(pairs[i].1).fma(m[i], sum).store_f32(buffers.add(i * stride + at));
            }
            sum.store_f32(z.add(at));
        }
    }
}

/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn regenerate<E: Engine, G: Stored>(job: &Job<'_>, piece: Piece<'_, G>, terms: &[(Row, f32)]) {
    let mut z = Tile::new();
    for Span { tile, offset, at, len } in spans(piece.first, piece.gradient.len()) {
        let mut sum = Tile(MaybeUninit::new([0.0; TILE]));
        // SAFETY: both tiles have 512 floats; offset + len ≤ 512 and at + len is within the gradient.
        unsafe {
            for &(row, weight) in terms {
                E::sample(job.cipher(row), row, tile, &mut z, &mut ());
                add::<E::Lanes, f32>(weight, z.as_mut_ptr(), sum.as_mut_ptr(), TILE);
            }
            let sum = sum.as_mut_ptr().add(offset);
            add::<E::Lanes, G>(job.scale, sum, piece.gradient.as_mut_ptr().add(at), len);
        }
    }
}
