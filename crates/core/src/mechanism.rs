//! The mechanism makes each step exactly once, in order, and none past the end of the plan.

mod batch;
mod replay;
mod resume;

use crate::backend::{Backend, Step};
use crate::checkpoint::{self, Checkpoint, Info};
use crate::cpu::{Cpu, CpuOptions};
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::fork::Process;
use crate::form::Kernel;
use crate::gradients::Gradients;
use crate::key::{Key, RunKey};
use crate::layout::Shard;
use crate::ledger::{self, Claim, Start};
use crate::plan::{Fingerprint, Plan};
use crate::row::{Incarnations, Row};
use batch::Admitted;
use std::mem::ManuallyDrop;
use std::path::Path;

/// A running mechanism: a plan, a key, a place in the plan, and the state on some device.
///
/// # Guarantees
/// - Step `t` is made once: adding one row to two gradients would reveal their difference, so there is no way back.
/// - No step past `num_steps` is made: the claim covers no more.
/// - Where the plan draws batches, no step is made without its batch: [`Mechanism::for_batch`], or by name
///   [`Mechanism::unchecked_batch`].
/// - Rejected input changes nothing. A step that fails half-way poisons the mechanism: every later call says so.
/// - The noise depends on key, plan, run id, step, incarnation and coordinate; not on threads, sharding or device.
/// - A resumed run makes no row that another incarnation of the run made, unless [`Resume::Exact`] asks for it. What a dead incarnation
///   released after its last checkpoint was released all the same: no claim of the plan covers those steps twice.
pub struct Mechanism<B = Cpu> {
    plan: Plan,
    key: Key,
    run_key: RunKey,
    /// The public name of the run, kept because deriving it takes longer than a small step.
    commitment: Fingerprint,
    shard: Shard,
    incarnations: Incarnations,
    next_step: u64,
    poisoned: Option<u64>,
    /// While the device counts steps: how many from `next_step` on were handed over, and what the claim counted before.
    replaying: Option<(u64, u64)>,
    /// The step whose batch is known or vouched for.
    admitted: Option<Admitted>,
    /// Scratch memory that every step reuses, so that a step allocates nothing.
    terms: Vec<(Row, f32)>,
    /// The process that the mechanism was made in: a fork of it must not make the same rows.
    process: Process,
    /// The entry of this mechanism in the key's ledger; none where there is no ledger.
    claim: ManuallyDrop<Option<Claim>>,
    /// The reason why no step can be made before a state was loaded, if there is one.
    refused: Option<String>,
    /// Incarnations that this object had before, and the step after the last that each of them made.
    past: Vec<(Vec<u8>, u64)>,
    backend: ManuallyDrop<B>,
}

impl<B> Drop for Mechanism<B> {
    fn drop(&mut self) {
        // In a forked child, threads and devices are the parent's: waiting for them would not end. The claim is the parent's too.
        if self.process.is_current() {
            // SAFETY: neither is used again: this is the end of the mechanism.
            unsafe {
                ManuallyDrop::drop(&mut self.backend);
                ManuallyDrop::drop(&mut self.claim);
            }
        }
    }
}

/// What a resumed run does about rows that the dead run made after the checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// The resumed run never makes those rows again: all rows from here on come from a key of their own, derived with a fresh random nonce.
    /// However often a checkpoint is resumed, copied or rolled back to, no two incarnations share a row.
    #[default]
    NewIncarnation,
    /// A fresh key, too, but from a nonce that all processes of the run share: one process draws it and sends it to the others. It must
    /// never have been used before.
    SharedIncarnation([u8; Incarnations::NONCE_LEN]),
    /// The run goes on bit for bit. This is only for a run of which it is certain that it released nothing after the checkpoint.
    Exact,
}

/// Options of [`Mechanism::save_with`]: what to write besides the state.
#[derive(Clone, Copy, Debug, Default)]
pub struct SaveOptions {
    /// Stores the key in the file, so that the file alone resumes the run.
    pub include_key: bool,
}

impl Mechanism<Cpu> {
    /// Begins a run on the CPU, with all cores.
    pub fn cpu(plan: &Plan, key: Key, shard: Shard) -> Result<Self> {
        Self::cpu_with(plan, key, shard, CpuOptions::default())
    }

    /// Begins a run on the CPU, with options.
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

    /// Goes on from checkpoints in place of where this mechanism is now; see [`Mechanism::reload_from`].
    pub fn reload_cpu(
        &mut self,
        checkpoints: Vec<Checkpoint>,
        resume: Resume,
        options: CpuOptions,
    ) -> Result<()> {
        let plan = self.plan.clone();
        self.reload_from(checkpoints, resume, |keys, shard| Cpu::new(&plan, keys, shard, options))
    }

