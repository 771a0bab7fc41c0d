//! Controls for tests: call counts, mutations and memory traffic of the stand-in that the process has loaded.
//!
//! A test links this crate as a Rust library, while cudarc opens `libcuda.so`: two copies, each with its own devices. These
//! functions open the same file by the same name, and so reach the copy that cudarc talks to.
//!
//! ```no_run
//! use cuda::control;
//!
//! assert!(control::is_stand_in());
//! control::reset_traffic(0);
//! let waits = control::calls("cuStreamSynchronize");
//! // … one step on device 0 …
//! assert_eq!(control::calls("cuStreamSynchronize"), waits);
//! assert_eq!(control::traffic(0).loads_of(2), 0);
//! ```
//!
//! # Panics
//!
//! All but [`is_stand_in`] panic if the process's `libcuda` is not this library, or if there is no such device.

use std::ffi::{CString, c_char, c_int};
use std::sync::OnceLock;

use libloading::Library;

use crate::traffic::Traffic;

/// Whether the `libcuda` that this process loads is the stand-in, built like this crate.
pub fn is_stand_in() -> bool {
    library().is_some_and(|library| {
        // SAFETY: only the stand-in has this symbol, with this signature.
        let layout = unsafe { library.get::<extern "C" fn() -> usize>(b"corrnoise_sim_layout\0") };
        layout.is_ok_and(|layout| layout() == size_of::<Traffic>())
    })
}

/// How often a driver function was called so far in this process, for instance `"cuStreamSynchronize"`; 0 for a name that no
/// function has.
pub fn calls(name: &str) -> u64 {
    calls_with(name, -1)
}

/// How often a driver function was called by threads whose current context was that of `device`.
pub fn calls_on(device: usize, name: &str) -> u64 {
    calls_with(name, index(device))
}

fn calls_with(name: &str, device: c_int) -> u64 {
    let name = text(name);
    type Function = unsafe extern "C" fn(*const c_char, c_int) -> u64;
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<Function>(b"corrnoise_sim_calls\0") };
    // SAFETY: the name is NUL-terminated and lives until the call returns.
    unsafe { function(name.as_ptr(), device) }
}

/// In PTX loaded on `device` from now on, replaces the `nth` occurrence of `from`, counted from 0, by `to`. A load fails if
/// it does not occur that often. Several mutations are applied one after the other.
pub fn mutate(device: usize, from: &str, to: &str, nth: usize) {
    mutate_with(device, from, to, nth, false);
}

/// In PTX loaded on `device` from now on, replaces the first occurrence of `from` by `to`, if there is one: a text that only one module
/// has makes that module wrong and leaves the others as they are.
pub fn mutate_where_found(device: usize, from: &str, to: &str) {
    mutate_with(device, from, to, 0, true);
}

fn mutate_with(device: usize, from: &str, to: &str, nth: usize, optional: bool) {
    let (from, to) = (text(from), text(to));
    type Function = unsafe extern "C" fn(c_int, *const c_char, *const c_char, usize, bool) -> bool;
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<Function>(b"corrnoise_sim_mutate\0") };
    // SAFETY: the texts are NUL-terminated and live until the call returns.
    check(unsafe { function(index(device), from.as_ptr(), to.as_ptr(), nth, optional) }, device);
}

/// Forgets the mutations of `device`.
pub fn mutate_clear(device: usize) {
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<extern "C" fn(c_int) -> bool>(b"corrnoise_sim_mutate_clear\0") };
    check(function(index(device)), device);
}

/// Sets the compute capability of `device`, written as 80 for 8.0: what is loaded from now on is chosen and checked by it.
pub fn set_capability(device: usize, capability: u32) {
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<extern "C" fn(c_int, u32) -> bool>(b"corrnoise_sim_capability\0") };
    check(function(index(device), capability), device);
}

/// A warp of `device` that executes more than `instructions` from now on fails its launch: a mutant may run for ever.
pub fn limit(device: usize, instructions: u64) {
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<extern "C" fn(c_int, u64) -> bool>(b"corrnoise_sim_limit\0") };
    check(function(index(device), instructions), device);
}

/// Leaves out the blocks before `block` of every launch on `device` from now on; 0 runs all. So the last blocks of a grid can be tested
/// that is too large to run.
pub fn first_block(device: usize, block: u64) {
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<extern "C" fn(c_int, u64) -> bool>(b"corrnoise_sim_first_block\0") };
    check(function(index(device), block), device);
}

