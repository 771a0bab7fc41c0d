//! Noise that the host makes, on a stand-in that delays the copy stream for as long as nothing waits for it, and what is cleared and sent.

use corrnoise::{CpuOptions, Form, Key, Mechanism, Plan, Shard};
use corrnoise_cuda::{HostMade, HostMadeOptions, MadeOnHost};
use cuda::control;
use cudarc::driver::CudaStream;
use std::sync::Arc;

/// A mechanism whose row has three parts, two of which device memory holds.
fn noise(stream: &Arc<CudaStream>) -> Mechanism<HostMade> {
    let plan = Plan::new(4, Form::blt(&[0.3], &[0.9]).unwrap(), 0.75).unwrap();
    let cpu = CpuOptions { threads: 2, ..CpuOptions::default() };
    let options = HostMadeOptions { cpu, chunk_bytes: 1, window: 2 };
    let key = Key::from_bytes([3; 32], "host-made");
    Mechanism::host_made(&plan, key, Shard::whole(3 * 8_192).unwrap(), stream, options).unwrap()
}

/// Copies that are late, as they may be on a device, change no bits; without the waits they would.
#[test]
fn the_suite_with_late_copies() {
    let device = 2;
    let stream = corrnoise_cuda::stream(device).unwrap();
    control::delay(device, true);
    let tests =
        ["host_made_several_tensors", "host_made_every_form_f32", "host_made_refuses", "host_made_over"];
    let outcome = corrnoise_cuda_suite::run(&[stream], &tests.map(String::from));
    assert_eq!((outcome.passed, outcome.failed), (4, 0));
}

/// No key is sent: making a mechanism copies the overflow flag, and a step copies its three parts.
#[test]
fn nothing_but_rows_goes_over_the_bus() {
    let device = 3;
    let stream = corrnoise_cuda::stream(device).unwrap();
    let copies = || control::calls_on(device, "cuMemcpyHtoDAsync_v2");
    let before = copies();
    let mut noise = noise(&stream);
    assert_eq!(copies() - before, 1, "the overflow flag");
    let mut gradient = stream.alloc_zeros::<f32>(3 * 8_192).unwrap();
    let before = copies();
    noise.add_to(&mut gradient).unwrap();
    assert_eq!(copies() - before, 3, "the parts of a row");
}

/// A mechanism may be dropped as soon as its step returns, though nobody has waited for the copies: pinned memory is cleared after them.
#[test]
fn a_mechanism_ends_after_its_copies() {
    for (device, late) in [(0, false), (1, true)] {
        let stream = corrnoise_cuda::stream(device).unwrap();
        control::delay(device, late);
        let mut noise = noise(&stream);
        let mut gradient = stream.alloc_zeros::<f32>(3 * 8_192).unwrap();
        let mut expected = vec![0.0_f32; 3 * 8_192];
        let key = Key::from_bytes([3; 32], "host-made");
        let shard = Shard::whole(3 * 8_192).unwrap();
        Mechanism::cpu(noise.plan(), key, shard).unwrap().add_to(&mut expected).unwrap();
        noise.add_to(&mut gradient).unwrap();
        drop(noise);
        assert!(stream.clone_dtoh(&gradient).unwrap() == expected, "late: {late}");
    }
}

/// Both parts of device memory are cleared when the mechanism ends; within a capture, with the next one.
#[test]
fn rows_on_their_way_are_cleared() {
    let device = 4;
    let stream = corrnoise_cuda::stream(device).unwrap().context().new_stream().unwrap();
    let fills = || control::calls_on(device, "cuMemsetD8Async");
    let (one, other) = (noise(&stream), noise(&stream));
    let before = fills();
    drop(one);
    assert_eq!(fills() - before, 2);
    use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    drop(other);
    assert_eq!(fills() - before, 2, "not within the capture");
    drop(stream.end_capture(CUgraphInstantiate_flags(0)).unwrap());
    let made = {
        let before = fills();
        let next = noise(&stream);
        let made = fills() - before;
        drop(next);
        made
    };
    let before = fills();
    let _last = noise(&stream);
    assert_eq!(made, fills() - before + 2, "cleared with the next one");
}
