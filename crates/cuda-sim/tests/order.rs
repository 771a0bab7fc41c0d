//! The order of commands of different streams: what nothing orders is a fault, with each kind of order beside it.

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;

use common::{Arg, Gpu, Result, check, get, module};
use cuda::Status;
use cuda::driver::*;

const ADD: &str = "ld.param.u64 %d1, [a];\nld.param.u32 %r1, [n];\nld.global.u32 %r2, [%d1];\nadd.u32 %r2, %r2, %r1;\n\
                   st.global.u32 [%d1], %r2;";
const MOVE: &str =
    "ld.param.u64 %d1, [a];\nld.param.u64 %d2, [b];\nld.global.u32 %r2, [%d1];\nst.global.u32 [%d2], %r2;";

struct Bench {
    gpu: Gpu,
    add: Handle,
    copy: Handle,
    word: u64,
    out: u64,
    streams: [Handle; 2],
}

impl Bench {
    fn new() -> Self {
        Self::on(Gpu::new())
    }

    fn on(gpu: Gpu) -> Self {
        let add =
            gpu.kernel(&module(".param .u64 a, .param .u32 n", ADD).replace("entry k(", "entry add("), "add");
        let copy = gpu
            .kernel(&module(".param .u64 a, .param .u64 b", MOVE).replace("entry k(", "entry move("), "move");
        let (word, out) = (gpu.upload(&[1u32]), gpu.upload(&[0u32]));
        let streams = [gpu.stream(), gpu.stream()];
        Self { gpu, add, copy, word, out, streams }
    }

    /// Adds to the word, on one of the two streams.
    fn add(&self, stream: usize) -> Result<()> {
        let args = [Arg::U64(self.word), Arg::U32(10)];
        self.gpu.launch_on(self.streams[stream], self.add, [1; 3], [1; 3], &args)
    }

    /// Reads the word and writes `out`, on one of the two streams.
    fn copy(&self, stream: usize) -> Result<()> {
        let args = [Arg::U64(self.word), Arg::U64(self.out)];
        self.gpu.launch_on(self.streams[stream], self.copy, [1; 3], [1; 3], &args)
    }

    /// Makes the second stream wait for what the first has been given.
    fn join(&self, from: usize, to: usize) {
        let event = event();
        // SAFETY: handles come from the library.
        unsafe {
            check(cuEventRecord(event, self.streams[from])).unwrap();
            check(cuStreamWaitEvent(self.streams[to], event, 0)).unwrap();
        }
    }

    /// What a capture of `record` on the first stream gives when it is launched twice.
    fn graph(&self, record: impl FnOnce()) -> Result<u32> {
        let [first, _] = self.streams;
        // SAFETY: out-pointers come from `get`, handles from the library.
        unsafe {
            check(cuStreamBeginCapture_v2(first, 1)).unwrap();
            record();
            let graph = get(null_mut(), |out| cuStreamEndCapture(first, out))?;
            let exec = get(null_mut(), |out| cuGraphInstantiateWithFlags(out, graph, 0))?;
            for _ in 0..2 {
                check(cuGraphLaunch(exec, first))?;
            }
        }
        Ok(self.gpu.read(self.out, 1)?[0])
    }
}

fn event() -> Handle {
    // SAFETY: the out-pointer comes from `get`.
    get(null_mut(), |out| unsafe { cuEventCreate(out, 2) }).unwrap()
}

fn capturing(stream: Handle) -> u32 {
    // SAFETY: the out-pointer comes from `get`.
    get(9, |out| unsafe { cuStreamIsCapturing(stream, out) }).unwrap()
}

#[test]
fn a_missing_wait_is_found_and_both_commands_are_named() {
    let bench = Bench::new();
    bench.add(0).unwrap();
    let error = bench.copy(1).unwrap_err();
    assert_eq!(error.status, Status::LaunchFailed);
    let [before, after] = ["kernel add on stream", "kernel move on stream"].map(|name| error.text.find(name));
    assert!(after.is_some() && after < before, "{}", error.text);
    let what = "reads the 512 bytes at +0 of an allocation of 4 bytes, which kernel add on stream";
    assert!(
        error.text.contains(what) && error.text.contains("wrote, and nothing orders them"),
        "{}",
        error.text
    );
    // The context is faulted like after any fault of a launch.
    assert!(bench.add(0).is_err());
}

