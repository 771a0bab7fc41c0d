//! A stream of the engine's own beside the caller's.

use crate::device::device_error;
use corrnoise_core::Result;
use cudarc::driver::sys::CUstream;
use cudarc::driver::{CudaStream, result};
use std::ops::Deref;
use std::sync::Arc;

/// A stream that waits for nobody by itself. It is destroyed with this value, after what it was given.
pub(crate) struct SideStream {
    stream: Arc<CudaStream>,
    raw: CUstream,
}

/// The order in which a device serves streams that have work for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// The priority that streams have by default.
    Default,
    /// The lowest that the device has.
    Lowest,
}

impl SideStream {
    /// Opens a stream beside `stream`, whose context is current.
    pub(crate) fn beside(stream: &CudaStream, priority: Priority) -> Result<SideStream> {
        let (lowest, _) = result::stream::get_priority_range().map_err(device_error("ask for priorities"))?;
        let priority = if priority == Priority::Lowest { lowest } else { 0 };
        // cudarc would count a stream of its own, and from the first one on record events for every slice of the caller's program.
        let raw = result::stream::create_with_priority(result::stream::StreamKind::NonBlocking, priority)
            .map_err(device_error("make a stream"))?;
        // SAFETY: made in this context, and destroyed only when this value, which keeps the wrapper, is dropped.
        let own = unsafe { stream.context().wrap_borrowed_stream(raw) };
        Ok(SideStream { stream: own, raw })
    }
}

impl Deref for SideStream {
    type Target = Arc<CudaStream>;

    fn deref(&self) -> &Arc<CudaStream> {
        &self.stream
    }
}

impl Drop for SideStream {
    fn drop(&mut self) {
        // SAFETY: made by this value and used no more; the driver finishes what it was given.
        let _ = unsafe { result::stream::destroy(self.raw) };
    }
}

// SAFETY: the driver's streams may be used from any thread.
unsafe impl Send for SideStream {}
// SAFETY: as above.
unsafe impl Sync for SideStream {}
