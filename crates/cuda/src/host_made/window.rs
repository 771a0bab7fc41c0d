//! The memory that a row goes through, a few parts at a time, and the order of those who use it.
//!
//! Three use it: the host's threads write pinned memory, the copy stream reads it and writes device memory, the caller's stream reads that. A
//! part of pinned memory is written again when its copy is done (`copied`, waited for by the host); a part of device memory is
//! read when it was copied (`copied`) and written again when it was added (`added`).
//!
//! All of it is noise: it is cleared when it is given up, before the memory is freed.

use super::table::PartTable;
use crate::device::device_error;
use crate::launch::{Args, launch_noise, stage};
use crate::memory::Memory;
use crate::module::Kernels;
use crate::owned::{Ends, bind};
use crate::side_stream::{Priority, SideStream};
use corrnoise_core::{Dtype, Error, Result, RowPart, RowSink};
use cudarc::driver::sys::{CUevent_flags, CUresult};
use cudarc::driver::{CudaEvent, CudaStream, DriverError, result};
use std::sync::Arc;

/// Parts of a row in pinned and in device memory.
pub(super) struct Window {
    pub(super) stream: Arc<CudaStream>,
    kernels: Kernels,
    copies: SideStream,
    /// Pinned memory, each with an event that its last copy records.
    pinned: Vec<(Pinned, CudaEvent)>,
    /// Device memory, each with an event that its last addition records.
    staged: Vec<(Memory<f32>, CudaEvent)>,
    /// The tables of segments of all parts.
    segments: Memory<u32>,
    pub(super) overflow: Memory<u64>,
}

impl Window {
    /// Memory for as many parts of the table as are asked for, or for all if there are fewer. The stream's context is current.
    pub(super) fn new(
        stream: &Arc<CudaStream>,
        table: &PartTable,
        pinned: usize,
        staged: usize,
    ) -> Result<Window> {
        let len = table.max_values();
        let event = |flags| stream.context().new_event(flags).map_err(device_error("make an event"));
        let parts = 0..table.num_parts();
        // Whoever waits for a copy on the host must not keep a core busy.
        let sleeping = || event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC));
        Ok(Window {
            kernels: Kernels::load_add(stream.context())?,
            copies: SideStream::beside(stream, Priority::Default)?,
            pinned: parts
                .clone()
                .take(pinned)
                .map(|_| Ok((Pinned::zeros(len)?, sleeping()?)))
                .collect::<Result<_>>()?,
            staged: parts
                .take(staged)
                .map(|_| Ok((Memory::zeros(stream, len)?, event(None)?)))
                .collect::<Result<_>>()?,
            segments: Memory::zeros(stream, table.words().len())?,
            overflow: Memory::copy(stream, &[u64::MAX])?,
            stream: stream.clone(),
        })
    }

    pub(super) fn device_bytes(&self) -> u64 {
        self.staged.iter().map(|(memory, _)| memory.slice.num_bytes() as u64).sum()
    }

    /// Sends the tables of segments, in the order of the caller's stream.
    pub(super) fn send_table(&self, words: &[u32]) -> Result<()> {
        // SAFETY: the tables are as long as what was allocated for them, and no graph holds this launch.
        unsafe { stage(&self.stream, &self.kernels, self.segments.address, words) }
    }

    /// Waits for all copies and clears what is on its way. On failure the context is gone, and the device's memory with it. The driver is called
    /// directly: cudarc would first report an error that it kept from another object's end, and neither wait nor record.
    pub(super) fn give_up(&mut self) {
        bind(&self.stream);
        // SAFETY: the stream lives as long as this value.
        if unsafe { result::stream::synchronize(self.copies.cu_stream()) }.is_err() {
            // The copies must have ended before pinned memory is cleared and freed.
            let _ = result::ctx::synchronize();
        }
        for (pinned, _) in &mut self.pinned {
            pinned.clear();
        }
        for (memory, added) in &self.staged {
            // The caller's stream may still read it: it is cleared in that stream's order, and written again only after.
            memory.clear(self.stream.cu_stream());
            // SAFETY: the event lives as long as this value, and so does the stream.
            let _ = unsafe { result::event::record(added.cu_event(), self.stream.cu_stream()) };
        }
    }
}

