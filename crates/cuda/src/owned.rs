//! The device memory of a backend, and how it ends: keys, lists and words of a dither are cleared, a schedule is ended, and nothing of it becomes part of a graph.

use crate::ahead::{Ahead, PrepareStream};
use crate::device::device_error;
use crate::memory::Memory;
use crate::module::Kernels;
use crate::replay::LoadedReplay;
use corrnoise_core::{Error, Result};
use cudarc::driver::sys::{CUresult, CUstreamCaptureStatus};
use cudarc::driver::{CudaStream, DriverError, result};
use std::sync::{Arc, Mutex, PoisonError};

/// The memory that a backend owns on the device.
pub(crate) struct Owned {
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) kernels: Kernels,
    /// The keys of the run's incarnations, by number.
    pub(crate) keys: Memory<u32>,
    pub(crate) state: Memory<u8>,
    pub(crate) overflow: Memory<u64>,
    pub(crate) segments: Memory<u32>,
    pub(crate) list: Memory<u32>,
    /// The rows made ahead, where there are any.
    pub(crate) ahead: Option<Ahead>,
    /// The schedule of captured graphs, while there is one.
    pub(crate) loaded: Option<LoadedReplay>,
}

/// Memory of backends that were dropped while their stream was captured: clearing and freeing would become part of the graph.
static DEFERRED: Mutex<Vec<Box<dyn Ends>>> = Mutex::new(Vec::new());

/// What a backend owns on a device. Dropping it clears and frees it, in the order of a stream.
pub(crate) trait Ends: Send {
    /// The stream in whose order it is cleared and freed.
    fn stream(&self) -> &CudaStream;

    /// Ends what a graph must not find live, while the stream is captured and cannot be used to say so.
    fn end_beside(&self) {}
}

impl Ends for Owned {
    fn stream(&self) -> &CudaStream {
        &self.stream
    }

    fn end_beside(&self) {
        if let Some(loaded) = &self.loaded {
            end_beside(loaded);
        }
    }
}

/// Frees what a backend owned, now or as soon as the stream is no longer captured.
pub(crate) fn retire(owned: impl Ends + 'static) {
    let mut deferred = DEFERRED.lock().unwrap_or_else(PoisonError::into_inner);
    bind(owned.stream());
    if ask(owned.stream()).unwrap_or(false) {
        owned.end_beside();
        deferred.push(Box::new(owned));
    }
}

impl Owned {
    pub(crate) fn new(
        stream: &Arc<CudaStream>,
        kernels: Kernels,
        ahead: Option<Ahead>,
        keys: &[u32],
        state_bytes: usize,
        segment_words: usize,
        list_words: usize,
    ) -> Result<Owned> {
        let mut owned = Owned {
            state: Memory::zeros(stream, state_bytes)?,
            overflow: Memory::copy(stream, &[u64::MAX])?,
            segments: Memory::zeros(stream, segment_words)?,
            list: Memory::zeros(stream, list_words)?,
            keys: Memory::zeros(stream, keys.len())?,
            loaded: None,
            ahead,
            kernels,
            stream: stream.clone(),
        };
        // The keys are copied last: whatever drops this value clears them, also if they arrive in part.
        owned.keys.send(stream, keys)?;
        Ok(owned)
    }

    /// The stream that rows are prepared on, if there is one.
    pub(crate) fn prepare_stream(&self) -> Option<&PrepareStream> {
        self.ahead.as_ref().and_then(|ahead| ahead.own.as_ref())
    }

    /// Waits on the host for rows that are being prepared.
    pub(crate) fn settle(&self) -> Result<()> {
        self.prepare_stream().map_or(Ok(()), PrepareStream::settle)
    }

    /// Ends the schedule, if there is one, and waits. Returns how many steps the device was asked to run, and how many of them it ran.
    pub(crate) fn finish(&mut self) -> Result<(u64, u64)> {
        let Some(loaded) = &self.loaded else { return Ok((0, 0)) };
        // If this fails, graphs may still find the schedule live: it stays until all of this ends, in stream order.
        let asked = loaded.finish(&self.stream, &self.kernels)?;
        let ran = asked.min(loaded.count());
        self.loaded = None;
        Ok((asked, ran))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        bind(&self.stream);
        if let Some(ahead) = &self.ahead {
            ahead.end(&self.stream);
            if ahead.rows.is_none() {
                // A ring's state holds rows that nobody has released.
                self.state.clear(self.stream.cu_stream());
            }
        }
        // Keys and list are cleared in stream order, after the last kernel that reads them: a term of the list holds columns of its row, from
        // which half of the key follows.
        self.keys.clear(self.stream.cu_stream());
        self.list.clear(self.stream.cu_stream());
        if let Some(loaded) = &self.loaded {
            loaded.end(self.stream.cu_stream());
            loaded.clear(self.stream.cu_stream());
        }
    }
}

/// Ends a schedule though its stream is captured: the graph must not find it live, and the stream cannot be used to say so. The stream
/// for it is not one of cudarc's, which waits for the whole context when it makes its first: a capture does not survive that.
fn end_beside(loaded: &LoadedReplay) {
    if let Ok(other) = result::stream::create(result::stream::StreamKind::NonBlocking) {
        loaded.end(other);
        // Nothing orders this stream with the one that the graph will be launched on, so the host waits for it.
        // SAFETY: made here, used no more after this, and not part of the capture.
        let _ = unsafe { (result::stream::synchronize(other), result::stream::destroy(other)) };
    }
}

/// Makes the stream's context current. cudarc would first report an error that it kept from another object's end, and not do it.
pub(crate) fn bind(stream: &CudaStream) {
    // SAFETY: the stream keeps its context.
    let _ = unsafe { result::ctx::set_current(stream.context().cu_ctx()) };
}

/// Frees the deferred memory that can be freed now.
pub(crate) fn end_deferred() {
    let mut deferred = DEFERRED.lock().unwrap_or_else(PoisonError::into_inner);
    deferred.retain(|owned| {
        bind(owned.stream());
        ask(owned.stream()).unwrap_or(false)
    });
}

/// True if work that is enqueued now becomes part of a graph rather than being run.
pub(crate) fn is_captured(stream: &CudaStream) -> Result<bool> {
    let bound = stream.context().bind_to_thread();
    bound.and_then(|()| ask(stream)).map_err(device_error("ask whether the stream is captured"))
}

/// The driver's answer to whether the stream is captured, asked in the stream's context.
fn ask(stream: &CudaStream) -> std::result::Result<bool, DriverError> {
    // SAFETY: the stream lives as long as its owner.
    match unsafe { result::stream::is_capturing(stream.cu_stream()) } {
        Ok(status) => Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE),
        // The driver says this of the default stream while a stream that waits for it is captured.
        Err(DriverError(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Refuses work that a graph must not hold, while the stream is captured.
pub(crate) fn check_not_captured(stream: &CudaStream) -> Result<()> {
    match is_captured(stream)? {
        false => Ok(()),
        true => Err(Error::Device(
            "the stream is being captured: a graph would repeat what happens once; call begin_replay before the capture, and only enqueue within it".into(),
        )),
    }
}

/// The first step at which a gradient left the range of its number type, if there was one. Waits for the stream.
pub(crate) fn read_overflow(stream: &Arc<CudaStream>, overflow: &Memory<u64>) -> Result<Option<u64>> {
    let step = stream.clone_dtoh(&overflow.slice).map_err(device_error("read the overflow flag"))?;
    stream.synchronize().map_err(device_error("wait for the stream"))?;
    Ok(Some(step[0]).filter(|step| *step != u64::MAX))
}
