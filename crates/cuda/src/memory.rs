//! Device memory that the engine allocates for itself.

use crate::device::device_error;
use corrnoise_core::{Error, Result};
use cudarc::driver::{
    CudaSlice, CudaStream, DevicePtr, DeviceRepr, DriverError, ValidAsZeroBits, result, sys::CUresult,
    sys::CUstream,
};
use std::sync::Arc;

/// A slice of device memory and its address.
///
/// Asking cudarc for the address makes the stream wait for events of the slice, which a captured stream may not, so the address is asked
/// for once. The engine orders all use of its memory itself: the caller's stream alone touches it, or the caller's and the one that
/// prepares rows, with an event between them wherever both do.
pub(crate) struct Memory<T> {
    pub(crate) slice: CudaSlice<T>,
    pub(crate) address: u64,
}

impl<T: DeviceRepr> Memory<T> {
    fn new(slice: CudaSlice<T>, stream: &CudaStream) -> Memory<T> {
        let address = slice.device_ptr(stream).0;
        Memory { slice, address }
    }

    /// Zeroed memory of at least one value, since memory of no length has no address.
    pub(crate) fn zeros(stream: &Arc<CudaStream>, len: usize) -> Result<Memory<T>>
    where
        T: ValidAsZeroBits,
    {
        let slice = stream.alloc_zeros(len.max(1)).map_err(|error| match error {
            DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => {
                Error::OutOfMemory { bytes: len as u128 * size_of::<T>() as u128 }
            }
            other => device_error("allocate device memory")(other),
        })?;
        Ok(Memory::new(slice, stream))
    }

    /// A copy of host values, of which there must be at least one. The copy may still read them when this returns.
    pub(crate) fn copy(stream: &Arc<CudaStream>, values: &[T]) -> Result<Memory<T>> {
        let slice = stream.clone_htod(values).map_err(device_error("copy to the device"))?;
        Ok(Memory::new(slice, stream))
    }

    /// Copies host values into the memory, from its start. The copy may still read them when this returns.
    pub(crate) fn send(&mut self, stream: &Arc<CudaStream>, values: &[T]) -> Result<()> {
        stream.memcpy_htod(values, &mut self.slice).map_err(device_error("copy to the device"))
    }

    /// Fills the memory with zeros in the order of `stream`, whose context is current. On failure the context is gone, and the content
    /// with it.
    pub(crate) fn clear(&self, stream: CUstream) {
        // SAFETY: this value owns the memory, which is as long as its slice says.
        let _ = unsafe { result::memset_d8_async(self.address, 0, self.slice.num_bytes(), stream) };
    }
}