impl Ends for Window {
    fn stream(&self) -> &CudaStream {
        &self.stream
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// The parts of one step on their way.
pub(super) struct Sending<'a> {
    window: &'a mut Window,
    table: &'a PartTable,
    /// The arguments of `add` that all parts share.
    args: Args,
    dtype: Dtype,
    /// The number of the part at hand.
    index: usize,
}

impl<'a> Sending<'a> {
    pub(super) fn new(window: &'a mut Window, table: &'a PartTable, args: Args, dtype: Dtype) -> Sending<'a> {
        Sending { window, table, args, dtype, index: 0 }
    }
}

impl RowSink for Sending<'_> {
    fn room(&mut self, _: &RowPart) -> Result<&mut [f32]> {
        let at = self.index % self.window.pinned.len();
        let (pinned, copied) = &mut self.window.pinned[at];
        copied.synchronize().map_err(device_error("wait for a copy"))?;
        Ok(pinned.values_mut())
    }

    fn take(&mut self, part: &RowPart) -> Result<()> {
        let Window { stream, kernels, copies, pinned, staged, segments, .. } = &*self.window;
        let (pinned, copied) = &pinned[self.index % pinned.len()];
        let (memory, added) = &staged[self.index % staged.len()];
        let values = &pinned.values()[..part.num_values()];
        copies.wait(added).map_err(device_error("wait for an event"))?;
        // SAFETY: the device memory holds the largest part. The host overwrites pinned memory, and frees it, only after the copy: it waits for
        // `copied` in `room` and for all copies in `give_up`.
        unsafe { result::memcpy_htod_async(memory.address, values, copies.cu_stream()) }
            .map_err(device_error("copy noise to the device"))?;
        copied.record(copies).map_err(device_error("record an event"))?;
        stream.wait(copied).map_err(device_error("wait for an event"))?;
        let (first, count) = self.table.of_part(self.index);
        let args = Args {
            segments: segments.address + first,
            num_segments: count,
            state: memory.address,
            num_tiles: part.tiles().end - part.tiles().start,
            ..self.args
        };
        // SAFETY: the table was sent, of gradients that were checked against the shard (or promised by the caller of `from_raw`); the rest is
        // this window's memory.
        unsafe { launch_noise(stream, kernels, &args, self.dtype) }?;
        added.record(stream).map_err(device_error("record an event"))?;
        self.index += 1;
        Ok(())
    }
}

/// Host memory that a device copies from while the host goes on.
struct Pinned {
    start: *mut f32,
    len: usize,
}

impl Pinned {
    /// Zeroed memory of at least one value, in the context that is current.
    fn zeros(len: usize) -> Result<Pinned> {
        let len = len.max(1);
        let bytes = len * size_of::<f32>();
        // SAFETY: the memory is freed by this value, and written before it is read.
        let start = unsafe {
            let start = result::malloc_host(bytes, 0).map_err(|error| match error {
                DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => {
                    Error::OutOfMemory { bytes: bytes as u128 }
                }
                other => device_error("allocate pinned memory")(other),
            })?;
            start.write_bytes(0, bytes);
            start.cast()
        };
        Ok(Pinned { start, len })
    }

    fn values(&self) -> &[f32] {
        // SAFETY: this value owns the memory, which was written when it was allocated.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    fn values_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `values`, and this is the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    fn clear(&mut self) {
        let values = self.values_mut();
        values.fill(0.0);
        // The memory may be freed next, so the compiler would leave out the zeros.
        std::hint::black_box(values);
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated by this value, and no copy reads it any more.
        let _ = unsafe { result::free_host(self.start.cast()) };
    }
}

// SAFETY: the memory belongs to this value as a box's does; the driver frees it from any thread.
unsafe impl Send for Pinned {}
// SAFETY: shared access only reads.
unsafe impl Sync for Pinned {}
