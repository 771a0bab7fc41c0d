//! A CUDA device as tools examine it: times come from events on its stream, each after the L2 cache was overwritten.

use super::{Examine, Facts, Replayed, StepSeconds, TimedSteps, Way};
use crate::device::Place;
use corrnoise_core::backend::Backend;
use corrnoise_core::{Dtype, Error, Key, Mechanism, Plan, Result, Shard};
use corrnoise_cuda::cudarc::driver::{
    CudaGraph, CudaSlice, CudaStream, DevicePtrMut, DriverError,
    sys::{
        self, CUdevice_attribute as Attribute, CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode,
    },
};
use corrnoise_cuda::{Cuda, CudaOptions, DeviceGradient, OnCuda, Stream, stream};
use std::sync::Arc;

/// The number of untimed steps or copies before the timed ones.
const WARM_UP: usize = 3;

/// An open CUDA device and its default stream.
pub(super) struct CudaDevice {
    stream: Stream,
}

fn failed(error: DriverError) -> Error {
    Error::Device(error.to_string())
}

impl From<Way> for CudaOptions {
    fn from(way: Way) -> CudaOptions {
        CudaOptions { rows_ahead: Some(way.rows_ahead), prepare: way.prepare, max_state_bytes: None }
    }
}

impl CudaDevice {
    pub(super) fn open(number: usize) -> Result<CudaDevice> {
        Ok(CudaDevice { stream: Stream::from(stream(number)?) })
    }

    fn attribute(&self, attribute: Attribute) -> Result<i64> {
        self.stream.context().attribute(attribute).map(i64::from).map_err(failed)
    }

    /// Memory that evicts from the L2 cache what calls of `moved` bytes left there. It is larger than that cache, or, in a rehearsal with
    /// a few values, several times what a call moves.
    fn flush(&self, moved: usize) -> Result<CudaSlice<u8>> {
        let cache = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?;
        let flushed = (2 * usize::try_from(cache).unwrap_or(0)).max(64 << 20).min(8 * moved.max(1));
        self.stream.alloc_zeros::<u8>(flushed).map_err(failed)
    }

    /// Evicts from the L2 cache what the last call left there.
    fn overwrite(&self, flush: &mut CudaSlice<u8>) -> Result<()> {
        self.stream.memset_zeros(flush).map_err(failed)
    }

    /// The seconds of calls, some more of which come first to warm the device up. `ready` comes before each of them and is not timed.
    fn timed<T>(
        &self,
        timed: usize,
        it: &mut T,
        ready: impl Fn(&mut T) -> Result<()>,
        call: impl Fn(&mut T) -> Result<()>,
    ) -> Result<Vec<f64>> {
        let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
        let mut seconds = Vec::with_capacity(WARM_UP + timed);
        for _ in 0..WARM_UP + timed {
            ready(it)?;
            let start = self.stream.record_event(flags).map_err(failed)?;
            call(it)?;
            let end = self.stream.record_event(flags).map_err(failed)?;
            seconds.push(f64::from(start.elapsed_ms(&end).map_err(failed)?) / 1e3);
        }
        Ok(seconds.split_off(WARM_UP))
    }
}

/// A mechanism whose steps are timed, its gradient, and the memory that is overwritten between steps.
struct Steps {
    noise: Mechanism<Cuda>,
    /// The values of the gradient, as bytes: a number type needs to be none of cudarc's.
    gradient: CudaSlice<u8>,
    dtype: Dtype,
    stream: Stream,
    flush: CudaSlice<u8>,
}

impl Steps {
    fn step(&mut self) -> Result<()> {
        let gradient = DeviceGradient::from_bytes(&mut self.gradient, self.dtype, &self.stream);
        self.noise.run_step(&[gradient])
    }
}

/// A mechanism and the gradient that its graph was captured with.
struct Replay {
    noise: Mechanism<Cuda>,
    gradient: CudaSlice<u8>,
    dtype: Dtype,
    /// The bytes that the gradient has before each step.
    before: Vec<u8>,
    prepare: bool,
    stream: Arc<CudaStream>,
}

impl Replay {
    /// Makes the next step by value.
    fn step(&mut self) -> Result<Vec<u32>> {
        self.reset()?;
        self.prepare()?;
        let gradient = DeviceGradient::from_bytes(&mut self.gradient, self.dtype, &self.stream);
        self.noise.run_step(&[gradient])?;
        self.bits()
    }

    /// Makes the rows of the next step, if that is the way; in a capture, on a branch of the graph.
    fn prepare(&mut self) -> Result<()> {
        if self.prepare { self.noise.prepare() } else { Ok(()) }
    }

    fn launch(&mut self, graph: &CudaGraph) -> Result<Vec<u32>> {
        self.reset()?;
        graph.launch().map_err(failed)?;
        self.bits()
    }

    fn capture(&mut self) -> Result<CudaGraph> {
        // A capture cannot wait for events of a slice that was made outside of it; a raw address has none.
        let address = self.gradient.device_ptr_mut(&self.stream).0;
        let len = (self.before.len() / self.dtype.bytes()) as u64;
        // SAFETY: the slice lives as long as the graph, in `replay`, and only this stream touches it.
        let raw = unsafe { DeviceGradient::from_raw(address, len, self.dtype) };
        self.stream
            .begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
            .map_err(failed)?;
        let enqueued = self.prepare().and_then(|()| self.noise.enqueue(&[raw]));
        let graph = self.stream.end_capture(CUgraphInstantiate_flags(0)).map_err(failed)?;
        enqueued?;
        graph.ok_or_else(|| Error::Device("the capture held nothing".into()))
    }

