//! Every record of an event and every wait, left out one at a time: the stand-in notices, or the list here says why it may be missing.

#[path = "common/scenarios.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod scenarios;

use cuda::control::{self, Spoil};
use cudarc::driver::{CudaStream, result};
use scenarios::{Kind, Scenario, begin, borrowed, end, gradients, raw, reset, scenarios};
use std::error::Error;
use std::sync::Arc;

/// The phase that a run is in, and the number of orders before it.
struct Phases(Vec<(String, u64)>);

impl Phases {
    /// Ends a phase: all orders since the last one are its own.
    fn end(&mut self, name: impl Into<String>, orders: u64) {
        self.0.push((name.into(), orders));
    }

    /// The phase of an order, and its number there.
    fn of(&self, nth: u64) -> (&str, u64) {
        let at = self.0.iter().position(|(_, until)| nth < *until).expect("a phase");
        let before = if at == 0 { 0 } else { self.0[at - 1].1 };
        (&self.0[at].0, nth - before)
    }
}

/// Does something on another thread, where nothing is spoilt.
fn aside<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(what).join().unwrap())
}

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Runs a scenario; the phases are told as they end. Whether the bits were right is the result.
fn run(
    scenario: &Scenario,
    device: usize,
    expected: &[Vec<f32>],
    mut phase: impl FnMut(&str),
) -> Outcome<bool> {
    let stream = borrowed(device);
    let mut list = gradients(&stream, scenario.len());
    stream.synchronize()?;
    phase("test");
    let outcome = match scenario.kind {
        Kind::Prepared => prepared(scenario, &stream, &mut list, &mut phase),
        Kind::Replayed | Kind::FirstReplayed => replayed(scenario, &stream, &mut list, &mut phase),
        Kind::HostMade => host_made(scenario, &stream, &mut list, &mut phase),
    };
    let made = outcome?;
    let same = |(gradient, expected): (&_, &Vec<f32>)| -> Outcome<bool> {
        Ok(aside(|| stream.clone_dtoh(gradient).map_err(|error| error.to_string()))? == *expected)
    };
    list.iter().zip(expected).take(made).try_fold(true, |all, pair| Ok(all && same(pair)?))
}

fn prepared(
    scenario: &Scenario,
    stream: &Arc<CudaStream>,
    list: &mut [cudarc::driver::CudaSlice<f32>],
    phase: &mut impl FnMut(&str),
) -> Outcome<usize> {
    let mut noise = scenario.cuda(stream)?;
    phase("new");
    for (step, gradient) in list[..8].iter_mut().enumerate() {
        noise.prepare()?;
        phase(match step {
            0 => "first prepare",
            5 => "prepare before state",
            _ => "prepare",
        });
        if step == 5 {
            noise.state()?;
            phase("state");
        }
        noise.run_step(&[raw(gradient)])?;
        phase(match step {
            5 => "step after state",
            7 => "last step",
            _ => "step",
        });
    }
    noise.prepare()?;
    phase("last prepare");
    drop(noise);
    phase("drop");
    Ok(8)
}

/// A step and a prepared one, or none, then graphs on a stream of their own, a step that is enqueued without a capture, and steps again.
fn replayed(
    scenario: &Scenario,
    stream: &Arc<CudaStream>,
    list: &mut [cudarc::driver::CudaSlice<f32>],
    phase: &mut impl FnMut(&str),
) -> Outcome<usize> {
    let other = borrowed(stream.context().ordinal());
    let mut noise = scenario.cuda(stream)?;
    phase("new");
    let first = usize::from(scenario.kind == Kind::Replayed);
    if first == 1 {
        noise.run_step(&[raw(&mut list[0])])?;
        noise.prepare()?;
        phase("before the replay");
    }
    noise.begin_replay(6)?;
    phase("begin_replay");
    let mut graphs = Vec::new();
    for pair in list[first..first + 4].chunks_mut(2) {
        begin(stream)?;
        noise.prepare()?;
        noise.enqueue(&[raw(&mut pair[0])])?;
        noise.enqueue(&[raw(&mut pair[1])])?;
        graphs.push(end(stream)?.ok_or("no graph")?);
        phase("capture");
    }
    for graph in &graphs {
        // SAFETY: the graph and the stream live until the end of this function, in a context that is current.
        unsafe { result::graph::launch(graph.cu_graph_exec(), other.cu_stream()) }?;
    }
    // A graph's launches and the end of its replay are the caller's to order.
    aside(|| other.synchronize().map_err(|error| error.to_string()))?;
    noise.enqueue(&[raw(&mut list[first + 4])])?;
    noise.enqueue(&[raw(&mut list[first + 5])])?;
    phase("enqueue");
    let made = noise.end_replay()?;
    phase("end_replay");
    assert_eq!(made, 6);
    noise.run_step(&[raw(&mut list[first + 6])])?;
    phase("step after");
    drop((noise, graphs));
    phase("drop");
    Ok(7 + first)
}

