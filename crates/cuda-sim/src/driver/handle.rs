//! Opaque handles: kind, device and a serial number that is never used twice, so a stale or foreign one is noticed.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use super::state::NUM_DEVICES;
use crate::status::{Failure, Status};

/// A `CUcontext`, `CUstream`, `CUevent`, `CUmodule`, `CUfunction`, `CUgraph` or `CUgraphExec`; it is never followed.
pub type Handle = *mut c_void;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Context = 1,
    Stream = 2,
    Event = 3,
    Module = 4,
    Function = 5,
    Graph = 6,
    GraphExec = 7,
}

/// Returns a number that no call returned before.
pub(super) fn serial() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(super) fn encode(kind: Kind, device: usize, serial: u64) -> Handle {
    let bits = (kind as u64) << 56 | (device as u64) << 48 | serial;
    std::ptr::without_provenance_mut(bits as usize)
}

/// The device and the serial number of a handle of `kind`.
pub(super) fn decode(kind: Kind, handle: Handle) -> Result<(usize, u64), Failure> {
    let bits = handle.addr() as u64;
    let device = (bits >> 48 & 0xff) as usize;
    if bits >> 56 == kind as u64 && device < NUM_DEVICES {
        Ok((device, bits & ((1 << 48) - 1)))
    } else {
        Err(unknown(kind))
    }
}

pub(super) fn unknown(kind: Kind) -> Failure {
    let status = if kind == Kind::Context { Status::InvalidContext } else { Status::InvalidHandle };
    Failure::new(status, format!("not a living {kind:?}"))
}
