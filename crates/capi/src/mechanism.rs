//! Entries that make, resume, query and save mechanisms. The steps are in `gradients`.

use crate::argument::{Out, OutHandle, borrow, borrow_or_default, flag, free, list, path, put_text};
use crate::key::KeyHandle;
use crate::plan::PlanHandle;
use crate::shard::ShardHandle;
use crate::status::{Failure, Outcome, Status, entry};
use corrnoise::{AnyMechanism, Checkpoint, Error, Place, Resume};
use std::ffi::c_char;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// A running mechanism, which makes each step exactly once, in order, and none past the plan's end.
pub struct MechanismHandle(Mutex<AnyMechanism>);

/// Options of the CPU engine. Zero in every field, or NULL instead of the struct, is a good choice.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuOptions {
    /// The number of threads, the caller's included; 0 means one per core.
    pub threads: u32,
    /// 1 keeps a ring in its least memory, which can be several times as slow; 0 lets it make rows ahead.
    pub compact: u32,
    /// The number of threads that corrnoise_mechanism_prepare() uses, at a low priority; 0 means one per four cores, and at least one.
    pub prepare_threads: u32,
}

/// What a resumed run does about noise that the dead run made after the checkpoint.
#[repr(C)]
pub enum ResumeMode {
    /// The resumed run never makes that noise again. This is the mode for a run of one process.
    NewIncarnation = 0,
    /// The mode for a run of several processes, which never makes that noise again either: one process draws 16 random bytes and sends
    /// them to the others.
    SharedIncarnation = 1,
    /// The run goes on bit for bit. This is only for a run of which it is certain that it released nothing after the checkpoint.
    Exact = 2,
}

impl MechanismHandle {
    pub(crate) fn new(mechanism: AnyMechanism) -> MechanismHandle {
        MechanismHandle(Mutex::new(mechanism))
    }

    /// The mechanism, unless another thread is using it.
    pub(crate) fn lock(&self) -> Outcome<MutexGuard<'_, AnyMechanism>> {
        match self.0.try_lock() {
            Ok(mechanism) => Ok(mechanism),
            Err(TryLockError::WouldBlock) => Err(Failure::Busy),
            // A mechanism that panicked during a step is marked as poisoned by the engine; a panic elsewhere does not harm it.
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        }
    }
}

fn cpu_place(options: CpuOptions) -> Outcome<Place> {
    let compact = flag(options.compact, "compact")?;
    let (threads, prepare_threads) = (options.threads as usize, options.prepare_threads as usize);
    let isa = corrnoise::Isa::default();
    Ok(Place::Cpu(corrnoise::CpuOptions { threads, isa, compact, prepare_threads }))
}

/// The mode that C names by a number, with its nonce.
///
/// # Safety
/// The crate's contract holds, and `nonce` is null or 16 bytes.
unsafe fn resume_mode(mode: u32, nonce: *const u8) -> Outcome<Resume> {
    match mode {
        0 => Ok(Resume::NewIncarnation),
        // SAFETY: the caller's promise, passed on.
        1 => Ok(Resume::SharedIncarnation(*unsafe { borrow(nonce.cast::<[u8; 16]>(), "nonce") }?)),
        2 => Ok(Resume::Exact),
        other => Err(Error::parameter("mode", other, "a corrnoise_resume_mode: 0, 1 or 2").into()),
    }
}

/// The paths in a list of C strings.
///
/// # Safety
/// The crate's contract holds for the list and for each path in it.
unsafe fn paths<'a>(files: *const *const c_char, count: usize) -> Outcome<Vec<&'a Path>> {
    // SAFETY: the caller's promise, passed on.
    let files = unsafe { list(files, count, "files") }?;
    // SAFETY: the caller's promise, passed on.
    files.iter().map(|file| unsafe { path(*file, "file") }).collect()
}

