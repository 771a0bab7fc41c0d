//! The assignment of coordinates to threads: segments are cut into pieces, and the threads take them one by one.

#[cfg(target_arch = "x86_64")]
use super::avx2;
use super::kernels::{self, Job, Phase, Portable};
use super::lanes::Stored;
use super::pool::{Panicked, Pool};
use super::row_parts::RowPart;
use crate::backend::StepKernel;
use crate::dtype::Element;
use crate::layout::Shard;
use crate::noise::TILE;
use crate::secret::on_clean_stack;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The number of coordinates per unit of work, and per `[slot][coordinate]` chunk of a BLT's state.
pub(super) const PIECE: usize = 16 * TILE;

/// A run of coordinates with its gradient, its staged noise and its state: `slots` values per coordinate.
pub(super) struct Piece<'a, G> {
    pub(super) first: u64,
    pub(super) len: usize,
    /// The gradient, or nothing where noise is only made.
    pub(super) gradient: &'a mut [G],
    /// The noise that was made ahead of its step, or nothing where none is.
    pub(super) staged: &'a mut [f32],
    pub(super) state: &'a mut [f32],
}

/// The bytes of stack that kernels use: the normals of a tile or two, a few KB of the cipher's, and a margin. `tests/secrets.rs` fails
/// if it is too little.
const KERNEL_STACK: usize = 14 << 10;

/// The bytes of stack that a ring uses which makes rows ahead: it holds the normals of eight tiles.
const AHEAD_STACK: usize = 30 << 10;

/// The coordinates that a pass covers, and the memory of their gradient.
pub(super) enum Target<'list, 'memory, G> {
    /// All coordinates, with one slice per segment of the shard.
    Segments(&'list mut [&'memory mut [G]]),
    /// A part of the shard's row, in whole tiles.
    Part(&'list RowPart, &'memory mut [G]),
}

/// Lets the threads run a pass over its target; `staged` and `state` are those of the whole shard. Returns true if a gradient left its
/// type's range.
pub(super) fn run_pieces<G: Element>(
    pool: &mut Pool,
    vector: bool,
    job: &Job<'_>,
    shard: &Shard,
    target: Target<'_, '_, G>,
    staged: &mut [f32],
    state: &mut [f32],
) -> std::result::Result<bool, Panicked> {
    match target {
        Target::Segments(slices) => {
            let firsts = shard.segments().iter().map(|segment| segment.start);
            let runs = firsts.zip(slices.iter_mut().map(|slice| &mut **slice));
            run_all(pool, vector, job, shard, runs, staged, state)
        }
        Target::Part(part, tiles) => {
            let before = part.coords().start as usize;
            let staged = staged.get_mut(before..).unwrap_or_default();
            let state = &mut state[before * job.slots..];
            run_all(pool, vector, job, shard, part.runs(shard, tiles), staged, state)
        }
    }
}

/// Lets the threads take pieces one by one: a lock per 8192 coordinates, and no thread waits for a slower one. Each run is a first
/// coordinate with its gradient.
fn run_all<'a, G: Element>(
    pool: &mut Pool,
    vector: bool,
    job: &Job<'_>,
    shard: &Shard,
    runs: impl Iterator<Item = (u64, &'a mut [G])> + Send,
    mut staged: &mut [f32],
    mut state: &mut [f32],
) -> std::result::Result<bool, Panicked> {
    let pieces = runs.flat_map(|(first, gradient)| {
        let len = gradient.len();
        let state = take(&mut state, len * job.slots);
        let staged = take(&mut staged, len);
        cut(Piece { first, len, gradient, staged, state }, job.slots)
    });
    let pieces = Mutex::new(pieces);
    let overflow = AtomicBool::new(false);
    let take_pieces = |run: fn(bool, &Job<'_>, Piece<'_, G>)| {
        // A poisoned lock means that another thread panicked, which fails the step anyway.
        while let Some(mut piece) = pieces.lock().ok().and_then(|mut pieces| pieces.next()) {
            run(vector, job, piece.reborrow());
            if G::any_overflow(piece.gradient) {
                overflow.store(true, Ordering::Relaxed);
            }
        }
    };
    // Kernels spill key words: a dump taken between steps must not find them.
    let work = || match job.ring.rows_ahead {
        // Wiping the stack takes longer than adding a few rows that were made before.
        1 if job.phase == Phase::Add => take_pieces(run_piece::<G, false>),
        _ if job.phase == Phase::Add || only_adds(job, shard) => take_pieces(run_piece::<G, true>),
        1 => on_clean_stack::<KERNEL_STACK, _>(|| take_pieces(run_piece::<G, false>)),
        _ => on_clean_stack::<AHEAD_STACK, _>(|| take_pieces(run_piece::<G, true>)),
    };
    if is_small(job.kernel, shard) {
        Pool::run_alone(&work)?
    } else {
        pool.run(&work)?
    }
    Ok(overflow.into_inner())
}

