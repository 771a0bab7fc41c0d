//! What the kernels share. A step is one pass over the coordinates: sample a tile into L1, update its state, add it to the gradient.
//!
//! The kernels of the forms are in `blt.rs`, `ring.rs` and `regenerate.rs`, as in `form/` and in `kernels/*.cu`. Every function is
//! generic over the vector width and the sampler ([`Simd`]) and written once; the order of operations is that of
//! `docs/noise-spec.md`. Memory traffic per coordinate: gradient read and written, each state row read once and (BLT: all,
//! ring: one) written once; the normals themselves never leave L1.

use super::assignment::Piece;
use super::lanes::{Lanes, Stored};
use super::prefetch::Ahead;
use super::ring::{self, RingJob};
use super::{blt, regenerate};
use crate::backend::{Add, StepKernel};
use crate::chacha::ChaCha;
use crate::grid::{DitherKey, Grid, TileDither};
use crate::noise::TILE;
use crate::row::Row;
use std::mem::MaybeUninit;

/// An engine: a vector width and a sampler.
///
/// # Safety
/// `sample` initialises all of a tile. It and the lanes may need CPU features, which must be enabled wherever [`run`] is inlined.
pub(super) unsafe trait Simd {
    type Lanes: Lanes;
    /// Writes the 512 normals of a tile; a vector sampler calls [`Ahead::pull`] meanwhile.
    ///
    /// # Safety
    /// The CPU features must be enabled.
    unsafe fn sample(cipher: &ChaCha, row: Row, tile: u64, out: &mut Tile, ahead: &mut impl Ahead);
}

/// The engine for any target: one lane and the reference sampler.
pub(super) struct Portable;

// SAFETY: writes whole tiles and needs no CPU feature.
unsafe impl Simd for Portable {
    type Lanes = f32;
    #[inline(always)]
    unsafe fn sample(cipher: &ChaCha, row: Row, tile: u64, out: &mut Tile, _: &mut impl Ahead) {
        crate::noise::tile(cipher, row, tile, out.0.write([0.0; TILE]));
    }
}

/// The part of a step's work that a pass does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Noise is made and added to the gradient at once.
    Fused,
    /// Noise is made ahead of its step: into the staged row, or into the rows of a ring.
    Make,
    /// Noise that was made ahead is added to the gradient.
    Add,
}

/// What the buffers of a BLT lack of a staged row that was added to its gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    /// Nothing: they are those after the row.
    Nothing,
    /// They are those before the row: `mᵢ ← fma(λᵢ, mᵢ, z̃)`.
    Update,
    /// They are of no more use, since the row was the first one after a restart: `mᵢ ← z̃`.
    Reset,
}

/// What becomes of the noise of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Output {
    /// It is added to the gradient.
    Add(Add),
    /// It takes the place of the gradient, in unit scale: another device adds it.
    Store,
}

/// What all pieces of a step share.
pub(super) struct Job<'a> {
    /// The ciphers, indexed by the number of the incarnation that a row belongs to.
    pub(super) ciphers: &'a [ChaCha],
    pub(super) output: Output,
    /// The secret words of the step's dither.
    pub(super) dither: DitherKey,
    pub(super) kernel: &'a StepKernel<'a>,
    pub(super) slots: usize,
    pub(super) ring: RingJob<'a>,
    pub(super) phase: Phase,
    /// What a BLT's buffers lack of the staged row, which is that of the step before.
    pub(super) fold: Fold,
}

impl Job<'_> {
    pub(super) fn cipher(&self, row: Row) -> &ChaCha {
        &self.ciphers[usize::from(row.incarnation())]
    }
}

/// Room for the normals of a tile, aligned to cache lines.
#[repr(align(64))]
pub(super) struct Tile(pub(super) MaybeUninit<[f32; TILE]>);

impl Tile {
    /// An uninitialised tile: a sampler writes all of it, and clearing it before would cost a step 2%.
    pub(super) const fn new() -> Tile {
        Tile(MaybeUninit::uninit())
    }

