//! Gradients in device memory: cudarc's slices, or addresses from another framework.

use crate::current::KeepCurrent;
use cudarc::driver::{CudaStream, DevicePtrMut, DeviceRepr, SyncOnDrop};
use half::{bf16, f16};
use std::marker::PhantomData;

/// The number type of a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// f32.
    F32 = 0,
    /// bfloat16.
    Bf16 = 1,
    /// IEEE half precision.
    F16 = 2,
}

impl ElementType {
    /// Bytes of one value.
    pub fn bytes(self) -> u64 {
        match self {
            ElementType::F32 => 4,
            ElementType::Bf16 | ElementType::F16 => 2,
        }
    }
}

/// `f32`, [`half::bf16`] or [`half::f16`].
pub trait DeviceElement: DeviceRepr {
    /// Which.
    const TYPE: ElementType;
}

impl DeviceElement for f32 {
    const TYPE: ElementType = ElementType::F32;
}
impl DeviceElement for bf16 {
    const TYPE: ElementType = ElementType::Bf16;
}
impl DeviceElement for f16 {
    const TYPE: ElementType = ElementType::F16;
}

/// One segment's gradient in device memory.
pub struct DeviceGradient<'memory> {
    pub(crate) pointer: u64,
    pub(crate) len: u64,
    pub(crate) element: ElementType,
    memory: PhantomData<&'memory mut ()>,
    /// Tells other streams of the slice when this one is done with it.
    sync: Option<SyncOnDrop<'memory>>,
}

impl<'memory> DeviceGradient<'memory> {
    /// A slice or a mutable view of cudarc's; `stream` is the one the mechanism was made with.
    pub fn from_slice<T: DeviceElement>(
        slice: &'memory mut impl DevicePtrMut<T>,
        stream: &'memory CudaStream,
    ) -> DeviceGradient<'memory> {
        let _kept = KeepCurrent::new();
        let len = slice.len() as u64;
        let (pointer, sync) = slice.device_ptr_mut(stream);
        DeviceGradient { pointer, len, element: T::TYPE, memory: PhantomData, sync: Some(sync) }
    }

    /// A device address from another framework.
    ///
    /// # Safety
    /// `pointer` is the device address of `len` initialised values of type `element`, in the context of the mechanism's
    /// stream. Until the work enqueued there is done, nothing else may touch them, and they must not be freed.
    pub unsafe fn from_raw(pointer: u64, len: u64, element: ElementType) -> DeviceGradient<'memory> {
        DeviceGradient { pointer, len, element, memory: PhantomData, sync: None }
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
