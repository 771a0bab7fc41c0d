//! Steps on gradients in host memory, which are copied to the device and back: for tools and tests, which have no device memory.

use crate::backend::Cuda;
use crate::current::KeepCurrent;
use crate::device::device_error;
use crate::gradient::DeviceGradient;
use crate::host_made::HostMade;
use corrnoise_core::backend::{Backend, Step};
use corrnoise_core::{Dtype, Element, Gradients, Result, with_element};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use std::sync::Arc;

impl Cuda {
    /// Refuses gradients in host memory that do not fit the shard. Changes nothing.
    pub fn check_on_host(&self, gradients: &Gradients<'_, '_>) -> Result<()> {
        gradients.check(&self.shard)
    }

    /// Does what [`Backend::step`] does, on gradients in host memory. Waits for the device.
    pub fn step_on_host(&mut self, step: &Step<'_>, gradients: Gradients<'_, '_>) -> Result<()> {
        on_device(&self.stream().clone(), gradients, |list| self.step(step, list))
    }
}

impl HostMade {
    /// Refuses gradients in host memory that do not fit the shard. Changes nothing.
    pub fn check_on_host(&self, gradients: &Gradients<'_, '_>) -> Result<()> {
        gradients.check(&self.shard)
    }

    /// Does what [`Backend::step`] does, on gradients in host memory. Waits for the device.
    pub fn step_on_host(&mut self, step: &Step<'_>, gradients: Gradients<'_, '_>) -> Result<()> {
        on_device(&self.stream().clone(), gradients, |list| self.step(step, list))
    }
}

/// Runs a step on copies of the gradients in device memory, and copies them back.
fn on_device(
    stream: &Arc<CudaStream>,
    gradients: Gradients<'_, '_>,
    step: impl FnOnce(&[DeviceGradient<'_>]) -> Result<()>,
) -> Result<()> {
    let _kept = KeepCurrent::new();
    let dtype = gradients.dtype();
    // Bytes are copied, so that a number type needs to be none of cudarc's.
    let mut host = with_element!(dtype, E => bytes_of(gradients.slices::<E>().unwrap_or_default()));
    let copy = |bytes: &&mut [u8]| match bytes.is_empty() {
        // Device memory of no length has no address.
        true => Ok(None),
        false => stream.clone_htod(&**bytes).map(Some).map_err(device_error("copy to the device")),
    };
    let device = host.iter().map(copy).collect::<Result<Vec<Option<CudaSlice<u8>>>>>()?;
    let list: Vec<DeviceGradient<'_>> =
        device.iter().map(|slice| gradient(slice.as_ref(), stream, dtype)).collect();
    step(&list)?;
    for (from, to) in device.iter().zip(&mut host) {
        if let Some(from) = from {
            stream.memcpy_dtoh(from, &mut **to).map_err(device_error("copy from the device"))?;
        }
    }
    stream.synchronize().map_err(device_error("wait for the stream"))
}

/// The memory of slices.
fn bytes_of<'memory, E: Element>(slices: &'memory mut [&mut [E]]) -> Vec<&'memory mut [u8]> {
    slices.iter_mut().map(|slice| bytemuck::cast_slice_mut(slice)).collect()
}

/// A gradient in the bytes of a slice, or that of a segment without coordinates.
fn gradient(slice: Option<&CudaSlice<u8>>, stream: &CudaStream, dtype: Dtype) -> DeviceGradient<'static> {
    let (address, bytes) = slice.map_or((0, 0), |slice| (slice.device_ptr(stream).0, slice.len()));
    // SAFETY: the bytes are those of values of this type. The stream alone uses them, and frees them in its order.
    unsafe { DeviceGradient::from_raw(address, (bytes / dtype.bytes()) as u64, dtype) }
}
