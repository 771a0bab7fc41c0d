//! Steps whose rows are made ahead: the launches of `make` and `add`, and their order.

use super::Cuda;
use super::lower::Lowered;
use super::replaying::no_schedule;
use crate::device::device_error;
use crate::gradient::DeviceGradient;
use crate::launch::{Args, THREADS_PER_BLOCK, WARPS_PER_BLOCK, stage};
use crate::owned::Owned;
use corrnoise_core::backend::Step;
use corrnoise_core::{Error, Result};
use cudarc::driver::{CudaStream, LaunchConfig, PushKernelArg};
use std::sync::Arc;

impl Cuda {
    /// Makes the rows of the tiles whose turn it is, unless that was done, and adds the step's row to the gradients.
    pub(super) fn staged(&mut self, step: &Step<'_>, gradients: &[DeviceGradient<'_>]) -> Result<()> {
        let lowered = self.lower(step, self.time)?;
        self.make_lowered(&lowered)?;
        let Some(first) = gradients.first() else { return Ok(()) };
        let Lowered { step: record, unit, per_unit, .. } = lowered;
        let segments = self.segment_words(gradients);
        let owned = &*self.owned;
        if self.sent_segments != segments {
            // SAFETY: the table is as long as what was allocated for it, and no graph holds this launch.
            unsafe { stage(&owned.stream, &owned.kernels, owned.segments.address, &segments) }?;
            self.sent_segments = segments;
        }
        if let Some(own) = owned.prepare_stream() {
            own.wait_until_ready(&owned.stream)?;
        }
        self.launch(&Args { step: record, unit, per_unit, ..self.add_args() }, first.dtype)?;
        if let Some(own) = self.owned.prepare_stream() {
            own.mark_used(&self.owned.stream)?;
        }
        self.time += 1;
        self.made = false;
        Ok(())
    }

    /// Makes the rows of the tiles whose turn is at this step.
    pub(super) fn make_rows(&mut self, step: &Step<'_>) -> Result<()> {
        let lowered = self.lower(step, self.time)?;
        self.make_lowered(&lowered)
    }

    /// Launches `make` for a step, unless that was done. The rows are a function of the state: nothing is released or counted.
    fn make_lowered(&mut self, lowered: &Lowered) -> Result<()> {
        if self.made {
            return Ok(());
        }
        let Lowered { step: record, key, .. } = *lowered;
        self.base = record.number.wrapping_sub(self.time);
        let owned = &*self.owned;
        let Some(ahead) = &owned.ahead else { return Ok(()) };
        let stream = owned.prepare_stream().map_or(&owned.stream, |own| &*own.stream);
        let due = ahead.turns.due(self.time);
        if !due.is_empty() {
            if let Some(own) = owned.prepare_stream() {
                own.wait_until_used()?;
            }
            if *self.sent_list != *self.words {
                // If sending fails, nobody knows what the device has.
                self.sent_list.clear();
                // SAFETY: no list is longer than what was allocated for it, and no graph holds this launch.
                unsafe { stage(stream, &owned.kernels, owned.list.address, &self.words) }?;
                self.sent_list.clone_from(&self.words);
            }
            let args = Args { step: record, key, base: self.base, ..self.make_args() };
            self.launch_make(stream, &args, due.end - due.start)?;
        }
        if let Some(own) = owned.prepare_stream() {
            own.mark_ready()?;
        }
        self.made = true;
        Ok(())
    }

    /// The arguments of `add` that no step changes: its rows are what other kernels call state.
    pub(super) fn add_args(&self) -> Args {
        match &self.owned.ahead {
            Some(_) => Args { state: self.args.rows, ..self.args },
            None => self.args,
        }
    }

    /// The arguments of `make` that no step changes.
    fn make_args(&self) -> Args {
        let segments = self.owned.ahead.as_ref().map_or(0, |ahead| ahead.segments.address);
        Args { segments, ..self.args }
    }

    fn launch_make(&self, stream: &Arc<CudaStream>, args: &Args, tiles: u64) -> Result<()> {
        let Some(make) = &self.owned.kernels.make else {
            return Err(Error::Device("no rows are made ahead".into()));
        };
        let per_block = if self.is_ring { 1 } else { WARPS_PER_BLOCK };
        let config = LaunchConfig {
            grid_dim: (tiles.div_ceil(per_block) as u32, 1, 1),
            block_dim: (THREADS_PER_BLOCK, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = stream.launch_builder(make);
        launch.arg(args);
        // SAFETY: `Args` is the kernel's only parameter, laid out as there; its addresses are this backend's memory.
        unsafe { launch.launch(config) }.map_err(device_error("launch a kernel that makes rows"))?;
        Ok(())
    }

    /// Makes the rows of time 0 for a schedule that begins there: all tiles have their first turn then, and a graph's launch covers one
    /// phase. Waits, since a graph may be launched on any stream.
    pub(super) fn begin_turns(&mut self) -> Result<()> {
        let owned = &*self.owned;
        let (Some(ahead), Some(loaded)) = (&owned.ahead, &owned.loaded) else { return Ok(()) };
        let Some(first) = loaded.first_step() else { return Ok(()) };
        self.base = first.wrapping_sub(self.time);
        // Of rows that a `prepare` made before it failed, nothing was recorded.
        owned.settle()?;
        if self.time == 0 && !self.made {
            let mut args = Args { base: self.base, ..self.make_args() };
            loaded.fill_steps(&mut args);
            self.launch_make(&owned.stream, &args, ahead.turns.tiles)?;
            self.made = true;
        }
        owned.stream.synchronize().map_err(device_error("wait for the stream"))
    }

    /// Enqueues `make` for the step that the device counts next, on a branch beside the caller's stream if there is one for it.
    pub(super) fn branch(&mut self) -> Result<()> {
        let owned = &*self.owned;
        let (Some(ahead), Some(loaded)) = (&owned.ahead, &owned.loaded) else { return Err(no_schedule()) };
        let mut args = Args { base: self.base, ..self.make_args() };
        loaded.fill_steps(&mut args);
        let stream = owned.prepare_stream().map_or(&owned.stream, |own| &*own.stream);
        if let Some(own) = owned.prepare_stream() {
            own.fork_from(&owned.stream)?;
        }
        self.launch_make(stream, &args, ahead.turns.most_due())?;
        if let Some(own) = owned.prepare_stream() {
            own.end_branch()?;
        }
        self.branched = true;
        Ok(())
    }

    /// True while a branch that makes rows is open beside the caller's stream, in the capture at hand. A stream is in one capture at a time, and
    /// leaves it when that ends, so the stream of a branch whose capture was given up is captured no more.
    pub(super) fn is_branch_open(&self) -> Result<bool> {
        match self.owned.prepare_stream() {
            Some(own) if self.branched => own.is_captured(),
            _ => Ok(false),
        }
    }

    /// Brings the rows of the step that the device counts next before what the caller's stream is given next.
    pub(super) fn join(&mut self) -> Result<()> {
        if self.owned.ahead.is_none() {
            return Ok(());
        }
        if !self.is_branch_open()? {
            self.branch()?;
        }
        self.branched = false;
        let Owned { stream, .. } = &*self.owned;
        self.owned.prepare_stream().map_or(Ok(()), |own| own.join_to(stream))
    }

    /// Gives up rows that were made from another state than the one that is written next.
    pub(super) fn forget_rows(&mut self) -> Result<()> {
        if !self.made {
            return Ok(());
        }
        self.owned.settle()?;
        let Owned { stream, ahead: Some(ahead), .. } = &mut *self.owned else { return Ok(()) };
        stream.memset_zeros(&mut ahead.due.slice).map_err(device_error("write the turns"))?;
        stream.synchronize().map_err(device_error("wait for the stream"))?;
        self.made = false;
        Ok(())
    }
}
