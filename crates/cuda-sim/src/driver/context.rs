//! Primary contexts, and the current context of each thread.
//!
//! A fault stays with its context until the last owner releases it (or somebody resets it). Retaining, releasing, and asking
//! or setting what is current work in a faulted context too, so that a test can drop its objects and start again.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::MutexGuard;

use super::boundary::{Out, call};
use super::device::ordinal;
use super::handle::{Handle, Kind, decode, encode, unknown};
use super::state::{self, Device};
use crate::status::{Failure, Status};

thread_local! {
    static CURRENT: Cell<Handle> = const { Cell::new(null_mut()) };
}

/// The device of the calling thread's context, whether that context still exists or not.
pub(super) fn current_device() -> Option<usize> {
    decode(Kind::Context, CURRENT.get()).ok().map(|(device, _)| device)
}

/// Locks the device of the calling thread's context, which must exist and not be faulted.
pub(super) fn current() -> Result<MutexGuard<'static, Device>, Failure> {
    let handle = CURRENT.get();
    if handle.is_null() {
        return Err(Failure::new(Status::InvalidContext, "no context is current on this thread"));
    }
    let (ordinal, serial) = decode(Kind::Context, handle)?;
    living(ordinal, serial)?;
    state::working(ordinal)
}

fn living(ordinal: usize, serial: u64) -> Result<(), Failure> {
    if state::device(ordinal)?.context == Some(serial) {
        Ok(())
    } else {
        Err(Failure::new(Status::ContextIsDestroyed, format!("a released context of device {ordinal}")))
    }
}

/// Retains a device's primary context, and creates it if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: Out<Handle>, device: c_int) -> Status {
    call("cuDevicePrimaryCtxRetain", || {
        let ordinal = ordinal(device)?;
        let mut device = state::device(ordinal)?;
        let serial = match device.context {
            Some(serial) => serial,
            None => device.new_context(),
        };
        context.set(encode(Kind::Context, ordinal, serial))?;
        device.retained += 1;
        Ok(())
    })
}

/// Releases a device's primary context; the last release destroys it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> Status {
    call("cuDevicePrimaryCtxRelease_v2", || {
        let mut device = state::device(ordinal(device)?)?;
        if device.retained == 0 {
            return Err(Failure::new(Status::InvalidContext, "released more often than retained"));
        }
        device.retained -= 1;
        if device.retained == 0 {
            device.destroy_context();
        }
        Ok(())
    })
}

/// Destroys all objects in a device's primary context and clears its fault; the context stays retained.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxReset_v2(device: c_int) -> Status {
    call("cuDevicePrimaryCtxReset_v2", || {
        let mut device = state::device(ordinal(device)?)?;
        let context = device.context;
        device.destroy_context();
        if context.is_some() {
            device.new_context();
            // The same handle stays good, as with the real driver.
            device.context = context;
        }
        Ok(())
    })
}

/// Returns the calling thread's context, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: Out<Handle>) -> Status {
    call("cuCtxGetCurrent", || context.set(CURRENT.get()))
}

/// Makes a context, or none, current on the calling thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSetCurrent(context: Handle) -> Status {
    call("cuCtxSetCurrent", || {
        if !context.is_null() {
            let (ordinal, serial) = decode(Kind::Context, context)?;
            living(ordinal, serial).map_err(|_| unknown(Kind::Context))?;
        }
        CURRENT.set(context);
        Ok(())
    })
}

/// Returns the device of the calling thread's context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice(device: Out<c_int>) -> Status {
    call("cuCtxGetDevice", || device.set(current()?.ordinal as c_int))
}

/// Returns the lowest and the highest stream priority.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetStreamPriorityRange(lowest: Out<c_int>, highest: Out<c_int>) -> Status {
    call("cuCtxGetStreamPriorityRange", || {
        drop(current()?);
        lowest.set(0)?;
        highest.set(-5)
    })
}

/// Waits for all work of the context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxSynchronize() -> Status {
    call("cuCtxSynchronize", || {
        let mut device = current()?;
        let mut outcome = Ok(());
        for stream in device.streams.values_mut() {
            outcome = outcome.and(stream.forbid_capture("a wait for all streams"));
        }
        outcome?;
        device.host_waits()
    })
}
