//! Runs a mutant until the first difference.

use corrnoise::Element;
use corrnoise::cuda::cudarc::driver::sys;
use corrnoise_cuda_suite::cases::Expected;
use cuda::control;

/// The number of instructions that a warp may execute: four times what the longest case needs.
const BUDGET: u64 = 1 << 21;

/// The verdict on a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The stand-in does not load the text, so it is not a mutant.
    Refused(String),
    /// A result differs, or a launch faults: the case and the difference.
    Killed(String),
    /// No result differs in any case.
    Survived,
}

/// The conditions that a mutant runs under.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The number of steps that `advance` counts at a time.
    pub stride: u64,
    /// The value of registers before their first write.
    pub unwritten: [u32; 2],
    /// The compute capability, written as 80 for 8.0: it decides which module the kernel for bf16 comes from.
    pub capability: u32,
}

impl Setting {
    /// The number of steps that an `advance` of [`leaping`] counts at a time.
    const LEAP: u64 = 1 << 32;

    /// The setting for kernels as they were written.
    pub fn ordinary(module: &str) -> Setting {
        let capability = if module.ends_with("_80") { 80 } else { 75 };
        Setting { stride: 1, unwritten: control::UNWRITTEN, capability }
    }

    /// The setting for modules of [`leaping`]. Unwritten registers are zero, because otherwise one could be taken for a large count.
    pub fn leaping(module: &str) -> Setting {
        Setting { stride: Self::LEAP, unwritten: [0; 2], ..Self::ordinary(module) }
    }
}

/// Judges PTX that takes the place of `committed` on one device of the stand-in. The modules that are loaded beside it stay as they are:
/// a kernel that makes rows has one that adds them beside it, and one for newer GPUs has the others of its form.
pub fn judge<E: Element>(
    device: usize,
    committed: &str,
    mutated: &str,
    cases: &[Expected<E>],
    setting: Setting,
) -> Verdict {
    configure(device, committed, mutated, setting);
    for expected in cases {
        let stream = new_context(device).and_then(|()| corrnoise::cuda::stream(device));
        let outcome = stream.and_then(|stream| expected.difference_counting(&stream, setting.stride));
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

/// Lets one device load `mutated` in the place of `committed`, under a setting.
pub(crate) fn configure(device: usize, committed: &str, mutated: &str, setting: Setting) {
    control::mutate_clear(device);
    control::set_capability(device, setting.capability);
    control::mutate_where_found(device, committed, mutated);
    control::limit(device, BUDGET);
    control::unwritten(device, setting.unwritten);
}

/// Resets the device's context. A fault stays in a context, and so do the module and the control block of a captured graph,
/// which also keep the context from ending by itself.
pub(crate) fn new_context(device: usize) -> corrnoise::Result<()> {
    let failed = |error| corrnoise::Error::Device(format!("empty the context of device {device}: {error}"));
    corrnoise::cuda::cudarc::driver::result::init().map_err(failed)?;
    // SAFETY: one thread judges on a device, and no value of an earlier case is left but those that were forgotten.
    unsafe { sys::cuDevicePrimaryCtxReset_v2(device as sys::CUdevice) }.result().map_err(failed)
}

/// The line with which `advance` counts a step.
const COUNTS_ONE: &str = "add.s64 \t%rd4, %rd3, 1;";

/// The module with an `advance` that counts 2³² steps at a time, since nobody can wait for that many launches. None if the
/// mutation changed that very line, or the module has no `advance`.
pub fn leaping(text: &str) -> Option<String> {
    let start = text.find(".entry advance(")?;
    let end = start + text[start..].find("\n}")?;
    let at = start + text[start..end].find(COUNTS_ONE)?;
    let leaps = COUNTS_ONE.replace(", 1;", &format!(", {};", Setting::LEAP));
    Some([&text[..at], &leaps, &text[at + COUNTS_ONE.len()..]].concat())
}
