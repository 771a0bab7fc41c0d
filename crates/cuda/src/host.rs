//! Steps on gradients in host memory, which are copied to the device and back: for tools and tests, which have no device memory.

use crate::backend::Cuda;
use crate::current::KeepCurrent;
use crate::device::device_error;
use crate::gradient::DeviceGradient;
use crate::host_made::HostMade;
use corrnoise_core::backend::{Backend, Step};
use corrnoise_core::{Dtype, Gradients, Result, with_element};
use cudarc::driver::{CudaSlice, CudaStream};
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
    with_element!(dtype, E => {
        let slices = gradients.slices::<E>().unwrap_or_default();
        let copy = |slice: &&mut [E]| match slice.is_empty() {
            // Device memory of no length has no address.
            true => Ok(None),
            false => stream.clone_htod(&**slice).map(Some).map_err(device_error("copy to the device")),
        };
        let mut device = slices.iter().map(copy).collect::<Result<Vec<Option<CudaSlice<E>>>>>()?;
        let list: Vec<DeviceGradient<'_>> = device
            .iter_mut()
            .map(|slice| match slice {
                Some(slice) => DeviceGradient::from_slice(slice, stream),
                None => nothing(dtype),
            })
            .collect();
        step(&list)?;
        drop(list);
        for (from, to) in device.iter().zip(slices) {
            if let Some(from) = from {
                stream.memcpy_dtoh(from, &mut **to).map_err(device_error("copy from the device"))?;
            }
        }
    });
    stream.synchronize().map_err(device_error("wait for the stream"))
}

/// The gradient of a segment without coordinates.
fn nothing(dtype: Dtype) -> DeviceGradient<'static> {
    // SAFETY: no values are read or written.
    unsafe { DeviceGradient::from_raw(0, 0, dtype) }
}
