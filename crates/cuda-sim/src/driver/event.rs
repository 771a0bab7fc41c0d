//! Events: points in time on the host's clock.

use std::ffi::c_uint;
use std::sync::MutexGuard;
use std::time::Instant;

use super::boundary::{Out, call};
use super::capture::Point;
use super::context::current;
use super::handle::{Handle, Kind, decode, encode, serial, unknown};
use super::order::Clock;
use super::state::{self, Device};
use super::stream::OnStream;
use crate::status::{Failure, Status};

const DISABLE_TIMING: c_uint = 2;

/// An event and the time at which it was recorded, if it was.
#[derive(Clone, Default)]
pub(super) struct Event {
    timed: bool,
    pub recorded: Option<Instant>,
    /// What had been submitted to the stream when the event was recorded outside of captures.
    pub clock: Clock,
    /// The stream that the event was recorded on, and the time of its last command.
    pub after: Option<(u64, u64)>,
    /// The place in a capture where the event was last recorded, if in any.
    pub captured: Option<Point>,
}

fn event(handle: Handle) -> Result<(MutexGuard<'static, Device>, u64, Event), Failure> {
    let (ordinal, key) = decode(Kind::Event, handle)?;
    let device = state::working(ordinal)?;
    let event = device.events.get(&key).cloned().ok_or_else(|| unknown(Kind::Event))?;
    Ok((device, key, event))
}

fn done(handle: Handle) -> Result<Event, Failure> {
    let (mut device, _, event) = event(handle)?;
    if event.captured.is_some() {
        return Err(Failure::new(Status::CapturedEvent, "the event was recorded in a capture"));
    }
    if let Some((key, time)) = event.after {
        device.drain(key, time)?;
    }
    device.host_learns(&event.clock)?;
    Ok(event)
}

/// Creates an event in the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: Out<Handle>, flags: c_uint) -> Status {
    call("cuEventCreate", || {
        let mut device = current()?;
        let key = serial();
        event.set(encode(Kind::Event, device.ordinal, key))?;
        let timed = flags & DISABLE_TIMING == 0;
        device.events.insert(key, Event { timed, ..Event::default() });
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
        let captured = on.stream()?.capture.as_ref().map(|member| member.at.clone());
        let key_of_stream = on.key;
        let begun = captured.is_none().then(|| on.device.begin("an event", key_of_stream));
        let event = on.device.events.get_mut(&key).ok_or_else(|| unknown(Kind::Event))?;
        if let Some((by, clock)) = begun {
            event.recorded = Some(Instant::now());
            (event.clock, event.after) = (clock, Some((key_of_stream, by.time)));
        }
        event.captured = captured;
        Ok(())
    })
}

/// Waits for an event and the work before it.
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
