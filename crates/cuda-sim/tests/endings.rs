//! Mechanisms that end at a bad moment: their graphs give NaN all the same, and nobody's capture is spoilt.

use corrnoise::Dtype;
use corrnoise::backend::{Replay, Step};
use corrnoise::{Error, Form, Incarnations, Key, Mechanism, Plan, RunKey, Shard};
use corrnoise_cuda::{Cuda, DeviceGradient, OnCuda};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaSlice, CudaStream, DevicePtrMut, DriverError, result};
use std::sync::Arc;

const LEN: usize = 700;

fn plan() -> Plan {
    Plan::new(4, Form::blt(&[0.3], &[0.9]).unwrap(), 0.75).unwrap()
}

fn make(stream: &Arc<CudaStream>) -> Mechanism<Cuda> {
    let key = Key::from_bytes([3; 32], "endings");
    Mechanism::cuda(&plan(), key, Shard::whole(LEN as u64).unwrap(), stream).unwrap()
}

fn begin(stream: &CudaStream) {
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
}

fn raw(gradient: &mut CudaSlice<f32>) -> DeviceGradient<'static> {
    let stream = gradient.stream().clone();
    let address = gradient.device_ptr_mut(&stream).0;
    // SAFETY: the tests keep their gradients until the end.
    unsafe { DeviceGradient::from_raw(address, LEN as u64, Dtype::F32) }
}

fn capture(stream: &Arc<CudaStream>, enqueue: impl FnOnce()) -> CudaGraph {
    begin(stream);
    enqueue();
    stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().expect("a graph")
}

fn expect_nan(graph: &CudaGraph, gradient: &CudaSlice<f32>, what: &str) {
    graph.launch().unwrap();
    let values = gradient.stream().clone_dtoh(gradient).unwrap();
    assert!(values.iter().all(|value| value.is_nan()), "{what}");
}

/// A stream of another framework: cudarc did not make it, and knows of no stream but the default one.
fn borrowed(device: usize) -> Arc<CudaStream> {
    let default = corrnoise_cuda::stream(device).unwrap();
    default.context().bind_to_thread().unwrap();
    let stream = result::stream::create(result::stream::StreamKind::NonBlocking).unwrap();
    // SAFETY: a stream of this context that is never destroyed.
    unsafe { default.context().wrap_borrowed_stream(stream) }
}

#[test]
fn a_capture_on_a_borrowed_stream_survives_the_end_of_a_mechanism() {
    let stream = borrowed(0);
    let (mut noise, other) = (make(&stream), make(&stream));
    let mut gradient = stream.alloc_zeros::<f32>(LEN).unwrap();
    noise.begin_replay(4).unwrap();
    let step = [raw(&mut gradient)];
    let graph = capture(&stream, || noise.enqueue(&step).unwrap());
    drop(capture(&stream, || {
        noise.enqueue(&step).unwrap();
        drop((noise, other));
    }));
    expect_nan(&graph, &gradient, "of a mechanism that is gone");
}

/// cudarc keeps an error of an object's end for the next call, whosever that is.
#[test]
fn a_mechanism_ends_whatever_went_wrong_elsewhere() {
    let stream = corrnoise_cuda::stream(1).unwrap().context().new_stream().unwrap();
    let mut noise = make(&stream);
    let mut gradient = stream.alloc_zeros::<f32>(LEN).unwrap();
    noise.begin_replay(4).unwrap();
    let step = [raw(&mut gradient)];
    let graph = capture(&stream, || noise.enqueue(&step).unwrap());
    let error = || Err::<(), _>(DriverError(CUresult::CUDA_ERROR_INVALID_VALUE));
    drop(capture(&stream, || {
        noise.enqueue(&step).unwrap();
        stream.context().record_err(error());
        drop(noise);
        assert!(stream.context().check_err().is_err(), "the error is still there for whom it concerns");
    }));
    expect_nan(&graph, &gradient, "of a mechanism that is gone");
}

/// What a graph reads is freed when the replay has ended, and not when ending it failed.
#[test]
fn a_replay_that_cannot_end_keeps_what_its_graph_reads() {
    let stream = corrnoise_cuda::stream(2).unwrap().context().new_stream().unwrap();
    let (plan, shard) = (plan(), Shard::whole(LEN as u64).unwrap());
    let mut cuda = Cuda::new(&plan, &[RunKey::from_bytes([5; 32])], &shard, &stream).unwrap();
    for number in 0..4 {
        let (incarnations, mut terms) = (Incarnations::first(), Vec::new());
        cuda.schedule(&Step::lower(&plan, number, &incarnations, &mut terms).unwrap()).unwrap();
    }
    cuda.start().unwrap();
    let mut gradient = stream.alloc_zeros::<f32>(LEN).unwrap();
    let step = [raw(&mut gradient)];
    let graph = capture(&stream, || cuda.enqueue(&step).unwrap());
    stream.context().record_err(Err::<(), _>(DriverError(CUresult::CUDA_ERROR_INVALID_VALUE)));
    assert!(cuda.stop().is_err());
    graph.launch().unwrap();
    assert!(stream.clone_dtoh(&gradient).unwrap().iter().all(|value| value.is_finite()), "a scheduled step");
    drop(cuda);
    expect_nan(&graph, &gradient, "of a backend that is gone");
}

/// A plan may have more steps than any memory holds records of.
#[test]
fn a_replay_of_too_many_steps_is_refused_at_once() {
    let stream = corrnoise_cuda::stream(3).unwrap();
    let plan = Plan::new(1 << 39, Form::independent(), 0.75).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let key = Key::from_os().unwrap().with_ledger(folder.path());
    let mut noise = Mechanism::cuda(&plan, key, Shard::whole(LEN as u64).unwrap(), &stream).unwrap();
    let mut gradient = stream.alloc_zeros::<f32>(LEN).unwrap();
    noise.add_to(&mut gradient).unwrap();
    for num_steps in [1 << 28, (1 << 39) - 1] {
        assert!(matches!(noise.begin_replay(num_steps), Err(Error::OutOfMemory { .. })), "{num_steps}");
    }
    assert!(matches!(noise.begin_replay(u64::MAX), Err(Error::PastEnd { .. })));
    noise.begin_replay(2).unwrap();
    assert_eq!(noise.end_replay().unwrap(), 0);
    noise.add_to(&mut gradient).unwrap();
    assert_eq!(noise.next_step(), 2);
}
