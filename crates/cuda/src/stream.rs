//! Streams by number of the device and address, as other languages name them.

use crate::current::{KeepCurrent, keep_current};
use crate::device::stream;
use corrnoise_core::Result;
use corrnoise_core::fork::Process;
use cudarc::driver::CudaStream;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

/// A shared stream. Dropping the last owner may close the device's context, but leaves the caller's context current. In a fork of
/// the process nothing is closed, because the driver serves no forks.
#[derive(Clone)]
pub struct Stream {
    stream: ManuallyDrop<Arc<CudaStream>>,
    process: Process,
}

impl Stream {
    /// A stream of a device: that of another framework, or for a null pointer the device's default stream.
    ///
    /// # Safety
    /// `raw` is null or a `CUstream` of the device's primary context (which is the one that the runtime and PyTorch use). It outlives
    /// every clone of this value and every mechanism on it.
    pub unsafe fn of_device(ordinal: usize, raw: *mut c_void) -> Result<Stream> {
        let default = Stream::from(stream(ordinal)?);
        if raw.is_null() {
            return Ok(default);
        }
        let _kept = KeepCurrent::new();
        // SAFETY: the caller's promise; `stream` opened the primary context.
        Ok(Stream::from(unsafe { default.context().wrap_borrowed_stream(raw.cast()) }))
    }
}

impl From<Arc<CudaStream>> for Stream {
    fn from(stream: Arc<CudaStream>) -> Stream {
        Stream { stream: ManuallyDrop::new(stream), process: Process::current() }
    }
}

impl Deref for Stream {
    type Target = Arc<CudaStream>;

    fn deref(&self) -> &Arc<CudaStream> {
        &self.stream
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        let _kept = keep_current();
        // SAFETY: dropped once, here, and not used after.
        unsafe { ManuallyDrop::drop(&mut self.stream) };
    }
}
