//! The library's side of [`control`](crate::control): the functions that it calls in the `libcuda` that the process has loaded.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};

use super::boundary::Out;
use super::count;
use super::secrets;
use super::spoil::{self, How};
use super::state::{self, Mutation};
use crate::exec::Approximation;
use crate::traffic::Traffic;

/// The size of a [`Traffic`] in bytes. Only this library has the symbol, and the sizes agree only if both sides were built alike.
#[unsafe(no_mangle)]
pub extern "C" fn corrnoise_sim_layout() -> usize {
    size_of::<Traffic>()
}

fn ordinal(device: c_int) -> Option<usize> {
    usize::try_from(device).ok()
}

/// The number of calls of a driver function while a context of `device` was current, or in total if `device` is negative.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_sim_calls(name: *const c_char, device: c_int) -> u64 {
    // SAFETY: `control` passes a CString.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str().map_or(0, |name| count::get(name, ordinal(device)))
}

/// Adds a mutation for PTX loaded on a device from now on. Returns whether there is such a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_sim_mutate(
    device: c_int,
    from: *const c_char,
    to: *const c_char,
    nth: usize,
    optional: bool,
) -> bool {
    // SAFETY: `control` passes CStrings.
    let texts = unsafe { [CStr::from_ptr(from), CStr::from_ptr(to)] };
    let [from, to] = texts.map(|text| text.to_string_lossy().into_owned());
    let locked = ordinal(device).and_then(|ordinal| state::device(ordinal).ok());
    locked.map(|mut device| device.mutations.push(Mutation { from, to, nth, optional })).is_some()
}

/// Removes a device's mutations. Returns whether there is such a device.
#[unsafe(no_mangle)]
pub extern "C" fn corrnoise_sim_mutate_clear(device: c_int) -> bool {
    let locked = ordinal(device).and_then(|ordinal| state::device(ordinal).ok());
    locked.map(|mut device| device.mutations.clear()).is_some()
}

/// Sets how many instructions a warp may execute. Returns whether there is such a device.
#[unsafe(no_mangle)]
pub extern "C" fn corrnoise_sim_limit(device: c_int, instructions: u64) -> bool {
    let locked = ordinal(device).and_then(|ordinal| state::device(ordinal).ok());
    locked.map(|mut device| device.watch.limit = instructions).is_some()
}

/// Sets the first block that runs of later launches. Returns whether there is such a device.
#[unsafe(no_mangle)]
pub extern "C" fn corrnoise_sim_first_block(device: c_int, block: u64) -> bool {
    let locked = ordinal(device).and_then(|ordinal| state::device(ordinal).ok());
    locked.map(|mut device| device.watch.first_block = block).is_some()
}

/// Puts the next allocation of a device at an address. Returns whether there is such a device.
#[unsafe(no_mangle)]
pub extern "C" fn corrnoise_sim_place_next(device: c_int, address: u64) -> bool {
    let locked = ordinal(device).and_then(|ordinal| state::device(ordinal).ok());
    locked.map(|mut device| device.memory.place_next(address)).is_some()
}

/// Begins or ends to keep the arguments of a device's launches. Returns whether there is such a device.
#[unsafe(no_mangle)]
pub extern "C" fn corrnoise_sim_watch_launches(device: c_int, watches: bool) -> bool {
    let locked = ordinal(device).and_then(|ordinal| state::device(ordinal).ok());
    locked.map(|mut device| device.watch.launches = watches.then(HashMap::new)).is_some()
}

/// Copies the first `len` bytes of the arguments of a kernel's last launch. Returns whether one was watched and has as many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_sim_launched(
    device: c_int,
    kernel: *const c_char,
    to: *mut u8,
    len: usize,
) -> bool {
    // SAFETY: `control` passes a CString.
    let name = unsafe { CStr::from_ptr(kernel) }.to_string_lossy();
    let locked = ordinal(device).and_then(|ordinal| state::device(ordinal).ok());
    let Some(device) = locked else { return false };
    let launches = device.watch.launches.as_ref();
    let Some(arguments) = launches.and_then(|launches| launches.get(&*name)?.get(..len)) else {
        return false;
    };
    // SAFETY: `control` passes a buffer of `len` bytes.
    unsafe { to.copy_from_nonoverlapping(arguments.as_ptr(), len) };
    true
}

/// Sets the compute capability of a device, written as 80 for 8.0. Returns whether there is such a device.
#[unsafe(no_mangle)]
pub extern "C" fn corrnoise_sim_capability(device: c_int, capability: u32) -> bool {
    let found = ordinal(device).and_then(|ordinal| state::CAPABILITIES.get(ordinal));
    found.map(|number| number.store(capability, std::sync::atomic::Ordering::Relaxed)).is_some()
}

