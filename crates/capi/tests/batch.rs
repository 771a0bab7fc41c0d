//! Where a plan draws batches, the caller vouches for every step's batch by name.

mod common;

use common::{Handles, mechanism, message};
use corrnoise::{Form, Plan, Sampling};
use corrnoise_capi::*;
use std::ffi::CString;
use std::ptr::null;

const LENGTHS: [usize; 3] = [700, 10, 300];

fn sampled() -> Handles {
    let sampling = Sampling::Cyclic { dataset_size: 60, num_batches: 4 };
    let plan = Plan::new(3, Form::independent(), 0.7).unwrap().with_sampling(sampling).unwrap();
    let (mut handles, json) = (Handles::new(), CString::new(plan.to_json()).unwrap());
    // SAFETY: the plan is freed once and replaced; the text is this function's own.
    unsafe {
        corrnoise_plan_free(handles.plan);
        assert_eq!(corrnoise_plan_from_json(json.as_ptr(), &mut handles.plan), Status::Ok);
    }
    handles
}

/// Makes a step on these numbers of values, and tells whether gradients changed.
fn step(noise: *mut MechanismHandle, lengths: [usize; 3]) -> (Status, bool) {
    let mut gradients = lengths.map(|len| vec![1.0_f32; len]);
    let pointers = gradients.each_mut().map(|gradient| gradient.as_mut_ptr());
    // SAFETY: as many pointers as lengths, each to a vector of its own.
    let status = unsafe { corrnoise_add_to_f32(noise, pointers.as_ptr(), lengths.as_ptr(), 3) };
    (status, gradients.iter().flatten().any(|value| *value != 1.0))
}

#[test]
fn a_step_without_its_batch_is_refused() {
    let handles = sampled();
    let noise = mechanism(&handles);
    for number in 0..3 {
        assert_eq!(step(noise, LENGTHS), (Status::Batch, false));
        let text = message();
        assert!(text.contains(&format!("step {number} has no batch")), "{text}");
        assert!(text.contains("corrnoise_mechanism_unchecked_batch()"), "{text}");
        // SAFETY: the handle is alive.
        assert_eq!(unsafe { corrnoise_mechanism_unchecked_batch(noise) }, Status::Ok);
        assert_eq!(step(noise, [700, 10, 299]), (Status::InvalidArgument, false));
        assert_eq!(step(noise, LENGTHS), (Status::Ok, true), "a refused length leaves the step admitted");
    }
    assert_eq!(step(noise, LENGTHS), (Status::PastEnd, false));
    // SAFETY: null is refused; the handle is alive, and freed once.
    unsafe {
        assert_eq!(corrnoise_mechanism_unchecked_batch(null()), Status::NullPointer);
        corrnoise_mechanism_free(noise);
    }
}

#[test]
fn plans_that_draw_no_batches_need_none() {
    let handles = Handles::new();
    let noise = mechanism(&handles);
    assert_eq!(step(noise, LENGTHS), (Status::Ok, true));
    // SAFETY: the handle is alive, and freed once.
    unsafe {
        assert_eq!(corrnoise_mechanism_unchecked_batch(noise), Status::Ok);
        corrnoise_mechanism_free(noise);
    }
}
