//! Launches with numbers that no test has memory or time for: 2³² tiles, scheduled steps or coordinates, 2¹⁶ segments or slots.
//!
//! A launch of the host's own is repeated with larger numbers and with pointers that lie as much before their memory, so that it must
//! compute what it did before. Where a kernel's strides grow too, each of its slots gets an allocation of its own, as far apart as the strides
//! say; of a large grid only the last block runs. The host's launch is what the ordinary cases compare with the CPU engine.

mod device;
mod fused;
mod rows;

use crate::judge::{Setting, Verdict, configure, new_context};
use corrnoise::Element;
use device::Device;

/// What a launch did otherwise than the one that it repeats, if anything.
type Difference = Result<Option<String>, String>;

/// Repeats launches of a module with wide numbers, by the mutated text, on one device of the stand-in.
pub(crate) fn judge<E: Element>(
    device: usize,
    module: &str,
    committed: &str,
    mutated: &str,
    setting: Setting,
) -> Verdict {
    configure(device, committed, mutated, setting);
    let difference = new_context(device).map_err(|error| error.to_string()).and_then(|()| {
        let device = Device::new(device, mutated)?;
        if module.starts_with("make_") {
            rows::differ(&device, module)
        } else {
            fused::differ::<E>(&device, module)
        }
    });
    match difference {
        Ok(None) => Verdict::Survived,
        Ok(Some(difference)) => Verdict::Killed(format!("wide: {difference}")),
        Err(error) => Verdict::Killed(format!("wide: {error}")),
    }
}
