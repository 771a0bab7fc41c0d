//! Noise made ahead of its step, through C: the same bits and the same checkpoints, and a refused step leaves the row.

mod common;

use common::{Handles, PLAN_STEPS, message};
use corrnoise::{Form, Plan, Sampling};
use corrnoise_capi::*;
use std::ffi::CString;
use std::path::Path;
use std::ptr::{null, null_mut};

/// More than 32 tiles, so that the row is not left to the step.
const DIM: usize = 40_000;

/// A mechanism for a flat model, and the handles that it was made of.
fn start(plan: &Plan, prepare_threads: u32) -> (Handles, *mut MechanismHandle) {
    let (mut handles, json) = (Handles::new(), CString::new(plan.to_json()).unwrap());
    let (options, mut noise) = (CpuOptions { prepare_threads, ..CpuOptions::default() }, null_mut());
    // SAFETY: plan and shard are freed once and replaced; the rest is this function's own.
    unsafe {
        corrnoise_plan_free(handles.plan);
        corrnoise_shard_free(handles.shard);
        assert_eq!(corrnoise_plan_from_json(json.as_ptr(), &mut handles.plan), Status::Ok, "{}", message());
        assert_eq!(corrnoise_shard_flat(DIM as u64, &mut handles.shard), Status::Ok);
        let status = corrnoise_mechanism_new(handles.plan, handles.key, handles.shard, &options, &mut noise);
        assert_eq!(status, Status::Ok, "{}", message());
    }
    (handles, noise)
}

fn prepare(noise: *mut MechanismHandle) {
    // SAFETY: the handle is alive.
    assert_eq!(unsafe { corrnoise_mechanism_prepare(noise) }, Status::Ok, "{}", message());
}

fn add_to(noise: *mut MechanismHandle, values: &mut [f32]) -> Status {
    // SAFETY: one pointer and one length, of a vector of its own.
    unsafe { corrnoise_add_to_f32(noise, &values.as_mut_ptr(), &values.len(), 1) }
}

fn saved(noise: *mut MechanismHandle, folder: &Path) -> Vec<u8> {
    let path = folder.join("state");
    let text = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the handle is alive, and the text is this function's own.
    assert_eq!(unsafe { corrnoise_mechanism_save(noise, text.as_ptr()) }, Status::Ok, "{}", message());
    std::fs::read(path).unwrap()
}

fn state_bytes(noise: *mut MechanismHandle) -> u64 {
    let mut bytes = 0;
    // SAFETY: the handle is alive.
    assert_eq!(unsafe { corrnoise_mechanism_state_bytes(noise, &mut bytes) }, Status::Ok);
    bytes
}

#[test]
fn bits_and_checkpoints_are_the_same_with_and_without() {
    let folder = tempfile::tempdir().unwrap();
    let blt = Plan::new(PLAN_STEPS, Form::blt(&[0.3, 0.1], &[0.9, 0.5]).unwrap(), 0.7).unwrap();
    for plan in [common::plan(), blt] {
        let ((_plain_parts, plain), (_parts, ahead)) = (start(&plan, 0), start(&plan, 2));
        let (mut expected, mut got) = (vec![1.0_f32; DIM], vec![1.0_f32; DIM]);
        let before = state_bytes(ahead);
        for step in 0..PLAN_STEPS {
            prepare(ahead);
            prepare(ahead);
            assert_eq!(state_bytes(ahead), before + 4 * DIM as u64, "one row more, once");
            assert!(saved(ahead, folder.path()) == saved(plain, folder.path()), "before step {step}");
            assert_eq!(add_to(plain, &mut expected), Status::Ok);
            assert_eq!(add_to(ahead, &mut got), Status::Ok);
            assert!(got == expected, "step {step}");
            assert!(saved(ahead, folder.path()) == saved(plain, folder.path()), "after step {step}");
        }
        // A loop may end with it.
        prepare(ahead);
        assert_eq!(add_to(ahead, &mut got), Status::PastEnd);
        // SAFETY: both are alive, and freed once.
        unsafe {
            corrnoise_mechanism_free(plain);
            corrnoise_mechanism_free(ahead);
        }
    }
}

#[test]
fn a_refused_step_leaves_the_row() {
    let sampling = Sampling::Cyclic { dataset_size: 60, num_batches: 4 };
    let plan =
        Plan::new(4, Form::blt(&[0.3], &[0.9]).unwrap(), 0.7).unwrap().with_sampling(sampling).unwrap();
    let ((_plain_parts, plain), (_parts, ahead)) = (start(&plan, 1), start(&plan, 1));
    // SAFETY: the handle is alive.
    let admit = |noise| assert_eq!(unsafe { corrnoise_mechanism_unchecked_batch(noise) }, Status::Ok);
    let (mut expected, mut got) = (vec![1.0_f32; DIM], vec![1.0_f32; DIM]);
    for step in 0..4 {
        prepare(ahead);
        let before = got.clone();
        assert_eq!(add_to(ahead, &mut got), Status::Batch);
        admit(ahead);
        assert_eq!(add_to(ahead, &mut got[1..]), Status::InvalidArgument);
        assert!(got == before, "a refusal changes nothing");
        admit(plain);
        assert_eq!(add_to(plain, &mut expected), Status::Ok);
        assert_eq!(add_to(ahead, &mut got), Status::Ok, "preparing leaves the admission");
        assert!(got == expected, "step {step}");
    }
    // SAFETY: null is refused; the handles are alive, and freed once, one of them while threads may still run.
    unsafe {
        assert_eq!(corrnoise_mechanism_prepare(null()), Status::NullPointer);
        corrnoise_mechanism_free(plain);
        corrnoise_mechanism_free(ahead);
        let (_parts, left) = start(&plan, 3);
        prepare(left);
        corrnoise_mechanism_free(left);
    }
}
