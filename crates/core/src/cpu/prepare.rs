//! Noise made ahead of its step, by threads in the background.
//!
//! `prepare` makes the next row while the trainer computes gradients; the step then adds it, which moves 12 bytes per parameter whatever
//! the form. Nothing is counted before the step, so the plain state before it must stay readable:
//!
//! - A BLT keeps its buffers as they are. The row lies in a staged row, and the next pass folds it into the buffers
//!   (`mᵢ ← fma(λᵢ, mᵢ, z̃)`, the update that the fused step makes at once) before it uses them.
//! - A ring has one row more than it needs, so that the oldest output survives until the step.
//! - A regenerated sum has no state.
//!
//! The staged row is noise that nobody has released, as secret as the key: it is in no file, and it is cleared when it is given up.

use super::assignment::{self, PIECE};
use super::kernels::{Fold, Job, Output, Phase};
use super::pool::{Panicked, Pool, Task};
use super::ring::{MAX_ROWS_AHEAD, RingJob};
use super::state::State;
use crate::backend::{Step, StepKernel};
use crate::chacha::ChaCha;
use crate::error::{Error, Result};
use crate::grid::DitherKey;
use crate::layout::Shard;
use crate::row::Row;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The row that is made ahead, the threads that make it, and what a BLT has still to fold in.
pub(super) struct Prepared {
    pool: Pool,
    /// Made by a box, and freed at the end: threads know its address.
    work: NonNull<Work>,
    /// Runs the work: the one closure that all rounds share, so that none is allocated.
    task: Box<dyn Fn() + Send + Sync>,
    /// One value per coordinate; none for a ring.
    staged: State,
    /// The step whose row is made, or being made.
    step: Option<u64>,
    /// What a BLT's buffers lack of the staged row.
    fold: Fold,
    /// True if the staged row is the first one of a BLT after a restart.
    fresh: bool,
}

/// The work of one `prepare`. It owns or points to memory that stays where it is while the threads run.
struct Work {
    kernel: Kernel,
    /// The scales and decays of a BLT.
    scale: [f32; 8],
    decay: [f32; 8],
    /// The coefficients of a ring at this step: the caller's memory may be gone when the threads work.
    coefs: Vec<f32>,
    /// The rows of a ring with their coefficients: the first row's are those above, the others' the backend's own plan's.
    rows: [(Row, *const [f32]); MAX_ROWS_AHEAD],
    /// The rows and weights of a regenerated sum.
    terms: Vec<(Row, f32)>,
    ring: (usize, usize, u64),
    fold: Fold,
    vector: bool,
    slots: usize,
    shard: Shard,
    ciphers: *const [ChaCha],
    staged: *mut f32,
    state: *mut f32,
    /// The number of pieces, and the next one that nobody has taken.
    pieces: usize,
    next: AtomicUsize,
}

#[derive(Clone, Copy)]
enum Kernel {
    Blt { row: Row, buffers: usize, fresh: bool },
    Ring { row: Row },
    Regenerate,
}

// SAFETY: the pointers lead to memory of the backend, which waits for the threads before it uses or frees it; the threads share no value
// that they write.
unsafe impl Send for Work {}
// SAFETY: as above.
unsafe impl Sync for Work {}

/// What a backend lends to the threads: it stays where it is, and is used by nobody else, until they are done.
pub(super) struct Lent<'a> {
    pub(super) ciphers: &'a [ChaCha],
    pub(super) state: &'a mut State,
    pub(super) ring: RingJob<'a>,
    pub(super) vector: bool,
}

impl Prepared {
    /// Threads, and room for a row unless the form is a ring.
    pub(super) fn new(shard: &Shard, threads: usize, is_ring: bool) -> Result<Prepared> {
        let spawn_error = |error| Error::Device(format!("cannot start {threads} threads: {error}"));
        let coords = if is_ring { 0 } else { shard.num_coords() };
        let work = Work {
            kernel: Kernel::Regenerate,
            scale: [0.0; 8],
            decay: [0.0; 8],
            coefs: Vec::new(),
            rows: [(Row::default(), &[] as *const [f32]); MAX_ROWS_AHEAD],
            terms: Vec::new(),
            ring: (0, 1, 0),
            fold: Fold::Nothing,
            vector: false,
            slots: 0,
            shard: shard.clone(),
            ciphers: &[] as *const [ChaCha],
            staged: std::ptr::dangling_mut(),
            state: std::ptr::dangling_mut(),
            pieces: 0,
            next: AtomicUsize::new(0),
        };
        let (pool, staged) =
            (Pool::in_background(threads).map_err(spawn_error)?, State::new(coords, 1, PIECE)?);
        let work = NonNull::from(Box::leak(Box::new(work)));
        let place = Place(work);
        Ok(Prepared {
            pool,
            work,
            // SAFETY: the work lives as long as the task, and changes only while no thread runs it.
            task: Box::new(move || unsafe { place.work() }.run()),
            staged,
            step: None,
            fold: Fold::Nothing,
            fresh: false,
        })
    }

    fn work(&self) -> &Work {
        // SAFETY: it is freed with this value, and changes only where this value is borrowed mutably.
        unsafe { self.work.as_ref() }
    }

    /// The step whose row is made or being made.
    pub(super) fn step(&self) -> Option<u64> {
        self.step
    }

    /// What a BLT's buffers lack of the row that was staged for the last step.
    pub(super) fn fold(&self) -> Fold {
        self.fold
    }

    /// The bytes of the staged row.
    pub(super) fn bytes(&self) -> u64 {
        self.staged.bytes()
    }

    /// The staged row, which no thread writes now.
    pub(super) fn staged(&self) -> &State {
        &self.staged
    }

    /// The same, to be read by kernels.
    pub(super) fn staged_mut(&mut self) -> &mut [f32] {
        self.staged.values_mut()
    }

