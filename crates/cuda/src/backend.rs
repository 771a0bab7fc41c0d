//! The CUDA backend of a mechanism: one launch per step on the caller's stream, without waiting for it.

use crate::current::KeepCurrent;
use crate::device::{check_capability, device_error};
use crate::gradient::DeviceGradient;
use crate::launch::{
    Args, SEGMENT_WORDS, StepRecord, TERM_WORDS, THREADS_PER_BLOCK, WARPS_PER_BLOCK, key_words, stage,
};
use crate::module::Kernels;
use crate::owned::{Owned, check_not_captured, end_deferred, is_captured};
use crate::replay::ReplaySteps;
use crate::state::{Tiles, VALUE_BYTES, ring_head};
use corrnoise_core::backend::{Backend, Replay, Step, StepKernel};
use corrnoise_core::fork::Process;
use corrnoise_core::form::Kernel;
use corrnoise_core::secret::{Secret, on_clean_stack};
use corrnoise_core::{Dtype, Error, Plan, Result, Row, RunKey, Shard};
use cudarc::driver::{CudaStream, LaunchConfig, PushKernelArg};
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// The CUDA backend: state on the device, work on the caller's stream.
///
/// A step is one launch, and one more small one when gradients moved or the step has a list of its own. None of them waits.
/// An f16 gradient that leaves its range is therefore found later: [`Cuda::first_overflow`].
///
/// Whatever CUDA context is current on the calling thread, or none, is so again when a call returns. While the stream is captured, only
/// [`Replay::enqueue`] is allowed: every other use of the stream is refused and changes nothing.
pub struct Cuda {
    /// The device memory, which is taken out when the backend is dropped.
    owned: ManuallyDrop<Owned>,
    /// The process that this was made in. The driver does not serve its forks: calls there fail, or never return.
    process: Process,
    /// The name of the device.
    name: String,
    pub(crate) shard: Shard,
    tiles: Tiles,
    slots: usize,
    is_ring: bool,
    /// One key per incarnation of the run, by number.
    keys: Secret<[u32; 8]>,
    /// The table of segments and the list of the last step as the device has them: only a change is sent.
    sent_segments: Vec<u32>,
    sent_list: Vec<u32>,
    /// The launch arguments that no step changes.
    args: Args,
    /// The number of steps since this backend was made or restored.
    time: u64,
    /// The coefficients or terms of the step at hand.
    words: Vec<u32>,
    schedule: ReplaySteps,
    /// True once the kernels' module stays loaded for ever, because a graph launches them.
    keeps_module: bool,
}

impl Cuda {
    /// A backend whose state is that before the first step, on the device and in the order of `stream`. `keys` are those of the
    /// run's incarnations, by number.
    pub fn new(plan: &Plan, keys: &[RunKey], shard: &Shard, stream: &Arc<CudaStream>) -> Result<Cuda> {
        let _kept = KeepCurrent::new();
        check_not_captured(stream)?;
        end_deferred();
        check_capability(stream.context())?;
        let form = plan.form();
        let slots = form.num_slots();
        let tiles = Tiles::new(shard);
        let blocks = tiles.count.div_ceil(WARPS_PER_BLOCK);
        if blocks > i32::MAX as u64 {
            return Err(Error::length(
                "shard in tiles of 512 coordinates",
                usize::try_from(tiles.count).unwrap_or(usize::MAX),
                "at most 4 · (2^31 − 1), the largest grid",
            ));
        }
        let list_words = match form.kernel() {
            Kernel::Blt(_) => 0,
            Kernel::Ring(ring) => ring.num_slots(),
            Kernel::Regenerate(regenerate) => TERM_WORDS * regenerate.max_terms(),
        };
        let keys = on_clean_stack::<STEP_STACK, _>(|| key_words(keys));
        let segment_words = SEGMENT_WORDS * tiles.segments.len();
        let kernels = Kernels::load(stream.context(), form)?;
        let state_bytes = tiles.state_bytes(slots)?;
        let owned = Owned::new(stream, kernels, keys.as_flattened(), state_bytes, segment_words, list_words)?;
        let mut cuda = Cuda {
            owned: ManuallyDrop::new(owned),
            process: Process::current(),
            name: stream.context().name().unwrap_or_else(|_| "unnamed device".into()),
            shard: shard.clone(),
            slots,
            is_ring: matches!(form.kernel(), Kernel::Ring(_)),
            keys,
            sent_segments: Vec::with_capacity(segment_words),
            sent_list: Vec::with_capacity(list_words),
            args: Args::default(),
            time: 0,
            words: Vec::with_capacity(list_words),
            schedule: ReplaySteps::default(),
            keeps_module: false,
            tiles,
        };
        cuda.args = cuda.constant_args(plan)?;
        // The copies read host memory that is freed when this returns.
        stream.synchronize().map_err(device_error("wait for the stream"))?;
        Ok(cuda)
    }

