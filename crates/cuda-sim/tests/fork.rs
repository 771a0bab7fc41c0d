//! A forked child has its parent's handles of mechanisms on a device. None of its calls reaches the driver, which does not serve it.
#![cfg(unix)]

use corrnoise::{Form, Plan};
use corrnoise_capi::*;
use cuda::control;
use cudarc::driver::DevicePtrMut;
use std::ffi::CString;
use std::ptr::null_mut;

const DIM: u64 = 700;

/// Every call of the driver that the engine could make, and those that restore a context around it.
const CALLS: [&str; 12] = [
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuDeviceGetName",
    "cuStreamIsCapturing",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuStreamDestroy_v2",
    "cuEventRecord",
    "cuLaunchKernel",
    "cuMemcpyDtoHAsync_v2",
    "cuMemsetD8Async",
    "cuMemFreeAsync",
];

#[test]
fn a_child_is_refused_without_a_call_of_the_driver() {
    let plan = Plan::new(6, Form::blt(&[0.3], &[0.9]).unwrap(), 0.7).unwrap();
    let json = CString::new(plan.to_json()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = CString::new(folder.path().join("child").to_str().unwrap()).unwrap();
    let stream = corrnoise_cuda::stream(0).unwrap();
    let mut gradient = stream.alloc_zeros::<f32>(DIM as usize).unwrap();
    let address = gradient.device_ptr_mut(&stream).0;
    let (mut plan, mut key, mut shard, mut noise) = (null_mut(), null_mut(), null_mut(), null_mut());
    // SAFETY: handles, texts and device memory are this test's own and live long enough; the child ends at once.
    unsafe {
        assert_eq!(corrnoise_plan_from_json(json.as_ptr(), &mut plan), Status::Ok);
        assert_eq!(corrnoise_key_from_os(&mut key), Status::Ok);
        assert_eq!(corrnoise_shard_flat(DIM, &mut shard), Status::Ok);
        let options = CudaOptions { prepare: 1, ..CudaOptions::default() };
        let status = corrnoise_cuda_mechanism_new(plan, key, shard, 0, null_mut(), &options, &mut noise);
        assert_eq!(status, Status::Ok);
        assert_eq!(corrnoise_cuda_add_to(noise, 0, &address, &DIM, 1), Status::Ok);
        let before = CALLS.map(control::calls);
        let child = libc::fork();
        if child == 0 {
            libc::alarm(30);
            let (mut number, mut text) = (0, [0; 128]);
            let refused = [
                corrnoise_cuda_add_to(noise, 0, &address, &DIM, 1),
                corrnoise_cuda_first_overflow(noise, &mut number),
                corrnoise_mechanism_prepare(noise),
                corrnoise_mechanism_unchecked_batch(noise),
                corrnoise_mechanism_save(noise, file.as_ptr()),
            ];
            let told = [
                corrnoise_mechanism_next_step(noise, &mut number),
                corrnoise_mechanism_state_bytes(noise, &mut number),
                corrnoise_mechanism_describe(noise, text.as_mut_ptr(), text.len()),
            ];
            corrnoise_mechanism_free(noise);
            let held = refused == [Status::Forked; 5] && told == [Status::Ok; 3];
            libc::_exit(i32::from(!(held && CALLS.map(control::calls) == before)));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0, "a call was not refused, or reached the driver");
        assert_eq!(corrnoise_cuda_add_to(noise, 0, &address, &DIM, 1), Status::Ok);
        corrnoise_mechanism_free(noise);
        corrnoise_key_free(key);
        corrnoise_shard_free(shard);
        corrnoise_plan_free(plan);
    }
    assert!(!folder.path().join("child").exists());
}