#[test]
fn every_kind_of_wait_orders() {
    type Wait = fn(&Bench);
    // SAFETY: handles come from the library.
    let waits: [(&str, Wait); 5] = unsafe {
        [
            ("event", |bench| bench.join(0, 1)),
            ("stream", |bench| check(cuStreamSynchronize(bench.streams[0])).unwrap()),
            ("context", |_| check(cuCtxSynchronize()).unwrap()),
            ("host event", |bench| {
                let event = event();
                check(cuEventRecord(event, bench.streams[0])).unwrap();
                check(cuEventSynchronize(event)).unwrap();
            }),
            ("query", |bench| check(cuStreamQuery(bench.streams[0])).unwrap()),
        ]
    };
    for (name, wait) in waits {
        let bench = Bench::new();
        bench.add(0).unwrap();
        wait(&bench);
        assert!(bench.copy(1).is_ok(), "{name}");
    }
    // An event that was recorded before the work, or a wait of the other stream, orders nothing.
    let bench = Bench::new();
    bench.join(0, 1);
    bench.add(0).unwrap();
    bench.join(1, 0);
    assert!(bench.copy(1).is_err());
}

#[test]
fn readers_are_waited_for_too() {
    let bench = Bench::new();
    bench.copy(0).unwrap();
    let error = bench.add(1).unwrap_err();
    assert!(
        error.text.contains("kernel add on stream") && error.text.contains(" read, and nothing"),
        "{}",
        error.text
    );
    // Two readers need no order.
    let bench = Bench::new();
    let other = bench.gpu.upload(&[0u32]);
    bench.copy(0).unwrap();
    let args = [Arg::U64(bench.word), Arg::U64(other)];
    bench.gpu.launch_on(bench.streams[1], bench.copy, [1; 3], [1; 3], &args).unwrap();
}

#[test]
fn copies_fills_and_frees_are_commands_too() {
    type Call = fn(&Bench) -> Status;
    // SAFETY: handles come from the library, and the host word is static.
    let calls: [(&str, Call); 4] = unsafe {
        [
            ("the fill", |bench| cuMemsetD8Async(bench.word, 0, 4, bench.streams[1])),
            ("the copy", |bench| cuMemcpyDtoDAsync_v2(bench.out, bench.word, 4, bench.streams[1])),
            ("the copy to the device", |bench| {
                cuMemcpyHtoDAsync_v2(bench.word, (&raw const ZERO).cast(), 4, bench.streams[1])
            }),
            ("the free", |bench| cuMemFreeAsync(bench.word, bench.streams[1])),
        ]
    };
    static ZERO: u32 = 0;
    for (name, call) in calls {
        let bench = Bench::new();
        bench.add(0).unwrap();
        let error = check(call(&bench)).expect_err(name);
        assert!(error.text.contains(&format!("{name} on stream")), "{}", error.text);
        let bench = Bench::new();
        bench.add(0).unwrap();
        bench.join(0, 1);
        check(call(&bench)).expect(name);
    }
}

/// Blocking streams and the default stream wait for each other; others do not.
#[test]
fn the_default_stream_waits_for_blocking_streams() {
    for (flags, ordered) in [(0, true), (1, false)] {
        let mut bench = Bench::new();
        // SAFETY: the out-pointer comes from `get`.
        bench.streams[0] = get(null_mut(), |out| unsafe { cuStreamCreate(out, flags) }).unwrap();
        bench.streams[1] = null_mut();
        bench.add(0).unwrap();
        assert_eq!(bench.copy(1).is_ok(), ordered, "{flags}");
        if ordered {
            assert!(bench.add(0).is_ok());
        }
    }
}

#[test]
fn an_event_brings_a_stream_into_a_capture() {
    let bench = Bench::new();
    let [first, second] = bench.streams;
    let value = bench.graph(|| {
        bench.add(0).unwrap();
        assert_eq!(capturing(second), 0);
        bench.join(0, 1);
        assert_eq!((capturing(first), capturing(second)), (1, 1));
        bench.copy(1).unwrap();
        bench.join(1, 0);
        bench.add(0).unwrap();
    });
    assert_eq!(value.unwrap(), 31);
    assert_eq!((capturing(first), capturing(second)), (0, 0));
}

#[test]
fn branches_of_a_graph_must_be_ordered() {
    // The branch reads what the first stream writes at the same time.
    let bench = Bench::new();
    let error = bench.graph(|| {
        bench.join(0, 1);
        bench.copy(1).unwrap();
        bench.add(0).unwrap();
        bench.join(1, 0);
    });
    let error = error.unwrap_err();
    let names = ["kernel add in branch 0 of a graph", "kernel move in branch 1 of a graph"];
    assert!(names.iter().all(|name| error.text.contains(name)), "{}", error.text);
}

