//! Contexts, streams, events, captures and graphs through the exported functions.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;

use common::{Arg, Gpu, check, get, module};
use cuda::Status;
use cuda::driver::*;

/// Adds a number to a word.
const ADD: &str = "ld.param.u64 %d1, [a];\nld.param.u32 %r1, [n];\nld.global.u32 %r2, [%d1];\nadd.u32 %r2, %r2, %r1;\n\
                   st.global.u32 [%d1], %r2;";

fn add(gpu: &Gpu) -> Handle {
    gpu.kernel(&module(".param .u64 a, .param .u32 n", ADD), "k")
}

fn begin(stream: Handle) {
    // SAFETY: no pointers.
    check(unsafe { cuStreamBeginCapture_v2(stream, 1) }).unwrap();
}

fn end(stream: Handle) -> common::Result<Handle> {
    // SAFETY: the out-pointer comes from `get`.
    get(null_mut(), |out| unsafe { cuStreamEndCapture(stream, out) })
}

fn status(stream: Handle) -> u32 {
    // SAFETY: the out-pointer comes from `get`.
    get(9, |out| unsafe { cuStreamIsCapturing(stream, out) }).unwrap()
}

#[test]
fn a_capture_runs_nothing_and_its_graph_runs_all() {
    let gpu = Gpu::new();
    let (kernel, stream) = (add(&gpu), gpu.stream());
    let words = gpu.upload(&[1u32, 50, 0]);
    let mut host = [7u32, 0];
    let to_host: *mut c_void = (&raw mut host[1]).cast();
    begin(stream);
    assert_eq!(status(stream), 1);
    // SAFETY: `host` outlives the graph's launches.
    unsafe {
        check(cuMemcpyHtoDAsync_v2(words + 8, host.as_ptr().cast(), 4, stream)).unwrap();
        gpu.launch_on(stream, kernel, [1; 3], [1; 3], &[Arg::U64(words + 8), Arg::U32(3)]).unwrap();
        check(cuMemcpyDtoDAsync_v2(words + 4, words + 8, 4, stream)).unwrap();
        check(cuMemsetD8Async(words, 0, 4, stream)).unwrap();
        check(cuMemcpyDtoHAsync_v2(to_host, words + 4, 4, stream)).unwrap();
    }
    assert_eq!(gpu.read::<u32>(words, 3).unwrap(), [1, 50, 0]);
    let graph = end(stream).unwrap();
    assert_eq!(status(stream), 0);
    assert_eq!(gpu.read::<u32>(words, 3).unwrap(), [1, 50, 0]);
    // SAFETY: the out-pointer comes from `get`; handles come from the library.
    unsafe {
        let exec = get(null_mut(), |out| cuGraphInstantiateWithFlags(out, graph, 0)).unwrap();
        check(cuGraphDestroy(graph)).unwrap();
        check(cuGraphLaunch(exec, stream)).unwrap();
        assert_eq!(gpu.read::<u32>(words, 3).unwrap(), [0, 10, 10]);
        assert_eq!(to_host.cast::<u32>().read(), 10);
        // A graph reads host memory anew at each launch, but keeps the arguments of the capture.
        (&raw mut host[0]).write(100);
        check(cuGraphLaunch(exec, stream)).unwrap();
        assert_eq!(gpu.read::<u32>(words, 3).unwrap(), [0, 103, 103]);
        check(cuGraphExecDestroy(exec)).unwrap();
        assert_eq!(cuGraphLaunch(exec, stream), Status::InvalidHandle);
        assert_eq!(cuGraphDestroy(graph), Status::InvalidHandle);
    }
}

