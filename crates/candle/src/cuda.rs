//! One step on a CUDA device, on candle's stream.
//!
//! What the device does is ordered by the stream and not by candle's locks, so addresses are asked for one tensor after another, and
//! nothing is held. candle and the engine use one version of cudarc, so the stream is handed over as it is.

use crate::CorrelatedNoise;
use crate::check::{Checked, check};
use crate::noise::{call, collect};
use candle_core::backprop::GradStore;
use candle_core::cuda::CudaStorageSlice;
use candle_core::cuda::cudarc::driver::{CudaSlice, CudaStream, DevicePtrMut};
use candle_core::{CpuStorage, CudaStorage, DType, Device, InplaceOp1, Layout, Tensor, Var};
use corrnoise::backend::Backend;
use corrnoise::cuda::{Cuda, DeviceGradient, ElementType, OnCuda, keep_current};
use corrnoise::raw::RawGradients;
use corrnoise::{Error, Key, Mechanism, Plan, Result, Resume};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

/// The same on a CUDA device, with the variables' own stream: a step is enqueued there, and nothing waits.
///
/// candle's usual stream is one per thread: a mechanism is then made and used by one thread. This was type-checked and never run on a
/// device.
impl CorrelatedNoise<Cuda> {
    /// A new run on the device of the variables.
    pub fn cuda<N: Into<String>>(
        vars: impl IntoIterator<Item = (N, Var)>,
        plan: &Plan,
        key: Key,
    ) -> Result<Self> {
        Self::with(vars, |shard, vars| Mechanism::cuda(plan, key, shard, &stream_of(vars)?))
    }

    /// Goes on from checkpoints, whichever engine wrote them; see [`Mechanism::resume_with`].
    pub fn resume_cuda<N: Into<String>>(
        vars: impl IntoIterator<Item = (N, Var)>,
        plan: &Plan,
        key: Key,
        files: &[impl AsRef<Path>],
        resume: Resume,
    ) -> Result<Self> {
        Self::with(vars, |shard, vars| {
            Mechanism::resume_cuda(plan, key, shard, files, resume, &stream_of(vars)?)
        })
    }

    /// Enqueues the noise of the next step for the gradient of every variable, in place.
    pub fn add_noise(&mut self, gradients: &GradStore) -> Result<()> {
        let CorrelatedNoise { vars, mechanism, raw } = self;
        add_named(mechanism, raw, &collect(vars, gradients)?, &|i| call(&vars[i].0))
    }
}

/// Enqueues the noise of the mechanism's next step for one tensor per segment of its shard, in place. They belong to the device and the
/// stream that the mechanism was made with.
pub fn add_to_cuda(mechanism: &mut Mechanism<Cuda>, gradients: &[&Tensor]) -> Result<()> {
    add_named(mechanism, &mut RawGradients::default(), gradients, &|i| format!("gradient {i}"))
}

/// The stream of the first variable; a gradient on another one is refused at its step.
fn stream_of(vars: &[(String, Var)]) -> Result<Arc<CudaStream>> {
    let (name, var) = &vars[0];
    match var.device() {
        Device::Cuda(device) => Ok(device.cuda_stream()),
        other => Err(Error::parameter(format!("device of {name:?}"), format!("{other:?}"), "a CUDA device")),
    }
}

fn add_named(
    mechanism: &mut Mechanism<Cuda>,
    raw: &mut RawGradients,
    gradients: &[&Tensor],
    name: &dyn Fn(usize) -> String,
) -> Result<()> {
    let _kept = keep_current();
    // Before candle's events are waited for, which would spoil a capture.
    mechanism.backend().check_ready()?;
    let stream = mechanism.backend().stream().clone();
    let ours = |device: &Device| matches!(device, Device::Cuda(device) if device.cuda_stream() == stream);
    let checked =
        check(mechanism.shard(), gradients, name, (&ours, "the device and the stream of the mechanism"))?;
    let element = match checked.dtype {
        DType::BF16 => ElementType::Bf16,
        DType::F16 => ElementType::F16,
        _ => ElementType::F32,
    };
    let spans = touch(&checked, &stream)?;
    raw.check_addresses(
        spans.iter().map(|(address, len)| (*address as usize, *len)),
        element.bytes() as usize,
    )?;
    let gradient = |(address, len): &(u64, usize)| {
        // SAFETY: a contiguous tensor of this type on the mechanism's stream. Until the stream has passed the step, nothing else on it
        // touches the memory, and candle frees memory in the order of the stream.
        unsafe { DeviceGradient::from_raw(*address, *len as u64, element) }
    };
    mechanism.run_step(&spans.iter().map(gradient).collect::<Vec<_>>())?;
    // Where candle tells streams apart, others now wait for the step.
    touch(&checked, &stream).map(|_| ())
}

/// Tells candle that the stream writes to the tensors from here on, and where they are.
fn touch(checked: &Checked<'_>, stream: &CudaStream) -> Result<Vec<(u64, usize)>> {
    let address = |tensor: &&Tensor| {
        let write = Write { stream, found: Cell::new((0, 0)) };
        tensor.inplace_op1(&write).map_err(|error| Error::Device(error.to_string()))?;
        Ok(write.found.get())
    };
    checked.tensors.iter().map(address).collect()
}

struct Write<'a> {
    stream: &'a CudaStream,
    found: Cell<(u64, usize)>,
}

impl Write<'_> {
    fn find<T>(&self, slice: &mut CudaSlice<T>, layout: &Layout) -> candle_core::Result<()> {
        let Some((start, end)) = layout.contiguous_offsets() else {
            candle_core::bail!("a gradient is not contiguous")
        };
        let Some(mut view) = slice.try_slice_mut(start..end) else {
            candle_core::bail!("a gradient changed its length")
        };
        let (address, _records_the_write) = view.device_ptr_mut(self.stream);
        self.found.set((address, end - start));
        Ok(())
    }
}

impl InplaceOp1 for Write<'_> {
    fn name(&self) -> &'static str {
        "corrnoise"
    }

    fn cpu_fwd(&self, _: &mut CpuStorage, _: &Layout) -> candle_core::Result<()> {
        candle_core::bail!("a gradient is on the CPU and the mechanism on a CUDA device")
    }

    fn cuda_fwd(&self, storage: &mut CudaStorage, layout: &Layout) -> candle_core::Result<()> {
        match &mut storage.slice {
            CudaStorageSlice::F32(slice) => self.find(slice, layout),
            CudaStorageSlice::BF16(slice) => self.find(slice, layout),
            CudaStorageSlice::F16(slice) => self.find(slice, layout),
            _ => candle_core::bail!("a gradient changed its type"),
        }
    }
}
