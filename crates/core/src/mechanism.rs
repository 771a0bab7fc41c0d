//! The mechanism: each step exactly once, in order, never past the end.

use crate::backend::{Backend, Replay, Step};
use crate::checkpoint::{self, Checkpoint, Info};
use crate::cpu::{Cpu, CpuOptions, Element};
use crate::error::{Error, Result};
use crate::form::Kernel;
use crate::key::{Key, RunKey, os_random};
use crate::layout::Shard;
use crate::plan::Plan;
use crate::row::{Incarnations, Row};
use crate::sampler::Batch;
use std::path::Path;

/// A running mechanism: a plan, a key, a place in the plan, and the state on some device.
///
/// # Guarantees
/// - Step `t` is made once: adding one row to two gradients would reveal their difference, so there is no way back.
/// - No step past `num_steps`: the claim covers no more.
/// - Rejected input changes nothing. A step that fails half-way poisons the mechanism: every later call says so.
/// - The noise depends on key, plan, run id, step, incarnation and coordinate; not on threads, sharding or device.
/// - A resumed run makes no row that another life of the run made, unless [`Resume::Exact`] asks for it. What a dead life
///   released after its last checkpoint was released all the same: no claim of the plan covers those steps twice.
pub struct Mechanism<B = Cpu> {
    plan: Plan,
    key: Key,
    run_key: RunKey,
    shard: Shard,
    incarnations: Incarnations,
    next_step: u64,
    poisoned: Option<u64>,
    /// How many steps from `next_step` on are the device's to count.
    replaying: Option<u64>,
    /// Reused by every step, so that a step allocates nothing.
    terms: Vec<(Row, f32)>,
    backend: B,
}

/// What a resumed run does about rows that the dead run made after the checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// Never makes them again: all rows from here on come from a key of their own, derived with a fresh random nonce.
    /// However often a checkpoint is resumed, copied or rolled back to, no two lives share a row.
    #[default]
    NewIncarnation,
    /// The same, with a nonce that all processes of the run share: one process draws it and sends it to the others. It must
    /// never have been used before.
    SharedIncarnation([u8; Incarnations::NONCE_LEN]),
    /// Goes on bit for bit. Only for a run of which it is certain that it released nothing after the checkpoint.
    Exact,
}

/// What to write besides the state.
#[derive(Clone, Copy, Debug, Default)]
pub struct SaveOptions {
    /// Store the key in the file, so that it alone resumes the run.
    pub include_key: bool,
}

impl Mechanism<Cpu> {
    /// A new run on the CPU, with all cores.
    pub fn cpu(plan: &Plan, key: Key, shard: Shard) -> Result<Self> {
        Self::cpu_with(plan, key, shard, CpuOptions::default())
    }

    /// A new run on the CPU.
    pub fn cpu_with(plan: &Plan, key: Key, shard: Shard, options: CpuOptions) -> Result<Self> {
        Self::with_backend(plan, key, shard, |keys, shard| Cpu::new(plan, keys, shard, options))
    }

    /// Goes on from checkpoints on the CPU; see [`Mechanism::resume_with`].
    pub fn resume_cpu(
        plan: &Plan,
        key: Key,
        shard: Shard,
        files: &[impl AsRef<Path>],
        resume: Resume,
        options: CpuOptions,
    ) -> Result<Self> {
        Self::resume_with(plan, key, shard, files, resume, |run_key, shard| {
            Cpu::new(plan, run_key, shard, options)
        })
    }

    /// Adds the noise of the next step to a shard of one segment.
    pub fn add_to<E: Element>(&mut self, gradient: &mut [E]) -> Result<()> {
        self.add_to_all(&mut [gradient])
    }

    /// Adds the noise of the next step to one slice per segment of the shard.
    pub fn add_to_all<E: Element>(&mut self, gradients: &mut [&mut [E]]) -> Result<()> {
        self.run_step(E::gradients(gradients))
    }

    /// Bytes of state that this process holds.
    pub fn state_bytes(&self) -> u64 {
        self.backend.state_bytes()
    }

    /// What runs, for people: instructions and threads.
    pub fn describe(&self) -> String {
        self.backend.describe()
    }
}

impl<B: Backend> Mechanism<B> {
    /// A new run on a backend that was made for this plan; `backend` receives the keys of the run's lives by number.
    pub fn with_backend(
        plan: &Plan,
        key: Key,
        shard: Shard,
        backend: impl FnOnce(&[RunKey], &Shard) -> Result<B>,
    ) -> Result<Self> {
        Self::build(plan, key, shard, Incarnations::first(), backend)
    }

