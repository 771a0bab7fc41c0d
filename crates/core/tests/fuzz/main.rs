//! Hostile input, at random from a seed: checkpoints that were damaged, edited or forged, and ranges of coordinates.
//!
//! `CORRNOISE_FUZZ_CASES` says how many cases there are, `CORRNOISE_FUZZ_FIRST` the number of the first one; a failure names its
//! number, so that it can be run again alone.

mod edit;
mod judge;
mod ranges;
mod seal;

/// Numbers that depend on the seed alone (SplitMix64).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Below `end`, which is at least 1.
    fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// The numbers of the cases to run.
fn cases(usual: u64) -> std::ops::Range<u64> {
    let read = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a whole number"));
    let first: u64 = read("CORRNOISE_FUZZ_FIRST").unwrap_or(0);
    first..first + read("CORRNOISE_FUZZ_CASES").unwrap_or(usual)
}

/// Runs one case, and names it if it panics.
fn named(case: u64, run: impl FnOnce() + std::panic::UnwindSafe) {
    if let Err(panic) = std::panic::catch_unwind(run) {
        eprintln!("case {case} failed: run it alone with CORRNOISE_FUZZ_FIRST={case} CORRNOISE_FUZZ_CASES=1");
        std::panic::resume_unwind(panic);
    }
}