    /// The address of the tile's first value.
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

/// Runs one step on a piece.
///
/// `AHEAD` is set for a ring that makes rows ahead, and for nothing else: it takes 16 KB more of the stack, which is wiped after every step.
///
/// # Safety
/// The CPU features must be enabled in the calling function.
#[inline(always)]
pub(super) unsafe fn run<E: Simd, G: Stored, const AHEAD: bool>(job: &Job<'_>, piece: Piece<'_, G>) {
    // The pointer arithmetic below relies on `slots` values of state for each coordinate, and on a kernel that uses no more.
    assert_eq!(piece.state.len(), job.slots * piece.len);
    let is_ring = matches!(job.kernel, StepKernel::Ring { .. });
    assert_eq!(piece.gradient.len(), if job.phase == Phase::Make { 0 } else { piece.len });
    assert!(
        is_ring
            || (job.phase == Phase::Fused && job.fold == Fold::Nothing)
            || piece.staged.len() == piece.len
    );
    match job.kernel {
        StepKernel::Blt { scale, decay, .. } => {
            assert_eq!((scale.len(), decay.len()), (job.slots, job.slots))
        }
        StepKernel::Ring { .. } => job.ring.check(job.slots),
        StepKernel::Regenerate { .. } => {}
    }
    assert!(!AHEAD || is_ring);
    // SAFETY: features as promised; sizes as asserted.
    unsafe {
        if AHEAD {
            return ring::with_rows_ahead::<E, G>(job, piece);
        }
        if job.phase == Phase::Add && !is_ring {
            return add_staged::<E, G>(job, piece);
        }
        match *job.kernel {
            StepKernel::Blt { row, scale, decay, fresh } => match scale.len() {
                0 => blt::run::<E, G, 0>(job, piece, row, scale, decay, fresh),
                1 => blt::run::<E, G, 1>(job, piece, row, scale, decay, fresh),
                2 => blt::run::<E, G, 2>(job, piece, row, scale, decay, fresh),
                3 => blt::run::<E, G, 3>(job, piece, row, scale, decay, fresh),
                4 => blt::run::<E, G, 4>(job, piece, row, scale, decay, fresh),
                5 => blt::run::<E, G, 5>(job, piece, row, scale, decay, fresh),
                6 => blt::run::<E, G, 6>(job, piece, row, scale, decay, fresh),
                7 => blt::run::<E, G, 7>(job, piece, row, scale, decay, fresh),
                8 => blt::run::<E, G, 8>(job, piece, row, scale, decay, fresh),
                more => unreachable!("a BLT has at most 8 buffers, not {more}"),
            },
            StepKernel::Ring { .. } => ring::row_by_row::<E, G>(job, piece),
            StepKernel::Regenerate { terms } => regenerate::run::<E, G>(job, piece, terms),
        }
    }
}

/// Adds the staged row to the gradient.
///
/// # Safety
/// The contract is that of [`run`].
#[inline(always)]
unsafe fn add_staged<E: Simd, G: Stored>(job: &Job<'_>, piece: Piece<'_, G>) {
    for span in spans(piece.first, piece.len) {
        let at = span.at;
        // SAFETY: a span lies within the piece.
        unsafe {
            add::<E::Lanes, G>(job, span, piece.staged.as_ptr().add(at), piece.gradient.as_mut_ptr().add(at))
        };
    }
}

/// Adds the noise of a span to its gradient, as the step says, or stores it there.
///
/// # Safety
/// The pointers are valid for the span's elements, and the lanes' features are enabled.
#[inline(always)]
pub(super) unsafe fn add<V: Lanes, G: Stored>(job: &Job<'_>, span: Span, z: *const f32, gradient: *mut G) {
    // SAFETY: the caller's promise, passed on.
    unsafe {
        match job.output {
            Output::Add(Add::OnGrid(grid)) => {
                add_on_grid::<V, G>(grid, job.dither.of_tile(span.tile), &span, z, gradient)
            }
            Output::Add(Add::Plain(scale)) => add_plain::<V, G>(scale, z, gradient, span.len),
            Output::Store => store::<V, G>(z, gradient, span.len),
        }
    }
}

/// Adds noise to a gradient on the output grid, [`Grid::add`] at every coordinate.
///
/// # Safety
/// The contract is that of [`add`].
#[inline(always)]
unsafe fn add_on_grid<V: Lanes, G: Stored>(
    grid: Grid,
    dither: TileDither,
    span: &Span,
    z: *const f32,
    gradient: *mut G,
) {
    // SAFETY: every index is below the span's length.
    unsafe {
        let mut at = 0;
        let mut words = V::words(dither.word(span.offset as u32), dither.stride);
        while at + V::WIDTH <= span.len {
            let sum = G::load::<V>(gradient.add(at)).add_on_grid(grid, V::load_f32(z.add(at)), words);
            G::store(sum, gradient.add(at));
            words = V::add_words(words, dither.stride.wrapping_mul(V::WIDTH as u32));
            at += V::WIDTH;
        }
        while at < span.len {
            let word = dither.word((span.offset + at) as u32);
            G::store(grid.add(G::load::<f32>(gradient.add(at)), *z.add(at), word), gradient.add(at));
            at += 1;
        }
    }
}

/// Stores noise in the place of a gradient.
///
/// # Safety
/// The contract is that of [`add_plain`].
#[inline(always)]
unsafe fn store<V: Lanes, G: Stored>(z: *const f32, gradient: *mut G, len: usize) {
    // SAFETY: every index is below `len`.
    unsafe {
        let mut at = 0;
        while at + V::WIDTH <= len {
            G::store(V::load_f32(z.add(at)), gradient.add(at));
            at += V::WIDTH;
        }
        while at < len {
            G::store(*z.add(at), gradient.add(at));
            at += 1;
        }
    }
}

/// Adds values without a grid: `g ← fma(scale, z, g)`.
///
/// # Safety
/// The pointers are valid for `len` elements, and the lanes' features are enabled.
#[inline(always)]
pub(super) unsafe fn add_plain<V: Lanes, G: Stored>(scale: f32, z: *const f32, gradient: *mut G, len: usize) {
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
