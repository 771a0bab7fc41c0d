//! A step on device memory, on the caller's stream. With the feature `cuda` only.

use crate::argument::{Out, OutHandle, borrow, list};
use crate::key::KeyHandle;
use crate::mechanism::{Engine, MechanismHandle, Running, paths, resume_mode};
use crate::plan::PlanHandle;
use crate::shard::ShardHandle;
use crate::status::{Failure, Outcome, Status, entry};
use corrnoise::cuda::cudarc::driver::CudaStream;
use corrnoise::cuda::{self, DeviceGradient, OnCuda};
use corrnoise::raw::check_lengths;
use corrnoise::{Error, Mechanism};
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// The type of values in device memory.
#[repr(C)]
pub enum ElementType {
    /// f32.
    F32 = 0,
    /// bfloat16.
    Bf16 = 1,
    /// IEEE half precision.
    F16 = 2,
}

/// # Safety
/// `stream` is null (the default stream) or a stream of the device's primary context that outlives the mechanism.
unsafe fn open(device: u32, stream: *mut c_void) -> Outcome<Arc<CudaStream>> {
    let default = cuda::stream(device as usize)?;
    if stream.is_null() {
        return Ok(default);
    }
    // SAFETY: the caller's promise; `cuda::stream` opened the primary context.
    Ok(unsafe { default.context().wrap_borrowed_stream(stream.cast()) })
}

/// A new run on a CUDA device, from step 0 on. `stream` is a CUstream (or cudaStream_t) of the device's primary context, which
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
    entry(|| {
        // SAFETY: the crate's contract.
        let (out, plan) = unsafe { (OutHandle::new(out)?, &borrow(plan, "plan")?.0) };
        // SAFETY: the crate's contract.
        let (key, shard) = unsafe { (borrow(key, "key")?, &borrow(shard, "shard")?.0) };
        // For the case of a failure: then the device's context is closed here.
        let _kept = cuda::keep_current();
        // SAFETY: what the function's text asks for.
        let stream = unsafe { open(device, stream) }?;
        let mechanism = key.spend(|key| Mechanism::cuda(plan, key, shard.clone(), &stream))?;
        out.put(MechanismHandle::new(Engine::Cuda(Box::new(mechanism))));
        Ok(())
    })
}

/// Goes on from checkpoints on a CUDA device; see corrnoise_mechanism_resume() and corrnoise_cuda_mechanism_new().
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
    entry(|| {
        // SAFETY: the crate's contract.
        let (out, plan) = unsafe { (OutHandle::new(out)?, &borrow(plan, "plan")?.0) };
        // SAFETY: the crate's contract.
        let (key, shard) = unsafe { (borrow(key, "key")?, &borrow(shard, "shard")?.0) };
        // SAFETY: the crate's contract.
        let (files, resume) = unsafe { (paths(files, num_files)?, resume_mode(mode, nonce)?) };
        // For the case of a failure: then the device's context is closed here.
        let _kept = cuda::keep_current();
        // SAFETY: what the function's text asks for.
        let stream = unsafe { open(device, stream) }?;
        let resume = |key| Mechanism::resume_cuda(plan, key, shard.clone(), &files, resume, &stream);
        out.put(MechanismHandle::new(Engine::Cuda(Box::new(key.spend(resume)?))));
        Ok(())
    })
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
        let element = match element_type {
            0 => cuda::ElementType::F32,
            1 => cuda::ElementType::Bf16,
            2 => cuda::ElementType::F16,
            other => {
                let expected = "a corrnoise_element_type: 0, 1 or 2";
                return Err(Error::parameter("element_type", other, expected).into());
            }
        };
        let Running { engine, scratch } = &mut *mechanism.lock()?;
        let mechanism = on_device(engine)?;
        check_lengths(mechanism.shard(), lengths.iter().copied())?;
        let spans = gradients.iter().zip(lengths).map(|(address, len)| (*address as usize, *len as usize));
        scratch.host.check_addresses(spans, element.bytes() as usize)?;
        let list = gradients.iter().zip(lengths);
        // SAFETY: aligned, of the segment's length, not overlapping, and by the caller's promise initialised device memory that
        // stays until the work on the mechanism's stream is done.
        scratch
            .device
            .extend(list.map(|(address, len)| unsafe { DeviceGradient::from_raw(*address, *len, element) }));
        let outcome = mechanism.run_step(&scratch.device);
        scratch.device.clear();
        Ok(outcome?)
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
        let mut running = mechanism.lock()?;
        let first = on_device(&mut running.engine)?.backend().first_overflow()?;
        out.put(first.unwrap_or(u64::MAX));
        Ok(())
    })
}

fn on_device(engine: &mut Engine) -> Outcome<&mut Mechanism<cuda::Cuda>> {
    match engine {
        Engine::Cuda(mechanism) => Ok(mechanism),
        Engine::Cpu(_) => {
            let expected = "one made by corrnoise_cuda_mechanism_new(): this one is on the CPU";
            Err(Error::parameter("mechanism", "not on a device", expected).into())
        }
    }
}
