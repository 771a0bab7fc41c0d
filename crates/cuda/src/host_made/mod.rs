//! Noise that the host makes and the device adds: for state that does not fit on the device.
//!
//! State, keys and sampling stay with the CPU engine. A step's row `z̃` goes over the bus in parts of some 16 MB: the threads make one in pinned
//! memory, a stream of its own copies it to a window of device memory, and on the caller's stream the kernel `add` adds it to that part of the
//! gradients on the output grid. While a part is copied or added, the threads make the next. The bits are those of every other engine,
//! and so are the checkpoints.
//!
//! ```text
//! threads          make 0   make 1   make 2   (wait: copied 0)  make 3 …
//! copy stream               copy 0   copy 1   copy 2   (wait: added 0)  copy 3 …
//! caller's stream                    add 0    add 1    add 2 …
//! ```
//!
//! No key leaves the host. What does is each step's row, and the words of its dither.

mod mechanism;
mod table;
mod window;

pub use mechanism::MadeOnHost;

use crate::backend::lower::{DitherWords, lower_add};
use crate::current::KeepCurrent;
use crate::device::{check_capability, device_error};
use crate::gradient::{DeviceGradient, check_gradients};
use crate::launch::{Args, StepRecord, TILE, key_words};
use crate::owned::{bind, end_deferred, is_captured, read_overflow, retire};
use corrnoise_core::backend::{Backend, Step};
use corrnoise_core::fork::Process;
use corrnoise_core::secret::{Secret, on_clean_stack};
use corrnoise_core::{Cpu, CpuOptions, Dtype, Error, Plan, Result, RunKey, Shard};
use cudarc::driver::CudaStream;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use table::PartTable;
use window::{Sending, Window};

/// Options of noise that the host makes, none of which changes it.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostMadeOptions {
    /// The options of the engine that makes the noise.
    pub cpu: CpuOptions,
    /// The bytes of a part that is sent at once; 0 means 16 MiB. It is rounded to whole tiles of 2 KiB, and is at least 16 of them.
    pub chunk_bytes: usize,
    /// The number of parts that device memory holds; 0 means 3. With as many as a row has, all of it can be sent while the caller's stream
    /// still computes the gradients: that takes 4 bytes per parameter of device memory.
    pub window: usize,
}

/// The number of parts that pinned memory holds: one that is made, one that is copied, and one that waits for either.
const PINNED_PARTS: usize = 3;

const CHUNK_BYTES: usize = 16 << 20;
const WINDOW: usize = 3;

impl HostMadeOptions {
    /// The most tiles of a part.
    fn chunk_tiles(&self) -> u64 {
        let bytes = if self.chunk_bytes == 0 { CHUNK_BYTES } else { self.chunk_bytes };
        bytes as u64 / (TILE * size_of::<f32>() as u64)
    }

    fn window(&self) -> usize {
        if self.window == 0 { WINDOW } else { self.window }
    }
}

/// The backend whose noise is made by the host and added by a CUDA device.
///
/// A step returns when all of its parts are made and handed over. It waits where pinned memory is full, which is until the copies
/// before it are done; beyond the window these wait for the caller's stream. [`corrnoise_core::Mechanism::prepare`] makes the next row
/// in the background, in host memory. A gradient that leaves the range of its number type is found later: [`HostMade::first_overflow`].
///
/// A captured graph would repeat a copy of one row, so this backend has no replay, and refuses every call while the stream is captured. The
/// CUDA context that is current on the calling thread is so again when a call returns.
pub struct HostMade {
    cpu: Cpu,
    /// The memory on both sides of the bus, which is taken out when the backend is dropped.
    window: ManuallyDrop<Window>,
    /// The process that this was made in. The driver does not serve its forks.
    process: Process,
    name: String,
    pub(crate) shard: Shard,
    chunk_tiles: u64,
    table: PartTable,
    /// One key per incarnation of the run, by number: the host makes the words of the dither.
    keys: Secret<[u32; 8]>,
    dither: DitherWords,
}

impl HostMade {
    /// A backend whose state is that before the first step, in host memory; gradients are those of `stream`'s device. `keys` are those of
    /// the run's incarnations, by number.
    pub fn new(
        plan: &Plan,
        keys: &[RunKey],
        shard: &Shard,
        stream: &Arc<CudaStream>,
        options: HostMadeOptions,
    ) -> Result<HostMade> {
        let _kept = KeepCurrent::new();
        refuse_capture(stream)?;
        end_deferred();
        check_capability(stream.context())?;
        let chunk_tiles = options.chunk_tiles();
        let table = PartTable::new(shard, chunk_tiles)?;
        let cpu = Cpu::new(plan, keys, shard, options.cpu)?;
        bind(stream);
        let window = Window::new(stream, &table, PINNED_PARTS, options.window())?;
        let backend = HostMade {
            cpu,
            window: ManuallyDrop::new(window),
            process: Process::current(),
            name: stream.context().name().unwrap_or_else(|_| "unnamed device".into()),
            shard: shard.clone(),
            chunk_tiles,
            table,
            keys: on_clean_stack::<STEP_STACK, _>(|| key_words(keys)),
            dither: DitherWords::new(plan.rounds()),
        };
        // Memory is allocated and cleared in the order of the caller's stream, and another stream writes it.
        stream.synchronize().map_err(device_error("wait for the stream"))?;
        Ok(backend)
    }

