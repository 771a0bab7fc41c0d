//! Plans, which say what to run and hold no secret.

use crate::argument::{Out, OutHandle, borrow, free, path, put_text, text};
use crate::status::{Status, entry};
use corrnoise::Plan;
use std::ffi::c_char;

/// A plan: the number of steps, the form of the noise and its amount. It holds no secret.
pub struct PlanHandle(pub(crate) Plan);

/// Reads a plan from its JSON file. One that is damaged, or has other noise than its certificate is for, is refused; whether its privacy
/// claim holds is what `corrnoise verify` checks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_plan_load(file: *const c_char, out: *mut *mut PlanHandle) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (out, file) = unsafe { (OutHandle::new(out)?, path(file, "file")?) };
        out.put(PlanHandle(Plan::load(file)?));
        Ok(())
    })
}

/// Reads a plan from the content of a plan file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_plan_from_json(json: *const c_char, out: *mut *mut PlanHandle) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (out, json) = unsafe { (OutHandle::new(out)?, text(json, "json")?) };
        out.put(PlanHandle(Plan::from_json(json)?));
        Ok(())
    })
}

/// The number of steps of the plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_plan_num_steps(plan: *const PlanHandle, num_steps: *mut u64) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (plan, out) = unsafe { (borrow(plan, "plan")?, Out::new(num_steps, "num_steps")?) };
        out.put(plan.0.num_steps());
        Ok(())
    })
}

/// The standard deviation of the i.i.d. noise Z; the rows of C⁻¹Z are added to gradients.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_plan_stddev(plan: *const PlanHandle, stddev: *mut f64) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (plan, out) = unsafe { (borrow(plan, "plan")?, Out::new(stddev, "stddev")?) };
        out.put(plan.0.stddev());
        Ok(())
    })
}

/// The bytes of state that the plan's form keeps per parameter. An engine may keep a few rows more:
/// corrnoise_mechanism_state_bytes().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_plan_state_bytes_per_param(
    plan: *const PlanHandle,
    bytes: *mut u64,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (plan, out) = unsafe { (borrow(plan, "plan")?, Out::new(bytes, "bytes")?) };
        out.put(plan.0.form().state_bytes_per_param());
        Ok(())
    })
}

/// The fingerprint that names the plan: 64 hexadecimal digits and a NUL, so `capacity` must be 65 or more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_plan_fingerprint(
    plan: *const PlanHandle,
    buffer: *mut c_char,
    capacity: usize,
) -> Status {
    // SAFETY: the crate's contract.
    entry(|| unsafe { put_text(&borrow(plan, "plan")?.0.fingerprint().to_string(), buffer, capacity) })
}

/// Frees a plan; NULL is accepted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_plan_free(plan: *mut PlanHandle) {
    // SAFETY: the crate's contract.
    unsafe { free(plan) }
}
