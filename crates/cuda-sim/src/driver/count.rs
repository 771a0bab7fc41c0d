//! How often each driver function was called, in total and while a device's context was current.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use super::boundary::lock;
use super::context::current_device;
use super::state::NUM_DEVICES;

/// Per function, the number of calls on each device; the last entry counts calls without a context.
static CALLS: LazyLock<Mutex<HashMap<&'static str, [u64; NUM_DEVICES + 1]>>> = LazyLock::new(Mutex::default);

pub(super) fn add(name: &'static str) {
    let device = current_device().unwrap_or(NUM_DEVICES);
    lock(&CALLS).entry(name).or_default()[device] += 1;
}

/// The number of calls of `name` while a context of `device` was current, or in total without a device.
pub(super) fn get(name: &str, device: Option<usize>) -> u64 {
    let calls = lock(&CALLS);
    let Some(calls) = calls.get(name) else { return 0 };
    match device {
        Some(device) => calls.get(device).copied().unwrap_or(0),
        None => calls.iter().sum(),
    }
}
