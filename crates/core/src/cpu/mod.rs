//! The CPU engine: fused passes over tiles, on any number of threads, with bits that depend on neither.

mod assignment;
#[cfg(target_arch = "x86_64")]
mod avx2;
mod blt;
mod kernels;
mod lanes;
mod pool;
mod prefetch;
mod prepare;
mod regenerate;
mod ring;
mod row_parts;
mod state;
#[cfg(test)]
mod tests;

use crate::backend::{Backend, Step, StepKernel};
use crate::chacha::ChaCha;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::form::{self, Form};
use crate::gradients::Gradients;
use crate::grid::{DitherBlock, DitherKey};
use crate::key::RunKey;
use crate::layout::Shard;
use crate::plan::Plan;
use crate::row::{Family, Row};
use crate::with_element;
use assignment::{PIECE, Target, run_pieces};
use kernels::{Fold, Job, Output, Phase};
pub(crate) use lanes::Stored;
use pool::{Panicked, Pool};
use prepare::{Lent, Prepared};
use ring::RingJob;
pub use row_parts::{RowPart, RowSink, row_parts};
use state::State;
use std::sync::Arc;

/// The instruction set that kernels use. The bits of the noise are the same with any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isa {
    /// The fastest instructions that this machine has.
    #[default]
    Auto,
    /// Plain Rust, one coordinate at a time: for comparison, and for machines without a vector path.
    Scalar,
}

/// Options of the CPU engine, none of which changes the noise.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuOptions {
    /// The number of threads, the caller's included; 0 means one per core.
    pub threads: usize,
    /// The instructions that the kernels use.
    pub isa: Isa,
    /// Keeps a ring in its least memory. By default a ring of 9 bands or more makes rows ahead, which is several times as
    /// fast and takes 7 more rows of state.
    pub compact: bool,
    /// The number of threads that make rows ahead of their step ([`crate::Mechanism::prepare`]), at a low priority; 0 means one per four
    /// cores, and at least one.
    pub prepare_threads: usize,
}

/// The CPU backend of a [`crate::Mechanism`].
pub struct Cpu {
    /// One cipher per incarnation of the run, by number.
    ciphers: Vec<ChaCha>,
    shard: Arc<Shard>,
    pool: Pool,
    vector: bool,
    state: State,
    /// The plan, if its form is a ring: rows are made ahead from it.
    ring: Option<Plan>,
    /// The number of rows of a ring that a tile makes at a time, that of the step at hand included.
    rows_ahead: usize,
    /// The number of steps since this backend was made or restored.
    time: u64,
    /// The words of the dither's row at hand, which serve several steps.
    dither: Option<DitherBlock>,
    /// The decays of a BLT: a row that was prepared is folded into the buffers when they are read.
    decay: Vec<f32>,
    prepare_threads: usize,
    /// The row made ahead, from the first `prepare` on.
    prepared: Option<Prepared>,
}

impl Drop for Cpu {
    fn drop(&mut self) {
        // Threads in the background use the state and the ciphers. A ring holds the row that they made.
        if self.prepared.take().is_some() && self.ring.is_some() {
            self.state.clear();
        }
    }
}

impl Cpu {
    /// A backend whose state is that before the first step. `keys` are those of the run's incarnations, by number.
    pub fn new(plan: &Plan, keys: &[RunKey], shard: &Shard, options: CpuOptions) -> Result<Cpu> {
        let threads = match options.threads {
            0 => cores(),
            threads => threads,
        };
        let is_ring = matches!(plan.form().kernel(), form::Kernel::Ring(_));
        let rows_ahead = rows_ahead(plan.form(), options);
        let spawn_error = |error| Error::Device(format!("cannot start {threads} threads: {error}"));
        Ok(Cpu {
            ciphers: keys.iter().map(|key| ChaCha::new(key.bytes(), plan.rounds())).collect(),
            shard: Arc::new(shard.clone()),
            pool: Pool::new(threads).map_err(spawn_error)?,
            vector: options.isa == Isa::Auto && has_vector_path(),
            state: new_state(plan.form(), shard.num_coords(), rows_ahead)?,
            ring: is_ring.then(|| plan.clone()),
            rows_ahead,
            time: 0,
            dither: None,
            decay: match plan.form().kernel() {
                form::Kernel::Blt(blt) => blt.decay().to_vec(),
                _ => Vec::new(),
            },
            prepare_threads: match options.prepare_threads {
                0 => (cores() / 4).max(1),
                threads => threads,
            },
            prepared: None,
        })
    }

