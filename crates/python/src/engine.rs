//! Where a mechanism runs: on the CPU, or with the feature `cuda` on a device, in the order of a stream of the caller's.

use crate::error::invalid;
#[cfg(feature = "cuda")]
use crate::error::raise;
use crate::memory::{Device, Dtype};
use corrnoise::backend::Backend;
#[cfg(feature = "cuda")]
use corrnoise::cuda::{self, DeviceGradient, OnCuda, cudarc::driver::CudaStream};
use corrnoise::raw::RawGradients;
use corrnoise::{Batch, Checkpoint, Cpu, CpuOptions, Key, Mechanism, Plan, Result, Resume, RunKey, Shard};
use half::{bf16, f16};
use pyo3::PyResult;
#[cfg(feature = "cuda")]
use std::mem::ManuallyDrop;
use std::path::Path;

/// What an engine is made on.
#[derive(Clone)]
pub(crate) enum Place {
    Cpu(CpuOptions),
    #[cfg(feature = "cuda")]
    Cuda(Stream),
}

/// A stream, whose end may close the device's context, but leaves the caller's current.
#[cfg(feature = "cuda")]
#[derive(Clone)]
pub(crate) struct Stream(ManuallyDrop<std::sync::Arc<CudaStream>>);

#[cfg(feature = "cuda")]
impl Drop for Stream {
    fn drop(&mut self) {
        let _kept = cuda::keep_current();
        // SAFETY: dropped once, here, and not used after.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

impl Place {
    /// `device` is "cpu", "cuda" or "cuda:N"; `stream` the address of a CUDA stream, 0 for the default one.
    pub(crate) fn new(device: &str, stream: usize, threads: usize, compact: bool) -> PyResult<Place> {
        let number = match device {
            "cpu" if stream == 0 => {
                return Ok(Place::Cpu(CpuOptions { threads, compact, ..CpuOptions::default() }));
            }
            "cpu" => return Err(invalid(format!("stream is {stream:#x}: expected 0 on the CPU"))),
            "cuda" => Some(0),
            other => other.strip_prefix("cuda:").and_then(|number| number.parse::<usize>().ok()),
        };
        let Some(number) = number else {
            return Err(invalid(format!("device is {device:?}: expected \"cpu\", \"cuda\" or \"cuda:N\"")));
        };
        Place::cuda(number, stream)
    }

    #[cfg(feature = "cuda")]
    fn cuda(number: usize, stream: usize) -> PyResult<Place> {
        let default = cuda::stream(number).map_err(raise)?;
        if stream == 0 {
            return Ok(Place::Cuda(Stream(ManuallyDrop::new(default))));
        }
        // SAFETY: the caller's promise, in the text of `Mechanism`: a stream of the device's primary context, which is the one
        // that PyTorch and the runtime use, that outlives the mechanism.
        let stream = unsafe { default.context().wrap_borrowed_stream(stream as *mut _) };
        Ok(Place::Cuda(Stream(ManuallyDrop::new(stream))))
    }

    #[cfg(not(feature = "cuda"))]
    fn cuda(number: usize, _: usize) -> PyResult<Place> {
        Err(invalid(format!(
            "device is cuda:{number}: expected \"cpu\", this package was built without CUDA"
        )))
    }
}

/// What a step is given of its batch.
#[derive(Clone, Copy)]
pub(crate) enum Given<'a> {
    Nothing,
    Batch(&'a Batch),
    /// The caller vouches for it.
    Unchecked,
}

/// A mechanism on some device.
pub(crate) enum Engine {
    Cpu(Box<Mechanism>),
    #[cfg(feature = "cuda")]
    Cuda(Box<Mechanism<cuda::Cuda>>),
}

/// Runs one expression for whichever engine there is.
macro_rules! with_engine {
    ($engine:expr, $mechanism:ident => $body:expr) => {
        match $engine {
            Engine::Cpu($mechanism) => $body,
            #[cfg(feature = "cuda")]
            Engine::Cuda($mechanism) => $body,
        }
    };
}

fn start<B: Backend>(
    plan: &Plan,
    key: Key,
    shard: Shard,
    make: impl FnMut(&[RunKey], &Shard) -> Result<B>,
    awaits_state: bool,
) -> Result<Mechanism<B>> {
    if awaits_state {
        Mechanism::awaiting_state(plan, key, shard, make)
    } else {
        Mechanism::with_backend(plan, key, shard, make)
    }
}

impl Engine {
    /// A new run, or one that waits for a state.
    pub(crate) fn new(
        plan: &Plan,
        key: Key,
        shard: Shard,
        place: &Place,
        awaits_state: bool,
    ) -> Result<Engine> {
        Ok(match place {
            Place::Cpu(options) => {
                let make = |keys: &[RunKey], shard: &Shard| Cpu::new(plan, keys, shard, *options);
                Engine::Cpu(start(plan, key, shard, make, awaits_state)?.into())
            }
            #[cfg(feature = "cuda")]
            Place::Cuda(stream) => {
                let make = |keys: &[RunKey], shard: &Shard| cuda::Cuda::new(plan, keys, shard, &stream.0);
                Engine::Cuda(start(plan, key, shard, make, awaits_state)?.into())
            }
        })
    }

    /// Goes on from checkpoints.
    pub(crate) fn resume_from(
        plan: &Plan,
        key: Key,
        shard: Shard,
        checkpoints: Vec<Checkpoint>,
        resume: Resume,
        place: &Place,
    ) -> Result<Engine> {
        Ok(match place {
            Place::Cpu(options) => {
                let cpu = |keys: &[RunKey], shard: &Shard| Cpu::new(plan, keys, shard, *options);
                Engine::Cpu(Mechanism::resume_from(plan, key, shard, checkpoints, resume, cpu)?.into())
            }
            #[cfg(feature = "cuda")]
            Place::Cuda(stream) => {
                let cuda = |keys: &[RunKey], shard: &Shard| cuda::Cuda::new(plan, keys, shard, &stream.0);
                Engine::Cuda(Mechanism::resume_from(plan, key, shard, checkpoints, resume, cuda)?.into())
            }
        })
    }

    /// Goes on from checkpoints in place of where the mechanism is now.
    pub(crate) fn reload(
        &mut self,
        checkpoints: Vec<Checkpoint>,
        resume: Resume,
        place: &Place,
    ) -> Result<()> {
        match (self, place) {
            (Engine::Cpu(mechanism), Place::Cpu(options)) => {
                mechanism.reload_cpu(checkpoints, resume, *options)
            }
            #[cfg(feature = "cuda")]
            (Engine::Cuda(mechanism), Place::Cuda(stream)) => {
                mechanism.reload_cuda(checkpoints, resume, &stream.0)
            }
            #[cfg(feature = "cuda")]
            _ => unreachable!("an engine stays at its place"),
        }
    }

    pub(crate) fn next_step(&self) -> u64 {
        with_engine!(self, mechanism => mechanism.next_step())
    }

    pub(crate) fn state_bytes(&self) -> u64 {
        with_engine!(self, mechanism => mechanism.backend().state_bytes())
    }

    pub(crate) fn describe(&self) -> String {
        with_engine!(self, mechanism => mechanism.backend().describe())
    }

    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        with_engine!(self, mechanism => mechanism.save(path))
    }

    /// A checkpoint as bytes.
    pub(crate) fn state(&self) -> Result<Vec<u8>> {
        with_engine!(self, mechanism => mechanism.state())
    }

    /// Admits the step of this call, or of none: what an earlier call was given went with that call.
    pub(crate) fn admit(&mut self, batch: Given<'_>) -> Result<()> {
        with_engine!(self, mechanism => match batch {
            Given::Nothing => {
                mechanism.withdraw_batch();
                Ok(())
            }
            Given::Batch(batch) => mechanism.for_batch(batch).map(|_| ()),
            Given::Unchecked => mechanism.unchecked_batch().map(|_| ()),
        })
    }

    /// The device that gradients must be on.
    pub(crate) fn device(&self) -> Device {
        match self {
            Engine::Cpu(_) => Device::Cpu,
            #[cfg(feature = "cuda")]
            Engine::Cuda(mechanism) => Device::Cuda(mechanism.backend().stream().context().ordinal()),
        }
    }

    /// Adds the next step's noise to `(address, length)` each.
    ///
    /// # Safety
    /// They lie on [`Engine::device`], hold values of `dtype`, and are used by nobody else until this returns, or on a device
    /// until the stream has passed the step.
    pub(crate) unsafe fn step(
        &mut self,
        raw: &mut RawGradients,
        dtype: Dtype,
        gradients: &[(usize, usize)],
    ) -> Result<()> {
        fn pairs<E>(list: &[(usize, usize)]) -> impl ExactSizeIterator<Item = (*mut E, usize)> + Clone {
            list.iter().map(|(address, len)| (std::ptr::with_exposed_provenance_mut(*address), *len))
        }
        match self {
            // SAFETY: the caller's promise, passed on.
            Engine::Cpu(mechanism) => unsafe {
                match dtype {
                    Dtype::F32 => raw.add_to::<f32>(mechanism, pairs(gradients)),
                    Dtype::Bf16 => raw.add_to::<bf16>(mechanism, pairs(gradients)),
                    Dtype::F16 => raw.add_to::<f16>(mechanism, pairs(gradients)),
                }
            },
            #[cfg(feature = "cuda")]
            Engine::Cuda(mechanism) => {
                let element = match dtype {
                    Dtype::F32 => cuda::ElementType::F32,
                    Dtype::Bf16 => cuda::ElementType::Bf16,
                    Dtype::F16 => cuda::ElementType::F16,
                };
                let lengths = gradients.iter().map(|(_, len)| *len as u64);
                corrnoise::raw::check_lengths(mechanism.shard(), lengths)?;
                raw.check_addresses(gradients.iter().copied(), element.bytes() as usize)?;
                // SAFETY: of the right lengths, aligned, not overlapping; the rest is the caller's promise.
                let device = |(address, len): &(usize, usize)| unsafe {
                    DeviceGradient::from_raw(*address as u64, *len as u64, element)
                };
                let list: Vec<DeviceGradient<'_>> = gradients.iter().map(device).collect();
                mechanism.run_step(&list)
            }
        }
    }
}
