//! Cases by number: their random values, which of them run, and how one is named that fails or takes too long.
//!
//! The command line's fuzz test includes this file too.

use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Numbers that depend on the seed alone (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `end`, which is at least 1.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }

    pub(crate) fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// The numbers of the cases to run.
pub(crate) fn cases(usual: u64) -> std::ops::Range<u64> {
    let read = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a whole number"));
    let first: u64 = read("CORRNOISE_FUZZ_FIRST").unwrap_or(0);
    first..first + read("CORRNOISE_FUZZ_CASES").unwrap_or(usual)
}

/// Runs one case, and names it if it panics.
pub(crate) fn named<T>(case: u64, run: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        eprintln!("case {case} failed: run it alone with CORRNOISE_FUZZ_FIRST={case} CORRNOISE_FUZZ_CASES=1");
        std::panic::resume_unwind(panic)
    })
}

/// Runs one case, which names itself if it panics, does not end, or takes longer than `limit`. A case that took long runs again:
/// others use the machine too, and what counts is the fastest of three.
pub(crate) fn timed<T>(case: u64, limit: Duration, mut run: impl FnMut() -> T) -> (T, Duration) {
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        let begin = Instant::now();
        let _running = watch(case, limit);
        let value = named(case, &mut run);
        fastest = fastest.min(begin.elapsed());
        if fastest < limit {
            return (value, fastest);
        }
    }
    panic!("case {case} took {fastest:?}: expected less than {limit:?}");
}

/// Ends the process unless the returned sender is dropped in time: a test that waits forever tells nobody its number.
fn watch(case: u64, limit: Duration) -> Sender<()> {
    let (running, ended) = channel();
    let patience = (3 * limit).max(Duration::from_secs(60));
    std::thread::spawn(move || {
        if ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            eprintln!(
                "case {case} does not end: run it alone with CORRNOISE_FUZZ_FIRST={case} CORRNOISE_FUZZ_CASES=1"
            );
            std::process::abort();
        }
    });
    running
}
