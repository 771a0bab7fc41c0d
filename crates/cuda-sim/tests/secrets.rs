//! The keys on a device are cleared when their mechanism ends.

use corrnoise::{Form, Key, Mechanism, Plan, Shard};
use corrnoise_cuda::OnCuda;
use cuda::control;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};

/// Keys are cleared by fills: one when a mechanism is dropped, or, if its stream is being captured then, with the next mechanism.
#[test]
fn keys_are_cleared_when_a_mechanism_ends() {
    let device = 6;
    let stream = corrnoise_cuda::stream(device).unwrap().context().new_stream().unwrap();
    let plan = Plan::new(4, Form::independent(), 0.75).unwrap();
    let make = || {
        let key = Key::from_bytes([3; 32], "secret");
        Mechanism::cuda(&plan, key, Shard::whole(700).unwrap(), &stream).unwrap()
    };
    let fills = || control::calls_on(device, "cuMemsetD8Async");
    let count = |run: &mut dyn FnMut()| {
        let before = fills();
        run();
        fills() - before
    };
    let mut noise = None;
    let to_make = count(&mut || noise = Some(make()));
    assert_eq!(count(&mut || drop(noise.take())), 2, "keys and list");
    noise = Some(make());
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    assert_eq!(count(&mut || drop(noise.take())), 0, "not within the capture");
    drop(stream.end_capture(CUgraphInstantiate_flags(0)).unwrap());
    assert_eq!(count(&mut || noise = Some(make())), to_make + 2, "cleared with the next one");
    assert_eq!(count(&mut || drop(noise.take())), 2);
}

/// The records of a schedule hold the words of each step's dither: they are cleared when the replay ends, or with its mechanism.
#[test]
fn records_are_cleared_when_a_replay_ends() {
    let device = 4;
    let stream = corrnoise_cuda::stream(device).unwrap();
    let plan = Plan::new(4, Form::independent(), 0.75).unwrap();
    let key = Key::from_bytes([3; 32], "records");
    let mut noise = Mechanism::cuda(&plan, key, Shard::whole(700).unwrap(), &stream).unwrap();
    let fills = || control::calls_on(device, "cuMemsetD8Async");
    noise.begin_replay(2).unwrap();
    let before = fills();
    assert_eq!(noise.end_replay().unwrap(), 0);
    assert_eq!(fills() - before, 2, "records and lists");
    noise.begin_replay(2).unwrap();
    let before = fills();
    drop(noise);
    assert_eq!(
        fills() - before,
        5,
        "keys and list, the counter that says \"ended\", records and their lists"
    );
}

/// A schedule that arrives in part is cleared before its memory is freed.
#[test]
fn records_that_do_not_all_arrive_are_cleared() {
    let device = 3;
    let stream = corrnoise_cuda::stream(device).unwrap();
    let plan = Plan::new(4, Form::independent(), 0.75).unwrap();
    let fills = || control::calls_on(device, "cuMemsetD8Async");
    let mut spoilt = Vec::new();
    for nth in 0.. {
        let key = Key::from_bytes([3; 32], "in part");
        let mut noise = Mechanism::cuda(&plan, key, Shard::whole(700).unwrap(), &stream).unwrap();
        let before = fills();
        control::spoil(Some(control::Spoil::Fail(nth)));
        let begun = noise.begin_replay(2);
        let (_, name) = control::spoilt();
        control::spoil(None);
        let Some(name) = name else { break };
        if begun.is_err() && ["cuMemcpyHtoDAsync_v2", "cuStreamSynchronize"].contains(&name.as_str()) {
            // Three fills make the memory: that of the counter, of the records and of their lists.
            assert_eq!(fills() - before, 3 + 2, "call {nth}, {name}");
            spoilt.push(name);
        }
    }
    assert_eq!(spoilt, ["cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync_v2", "cuStreamSynchronize"]);
}

/// Keys are sent when all memory is there: what was allocated before is freed, and not cleared.
#[test]
fn a_mechanism_that_does_not_fit_sends_no_key() {
    let device = 5;
    let stream = corrnoise_cuda::stream(device).unwrap();
    let plan = Plan::new(4, Form::blt(&[0.3], &[0.9]).unwrap(), 0.75).unwrap();
    let copies = || control::calls_on(device, "cuMemcpyHtoDAsync_v2");
    let before = copies();
    let shard = Shard::whole(3 << 30).unwrap();
    let refused = Mechanism::cuda(&plan, Key::from_os().unwrap(), shard, &stream);
    assert!(matches!(refused, Err(corrnoise::Error::OutOfMemory { .. })));
    assert_eq!(copies(), before);
}

/// Keys that arrive in part are cleared before their memory is freed.
#[test]
fn keys_that_do_not_all_arrive_are_cleared() {
    let device = 2;
    let stream = corrnoise_cuda::stream(device).unwrap();
    let plan = Plan::new(4, Form::independent(), 0.75).unwrap();
    let make = || {
        let key = Key::from_bytes([3; 32], "in part");
        Mechanism::cuda(&plan, key, Shard::whole(700).unwrap(), &stream)
    };
    let fills = || control::calls_on(device, "cuMemsetD8Async");
    let before = fills();
    let made = make().unwrap();
    let to_make = fills() - before;
    drop(made);
    let mut copies = Vec::new();
    for nth in 0.. {
        let before = fills();
        control::spoil(Some(control::Spoil::Fail(nth)));
        let outcome = make();
        let (_, name) = control::spoilt();
        control::spoil(None);
        let Some(name) = name else { break };
        if outcome.is_err() && name == "cuMemcpyHtoDAsync_v2" {
            copies.push(fills() - before);
        }
        drop(outcome);
        let _ = stream.context().check_err();
    }
    // The last copy is that of the keys: they and the list are cleared.
    assert_eq!(copies.last(), Some(&(to_make + 2)), "{copies:?}");
}