    fn constant_args(&self, plan: &Plan) -> Result<Args> {
        let narrow = |len: usize, name: &str| {
            u32::try_from(len).map_err(|_| Error::length(name, len, "less than 2^32"))
        };
        let mut args = Args {
            segments: self.owned.segments.address,
            state: self.owned.state.address,
            list: self.owned.list.address,
            keys: self.owned.keys.address,
            overflow: self.owned.overflow.address,
            num_tiles: self.tiles.count,
            num_segments: narrow(self.tiles.segments.len(), "list of segments")?,
            four_rounds: u32::from(plan.rounds()) / 4,
            num_slots: narrow(self.slots, "ring")?,
            ..Args::default()
        };
        if let Kernel::Blt(blt) = plan.form().kernel() {
            args.scale[..self.slots].copy_from_slice(blt.scale());
            args.decay[..self.slots].copy_from_slice(blt.decay());
        }
        Ok(args)
    }

    /// The stream that everything runs on.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.owned.stream
    }

    /// The bytes of state on the device.
    pub fn state_bytes(&self) -> u64 {
        self.tiles.slot_len() * (self.slots * VALUE_BYTES) as u64
    }

    /// The device's name, as a text for people.
    pub fn describe(&self) -> String {
        format!("CUDA device {}: {}", self.owned.stream.context().ordinal(), self.name)
    }

    /// The first step at which an f16 gradient left its range, if there was one. Waits for the stream.
    pub fn first_overflow(&self) -> Result<Option<u64>> {
        if !self.process.is_current() {
            return Err(Error::Forked);
        }
        let _kept = KeepCurrent::new();
        let Owned { stream, overflow, .. } = &*self.owned;
        check_not_captured(stream)?;
        let step = stream.clone_dtoh(&overflow.slice).map_err(device_error("read the overflow flag"))?;
        stream.synchronize().map_err(device_error("wait for the stream"))?;
        Ok(Some(step[0]).filter(|step| *step != u64::MAX))
    }

    /// The slot that holds a ring's output of age `index + 1` at local time `time`, or any other form's slot `index`.
    fn physical(&self, index: usize) -> usize {
        if self.is_ring && self.slots > 0 {
            (ring_head(self.time, self.slots) + index) % self.slots
        } else {
            index
        }
    }

    /// Lowers a step to what the device reads; its list is left in `words`. Refuses a step of another plan.
    fn record(&mut self, step: &Step<'_>, time: u64) -> Result<(StepRecord, [u32; 8])> {
        let refuse =
            || Error::Device(format!("step {} is not one of this backend's plan and run", step.number));
        let key = |row: Row| self.keys.get(usize::from(row.incarnation())).copied().ok_or_else(refuse);
        let mut record = StepRecord { number: step.number, scale: step.scale, ..StepRecord::default() };
        self.words.clear();
        let key = match &step.kernel {
            StepKernel::Blt { row, scale, decay, fresh } => {
                if self.is_ring || (scale.len(), decay.len()) != (self.slots, self.slots) {
                    return Err(refuse());
                }
                (record.row, record.head) = (row.stream(), u32::from(*fresh));
                key(*row)?
            }
            StepKernel::Ring { row, coefs } => {
                if !self.is_ring || coefs.len() > self.slots {
                    return Err(refuse());
                }
                self.words.extend(coefs.iter().map(|coef| coef.to_bits()));
                (record.row, record.head) = (row.stream(), ring_head(time, self.slots) as u32);
                record.count = coefs.len() as u32;
                key(*row)?
            }
            StepKernel::Regenerate { terms } => {
                for (row, weight) in *terms {
                    key(*row)?;
                    let name = row.stream();
                    self.words.extend([name as u32, (name >> 32) as u32, weight.to_bits(), 0]);
                }
                record.count = u32::try_from(terms.len()).map_err(|_| refuse())?;
                [0; 8]
            }
        };
        Ok((record, key))
    }

    /// Sends the lists that changed to the device and launches the step.
    fn make(&mut self, step: &Step<'_>, gradients: &[DeviceGradient<'_>]) -> Result<()> {
        let (record, key) = self.record(step, self.time)?;
        let Some(first) = gradients.first() else { return Ok(()) };
        let segments = self.segment_words(gradients);
        let owned = &*self.owned;
        for (sent, to, words) in [
            (&mut self.sent_segments, &owned.segments, &segments),
            (&mut self.sent_list, &owned.list, &self.words),
        ] {
            if sent != words {
                // SAFETY: no list is longer than what was allocated for it, and no graph holds this launch.
                unsafe { stage(&owned.stream, &owned.kernels, to.address, words) }?;
                sent.clone_from(words);
            }
        }
        self.launch(&Args { step: record, key, ..self.args }, first.dtype)?;
        self.time += 1;
        Ok(())
    }

    /// The segment table with these gradients.
    fn segment_words(&self, gradients: &[DeviceGradient<'_>]) -> Vec<u32> {
        let mut table = self.tiles.segments.clone();
        for (segment, gradient) in table.iter_mut().zip(gradients) {
            segment.gradient = gradient.pointer;
        }
        bytemuck::cast_slice(&table).to_vec()
    }

    fn launch(&self, args: &Args, dtype: Dtype) -> Result<()> {
        // That the count fits was checked when the backend was made.
        let blocks = self.tiles.count.div_ceil(WARPS_PER_BLOCK) as u32;
        if blocks == 0 {
            return Ok(());
        }
        let config = LaunchConfig {
            grid_dim: (blocks, 1, 1),
            block_dim: (THREADS_PER_BLOCK, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = self.owned.stream.launch_builder(self.owned.kernels.noise(dtype));
        launch.arg(args);
        // SAFETY: `Args` is the kernel's only parameter, laid out as there; its addresses are this backend's memory and, in the
        // segment table, gradients that were checked against the shard (or promised by the caller of `from_raw`).
        unsafe { launch.launch(config) }.map_err(device_error("launch a noise kernel"))?;
        Ok(())
    }
}

/// The bytes of stack that lowering and launching a step use here: a step's arguments hold its key. Copies that the driver makes are not
/// covered.
const STEP_STACK: usize = 8 << 10;

impl Backend for Cuda {
    type Gradients<'list, 'memory: 'list> = &'list [DeviceGradient<'memory>];

    fn check(&self, gradients: &&[DeviceGradient<'_>]) -> Result<()> {
        let segments = self.shard.segments();
        if gradients.len() != segments.len() {
            let expected = format!("{}, one per segment", segments.len());
            return Err(Error::length("list of gradients", gradients.len(), expected));
        }
        for (i, (gradient, segment)) in gradients.iter().zip(segments).enumerate() {
            let expected = segment.end - segment.start;
            if gradient.len != expected {
                let expected = format!("{expected}, the shard's coordinates {segment:?}");
                return Err(Error::Length { name: format!("gradient {i}"), got: gradient.len, expected });
            }
            if gradient.dtype != gradients[0].dtype {
                let (got, expected) = (gradient.dtype, gradients[0].dtype);
                return Err(Error::parameter(
                    format!("type of gradient {i}"),
                    format!("{got:?}"),
                    format!("{expected:?}, that of gradient 0"),
                ));
            }
            let bytes = gradient.dtype.bytes() as u64;
            if gradient.pointer % bytes != 0 || (gradient.pointer == 0 && gradient.len > 0) {
                return Err(Error::parameter(
                    format!("address of gradient {i}"),
                    format!("{:#x}", gradient.pointer),
                    format!("a device address that is a multiple of {bytes}"),
                ));
            }
        }
        Ok(())
    }

    fn check_ready(&self) -> Result<()> {
        let _kept = KeepCurrent::new();
        check_not_captured(&self.owned.stream)
    }

    fn step(&mut self, step: &Step<'_>, gradients: &[DeviceGradient<'_>]) -> Result<()> {
        let _kept = KeepCurrent::new();
        on_clean_stack::<STEP_STACK, _>(|| self.make(step, gradients))
    }

    fn read_state(&self, slot: usize, first: u64, bytes: &mut [u8]) -> Result<()> {
        let _kept = KeepCurrent::new();
        let size = VALUE_BYTES as u64;
        let base = self.physical(slot) as u64 * self.tiles.slot_len();
        for (place, at) in self.tiles.runs(first, bytes.len() as u64 / size) {
            let from = ((base + at) * size) as usize;
            let to = &mut bytes[(place.start * size) as usize..(place.end * size) as usize];
            let view = self.owned.state.slice.slice(from..from + to.len());
            self.owned.stream.memcpy_dtoh(&view, to).map_err(device_error("read state from the device"))?;
        }
        self.owned.stream.synchronize().map_err(device_error("wait for the stream"))
    }

    fn write_state(&mut self, slot: usize, first: u64, bytes: &[u8]) -> Result<()> {
        let _kept = KeepCurrent::new();
        let size = VALUE_BYTES as u64;
        let base = self.physical(slot) as u64 * self.tiles.slot_len();
        for (place, at) in self.tiles.runs(first, bytes.len() as u64 / size) {
            let from = &bytes[(place.start * size) as usize..(place.end * size) as usize];
            let to = ((base + at) * size) as usize;
            let Owned { stream, state, .. } = &mut *self.owned;
            let mut view = state.slice.slice_mut(to..to + from.len());
            stream.memcpy_htod(from, &mut view).map_err(device_error("write state to the device"))?;
        }
        self.owned.stream.synchronize().map_err(device_error("wait for the stream"))
    }
}

impl Replay for Cuda {
    fn reserve(&mut self, num_steps: u64) -> Result<()> {
        let _kept = KeepCurrent::new();
        self.schedule.reserve(num_steps, self.owned.stream.context())
    }

    fn schedule(&mut self, step: &Step<'_>) -> Result<()> {
        let (record, _) = self.record(step, self.time + self.schedule.len())?;
        let unit = if self.is_ring { 1 } else { TERM_WORDS };
        self.schedule.push(record, &self.words, unit)
    }

    fn start(&mut self) -> Result<()> {
        let _kept = KeepCurrent::new();
        let stream = self.owned.stream.clone();
        check_not_captured(&stream)?;
        let schedule = std::mem::take(&mut self.schedule);
        self.owned.loaded = Some(schedule.load(&stream, self.tiles.segments.len())?);
        Ok(())
    }

    /// Enqueues a step that the device counts. On a stream that is not captured this is a launch as any other, and is counted all the same.
    fn enqueue(&mut self, gradients: &[DeviceGradient<'_>]) -> Result<()> {
        let _kept = KeepCurrent::new();
        let segments = self.segment_words(gradients);
        let Owned { stream, kernels, loaded: Some(loaded), .. } = &mut *self.owned else {
            return Err(Error::Device("no schedule is on the device".into()));
        };
        if is_captured(stream)? {
            loaded.set_captured();
            if !self.keeps_module {
                // The graph launches these kernels as long as it exists, and it is not known when it ceases to.
                std::mem::forget(kernels.clone());
                self.keeps_module = true;
            }
        }
        let mut args = self.args;
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
        let (made, ran) = self.owned.finish()?;
        self.time += ran;
        Ok(made)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        let _kept = KeepCurrent::new();
        // SAFETY: taken once, here, and not used after.
        unsafe { ManuallyDrop::take(&mut self.owned) }.retire();
        end_deferred();
    }
}
