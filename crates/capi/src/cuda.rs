//! A step on device memory, on the caller's stream, with the feature `cuda` only.

use crate::argument::{Out, borrow, borrow_or_default, flag, list};
use crate::gradients::dtype;
use crate::key::KeyHandle;
use crate::mechanism::{MechanismHandle, Saved, resume, start};
use crate::plan::PlanHandle;
use crate::shard::ShardHandle;
use crate::status::{Failure, Outcome, Status, entry};
use corrnoise::{AnyMechanism, CpuOptions, Device, Error, Place, cuda};
use std::ffi::{c_char, c_void};

/// Options of the CUDA engine, none of which changes the noise. Zero in every field, or NULL instead of the struct, is a good choice.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CudaOptions {
    /// The number of rows that are made at a time: 1 makes none ahead, in the least memory; 0 lets the engine decide by form, size and free
    /// memory.
    pub rows_ahead: u32,
    /// 1 lets corrnoise_mechanism_prepare() make rows on a stream of its own, of the lowest priority; with 0 that call does nothing.
    pub prepare: u32,
    /// The most bytes per parameter that state and rows made ahead may take together; 0 means no limit.
    pub max_state_bytes: u64,
}

/// Opens a device and the stream that steps run on.
///
/// # Safety
/// `stream` is null (the default stream) or a stream of the device's primary context that outlives the mechanism. The crate's contract
/// holds for `options`.
unsafe fn open(device: u32, stream: *mut c_void, options: *const CudaOptions) -> Outcome<Place> {
    // SAFETY: the caller's promise, passed on.
    let CudaOptions { rows_ahead, prepare, max_state_bytes } =
        unsafe { borrow_or_default(options, "options") }?;
    let options = cuda::CudaOptions {
        rows_ahead: (rows_ahead > 0).then_some(rows_ahead as usize),
        prepare: flag(prepare, "prepare")?,
        max_state_bytes: (max_state_bytes > 0).then_some(max_state_bytes),
    };
    // SAFETY: the caller's promise, passed on.
    let place = unsafe { Place::on_stream(Device::Cuda(device as usize), CpuOptions::default(), stream) }?;
    Ok(place.with_cuda_options(options))
}

/// Begins a run on a CUDA device, at step 0. `stream` is a CUstream (or cudaStream_t) of the device's primary context, which
/// must outlive the mechanism; NULL is the default stream. `options` may be NULL. Takes the key out of its handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_cuda_mechanism_new(
    plan: *const PlanHandle,
    key: *mut KeyHandle,
    shard: *const ShardHandle,
    device: u32,
    stream: *mut c_void,
    options: *const CudaOptions,
    out: *mut *mut MechanismHandle,
) -> Status {
    // SAFETY: the caller keeps what the function's documentation asks for.
    let place = || unsafe { open(device, stream, options) };
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
    options: *const CudaOptions,
    files: *const *const c_char,
    num_files: usize,
    mode: u32,
    nonce: *const u8,
    out: *mut *mut MechanismHandle,
) -> Status {
    // SAFETY: the caller keeps what the function's documentation asks for.
    let place = || unsafe { open(device, stream, options) };
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
        let dtype = dtype(element_type)?;
        let mechanism = &mut *mechanism.lock()?;
        check_on_device(mechanism)?;
        let list = gradients.iter().zip(lengths);
        let pairs =
            list.map(|(address, len)| (std::ptr::without_provenance_mut(*address as usize), *len as usize));
        // SAFETY: the caller's promise: initialised device memory that stays until the work on the mechanism's stream is done.
        Ok(unsafe { mechanism.add_to_raw(dtype, pairs) }?)
    })
}

/// The first step at which a gradient in device memory left the range of its number type; UINT64_MAX if there was none. Waits for the stream.
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
        // This interface makes mechanisms on CUDA devices and on the CPU, and no others.
        _ => {
            let expected = "one made by corrnoise_cuda_mechanism_new(): this one is on the CPU";
            Err(Error::parameter("mechanism", "not on a device", expected).into())
        }
    }
}