    /// Adds the noise of the next step to a shard of one segment.
    pub fn add_to<E: Element>(&mut self, gradient: &mut [E]) -> Result<()> {
        self.add_to_all(&mut [gradient])
    }

    /// Adds the noise of the next step to one slice per segment of the shard.
    pub fn add_to_all<E: Element>(&mut self, gradients: &mut [&mut [E]]) -> Result<()> {
        self.run_step(Gradients::new(gradients))
    }

    /// The bytes of state that this process holds.
    pub fn state_bytes(&self) -> u64 {
        self.backend.state_bytes()
    }

    /// A text for people that names the instructions and the threads in use.
    pub fn describe(&self) -> String {
        self.backend.describe()
    }
}

impl<B: Backend> Mechanism<B> {
    /// Begins a run on a backend that was made for this plan; `backend` receives the keys of the run's incarnations by number.
    pub fn with_backend(
        plan: &Plan,
        key: Key,
        shard: Shard,
        backend: impl FnOnce(&[RunKey], &Shard) -> Result<B>,
    ) -> Result<Self> {
        Self::build(plan, key, shard, Incarnations::first(), 0, Some(Start::First), backend)
    }

    /// Does what [`Mechanism::with_backend`] does, for programs that make the mechanism first and then load a state into it
    /// ([`Mechanism::reload_from`]): what the ledger refuses is refused at the first step, unless a state was loaded before.
    pub fn awaiting_state(
        plan: &Plan,
        key: Key,
        shard: Shard,
        mut backend: impl FnMut(&[RunKey], &Shard) -> Result<B>,
    ) -> Result<Self> {
        match Self::with_backend(plan, key.duplicate(), shard.clone(), &mut backend) {
            Err(Error::Repeated(why)) => {
                let first = Incarnations::first();
                let mut mechanism = Self::build(plan, key, shard, first, 0, None, backend)?;
                mechanism.refused = Some(why);
                Ok(mechanism)
            }
            other => other,
        }
    }

    /// Claims the rows from `next_step` on before it makes the backend: a start that is refused has done nothing. Without a `start`,
    /// the caller has a claim.
    fn build(
        plan: &Plan,
        key: Key,
        shard: Shard,
        incarnations: Incarnations,
        next_step: u64,
        start: Option<Start>,
        backend: impl FnOnce(&[RunKey], &Shard) -> Result<B>,
    ) -> Result<Self> {
        let run_key = key.run_key(plan.fingerprint());
        let commitment = run_key.commitment();
        let rows = || ledger::rows_of(commitment.to_string(), incarnations.last_nonce(), &shard);
        let claim = match start {
            Some(start) => key.ledger().claim(rows, next_step, start)?,
            None => None,
        };
        let keys: Vec<RunKey> = incarnations.nonces().map(|nonce| run_key.incarnation(nonce)).collect();
        let backend = backend(&keys, &shard)?;
        let max_terms = match plan.form().kernel() {
            Kernel::Regenerate(regenerate) => regenerate.max_terms(),
            _ => 0,
        };
        Ok(Mechanism {
            plan: plan.clone(),
            key,
            run_key,
            commitment,
            shard,
            incarnations,
            next_step,
            poisoned: None,
            replaying: None,
            admitted: None,
            terms: Vec::with_capacity(max_terms),
            process: Process::current(),
            claim: ManuallyDrop::new(claim),
            refused: None,
            past: Vec::new(),
            backend: ManuallyDrop::new(backend),
        })
    }

    /// Adds the noise of the next step to gradients as the backend takes them.
    pub fn run_step(&mut self, gradients: B::Gradients<'_, '_>) -> Result<()> {
        let step = self.next_step;
        self.check_usable()?;
        if step >= self.plan.num_steps() {
            return Err(Error::PastEnd { step, num_steps: self.plan.num_steps() });
        }
        self.check_admitted()?;
        self.backend.check(&gradients)?;
        let _span = tracing::trace_span!("step", step).entered();
        // The mark is set before and cleared after, so that neither an error nor a panic leaves a usable mechanism behind.
        self.poisoned = Some(step);
        // A step is counted before it is made: whenever the process dies, the ledger knows of every row that was released.
        self.count(step + 1);
        let lowered = Step::lower(&self.plan, step, &self.incarnations, &mut self.terms)?;
        let outcome = self.backend.step(&lowered, gradients);
        // An overflow is a whole step with a useless result: its noise is used up, and the state is that after it.
        if matches!(outcome, Ok(()) | Err(Error::Overflow { .. })) {
            self.poisoned = None;
            self.next_step += 1;
        }
        outcome
    }

