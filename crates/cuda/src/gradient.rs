//! Gradients in device memory: cudarc's slices, or addresses from another framework.

use crate::current::KeepCurrent;
use corrnoise_core::{Dtype, Element, Error, Result, Shard};
use cudarc::driver::{CudaStream, DevicePtrMut, SyncOnDrop};
use std::marker::PhantomData;

/// One segment's gradient in device memory.
pub struct DeviceGradient<'memory> {
    pub(crate) pointer: u64,
    pub(crate) len: u64,
    pub(crate) dtype: Dtype,
    memory: PhantomData<&'memory mut ()>,
    /// A guard that makes other streams of the slice wait until this one is done with it.
    sync: Option<SyncOnDrop<'memory>>,
}

impl<'memory> DeviceGradient<'memory> {
    /// A gradient in a slice or a mutable view of cudarc; `stream` is the one that the mechanism was made with.
    pub fn from_slice<T: Element>(
        slice: &'memory mut impl DevicePtrMut<T>,
        stream: &'memory CudaStream,
    ) -> DeviceGradient<'memory> {
        let _kept = KeepCurrent::new();
        let len = slice.len() as u64;
        let (pointer, sync) = slice.device_ptr_mut(stream);
        DeviceGradient { pointer, len, dtype: T::DTYPE, memory: PhantomData, sync: Some(sync) }
    }

    /// A gradient of any number type in bytes of cudarc, so that the type needs to be none of cudarc's. Otherwise as
    /// [`DeviceGradient::from_slice`].
    pub fn from_bytes(
        bytes: &'memory mut impl DevicePtrMut<u8>,
        dtype: Dtype,
        stream: &'memory CudaStream,
    ) -> DeviceGradient<'memory> {
        let _kept = KeepCurrent::new();
        let len = (bytes.len() / dtype.bytes()) as u64;
        let (pointer, sync) = bytes.device_ptr_mut(stream);
        DeviceGradient { pointer, len, dtype, memory: PhantomData, sync: Some(sync) }
    }

    /// A gradient at a device address from another framework.
    ///
    /// # Safety
    /// `pointer` is the device address of `len` initialised values of type `dtype`, in the context of the mechanism's
    /// stream. Until the work enqueued there is done, nothing else may touch them, and they must not be freed.
    pub unsafe fn from_raw(pointer: u64, len: u64, dtype: Dtype) -> DeviceGradient<'memory> {
        DeviceGradient { pointer, len, dtype, memory: PhantomData, sync: None }
    }
}

impl Drop for DeviceGradient<'_> {
    fn drop(&mut self) {
        if self.sync.is_some() {
            let _kept = KeepCurrent::new();
            self.sync = None;
        }
    }
}

/// Refuses gradients that do not fit the shard.
pub(crate) fn check_gradients(shard: &Shard, gradients: &[DeviceGradient<'_>]) -> Result<()> {
    let segments = shard.segments();
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
