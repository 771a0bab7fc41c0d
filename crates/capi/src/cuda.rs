//! A step on device memory, on the caller's stream, with the feature `cuda` only.

use crate::argument::{Out, borrow, list};
use crate::key::KeyHandle;
use crate::mechanism::{MechanismHandle, Saved, resume, start};
use crate::plan::PlanHandle;
use crate::shard::ShardHandle;
use crate::status::{Failure, Outcome, Status, entry};
use corrnoise::{AnyMechanism, CpuOptions, Device, Dtype, Error, Place};
use std::ffi::{c_char, c_void};

/// The number type of values in device memory.
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
const _: () = {
    assert!(DtypeTag::F32 as u32 == Dtype::F32.tag() && DtypeTag::Bf16 as u32 == Dtype::Bf16.tag());
    assert!(DtypeTag::F16 as u32 == Dtype::F16.tag());
};

/// Opens a device and the stream that steps run on.
///
/// # Safety
/// `stream` is null (the default stream) or a stream of the device's primary context that outlives the mechanism.
unsafe fn open(device: u32, stream: *mut c_void) -> Outcome<Place> {
    // SAFETY: the caller's promise, passed on.
    Ok(unsafe { Place::on_stream(Device::Cuda(device as usize), CpuOptions::default(), stream) }?)
}

/// Begins a run on a CUDA device, at step 0. `stream` is a CUstream (or cudaStream_t) of the device's primary context, which
/// must outlive the mechanism; NULL is the default stream. Takes the key out of its handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_cuda_mechanism_new(
    plan: *const PlanHandle,
    key: *mut KeyHandle,
    shard: *const ShardHandle,
    device: u32,
    stream: *mut c_void,
    out: *mut *mut MechanismHandle,
) -> Status {
    // SAFETY: the caller keeps what the function's documentation asks for.
    let place = || unsafe { open(device, stream) };
    // SAFETY: the crate's contract.
    entry(|| unsafe { start(plan, key, shard, place, out) })
}

/// Resumes a run from checkpoints on a CUDA device; see corrnoise_mechanism_resume() and corrnoise_cuda_mechanism_new().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_cuda_mechanism_resume(
    plan: *const PlanHandle,
    key: *mut KeyHandle,
    shard: *const ShardHandle,
    device: u32,
    stream: *mut c_void,
    files: *const *const c_char,
    num_files: usize,
    mode: u32,
    nonce: *const u8,
    out: *mut *mut MechanismHandle,
) -> Status {
    // SAFETY: the caller keeps what the function's documentation asks for.
    let place = || unsafe { open(device, stream) };
    // SAFETY: the crate's contract.
    entry(|| unsafe { resume(plan, key, shard, place, Saved { files, num_files, mode, nonce }, out) })
}

/// Enqueues the noise of the next step on the mechanism's stream and returns at once. `element_type` is a corrnoise_element_type,
/// `gradients[i]` a CUdeviceptr to `lengths[i]` values, one per segment of the shard. They must not overlap, and must stay
/// until the stream has passed this point.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_cuda_add_to(
    mechanism: *const MechanismHandle,
    element_type: u32,
    gradients: *const u64,
    lengths: *const u64,
    count: usize,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let mechanism = unsafe { borrow(mechanism, "mechanism") }?;
        // SAFETY: the crate's contract.
        let (gradients, lengths) =
            unsafe { (list(gradients, count, "gradients")?, list(lengths, count, "lengths")?) };
        if gradients.contains(&0) {
            return Err(Failure::Null("a gradient"));
        }
        let refuse = || Error::parameter("element_type", element_type, "a corrnoise_element_type: 0, 1 or 2");
        let dtype = Dtype::from_tag(element_type).ok_or_else(refuse)?;
        let mechanism = &mut *mechanism.lock()?;
        check_on_device(mechanism)?;
        let list = gradients.iter().zip(lengths);
        let pairs =
            list.map(|(address, len)| (std::ptr::without_provenance_mut(*address as usize), *len as usize));
        // SAFETY: the caller's promise: initialised device memory that stays until the work on the mechanism's stream is done.
        Ok(unsafe { mechanism.add_to_raw(dtype, pairs) }?)
    })
}

/// The first step at which an f16 gradient in device memory left its range; UINT64_MAX if there was none. Waits for the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_cuda_first_overflow(
    mechanism: *const MechanismHandle,
    step: *mut u64,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (mechanism, out) = unsafe { (borrow(mechanism, "mechanism")?, Out::new(step, "step")?) };
        let mechanism = mechanism.lock()?;
        check_on_device(&mechanism)?;
        out.put(mechanism.backend().first_overflow()?.unwrap_or(u64::MAX));
        Ok(())
    })
}

fn check_on_device(mechanism: &AnyMechanism) -> Outcome {
    match mechanism.device() {
        Device::Cuda(_) => Ok(()),
        Device::Cpu | Device::Scalar => {
            let expected = "one made by corrnoise_cuda_mechanism_new(): this one is on the CPU";
            Err(Error::parameter("mechanism", "not on a device", expected).into())
        }
    }
}
