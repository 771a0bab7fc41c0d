//! Errors that cudarc keeps from another object's end, captures that are given up, and calls that a backend behind another type must pass on.

use corrnoise::any::{AnyBackend, AnyGradients, Place};
use corrnoise::backend::{Backend, Replay};
use corrnoise::{CpuOptions, Dtype, Error, Form, Gradients, Key, Mechanism, Plan, RunKey, Shard};
use corrnoise_cuda::{Cuda, CudaOptions, DeviceGradient, HostMadeOptions, MadeOnHost, OnCuda};
use cuda::control;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtrMut, DriverError, result};
use std::sync::Arc;

const LEN: usize = 3 * 8_192;

fn key() -> Key {
    Key::from_bytes([3; 32], "kept errors")
}

fn plan() -> Plan {
    Plan::new(8, Form::blt(&[0.3], &[0.9]).unwrap(), 0.75).unwrap()
}

fn shard() -> Shard {
    Shard::whole(LEN as u64).unwrap()
}

/// A stream of another framework, so that cudarc records no events of its own.
fn borrowed(device: usize) -> Arc<CudaStream> {
    let default = corrnoise_cuda::stream(device).unwrap();
    default.context().bind_to_thread().unwrap();
    let stream = result::stream::create(result::stream::StreamKind::NonBlocking).unwrap();
    // SAFETY: a stream of this context that is never destroyed.
    unsafe { default.context().wrap_borrowed_stream(stream) }
}

fn prepared(stream: &Arc<CudaStream>) -> Mechanism<Cuda> {
    let options = CudaOptions { rows_ahead: Some(4), prepare: true, ..CudaOptions::default() };
    Mechanism::cuda_with(&plan(), key(), shard(), stream, options).unwrap()
}

fn raw(gradient: &mut CudaSlice<f32>) -> DeviceGradient<'static> {
    let stream = gradient.stream().clone();
    let address = gradient.device_ptr_mut(&stream).0;
    // SAFETY: the tests keep their gradients until the end.
    unsafe { DeviceGradient::from_raw(address, LEN as u64, Dtype::F32) }
}

fn keep_an_error(stream: &CudaStream) {
    stream.context().record_err(Err::<(), _>(DriverError(CUresult::CUDA_ERROR_INVALID_VALUE)));
}

fn begin(stream: &CudaStream) {
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
}

/// The noise of the first `steps` steps, added up as the CPU engine does.
fn expected(steps: usize) -> Vec<f32> {
    let mut sum = vec![0.0_f32; LEN];
    let mut cpu = Mechanism::cpu(&plan(), key(), shard()).unwrap();
    (0..steps).for_each(|_| cpu.add_to(&mut sum).unwrap());
    sum
}

/// Ends a mechanism of one step while an error is kept: its work must be over, and none of its own.
fn ends_after_an_error<B: Backend>(
    noise: Mechanism<B>,
    stream: &Arc<CudaStream>,
    gradient: &CudaSlice<f32>,
    late: bool,
) {
    keep_an_error(stream);
    drop(noise);
    let _ = stream.context().check_err();
    stream.context().synchronize().unwrap_or_else(|error| panic!("late: {late}: {error}"));
    assert!(stream.clone_dtoh(gradient).unwrap() == expected(1), "late: {late}");
}

/// Rows that are being made when their mechanism ends are waited for, whatever went wrong elsewhere: their memory is cleared and freed.
#[test]
fn prepared_rows_end_before_their_memory_whatever_went_wrong_elsewhere() {
    for (device, late) in [(0, false), (1, true)] {
        let stream = borrowed(device);
        control::delay(device, late);
        let mut noise = prepared(&stream);
        let mut gradient = stream.alloc_zeros::<f32>(LEN).unwrap();
        noise.run_step(&[raw(&mut gradient)]).unwrap();
        noise.prepare().unwrap();
        ends_after_an_error(noise, &stream, &gradient, late);
    }
}

/// Copies that are under way when their mechanism ends are waited for, whatever went wrong elsewhere: pinned memory is cleared and freed.
#[test]
fn copies_end_before_their_memory_whatever_went_wrong_elsewhere() {
    for (device, late) in [(2, false), (3, true)] {
        let stream = borrowed(device);
        control::delay(device, late);
        let cpu = CpuOptions { threads: 2, ..CpuOptions::default() };
        let options = HostMadeOptions { cpu, chunk_bytes: 1, window: 2 };
        let mut noise = Mechanism::host_made(&plan(), key(), shard(), &stream, options).unwrap();
        let mut gradient = stream.alloc_zeros::<f32>(LEN).unwrap();
        noise.run_step(&[raw(&mut gradient)]).unwrap();
        ends_after_an_error(noise, &stream, &gradient, late);
    }
}

