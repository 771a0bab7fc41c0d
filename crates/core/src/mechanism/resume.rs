//! Resuming from checkpoints: which rows come next, and under which keys.

use super::{Mechanism, Resume};
use crate::backend::Backend;
use crate::checkpoint::{Checkpoint, Info};
use crate::error::{Error, Result};
use crate::key::{Key, RunKey, os_random};
use crate::layout::Shard;
use crate::ledger::{self, Start};
use crate::plan::Plan;
use crate::row::Incarnations;
use std::path::Path;

impl<B: Backend> Mechanism<B> {
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

    /// Does what [`Mechanism::resume_with`] does, from checkpoints that are open already: those of files, or of [`Mechanism::state`].
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
        // The mechanism's own claim on this incarnation does not conflict with it.
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
        // An incarnation whose next step is its first one has made nothing.
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
            let hashes = checkpoint.section_hashes(&self.run_key)?;
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
