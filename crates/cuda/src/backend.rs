//! The CUDA backend of a mechanism: one launch per step on the caller's stream, or two where rows are made ahead, without waiting for it.

pub(crate) mod lower;
mod make;
mod replaying;

use crate::ahead::{self, Ahead, table};
use crate::current::KeepCurrent;
use crate::device::{check_capability, device_error};
use crate::gradient::{DeviceGradient, check_gradients};
use crate::launch::{Args, SEGMENT_WORDS, TERM_WORDS, WARPS_PER_BLOCK, key_words, launch_noise, stage};
use crate::module::Kernels;
use crate::options::CudaOptions;
use crate::owned::{Owned, check_not_captured, end_deferred, is_captured, read_overflow, retire};
use crate::replay::ReplaySteps;
use crate::secret_words::SecretWords;
use crate::state::{Tiles, VALUE_BYTES, ring_head};
use corrnoise_core::backend::{Backend, Step};
use corrnoise_core::fork::Process;
use corrnoise_core::form::Kernel;
use corrnoise_core::secret::{Secret, on_clean_stack};
use corrnoise_core::{Dtype, Error, Plan, Result, RunKey, Shard};
use cudarc::driver::CudaStream;
use lower::{DitherWords, Lowered};
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// The CUDA backend: state on the device, work on the caller's stream.
///
/// A step is one launch, and one more small one when gradients moved or the step has a list of its own; where rows are made ahead, which
/// [`CudaOptions`] say, it is one launch that makes rows and one that adds this step's. None of them waits.
/// A gradient that leaves the range of its number type is therefore found later: [`Cuda::first_overflow`].
///
/// Whatever CUDA context is current on the calling thread, or none, is so again when a call returns. While the stream is captured, only
/// [`Replay::enqueue`](corrnoise_core::backend::Replay::enqueue) is allowed: every other use of the stream is refused and changes nothing.
pub struct Cuda {
    /// The device memory, which is taken out when the backend is dropped.
    pub(crate) owned: ManuallyDrop<Owned>,
    /// The process that this was made in. The driver does not serve its forks: calls there fail, or never return.
    process: Process,
    /// The name of the device.
    name: String,
    pub(crate) plan: Plan,
    pub(crate) shard: Shard,
    pub(crate) tiles: Tiles,
    slots: usize,
    is_ring: bool,
    /// One key per incarnation of the run, by number.
    keys: Secret<[u32; 8]>,
    /// The words of the dither's row at hand.
    dither: DitherWords,
    /// The table of segments and the list of the last step as the device has them: only a change is sent.
    sent_segments: Vec<u32>,
    sent_list: SecretWords,
    /// The launch arguments that no step changes.
    args: Args,
    /// The number of steps since this backend was made or restored.
    pub(crate) time: u64,
    /// The number of the step at which that was.
    pub(crate) base: u64,
    /// True once the rows of the next step are made.
    made: bool,
    /// True if the last branch that makes rows was not joined. Its capture may have been given up: [`Cuda::is_branch_open`] asks.
    branched: bool,
    /// The coefficients or terms of the step at hand; a term holds secrets of its row.
    words: SecretWords,
    schedule: ReplaySteps,
    /// True once the kernels' module stays loaded for ever, because a graph launches them.
    keeps_module: bool,
}

impl Cuda {
    /// A backend whose state is that before the first step, on the device and in the order of `stream`. `keys` are those of the
    /// run's incarnations, by number.
    pub fn new(plan: &Plan, keys: &[RunKey], shard: &Shard, stream: &Arc<CudaStream>) -> Result<Cuda> {
        Cuda::with_options(plan, keys, shard, stream, CudaOptions::default())
    }

