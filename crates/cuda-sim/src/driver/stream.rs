//! Streams: each command runs when it is submitted, unless a test delays it, or is recorded while the stream captures.

use std::collections::VecDeque;
use std::ffi::{c_int, c_uint};
use std::sync::MutexGuard;

use super::boundary::{Out, call};
use super::capture::Member;
use super::context::current;
use super::graph::Command;
use super::handle::{Handle, Kind, decode, encode, serial, unknown};
use super::memory::is_pinned;
use super::order::{Clock, Queued};
use super::state::{self, Device};
use crate::status::{Failure, Status};

/// A stream of a context, and what its work comes after.
#[derive(Default)]
pub(super) struct Stream {
    pub capture: Option<Member>,
    /// What the stream's next command comes after.
    pub clock: Clock,
    /// Whether the stream and the default stream wait for each other.
    pub blocking: bool,
    /// The priority that the stream was created with, if any was given.
    pub priority: Option<c_int>,
    /// The commands that the stream delays.
    pub queue: VecDeque<Queued>,
}

impl Stream {
    /// Refuses an operation that is not allowed during a capture, and invalidates the capture.
    pub(super) fn forbid_capture(&mut self, what: &str) -> Result<(), Failure> {
        let Some(member) = &self.capture else { return Ok(()) };
        member.spoil();
        Err(Failure::new(Status::StreamCaptureUnsupported, format!("{what} while the stream captures")))
    }
}

/// A device, locked, and the key of one of its streams.
pub(super) struct OnStream {
    pub device: MutexGuard<'static, Device>,
    pub key: u64,
}

impl OnStream {
    /// The device and stream of a handle. Null, 1 and 2 are the default stream of the current context: the legacy one and the
    /// per-thread one are taken for one stream.
    pub(super) fn of(handle: Handle) -> Result<Self, Failure> {
        if handle.addr() <= 2 {
            return Ok(Self { device: current()?, key: 0 });
        }
        let (ordinal, key) = decode(Kind::Stream, handle)?;
        let device = state::working(ordinal)?;
        if device.streams.contains_key(&key) { Ok(Self { device, key }) } else { Err(unknown(Kind::Stream)) }
    }

    pub(super) fn stream(&mut self) -> Result<&mut Stream, Failure> {
        self.device.streams.get_mut(&self.key).ok_or_else(|| unknown(Kind::Stream))
    }

    /// Runs a command, or records it if the stream captures.
    pub(super) fn submit(&mut self, command: Command) -> Result<(), Failure> {
        if let Some(member) = &mut self.stream()?.capture {
            return member.record(command);
        }
        // The copy to memory that is not pinned ends before the call does.
        let waits = matches!(command, Command::ToHost { to, len, .. } if !is_pinned(to, len));
        let clock = self.device.submit(self.key, command)?;
        if waits { self.device.host_learns(&clock) } else { Ok(()) }
    }

    /// Waits until the stream has nothing to do.
    fn wait(&mut self) -> Result<(), Failure> {
        self.device.drain(self.key, u64::MAX)?;
        let clock = self.device.clock_of(self.key);
        self.device.host_learns(&clock)
    }
}

/// Creates a stream in the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: Out<Handle>, flags: c_uint) -> Status {
    call("cuStreamCreate", || create(&stream, flags, None))
}

/// Creates a stream with a priority, which only decides whether tests can delay its commands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(
    stream: Out<Handle>,
    flags: c_uint,
    priority: c_int,
) -> Status {
    call("cuStreamCreateWithPriority", || create(&stream, flags, Some(priority)))
}

/// Returns the priority of a stream, moved into the range that there is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetPriority(stream: Handle, priority: Out<c_int>) -> Status {
    call("cuStreamGetPriority", || {
        let given = OnStream::of(stream)?.stream()?.priority.unwrap_or(0);
        priority.set(given.clamp(-5, 0))
    })
}

fn create(stream: &Out<Handle>, flags: c_uint, priority: Option<c_int>) -> Result<(), Failure> {
    if flags > 1 {
        return Err(Failure::invalid_value(format!("unknown stream flags {flags}")));
    }
    let mut device = current()?;
    let key = serial();
    stream.set(encode(Kind::Stream, device.ordinal, key))?;
    device.streams.insert(key, Stream { blocking: flags == 0, priority, ..Stream::default() });
    Ok(())
}

/// Destroys a stream of the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: Handle) -> Status {
    call("cuStreamDestroy_v2", || {
        let mut on = OnStream::of(stream)?;
        if on.key == 0 {
            return Err(Failure::new(Status::InvalidHandle, "the default stream cannot be destroyed"));
        }
        on.device.drain(on.key, u64::MAX)?;
        on.device.streams.remove(&on.key);
        Ok(())
    })
}

/// Waits for a stream's work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(stream: Handle) -> Status {
    call("cuStreamSynchronize", || {
        let mut on = OnStream::of(stream)?;
        on.stream()?.forbid_capture("a wait for the stream")?;
        on.wait()
    })
}

/// Queries a stream: its work is always done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamQuery(stream: Handle) -> Status {
    call("cuStreamQuery", || {
        let mut on = OnStream::of(stream)?;
        on.stream()?.forbid_capture("a question about the stream")?;
        on.wait()
    })
}

/// Makes a stream wait for an event. One that was recorded in a capture brings the stream into that capture; a capturing stream
/// may only wait for what the same capture recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) -> Status {
    call("cuStreamWaitEvent", || {
        let (ordinal, event) = decode(Kind::Event, event)?;
        // The event is looked up and unlocked first, because it may belong to another device than the stream.
        let event = {
            let mut device = state::working(ordinal)?;
            let event = device.events.get(&event).cloned().ok_or_else(|| unknown(Kind::Event))?;
            if event.captured.is_none()
                && let Some((key, time)) = event.after
            {
                device.drain(key, time)?;
            }
            event
        };
        let mut on = OnStream::of(stream)?;
        let is_default = on.key == 0;
        let stream = on.stream()?;
        match (&mut stream.capture, event.captured) {
            (None, None) => stream.clock.join(&event.clock),
            (None, Some(point)) if is_default || point.has_ended() => {
                let text = "the event was recorded in a capture that has ended, or that the default stream cannot join";
                return Err(Failure::new(Status::StreamCaptureUnsupported, text));
            }
            (None, Some(point)) => stream.capture = Some(point.fork()),
            (Some(member), Some(point)) if point.serial() == member.at.serial() => member.wait(&point),
            (Some(_), None) if event.recorded.is_none() => {}
            (Some(member), _) => {
                member.spoil();
                let text = "the stream captures, and the event was recorded outside its capture";
                return Err(Failure::new(Status::StreamCaptureIsolation, text));
            }
        }
        Ok(())
    })
}
