//! Gradients in device memory: cudarc's slices, or addresses from another framework.

use crate::current::KeepCurrent;
use corrnoise_core::{Dtype, Element};
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
