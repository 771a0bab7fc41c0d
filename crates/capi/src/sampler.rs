//! Samplers and the batches that they draw.

use crate::argument::{Out, OutHandle, OutList, borrow, free};
use crate::key::KeyHandle;
use crate::mechanism::MechanismHandle;
use crate::plan::PlanHandle;
use crate::status::{Status, entry};
use corrnoise::{Batch, Sampler};

/// The batches that a plan's claim assumes, drawn from the run's own key: the same in every process, in any order of calls and after every
/// resume. Steps in ascending order are the quickest.
pub struct SamplerHandle(Sampler);

/// The units of one step, which knows its step, plan and run. Where the claim rests on sampling, who is in it is as secret as the key.
pub struct BatchHandle(pub(crate) Batch);

/// The sampler of a run. It reads the key and leaves it to a mechanism, so it is made before the mechanism takes the key. What is drawn
/// once for the whole run is drawn here, which takes a while for a large dataset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_sampler_new(
    plan: *const PlanHandle,
    key: *const KeyHandle,
    out: *mut *mut SamplerHandle,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (out, plan) = unsafe { (OutHandle::new(out)?, &borrow(plan, "plan")?.0) };
        // SAFETY: the crate's contract.
        let key = unsafe { borrow(key, "key") }?;
        out.put(SamplerHandle(key.read(|key| Sampler::new(plan, key))?));
        Ok(())
    })
}

/// The mean size of a batch, by which a sum over a batch is divided, whatever the batch's own size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_sampler_expected_batch_size(
    sampler: *const SamplerHandle,
    size: *mut f64,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (sampler, out) = unsafe { (borrow(sampler, "sampler")?, Out::new(size, "size")?) };
        out.put(sampler.0.expected_batch_size());
        Ok(())
    })
}

/// The size that no batch exceeds: a length to which every batch can be padded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_sampler_max_batch_size(
    sampler: *const SamplerHandle,
    size: *mut u64,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (sampler, out) = unsafe { (borrow(sampler, "sampler")?, Out::new(size, "size")?) };
        out.put(sampler.0.max_batch_size());
        Ok(())
    })
}

/// Draws the batch of a step, to be freed by corrnoise_batch_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_sampler_batch(
    sampler: *const SamplerHandle,
    step: u64,
    out: *mut *mut BatchHandle,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (out, sampler) = unsafe { (OutHandle::new(out)?, borrow(sampler, "sampler")?) };
        out.put(BatchHandle(sampler.0.batch(step)?));
        Ok(())
    })
}

/// Wipes what the sampler knows of the key, and frees it; NULL is accepted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_sampler_free(sampler: *mut SamplerHandle) {
    // SAFETY: the crate's contract.
    unsafe { free(sampler) }
}

/// The units of a batch: indices into the dataset, ascending, each at most once. They are the batch's own memory, valid until it is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_batch_indices(
    batch: *const BatchHandle,
    indices: *mut *const u64,
    count: *mut usize,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (batch, list) = unsafe { (borrow(batch, "batch")?, Out::new(indices, "indices")?) };
        // SAFETY: the crate's contract.
        let out = unsafe { Out::new(count, "count") }?;
        list.put(batch.0.indices().as_ptr());
        out.put(batch.0.len());
        Ok(())
    })
}

/// Writes a batch to `length` places, so that every step has the same shape: the indices, then `padding`; and to `mask` 1 where there is a
/// unit and 0 where there is padding. The gradients of padded places are multiplied by 0. A batch of more units is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_batch_padded(
    batch: *const BatchHandle,
    padding: u64,
    indices: *mut u64,
    mask: *mut u8,
    length: usize,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (batch, list) = unsafe { (borrow(batch, "batch")?, OutList::new(indices, length, "indices")?) };
        // SAFETY: the crate's contract.
        let flags = unsafe { OutList::new(mask, length, "mask") }?;
        let (indices, mask) = batch.0.padded(length, padding)?;
        list.put(indices);
        flags.put(mask.into_iter().map(u8::from));
        Ok(())
    })
}

/// Frees a batch; NULL is accepted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_batch_free(batch: *mut BatchHandle) {
    // SAFETY: the crate's contract.
    unsafe { free(batch) }
}

/// Admits the next step of a mechanism with its batch. One of another step, plan or run is refused with CORRNOISE_STATUS_BATCH. A step that was
/// made uses the admission up, a refused one does not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_mechanism_for_batch(
    mechanism: *const MechanismHandle,
    batch: *const BatchHandle,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (mechanism, batch) = unsafe { (borrow(mechanism, "mechanism")?, borrow(batch, "batch")?) };
        mechanism.lock()?.for_batch(&batch.0)?;
        Ok(())
    })
}