    /// Records that a step was made: if it was the prepared one, a BLT has to fold it in from now on.
    pub(super) fn stepped(&mut self, was_prepared: bool) {
        self.fold = match (was_prepared, self.fresh) {
            (false, _) => Fold::Nothing,
            (true, false) => Fold::Update,
            (true, true) => Fold::Reset,
        };
        self.step = None;
    }

    /// Makes what the threads in the background have not begun, with the step's own threads: whoever waits for the row should not depend
    /// on threads of low priority.
    pub(super) fn help(&self, pool: &mut Pool, step: u64) -> Result<()> {
        if self.work().next.load(Ordering::Relaxed) < self.work().pieces {
            pool.run(&|| self.work().run()).map_err(|Panicked| Error::Worker { step })?;
        }
        self.wait(step)
    }

    /// Waits for the threads; after an error the row is given up.
    pub(super) fn wait(&self, step: u64) -> Result<()> {
        self.pool.wait().map_err(|Panicked| Error::Worker { step })
    }

    /// Gives the row up and clears it.
    pub(super) fn clear(&mut self) {
        let _ = self.pool.wait();
        self.step = None;
        let values = self.staged.values_mut();
        values.fill(0.0);
        std::hint::black_box(values);
    }

    /// Lets the threads make the row of a step, and returns at once.
    ///
    /// # Safety
    /// What is lent stays where it is and is used by nobody else until [`Prepared::wait`] returned.
    pub(super) unsafe fn start(&mut self, step: &Step<'_>, lent: Lent<'_>) -> Result<()> {
        self.wait(step.number)?;
        // SAFETY: no thread runs it after the wait.
        let work = unsafe { self.work.as_mut() };
        work.kernel = match step.kernel {
            StepKernel::Blt { row, scale, decay, fresh } => {
                work.scale[..scale.len()].copy_from_slice(scale);
                work.decay[..decay.len()].copy_from_slice(decay);
                Kernel::Blt { row, buffers: scale.len(), fresh }
            }
            StepKernel::Ring { row, coefs } => {
                work.coefs.clear();
                work.coefs.extend_from_slice(coefs);
                for (to, (row, coefs)) in work.rows.iter_mut().zip(lent.ring.future) {
                    *to = (*row, std::ptr::from_ref(*coefs));
                }
                work.rows[0].1 = std::ptr::from_ref(&work.coefs[..]);
                Kernel::Ring { row }
            }
            StepKernel::Regenerate { terms } => {
                work.terms.clear();
                work.terms.extend_from_slice(terms);
                Kernel::Regenerate
            }
        };
        work.ring = (lent.ring.future.len(), lent.ring.rows_ahead, lent.ring.time);
        (work.fold, work.vector, work.slots) = (self.fold, lent.vector, lent.state.slots());
        work.ciphers = lent.ciphers;
        work.staged = self.staged.values_mut().as_mut_ptr();
        work.state = lent.state.values_mut().as_mut_ptr();
        work.pieces = assignment::count(&work.shard);
        *work.next.get_mut() = 0;
        self.fold = Fold::Nothing;
        self.fresh = matches!(step.kernel, StepKernel::Blt { fresh: true, .. });
        self.step = Some(step.number);
        let task: &(dyn Fn() + Sync) = &*self.task;
        // SAFETY: only the lifetime changes. The task is boxed; what its work points to is the caller's promise.
        unsafe { self.pool.start(std::mem::transmute::<&(dyn Fn() + Sync), Task>(task)) };
        Ok(())
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.clear();
        // SAFETY: it came from a box, and no thread runs it any more.
        drop(unsafe { Box::from_raw(self.work.as_ptr()) });
    }
}

// SAFETY: the work may be shared and sent, as said above; the rest is.
unsafe impl Send for Prepared {}
// SAFETY: as above.
unsafe impl Sync for Prepared {}

/// The address of the work, for the threads.
#[derive(Clone, Copy)]
struct Place(NonNull<Work>);

// SAFETY: the work may be shared, as said above.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    /// # Safety
    /// The work still exists, and nobody changes it meanwhile.
    unsafe fn work(&self) -> &Work {
        // SAFETY: the caller's promise.
        unsafe { self.0.as_ref() }
    }
}

impl Work {
    /// Makes pieces until none is left.
    fn run(&self) {
        let mut rows: [(Row, &[f32]); MAX_ROWS_AHEAD] = [(Row::default(), &[]); MAX_ROWS_AHEAD];
        let (count, rows_ahead, time) = self.ring;
        // SAFETY: the plan, its coefficients and the ciphers are the backend's, which is still there.
        let ciphers = unsafe {
            for (to, (row, coefs)) in rows.iter_mut().zip(&self.rows[..count]) {
                *to = (*row, &**coefs);
            }
            &*self.ciphers
        };
        let kernel = match self.kernel {
            Kernel::Blt { row, buffers, fresh } => {
                StepKernel::Blt { row, scale: &self.scale[..buffers], decay: &self.decay[..buffers], fresh }
            }
            Kernel::Ring { row } => StepKernel::Ring { row, coefs: rows[0].1 },
            Kernel::Regenerate => StepKernel::Regenerate { terms: &self.terms },
        };
        let job = Job {
            ciphers,
            output: Output::Store,
            dither: DitherKey::default(),
            kernel: &kernel,
            slots: self.slots,
            ring: RingJob { future: &rows[..count], rows_ahead, time },
            phase: Phase::Make,
            fold: self.fold,
        };
        // SAFETY: the backend lent its state, and the staged row is this value's own; the counter gives every piece to one thread.
        unsafe {
            assignment::make_pieces(self.vector, &job, &self.shard, self.staged, self.state, &self.next);
        }
    }
}