#[test]
fn what_a_capture_forbids_spoils_it() {
    let gpu = Gpu::new();
    let address = gpu.upload(&[1u32]);
    type Call = fn(Handle, u64) -> Status;
    // SAFETY: tests of statuses; no pointers but those from `get`.
    let forbidden: [(&str, Call); 5] = unsafe {
        [
            ("wait", |stream, _| cuStreamSynchronize(stream)),
            ("query", |stream, _| cuStreamQuery(stream)),
            ("wait for all", |_, _| cuCtxSynchronize()),
            ("free", |stream, address| cuMemFreeAsync(address, stream)),
            ("allocate", |stream, _| cuMemAllocAsync(Out::new(null_mut()), 4, stream)),
        ]
    };
    for (name, call) in forbidden {
        let stream = gpu.stream();
        begin(stream);
        assert_eq!(call(stream, address), Status::StreamCaptureUnsupported, "{name}");
        assert_eq!(status(stream), 2, "{name}");
        assert_eq!(end(stream).unwrap_err().status, Status::StreamCaptureInvalidated, "{name}");
        assert_eq!(status(stream), 0, "{name}");
        // After the capture the stream is unrestricted again.
        assert_ne!(call(stream, 0), Status::StreamCaptureUnsupported, "{name}");
    }
    // SAFETY: no pointers.
    unsafe {
        assert_eq!(cuStreamBeginCapture_v2(null_mut(), 1), Status::StreamCaptureUnsupported);
        let stream = gpu.stream();
        assert_eq!(end(stream).unwrap_err().status, Status::StreamCaptureUnmatched);
        begin(stream);
        assert_eq!(cuStreamBeginCapture_v2(stream, 1), Status::IllegalState);
        // The refused second capture leaves the first one intact. A synchronous allocation belongs to no stream.
        assert!(end(stream).is_ok() && gpu.alloc(4) > 0);
    }
}

#[test]
fn events_do_not_cross_the_border_of_a_capture() {
    let gpu = Gpu::new();
    let (stream, other) = (gpu.stream(), gpu.stream());
    // SAFETY: the out-pointer comes from `get`; handles come from the library.
    unsafe {
        let event = || get(null_mut(), |out| cuEventCreate(out, 0)).unwrap();
        let (outside, inside, never) = (event(), event(), event());
        check(cuEventRecord(outside, stream)).unwrap();
        begin(stream);
        check(cuStreamWaitEvent(stream, never, 0)).unwrap();
        check(cuEventRecord(inside, stream)).unwrap();
        check(cuStreamWaitEvent(stream, inside, 0)).unwrap();
        assert_eq!(cuEventSynchronize(inside), Status::CapturedEvent);
        assert_eq!(cuStreamWaitEvent(null_mut(), inside, 0), Status::StreamCaptureUnsupported);
        assert_eq!((status(stream), status(other)), (1, 0));
        assert_eq!(cuStreamWaitEvent(stream, outside, 0), Status::StreamCaptureIsolation);
        assert_eq!(status(stream), 2);
        assert_eq!(end(stream).unwrap_err().status, Status::StreamCaptureInvalidated);
        assert_eq!(cuStreamWaitEvent(other, inside, 0), Status::StreamCaptureUnsupported);
    }
}

#[test]
fn events_tell_the_time_between() {
    let gpu = Gpu::new();
    let stream = gpu.stream();
    // SAFETY: the out-pointer comes from `get`; handles come from the library.
    unsafe {
        let event = |flags| get(null_mut(), |out| cuEventCreate(out, flags)).unwrap();
        let (start, stop, untimed, never) = (event(0), event(0), event(2), event(0));
        check(cuEventQuery(never)).unwrap();
        check(cuEventRecord(start, stream)).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        for event in [stop, untimed] {
            check(cuEventRecord(event, null_mut())).unwrap();
        }
        let elapsed = |a, b| get(0.0, |out| cuEventElapsedTime(out, a, b));
        assert!((15.0..5e3).contains(&elapsed(start, stop).unwrap()));
        assert!(elapsed(stop, start).unwrap() < -15.0);
        assert_eq!(elapsed(start, untimed).unwrap_err().status, Status::InvalidHandle);
        assert_eq!(elapsed(start, never).unwrap_err().status, Status::InvalidHandle);
        check(cuEventDestroy_v2(start)).unwrap();
        assert_eq!(cuEventQuery(start), Status::InvalidHandle);
    }
}