    /// Does what [`Cuda::new`] does, with options.
    pub fn with_options(
        plan: &Plan,
        keys: &[RunKey],
        shard: &Shard,
        stream: &Arc<CudaStream>,
        options: CudaOptions,
    ) -> Result<Cuda> {
        let _kept = KeepCurrent::new();
        check_not_captured(stream)?;
        end_deferred();
        check_capability(stream.context())?;
        let form = plan.form();
        let slots = form.num_slots();
        let is_ring = matches!(form.kernel(), Kernel::Ring(_));
        let tiles = Tiles::new(shard);
        let (free, _) =
            stream.context().mem_get_info().map_err(device_error("ask for the device's memory"))?;
        let rows = options.rows_ahead_of(form, shard.num_coords(), free as u64)?;
        // Nothing is made ahead of a shard without coordinates: it has no turns.
        let is_staged = options.is_staged(form, rows) && tiles.count > 0;
        // A block of `make` has one tile of a ring; elsewhere a block has one per warp.
        let per_block = if is_staged && is_ring { 1 } else { WARPS_PER_BLOCK };
        if tiles.count.div_ceil(per_block) > i32::MAX as u64 {
            return Err(Error::length(
                "shard in tiles of 512 coordinates",
                usize::try_from(tiles.count).unwrap_or(usize::MAX),
                format!("at most {per_block} · (2^31 − 1), the largest grid"),
            ));
        }
        let list_words = match form.kernel() {
            _ if is_staged => table::max_words(form, rows),
            Kernel::Blt(_) => 0,
            Kernel::Ring(ring) => ring.num_slots(),
            Kernel::Regenerate(regenerate) => TERM_WORDS * regenerate.max_terms(),
        };
        let keys = on_clean_stack::<STEP_STACK, _>(|| key_words(keys));
        let segment_words = SEGMENT_WORDS * tiles.segments.len();
        let kernels = Kernels::load(stream.context(), form, is_staged.then_some(rows))?;
        let held = if is_staged && is_ring { ahead::slots(form, rows) } else { slots };
        let state_bytes = tiles.state_bytes(held)?;
        let ahead = match is_staged {
            true => Some(Ahead::new(stream, form, &tiles, rows, options.prepare)?),
            false => None,
        };
        let owned =
            Owned::new(stream, kernels, ahead, keys.as_flattened(), state_bytes, segment_words, list_words)?;
        let mut cuda = Cuda {
            owned: ManuallyDrop::new(owned),
            process: Process::current(),
            name: stream.context().name().unwrap_or_else(|_| "unnamed device".into()),
            plan: plan.clone(),
            shard: shard.clone(),
            slots,
            is_ring,
            keys,
            dither: DitherWords::new(plan.rounds()),
            sent_segments: Vec::with_capacity(segment_words),
            sent_list: SecretWords::new(list_words),
            args: Args::default(),
            time: 0,
            base: 0,
            made: false,
            branched: false,
            words: SecretWords::new(list_words),
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
        let grid = plan.grid(0);
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
            one: 1,
            unit: grid.unit,
            per_unit: grid.per_unit,
            ..Args::default()
        };
        if let Kernel::Blt(blt) = plan.form().kernel() {
            args.scale[..self.slots].copy_from_slice(blt.scale());
            args.decay[..self.slots].copy_from_slice(blt.decay());
        }
        if let Some(ahead) = &self.owned.ahead {
            args.due = ahead.due.address;
            args.rows = ahead.rows.as_ref().map_or(args.state, |rows| rows.address);
            args.rows_ahead = ahead.turns.rows as u32;
            args.num_slots = narrow(ahead.slots, "list of rows")?;
        }
        Ok(args)
    }

    /// The stream that everything runs on.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.owned.stream
    }

    /// The bytes of state on the device, rows made ahead included.
    pub fn state_bytes(&self) -> u64 {
        let rows = match &self.owned.ahead {
            Some(ahead) if self.is_ring => ahead.slots,
            Some(ahead) => self.slots + ahead.slots,
            None => self.slots,
        };
        self.tiles.slot_len() * (rows * VALUE_BYTES) as u64
    }

    /// A text for people that names the device, and how many rows are made at a time where that is more than one.
    pub fn describe(&self) -> String {
        let mut text = format!("CUDA device {}: {}", self.owned.stream.context().ordinal(), self.name);
        if let Some(ahead) = &self.owned.ahead {
            if ahead.turns.rows > 1 {
                text += &format!(", {} rows at a time", ahead.turns.rows);
            }
            if ahead.own.is_some() {
                text += ", prepared on a stream of its own";
            }
        }
        text
    }

    /// The first step at which a gradient left the range of its number type, if there was one. Waits for the stream.
    pub fn first_overflow(&self) -> Result<Option<u64>> {
        if !self.process.is_current() {
            return Err(Error::Forked);
        }
        let _kept = KeepCurrent::new();
        let Owned { stream, overflow, .. } = &*self.owned;
        check_not_captured(stream)?;
        read_overflow(stream, overflow)
    }

    /// The slot that holds a ring's output of age `index + 1` at local time `time`, or any other form's slot `index`.
    fn physical(&self, index: usize) -> usize {
        match &self.owned.ahead {
            Some(ahead) if self.is_ring => ahead.slot_of_age(self.time, index + 1),
            None if self.is_ring && self.slots > 0 => (ring_head(self.time, self.slots) + index) % self.slots,
            _ => index,
        }
    }

    /// Sends the lists that changed to the device and launches the step.
    fn fused(&mut self, step: &Step<'_>, gradients: &[DeviceGradient<'_>]) -> Result<()> {
        let Lowered { step: record, key, unit, per_unit } = self.lower(step, self.time)?;
        let Some(first) = gradients.first() else { return Ok(()) };
        let segments = self.segment_words(gradients);
        let owned = &*self.owned;
        // SAFETY: a table is as long as what was allocated for it, no list is longer, and no graph holds this launch.
        let send = |to: u64, words: &[u32]| unsafe { stage(&owned.stream, &owned.kernels, to, words) };
        if self.sent_segments != segments {
            send(owned.segments.address, &segments)?;
            self.sent_segments.clone_from(&segments);
        }
        if self.sent_list[..] != self.words[..] {
            send(owned.list.address, &self.words)?;
            self.sent_list.clone_from(&self.words);
        }
        self.launch(&Args { step: record, key, unit, per_unit, ..self.args }, first.dtype)?;
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
        // SAFETY: the addresses are this backend's memory and, in the segment table, gradients that were checked against the shard (or
        // promised by the caller of `from_raw`).
        unsafe { launch_noise(&self.owned.stream, &self.owned.kernels, args, dtype) }
    }
}

