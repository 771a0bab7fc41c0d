//! Runs a mutant until the first difference.

use corrnoise_cuda_suite::cases::Expected;
use corrnoise_cuda_suite::compare::Both;
use cuda::control;

/// Instructions that a warp may execute: the longest case needs a quarter.
const BUDGET: u64 = 1 << 21;

/// What came of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The stand-in does not load it: no mutant.
    Refused(String),
    /// Something differs or faults: which case, and what.
    Killed(String),
    /// Nothing does.
    Survived,
}

/// Judges PTX that takes the place of `committed` on one device of the stand-in.
pub fn judge<E: Both + Copy>(
    device: usize,
    committed: &str,
    mutated: &str,
    cases: &[Expected<E>],
) -> Verdict {
    control::mutate_clear(device);
    control::mutate(device, committed, mutated, 0);
    control::limit(device, BUDGET);
    for expected in cases {
        // A fault stays in the context: each case has its own.
        let outcome = corrnoise::cuda::stream(device).and_then(|stream| expected.difference(&stream));
        match outcome {
            Ok(None) => {}
            Ok(Some(difference)) => return Verdict::Killed(format!("{}: {difference}", expected.name())),
            Err(error) if error.to_string().contains("load the embedded PTX") => {
                return Verdict::Refused(error.to_string());
            }
            Err(error) => return Verdict::Killed(format!("{}: {error}", expected.name())),
        }
    }
    Verdict::Survived
}