/// Puts the next allocation on `device` at an address, so that a test need not have all of the memory that a kernel's strides span. It
/// fails if the address is no multiple of 256, or if something lies there. Only addresses from 2^56 on are never handed out otherwise.
pub fn place_next(device: usize, address: u64) {
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<extern "C" fn(c_int, u64) -> bool>(b"corrnoise_sim_place_next\0") };
    check(function(index(device), address), device);
}

/// Begins to keep the arguments of launches on `device`, for [`launched`], or ends that.
pub fn watch_launches(device: usize, watches: bool) {
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<extern "C" fn(c_int, bool) -> bool>(b"corrnoise_sim_watch_launches\0") };
    check(function(index(device), watches), device);
}

/// The arguments of a kernel's last launch on `device` since [`watch_launches`], as many bytes as the buffer has; false if there was none, or
/// if they are fewer.
pub fn launched(device: usize, kernel: &str, to: &mut [u8]) -> bool {
    let kernel = text(kernel);
    type Function = unsafe extern "C" fn(c_int, *const c_char, *mut u8, usize) -> bool;
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<Function>(b"corrnoise_sim_launched\0") };
    // SAFETY: the name is NUL-terminated, and the buffer has as many bytes.
    unsafe { function(index(device), kernel.as_ptr(), to.as_mut_ptr(), to.len()) }
}

/// The value of a register of the stand-in before its first write, in even lanes and in odd ones, unless [`unwritten`] sets
/// another. It is neither zero nor NaN nor an address, so that a result shows it; as a predicate or a flag it is true in half
/// of the lanes.
pub const UNWRITTEN: [u32; 2] = [0x5a5a_5a5b, 0xa5a5_a400];

/// Sets the value of unwritten registers of `device`, in even lanes and in odd ones: on hardware they hold anything. A register
/// of 64 bits holds its number twice.
pub fn unwritten(device: usize, [even, odd]: [u32; 2]) {
    type Function = extern "C" fn(c_int, u32, u32) -> bool;
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<Function>(b"corrnoise_sim_unwritten\0") };
    check(function(index(device), even, odd), device);
}

/// Which of the results that their documented errors allow approximate instructions such as `rsqrt.approx.ftz.f32` return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approximate {
    /// One that the argument and this seed choose; with seed 0 what the stand-in does unless it is told otherwise.
    Random(u64),
    /// The one nearest to the exact result.
    Exact,
    /// The highest allowed one.
    Highest,
    /// The lowest allowed one.
    Lowest,
}

/// Sets what approximate instructions of launches on `device` return from now on.
pub fn approximate(device: usize, how: Approximate) {
    let (mode, seed) = match how {
        Approximate::Random(seed) => (0, seed),
        Approximate::Exact => (1, 0),
        Approximate::Highest => (2, 0),
        Approximate::Lowest => (3, 0),
    };
    type Function = extern "C" fn(c_int, c_int, u64) -> bool;
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<Function>(b"corrnoise_sim_approximate\0") };
    check(function(index(device), mode, seed), device);
}

/// Says whether streams of `device` that were created with a priority delay their commands until something waits for them:
/// the host, another stream for an event, or the end of the stream. Both orders are valid; a missing wait shows in one of them.
pub fn delay(device: usize, delays: bool) {
    type Function = extern "C" fn(c_int, bool) -> bool;
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<Function>(b"corrnoise_sim_delay\0") };
    check(function(index(device), delays), device);
}

/// What a test spoils, among the calls that its own thread makes. Calls are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoil {
    /// The record of an event, or the wait of a stream or of the host, that succeeds and does nothing.
    LeaveOut(u64),
    /// The call that fails and does nothing.
    Fail(u64),
    /// The first of the calls that fail and do nothing: all from there on do.
    FailFrom(u64),
}

/// Begins to spoil calls of this thread, or ends that.
pub fn spoil(what: Option<Spoil>) {
    let (how, nth) = match what {
        None => (-1, 0),
        Some(Spoil::LeaveOut(nth)) => (0, nth),
        Some(Spoil::Fail(nth)) => (1, nth),
        Some(Spoil::FailFrom(nth)) => (2, nth),
    };
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<extern "C" fn(c_int, u64)>(b"corrnoise_sim_spoil\0") };
    function(how, nth);
}

/// What became of what [`spoil`] began: how many calls were counted so far, and the name of the first that was spoilt.
pub fn spoilt() -> (u64, Option<String>) {
    let (mut buffer, mut len) = ([0_u8; 64], 0);
    type Function = unsafe extern "C" fn(*mut u8, usize, *mut usize) -> u64;
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<Function>(b"corrnoise_sim_spoilt\0") };
    // SAFETY: the buffer has as many bytes, and the length is writable.
    let seen = unsafe { function(buffer.as_mut_ptr(), buffer.len(), &mut len) };
    (seen, (len > 0).then(|| String::from_utf8_lossy(&buffer[..len]).into_owned()))
}