    /// A text for people that names the instructions and the threads in use.
    pub fn describe(&self) -> String {
        format!("{}, {} threads", if self.vector { "AVX2 + FMA" } else { "scalar" }, self.pool.threads())
    }

    /// The physical slot that holds a canonical one.
    fn physical(&self, slot: usize) -> usize {
        let slots = self.state.slots();
        if self.ring.is_some() && slots > 0 { ring::slot(self.time, slot + 1, slots) } else { slot }
    }

    /// Refuses a step of another plan than the one this backend was made for.
    fn check_fits(&self, step: &Step<'_>) -> Result<()> {
        let slots = self.state.slots();
        let fits = match &step.kernel {
            StepKernel::Blt { scale, decay, .. } => {
                self.ring.is_none() && scale.len() == slots && decay.len() == slots
            }
            StepKernel::Ring { coefs, .. } => self.ring.is_some() && coefs.len() <= slots,
            StepKernel::Regenerate { .. } => self.ring.is_none(),
        };
        let known = |row: &Row| usize::from(row.incarnation()) < self.ciphers.len();
        let rows_known = known(&step.dither)
            && match &step.kernel {
                StepKernel::Blt { row, .. } | StepKernel::Ring { row, .. } => known(row),
                StepKernel::Regenerate { terms } => terms.iter().all(|(row, _)| known(row)),
            };
        match fits && rows_known {
            true => Ok(()),
            false => {
                Err(Error::Device(format!("step {} is not one of this backend's plan and run", step.number)))
            }
        }
    }

    /// The bytes of state that this backend holds: the form's, a few rows more for a ring that is made ahead, and one more once
    /// [`crate::Mechanism::prepare`] was called.
    pub fn state_bytes(&self) -> u64 {
        self.state.bytes() + self.prepared.as_ref().map_or(0, Prepared::bytes)
    }

    /// The secret words of a step's dither. Their block is kept: making it takes as long as a tenth of a small step.
    fn dither(&mut self, step: &Step<'_>) -> DitherKey {
        let held = self.dither.as_ref().filter(|block| block.row() == step.dither);
        let cipher = &self.ciphers[usize::from(step.dither.incarnation())];
        let block = held.cloned().unwrap_or_else(|| DitherBlock::new(cipher, step.dither));
        let key = block.key(step.number);
        self.dither = Some(block);
        key
    }

    fn run<G: Element>(&mut self, step: &Step<'_>, slices: &mut [&mut [G]]) -> Result<()> {
        let ready = self.begin(step)?;
        let dither = self.dither(step);
        let overflow = self.pass(step, ready, Output::Add(step.add), dither, Target::Segments(slices))?;
        self.end(ready);
        if overflow { Err(Error::Overflow { step: step.number }) } else { Ok(()) }
    }

    /// Begins a step: says which part of its work is left, and what a BLT has to fold in first.
    fn begin(&mut self, step: &Step<'_>) -> Result<(Phase, Fold)> {
        self.check_fits(step)?;
        match &self.prepared {
            Some(prepared) if prepared.step().is_some() => {
                prepared.help(&mut self.pool, step.number)?;
                if prepared.step() != Some(step.number) {
                    return Err(Error::Device(format!(
                        "step {} is not the one that was prepared",
                        step.number
                    )));
                }
                Ok((Phase::Add, Fold::Nothing))
            }
            prepared => Ok((Phase::Fused, prepared.as_ref().map_or(Fold::Nothing, Prepared::fold))),
        }
    }

