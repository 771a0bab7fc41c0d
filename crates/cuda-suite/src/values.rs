//! Values in device memory as bytes, so that a number type needs to be none of cudarc's.

use corrnoise::Element;
use corrnoise::cuda::DeviceGradient;
use corrnoise::cuda::cudarc::driver::{CudaSlice, CudaStream, DevicePtrMut, DriverError};
use std::marker::PhantomData;
use std::sync::Arc;

/// A copy of host values in device memory, used in the order of one stream.
pub struct DeviceValues<E> {
    /// The memory of the values, one after another.
    pub bytes: CudaSlice<u8>,
    stream: Arc<CudaStream>,
    of: PhantomData<E>,
}

impl<E: Element> DeviceValues<E> {
    /// Copies values to the device.
    pub fn new(stream: &Arc<CudaStream>, values: &[E]) -> Result<DeviceValues<E>, DriverError> {
        let bytes = stream.clone_htod(bytemuck::cast_slice::<E, u8>(values))?;
        Ok(DeviceValues { bytes, stream: stream.clone(), of: PhantomData })
    }

    /// Replaces the values by as many others.
    pub fn set(&mut self, values: &[E]) -> Result<(), DriverError> {
        self.stream.memcpy_htod(bytemuck::cast_slice::<E, u8>(values), &mut self.bytes)
    }

    /// Copies the values to the host.
    pub fn get(&self) -> Result<Vec<E>, DriverError> {
        Ok(bytemuck::pod_collect_to_vec(&self.stream.clone_dtoh(&self.bytes)?))
    }

    /// The values as a gradient.
    pub fn gradient(&mut self) -> DeviceGradient<'_> {
        DeviceGradient::from_bytes(&mut self.bytes, E::DTYPE, &self.stream)
    }

    /// The address of the first value.
    pub fn address(&mut self) -> u64 {
        self.bytes.device_ptr_mut(&self.stream).0
    }
}
