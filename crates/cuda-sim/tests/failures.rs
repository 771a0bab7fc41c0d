//! Every call of the driver fails once, alone or with all after it: an error or a poisoned mechanism, never wrong bits, never a hang.

#[path = "common/scenarios.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod scenarios;

use corrnoise::backend::Backend;
use corrnoise::{Error, Mechanism, Result};
use cuda::control::{self, Spoil};
use cudarc::driver::sys::{CUresult, CUstreamCaptureStatus};
use cudarc::driver::{CudaSlice, CudaStream, DriverError};
use scenarios::{Kind, Scenario, begin, borrowed, end, gradients, raw, reset, scenarios};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Runs a test on a thread of its own, and fails if one of its runs does not end. The test tells of the end of each.
fn with_an_end(test: impl FnOnce(&dyn Fn()) + Send + 'static) {
    let (ended, end) = mpsc::channel();
    // Nobody listens any more once a run took too long.
    let thread = std::thread::spawn(move || test(&|| _ = ended.send(())));
    loop {
        match end.recv_timeout(Duration::from_secs(240)) {
            Ok(()) => (),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("a call did not return"),
        }
    }
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// What the host knows of a gradient after its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Made,
    Failed,
}

/// Steps with all that surrounds them, on as many gradients; each is told to have the noise of which step, or that it failed.
fn steps<B: Backend>(
    mut noise: Mechanism<B>,
    list: &mut [CudaSlice<f32>],
    mut step: impl FnMut(&mut Mechanism<B>, &mut CudaSlice<f32>) -> Result<()>,
) -> Vec<(Told, usize)> {
    let mut poisoned = false;
    let told = list[..7]
        .iter_mut()
        .enumerate()
        .map(|(i, gradient)| {
            let _ = noise.prepare();
            if i == 3 {
                let _ = noise.state();
            }
            let number = noise.next_step() as usize;
            let outcome = step(&mut noise, gradient);
            assert!(!(poisoned && outcome.is_ok()), "a poisoned mechanism made a step");
            poisoned |= matches!(outcome, Err(Error::Poisoned { .. }));
            (if outcome.is_ok() { Told::Made } else { Told::Failed }, number)
        })
        .collect();
    drop(noise);
    told
}

/// A replay of two graphs of a step each, which are launched though something may have failed.
fn replay(scenario: &Scenario, stream: &Arc<CudaStream>, list: &mut [CudaSlice<f32>]) -> Vec<(Told, usize)> {
    let Ok(mut noise) = scenario.cuda(stream) else { return Vec::new() };
    let mut all = true;
    all &= noise.begin_replay(4).is_ok();
    let mut graphs = Vec::new();
    for gradient in &mut list[..2] {
        all &= begin(stream).is_ok();
        all &= noise.prepare().is_ok();
        all &= noise.enqueue(&[raw(gradient)]).is_ok();
        match end(stream) {
            Ok(Some(graph)) => graphs.push(graph),
            _ => all = false,
        }
    }
    for graph in &graphs {
        all &= graph.launch().is_ok();
    }
    all &= noise.end_replay().is_ok();
    let next = noise.next_step() as usize;
    let last = noise.run_step(&[raw(&mut list[2])]);
    drop(noise);
    let told = |made| if made { Told::Made } else { Told::Failed };
    vec![(told(all), 0), (told(all), 1), (told(last.is_ok()), next)]
}

/// Runs a scenario from its first step or from its making on. Gives the number of calls.
fn run(scenario: &Scenario, device: usize, expected: &[Vec<f32>], making: bool, what: Spoil) -> u64 {
    reset(device);
    let stream = borrowed(device);
    let mut list = gradients(&stream, scenario.len());
    stream.synchronize().unwrap();
    let start = || control::spoil(Some(what));
    if making || scenario.kind == Kind::FirstReplayed {
        start();
    }
    let told = match scenario.kind {
        Kind::Replayed | Kind::FirstReplayed => replay(scenario, &stream, &mut list),
        Kind::Prepared => scenario.cuda(&stream).map_or(Vec::new(), |noise| {
            if !making {
                start();
            }
            steps(noise, &mut list, |noise, gradient| noise.run_step(&[raw(gradient)]))
        }),
        Kind::HostMade => scenario.host_made(&stream).map_or(Vec::new(), |noise| {
            if !making {
                start();
            }
            steps(noise, &mut list, |noise, gradient| noise.run_step(&[raw(gradient)]))
        }),
    };
    let (count, name) = control::spoilt();
    control::spoil(None);
    let lasting = matches!(what, Spoil::FailFrom(_));
    let what = format!("{} {:?}, {what:?}, {name:?}", scenario.name, scenario.kind);
    if scenario.kind == Kind::HostMade && lasting {
        // The stand-in takes its copies for alive, though nothing can be asked of the context any more, and nobody can wait for them.
        let _ = control::noticed(device);
        return count;
    }
    // An error that cudarc kept from an end concerns nobody here.
    let _ = stream.context().check_err();
    // A capture may be open still, because its end failed.
    if stream.capture_status().unwrap() != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
        drop(end(&stream));
    }
    stream.context().synchronize().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(control::noticed(device), None, "{what}");
    for (i, (told, step)) in told.into_iter().enumerate() {
        let got = stream.clone_dtoh(&list[i]).unwrap();
        let made = got == expected[step];
        // Whoever is told that a step failed may find none of its noise, all of it, or NaN; a graph that stayed alone makes an earlier step;
        // a row that the host makes is added part by part.
        let nothing = told == Told::Failed
            && (got.iter().all(|value| *value == 0.0)
                || got.iter().all(|value| value.is_nan())
                || scenario.kind == Kind::HostMade
                || scenario.kind == Kind::FirstReplayed && i < 2 && expected[..2].contains(&got));
        assert!(made || nothing, "{what}: gradient {i}, step {step}, {told:?}");
    }
    count
}