    /// Runs the kernels of a step that has begun over all of its coordinates or some. Returns true if a gradient left its type's range.
    fn pass<G: Element>(
        &mut self,
        step: &Step<'_>,
        (phase, fold): (Phase, Fold),
        output: Output,
        dither: DitherKey,
        target: Target<'_, '_, G>,
    ) -> Result<bool> {
        let mut rows = [(Row::default(), &[][..]); ring::MAX_ROWS_AHEAD];
        let made = future(self.ring.as_ref(), self.rows_ahead, step, &mut rows)?;
        let ring = RingJob { future: &rows[..made], rows_ahead: self.rows_ahead, time: self.time };
        let (ciphers, slots) = (&self.ciphers[..], self.state.slots());
        let job = Job { ciphers, output, dither, kernel: &step.kernel, slots, ring, phase, fold };
        let staged = self.prepared.as_mut().map_or(&mut [][..], Prepared::staged_mut);
        let state = self.state.values_mut();
        let overflow = run_pieces(&mut self.pool, self.vector, &job, &self.shard, target, staged, state);
        overflow.map_err(|Panicked| Error::Worker { step: step.number })
    }

    /// Ends a step whose passes covered every coordinate once.
    fn end(&mut self, (phase, _): (Phase, Fold)) {
        if let Some(prepared) = &mut self.prepared {
            prepared.stepped(phase == Phase::Add);
        }
        self.time += 1;
    }

    /// Starts to make the row of a step in the background; see [`Backend::prepare`].
    fn start(&mut self, step: &Step<'_>) -> Result<()> {
        self.check_fits(step)?;
        if self.prepared.is_none() {
            // The threads first: what fails here must not leave a larger ring behind.
            let prepared = Prepared::new(&self.shard, self.prepare_threads, self.ring.is_some())?;
            self.make_room()?;
            self.prepared = Some(prepared);
        }
        let mut rows = [(Row::default(), &[][..]); ring::MAX_ROWS_AHEAD];
        let made = future(self.ring.as_ref(), self.rows_ahead, step, &mut rows)?;
        let ring = RingJob { future: &rows[..made], rows_ahead: self.rows_ahead, time: self.time };
        let lent = Lent { ciphers: &self.ciphers, state: &mut self.state, ring, vector: self.vector };
        let Some(prepared) = &mut self.prepared else { return Ok(()) };
        // SAFETY: ciphers, plan and state are on the heap, and every use of them in this file waits for the threads first.
        unsafe { prepared.start(step, lent) }
    }

    /// Gives a ring one row more, in which the next output is made while the oldest one is still there.
    fn make_room(&mut self) -> Result<()> {
        let Some(plan) = &self.ring else { return Ok(()) };
        if self.state.slots() > rows_held(plan.form(), self.rows_ahead) {
            return Ok(());
        }
        let (kept, len) = (plan.form().num_slots(), self.shard.num_coords());
        let mut state = State::new(len, self.state.slots() + 1, ring::chunk(self.rows_ahead))?;
        // In pieces, so that little memory is needed besides.
        let mut bytes = vec![0; PIECE * form::STATE_BYTES];
        for slot in 0..kept {
            for first in (0..len).step_by(PIECE) {
                let part = &mut bytes[..form::STATE_BYTES * (len - first).min(PIECE as u64) as usize];
                self.state.read(&self.shard, self.physical(slot), first, part);
                let to = ring::slot(0, slot + 1, state.slots());
                state.write(&self.shard, to, first, part);
            }
        }
        self.state.clear();
        (self.state, self.time) = (state, 0);
        Ok(())
    }

    /// Waits for threads in the background.
    fn settle(&self) -> Result<()> {
        match &self.prepared {
            Some(prepared) => prepared.wait(prepared.step().unwrap_or(0)),
            None => Ok(()),
        }
    }
}