#[test]
fn a_branch_that_is_not_joined_is_refused() {
    let bench = Bench::new();
    let record = || {
        bench.add(0).unwrap();
        bench.join(0, 1);
        bench.copy(1).unwrap();
    };
    assert_eq!(bench.graph(record).unwrap_err().status, Status::StreamCaptureUnjoined);
    assert_eq!(bench.streams.map(capturing), [0, 0]);
    // Only the stream that began a capture ends it.
    // SAFETY: the out-pointer comes from `get`; handles come from the library.
    unsafe {
        check(cuStreamBeginCapture_v2(bench.streams[0], 1)).unwrap();
        bench.join(0, 1);
        let ended = get(null_mut(), |out| cuStreamEndCapture(bench.streams[1], out));
        assert_eq!(ended.unwrap_err().status, Status::StreamCaptureUnmatched);
    }
}

#[test]
fn streams_have_priorities() {
    let gpu = Gpu::new();
    // SAFETY: the out-pointers come from `get`.
    unsafe {
        let mut range = [9, 9];
        let [lowest, highest] = &mut range;
        check(cuCtxGetStreamPriorityRange(Out::new(lowest), Out::new(highest))).unwrap();
        for (given, kept) in [(range[0], 0), (range[1], -5), (7, 0), (-9, -5), (-2, -2)] {
            let stream = get(null_mut(), |out| cuStreamCreateWithPriority(out, 1, given)).unwrap();
            assert_eq!(get(9, |out| cuStreamGetPriority(stream, out)).unwrap(), kept, "{given}");
        }
        assert_eq!(get(9, |out| cuStreamGetPriority(gpu.stream(), out)).unwrap(), 0);
    }
}

/// With delays, commands of a stream with a priority run when something waits for them, and not before.
#[test]
fn delayed_commands_run_when_something_waits() {
    let mut bench = Bench::new();
    assert!(corrnoise_sim_delay(bench.gpu.ordinal as i32, true));
    let launches = |bench: &Bench| {
        let mut traffic = cuda::Traffic::default();
        // SAFETY: `traffic` is writable.
        assert!(unsafe { corrnoise_sim_traffic(bench.gpu.ordinal as i32, Out::new(&mut traffic)) });
        traffic.launches
    };
    // SAFETY: the out-pointer comes from `get`.
    bench.streams[0] = get(null_mut(), |out| unsafe { cuStreamCreateWithPriority(out, 1, 0) }).unwrap();
    let start = launches(&bench);
    bench.add(0).unwrap();
    let event = event();
    // SAFETY: handles come from the library.
    unsafe {
        check(cuEventRecord(event, bench.streams[0])).unwrap();
        bench.add(0).unwrap();
        assert_eq!(launches(&bench), start);
        check(cuStreamWaitEvent(bench.streams[1], event, 0)).unwrap();
        assert_eq!(launches(&bench), start + 1, "what comes after the event still waits");
        check(cuStreamSynchronize(bench.streams[0])).unwrap();
        assert_eq!(launches(&bench), start + 2);
    }
    // A missing wait: the other stream's command overtakes.
    bench.add(0).unwrap();
    bench.copy(1).unwrap();
    // SAFETY: no pointers.
    let error = check(unsafe { cuCtxSynchronize() }).unwrap_err();
    assert!(
        error.text.contains("kernel add on stream") && error.text.contains("kernel move on stream"),
        "{}",
        error.text
    );
    assert!(corrnoise_sim_delay(bench.gpu.ordinal as i32, false));
}

#[test]
fn pinned_memory_stays_until_its_copy_is_known_to_have_ended() {
    for (waits, changes) in [(true, true), (false, true), (false, false)] {
        let bench = Bench::new();
        // SAFETY: the memory has 4 bytes, and lives until it is freed.
        unsafe {
            let memory = get(null_mut(), |out: Out<*mut c_void>| cuMemHostAlloc(out, 4, 0)).unwrap();
            let word: *mut u32 = memory.cast();
            word.write(7);
            check(cuMemcpyHtoDAsync_v2(bench.word, memory, 4, bench.streams[0])).unwrap();
            let event = event();
            check(cuEventRecord(event, bench.streams[0])).unwrap();
            assert_eq!(cuMemFreeHost(memory), Status::InvalidValue, "the copy may still read it");
            if waits {
                check(cuEventSynchronize(event)).unwrap();
            }
            if changes {
                word.write(8);
            }
            let outcome = check(cuStreamSynchronize(bench.streams[0]));
            if waits || !changes {
                outcome.unwrap();
                assert_eq!(bench.gpu.read::<u32>(bench.word, 1).unwrap(), [7]);
            } else {
                let text = outcome.unwrap_err().text;
                assert!(
                    text.contains("byte +0 of the pinned memory that the copy to the device on stream"),
                    "{text}"
                );
            }
            check(cuMemFreeHost(memory)).unwrap();
        }
    }
}
