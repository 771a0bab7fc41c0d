//! Runs the suite on a device and prints which device that is.

use crate::TESTS;
use corrnoise::cuda::cudarc::driver::CudaStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The counts of a run.
pub struct Outcome {
    /// The number of tests that passed.
    pub passed: usize,
    /// The number of tests that failed.
    pub failed: usize,
}

/// Runs the tests whose names contain one of `filters` (all without any), each on one of `streams`, as many at a time.
pub fn run(streams: &[Arc<CudaStream>], filters: &[String]) -> Outcome {
    let chosen: Vec<_> = TESTS
        .iter()
        .filter(|(name, _)| filters.is_empty() || filters.iter().any(|part| name.contains(part.as_str())))
        .collect();
    let device = streams[0].context().name().unwrap_or_else(|_| "unnamed".into());
    println!("running {} tests on {device}", chosen.len());
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for stream in streams {
            scope.spawn(|| {
                while let Some((name, test)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let start = Instant::now();
                    let outcome = catch_unwind(AssertUnwindSafe(|| test(stream)));
                    let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
                    println!("test {name} ... {verdict} ({:.1} s, {device})", start.elapsed().as_secs_f64());
                    failed.fetch_add(usize::from(outcome.is_err()), Ordering::Relaxed);
                }
            });
        }
    });
    let failed = failed.into_inner();
    Outcome { passed: chosen.len() - failed, failed }
}
