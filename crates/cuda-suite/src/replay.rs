//! Captured graphs, for which the device counts the steps.

use crate::compare::{Onto, every_way, key, same_step};
use corrnoise::cuda::cudarc::driver::{CudaGraph, CudaSlice, CudaStream, sys};
use corrnoise::cuda::{Cuda, DeviceGradient, OnCuda};
use corrnoise::{Error, Form, Mechanism, Plan, Shard};
use corrnoise_testkit::gradients::assert_same;
use std::sync::Arc;

pub(crate) const LEN: usize = 1_301;

/// Creates a stream: the default one cannot be captured.
pub(crate) fn fork(stream: &Arc<CudaStream>) -> Arc<CudaStream> {
    stream.context().new_stream().unwrap()
}

/// Captures a graph that adds one step's noise to each of the gradients.
pub(crate) fn capture(noise: &mut Mechanism<Cuda>, gradients: &mut [&mut CudaSlice<f32>]) -> CudaGraph {
    let stream = noise.backend().stream().clone();
    // A capture cannot wait for events of slices that were made outside of it; raw addresses have no events.
    let pointers: Vec<u64> = gradients.iter_mut().map(|g| pointer(g, &stream)).collect();
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    for (i, pointer) in pointers.into_iter().enumerate() {
        // Where rows are prepared, a step that was not asked for opens its branch itself.
        if i % 2 == 0 {
            noise.prepare().unwrap();
            noise.prepare().unwrap();
        }
        // SAFETY: the slices are kept by the tests until the stream is idle.
        let raw = unsafe { DeviceGradient::from_raw(pointer, LEN as u64, corrnoise::Dtype::F32) };
        noise.enqueue(&[raw]).unwrap();
    }
    let flags = sys::CUgraphInstantiate_flags(0);
    stream.end_capture(flags).unwrap().expect("a graph")
}

pub(crate) fn pointer(slice: &mut CudaSlice<f32>, stream: &CudaStream) -> u64 {
    use corrnoise::cuda::cudarc::driver::DevicePtrMut;
    slice.device_ptr_mut(stream).0
}

/// Two steps by value, six by three launches of a graph of two, the rest by value again; with all forms.
pub(crate) fn a_captured_graph_makes_the_same_steps(stream: &Arc<CudaStream>) {
    let shard = Shard::whole(LEN as u64).unwrap();
    for (name, form, options) in every_way(12) {
        let plan = Plan::new(12, form, 0.75).unwrap();
        let own = fork(stream);
        let mut cpu = Mechanism::cpu(&plan, key(), shard.clone()).unwrap();
        let mut cuda = Mechanism::cuda_with(&plan, key(), shard.clone(), &own, options).unwrap();
        (0..2).for_each(|_| same_step::<f32>(&mut cpu, &mut cuda, Onto::Zero, &name));
        cuda.begin_replay(8).unwrap();
        let mut sums = [own.alloc_zeros::<f32>(LEN).unwrap(), own.alloc_zeros::<f32>(LEN).unwrap()];
        let [even, odd] = &mut sums;
        let graph = capture(&mut cuda, &mut [even, odd]);
        let mut expected = [vec![0.0_f32; LEN], vec![0.0_f32; LEN]];
        for _ in 0..3 {
            graph.launch().unwrap();
            expected.iter_mut().for_each(|sum| cpu.add_to(sum).unwrap());
        }
        assert_eq!(cuda.end_replay().unwrap(), 6, "{name}");
        assert_eq!(cuda.next_step(), 8);
        for (expected, sum) in expected.iter().zip(&sums) {
            assert_same(expected, &own.clone_dtoh(sum).unwrap(), &format!("{name}, replayed"));
        }
        (8..12).for_each(|_| same_step::<f32>(&mut cpu, &mut cuda, Onto::Values, &format!("{name}, after")));
    }
}

pub(crate) fn a_replay_past_the_end_gives_nan(stream: &Arc<CudaStream>) {
    let own = fork(stream);
    for (name, form, options) in every_way(4) {
        let plan = Plan::new(4, form, 0.75).unwrap();
        let mut noise =
            Mechanism::cuda_with(&plan, key(), Shard::whole(LEN as u64).unwrap(), &own, options).unwrap();
        noise.begin_replay(2).unwrap();
        let mut gradient = own.alloc_zeros::<f32>(LEN).unwrap();
        let graph = capture(&mut noise, &mut [&mut gradient]);
        (0..2).for_each(|_| graph.launch().unwrap());
        assert!(own.clone_dtoh(&gradient).unwrap().iter().all(|g| g.is_finite()), "{name}");
        graph.launch().unwrap();
        assert!(own.clone_dtoh(&gradient).unwrap().iter().all(|g| g.is_nan()), "{name}");
        let message = noise.end_replay().unwrap_err().to_string();
        assert!(message.contains("launched for 3 steps, 2 were handed over"), "{message}");
        assert!(matches!(noise.add_to(&mut gradient), Err(Error::Poisoned { step: 2 })));
    }
}

pub(crate) fn the_host_does_not_count_while_the_device_does(stream: &Arc<CudaStream>) {
    let own = fork(stream);
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan::new(4, Form::blt(&[0.3], &[0.9]).unwrap(), 0.75).unwrap();
    let mut noise = Mechanism::cuda(&plan, key(), Shard::whole(LEN as u64).unwrap(), &own).unwrap();
    let mut gradient = own.alloc_zeros::<f32>(LEN).unwrap();
    assert!(matches!(noise.begin_replay(5), Err(Error::PastEnd { step: 4, num_steps: 4 })));
    noise.begin_replay(3).unwrap();
    let refused =
        [noise.add_to(&mut gradient), noise.save(folder.path().join("file")), noise.begin_replay(1)];
    for result in refused {
        assert!(matches!(result, Err(Error::Replaying { first: 0, last: 2 })));
    }
    assert_eq!(noise.end_replay().unwrap(), 0);
    noise.add_to(&mut gradient).unwrap();
    assert_eq!(noise.next_step(), 1);
}