/// Adds secrets of 16 bytes each, which no memory may hold at a multiple of 16 bytes when it is freed: [`noticed`] tells.
pub fn secrets(bytes: &[u8]) {
    type Function = unsafe extern "C" fn(*const u8, usize);
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<Function>(b"corrnoise_sim_secrets\0") };
    // SAFETY: the buffer has as many bytes.
    unsafe { function(bytes.as_ptr(), bytes.len()) };
}

/// Takes what the checks of `device` noticed last since it was asked for: an access that nothing orders, pinned memory that changed or was
/// freed too early, or memory that was freed with a secret. The end of the context does not forget it.
pub fn noticed(device: usize) -> Option<String> {
    let mut buffer = [0_u8; 512];
    type Function = unsafe extern "C" fn(c_int, *mut u8, usize) -> usize;
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<Function>(b"corrnoise_sim_noticed\0") };
    // SAFETY: the buffer has as many bytes.
    let len = unsafe { function(index(device), buffer.as_mut_ptr(), buffer.len()) };
    (len > 0).then(|| String::from_utf8_lossy(&buffer[..len]).into_owned())
}

/// What threads did with one line of PTX while it was watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// A thread executed the line's instruction.
    pub ran: bool,
    /// A thread skipped the line's instruction, because its guard was false.
    pub passed: bool,
}

/// Starts recording which lines of its modules `device` executes. Modules are not told apart, so only one should run meanwhile.
pub fn watch_lines(device: usize) {
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<extern "C" fn(c_int) -> bool>(b"corrnoise_sim_watch_lines\0") };
    check(function(index(device)), device);
}

/// Ends what [`watch_lines`] began. Entry `i` of the result is line `i` of the module, counted from 1; there are `count` entries.
pub fn watched_lines(device: usize, count: usize) -> Vec<Line> {
    let mut bytes = vec![0_u8; count];
    type Function = unsafe extern "C" fn(c_int, *mut u8, usize) -> bool;
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<Function>(b"corrnoise_sim_watched_lines\0") };
    // SAFETY: the buffer has `count` bytes.
    check(unsafe { function(index(device), bytes.as_mut_ptr(), count) }, device);
    bytes.into_iter().map(|byte| Line { ran: byte & 1 != 0, passed: byte & 2 != 0 }).collect()
}

/// Counts of what kernels on `device` did to global memory since [`reset_traffic`].
pub fn traffic(device: usize) -> Traffic {
    let mut traffic = Traffic::default();
    type Function = unsafe extern "C" fn(c_int, *mut Traffic) -> bool;
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<Function>(b"corrnoise_sim_traffic\0") };
    // SAFETY: `traffic` is writable, and its layout was compared when the library was opened.
    check(unsafe { function(index(device), &mut traffic) }, device);
    traffic
}

/// Sets the counts of `device` to zero.
pub fn reset_traffic(device: usize) {
    // SAFETY: the stand-in's symbol of that name has this signature.
    let function = unsafe { symbol::<extern "C" fn(c_int) -> bool>(b"corrnoise_sim_reset_traffic\0") };
    check(function(index(device)), device);
}

/// The library under the first name that cudarc tries; it is never closed.
fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    let open = || {
        // SAFETY: opening a libcuda, real or not, runs no initialiser with requirements of its own.
        unsafe { Library::new(libloading::library_filename("cuda")) }.ok()
    };
    LIBRARY.get_or_init(open).as_ref()
}

/// A function of the stand-in.
///
/// # Safety
///
/// The symbol's type is `T`.
unsafe fn symbol<T: Copy>(name: &[u8]) -> T {
    assert!(is_stand_in(), "this process's libcuda is not the stand-in of corrnoise-cuda-sim");
    let library = library().expect("is_stand_in opened it");
    // SAFETY: by this function's contract. The library is never closed, so the function may outlive the symbol.
    *unsafe { library.get::<T>(name) }.expect("the stand-in exports all that this module asks for")
}

fn text(text: &str) -> CString {
    CString::new(text).expect("a text without NUL")
}

fn index(device: usize) -> c_int {
    c_int::try_from(device).expect("a small device number")
}

fn check(known: bool, device: usize) {
    assert!(known, "the stand-in has no device {device}");
}