fn host_made(
    scenario: &Scenario,
    stream: &Arc<CudaStream>,
    list: &mut [cudarc::driver::CudaSlice<f32>],
    phase: &mut impl FnMut(&str),
) -> Outcome<usize> {
    let mut noise = scenario.host_made(stream)?;
    phase("new");
    for (step, gradient) in list[..3].iter_mut().enumerate() {
        noise.prepare()?;
        noise.run_step(&[raw(gradient)])?;
        phase(["first step", "step", "last step"][step]);
    }
    drop(noise);
    phase("drop");
    Ok(3)
}

/// The orders that may be missing, one at a time: kind and name of the scenario (or any), phase, function, its numbers in the phase (none means all), and the reason.
type Redundant = (Kind, &'static str, &'static str, &'static str, &'static [u64], &'static str);
#[rustfmt::skip]
const REDUNDANT: &[Redundant] = &[
    (Kind::Prepared, ANY, "first prepare", WAIT, &[0], "no addition was marked before the first rows"),
    (Kind::Prepared, ANY, "prepare before state", RECORD, &[1], "the state was read after a wait of the host for the rows"),
    (Kind::Prepared, ANY, "step after state", WAIT, &[0], "the host has waited for the rows when it read the state"),
    (Kind::Prepared, "blt", "state", STREAM, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
        "the first wait is for all rows, and a copy to memory that is not pinned has ended when it returns"),
    (Kind::Prepared, "ring", "state", STREAM, &[], "rows are made in slots that hold no state, and a copy to memory that is not pinned has ended when it returns"),
    (Kind::Prepared, "ring", "step", RECORD, &[1], AHEAD),
    (Kind::Prepared, "ring", "step after state", RECORD, &[1], AHEAD),
    (Kind::Prepared, "ring", "last step", RECORD, &[1], AHEAD),
    (Kind::Prepared, "ring", "prepare", WAIT, &[0], AHEAD),
    (Kind::Prepared, "ring", "prepare before state", WAIT, &[0], AHEAD),
    (Kind::Prepared, "ring", "last prepare", WAIT, &[0], AHEAD),
    (Kind::Prepared, ANY, "last prepare", RECORD, &[1], "the end marks the same rows again"),
    (Kind::Prepared, ANY, "drop", RECORD, &[0], "the rows were marked when they were prepared; a prepare that failed has not done it"),
    (Kind::Replayed, ANY, "before the replay", WAIT, &[0], "no addition was marked before the first rows"),
    (Kind::Replayed, ANY, "before the replay", RECORD, &[5], "the replay begins after a wait of the host for the rows"),
    (Kind::Replayed, "ring", "before the replay", RECORD, &[3], AHEAD),
    (Kind::Replayed, "ring", "before the replay", WAIT, &[4], AHEAD),
    (Kind::Replayed, ANY, "begin_replay", STREAM, &[0, 2], "either waits for the schedule's copies; a replay of the first step needs the second"),
    (Kind::Replayed, ANY, "enqueue", WAIT, &[1], "the host has waited for the graphs, and nothing was enqueued since"),
    (Kind::Replayed, ANY, "end_replay", STREAM, &[0], "every step has joined its branch; this is for one that failed before"),
    (Kind::Replayed, ANY, "end_replay", STREAM, &[1], "a copy to memory that is not pinned has ended when it returns"),
    (Kind::Replayed, ANY, "step after", WAIT, &[0], "the host has waited for the replay's additions"),
    (Kind::Replayed, ANY, "step after", RECORD, &[3], "nothing is made after the last step"),
    (Kind::Replayed, ANY, "drop", RECORD, &[0], "the last step has waited for all rows"),
    (Kind::Replayed, ANY, "drop", WAIT, &[1], "the last step has waited for all rows"),
    (Kind::FirstReplayed, ANY, "new", STREAM, &[0], "the replay begins with a wait of the host for the same stream"),
    (Kind::FirstReplayed, ANY, "enqueue", WAIT, &[1], "the host has waited for the graphs, and nothing was enqueued since"),
    (Kind::FirstReplayed, ANY, "begin_replay", STREAM, &[0], "the replay's own wait comes after it, for the same copies"),
    (Kind::FirstReplayed, ANY, "begin_replay", STREAM, &[1], "nothing was prepared"),
    (Kind::FirstReplayed, ANY, "end_replay", STREAM, &[0], "every step has joined its branch; this is for one that failed before"),
    (Kind::FirstReplayed, ANY, "end_replay", STREAM, &[1], "a copy to memory that is not pinned has ended when it returns"),
    (Kind::FirstReplayed, ANY, "step after", WAIT, &[0], "the host has waited for the replay's additions"),
    (Kind::FirstReplayed, ANY, "step after", RECORD, &[3], "nothing is made after the last step"),
    (Kind::FirstReplayed, ANY, "drop", RECORD, &[0], "the last step has waited for all rows"),
    (Kind::FirstReplayed, ANY, "drop", WAIT, &[1], "the last step has waited for all rows"),
    (Kind::HostMade, ANY, "first step", EVENT, &[0, 5, 10], "nothing was copied from this pinned memory before"),
    (Kind::HostMade, ANY, "first step", WAIT, &[1, 6], "nothing was added from this device memory before"),
    (Kind::HostMade, ANY, "first step", RECORD, &[19], LATER),
    (Kind::HostMade, ANY, "step", RECORD, &[19], LATER),
    (Kind::HostMade, ANY, "step", WAIT, &[6], LATER),
    (Kind::HostMade, ANY, "last step", WAIT, &[6], LATER),
    (Kind::HostMade, ANY, "step", EVENT, &[10], "the host has waited for a later copy, of the last part of the row before"),
    (Kind::HostMade, ANY, "last step", EVENT, &[10], "the host has waited for a later copy, of the last part of the row before"),
    (Kind::HostMade, ANY, "last step", RECORD, &[19, 24], "nothing is copied after the last step"),
    (Kind::HostMade, ANY, "drop", RECORD, &[1, 2], "nothing is copied after the end; a step that failed can be followed by another"),
];

/// Why one missing mark of a ring's additions does no harm.
const AHEAD: &str =
    "a ring's rows are made in slots that were added at least two steps ago, which the mark before orders";
/// Why one missing mark of a part's addition does no harm.
const LATER: &str =
    "the copy stream waits for a later addition, of the last part, before its first copy of the next row";

const ANY: &str = "";
const WAIT: &str = "cuStreamWaitEvent";
const RECORD: &str = "cuEventRecord";
const EVENT: &str = "cuEventSynchronize";
const STREAM: &str = "cuStreamSynchronize";

#[test]
fn every_record_and_every_wait_is_needed() {
    const DEVICE: usize = 5;
    let mut used = vec![false; REDUNDANT.len()];
    let mut unexplained = Vec::new();
    for scenario in scenarios() {
        let what = format!("{} {:?}", scenario.name, scenario.kind);
        let expected = scenario.expected();
        reset(DEVICE);
        let mut phases = Phases(Vec::new());
        control::spoil(Some(Spoil::LeaveOut(u64::MAX)));
        let outcome = run(&scenario, DEVICE, &expected, |name| phases.end(name, control::spoilt().0));
        let (count, _) = control::spoilt();
        control::spoil(None);
        assert!(matches!(outcome, Ok(true)), "{what}: {outcome:?}");
        assert_eq!(control::noticed(DEVICE), None, "{what}");
        let mut needed = 0;
        for nth in phases.0[0].1..count {
            reset(DEVICE);
            control::spoil(Some(Spoil::LeaveOut(nth)));
            let outcome = run(&scenario, DEVICE, &expected, |_| ());
            let (_, name) = control::spoilt();
            control::spoil(None);
            let noticed = control::noticed(DEVICE);
            let name = name.expect("as many orders as in the run before");
            let (phase, number) = phases.of(nth);
            if noticed.is_some() || outcome.is_err() {
                needed += 1;
                continue;
            }
            assert!(
                matches!(outcome, Ok(true)),
                "{what}, {phase} {number}: wrong bits, and nothing noticed it"
            );
            let known = REDUNDANT.iter().position(|(kind, form, of, call, numbers, _)| {
                *kind == scenario.kind
                    && (form.is_empty() || *form == scenario.name)
                    && *of == phase
                    && *call == name
                    && (numbers.is_empty() || numbers.contains(&number))
            });
            match known {
                Some(at) => used[at] = true,
                None => unexplained.push(format!("{what}: {phase} {number} {name}")),
            }
        }
        println!("{what}: {count} orders, {needed} needed");
        assert!(needed > 10, "{what}: {needed}");
    }
    reset(DEVICE);
    assert!(unexplained.is_empty(), "not needed, and nobody says why:\n{}", unexplained.join("\n"));
    let stale: Vec<_> =
        REDUNDANT.iter().zip(used).filter(|(_, used)| !used).map(|(entry, _)| entry).collect();
    assert!(stale.is_empty(), "needed, although the list says otherwise: {stale:?}");
}