/// Begins a run at a place that is opened once the other arguments are known to be good.
///
/// # Safety
/// The crate's contract holds for every argument.
pub(crate) unsafe fn start(
    plan: *const PlanHandle,
    key: *mut KeyHandle,
    shard: *const ShardHandle,
    place: impl FnOnce() -> Outcome<Place>,
    out: *mut *mut MechanismHandle,
) -> Outcome {
    // SAFETY: the caller's promise, passed on.
    let (out, plan) = unsafe { (OutHandle::new(out)?, &borrow(plan, "plan")?.0) };
    // SAFETY: the caller's promise, passed on.
    let (key, shard) = unsafe { (borrow(key, "key")?, &borrow(shard, "shard")?.0) };
    let place = place()?;
    out.put(MechanismHandle::new(key.spend(|key| AnyMechanism::new(plan, key, shard.clone(), &place))?));
    Ok(())
}

/// The checkpoints and the mode of a resumed run, as C gives them.
#[derive(Clone, Copy)]
pub(crate) struct Saved {
    pub(crate) files: *const *const c_char,
    pub(crate) num_files: usize,
    pub(crate) mode: u32,
    pub(crate) nonce: *const u8,
}

/// Resumes a run from checkpoints, at a place that is opened as late as in [`start`].
///
/// # Safety
/// The crate's contract holds for every argument.
pub(crate) unsafe fn resume(
    plan: *const PlanHandle,
    key: *mut KeyHandle,
    shard: *const ShardHandle,
    place: impl FnOnce() -> Outcome<Place>,
    saved: Saved,
    out: *mut *mut MechanismHandle,
) -> Outcome {
    // SAFETY: the caller's promise, passed on.
    let (out, plan) = unsafe { (OutHandle::new(out)?, &borrow(plan, "plan")?.0) };
    // SAFETY: the caller's promise, passed on.
    let (key, shard) = unsafe { (borrow(key, "key")?, &borrow(shard, "shard")?.0) };
    let Saved { files, num_files, mode, nonce } = saved;
    // SAFETY: the caller's promise, passed on.
    let (files, resume) = unsafe { (paths(files, num_files)?, resume_mode(mode, nonce)?) };
    let place = place()?;
    let resume = |key| {
        let checkpoints = files.iter().map(Checkpoint::open).collect::<corrnoise::Result<_>>()?;
        AnyMechanism::resume(plan, key, shard.clone(), checkpoints, resume, &place)
    };
    out.put(MechanismHandle::new(key.spend(resume)?));
    Ok(())
}

/// Begins a run on the CPU, at step 0. Takes the key out of its handle. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_mechanism_new(
    plan: *const PlanHandle,
    key: *mut KeyHandle,
    shard: *const ShardHandle,
    options: *const CpuOptions,
    out: *mut *mut MechanismHandle,
) -> Status {
    // SAFETY: the crate's contract.
    let place = || cpu_place(unsafe { borrow_or_default(options, "options") }?);
    // SAFETY: the crate's contract.
    entry(|| unsafe { start(plan, key, shard, place, out) })
}

/// Resumes a run from checkpoints on the CPU. The files are any that together hold the shard's coordinates, whichever engine wrote them
/// and however that run was sharded. `mode` is a corrnoise_resume_mode; `nonce` is read by CORRNOISE_RESUME_MODE_SHARED_INCARNATION
/// only, which needs 16 bytes that were never used before and are the same in all processes. Takes the key out of its handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_mechanism_resume(
    plan: *const PlanHandle,
    key: *mut KeyHandle,
    shard: *const ShardHandle,
    options: *const CpuOptions,
    files: *const *const c_char,
    num_files: usize,
    mode: u32,
    nonce: *const u8,
    out: *mut *mut MechanismHandle,
) -> Status {
    // SAFETY: the crate's contract.
    let place = || cpu_place(unsafe { borrow_or_default(options, "options") }?);
    // SAFETY: the crate's contract.
    entry(|| unsafe { resume(plan, key, shard, place, Saved { files, num_files, mode, nonce }, out) })
}

/// The step that the next call makes; the plan's number of steps when all were made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_mechanism_next_step(
    mechanism: *const MechanismHandle,
    step: *mut u64,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (mechanism, out) = unsafe { (borrow(mechanism, "mechanism")?, Out::new(step, "step")?) };
        out.put(mechanism.lock()?.next_step());
        Ok(())
    })
}

