//! A step on gradients in host memory, and the number types that gradients have on any device.

use crate::argument::{borrow, list};
use crate::mechanism::MechanismHandle;
use crate::status::{Failure, Outcome, Status, entry};
use corrnoise::{Device, Dtype, Error};

/// The number type of values in device memory.
#[cfg(feature = "cuda")]
#[repr(C)]
pub enum DtypeTag {
    /// IEEE single precision, 4 bytes.
    F32 = 0,
    /// bfloat16, the upper half of a single.
    Bf16 = 1,
    /// IEEE half precision, 2 bytes.
    F16 = 2,
}

// The numbers in the header must be those of the engine.
#[cfg(feature = "cuda")]
const _: () = {
    assert!(DtypeTag::F32 as u32 == Dtype::F32.tag() && DtypeTag::Bf16 as u32 == Dtype::Bf16.tag());
    assert!(DtypeTag::F16 as u32 == Dtype::F16.tag());
};

/// The number type that a caller names by its [`DtypeTag`].
#[cfg(feature = "cuda")]
pub(crate) fn dtype(tag: u32) -> Outcome<Dtype> {
    let refuse = || Error::parameter("element_type", tag, "a corrnoise_element_type: 0, 1 or 2").into();
    Dtype::from_tag(tag).ok_or_else(refuse)
}

/// Adds the noise of the next step to f32 gradients: one per segment of the shard, `lengths[i]` values from `gradients[i]` on.
/// They must not overlap. Returns when all is added.
///
/// CORRNOISE_STATUS_DEVICE and CORRNOISE_STATUS_INTERNAL mean that gradients may be half-way, and poison the mechanism.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_add_to_f32(
    mechanism: *const MechanismHandle,
    gradients: *const *mut f32,
    lengths: *const usize,
    count: usize,
) -> Status {
    // SAFETY: the crate's contract.
    entry(|| unsafe { add_to(mechanism, Dtype::F32, gradients.cast(), lengths, count) })
}

/// Does what corrnoise_add_to_f32() does, for bfloat16 gradients, rounded to nearest even.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_add_to_bf16(
    mechanism: *const MechanismHandle,
    gradients: *const *mut u16,
    lengths: *const usize,
    count: usize,
) -> Status {
    // SAFETY: the crate's contract.
    entry(|| unsafe { add_to(mechanism, Dtype::Bf16, gradients.cast(), lengths, count) })
}

/// Does what corrnoise_add_to_f32() does, for gradients in IEEE half precision, rounded to nearest even. If a value leaves the range of
/// f16, the step is complete all the same and the status is CORRNOISE_STATUS_OVERFLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_add_to_f16(
    mechanism: *const MechanismHandle,
    gradients: *const *mut u16,
    lengths: *const usize,
    count: usize,
) -> Status {
    // SAFETY: the crate's contract.
    entry(|| unsafe { add_to(mechanism, Dtype::F16, gradients.cast(), lengths, count) })
}

/// Adds the noise of the next step to gradients of any number type.
///
/// # Safety
/// The crate's contract holds, and each of `gradients` points to values of `dtype`.
unsafe fn add_to(
    mechanism: *const MechanismHandle,
    dtype: Dtype,
    gradients: *const *mut (),
    lengths: *const usize,
    count: usize,
) -> Outcome {
    // SAFETY: the caller's promise, passed on.
    let mechanism = unsafe { borrow(mechanism, "mechanism") }?;
    // SAFETY: the caller's promise, passed on.
    let (gradients, lengths) =
        unsafe { (list(gradients, count, "gradients")?, list(lengths, count, "lengths")?) };
    if gradients.iter().any(|pointer| pointer.is_null()) {
        return Err(Failure::Null("a gradient"));
    }
    let mechanism = &mut *mechanism.lock()?;
    if mechanism.device() != Device::Cpu {
        let expected = "device addresses in corrnoise_cuda_add_to(): this mechanism is on a device";
        return Err(Error::parameter("gradients", "in host memory", expected).into());
    }
    let pairs = gradients.iter().zip(lengths).map(|(pointer, len)| (*pointer, *len));
    // SAFETY: the caller's promise: initialised memory that nobody else uses during this call.
    Ok(unsafe { mechanism.add_to_raw(dtype, pairs) }?)
}
