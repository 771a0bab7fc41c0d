//! The C interface on a device: on the caller's addresses and stream, it gives the bits of the CPU engine.

use corrnoise::{Form, Key, Mechanism, Plan, Sampling, Shard};
use corrnoise_capi::*;
use cudarc::driver::{CudaContext, DevicePtrMut, result::ctx};
use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};

const DIM: u64 = 1300;

fn message() -> String {
    // SAFETY: a string that stays until this thread's next failure.
    unsafe { CStr::from_ptr(corrnoise_last_error_message()) }.to_str().unwrap().into()
}

fn key_handle() -> *mut KeyHandle {
    let mut key = null_mut();
    // SAFETY: 32 bytes, a text, and a pointer that may be written to.
    assert_eq!(unsafe { corrnoise_key_from_bytes([7; 32].as_ptr(), c"c".as_ptr(), &mut key) }, Status::Ok);
    key
}

#[test]
fn device_pointers_and_streams() {
    assert!(cuda::control::is_stand_in(), "another libcuda was found before target/*/deps/libcuda.so");
    let sampling = Sampling::Cyclic { dataset_size: 60, num_batches: 4 };
    let plan = Plan::new(6, Form::blt(&[0.3, 0.1], &[0.5, 0.9]).unwrap(), 0.7).unwrap();
    let plan = plan.with_sampling(sampling).unwrap();
    let mut rust = Mechanism::cpu(&plan, Key::from_bytes([7; 32], "c"), Shard::whole(DIM).unwrap()).unwrap();
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let raw = stream.cu_stream().cast();
    let json = CString::new(plan.to_json()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = CString::new(folder.path().join("noise").to_str().unwrap()).unwrap();
    let (mut plan, mut shard, mut noise) = (null_mut(), null_mut(), null_mut());
    // SAFETY: handles, texts, lists and device memory are this test's own and live long enough.
    unsafe {
        assert_eq!(corrnoise_plan_from_json(json.as_ptr(), &mut plan), Status::Ok);
        assert_eq!(corrnoise_shard_flat(DIM, &mut shard), Status::Ok);
        let key = key_handle();
        let status = corrnoise_cuda_mechanism_new(plan, key, shard, 99, raw, null(), &mut noise);
        assert_eq!(status, Status::InvalidArgument, "{}", message());
        let status = corrnoise_cuda_mechanism_new(plan, key, shard, 0, raw, null(), &mut noise);
        assert_eq!(status, Status::Ok, "{}", message());
        // A failure restores the caller's context too, which here is none.
        ctx::set_current(null_mut()).unwrap();
        let mut none = null_mut();
        let status = corrnoise_cuda_mechanism_new(plan, key, shard, 0, raw, null(), &mut none);
        assert_ne!(status, Status::Ok);
        assert!(message().contains("already serves a mechanism"), "{}", message());
        assert_eq!(ctx::get_current().unwrap(), None);
        corrnoise_key_free(key);
        for step in 0..6 {
            if step == 3 {
                // The C interface resumes from a file that the CPU engine wrote.
                rust.save(folder.path().join("noise")).unwrap();
                corrnoise_mechanism_free(noise);
                let (key, files) = (key_handle(), [file.as_ptr()]);
                let status = corrnoise_cuda_mechanism_resume(
                    plan,
                    key,
                    shard,
                    0,
                    raw,
                    null(),
                    files.as_ptr(),
                    1,
                    2,
                    null(),
                    &mut noise,
                );
                assert_eq!(status, Status::Ok, "{}", message());
                corrnoise_key_free(key);
            }
            let mut expected: Vec<f32> = (0..DIM).map(|i| i as f32 * 0.25).collect();
            let mut device = stream.clone_htod(&expected).unwrap();
            let (address, sync) = device.device_ptr_mut(&stream);
            let refuse = |element, address: u64, len: u64, status, part: &str| {
                assert_eq!(corrnoise_cuda_add_to(noise, element, &address, &len, 1), status, "{part}");
                assert!(message().contains(part), "{}", message());
            };
            refuse(7, address, DIM, Status::InvalidArgument, "element_type is 7");
            refuse(0, address, DIM - 1, Status::InvalidArgument, "gradient has length 1299");
            refuse(0, address + 2, DIM, Status::InvalidArgument, "a multiple of 4");
            refuse(0, 0, DIM, Status::NullPointer, "a gradient is NULL");
            let (mut host, length) = ([0.0_f32; DIM as usize], DIM as usize);
            let status = corrnoise_add_to_f32(noise, &host.as_mut_ptr(), &length, 1);
            assert_eq!(status, Status::InvalidArgument);
            assert!(message().contains("on a device"), "{}", message());
            refuse(0, address, DIM, Status::Batch, "corrnoise_mechanism_unchecked_batch()");
            assert_eq!(corrnoise_mechanism_unchecked_batch(noise), Status::Ok);
            let status = corrnoise_cuda_add_to(noise, 0, &address, &DIM, 1);
            assert_eq!(status, Status::Ok, "{}", message());
            drop(sync);
            rust.unchecked_batch().unwrap().add_to(&mut expected).unwrap();
            assert_eq!(stream.clone_dtoh(&device).unwrap(), expected, "step {step}");
        }
        let mut overflow = 0;
        assert_eq!(corrnoise_cuda_first_overflow(noise, &mut overflow), Status::Ok);
        assert_eq!(overflow, u64::MAX);
        corrnoise_mechanism_free(noise);
        corrnoise_shard_free(shard);
        corrnoise_plan_free(plan);
    }
}

/// What `corrnoise_mechanism_describe` and `corrnoise_mechanism_state_bytes` say.
fn described(noise: *mut MechanismHandle) -> (String, u64) {
    let (mut text, mut bytes) = ([0; 256], 0);
    // SAFETY: the handle is alive, and a text and a number may be written to.
    unsafe {
        assert_eq!(corrnoise_mechanism_describe(noise, text.as_mut_ptr(), text.len()), Status::Ok);
        assert_eq!(corrnoise_mechanism_state_bytes(noise, &mut bytes), Status::Ok);
        (CStr::from_ptr(text.as_ptr()).to_str().unwrap().into(), bytes)
    }
}

#[test]
fn options_change_memory_and_no_bit() {
    let plan = Plan::new(7, Form::blt(&[0.3, 0.1], &[0.5, 0.9]).unwrap(), 0.7).unwrap();
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let raw = stream.cu_stream().cast();
    let json = CString::new(plan.to_json()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = CString::new(folder.path().join("noise").to_str().unwrap()).unwrap();
    let padded = DIM.next_multiple_of(512);
    let (mut handle, mut shard) = (null_mut(), null_mut());
    let options = |rows_ahead, prepare, max_state_bytes| CudaOptions { rows_ahead, prepare, max_state_bytes };
    // SAFETY: handles, texts, lists and device memory are this test's own and live long enough.
    unsafe {
        assert_eq!(corrnoise_plan_from_json(json.as_ptr(), &mut handle), Status::Ok);
        assert_eq!(corrnoise_shard_flat(DIM, &mut shard), Status::Ok);
        for (options, told, bytes) in [
            (options(0, 0, 0), "", 8),
            (options(1, 0, 8), "", 8),
            (options(4, 0, 24), ", 4 rows at a time", 24),
            (options(1, 1, 12), ", prepared on a stream of its own", 12),
            (options(3, 1, 0), ", 3 rows at a time, prepared on a stream of its own", 20),
        ] {
            let mut rust =
                Mechanism::cpu(&plan, Key::from_bytes([7; 32], "c"), Shard::whole(DIM).unwrap()).unwrap();
            let (mut key, mut noise) = (key_handle(), null_mut());
            let status = corrnoise_cuda_mechanism_new(handle, key, shard, 0, raw, &options, &mut noise);
            assert_eq!(status, Status::Ok, "{}", message());
            for step in 0..7 {
                if step == 4 {
                    assert_eq!(corrnoise_mechanism_save(noise, file.as_ptr()), Status::Ok, "{}", message());
                    corrnoise_mechanism_free(noise);
                    corrnoise_key_free(key);
                    key = key_handle();
                    let files = [file.as_ptr()];
                    let status = corrnoise_cuda_mechanism_resume(
                        handle,
                        key,
                        shard,
                        0,
                        raw,
                        &options,
                        files.as_ptr(),
                        1,
                        2,
                        null(),
                        &mut noise,
                    );
                    assert_eq!(status, Status::Ok, "{}", message());
                }
                let mut expected: Vec<f32> = (0..DIM).map(|i| i as f32 * 0.25).collect();
                let mut device = stream.clone_htod(&expected).unwrap();
                let (address, sync) = device.device_ptr_mut(&stream);
                assert_eq!(corrnoise_cuda_add_to(noise, 0, &address, &DIM, 1), Status::Ok, "{}", message());
                drop(sync);
                // Also behind the last step, as a loop does that ends with it; without the option it does nothing.
                assert_eq!(corrnoise_mechanism_prepare(noise), Status::Ok, "{}", message());
                rust.add_to(&mut expected).unwrap();
                assert_eq!(stream.clone_dtoh(&device).unwrap(), expected, "step {step} with {options:?}");
                let (text, held) = described(noise);
                assert!(text.ends_with(told), "{text}");
                assert_eq!(text.contains(", "), !told.is_empty(), "{text}");
                assert_eq!(held, bytes * padded, "{options:?}");
            }
            corrnoise_mechanism_free(noise);
            corrnoise_key_free(key);
        }
        let key = key_handle();
        for (options, part) in [
            (options(17, 0, 0), "rows_ahead is 17: expected 1 to 16"),
            (options(0, 2, 0), "prepare is 2: expected 0 or 1"),
            (options(0, 0, 7), "max_state_bytes is 7: expected at least 8"),
            (options(4, 0, 23), "max_state_bytes is 23: expected at least 24"),
        ] {
            let mut noise = null_mut();
            let status = corrnoise_cuda_mechanism_new(handle, key, shard, 0, raw, &options, &mut noise);
            assert_eq!(status, Status::InvalidArgument, "{part}");
            assert!(noise.is_null() && message().contains(part), "{}", message());
        }
        corrnoise_key_free(key);
        corrnoise_shard_free(shard);
        corrnoise_plan_free(handle);
    }
}
