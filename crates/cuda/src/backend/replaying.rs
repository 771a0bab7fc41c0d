//! Steps of a captured graph, which the device counts.

use super::lower::Lowered;
use super::{Cuda, STEP_STACK};
use crate::current::KeepCurrent;
use crate::gradient::DeviceGradient;
use crate::launch::{TERM_WORDS, stage};
use crate::owned::{Owned, check_not_captured, is_captured};
use crate::replay::ReplaySteps;
use corrnoise_core::backend::{Replay, Step};
use corrnoise_core::secret::on_clean_stack;
use corrnoise_core::{Error, Result};

/// The refusal to count steps of which none was handed over.
pub(super) fn no_schedule() -> Error {
    Error::Device("no schedule is on the device".into())
}

impl Replay for Cuda {
    fn reserve(&mut self, num_steps: u64) -> Result<()> {
        let _kept = KeepCurrent::new();
        self.schedule.reserve(num_steps, self.owned.stream.context())
    }

    fn schedule(&mut self, step: &Step<'_>) -> Result<()> {
        let time = self.time + self.schedule.len();
        let entry_words = if self.is_ring || self.owned.ahead.is_some() { 1 } else { TERM_WORDS };
        on_clean_stack::<STEP_STACK, _>(|| {
            let Lowered { step: record, unit, per_unit, .. } = self.lower(step, time)?;
            if (unit, per_unit) != (self.args.unit, self.args.per_unit) {
                let unlike = format!("step {} cannot be scheduled: its grid is not the plan's", step.number);
                return Err(Error::Device(unlike));
            }
            self.schedule.push(&record, &self.words, entry_words)
        })
    }

    fn start(&mut self) -> Result<()> {
        let _kept = KeepCurrent::new();
        let stream = self.owned.stream.clone();
        check_not_captured(&stream)?;
        // A schedule whose end failed is still there: it is ended and cleared before its memory is freed.
        self.owned.finish()?;
        let schedule = std::mem::take(&mut self.schedule);
        self.owned.loaded = Some(schedule.load(&stream, self.tiles.segments.len())?);
        self.begin_turns()
    }

    /// Enqueues a step that the device counts. On a stream that is not captured this is a launch as any other, and is counted all the same.
    fn enqueue(&mut self, gradients: &[DeviceGradient<'_>]) -> Result<()> {
        let _kept = KeepCurrent::new();
        let segments = self.segment_words(gradients);
        let Owned { stream, kernels, loaded: Some(loaded), .. } = &mut *self.owned else {
            return Err(no_schedule());
        };
        if is_captured(stream)? {
            loaded.set_captured();
            if !self.keeps_module {
                // The graph launches these kernels as long as it exists, and it is not known when it ceases to.
                std::mem::forget(kernels.clone());
                self.keeps_module = true;
            }
        }
        self.join()?;
        let mut args = self.add_args();
        let Owned { stream, kernels, loaded: Some(loaded), .. } = &*self.owned else {
            return Err(no_schedule());
        };
        loaded.fill(&mut args);
        if let Some(first) = gradients.first() {
            // The table is sent with every replay: another step of the same graph may have other gradients.
            // SAFETY: the control area has room for the shard's segments, and outlives every graph that knows it.
            unsafe { stage(stream, kernels, loaded.segments(), &segments) }?;
            self.launch(&args, first.dtype)?;
        }
        let Owned { stream, kernels, loaded, .. } = &*self.owned;
        loaded.as_ref().map_or(Ok(()), |loaded| loaded.advance(stream, kernels))
    }

    fn stop(&mut self) -> Result<u64> {
        let _kept = KeepCurrent::new();
        self.schedule = ReplaySteps::default();
        self.owned.settle()?;
        self.branched = false;
        let (made, ran) = self.owned.finish()?;
        self.time += ran;
        self.made &= ran == 0;
        Ok(made)
    }
}
