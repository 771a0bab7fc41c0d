//! Memory of a device: allocations, copies and fills.
//!
//! A copy or fill outside an allocation, or a copy of bytes that were never written, is an invalid value; unlike a fault in a
//! kernel it leaves the context usable.

use std::collections::HashMap;
use std::ffi::{c_uchar, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::{LazyLock, Mutex};

use super::boundary::{Out, call, lock};
use super::context::current;
use super::graph::{Command, Host};
use super::handle::{Handle, Kind as HandleKind, decode};
use super::secrets::left_in;
use super::state::{self, Device, NUM_DEVICES};
use super::stream::OnStream;
use crate::memory::{Kind, TOTAL};
use crate::status::{Failure, Status};

/// Allocates device memory in the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: Out<u64>, len: usize) -> Status {
    call("cuMemAlloc_v2", || address.set(current()?.memory.allocate(len, Kind::Global)?))
}

/// Allocates device memory in the order of a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(address: Out<u64>, len: usize, stream: Handle) -> Status {
    call("cuMemAllocAsync", || {
        let mut on = OnStream::of(stream)?;
        on.stream()?.forbid_capture("an allocation")?;
        let allocated = on.device.memory.allocate(len, Kind::Global)?;
        // Another stream may use the memory when it is ordered after the allocation.
        on.device.memory.touch(allocated, len, true);
        let (by, clock) = on.device.begin("the allocation", on.key);
        on.device.settle(by, &clock)?;
        address.set(allocated)
    })
}

/// Frees device memory of the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(address: u64) -> Status {
    call("cuMemFree_v2", || {
        let mut device = current()?;
        device.drain_all()?;
        free(&mut device, address)
    })
}

/// Frees device memory in the order of a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeAsync(address: u64, stream: Handle) -> Status {
    call("cuMemFreeAsync", || {
        let mut on = OnStream::of(stream)?;
        on.stream()?.forbid_capture("a free")?;
        on.device.drain(on.key, u64::MAX)?;
        let (by, clock) = on.device.begin("the free", on.key);
        on.device.memory.touch_all(address);
        on.device.settle(by, &clock)?;
        free(&mut on.device, address)
    })
}

fn free(device: &mut Device, address: u64) -> Result<(), Failure> {
    let left = device.memory.bytes_of(address).and_then(|bytes| left_in("device memory", bytes));
    device.noticed = left.or(device.noticed.take());
    device.memory.free(address)
}

/// Returns the free and the total device memory in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> Status {
    call("cuMemGetInfo_v2", || {
        free.set(current()?.memory.available() as usize)?;
        total.set(TOTAL as usize)
    })
}

/// Pinned host memory by address, in words of 16 bytes so that it is aligned for every type.
static PINNED: LazyLock<Mutex<HashMap<usize, Box<[u128]>>>> = LazyLock::new(Mutex::default);

/// Whether a range of the host lies in pinned memory.
pub(super) fn is_pinned(Host(start): Host, len: usize) -> bool {
    let start = start.addr();
    let inside = |base: usize, words: &[u128]| base <= start && start + len <= base + size_of_val(words);
    lock(&PINNED).iter().any(|(base, words)| inside(*base, words))
}

/// Allocates pinned host memory, which every context can use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(pointer: Out<*mut c_void>, len: usize, _flags: c_uint) -> Status {
    call("cuMemHostAlloc", || {
        drop(current()?);
        if len == 0 {
            return Err(Failure::invalid_value("an allocation of 0 bytes"));
        }
        let mut words = vec![0u128; len.div_ceil(16)].into_boxed_slice();
        let address: *mut c_void = words.as_mut_ptr().cast();
        pointer.set(address)?;
        lock(&PINNED).insert(address.addr(), words);
        Ok(())
    })
}

/// Allocates pinned host memory as [`cuMemHostAlloc`] does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocHost_v2(pointer: Out<*mut c_void>, len: usize) -> Status {
    // SAFETY: the same contract.
    unsafe { cuMemHostAlloc(pointer, len, 0) }
}

