//! Graphs that outlive their replay, and captures that are interrupted by other calls.

use crate::compare::{Onto, every_way, key, same_step};
use crate::replay::{LEN, capture, fork, pointer};
use corrnoise::cuda::cudarc::driver::{CudaGraph, CudaSlice, CudaStream, sys};
use corrnoise::cuda::{Cuda, DeviceGradient, OnCuda};
use corrnoise::{CpuOptions, Dtype, Form, Mechanism, Plan, Resume, Shard};
use corrnoise_testkit::gradients::assert_same;
use std::sync::Arc;

const CAPTURED: &str = "the stream is being captured";

fn shard() -> Shard {
    Shard::whole(LEN as u64).unwrap()
}

fn begin(stream: &CudaStream) {
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
}

fn end(stream: &Arc<CudaStream>) -> Option<CudaGraph> {
    stream.end_capture(sys::CUgraphInstantiate_flags(0)).unwrap()
}

/// Fills the gradient with ones, launches the graph, and expects NaN everywhere.
fn expect_nan(graph: &CudaGraph, gradient: &mut CudaSlice<f32>, what: &str) {
    let stream = gradient.stream().clone();
    stream.memcpy_htod(&vec![1.0_f32; LEN], gradient).unwrap();
    stream.synchronize().unwrap();
    graph.launch().unwrap();
    assert!(stream.clone_dtoh(gradient).unwrap().iter().all(|g| g.is_nan()), "{what}");
}

/// The old graph adds no noise, and changes neither the state nor the counter nor the gradients of later steps.
pub(crate) fn a_graph_whose_replay_ended_gives_nan(stream: &Arc<CudaStream>) {
    for (name, form, options) in every_way(9) {
        let own = fork(stream);
        let plan = Plan::new(9, form, 0.75).unwrap();
        let mut cpu = Mechanism::cpu(&plan, key(), shard()).unwrap();
        let mut cuda = Mechanism::cuda_with(&plan, key(), shard(), &own, options).unwrap();
        let mut old = own.alloc_zeros::<f32>(LEN).unwrap();
        cuda.begin_replay(4).unwrap();
        let graph = capture(&mut cuda, &mut [&mut old]);
        graph.launch().unwrap();
        let mut expected = vec![0.0_f32; LEN];
        cpu.add_to(&mut expected).unwrap();
        assert_eq!(cuda.end_replay().unwrap(), 1);
        assert_same(&expected, &own.clone_dtoh(&old).unwrap(), &name);
        expect_nan(&graph, &mut old, &format!("{name}, ended"));
        // The gradient keeps its address, so that no new list of gradients is sent to the device.
        let mut sum = own.alloc_zeros::<f32>(LEN).unwrap();
        let mut expected = vec![0.0_f32; LEN];
        for step in 1..4 {
            cuda.add_to(&mut sum).unwrap();
            cpu.add_to(&mut expected).unwrap();
            expect_nan(&graph, &mut old, &format!("{name}, before step {}", step + 1));
        }
        assert_same(&expected, &own.clone_dtoh(&sum).unwrap(), &format!("{name}, steps after"));
        cuda.begin_replay(3).unwrap();
        let mut new = own.alloc_zeros::<f32>(LEN).unwrap();
        let second = capture(&mut cuda, &mut [&mut new]);
        let mut expected = vec![0.0_f32; LEN];
        for _ in 4..6 {
            expect_nan(&graph, &mut old, &format!("{name}, during another replay"));
            second.launch().unwrap();
            cpu.add_to(&mut expected).unwrap();
        }
        assert_eq!(cuda.end_replay().unwrap(), 2, "{name}: the old graph does not count");
        assert_same(&expected, &own.clone_dtoh(&new).unwrap(), &format!("{name}, second graph"));
        same_step::<f32>(&mut cpu, &mut cuda, Onto::Values, &name);
        drop(cuda);
        expect_nan(&graph, &mut old, &format!("{name}, mechanism gone"));
        expect_nan(&second, &mut new, &format!("{name}, mechanism gone"));
    }
}

/// A mechanism that is dropped in the middle of a replay ends its schedule.
pub(crate) fn a_graph_whose_mechanism_is_gone_gives_nan(stream: &Arc<CudaStream>) {
    for (name, form, options) in every_way(4) {
        let own = fork(stream);
        let plan = Plan::new(4, form, 0.75).unwrap();
        let mut noise = Mechanism::cuda_with(&plan, key(), shard(), &own, options).unwrap();
        let mut gradient = own.alloc_zeros::<f32>(LEN).unwrap();
        noise.begin_replay(4).unwrap();
        let graph = capture(&mut noise, &mut [&mut gradient]);
        graph.launch().unwrap();
        assert!(own.clone_dtoh(&gradient).unwrap().iter().all(|g| g.is_finite()), "{name}");
        drop(noise);
        (0..2).for_each(|_| expect_nan(&graph, &mut gradient, &name));
    }
}