/// Sets what registers hold until they are written, in even lanes and in odd ones. Returns whether there is such a device.
#[unsafe(no_mangle)]
pub extern "C" fn corrnoise_sim_unwritten(device: c_int, even: u32, odd: u32) -> bool {
    let locked = ordinal(device).and_then(|ordinal| state::device(ordinal).ok());
    locked.map(|mut device| device.watch.unwritten = [even, odd]).is_some()
}

/// Sets what approximate instructions return: 0 random by `seed`, 1 exact, 2 highest, 3 lowest. Returns whether there is such a device.
#[unsafe(no_mangle)]
pub extern "C" fn corrnoise_sim_approximate(device: c_int, mode: c_int, seed: u64) -> bool {
    let how = match mode {
        1 => Approximation::Exact,
        2 => Approximation::Highest,
        3 => Approximation::Lowest,
        _ => Approximation::Random(seed),
    };
    let locked = ordinal(device).and_then(|ordinal| state::device(ordinal).ok());
    locked.map(|mut device| device.watch.approximation = how).is_some()
}

/// Says whether streams that were created with a priority delay their commands. Returns whether there is such a device.
#[unsafe(no_mangle)]
pub extern "C" fn corrnoise_sim_delay(device: c_int, delays: bool) -> bool {
    let locked = ordinal(device).and_then(|ordinal| state::device(ordinal).ok());
    locked.map(|mut device| device.delays = delays).is_some()
}

/// Spoils calls of this thread: 0 leaves out the `nth` record or wait, 1 fails the `nth` call, 2 fails it and all after it, -1 ends this.
#[unsafe(no_mangle)]
pub extern "C" fn corrnoise_sim_spoil(how: c_int, nth: u64) {
    let how = match how {
        0 => Some(How::LeaveOut),
        1 => Some(How::Fail),
        2 => Some(How::FailFrom),
        _ => None,
    };
    spoil::set(how, nth);
}

/// Copies the name of the first call of this thread that was spoilt and says how long it is. Returns how many calls were counted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_sim_spoilt(to: *mut u8, len: usize, written: Out<usize>) -> u64 {
    let (seen, name) = spoil::get();
    // SAFETY: `control` passes a buffer of `len` bytes.
    let count = unsafe { copy_text(name.unwrap_or_default(), to, len) };
    let _ = written.set(count);
    seen
}

/// Adds secrets of 16 bytes each to those that no memory may hold when it is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_sim_secrets(from: *const u8, len: usize) {
    // SAFETY: `control` passes a buffer of `len` bytes.
    secrets::add(unsafe { std::slice::from_raw_parts(from, len) });
}

/// Takes the text of what a device's checks of order noticed last, and copies it. Returns its length, at most `len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_sim_noticed(device: c_int, to: *mut u8, len: usize) -> usize {
    let locked = ordinal(device).and_then(|ordinal| state::device(ordinal).ok());
    let text = locked.and_then(|mut device| device.noticed.take()).unwrap_or_default();
    // SAFETY: `control` passes a buffer of `len` bytes.
    unsafe { copy_text(&text, to, len) }
}

/// # Safety
///
/// `to` is a buffer of `len` bytes.
unsafe fn copy_text(text: &str, to: *mut u8, len: usize) -> usize {
    let count = len.min(text.len());
    // SAFETY: by this function's contract.
    unsafe { to.copy_from_nonoverlapping(text.as_ptr(), count) };
    count
}

/// Begins to watch the lines that a device executes. Returns whether there is such a device.
#[unsafe(no_mangle)]
pub extern "C" fn corrnoise_sim_watch_lines(device: c_int) -> bool {
    let locked = ordinal(device).and_then(|ordinal| state::device(ordinal).ok());
    locked.map(|mut device| device.watch.lines = Some(Vec::new())).is_some()
}

/// Ends watching and copies what was seen of the first `len` lines. Returns whether there is such a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_sim_watched_lines(device: c_int, to: *mut u8, len: usize) -> bool {
    let Some(mut device) = ordinal(device).and_then(|ordinal| state::device(ordinal).ok()) else {
        return false;
    };
    let lines = device.watch.lines.take().unwrap_or_default();
    let count = len.min(lines.len());
    // SAFETY: `control` passes a buffer of `len` bytes.
    unsafe { to.copy_from_nonoverlapping(lines.as_ptr(), count) };
    true
}

/// Reads a device's counts. Returns whether there is such a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_sim_traffic(device: c_int, traffic: Out<Traffic>) -> bool {
    let locked = ordinal(device).and_then(|ordinal| state::device(ordinal).ok());
    locked.is_some_and(|device| traffic.set(device.traffic).is_ok())
}

/// Sets a device's counts to zero. Returns whether there is such a device.
#[unsafe(no_mangle)]
pub extern "C" fn corrnoise_sim_reset_traffic(device: c_int) -> bool {
    let locked = ordinal(device).and_then(|ordinal| state::device(ordinal).ok());
    locked.map(|mut device| device.traffic = Traffic::default()).is_some()
}
