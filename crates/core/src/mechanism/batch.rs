//! Matching a batch to its step. Where a plan draws batches, its claim holds for those and no others, so a step
//! without its batch is refused unless the caller vouches for it by name.

use super::Mechanism;
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::sampler::Batch;

/// A step that may be made. A step that was made moves the mechanism on, which uses the admission up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Admitted {
    /// The step's batch was seen and checked.
    Batch(u64),
    /// The caller vouches for the step's batch.
    Unchecked(u64),
}

impl<B: Backend> Mechanism<B> {
    /// Returns this mechanism, if the batch is that of its plan, its run and its next step: `noise.for_batch(&batch)?.add_to(…)` cannot
    /// add a step's noise to another step's batch. Admits the next step, and no other. A refusal changes nothing.
    pub fn for_batch(&mut self, batch: &Batch) -> Result<&mut Self> {
        self.check_usable()?;
        let (plan, run) = (self.plan.fingerprint(), self.commitment);
        if batch.plan() != plan {
            return Err(Error::Batch(format!("it was drawn for plan {}, this is plan {plan}", batch.plan())));
        }
        if batch.run() != run {
            return Err(Error::Batch("it was drawn with another key or for another run id".into()));
        }
        if batch.step() != self.next_step {
            return Err(Error::BatchStep { batch: batch.step(), next_step: self.next_step });
        }
        self.admitted = Some(Admitted::Batch(self.next_step));
        Ok(self)
    }

    /// Returns this mechanism, with the next step admitted though nobody shows its batch: the caller vouches that the gradient is that
    /// of the plan's batch of this step, for instance one that was drawn elsewhere by [`Sampler::export`](crate::Sampler::export).
    ///
    /// Admits one step; before [`Mechanism::begin_replay`], all the steps that are handed over. A plan that draws no batches
    /// needs no admission.
    pub fn unchecked_batch(&mut self) -> Result<&mut Self> {
        self.check_usable()?;
        self.admitted = Some(Admitted::Unchecked(self.next_step));
        Ok(self)
    }

    /// Withdraws an admission that was not used, for callers to whom a batch belongs to one call, even if that is refused.
    pub fn withdraw_batch(&mut self) -> &mut Self {
        self.admitted = None;
        self
    }

    /// Refuses a step without its batch.
    pub(super) fn check_admitted(&self) -> Result<()> {
        let step = self.next_step;
        let admitted =
            matches!(self.admitted, Some(Admitted::Batch(of) | Admitted::Unchecked(of)) if of == step);
        if admitted || !self.plan.draws_batches() { Ok(()) } else { Err(Error::NoBatch { step }) }
    }

    /// Refuses steps of which nobody can see the batches, unless the caller vouches for them.
    pub(super) fn check_vouched(&self) -> Result<()> {
        let step = self.next_step;
        let vouched = self.admitted == Some(Admitted::Unchecked(step));
        if vouched || !self.plan.draws_batches() { Ok(()) } else { Err(Error::NoBatchInReplay { step }) }
    }
}