/// A mechanism that is dropped within a capture clears and frees its memory later: the graph records none of it, and gives NaN.
pub(crate) fn a_mechanism_dropped_within_a_capture(stream: &Arc<CudaStream>) {
    let own = fork(stream);
    let plan = Plan::new(4, Form::blt(&[0.3], &[0.9]).unwrap(), 0.75).unwrap();
    let mut noise = Mechanism::cuda(&plan, key(), shard(), &own).unwrap();
    let mut gradient = own.alloc_zeros::<f32>(LEN).unwrap();
    noise.begin_replay(4).unwrap();
    let address = pointer(&mut gradient, &own);
    begin(&own);
    // SAFETY: the gradient outlives the graph.
    let raw = unsafe { DeviceGradient::from_raw(address, LEN as u64, Dtype::F32) };
    noise.enqueue(&[raw]).unwrap();
    drop(noise);
    let graph = end(&own).expect("a graph");
    (0..2).for_each(|_| expect_nan(&graph, &mut gradient, "dropped within the capture"));
    // The next mechanism clears what was left; the graph must not be affected.
    drop(Mechanism::cuda(&plan, key(), shard(), &own).unwrap());
    expect_nan(&graph, &mut gradient, "after its memory was freed");
}

/// A capture refuses every call but `enqueue`; the refusal leaves the capture intact and the mechanism as it was.
pub(crate) fn a_capture_refuses_what_it_would_repeat(stream: &Arc<CudaStream>) {
    let own = fork(stream);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("noise");
    let plan = Plan::new(6, Form::banded_toeplitz(&[1.0, 0.5, 0.25]).unwrap(), 0.75).unwrap();
    let mut cpu = Mechanism::cpu(&plan, key(), shard()).unwrap();
    let mut noise = Mechanism::cuda(&plan, key(), shard(), &own).unwrap();
    same_step::<f32>(&mut cpu, &mut noise, Onto::Values, "before");
    noise.save(&file).unwrap();
    let before = std::fs::read(&file).unwrap();
    let mut gradient = own.alloc_zeros::<f32>(LEN).unwrap();
    let address = pointer(&mut gradient, &own);
    // SAFETY: the gradient outlives the test's work.
    let raw = || [unsafe { DeviceGradient::from_raw(address, LEN as u64, Dtype::F32) }];
    let refused = |result: corrnoise::Result<()>, what: &str| {
        let message = result.expect_err(what).to_string();
        assert!(message.contains(CAPTURED), "{what}: {message}");
    };
    begin(&own);
    refused(noise.run_step(&raw()), "run_step");
    refused(noise.add_to(&mut gradient), "add_to");
    refused(noise.begin_replay(2), "begin_replay");
    refused(noise.save(&file), "save");
    refused(noise.backend().first_overflow().map(drop), "first_overflow");
    refused(Mechanism::cuda(&plan, key(), shard(), &own).map(drop), "new");
    let resumed = Mechanism::<Cuda>::resume_cuda(&plan, key(), shard(), &[&file], Resume::Exact, &own);
    refused(resumed.map(drop), "resume");
    if let Some(graph) = end(&own) {
        graph.launch().unwrap();
    }
    assert!(own.clone_dtoh(&gradient).unwrap().iter().all(|g| *g == 0.0), "nothing was captured");
    assert_eq!((noise.next_step(), std::fs::read(&file).unwrap()), (1, before));
    noise.begin_replay(2).unwrap();
    begin(&own);
    refused(noise.end_replay().map(drop), "end_replay");
    noise.enqueue(&raw()).unwrap();
    refused(noise.end_replay().map(drop), "end_replay after a step");
    let graph = end(&own).expect("a graph");
    let mut expected = vec![0.0_f32; LEN];
    for _ in 0..2 {
        graph.launch().unwrap();
        cpu.add_to(&mut expected).unwrap();
    }
    assert_eq!(noise.end_replay().unwrap(), 2);
    assert_same(&expected, &own.clone_dtoh(&gradient).unwrap(), "the graph");
    same_step::<f32>(&mut cpu, &mut noise, Onto::Values, "after");
}

/// Without a capture, `enqueue` is a launch that the device counts: each row once, NaN past the end.
pub(crate) fn enqueue_without_a_capture_counts(stream: &Arc<CudaStream>) {
    for (name, form, options) in every_way(6) {
        let own = fork(stream);
        let plan = Plan::new(6, form, 0.75).unwrap();
        let one = CpuOptions { threads: 1, ..CpuOptions::default() };
        let mut cpu = Mechanism::cpu_with(&plan, key(), shard(), one).unwrap();
        let mut noise = Mechanism::cuda_with(&plan, key(), shard(), &own, options).unwrap();
        noise.begin_replay(3).unwrap();
        for step in 0..3 {
            let mut expected = vec![0.0_f32; LEN];
            cpu.add_to(&mut expected).unwrap();
            let mut gradient = own.alloc_zeros::<f32>(LEN).unwrap();
            noise.enqueue(&[DeviceGradient::from_slice(&mut gradient, &own)]).unwrap();
            assert_same(&expected, &own.clone_dtoh(&gradient).unwrap(), &format!("{name}, step {step}"));
        }
        assert_eq!(noise.end_replay().unwrap(), 3);
        same_step::<f32>(&mut cpu, &mut noise, Onto::Values, &name);
        noise.begin_replay(1).unwrap();
        let mut gradient = own.alloc_zeros::<f32>(LEN).unwrap();
        (0..2).for_each(|_| noise.enqueue(&[DeviceGradient::from_slice(&mut gradient, &own)]).unwrap());
        assert!(own.clone_dtoh(&gradient).unwrap().iter().all(|g| g.is_nan()), "{name}");
        assert!(noise.end_replay().unwrap_err().to_string().contains("launched for 2 steps"));
    }
}
