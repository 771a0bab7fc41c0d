//! The mechanism: each step exactly once, in order, never past the end.

mod batch;

use crate::backend::{Backend, Replay, Step};
use crate::checkpoint::{self, Checkpoint, Info};
use crate::cpu::{Cpu, CpuOptions, Element};
use crate::error::{Error, Result};
use crate::fork::Process;
use crate::form::Kernel;
use crate::key::{Key, RunKey, os_random};
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
/// - No step past `num_steps`: the claim covers no more.
/// - Where the plan draws batches, no step without its batch: [`Mechanism::for_batch`], or by name
///   [`Mechanism::unchecked_batch`].
/// - Rejected input changes nothing. A step that fails half-way poisons the mechanism: every later call says so.
/// - The noise depends on key, plan, run id, step, incarnation and coordinate; not on threads, sharding or device.
/// - A resumed run makes no row that another life of the run made, unless [`Resume::Exact`] asks for it. What a dead life
///   released after its last checkpoint was released all the same: no claim of the plan covers those steps twice.
pub struct Mechanism<B = Cpu> {
    plan: Plan,
    key: Key,
    run_key: RunKey,
    /// Names the run in public: deriving it takes longer than a small step.
    commitment: Fingerprint,
    shard: Shard,
    incarnations: Incarnations,
    next_step: u64,
    poisoned: Option<u64>,
    /// While the device counts: how many steps from `next_step` on were handed over, and what the claim counted before.
    replaying: Option<(u64, u64)>,
    /// The step whose batch is known or vouched for.
    admitted: Option<Admitted>,
    /// Reused by every step, so that a step allocates nothing.
    terms: Vec<(Row, f32)>,
    /// The process that this was made in: a fork of it must not make the same rows.
    process: Process,
    /// What the key's ledger knows of this mechanism; nothing where there is no ledger.
    claim: ManuallyDrop<Option<Claim>>,
    /// Why no step can be made before a state was loaded.
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

/// What the files say of themselves, if all belong to this plan, run and space, and to one moment of the run.
fn common_info(plan: &Plan, run_key: &RunKey, shard: &Shard, checkpoints: &[Checkpoint]) -> Result<Info> {
    for checkpoint in checkpoints {
        checkpoint.check(plan, run_key, shard)?;
    }
    let Some((first, others)) = checkpoints.split_first() else {
        return Err(Error::length("list of checkpoints", 0, "at least 1"));
    };
    let moment = |checkpoint: &Checkpoint| {
        let info = checkpoint.info();
        (info.next_step, info.incarnations.clone())
    };
    match others.iter().find(|other| moment(other) != moment(first)) {
        None => Ok(first.info().clone()),
        Some(other) => Err(other.refuse(format!(
            "it is at step {} and the first file at {}, or they resumed differently",
            other.next_step(),
            first.next_step()
        ))),
    }
}

/// Begins the incarnation that a resumed run asks for.
fn begin(incarnations: &mut Incarnations, step: u64, resume: Resume) -> Result<Start> {
    match resume {
        Resume::Exact => Ok(Start::Exact),
        Resume::SharedIncarnation(nonce) => incarnations.begin(step, nonce).map(|()| Start::Shared),
        Resume::NewIncarnation => {
            let mut nonce = [0; Incarnations::NONCE_LEN];
            os_random(&mut nonce)?;
            incarnations.begin(step, nonce).map(|()| Start::Fresh)
        }
    }
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
        Self::build(plan, key, shard, Incarnations::first(), 0, Some(Start::First), backend)
    }

    /// As [`Mechanism::with_backend`], for programs that make the mechanism first and then load a state into it
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

    /// Goes on from any set of files that together hold the shard's coordinates, however the saving run was sharded.
    pub fn resume_with(
        plan: &Plan,
        key: Key,
        shard: Shard,
        files: &[impl AsRef<Path>],
        resume: Resume,
        backend: impl FnOnce(&[RunKey], &Shard) -> Result<B>,
    ) -> Result<Self> {
        let checkpoints = files.iter().map(Checkpoint::open).collect::<Result<Vec<_>>>()?;
        Self::resume_from(plan, key, shard, checkpoints, resume, backend)
    }

    /// As [`Mechanism::resume_with`], from checkpoints that are open already: those of files, or of [`Mechanism::state`].
    pub fn resume_from(
        plan: &Plan,
        key: Key,
        shard: Shard,
        checkpoints: Vec<Checkpoint>,
        resume: Resume,
        backend: impl FnOnce(&[RunKey], &Shard) -> Result<B>,
    ) -> Result<Self> {
        let _span = tracing::debug_span!("resume", checkpoints = checkpoints.len()).entered();
        let run_key = key.run_key(plan.fingerprint());
        let info = common_info(plan, &run_key, &shard, &checkpoints)?;
        let mut incarnations = info.incarnations;
        let start = begin(&mut incarnations, info.next_step, resume)?;
        let mut mechanism =
            Self::build(plan, key, shard, incarnations, info.next_step, Some(start), backend)?;
        mechanism.restore(&checkpoints)?;
        Ok(mechanism)
    }

