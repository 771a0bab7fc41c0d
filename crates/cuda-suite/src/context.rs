//! The CUDA context that was current before a call is current after it.

use crate::compare::key;
use crate::replay::{LEN, fork, pointer};
use corrnoise::cuda::cudarc::driver::{CudaContext, CudaStream, result::ctx, sys};
use corrnoise::cuda::{Cuda, DeviceGradient, OnCuda, device_count};
use corrnoise::{Dtype, Form, Mechanism, Plan, Resume, Shard};
use std::sync::Arc;

/// Runs `call` with `context` current, and asserts that it is still current afterwards.
fn keeps<T>(context: sys::CUcontext, what: &str, call: impl FnOnce() -> T) -> T {
    // SAFETY: null, or a context that the test retains.
    unsafe { ctx::set_current(context) }.unwrap();
    let value = call();
    let current = ctx::get_current().unwrap().unwrap_or(std::ptr::null_mut());
    assert_eq!(current, context, "{what}");
    value
}

fn all_calls(context: sys::CUcontext, stream: &Arc<CudaStream>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("noise");
    let plan = Plan::new(9, Form::regenerate(&[1.0, -0.5]).unwrap(), 0.75).unwrap();
    let shard = || Shard::whole(LEN as u64).unwrap();
    let ordinal = stream.context().ordinal();
    let other = keeps(context, "stream", || corrnoise::cuda::stream(ordinal).unwrap());
    keeps(context, "a device that is not there", || corrnoise::cuda::stream(1 << 20).unwrap_err());
    let make = || Mechanism::cuda(&plan, key(), shard(), stream).unwrap();
    let mut noise = keeps(context, "new", make);
    let mut gradient = stream.alloc_zeros::<f32>(LEN).unwrap();
    let mut short = stream.alloc_zeros::<f32>(LEN - 1).unwrap();
    let address = pointer(&mut gradient, stream);
    // SAFETY: the gradient outlives the test's work.
    let raw = || [unsafe { DeviceGradient::from_raw(address, LEN as u64, Dtype::F32) }];
    keeps(context, "add_to", || noise.add_to(&mut gradient).unwrap());
    keeps(context, "add_to, refused", || noise.add_to(&mut short).unwrap_err());
    keeps(context, "from_slice and its end", || drop(DeviceGradient::from_slice(&mut gradient, stream)));
    keeps(context, "run_step", || noise.run_step(&raw()).unwrap());
    keeps(context, "describe", || noise.backend().describe());
    keeps(context, "first_overflow", || noise.backend().first_overflow().unwrap());
    keeps(context, "save", || noise.save(&file).unwrap());
    let resume = || Mechanism::<Cuda>::resume_cuda(&plan, key(), shard(), &[&file], Resume::Exact, &other);
    let resumed = keeps(context, "resume", resume).unwrap();
    keeps(context, "begin_replay", || noise.begin_replay(3).unwrap());
    keeps(context, "add_to, refused while replaying", || noise.add_to(&mut gradient).unwrap_err());
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    keeps(context, "enqueue", || noise.enqueue(&raw()).unwrap());
    keeps(context, "end_replay, refused", || noise.end_replay().unwrap_err());
    let graph = stream.end_capture(sys::CUgraphInstantiate_flags(0)).unwrap().expect("a graph");
    graph.launch().unwrap();
    keeps(context, "end_replay", || assert_eq!(noise.end_replay().unwrap(), 1));
    keeps(context, "begin_replay again", || noise.begin_replay(3).unwrap());
    keeps(context, "drop", || drop(noise));
    keeps(context, "drop of a resumed one", || drop(resumed));
}

/// Runs every call with no context current, with the mechanism's own, and (where there is a second device) with another's.
pub(crate) fn every_call_leaves_the_callers_context(stream: &Arc<CudaStream>) {
    let own = fork(stream);
    let before = ctx::get_current().unwrap();
    all_calls(std::ptr::null_mut(), &own);
    all_calls(own.context().cu_ctx(), &own);
    if device_count().unwrap() > 1 {
        let ordinal = usize::from(own.context().ordinal() == 0);
        let second = CudaContext::new(ordinal).unwrap();
        all_calls(second.cu_ctx(), &own);
    } else {
        println!("every_call_leaves_the_callers_context: ONE DEVICE, no second context tried");
    }
    // SAFETY: what was current before, and is retained by its owner.
    unsafe { ctx::set_current(before.unwrap_or(std::ptr::null_mut())) }.unwrap();
}
