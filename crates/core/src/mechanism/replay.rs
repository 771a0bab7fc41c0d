//! Steps that a device counts by itself: how they are handed over to it, and taken back.

use super::Mechanism;
use crate::backend::{Replay, Step};
use crate::error::{Error, Result};

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
        self.backend.reserve(end - self.next_step)?;
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
        self.backend.check_enqueued(&gradients)?;
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