/// Frees pinned host memory, which no copy may still read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(pointer: *mut c_void) -> Status {
    call("cuMemFreeHost", || {
        let len = lock(&PINNED).get(&pointer.addr()).map_or(0, |words| size_of_val(&**words));
        for ordinal in 0..NUM_DEVICES {
            let mut device = state::device(ordinal)?;
            if device.pending.iter().any(|copy| copy.reads(pointer.addr(), len)) {
                let text = "a copy from the memory is not known to have ended";
                device.noticed = Some(format!("pinned memory is freed: {text}"));
                return Err(Failure::invalid_value(text));
            }
        }
        let freed = lock(&PINNED).remove(&pointer.addr());
        let left = freed.as_ref().and_then(|words| {
            // SAFETY: plain words are bytes.
            let bytes = unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(&**words)) };
            left_in("pinned memory", bytes)
        });
        if let (Some(text), Ok(mut device)) = (left, current()) {
            device.noticed = Some(text);
        }
        freed.map(drop).ok_or_else(|| Failure::invalid_value("not pinned host memory"))
    })
}

/// Runs a command after everything else, and waits for it, as functions without a stream do.
fn finish(len: usize, host: *const c_void, command: Command) -> Result<(), Failure> {
    let mut on = OnStream::of(null_mut())?;
    on.device.host_waits()?;
    drop(on);
    submit(null_mut(), len, host, command)?;
    let mut device = current()?;
    let clock = device.clock_of(0);
    device.host_learns(&clock)
}

/// Submits a command that moves `len` bytes; a length of 0 submits nothing.
fn submit(stream: Handle, len: usize, host: *const c_void, command: Command) -> Result<(), Failure> {
    let mut on = OnStream::of(stream)?;
    match command {
        _ if len == 0 => Ok(()),
        Command::ToDevice { .. } | Command::ToHost { .. } if host.is_null() => {
            Err(Failure::invalid_value("null host pointer"))
        }
        command => on.submit(command),
    }
}

/// Fills device memory with a byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(at: u64, value: c_uchar, len: usize, stream: Handle) -> Status {
    call("cuMemsetD8Async", || submit(stream, len, null_mut(), Command::Fill { at, value, len }))
}

/// Fills device memory with a byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8_v2(at: u64, value: c_uchar, len: usize) -> Status {
    call("cuMemsetD8_v2", || finish(len, null_mut(), Command::Fill { at, value, len }))
}

/// Copies from the host to the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    len: usize,
    stream: Handle,
) -> Status {
    let command = Command::ToDevice { to, from: Host(from.cast_mut()), len };
    call("cuMemcpyHtoDAsync_v2", || submit(stream, len, from, command))
}

/// Copies from the host to the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, len: usize) -> Status {
    let command = Command::ToDevice { to, from: Host(from.cast_mut()), len };
    call("cuMemcpyHtoD_v2", || finish(len, from, command))
}

/// Copies from the device to the host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    len: usize,
    stream: Handle,
) -> Status {
    let command = Command::ToHost { to: Host(to), from, len };
    call("cuMemcpyDtoHAsync_v2", || submit(stream, len, to, command))
}

/// Copies from the device to the host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, len: usize) -> Status {
    let command = Command::ToHost { to: Host(to), from, len };
    call("cuMemcpyDtoH_v2", || finish(len, to, command))
}

/// Copies within the memory of one device, on a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, len: usize, stream: Handle) -> Status {
    call("cuMemcpyDtoDAsync_v2", || submit(stream, len, null_mut(), Command::Copy { to, from, len }))
}

/// Copies within the memory of one device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, len: usize) -> Status {
    call("cuMemcpyDtoD_v2", || finish(len, null_mut(), Command::Copy { to, from, len }))
}

/// Copies from one device to another. A capture refuses it, because a graph belongs to one device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    to_context: Handle,
    from: u64,
    from_context: Handle,
    len: usize,
    stream: Handle,
) -> Status {
    call("cuMemcpyPeerAsync", || {
        let mut on = OnStream::of(stream)?;
        on.stream()?.forbid_capture("a copy between devices")?;
        on.device.drain(on.key, u64::MAX)?;
        let (by, clock) = on.device.begin("the copy between devices", on.key);
        drop(on);
        let (to_device, _) = decode(HandleKind::Context, to_context)?;
        let (from_device, _) = decode(HandleKind::Context, from_context)?;
        if len == 0 {
            return Ok(());
        }
        // One device is locked at a time: two threads that copy in opposite directions cannot wait for each other.
        let mut bytes = vec![0; len];
        let mut device = state::working(from_device)?;
        device.memory.read(from, &mut bytes)?;
        device.memory.touch(from, len, false);
        device.settle(by, &clock)?;
        drop(device);
        let mut device = state::working(to_device)?;
        device.memory.write(to, &bytes)?;
        device.memory.touch(to, len, true);
        device.settle(by, &clock)
    })
}