/// Outside of a capture nothing orders a branch with graphs that are launched next, so none is opened; nor is the next capture disturbed.
#[test]
fn prepare_outside_of_a_capture_opens_no_branch() {
    let stream = borrowed(4);
    let mut noise = prepared(&stream);
    let mut gradient = stream.alloc_zeros::<f32>(LEN).unwrap();
    let step = [raw(&mut gradient)];
    noise.begin_replay(6).unwrap();
    noise.prepare().unwrap();
    begin(&stream);
    noise.prepare().unwrap();
    noise.enqueue(&step).unwrap();
    let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().expect("a graph");
    for _ in 0..2 {
        noise.prepare().unwrap();
        graph.launch().unwrap();
    }
    noise.enqueue(&step).unwrap();
    graph.launch().unwrap();
    stream.synchronize().unwrap();
    assert_eq!(noise.end_replay().unwrap(), 4);
    assert!(stream.clone_dtoh(&gradient).unwrap() == expected(4));
}

/// A branch that was opened in a capture that was given up is not taken for open, in the next capture or outside of one.
#[test]
fn a_branch_of_a_capture_that_was_given_up_is_closed() {
    for captured in [true, false] {
        let stream = borrowed(5);
        let mut noise = prepared(&stream);
        let mut gradient = stream.alloc_zeros::<f32>(LEN).unwrap();
        let step = [raw(&mut gradient)];
        noise.begin_replay(4).unwrap();
        begin(&stream);
        noise.prepare().unwrap();
        assert!(stream.end_capture(CUgraphInstantiate_flags(0)).is_err(), "the branch was not joined");
        if captured {
            begin(&stream);
            noise.prepare().unwrap();
            noise.enqueue(&step).unwrap();
            let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().expect("a graph");
            (0..2).for_each(|_| graph.launch().unwrap());
        } else {
            noise.prepare().unwrap();
            (0..2).for_each(|_| noise.enqueue(&step).unwrap());
        }
        assert_eq!(noise.end_replay().unwrap(), 2, "captured: {captured}");
        assert!(stream.clone_dtoh(&gradient).unwrap() == expected(2), "captured: {captured}");
    }
}

/// A mechanism whose device is chosen at run time refuses at once what the device would refuse, or could not count.
#[test]
fn a_mechanism_on_any_device_refuses_too_many_steps_at_once() {
    let plan = Plan::new(1 << 39, Form::independent(), 0.75).unwrap();
    let refusal = |name: &str| {
        let place = Place::open(name.parse().unwrap(), CpuOptions::default()).unwrap();
        let (keys, shard) = ([RunKey::from_bytes([5; 32])], Shard::whole(700).unwrap());
        let mut backend = AnyBackend::new(&plan, &keys, &shard, &place).unwrap();
        backend.reserve(1 << 38).unwrap_err()
    };
    assert!(matches!(refusal("cuda:6"), Error::OutOfMemory { .. }));
    for name in ["cpu", "cuda:6+host"] {
        let message = refusal(name).to_string();
        assert!(message.contains("part of no graph"), "{name}: {message}");
    }
}

/// Gradients in host memory cannot be replayed: they are refused, and the replay goes on.
#[test]
fn host_memory_is_refused_in_a_replay_and_changes_nothing() {
    let stream = borrowed(0);
    let place = Place::Cuda(stream.clone().into(), CudaOptions::default());
    let (plan, make) =
        (plan(), |keys: &[RunKey], shard: &Shard| AnyBackend::new(&plan(), keys, shard, &place));
    let mut noise = Mechanism::with_backend(&plan, key(), shard(), make).unwrap();
    noise.begin_replay(2).unwrap();
    let mut host = vec![0.0_f32; LEN];
    let refused = noise.enqueue(AnyGradients::Host(Gradients::new(&mut [&mut host[..]])));
    assert!(matches!(refused, Err(Error::Parameter { .. })), "{refused:?}");
    let mut gradient = stream.alloc_zeros::<f32>(LEN).unwrap();
    noise.enqueue(AnyGradients::Cuda(&[raw(&mut gradient)])).unwrap();
    assert_eq!(noise.end_replay().unwrap(), 1);
    assert!(stream.clone_dtoh(&gradient).unwrap() == expected(1));
}