fn every_failure(kinds: &'static [Kind], device: usize) {
    with_an_end(move |ended| {
        for scenario in scenarios().into_iter().filter(|scenario| kinds.contains(&scenario.kind)) {
            let expected = scenario.expected();
            // What is made, loaded and found is the same for every form.
            let is_first = scenario.name == "blt";
            let every = if is_first || std::env::var_os("CORRNOISE_FAILURES").is_some() { 1 } else { 5 };
            for making in [true, false] {
                let count = run(&scenario, device, &expected, making, Spoil::Fail(u64::MAX));
                for nth in (0..count).step_by(every) {
                    run(&scenario, device, &expected, making, Spoil::Fail(nth));
                    run(&scenario, device, &expected, making, Spoil::FailFrom(nth));
                    ended();
                }
                println!("{} {:?}: {count} calls, making: {making}", scenario.name, scenario.kind);
                if scenario.kind == Kind::FirstReplayed {
                    break;
                }
            }
        }
        reset(device);
    });
}

#[test]
fn every_call_of_prepared_steps_fails() {
    every_failure(&[Kind::Prepared], 0);
}

#[test]
fn every_call_of_replayed_steps_fails() {
    every_failure(&[Kind::FirstReplayed], 1);
}

#[test]
fn every_call_of_steps_that_the_host_makes_fails() {
    every_failure(&[Kind::HostMade], 2);
}

/// Rows that were made, but of whose end nothing was recorded, are waited for before their memory ends, whatever error cudarc keeps.
#[test]
fn rows_of_a_prepare_that_failed_end_before_their_memory() {
    const DEVICE: usize = 3;
    with_an_end(|ended| {
        for scenario in scenarios().into_iter().filter(|scenario| scenario.kind == Kind::Prepared) {
            for nth in 0.. {
                ended();
                reset(DEVICE);
                let stream = borrowed(DEVICE);
                let mut noise = scenario.cuda(&stream).unwrap();
                control::spoil(Some(Spoil::Fail(nth)));
                let outcome = noise.prepare();
                let (_, hit) = control::spoilt();
                control::spoil(None);
                stream.context().record_err(Err::<(), _>(DriverError(CUresult::CUDA_ERROR_INVALID_VALUE)));
                drop(noise);
                let _ = stream.context().check_err();
                stream
                    .context()
                    .synchronize()
                    .unwrap_or_else(|error| panic!("{}, {nth}: {error}", scenario.name));
                assert_eq!(
                    control::noticed(DEVICE),
                    None,
                    "{}, call {nth}: {hit:?}, {outcome:?}",
                    scenario.name
                );
                if hit.is_none() {
                    assert!(nth > 4 && outcome.is_ok(), "a prepare has some calls");
                    break;
                }
            }
        }
    });
}

/// A replay that begins at the first step makes that step's rows itself, behind those of a `prepare` that failed after it launched them.
#[test]
fn a_replay_begins_behind_a_prepare_that_failed() {
    const DEVICE: usize = 4;
    with_an_end(|ended| {
        for scenario in scenarios().into_iter().filter(|scenario| scenario.kind == Kind::Prepared) {
            let expected = scenario.expected();
            let mut failed = 0;
            for nth in 0.. {
                ended();
                reset(DEVICE);
                let stream = borrowed(DEVICE);
                let mut list = gradients(&stream, scenario.len());
                stream.synchronize().unwrap();
                let mut noise = scenario.cuda(&stream).unwrap();
                control::spoil(Some(Spoil::Fail(nth)));
                let outcome = noise.prepare();
                let (_, hit) = control::spoilt();
                control::spoil(None);
                let what = format!("{}, call {nth}: {hit:?}, {outcome:?}", scenario.name);
                failed += u32::from(outcome.is_err());
                noise.begin_replay(2).unwrap_or_else(|error| panic!("{what}: {error}"));
                for gradient in &mut list[..2] {
                    noise.enqueue(&[raw(gradient)]).unwrap();
                }
                assert_eq!(noise.end_replay().unwrap(), 2, "{what}");
                assert_eq!(control::noticed(DEVICE), None, "{what}");
                for (gradient, expected) in list.iter().zip(&expected).take(2) {
                    assert!(stream.clone_dtoh(gradient).unwrap() == *expected, "{what}");
                }
                if hit.is_none() {
                    break;
                }
            }
            assert!(failed > 2, "{}: {failed} calls failed", scenario.name);
        }
    });
}