    fn build(
        plan: &Plan,
        key: Key,
        shard: Shard,
        incarnations: Incarnations,
        backend: impl FnOnce(&[RunKey], &Shard) -> Result<B>,
    ) -> Result<Self> {
        let run_key = key.run_key(plan.fingerprint());
        let lives: Vec<RunKey> = incarnations.nonces().map(|nonce| run_key.life(nonce)).collect();
        let backend = backend(&lives, &shard)?;
        let max_terms = match plan.form().kernel() {
            Kernel::Regenerate(regenerate) => regenerate.max_terms(),
            _ => 0,
        };
        Ok(Mechanism {
            plan: plan.clone(),
            key,
            run_key,
            shard,
            incarnations,
            next_step: 0,
            poisoned: None,
            replaying: None,
            terms: Vec::with_capacity(max_terms),
            backend,
        })
    }

    /// Goes on from any set of files that together hold the shard's coordinates, however the saving run was sharded.
    pub fn resume_with(
        plan: &Plan,
        key: Key,
        shard: Shard,
        files: &[impl AsRef<Path>],
        resume: Resume,
        backend: impl FnOnce(&[RunKey], &Shard) -> Result<B>,
    ) -> Result<Self> {
        let _span = tracing::debug_span!("resume", files = files.len()).entered();
        let run_key = key.run_key(plan.fingerprint());
        let mut checkpoints = Vec::new();
        for file in files {
            let checkpoint = Checkpoint::open(file)?;
            checkpoint.check(plan, &run_key, &shard)?;
            checkpoints.push(checkpoint);
        }
        let Some(first) = checkpoints.first().map(|checkpoint| checkpoint.info().clone()) else {
            return Err(Error::length("list of checkpoints", 0, "at least 1"));
        };
        for other in &checkpoints[1..] {
            if (other.info().next_step, &other.info().incarnations) != (first.next_step, &first.incarnations)
            {
                return Err(other.refuse(format!(
                    "it is at step {} and the first file at {}, or they resumed differently",
                    other.info().next_step,
                    first.next_step
                )));
            }
        }
        let mut incarnations = first.incarnations;
        match resume {
            Resume::Exact => {}
            Resume::SharedIncarnation(nonce) => incarnations.begin(first.next_step, nonce)?,
            Resume::NewIncarnation => incarnations.begin(first.next_step, os_random()?)?,
        }
        let mut mechanism = Self::build(plan, key, shard, incarnations, backend)?;
        mechanism.restore(&mut checkpoints)?;
        mechanism.next_step = first.next_step;
        Ok(mechanism)
    }

    fn restore(&mut self, checkpoints: &mut [Checkpoint]) -> Result<()> {
        let mut given = Vec::new();
        for checkpoint in checkpoints.iter_mut() {
            let hashes = checkpoint.block_hashes(&self.run_key)?;
            given.extend(checkpoint.restore(&hashes, &self.shard, &mut self.backend)?);
        }
        given.sort_by_key(|range| range.start);
        let covered =
            given.iter().fold(0, |end, range| if range.start <= end { end.max(range.end) } else { end });
        if covered < self.shard.num_coords() {
            return Err(checkpoints[0].refuse(format!(
                "together the files hold the shard's first {covered} coordinates, not all {}",
                self.shard.num_coords()
            )));
        }
        Ok(())
    }

    /// Adds the noise of the next step to gradients as the backend takes them.
    pub fn run_step(&mut self, gradients: B::Gradients<'_, '_>) -> Result<()> {
        let step = self.next_step;
        self.check_usable()?;
        if step >= self.plan.num_steps() {
            return Err(Error::PastEnd { step, num_steps: self.plan.num_steps() });
        }
        self.backend.check(&gradients)?;
        let _span = tracing::trace_span!("step", step).entered();
        // Set before and cleared after, so that neither an error nor a panic leaves a usable mechanism behind.
        self.poisoned = Some(step);
        let lowered = Step::lower(&self.plan, step, &self.incarnations, &mut self.terms)?;
        let outcome = self.backend.step(&lowered, gradients);
        // An overflow is a whole step with a useless result: its noise is used up, and the state is that after it.
        if matches!(outcome, Ok(()) | Err(Error::Overflow { .. })) {
            self.poisoned = None;
            self.next_step += 1;
        }
        outcome
    }

    /// This mechanism, if the batch is that of its plan, its run and its next step: `noise.for_batch(&batch)?.add_to(…)` cannot
    /// add a step's noise to another step's batch. A refusal changes nothing.
    pub fn for_batch(&mut self, batch: &Batch) -> Result<&mut Self> {
        self.check_usable()?;
        let (plan, run) = (self.plan.fingerprint(), self.run_key.commitment());
        if batch.plan() != plan {
            return Err(Error::Batch(format!("it was drawn for plan {}, this is plan {plan}", batch.plan())));
        }
        if batch.run() != run {
            return Err(Error::Batch("it was drawn with another key or for another run id".into()));
        }
        if batch.step() != self.next_step {
            return Err(Error::BatchStep { batch: batch.step(), next_step: self.next_step });
        }
        Ok(self)
    }