    /// The stream on which noise is added to gradients.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.window.stream
    }

    /// The bytes of state in host memory; the device has none.
    pub fn state_bytes(&self) -> u64 {
        self.cpu.state_bytes()
    }

    /// The bytes of device memory that parts of a row take on their way.
    pub fn device_bytes(&self) -> u64 {
        self.window.device_bytes()
    }

    /// A text for people that names the device, and what makes the noise.
    pub fn describe(&self) -> String {
        let ordinal = self.stream().context().ordinal();
        format!("CUDA device {ordinal}: {}, noise made by the host ({})", self.name, self.cpu.describe())
    }

    /// The first step at which a gradient left the range of its number type, if there was one. Waits for the stream.
    pub fn first_overflow(&self) -> Result<Option<u64>> {
        if !self.process.is_current() {
            return Err(Error::Forked);
        }
        let _kept = KeepCurrent::new();
        refuse_capture(self.stream())?;
        read_overflow(self.stream(), &self.window.overflow)
    }

    /// Makes the step's row part by part, sends it and enqueues its addition.
    fn run(&mut self, step: &Step<'_>, gradients: &[DeviceGradient<'_>]) -> Result<()> {
        let mut record = StepRecord { number: step.number, ..StepRecord::default() };
        let Some(key) = self.keys.get(usize::from(step.dither.incarnation())) else {
            return Err(Error::Device(format!("step {} is not one of this backend's run", step.number)));
        };
        let (unit, per_unit) = lower_add(step, key, &mut self.dither, &mut record);
        if let Some(words) = self.table.changed(gradients) {
            self.window.send_table(words)?;
            self.table.sent();
        }
        let args =
            Args { overflow: self.window.overflow.address, step: record, unit, per_unit, ..Args::default() };
        // Without gradients there are no coordinates, hence no parts.
        let dtype = gradients.first().map_or(Dtype::F32, |gradient| gradient.dtype);
        let mut sending = Sending::new(&mut self.window, &self.table, args, dtype);
        self.cpu.write_row(step, self.chunk_tiles, &mut sending)
    }
}

/// The bytes of stack that a step uses here: its launch arguments hold the words of its dither. The CPU engine wipes what it uses itself.
const STEP_STACK: usize = 8 << 10;

/// Refuses any use of the stream while it is captured.
fn refuse_capture(stream: &CudaStream) -> Result<()> {
    match is_captured(stream)? {
        false => Ok(()),
        true => Err(Error::Device(
            "the stream is being captured: noise that the host makes cannot be part of a graph, which would add one row again and again".into(),
        )),
    }
}

impl Backend for HostMade {
    type Gradients<'list, 'memory: 'list> = &'list [DeviceGradient<'memory>];

    fn check(&self, gradients: &&[DeviceGradient<'_>]) -> Result<()> {
        check_gradients(&self.shard, gradients)
    }

    fn check_ready(&self) -> Result<()> {
        let _kept = KeepCurrent::new();
        refuse_capture(self.stream())
    }

    fn step(&mut self, step: &Step<'_>, gradients: &[DeviceGradient<'_>]) -> Result<()> {
        let _kept = KeepCurrent::new();
        bind(&self.window.stream);
        let outcome = on_clean_stack::<STEP_STACK, _>(|| self.run(step, gradients));
        if outcome.is_err() {
            // Parts of a row that was not released whole must not stay.
            self.window.give_up();
        }
        outcome
    }

    fn prepare(&mut self, step: &Step<'_>) -> Result<()> {
        self.cpu.prepare(step)
    }

    fn read_state(&self, slot: usize, first: u64, bytes: &mut [u8]) -> Result<()> {
        self.cpu.read_state(slot, first, bytes)
    }

    fn write_state(&mut self, slot: usize, first: u64, bytes: &[u8]) -> Result<()> {
        self.cpu.write_state(slot, first, bytes)
    }
}

impl Drop for HostMade {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        let _kept = KeepCurrent::new();
        // SAFETY: taken once, here, and not used after.
        retire(unsafe { ManuallyDrop::take(&mut self.window) });
        end_deferred();
    }
}
