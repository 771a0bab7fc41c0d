//! Random histories of runs on a device, each beside the same run on the CPU: steps on gradients in device and host memory, rows prepared,
//! checkpoints, resumed and reloaded runs, replays, graphs that outlive them, refusals, drops and calls of the driver that fail, with
//! several runs on few streams. Every gradient and every checkpoint has the bits of the CPU engine, and the stand-in notices nothing.
//!
//! `CORRNOISE_HISTORIES` is the number of histories, `CORRNOISE_HISTORIES_FIRST` the first seed.

#[path = "histories/batch.rs"]
mod batch;
#[path = "histories/replay.rs"]
mod replay;
#[path = "histories/run.rs"]
mod run;
#[path = "common/scenarios.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod scenarios;

use batch::Batch;
use cuda::control;
use cudarc::driver::{CudaStream, result};
use run::Run;
use scenarios::{borrowed, reset};
use std::sync::Arc;

const DEVICE: usize = 0;
/// The actions of a history.
const ACTIONS: usize = 45;

/// Numbers from a seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }
}

/// What all runs of a history share.
pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) streams: Vec<Arc<CudaStream>>,
    /// Gradients that are not compared yet: to compare is to wait.
    pub(crate) pending: Vec<Batch>,
    /// The number of runs begun so far, by which their keys differ.
    pub(crate) begun: u64,
    /// The last actions, for messages.
    pub(crate) log: Vec<String>,
}

impl World {
    pub(crate) fn note(&mut self, what: impl Into<String>) {
        self.log.push(what.into());
        if std::env::var_os("CORRNOISE_HISTORIES_TRACE").is_some() {
            eprintln!("  {}", self.log[self.log.len() - 1]);
        }
    }

    /// Compares all gradients that wait for it.
    fn settle(&mut self) {
        for batch in std::mem::take(&mut self.pending) {
            batch.compare();
        }
    }
}

fn history(seed: u64) {
    reset(DEVICE);
    let mut random = Random(seed);
    control::delay(DEVICE, random.once_in(2));
    let streams = vec![borrowed(DEVICE), borrowed(DEVICE)];
    let mut world = World { random, streams, pending: Vec::new(), begun: 0, log: Vec::new() };
    let mut runs: Vec<Run> = (0..1 + world.random.below(3)).map(|_| Run::begin(&mut world)).collect();
    for _ in 0..ACTIONS {
        let at = world.random.below(runs.len());
        match world.random.below(24) {
            0..7 => runs[at].step(&mut world),
            7..10 => runs[at].prepare(&mut world),
            10 => runs[at].step_on_host(&mut world),
            11 => runs[at].refuse(&mut world),
            12 => runs[at].refuse_in_capture(&mut world),
            13 | 14 => runs[at].checkpoint(&mut world),
            15 | 16 => runs[at].resume(&mut world),
            17 => runs[at].reload(&mut world),
            18..21 => runs[at].replay(&mut world),
            21 => runs[at].fail(&mut world),
            22 => world.settle(),
            _ => {
                world.note("drop");
                runs[at] = Run::begin(&mut world);
            }
        }
    }
    while !runs.is_empty() {
        let at = world.random.below(runs.len());
        drop(runs.swap_remove(at));
    }
    // What ended within a capture is freed with the next mechanism.
    drop(Run::begin(&mut world));
    world.settle();
    drop(world);
    let context = borrowed(DEVICE).context().clone();
    let _ = context.check_err();
    result::ctx::synchronize().unwrap();
    assert_eq!(control::noticed(DEVICE), None);
}

#[test]
fn random_histories_have_the_bits_of_the_cpu() {
    let number =
        |name: &str, usual: u64| std::env::var(name).map_or(usual, |text| text.parse().expect("a number"));
    let first = number("CORRNOISE_HISTORIES_FIRST", 0);
    for seed in first..first + number("CORRNOISE_HISTORIES", 60) {
        let caught = std::panic::catch_unwind(|| history(seed));
        caught.unwrap_or_else(|_| panic!("CORRNOISE_HISTORIES_FIRST={seed} CORRNOISE_HISTORIES=1 shows it"));
    }
}
