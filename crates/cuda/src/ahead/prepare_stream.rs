//! The stream on which rows are prepared, and its order with the caller's stream.
//!
//! `make` runs here, `add` on the caller's stream, and both touch the rows; two events stand between them. A captured graph has two of its
//! own: an event that was recorded in a capture means nothing outside of it.

use crate::device::device_error;
use crate::owned::is_captured;
use crate::side_stream::{Priority, SideStream};
use corrnoise_core::Result;
use cudarc::driver::sys::CUevent_wait_flags;
use cudarc::driver::{CudaEvent, CudaStream, result};

/// A stream that waits for nobody by itself, and that the device serves last.
pub(crate) struct PrepareStream {
    pub(crate) stream: SideStream,
    /// Recorded on the caller's stream behind the last use of the rows.
    used: CudaEvent,
    /// Recorded here behind the rows of the next step.
    ready: CudaEvent,
    /// The same two within a capture.
    fork: CudaEvent,
    join: CudaEvent,
}

impl PrepareStream {
    /// Opens a stream of the lowest priority beside `stream`, whose context is current.
    pub(crate) fn beside(stream: &CudaStream) -> Result<PrepareStream> {
        let context = stream.context();
        let event = || context.new_event(None).map_err(device_error("make an event"));
        let (used, ready, fork, join) = (event()?, event()?, event()?, event()?);
        Ok(PrepareStream { stream: SideStream::beside(stream, Priority::Lowest)?, used, ready, fork, join })
    }

    /// Lets this stream wait until the caller's no longer uses the rows.
    pub(crate) fn wait_until_used(&self) -> Result<()> {
        self.stream.wait(&self.used).map_err(device_error("wait for an event"))
    }

    /// Marks the end of the caller's use of the rows.
    pub(crate) fn mark_used(&self, caller: &CudaStream) -> Result<()> {
        self.used.record(caller).map_err(device_error("record an event"))
    }

    /// Marks that the rows are made.
    pub(crate) fn mark_ready(&self) -> Result<()> {
        self.ready.record(&self.stream).map_err(device_error("record an event"))
    }

    /// Lets the caller's stream wait for the rows.
    pub(crate) fn wait_until_ready(&self, caller: &CudaStream) -> Result<()> {
        caller.wait(&self.ready).map_err(device_error("wait for an event"))
    }

    /// Branches off from the caller's stream here and now; in a capture this stream becomes part of it.
    pub(crate) fn fork_from(&self, caller: &CudaStream) -> Result<()> {
        self.fork.record(caller).map_err(device_error("record an event"))?;
        self.stream.wait(&self.fork).map_err(device_error("wait for an event"))
    }

    /// Marks the end of the branch.
    pub(crate) fn end_branch(&self) -> Result<()> {
        self.join.record(&self.stream).map_err(device_error("record an event"))
    }

    /// Lets the caller's stream wait for the branch.
    pub(crate) fn join_to(&self, caller: &CudaStream) -> Result<()> {
        caller.wait(&self.join).map_err(device_error("wait for an event"))
    }

    /// Waits on the host for all that runs here.
    pub(crate) fn settle(&self) -> Result<()> {
        self.stream.synchronize().map_err(device_error("wait for the stream that prepares rows"))
    }

    /// True while this stream is part of a capture: that of the caller's stream, into which a branch brought it.
    pub(crate) fn is_captured(&self) -> Result<bool> {
        is_captured(&self.stream)
    }

    /// Puts all that runs here before what `caller` is given next, whose context is current. The driver is called directly: cudarc would first
    /// report an error that it kept from another object's end, and order nothing. Where an event cannot do it, the host waits; if that fails
    /// too, the context is gone.
    pub(crate) fn end_before(&self, caller: &CudaStream) {
        let (own, caller, ready) = (self.stream.cu_stream(), caller.cu_stream(), self.ready.cu_event());
        // SAFETY: both streams and the event live as long as this value and its caller.
        let ordered = unsafe {
            result::event::record(ready, own).and_then(|()| {
                result::stream::wait_event(caller, ready, CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
            })
        };
        if ordered.is_err() {
            // SAFETY: as above.
            let _ = unsafe { result::stream::synchronize(own) };
        }
    }
}