/// Writes the rows and coefficients of a ring at this step and at those that a tile may make with it; returns how many.
fn future<'a>(
    plan: Option<&'a Plan>,
    rows_ahead: usize,
    step: &Step<'a>,
    out: &mut [(Row, &'a [f32])],
) -> Result<usize> {
    let (StepKernel::Ring { row, coefs }, Some(plan)) = (&step.kernel, plan) else { return Ok(0) };
    out[0] = (*row, coefs);
    let rest = plan.num_steps().saturating_sub(step.number + 1);
    let count = rows_ahead.min(usize::try_from(rest).unwrap_or(usize::MAX).saturating_add(1));
    for (k, next) in out[..count].iter_mut().enumerate().skip(1) {
        let number = step.number + k as u64;
        // An incarnation begins only when a run is resumed: all rows made from here on belong to this step's.
        *next = (Row::new(Family::Step, row.incarnation(), number)?, plan.form().ring_coefs(number));
    }
    Ok(count)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn has_vector_path() -> bool {
    #[cfg(target_arch = "x86_64")]
    return avx2::is_available();
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// The number of rows of a ring that a tile makes at a time; 1 where nothing is made ahead.
fn rows_ahead(form: &Form, options: CpuOptions) -> usize {
    let is_ring = matches!(form.kernel(), form::Kernel::Ring(_));
    if is_ring && !options.compact { ring::rows_ahead(form.num_slots()) } else { 1 }
}

/// The number of rows of state: the form's, and those made ahead.
fn rows_held(form: &Form, rows_ahead: usize) -> usize {
    form.num_slots() + rows_ahead - 1
}

/// The bytes of state per coordinate that a backend with these options holds: [`Cpu::state_bytes`] of one coordinate.
pub(crate) fn bytes_per_coord(form: &Form, options: CpuOptions) -> u64 {
    (rows_held(form, rows_ahead(form, options)) * form::STATE_BYTES) as u64
}

fn new_state(form: &Form, num_coords: u64, rows_ahead: usize) -> Result<State> {
    let chunk = match form.kernel() {
        form::Kernel::Ring(_) => ring::chunk(rows_ahead),
        _ => PIECE,
    };
    State::new(num_coords, rows_held(form, rows_ahead), chunk)
}

impl Backend for Cpu {
    type Gradients<'list, 'memory: 'list> = Gradients<'list, 'memory>;

    fn check(&self, gradients: &Gradients<'_, '_>) -> Result<()> {
        gradients.check(&self.shard)
    }

    fn step(&mut self, step: &Step<'_>, gradients: Gradients<'_, '_>) -> Result<()> {
        with_element!(gradients.dtype(), E => self.run::<E>(step, gradients.slices().unwrap_or_default()))
    }

    fn prepare(&mut self, step: &Step<'_>) -> Result<()> {
        let is_made = self.prepared.as_ref().is_some_and(|prepared| prepared.step() == Some(step.number));
        // A step of some microseconds is over sooner than a thread wakes up.
        if is_made || assignment::is_small(&step.kernel, &self.shard) { Ok(()) } else { self.start(step) }
    }

    fn read_state(&self, slot: usize, first: u64, bytes: &mut [u8]) -> Result<()> {
        self.settle()?;
        let physical = self.physical(slot);
        self.state.read(&self.shard, physical, first, bytes);
        let Some(prepared) = self.prepared.as_ref().filter(|_| !self.decay.is_empty()) else { return Ok(()) };
        match prepared.fold() {
            Fold::Nothing => {}
            Fold::Reset => prepared.staged().read(&self.shard, 0, first, bytes),
            Fold::Update => {
                let mut row = vec![0; bytes.len()];
                prepared.staged().read(&self.shard, 0, first, &mut row);
                let (values, row) = (bytes.as_chunks_mut::<4>().0, row.as_chunks::<4>().0);
                for (m, z) in values.iter_mut().zip(row) {
                    let (value, z) = (f32::from_le_bytes(*m), f32::from_le_bytes(*z));
                    *m = self.decay[slot].mul_add(value, z).to_le_bytes();
                }
            }
        }
        Ok(())
    }

    fn write_state(&mut self, slot: usize, first: u64, bytes: &[u8]) -> Result<()> {
        // A row that was made from another state is of no use.
        if self.prepared.as_ref().is_some_and(|prepared| self.ring.is_none() || prepared.step().is_some()) {
            self.settle()?;
            self.prepared = None;
        }
        let physical = self.physical(slot);
        self.state.write(&self.shard, physical, first, bytes);
        Ok(())
    }
}
