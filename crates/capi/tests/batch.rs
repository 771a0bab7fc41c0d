//! Where a plan draws batches, every step is admitted with its batch, or the caller vouches for it by name.

mod common;

use common::{Handles, key, mechanism, message};
use corrnoise::{Form, Plan, Sampler, Sampling};
use corrnoise_capi::*;
use std::ffi::CString;
use std::ptr::{null, null_mut};

const LENGTHS: [usize; 3] = [700, 10, 300];

fn plan(sampling: Sampling) -> Plan {
    Plan::new(3, Form::independent(), 0.7).unwrap().with_sampling(sampling).unwrap()
}

fn sampled() -> Handles {
    handles(&plan(Sampling::Cyclic { dataset_size: 60, num_batches: 4 }))
}

fn handles(plan: &Plan) -> Handles {
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
        assert!(text.contains("corrnoise_mechanism_for_batch()"), "{text}");
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

/// The batch that a sampler draws, which the test frees.
fn draw(sampler: *const SamplerHandle, step: u64) -> *mut BatchHandle {
    let mut batch = null_mut();
    // SAFETY: the sampler is alive; `batch` is this function's own.
    assert_eq!(unsafe { corrnoise_sampler_batch(sampler, step, &mut batch) }, Status::Ok);
    batch
}

fn sampler(handles: &Handles) -> *mut SamplerHandle {
    let mut sampler = null_mut();
    // SAFETY: the handles are alive; `sampler` is this function's own.
    let status = unsafe { corrnoise_sampler_new(handles.plan, handles.key, &mut sampler) };
    assert_eq!(status, Status::Ok, "{}", message());
    sampler
}

#[test]
fn batches_are_those_of_rust() {
    for sampling in [
        Sampling::Poisson { dataset_size: 300, sampling_prob: 0.1 },
        Sampling::BallsInBins { dataset_size: 300, num_bins: 9 },
        Sampling::RandomAllocation { dataset_size: 300, num_bins: 9 },
        Sampling::SpacedPoisson { dataset_size: 300, min_sep: 3, sampling_prob: 0.1 },
        Sampling::TruncatedPoisson {
            dataset_size: 300,
            num_blocks: 1,
            sampling_prob: 0.5,
            max_batch_size: 90,
        },
    ] {
        let plan = plan(sampling);
        let handles = handles(&plan);
        let (rust, own) = (Sampler::new(&plan, &key()).unwrap(), sampler(&handles));
        let (mut expected, mut most) = (0.0, 0);
        // SAFETY: the sampler is alive, the numbers are this function's own.
        unsafe {
            assert_eq!(corrnoise_sampler_expected_batch_size(own, &mut expected), Status::Ok);
            assert_eq!(corrnoise_sampler_max_batch_size(own, &mut most), Status::Ok);
        }
        assert_eq!((expected, most), (rust.expected_batch_size(), rust.max_batch_size()));
        for step in [2, 0, 1] {
            let (batch, units) = (draw(own, step), rust.batch(step).unwrap());
            let (mut list, mut count) = (null(), 7);
            let (mut indices, mut mask) = ([9_u64; 320], [9_u8; 320]);
            // SAFETY: the batch is alive until it is freed at the end; lists are as long as is said.
            unsafe {
                assert_eq!(corrnoise_batch_indices(batch, &mut list, &mut count), Status::Ok);
                assert_eq!(std::slice::from_raw_parts(list, count), units.indices());
                let (list, flags) = (indices.as_mut_ptr(), mask.as_mut_ptr());
                assert_eq!(corrnoise_batch_padded(batch, 300, list, flags, 310), Status::Ok);
                assert_eq!(corrnoise_batch_padded(batch, 0, list, flags, count - 1), Status::InvalidArgument);
                let expected = format!("step {step} is {count}: expected at most {}", count - 1);
                assert!(message().contains(&expected), "{}", message());
                assert_eq!(corrnoise_batch_padded(batch, 0, null_mut(), flags, 310), Status::NullPointer);
                assert_eq!(corrnoise_batch_padded(batch, 0, list, null_mut(), 310), Status::NullPointer);
                assert_eq!(
                    corrnoise_batch_padded(batch, 0, null_mut(), null_mut(), 0),
                    Status::InvalidArgument
                );
                corrnoise_batch_free(batch);
            }
            let (padded, there) = units.padded(310, 300).unwrap();
            assert_eq!(indices[..310], padded);
            assert!(mask[..310].iter().zip(there).all(|(flag, there)| *flag == u8::from(there)));
            assert!(indices[310..] == [9; 10] && mask[310..] == [9; 10], "no place more was written");
        }
        let mut none = null_mut();
        // SAFETY: the sampler is alive, and freed once; null is refused, or freed for nothing.
        unsafe {
            assert_eq!(corrnoise_sampler_batch(own, 3, &mut none), Status::PastEnd);
            assert_eq!(corrnoise_sampler_batch(null(), 0, &mut none), Status::NullPointer);
            assert!(none.is_null());
            corrnoise_sampler_free(own);
            corrnoise_sampler_free(null_mut());
            corrnoise_batch_free(null_mut());
        }
    }
}

#[test]
fn a_step_is_admitted_with_its_own_batch() {
    let handles = sampled();
    let sampler = sampler(&handles);
    let noise = mechanism(&handles);
    let mut late = null_mut();
    // SAFETY: the handles are alive; `late` is this function's own.
    unsafe {
        assert_eq!(corrnoise_sampler_new(handles.plan, handles.key, &mut late), Status::Key);
        assert!(late.is_null() && message().contains("make the sampler first"), "{}", message());
    }
    for number in 0..3 {
        let [own, other] = [number, (number + 1) % 3].map(|step| draw(sampler, step));
        // SAFETY: the handles are alive, and batches are freed once.
        unsafe {
            assert_eq!(corrnoise_mechanism_for_batch(noise, other), Status::Batch);
            assert!(message().contains(&format!("next step is {number}")), "{}", message());
            assert_eq!(step(noise, LENGTHS), (Status::Batch, false));
            assert_eq!(corrnoise_mechanism_for_batch(noise, own), Status::Ok);
            corrnoise_batch_free(own);
            corrnoise_batch_free(other);
        }
        assert_eq!(step(noise, LENGTHS), (Status::Ok, true));
    }
    // SAFETY: the handles are alive, and freed once.
    unsafe {
        corrnoise_sampler_free(sampler);
        corrnoise_mechanism_free(noise);
    }
}
