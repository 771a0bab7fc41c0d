//! A step on gradients in host memory.

use crate::argument::{borrow, list};
use crate::mechanism::MechanismHandle;
use crate::status::{Failure, Outcome, Status, entry};
use corrnoise::{Device, Dtype, Error};

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
