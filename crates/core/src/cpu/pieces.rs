//! The assignment of coordinates to threads: segments are cut into pieces, and the threads take them one by one.

#[cfg(target_arch = "x86_64")]
use super::avx2;
use super::kernels::{self, Job, Portable};
use super::lanes::Stored;
use super::pool::{Panicked, Pool};
use crate::backend::StepKernel;
use crate::dtype::Element;
use crate::layout::Shard;
use crate::noise::TILE;
use crate::secret::on_clean_stack;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of coordinates per unit of work, and per `[slot][coordinate]` chunk of a BLT's state.
pub(super) const PIECE: usize = 16 * TILE;

/// A run of coordinates with its gradient and its state: `slots` values per coordinate.
pub(super) struct Piece<'a, G> {
    pub(super) first: u64,
    pub(super) gradient: &'a mut [G],
    pub(super) state: &'a mut [f32],
}

/// The bytes of stack that kernels use: the normals of a tile or two, a few KB of the cipher's, and a margin. `tests/secrets.rs` fails
/// if it is too little.
const KERNEL_STACK: usize = 14 << 10;

/// The bytes of stack that a ring uses which makes rows ahead: it holds the normals of eight tiles.
const AHEAD_STACK: usize = 30 << 10;

/// Lets the threads take pieces one by one: a lock per 8192 coordinates, and no thread waits for a slower one. Returns true if a
/// gradient left its type's range.
pub(super) fn run_pieces<G: Element>(
    pool: &mut Pool,
    vector: bool,
    job: &Job<'_>,
    shard: &Shard,
    slices: &mut [&mut [G]],
    mut state: &mut [f32],
) -> std::result::Result<bool, Panicked> {
    let pieces = shard.segments().iter().zip(slices).flat_map(|(segment, gradient)| {
        let (own, rest) = std::mem::take(&mut state).split_at_mut(gradient.len() * job.slots);
        state = rest;
        cut(segment.start, gradient, own, job.slots)
    });
    let pieces = Mutex::new(pieces);
    let overflow = AtomicBool::new(false);
    let take_pieces = |run: fn(bool, &Job<'_>, Piece<'_, G>)| {
        // A poisoned lock means that another thread panicked, which fails the step anyway.
        while let Some((first, gradient, state)) = pieces.lock().ok().and_then(|mut pieces| pieces.next()) {
            run(vector, job, Piece { first, gradient: &mut *gradient, state });
            if G::any_overflow(gradient) {
                overflow.store(true, Ordering::Relaxed);
            }
        }
    };
    // Kernels spill key words: a dump taken between steps must not find them.
    let work = || match job.ring.rows_ahead {
        // Wiping the stack takes longer than adding a few rows that were made before.
        _ if only_adds(job, shard) => take_pieces(run_piece::<G, true>),
        1 => on_clean_stack::<KERNEL_STACK, _>(|| take_pieces(run_piece::<G, false>)),
        _ => on_clean_stack::<AHEAD_STACK, _>(|| take_pieces(run_piece::<G, true>)),
    };
    if is_small(job, shard) {
        Pool::run_alone(&work)?
    } else {
        pool.run(&work)?
    }
    Ok(overflow.into_inner())
}

/// True for a step that one thread makes sooner than it wakes another: at most 32 tiles of normals, some 25 microseconds.
fn is_small(job: &Job<'_>, shard: &Shard) -> bool {
    let rows = match job.kernel {
        StepKernel::Regenerate { terms } => terms.len().max(1) as u64,
        _ => 1,
    };
    // A segment begins a tile of its own.
    let tiles = shard.segments().len() as u64 + shard.num_coords() / TILE as u64;
    tiles.saturating_mul(rows) <= 32
}

/// True for a small step of a ring of which no tile makes rows now: such a step reads no key.
fn only_adds(job: &Job<'_>, shard: &Shard) -> bool {
    let is_due = |segment: &Range<u64>| {
        let last = (segment.end - 1) / TILE as u64;
        (segment.start / TILE as u64..=last).any(|tile| job.ring.rows_due(tile) > 0)
    };
    job.ring.rows_ahead > 1 && is_small(job, shard) && !shard.segments().iter().any(is_due)
}

fn run_piece<G: Stored, const AHEAD: bool>(vector: bool, job: &Job<'_>, piece: Piece<'_, G>) {
    #[cfg(target_arch = "x86_64")]
    if vector {
        // SAFETY: `vector` is set only where `avx2::is_available()`.
        return unsafe { avx2::run::<G, AHEAD>(job, piece) };
    }
    // Without a vector path `vector` is never set.
    let _ = vector;
    run_portable::<G, AHEAD>(job, piece);
}

/// Runs a piece without vector instructions. It is not inlined, because its frame of many KB would enlarge that of the vector path.
#[inline(never)]
fn run_portable<G: Stored, const AHEAD: bool>(job: &Job<'_>, piece: Piece<'_, G>) {
    // SAFETY: the portable engine needs no CPU feature.
    unsafe { kernels::run::<Portable, G, AHEAD>(job, piece) }
}

/// Cuts a segment into pieces at multiples of [`PIECE`], handing each its gradient and state.
fn cut<'a, G>(
    first: u64,
    mut gradient: &'a mut [G],
    mut state: &'a mut [f32],
    slots: usize,
) -> impl Iterator<Item = (u64, &'a mut [G], &'a mut [f32])> {
    let mut coord = first;
    std::iter::from_fn(move || {
        let to_boundary = PIECE - (coord % PIECE as u64) as usize;
        let len = to_boundary.min(gradient.len());
        if len == 0 {
            return None;
        }
        let (gradient_piece, rest) = std::mem::take(&mut gradient).split_at_mut(len);
        gradient = rest;
        let (state_piece, rest) = std::mem::take(&mut state).split_at_mut(len * slots);
        state = rest;
        let piece = (coord, gradient_piece, state_piece);
        coord += len as u64;
        Some(piece)
    })
}
