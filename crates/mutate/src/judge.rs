//! Runs a mutant until the first difference.

use corrnoise::cuda::cudarc::driver::sys;
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

/// Judges PTX that takes the place of `committed` on one device of the stand-in; its `advance` counts `stride` steps at a time.
pub fn judge<E: Both + Copy>(
    device: usize,
    committed: &str,
    mutated: &str,
    cases: &[Expected<E>],
    stride: u64,
) -> Verdict {
    control::mutate_clear(device);
    control::mutate(device, committed, mutated, 0);
    control::limit(device, BUDGET);
    for expected in cases {
        let stream = new_context(device).and_then(|()| corrnoise::cuda::stream(device));
        let outcome = stream.and_then(|stream| expected.difference_counting(&stream, stride));
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

/// Empties the device's context: a fault stays in it, and so do the module and the control block of a captured graph, which keep it
/// from ending by itself.
fn new_context(device: usize) -> corrnoise::Result<()> {
    let failed = |error| corrnoise::Error::Device(format!("empty the context of device {device}: {error}"));
    corrnoise::cuda::cudarc::driver::result::init().map_err(failed)?;
    // SAFETY: one thread judges on a device, and no value of an earlier case is left but those that were forgotten.
    unsafe { sys::cuDevicePrimaryCtxReset_v2(device as sys::CUdevice) }.result().map_err(failed)
}

/// The line with which `advance` counts a step.
const COUNTS_ONE: &str = "add.s64 \t%rd4, %rd3, 1;";

/// How many steps the modules of [`leaping`] count at a time.
pub const LEAP: u64 = 1 << 32;

/// The module with an `advance` that counts [`LEAP`] steps at a time: nobody waits for 2³² launches. None if that very line was
/// changed.
pub fn leaping(text: &str) -> Option<String> {
    let start = text.find(".entry advance(")?;
    let end = start + text[start..].find("\n}")?;
    let at = start + text[start..end].find(COUNTS_ONE)?;
    let leaps = COUNTS_ONE.replace(", 1;", &format!(", {LEAP};"));
    Some([&text[..at], &leaps, &text[at + COUNTS_ONE.len()..]].concat())
}
