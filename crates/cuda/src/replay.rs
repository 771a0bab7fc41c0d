//! The steps of a captured graph, in device memory: records, their coefficients or terms, and the control area.
//!
//! A graph belongs to whoever captured it, and can be launched after its replay ended, or after the mechanism is gone. What it finds then
//! is the control area: a counter that says "ended", and the table of gradients, which the kernels turn into NaN. They look at nothing
//! else first (`find_work` in kernels/launch.cuh). Every replay has an area of its own, so an old graph cannot count in a new schedule, and
//! the area of a replay that was captured is never freed: nobody can know that a graph will not be launched again. That costs
//! `32 · (1 + segments)` bytes per captured replay. Records, lists, state and keys are freed. Keys, records and lists are cleared first: a record
//! holds the secret words of its step's dither, and records and terms the columns of rows, from which half of a key follows.

use crate::device::device_error;
use crate::launch::{Args, SEGMENT_WORDS, StepRecord};
use crate::memory::Memory;
use crate::module::Kernels;
use corrnoise_core::{Error, Result};
use cudarc::driver::sys::CUstream;
use cudarc::driver::{CudaContext, CudaStream, LaunchConfig, PushKernelArg, result};
use std::sync::Arc;

/// The number of 64-bit words before the table of segments: the counter, its value when the schedule ended, and two that align the table.
const HEAD_WORDS: usize = 4;

/// The byte with which the host fills a counter to end it: the result is far beyond any number of steps, and far from wrapping around.
const ENDED_BYTE: u8 = 0x80;

/// A schedule of steps that is being built on the host.
#[derive(Default)]
pub(crate) struct ReplaySteps {
    records: Vec<StepRecord>,
    words: Vec<u32>,
    /// The index at which the last step's words begin: a step with the same words shares them.
    last: usize,
}

impl Drop for ReplaySteps {
    fn drop(&mut self) {
        wipe(&mut self.records);
        wipe(&mut self.words);
    }
}

/// Overwrites values whose memory is freed next.
fn wipe<T: Copy + Default>(values: &mut [T]) {
    values.fill(T::default());
    // The compiler would leave out the zeros.
    std::hint::black_box(values);
}

/// Appends values to a list that holds secrets: a vector that grows by itself leaves its old content behind.
fn append<T: Copy + Default>(list: &mut Vec<T>, values: &[T]) {
    if list.capacity() - list.len() < values.len() {
        let mut larger = Vec::with_capacity(2 * (list.len() + values.len()).max(8));
        larger.extend_from_slice(list);
        wipe(list);
        *list = larger;
    }
    list.extend_from_slice(values);
}

/// A schedule of steps on the device.
pub(crate) struct LoadedReplay {
    records: Memory<u8>,
    words: Memory<u32>,
    control: Control,
    count: u64,
    /// The number of the first step.
    first: Option<u64>,
}

/// The control area: the memory that a graph may touch after all else is freed.
struct Control {
    memory: Option<Memory<u64>>,
    address: u64,
    /// True once a graph holds the address.
    captured: bool,
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.captured {
            // The area is deliberately never freed: the module's documentation says why.
            std::mem::forget(self.memory.take());
        }
    }
}

impl ReplaySteps {
    /// Makes room for records, on the host; the device must have room for them too.
    pub(crate) fn reserve(&mut self, num_steps: u64, context: &CudaContext) -> Result<()> {
        let bytes = u128::from(num_steps) * size_of::<StepRecord>() as u128;
        let (_, total) = context.mem_get_info().map_err(device_error("ask for the device's memory"))?;
        let steps = usize::try_from(num_steps).ok().filter(|_| bytes <= total as u128);
        match steps.map(|steps| self.records.try_reserve_exact(steps)) {
            Some(Ok(())) => Ok(()),
            _ => Err(Error::OutOfMemory { bytes }),
        }
    }

    /// Adds a step whose list is `words`, `unit` words per entry.
    pub(crate) fn push(&mut self, record: &StepRecord, words: &[u32], unit: usize) -> Result<()> {
        if self.words[self.last..] != *words {
            self.last = self.words.len();
            append(&mut self.words, words);
        }
        // A step without words may use its index for something else.
        let list = if words.is_empty() {
            Ok(record.list)
        } else {
            u32::try_from(self.last / unit).map_err(|_| {
                Error::length(
                    "schedule of a captured graph",
                    self.records.len(),
                    "fewer steps: their lists are too long",
                )
            })
        }?;
        append(&mut self.records, &[StepRecord { list, ..*record }]);
        Ok(())
    }