#[test]
fn a_graph_needs_the_modules_of_its_kernels() {
    let gpu = Gpu::new();
    let stream = gpu.stream();
    let loaded = gpu.load(&module(".param .u64 a, .param .u32 n", ADD)).unwrap();
    let kernel = common::function(loaded, "k").unwrap();
    let word = gpu.upload(&[1u32]);
    begin(stream);
    gpu.launch_on(stream, kernel, [1; 3], [1; 3], &[Arg::U64(word), Arg::U32(3)]).unwrap();
    let graph = end(stream).unwrap();
    // SAFETY: the out-pointer comes from `get`; handles come from the library.
    unsafe {
        let exec = get(null_mut(), |out| cuGraphInstantiateWithFlags(out, graph, 0)).unwrap();
        check(cuGraphLaunch(exec, stream)).unwrap();
        check(cuModuleUnload(loaded)).unwrap();
        assert_eq!(cuGraphLaunch(exec, stream), Status::InvalidHandle);
    }
    assert_eq!(gpu.read::<u32>(word, 1).unwrap(), [4]);
}

#[test]
fn handles_of_the_wrong_kind_device_or_time_are_noticed() {
    let gpu = Gpu::new();
    let (kernel, stream) = (add(&gpu), gpu.stream());
    // SAFETY: handles may be anything.
    unsafe {
        assert_eq!(cuStreamSynchronize(kernel), Status::InvalidHandle);
        assert_eq!(cuStreamSynchronize(12_345 as Handle), Status::InvalidHandle);
        assert_eq!(cuEventSynchronize(stream), Status::InvalidHandle);
        check(cuStreamDestroy_v2(stream)).unwrap();
        assert_eq!(cuStreamSynchronize(stream), Status::InvalidHandle);
        let context = get(null_mut(), |out| cuCtxGetCurrent(out)).unwrap();
        drop(gpu);
        assert_eq!(cuCtxSynchronize(), Status::ContextIsDestroyed);
        assert_eq!(cuCtxSetCurrent(context), Status::InvalidContext);
        check(cuCtxSetCurrent(null_mut())).unwrap();
        assert_eq!(cuCtxSynchronize(), Status::InvalidContext);
    }
}

#[test]
fn a_thread_has_its_own_current_context_and_texts() {
    let gpu = Gpu::new();
    let error = gpu.load("nonsense").unwrap_err();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: no pointers.
            assert_eq!(unsafe { cuCtxSynchronize() }, Status::InvalidContext);
            // A status keeps its text on another thread.
            assert_eq!(check(error.status).unwrap_err().text, error.text);
        });
    });
    assert!(gpu.load("other").unwrap_err().text.contains("other"));
}

#[test]
fn devices_describe_themselves() {
    let gpu = Gpu::new();
    // SAFETY: the out-pointers come from `get`.
    unsafe {
        assert_eq!(get(0, |out| cuDeviceGetCount(out)).unwrap(), 8);
        let attribute = |number, device| get(-1, |out| cuDeviceGetAttribute(out, number, device)).unwrap();
        assert_eq!([attribute(75, 0), attribute(76, 0), attribute(75, 7), attribute(76, 7)], [8, 0, 6, 1]);
        assert_eq!([attribute(115, 0), attribute(10, 0), attribute(1, 0)], [1, 32, 1024]);
        assert_eq!(cuDeviceGetAttribute(Out::new(&mut 0), 0, 0), Status::InvalidValue);
        assert_eq!(cuDeviceGet(Out::new(&mut 0), 8), Status::InvalidDevice);
        assert_eq!(cuDeviceGetCount(Out::new(null_mut())), Status::InvalidValue);
        let mut name = [1i8; 20];
        check(cuDeviceGetName(name.as_mut_ptr().cast(), 20, 0)).unwrap();
        assert_eq!(name.map(|c| c as u8), *b"corrnoise stand-in \0");
        let free = || {
            let mut both = [0usize; 2];
            let [free, total] = &mut both;
            check(cuMemGetInfo_v2(Out::new(free), Out::new(total))).unwrap();
            both
        };
        assert_eq!(free(), [4 << 30; 2]);
        gpu.alloc(1 << 20);
        assert_eq!(free(), [(4 << 30) - (1 << 20), 4 << 30]);
        assert_eq!(cuMemAlloc_v2(Out::new(&mut 0), 4 << 30), Status::OutOfMemory);
    }
}
