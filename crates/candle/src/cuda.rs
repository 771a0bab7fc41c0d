//! One step on a CUDA device, on candle's stream.
//!
//! What the device does is ordered by the stream and not by candle's locks, so addresses are asked for one tensor after another, and
//! nothing is held. candle and the engine use one version of cudarc, so the stream is handed over as it is.

use crate::check::{Checked, check};
use crate::storage::with_values;
use candle_core::cuda::CudaStorageSlice;
use candle_core::cuda::cudarc::driver::{CudaSlice, CudaStream, DevicePtrMut};
use candle_core::{CpuStorage, CudaStorage, Device, InplaceOp1, Layout, Tensor};
use corrnoise::any::{AnyBackend, AnyMechanism};
use corrnoise::backend::Backend;
use corrnoise::cuda::keep_current;
use corrnoise::{Error, Result};
use std::cell::Cell;

/// Enqueues the next step of a mechanism on a device. candle's usual stream is one per thread: a mechanism is then made and used by one
/// thread. This was type-checked and never run on a device.
pub(crate) fn add_on_device(
    mechanism: &mut AnyMechanism,
    gradients: &[&Tensor],
    name: &dyn Fn(usize) -> String,
) -> Result<()> {
    let _kept = keep_current();
    // This check comes before candle's events are waited for, which would spoil a capture.
    mechanism.backend().check_ready()?;
    let AnyBackend::Cuda(cuda) = mechanism.backend() else {
        return Err(Error::Device("candle has CUDA devices and no others".into()));
    };
    let stream = cuda.stream().clone();
    let ours = |device: &Device| matches!(device, Device::Cuda(device) if device.cuda_stream() == stream);
    let checked =
        check(mechanism.shard(), gradients, name, (&ours, "the device and the stream of the mechanism"))?;
    let spans = touch(&checked, &stream)?;
    let spans =
        spans.iter().map(|(address, len)| (std::ptr::without_provenance_mut(*address as usize), *len));
    // SAFETY: contiguous tensors of this type on the mechanism's stream. Until the stream has passed the step, nothing else on it
    // touches the memory, and candle frees memory in the order of the stream.
    unsafe { mechanism.add_to_raw(checked.dtype, spans) }?;
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
        with_values!(&mut storage.slice, CudaStorageSlice, slice => self.find(slice, layout), _ => {
            candle_core::bail!("a gradient changed its type")
        })
    }
}