/// The bytes of stack that lowering and launching a step use here: a step's arguments hold its key and the words of its dither, and a list that is sent
/// holds secrets of rows. Copies that the driver makes are not covered.
const STEP_STACK: usize = 12 << 10;

impl Backend for Cuda {
    type Gradients<'list, 'memory: 'list> = &'list [DeviceGradient<'memory>];

    fn check(&self, gradients: &&[DeviceGradient<'_>]) -> Result<()> {
        check_gradients(&self.shard, gradients)
    }

    fn check_ready(&self) -> Result<()> {
        let _kept = KeepCurrent::new();
        check_not_captured(&self.owned.stream)
    }

    fn step(&mut self, step: &Step<'_>, gradients: &[DeviceGradient<'_>]) -> Result<()> {
        let _kept = KeepCurrent::new();
        on_clean_stack::<STEP_STACK, _>(|| match self.owned.ahead {
            Some(_) => self.staged(step, gradients),
            None => self.fused(step, gradients),
        })
    }

    fn prepare(&mut self, step: &Step<'_>) -> Result<()> {
        if self.made || self.owned.prepare_stream().is_none() {
            return Ok(());
        }
        let _kept = KeepCurrent::new();
        on_clean_stack::<STEP_STACK, _>(|| self.make_rows(step))
    }

    fn prepare_counted(&mut self) -> Result<()> {
        if self.owned.prepare_stream().is_none() {
            return Ok(());
        }
        let _kept = KeepCurrent::new();
        // Outside of a capture nothing would order a branch with the graphs that are launched next: the step makes its rows itself.
        if !is_captured(&self.owned.stream)? || self.is_branch_open()? {
            return Ok(());
        }
        self.branch()
    }

    fn read_state(&self, slot: usize, first: u64, bytes: &mut [u8]) -> Result<()> {
        let _kept = KeepCurrent::new();
        self.owned.settle()?;
        let size = VALUE_BYTES as u64;
        let base = self.physical(slot) as u64 * self.tiles.slot_len();
        for (place, at) in self.tiles.runs(first, bytes.len() as u64 / size) {
            let from = ((base + at) * size) as usize;
            let to = &mut bytes[(place.start * size) as usize..(place.end * size) as usize];
            let view = self.owned.state.slice.slice(from..from + to.len());
            self.owned.stream.memcpy_dtoh(&view, to).map_err(device_error("read state from the device"))?;
            self.owned.stream.synchronize().map_err(device_error("wait for the stream"))?;
            self.fold(slot, at, to)?;
        }
        Ok(())
    }

    fn write_state(&mut self, slot: usize, first: u64, bytes: &[u8]) -> Result<()> {
        let _kept = KeepCurrent::new();
        self.forget_rows()?;
        self.owned.settle()?;
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

impl Drop for Cuda {
    fn drop(&mut self) {
        let _kept = KeepCurrent::new();
        // SAFETY: taken once, here, and not used after.
        retire(unsafe { ManuallyDrop::take(&mut self.owned) });
        end_deferred();
    }
}