    fn check_usable(&self) -> Result<()> {
        if let Some(step) = self.poisoned {
            return Err(Error::Poisoned { step });
        }
        match self.replaying {
            Some(count) => {
                Err(Error::Replaying { first: self.next_step, last: self.next_step + count.max(1) - 1 })
            }
            None => self.backend.check_ready(),
        }
    }

    /// Writes a checkpoint without the key; the file appears whole or not at all. It is as secret as the key.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_with(path, SaveOptions::default())
    }

    /// Writes a checkpoint.
    pub fn save_with(&self, path: impl AsRef<Path>, options: SaveOptions) -> Result<()> {
        self.check_usable()?;
        let _span = tracing::debug_span!("save", step = self.next_step).entered();
        let info = Info {
            version: checkpoint::VERSION,
            plan: self.plan.fingerprint().to_string(),
            space: self.shard.space().to_string(),
            segments: self.shard.segments().iter().map(|segment| (segment.start, segment.end)).collect(),
            key_commitment: self.run_key.commitment().to_string(),
            run_id: self.key.run_id().to_owned(),
            next_step: self.next_step,
            incarnations: self.incarnations.clone(),
            key: options.include_key.then(|| self.key.to_hex()),
        };
        let slots = self.plan.form().num_slots();
        checkpoint::write(path.as_ref(), &info, &self.run_key, slots, &self.backend)
    }

    /// The device.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The step that the next call will make; while a graph is replayed, the first step handed over.
    pub fn next_step(&self) -> u64 {
        self.next_step
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The coordinates this process makes noise for.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }
}

/// Steps that a captured graph replays. The host cannot see a replay, so the device counts them.
///
/// `begin_replay` → capture a stream around `enqueue` → launch the graph up to as often as steps were handed over →
/// `end_replay`. Until then the mechanism refuses to make or save steps of its own.
impl<B: Replay> Mechanism<B> {
    /// Hands the next `num_steps` steps to the device to count.
    pub fn begin_replay(&mut self, num_steps: u64) -> Result<()> {
        self.check_usable()?;
        let end = self.next_step.saturating_add(num_steps);
        if end > self.plan.num_steps() {
            return Err(Error::PastEnd { step: end - 1, num_steps: self.plan.num_steps() });
        }
        // What was scheduled before an error must not run: stopping drops it.
        if let Err(error) = self.hand_over(end) {
            let _ = self.backend.stop();
            return Err(error);
        }
        self.replaying = Some(num_steps);
        Ok(())
    }

    fn hand_over(&mut self, end: u64) -> Result<()> {
        for number in self.next_step..end {
            let step = Step::lower(&self.plan, number, &self.incarnations, &mut self.terms)?;
            self.backend.schedule(&step)?;
        }
        self.backend.start()
    }

    /// Enqueues one step that the device counts; to be called while the stream is captured, once per step of the graph.
    pub fn enqueue(&mut self, gradients: B::Gradients<'_, '_>) -> Result<()> {
        if let Some(step) = self.poisoned {
            return Err(Error::Poisoned { step });
        }
        if self.replaying.is_none() {
            return Err(Error::Device("no step was handed over: call begin_replay first".into()));
        }
        self.backend.check(&gradients)?;
        let outcome = self.backend.enqueue(gradients);
        if outcome.is_err() {
            self.poisoned = Some(self.next_step);
        }
        outcome
    }

    /// Waits for the device, takes the count back and says how many steps were made. A graph that is launched again makes its gradients NaN.
    ///
    /// If it was launched more often than steps were handed over, the gradients of those launches are NaN, and the mechanism is
    /// poisoned.
    pub fn end_replay(&mut self) -> Result<u64> {
        if let Some(step) = self.poisoned {
            return Err(Error::Poisoned { step });
        }
        let Some(handed) = self.replaying else { return Ok(0) };
        self.backend.check_ready()?;
        let made = self.backend.stop().inspect_err(|_| self.poisoned = Some(self.next_step))?;
        self.replaying = None;
        self.next_step += made.min(handed);
        if made > handed {
            self.poisoned = Some(self.next_step);
            return Err(Error::Device(format!(
                "the graph was launched for {made} steps, {handed} were handed over: the gradients of the others are NaN"
            )));
        }
        Ok(made)
    }
}