    /// The number of steps so far.
    pub(crate) fn len(&self) -> u64 {
        self.records.len() as u64
    }

    /// Copies the steps to the device, for gradients of `num_segments` segments.
    pub(crate) fn load(mut self, stream: &Arc<CudaStream>, num_segments: usize) -> Result<LoadedReplay> {
        // Device memory of no length has no address.
        if self.words.is_empty() {
            self.words.push(0);
        }
        let spare = [StepRecord::default()];
        let records = if self.records.is_empty() { &spare } else { self.records.as_slice() };
        let control = Memory::zeros(stream, HEAD_WORDS + num_segments * SEGMENT_WORDS / 2)?;
        let records: &[u8] = bytemuck::cast_slice(records);
        let mut loaded = LoadedReplay {
            records: Memory::zeros(stream, records.len())?,
            words: Memory::zeros(stream, self.words.len())?,
            control: Control { address: control.address, memory: Some(control), captured: false },
            count: self.len(),
            first: self.records.first().map(|record| record.number),
        };
        let copied = loaded
            .records
            .send(stream, records)
            .and_then(|()| loaded.words.send(stream, &self.words))
            // The copies read host memory that is freed when this returns.
            .and_then(|()| stream.synchronize().map_err(device_error("wait for the stream")));
        // What was sent before a failure is secret too.
        copied.inspect_err(|_| loaded.clear(stream.cu_stream())).map(|()| loaded)
    }
}

impl LoadedReplay {
    /// The number of steps that were handed over.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The number of the first step that was handed over.
    pub(crate) fn first_step(&self) -> Option<u64> {
        self.first
    }

    /// Records that a graph holds the address of the control area from now on.
    pub(crate) fn set_captured(&mut self) {
        self.control.captured = true;
    }

    /// The address of the table of gradients.
    pub(crate) fn segments(&self) -> u64 {
        self.control.address + (8 * HEAD_WORDS) as u64
    }

    /// Writes the schedule's addresses into the arguments of a launch.
    pub(crate) fn fill(&self, args: &mut Args) {
        args.segments = self.segments();
        self.fill_steps(args);
    }

    /// Does what [`LoadedReplay::fill`] does for a launch that touches no gradient.
    pub(crate) fn fill_steps(&self, args: &mut Args) {
        args.schedule = self.records.address;
        args.list = self.words.address;
        args.counter = self.control.address;
        args.num_scheduled = self.count;
    }

    /// Enqueues the count of one more step.
    pub(crate) fn advance(&self, stream: &Arc<CudaStream>, kernels: &Kernels) -> Result<()> {
        let mut launch = stream.launch_builder(&kernels.advance);
        launch.arg(&self.control.address);
        // SAFETY: the kernel's only parameter is the counter, which outlives every graph that knows it.
        unsafe { launch.launch(ONE_THREAD) }.map_err(device_error("launch the counting kernel"))?;
        Ok(())
    }

    /// Ends the schedule, waits, and returns how many steps the device was asked to run.
    pub(crate) fn finish(&self, stream: &Arc<CudaStream>, kernels: &Kernels) -> Result<u64> {
        let mut launch = stream.launch_builder(&kernels.finish);
        launch.arg(&self.control.address);
        // SAFETY: the kernel's only parameter is the counter, which has another word after it.
        unsafe { launch.launch(ONE_THREAD) }.map_err(device_error("launch the ending kernel"))?;
        let mut words = [0; HEAD_WORDS];
        let memory = self.control.memory.as_ref().expect("only dropping takes it");
        let head = memory.slice.slice(..HEAD_WORDS);
        stream.memcpy_dtoh(&head, &mut words).map_err(device_error("read the step counter"))?;
        self.clear(stream.cu_stream());
        stream.synchronize().map_err(device_error("wait for the stream"))?;
        Ok(words[1])
    }

    /// Clears records and lists in the order of `stream`, whose context is current, behind the last step that reads them. On failure the
    /// context is gone, and they with it.
    pub(crate) fn clear(&self, stream: CUstream) {
        self.records.clear(stream);
        self.words.clear(stream);
    }

    /// Ends the schedule in the order of `stream`, whose context is current. It launches no kernel and returns no count, because a drop
    /// can do no more.
    pub(crate) fn end(&self, stream: CUstream) {
        // SAFETY: the counter is 8 bytes of device memory that this value owns.
        let _ = unsafe { result::memset_d8_async(self.control.address, ENDED_BYTE, 8, stream) };
    }
}

const ONE_THREAD: LaunchConfig =
    LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
