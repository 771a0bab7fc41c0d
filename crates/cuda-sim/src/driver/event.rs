//! Events: points in time on the host's clock.

use std::ffi::c_uint;
use std::sync::MutexGuard;
use std::time::Instant;

use super::boundary::{Out, call};
use super::context::current;
use super::handle::{Handle, Kind, decode, encode, serial, unknown};
use super::state::{self, Device};
use super::stream::OnStream;
use crate::status::{Failure, Status};

const DISABLE_TIMING: c_uint = 2;

/// An event and the time at which it was recorded, if it was.
#[derive(Clone, Copy)]
pub(super) struct Event {
    timed: bool,
    pub recorded: Option<Instant>,
    /// The capture that the event was last recorded in, if any.
    pub captured: Option<u64>,
}

fn event(handle: Handle) -> Result<(MutexGuard<'static, Device>, u64, Event), Failure> {
    let (ordinal, key) = decode(Kind::Event, handle)?;
    let device = state::working(ordinal)?;
    let event = *device.events.get(&key).ok_or_else(|| unknown(Kind::Event))?;
    Ok((device, key, event))
}

fn done(handle: Handle) -> Result<Event, Failure> {
    let (_device, _, event) = event(handle)?;
    match event.captured {
        Some(_) => Err(Failure::new(Status::CapturedEvent, "the event was recorded in a capture")),
        None => Ok(event),
    }
}

/// Creates an event in the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: Out<Handle>, flags: c_uint) -> Status {
    call("cuEventCreate", || {
        let mut device = current()?;
        let key = serial();
        event.set(encode(Kind::Event, device.ordinal, key))?;
        let timed = flags & DISABLE_TIMING == 0;
        device.events.insert(key, Event { timed, recorded: None, captured: None });
        Ok(())
    })
}

/// Destroys an event of the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(handle: Handle) -> Status {
    call("cuEventDestroy_v2", || {
        let (mut device, key, _) = event(handle)?;
        device.events.remove(&key);
        Ok(())
    })
}

/// Records an event on a stream of the same device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(handle: Handle, stream: Handle) -> Status {
    call("cuEventRecord", || {
        let (ordinal, key) = decode(Kind::Event, handle)?;
        let mut on = OnStream::of(stream)?;
        if on.device.ordinal != ordinal {
            return Err(Failure::new(Status::InvalidHandle, "event and stream are of different devices"));
        }
        let captured = on.stream()?.capture.as_ref().map(|capture| capture.serial);
        let event = on.device.events.get_mut(&key).ok_or_else(|| unknown(Kind::Event))?;
        event.captured = captured;
        if captured.is_none() {
            event.recorded = Some(Instant::now());
        }
        Ok(())
    })
}

/// Waits for an event. The work before it is already done, because commands run when they are submitted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventSynchronize(event: Handle) -> Status {
    call("cuEventSynchronize", || done(event).map(drop))
}

/// Queries an event: the work before it is always done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(event: Handle) -> Status {
    call("cuEventQuery", || done(event).map(drop))
}

/// Returns the milliseconds between two events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(milliseconds: Out<f32>, start: Handle, end: Handle) -> Status {
    call("cuEventElapsedTime", || {
        let (start, end) = (done(start)?, done(end)?);
        match (start.recorded, end.recorded) {
            (Some(from), Some(to)) if start.timed && end.timed => {
                let forward = to.saturating_duration_since(from).as_secs_f32();
                let backward = from.saturating_duration_since(to).as_secs_f32();
                milliseconds.set(1e3 * (forward - backward))
            }
            _ => Err(Failure::new(Status::InvalidHandle, "an event has no time: not recorded, or not timed")),
        }
    })
}