    /// Begins to make the noise of the next step in the background, so that the step itself only adds it: to be called when the last
    /// gradient was handed over and before the next one is computed. The bits are the same with and without.
    ///
    /// Nothing is released or counted: the row belongs to the next step, whenever that is made, and is made once. A second call does
    /// nothing, nor does one after the last step, so a loop may end with it. A checkpoint saved in between is that of the state before
    /// the step, and whoever resumes from it makes the row again under a key of its own.
    ///
    /// While the device counts steps, it is for the step that is enqueued next: within a capture it becomes a branch of the graph, to be
    /// opened where the graph begins; outside of one it does nothing.
    pub fn prepare(&mut self) -> Result<()> {
        if self.replaying.is_some() {
            self.check_whole()?;
            return self.backend.prepare_counted().inspect_err(|_| self.poisoned = Some(self.next_step));
        }
        self.check_usable()?;
        let step = self.next_step;
        if step >= self.plan.num_steps() {
            return Ok(());
        }
        // As for a step: neither an error nor a panic leaves a usable mechanism behind.
        self.poisoned = Some(step);
        let lowered = Step::lower(&self.plan, step, &self.incarnations, &mut self.terms)?;
        let outcome = self.backend.prepare(&lowered);
        // Where there is no memory or no thread for it, nothing was begun, and the step can still be made.
        if !matches!(outcome, Err(Error::Worker { .. })) {
            self.poisoned = None;
        }
        outcome
    }

    /// Records in the ledger that all steps before `next_step` are made.
    fn count(&self, next_step: u64) {
        if let Some(claim) = &*self.claim {
            claim.advance(next_step);
        }
    }

    /// Refuses to go on in a fork, after a step that failed half-way, and where the ledger refused the start.
    fn check_whole(&self) -> Result<()> {
        match (self.poisoned, &self.refused) {
            _ if !self.process.is_current() => Err(Error::Forked),
            (Some(step), _) => Err(Error::Poisoned { step }),
            (None, Some(why)) => Err(Error::Repeated(why.clone())),
            (None, None) => Ok(()),
        }
    }

    /// Checks whether a step could be made now: refuses a fork, a poisoned mechanism, a replay, and a device that is not ready.
    pub fn check_usable(&self) -> Result<()> {
        self.check_whole()?;
        match self.replaying {
            Some((count, _)) => {
                Err(Error::Replaying { first: self.next_step, last: self.next_step + count.max(1) - 1 })
            }
            None => self.backend.check_ready(),
        }
    }

    /// Writes a checkpoint without the key; the file appears whole or not at all. It is as secret as the key.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_with(path, SaveOptions::default())
    }

    /// Writes a checkpoint, with the key if the options say so.
    pub fn save_with(&self, path: impl AsRef<Path>, options: SaveOptions) -> Result<()> {
        self.check_usable()?;
        let _span = tracing::debug_span!("save", step = self.next_step).entered();
        let key = options.include_key.then_some(&self.key);
        // A key that is stored keeps its ledger. A folder whose name is no text cannot be stored: the file then has one beside it.
        let ledger = key.and_then(|key| key.ledger().path()).filter(|folder| folder.to_str().is_some());
        let info = Info { ledger, ..self.info() };
        checkpoint::write(path.as_ref(), &self.content(&info, key))
    }

    /// A checkpoint without the key, as bytes: what [`Mechanism::save`] writes, for [`Checkpoint::from_bytes`]. It is as secret as the
    /// key; whoever holds it should wipe it.
    pub fn state(&self) -> Result<Vec<u8>> {
        self.check_usable()?;
        let _span = tracing::debug_span!("state", step = self.next_step).entered();
        checkpoint::to_bytes(&self.content(&self.info(), None))
    }

    fn info(&self) -> Info {
        Info {
            version: checkpoint::VERSION,
            plan: self.plan.fingerprint().to_string(),
            space: self.shard.space().to_string(),
            segments: self.shard.segments().iter().map(|segment| (segment.start, segment.end)).collect(),
            key_commitment: self.commitment.to_string(),
            run_id: self.key.run_id().to_owned(),
            next_step: self.next_step,
            incarnations: self.incarnations.clone(),
            ledger: None,
        }
    }

    fn content<'a>(&'a self, info: &'a Info, key: Option<&'a Key>) -> checkpoint::Content<'a, B> {
        let form = self.plan.form();
        checkpoint::Content {
            info,
            run_key: &self.run_key,
            key,
            slots: form.num_slots(),
            backend: &self.backend,
        }
    }

    /// The backend that makes the steps.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The step that the next call will make; while a graph is replayed, the first step handed over.
    pub fn next_step(&self) -> u64 {
        self.next_step
    }

    /// The plan that the mechanism runs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The coordinates that this process makes noise for.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }
}