/// Admits the next step of a plan that draws batches: you vouch that its gradients are summed over the plan's batch of that step,
/// which was drawn elsewhere from the run's key; corrnoise_mechanism_for_batch() looks at the batch. Without either call the step is
/// refused with CORRNOISE_STATUS_BATCH. A step that was made uses the admission up, a refused one does not. Plans that draw no batches
/// need none. This holds on the CPU and on devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_mechanism_unchecked_batch(mechanism: *const MechanismHandle) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let mechanism = unsafe { borrow(mechanism, "mechanism") }?;
        mechanism.lock()?.unchecked_batch()?;
        Ok(())
    })
}

/// Begins to make the noise of the next step in threads of its own, or on a CUDA stream of its own, and returns at once; the step then only
/// adds it. To be called after a step, before the next gradients are computed. The bits are the same with and without.
///
/// Nothing is released or counted. A refused step leaves the noise that was made, a checkpoint in between is that of the state before the
/// step, and a second call, or one after the last step, does nothing. The first call takes memory for one more row and starts the threads:
/// if it cannot, nothing changes; if a thread fails, the mechanism is poisoned as by a step. On a CUDA device it does nothing unless
/// `prepare` of corrnoise_cuda_options is 1; its row and its stream are then there from the beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_mechanism_prepare(mechanism: *const MechanismHandle) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let mechanism = unsafe { borrow(mechanism, "mechanism") }?;
        mechanism.lock()?.prepare()?;
        Ok(())
    })
}

/// The bytes of state that this mechanism holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_mechanism_state_bytes(
    mechanism: *const MechanismHandle,
    bytes: *mut u64,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (mechanism, out) = unsafe { (borrow(mechanism, "mechanism")?, Out::new(bytes, "bytes")?) };
        out.put(mechanism.lock()?.state_bytes());
        Ok(())
    })
}

/// A text for people that names the instructions and the threads in use, or the device and the rows that it makes at a time. 128 bytes are
/// enough for a CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_mechanism_describe(
    mechanism: *const MechanismHandle,
    buffer: *mut c_char,
    capacity: usize,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let text = unsafe { borrow(mechanism, "mechanism") }?.lock()?.describe();
        // SAFETY: the crate's contract.
        unsafe { put_text(&text, buffer, capacity) }
    })
}

/// Writes a checkpoint; the file appears whole or not at all, for the owner alone. It holds past noise: it is as secret as the
/// key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_mechanism_save(
    mechanism: *const MechanismHandle,
    file: *const c_char,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (mechanism, file) = unsafe { (borrow(mechanism, "mechanism")?, path(file, "file")?) };
        mechanism.lock()?.save(file)?;
        Ok(())
    })
}

/// Wipes the key and frees a mechanism.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_mechanism_free(mechanism: *mut MechanismHandle) {
    // SAFETY: the crate's contract.
    unsafe { free(mechanism) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corrnoise::{Form, Key, Plan, Shard};

    #[test]
    fn one_call_at_a_time() {
        let plan = Plan::new(3, Form::independent(), 1.0).unwrap();
        let (key, shard) = (Key::from_os().unwrap(), Shard::whole(5).unwrap());
        let handle = MechanismHandle::new(AnyMechanism::new(&plan, key, shard, &Place::default()).unwrap());
        let mut step = 7;
        let running = handle.lock().ok().unwrap();
        // SAFETY: the handle and the number live in this function.
        assert_eq!(unsafe { corrnoise_mechanism_next_step(&handle, &mut step) }, Status::Busy);
        // SAFETY: as above.
        assert_eq!(unsafe { corrnoise_mechanism_prepare(&handle) }, Status::Busy);
        drop(running);
        // SAFETY: as above.
        assert_eq!(unsafe { corrnoise_mechanism_next_step(&handle, &mut step) }, Status::Ok);
        assert_eq!(step, 0);
    }
}