/// True for a step that one thread makes sooner than it wakes another: at most 32 tiles of normals, some 25 microseconds.
pub(super) fn is_small(kernel: &StepKernel<'_>, shard: &Shard) -> bool {
    let rows = match kernel {
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
    job.ring.rows_ahead > 1 && is_small(job.kernel, shard) && !shard.segments().iter().any(is_due)
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

/// The number of pieces of a shard.
pub(super) fn count(shard: &Shard) -> usize {
    let pieces = |segment: &Range<u64>| match segment.is_empty() {
        true => 0,
        false => ((segment.end - 1) / PIECE as u64 - segment.start / PIECE as u64 + 1) as usize,
    };
    shard.segments().iter().map(pieces).sum()
}

/// Makes noise ahead of its step: takes pieces by their number from `next`, which all threads of the job share, until none is left.
///
/// # Safety
/// `staged` is the beginning of one value per coordinate of the shard, or dangling where the job stages nothing, `state` that of the state. No
/// other thread uses them, but those that share the job and the counter.
pub(super) unsafe fn make_pieces(
    vector: bool,
    job: &Job<'_>,
    shard: &Shard,
    staged: *mut f32,
    state: *mut f32,
    next: &AtomicUsize,
) {
    let stage = !matches!(job.kernel, StepKernel::Ring { .. });
    let run = if job.ring.rows_ahead == 1 { run_piece::<f32, false> } else { run_piece::<f32, true> };
    let work = || {
        let (mut index, mut before) = (0, 0);
        let mut taken = next.fetch_add(1, Ordering::Relaxed);
        for segment in shard.segments() {
            let size = (segment.end - segment.start) as usize;
            let mut at = 0;
            while at < size {
                let first = segment.start + at as u64;
                let len = (PIECE - (first % PIECE as u64) as usize).min(size - at);
                if index == taken {
                    taken = next.fetch_add(1, Ordering::Relaxed);
                    let staged =
                        if stage { staged.wrapping_add(before + at) } else { std::ptr::dangling_mut() };
                    let state = state.wrapping_add((before + at) * job.slots);
                    // SAFETY: pieces do not overlap, and lie within what the caller promises.
                    let (staged, state) = unsafe {
                        let staged = std::slice::from_raw_parts_mut(staged, if stage { len } else { 0 });
                        (staged, std::slice::from_raw_parts_mut(state, len * job.slots))
                    };
                    run(vector, job, Piece { first, len, gradient: &mut [], staged, state });
                }
                index += 1;
                at += len;
            }
            before += size;
        }
    };
    match job.ring.rows_ahead {
        1 => on_clean_stack::<KERNEL_STACK, _>(work),
        _ => on_clean_stack::<AHEAD_STACK, _>(work),
    }
}

impl<G> Piece<'_, G> {
    fn reborrow(&mut self) -> Piece<'_, G> {
        let Piece { first, len, gradient, staged, state } = self;
        Piece { first: *first, len: *len, gradient, staged, state }
    }
}

/// Takes the first `len` values off a slice, or all there are.
fn take<'a, T>(slice: &mut &'a mut [T], len: usize) -> &'a mut [T] {
    let all = std::mem::take(slice);
    let (first, rest) = all.split_at_mut(len.min(all.len()));
    *slice = rest;
    first
}

/// Cuts a segment into pieces at multiples of [`PIECE`], handing each its gradient and state.
fn cut<G>(mut segment: Piece<'_, G>, slots: usize) -> impl Iterator<Item = Piece<'_, G>> {
    std::iter::from_fn(move || {
        let first = segment.first;
        let len = (PIECE - (first % PIECE as u64) as usize).min(segment.len);
        if len == 0 {
            return None;
        }
        segment.first += len as u64;
        segment.len -= len;
        Some(Piece {
            first,
            len,
            gradient: take(&mut segment.gradient, len),
            staged: take(&mut segment.staged, len),
            state: take(&mut segment.state, len * slots),
        })
    })
}
