//! Streams: each command runs when it is submitted, or is recorded while the stream captures.

use std::ffi::{c_int, c_uint};
use std::sync::MutexGuard;

use super::boundary::{Out, call};
use super::context::current;
use super::graph::{Capture, Command};
use super::handle::{Handle, Kind, decode, encode, serial, unknown};
use super::state::{self, Device};
use crate::status::{Failure, Status};

/// A stream, with the commands that it has recorded if it captures.
#[derive(Default)]
pub(super) struct Stream {
    pub capture: Option<Capture>,
}

impl Stream {
    /// Refuses an operation that is not allowed during a capture, and invalidates the capture.
    pub(super) fn forbid_capture(&mut self, what: &str) -> Result<(), Failure> {
        let Some(capture) = &mut self.capture else { return Ok(()) };
        capture.spoilt = true;
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
    /// per-thread one behave alike where commands run one by one.
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
        match &mut self.stream()?.capture {
            Some(capture) => capture.record(command),
            None => self.device.execute(&command),
        }
    }
}

/// Creates a stream in the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: Out<Handle>, flags: c_uint) -> Status {
    call("cuStreamCreate", || create(&stream, flags))
}

/// Creates a stream; its priority makes no difference.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(
    stream: Out<Handle>,
    flags: c_uint,
    _priority: c_int,
) -> Status {
    call("cuStreamCreateWithPriority", || create(&stream, flags))
}

fn create(stream: &Out<Handle>, flags: c_uint) -> Result<(), Failure> {
    if flags > 1 {
        return Err(Failure::invalid_value(format!("unknown stream flags {flags}")));
    }
    let mut device = current()?;
    let key = serial();
    stream.set(encode(Kind::Stream, device.ordinal, key))?;
    device.streams.insert(key, Stream::default());
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
        on.device.streams.remove(&on.key);
        Ok(())
    })
}

/// Waits for a stream's work, which is already done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(stream: Handle) -> Status {
    call("cuStreamSynchronize", || OnStream::of(stream)?.stream()?.forbid_capture("a wait for the stream"))
}

/// Queries a stream: its work is always done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamQuery(stream: Handle) -> Status {
    call("cuStreamQuery", || OnStream::of(stream)?.stream()?.forbid_capture("a question about the stream"))
}

/// Makes a stream wait for an event. Work is done when it is submitted, so outside captures there is nothing to wait for; a
/// capturing stream may only wait for what the same capture recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) -> Status {
    call("cuStreamWaitEvent", || {
        let (ordinal, event) = decode(Kind::Event, event)?;
        // The event is looked up and unlocked first, because it may belong to another device than the stream.
        let event =
            state::working(ordinal)?.events.get(&event).copied().ok_or_else(|| unknown(Kind::Event))?;
        let mut on = OnStream::of(stream)?;
        let capture = &mut on.stream()?.capture;
        match (capture, event.captured) {
            (None, None) => Ok(()),
            (None, Some(_)) => {
                let text =
                    "waiting for a captured event would join its capture, which the stand-in does not do";
                Err(Failure::new(Status::StreamCaptureUnsupported, text))
            }
            (Some(capture), captured) if captured == Some(capture.serial) => Ok(()),
            (Some(_), None) if event.recorded.is_none() => Ok(()),
            (Some(capture), _) => {
                capture.spoilt = true;
                let text = "the stream captures, and the event was recorded outside its capture";
                Err(Failure::new(Status::StreamCaptureIsolation, text))
            }
        }
    })
}
