//! The device memory of a backend, and how it ends: keys are cleared, a schedule is ended, and nothing of it becomes part of a graph.

use crate::device::device_error;
use crate::memory::Memory;
use crate::module::Kernels;
use crate::replay::LoadedReplay;
use corrnoise_core::{Error, Result};
use cudarc::driver::sys::{CUresult, CUstreamCaptureStatus};
use cudarc::driver::{CudaStream, DriverError};
use std::sync::{Arc, Mutex, PoisonError};

/// What a backend has on the device.
pub(crate) struct Owned {
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) kernels: Kernels,
    /// Of the run's incarnations, by number.
    pub(crate) keys: Memory<u32>,
    pub(crate) state: Memory<u8>,
    pub(crate) overflow: Memory<u64>,
    pub(crate) segments: Memory<u32>,
    pub(crate) list: Memory<u32>,
    /// The schedule of captured graphs, while there is one.
    pub(crate) loaded: Option<LoadedReplay>,
}

/// Memory of backends that were dropped while their stream was captured: clearing and freeing would become part of the graph.
static DEFERRED: Mutex<Vec<Owned>> = Mutex::new(Vec::new());

impl Owned {
    pub(crate) fn new(
        stream: &Arc<CudaStream>,
        kernels: Kernels,
        keys: &[u32],
        state_bytes: usize,
        segment_words: usize,
        list_words: usize,
    ) -> Result<Owned> {
        Ok(Owned {
            keys: Memory::copy(stream, keys)?,
            state: Memory::zeros(stream, state_bytes)?,
            overflow: Memory::copy(stream, &[u64::MAX])?,
            segments: Memory::zeros(stream, segment_words)?,
            list: Memory::zeros(stream, list_words)?,
            loaded: None,
            kernels,
            stream: stream.clone(),
        })
    }

    /// Frees the memory, now or as soon as the stream is no longer captured.
    pub(crate) fn retire(self) {
        let mut deferred = DEFERRED.lock().unwrap_or_else(PoisonError::into_inner);
        if is_captured(&self.stream).unwrap_or(false) {
            // The graph that is being captured must not find a live schedule, and its stream cannot be used to say so.
            if let (Some(loaded), Ok(other)) = (&self.loaded, self.stream.context().new_stream()) {
                loaded.end(&other);
            }
            deferred.push(self);
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // In stream order, after the last kernel that reads them; on failure the context is gone, and they with it.
        let _ = self.stream.memset_zeros(&mut self.keys.slice);
        if let Some(loaded) = &self.loaded {
            loaded.end(&self.stream);
        }
    }
}

/// Ends what was deferred and can end now.
pub(crate) fn end_deferred() {
    let mut deferred = DEFERRED.lock().unwrap_or_else(PoisonError::into_inner);
    deferred.retain(|owned| is_captured(&owned.stream).unwrap_or(false));
}

/// Whether what is enqueued now becomes part of a graph rather than being run.
pub(crate) fn is_captured(stream: &CudaStream) -> Result<bool> {
    match stream.capture_status() {
        Ok(status) => Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE),
        // The default stream, while a stream that waits for it is captured.
        Err(DriverError(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)) => Ok(true),
        Err(error) => Err(device_error("ask whether the stream is captured")(error)),
    }
}

/// Refuses what a graph must not hold.
pub(crate) fn check_not_captured(stream: &CudaStream) -> Result<()> {
    match is_captured(stream)? {
        false => Ok(()),
        true => Err(Error::Device(
            "the stream is being captured: a graph would repeat what happens once; call begin_replay before the capture, and only enqueue within it".into(),
        )),
    }
}