    fn reset(&mut self) -> Result<()> {
        self.stream.memcpy_htod(&self.before, &mut self.gradient).map_err(failed)
    }

    fn bits(&self) -> Result<Vec<u32>> {
        let bytes = self.stream.clone_dtoh(&self.gradient).map_err(failed)?;
        self.stream.synchronize().map_err(failed)?;
        let bits = |value: &[u8]| value.iter().rev().fold(0, |bits, byte| bits << 8 | u32::from(*byte));
        Ok(bytes.chunks_exact(self.dtype.bytes()).map(bits).collect())
    }
}

impl Examine for CudaDevice {
    fn facts(&self) -> Result<Facts> {
        let context = self.stream.context();
        let mut cuda_version = 0;
        // SAFETY: the driver writes one number to an address that is valid for it.
        unsafe { sys::cuDriverGetVersion(&mut cuda_version) }.result().map_err(failed)?;
        let clock = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?;
        let memory_clock = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?;
        let bus = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?;
        let count = |attribute| Ok(u64::try_from(self.attribute(attribute)?).unwrap_or(0));
        Ok(Facts {
            name: context.name().map_err(failed)?,
            capability: context.compute_capability().map_err(failed)?,
            cuda_version,
            memory_bytes: context.total_mem().map_err(failed)? as u64,
            multiprocessors: count(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            clock_hz: 1e3 * clock as f64,
            // Two transfers per clock, and the bus is counted in bits.
            memory_bytes_per_second: 1e3 * memory_clock as f64 * 2.0 * bus as f64 / 8.0,
            l2_bytes: count(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
        })
    }

    fn place(&self, way: Way) -> Place {
        Place::Cuda(self.stream.clone(), way.into())
    }

    fn copy_seconds(&self, bytes: usize, timed: usize) -> Result<Vec<f64>> {
        let from = self.stream.alloc_zeros::<u8>(bytes.max(1)).map_err(failed)?;
        let to = self.stream.alloc_zeros::<u8>(bytes.max(1)).map_err(failed)?;
        let flush = self.flush(2 * bytes)?;
        let copy = |to: &mut (CudaSlice<u8>, CudaSlice<u8>)| {
            self.stream.memcpy_dtod(&from, &mut to.0).map_err(failed)
        };
        self.timed(timed, &mut (to, flush), |(_, flush)| self.overwrite(flush), copy)
    }

    fn step_seconds(
        &self,
        TimedSteps { form, history, dim, dtype, way, count }: TimedSteps<'_>,
    ) -> Result<StepSeconds> {
        // All tiles make rows at the first step, and take turns from then on. No row is made past the end of the plan, so that its last
        // steps would be faster.
        let untimed = history.max(way.rows_ahead);
        let series = if way.prepare { 2 } else { 1 };
        let num_steps = untimed + series * (WARM_UP + count) + way.rows_ahead;
        let plan = Plan::new(num_steps as u64, form.clone(), 0.5)?;
        let (key, shard) = (Key::from_os()?, Shard::whole(dim)?);
        let mut run = Steps {
            noise: Mechanism::cuda_with(&plan, key, shard, &self.stream, way.into())?,
            gradient: self.stream.alloc_zeros::<u8>(dim as usize * dtype.bytes()).map_err(failed)?,
            dtype,
            stream: self.stream.clone(),
            flush: self.flush(dim as usize * (8 + 4 * form.num_slots()))?,
        };
        for _ in 0..untimed {
            run.step()?;
        }
        if !way.prepare {
            let step = self.timed(count, &mut run, |run| self.overwrite(&mut run.flush), Steps::step)?;
            return Ok(StepSeconds { step, with_prepare: Vec::new() });
        }
        let idle = |run: &mut Steps| {
            self.overwrite(&mut run.flush)?;
            // The stream that makes rows would not wait for the memory to be overwritten.
            self.stream.synchronize().map_err(failed)
        };
        let both = |run: &mut Steps| run.noise.prepare().and_then(|()| run.step());
        let with_prepare = self.timed(count, &mut run, idle, both)?;
        let prepared = |run: &mut Steps| {
            run.noise.prepare()?;
            // To read state, even none of it, is to wait for the stream that makes rows.
            run.noise.backend().read_state(0, 0, &mut [])?;
            self.overwrite(&mut run.flush)
        };
        Ok(StepSeconds { step: self.timed(count, &mut run, prepared, Steps::step)?, with_prepare })
    }

    fn replay(&self, plan: &Plan, key: Key, dtype: Dtype, way: Way, before: &[u32]) -> Result<Replayed> {
        // The default stream cannot be captured.
        let own = self.stream.context().new_stream().map_err(failed)?;
        let shard = Shard::whole(before.len() as u64)?;
        let noise = Mechanism::cuda_with(plan, key, shard, &own, way.into())?;
        let before: Vec<u8> =
            before.iter().flat_map(|bits| bits.to_le_bytes().into_iter().take(dtype.bytes())).collect();
        let gradient = own.clone_htod(&before).map_err(failed)?;
        let mut run = Replay { noise, gradient, dtype, before, prepare: way.prepare, stream: own };
        let mut steps = vec![run.step()?];
        let between = plan.num_steps().saturating_sub(2);
        run.noise.begin_replay(between)?;
        let graph = run.capture()?;
        for _ in 0..between {
            steps.push(run.launch(&graph)?);
        }
        let counted = run.noise.end_replay()?;
        steps.push(run.step()?);
        let late = run.launch(&graph)?;
        Ok(Replayed { steps, counted, late })
    }
}