    /// Goes on from checkpoints of the same run in place of where this mechanism is now; an error changes nothing.
    ///
    /// [`Resume::Exact`] is refused if this mechanism made steps of the checkpoint's incarnation after the checkpoint, whatever
    /// incarnations it had since.
    pub fn reload_from(
        &mut self,
        checkpoints: Vec<Checkpoint>,
        resume: Resume,
        backend: impl FnOnce(&[RunKey], &Shard) -> Result<B>,
    ) -> Result<()> {
        if !self.process.is_current() {
            return Err(Error::Forked);
        }
        let info = common_info(&self.plan, &self.run_key, &self.shard, &checkpoints)?;
        let mut incarnations = info.incarnations;
        let start = begin(&mut incarnations, info.next_step, resume)?;
        self.note_made();
        let nonce = incarnations.last_nonce();
        if let Some((_, made)) = self.past.iter().find(|(past, made)| past == nonce && *made > info.next_step)
        {
            return Err(Error::Repeated(format!(
                "this mechanism made {} after this checkpoint: resume with a new incarnation",
                ledger::in_words(&(info.next_step..*made))
            )));
        }
        // Its own claim on this incarnation is no other's.
        let keeps_claim = nonce == self.incarnations.last_nonce() && self.refused.is_none();
        if let (true, Some(claim)) = (keeps_claim, &*self.claim) {
            let rows = ledger::rows_of(self.commitment.to_string(), nonce, &self.shard);
            self.key.ledger().check_again(&rows, info.next_step, claim)?;
        }
        let (key, shard) = (self.key.duplicate(), self.shard.clone());
        let start = (!keeps_claim).then_some(start);
        let mut new = Self::build(&self.plan, key, shard, incarnations, info.next_step, start, backend)?;
        new.restore(&checkpoints)?;
        if keeps_claim {
            std::mem::swap(&mut new.claim, &mut self.claim);
        }
        new.past = std::mem::take(&mut self.past);
        *self = new;
        Ok(())
    }

    /// Remembers how far this mechanism's incarnation came.
    fn note_made(&mut self) {
        let handed_over = self.next_step + self.replaying.map_or(0, |(handed, _)| handed);
        // An incarnation that is where it began has made nothing.
        let made = if handed_over == self.incarnations.last_step() { 0 } else { handed_over };
        let made = made.max(self.poisoned.map_or(0, |step| step + 1));
        let nonce = self.incarnations.last_nonce();
        match self.past.iter_mut().find(|(past, _)| past == nonce) {
            Some((_, before)) => *before = made.max(*before),
            None => self.past.push((nonce.to_vec(), made)),
        }
    }

    fn restore(&mut self, checkpoints: &[Checkpoint]) -> Result<()> {
        let mut given = Vec::new();
        for checkpoint in checkpoints {
            let hashes = checkpoint.block_hashes(&self.run_key)?;
            given.extend(checkpoint.restore(&hashes, &self.shard, &mut *self.backend)?);
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
        self.check_admitted()?;
        self.backend.check(&gradients)?;
        let _span = tracing::trace_span!("step", step).entered();
        // Set before and cleared after, so that neither an error nor a panic leaves a usable mechanism behind.
        self.poisoned = Some(step);
        // Counted before it is made: whenever the process dies, the ledger knows of every row that was released.
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

    /// Counts all steps before `next_step` as made, in the ledger.
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

    /// Whether a step could be made now: refuses a fork, a poisoned mechanism, a replay, and a device that is not ready.
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

    /// Writes a checkpoint.
    pub fn save_with(&self, path: impl AsRef<Path>, options: SaveOptions) -> Result<()> {
        self.check_usable()?;
        let _span = tracing::debug_span!("save", step = self.next_step).entered();
        let key = options.include_key.then_some(&self.key);
        // A key that is stored keeps its ledger. A folder whose name is no text cannot be stored: the file then has one beside it.
        let ledger = key.and_then(|key| key.ledger().path()).filter(|folder| folder.to_str().is_some());
        let info = Info { ledger, ..self.info() };
        checkpoint::write(path.as_ref(), &self.content(&info, key))
    }

    /// A checkpoint without the key, as bytes: what [`Mechanism::save`] writes, for [`Checkpoint::from_bytes`]. As secret as the
    /// key; to be wiped by whoever holds it.
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
    /// Hands the next `num_steps` steps to the device to count. Nobody sees which batch a replayed step has: where the plan draws
    /// batches, [`Mechanism::unchecked_batch`] comes first.
    pub fn begin_replay(&mut self, num_steps: u64) -> Result<()> {
        self.check_usable()?;
        let end = self.next_step.saturating_add(num_steps);
        if end > self.plan.num_steps() {
            return Err(Error::PastEnd { step: end - 1, num_steps: self.plan.num_steps() });
        }
        self.check_vouched()?;
        let counted = self.claim.as_ref().map(|claim| claim.next_step());
        if num_steps > 0 {
            self.count(end);
        }
        // What was scheduled before an error must not run: stopping drops it.
        if let Err(error) = self.hand_over(end) {
            let _ = self.backend.stop();
            self.count(counted.unwrap_or(0));
            return Err(error);
        }
        self.replaying = Some((num_steps, counted.unwrap_or(0)));
        self.admitted = None;
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
        self.check_whole()?;
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
        self.check_whole()?;
        let Some((handed, counted)) = self.replaying else { return Ok(0) };
        self.backend.check_ready()?;
        let made = self.backend.stop().inspect_err(|_| self.poisoned = Some(self.next_step))?;
        self.replaying = None;
        self.next_step += made.min(handed);
        // The steps that were handed over and not made are given back.
        self.count(if made > 0 { self.next_step } else { counted });
        if made > handed {
            self.poisoned = Some(self.next_step);
            return Err(Error::Device(format!(
                "the graph was launched for {made} steps, {handed} were handed over: the gradients of the others are NaN"
            )));
        }
        Ok(made)
    }
}
