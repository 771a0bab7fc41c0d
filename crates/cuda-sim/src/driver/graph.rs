//! Captures and graphs: commands as values, run when the graph is launched.
//!
//! Kernel arguments are copied when a launch is recorded, host memory is read and written when the graph runs, as on hardware.
//! Forked captures, allocations and frees inside a capture are refused. Capture modes are not told apart: what a mode would
//! forbid to calls outside the stream is allowed.

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::sync::Arc;

use super::boundary::{Out, call};
use super::handle::{Handle, Kind, decode, encode, serial, unknown};
use super::state;
use super::stream::OnStream;
use crate::exec::Launch;
use crate::status::{Failure, Status};

/// A command that can be submitted to a stream.
pub(super) enum Command {
    Launch(Arc<Launch>),
    ToDevice { to: u64, from: Host, len: usize },
    ToHost { to: Host, from: u64, len: usize },
    Copy { to: u64, from: u64, len: usize },
    Fill { at: u64, value: u8, len: usize },
}

/// Host memory that a caller lent.
#[derive(Clone, Copy)]
pub(super) struct Host(pub *mut c_void);

// SAFETY: the pointer is only followed when its command runs, under the contract of `slice` and `write`, on whatever thread.
unsafe impl Send for Host {}
// SAFETY: as above; a shared `Host` gives no access without that contract.
unsafe impl Sync for Host {}

impl Host {
    /// # Safety
    ///
    /// The memory is valid for reads of `len` bytes and is not written while the slice lives.
    pub(super) unsafe fn slice<'a>(self, len: usize) -> &'a [u8] {
        if len == 0 {
            return &[];
        }
        // SAFETY: by this function's contract.
        unsafe { std::slice::from_raw_parts(self.0.cast(), len) }
    }

    /// # Safety
    ///
    /// The memory is valid for writes of as many bytes, and nobody else uses it meanwhile.
    pub(super) unsafe fn write(self, bytes: &[u8]) {
        // SAFETY: by this function's contract.
        unsafe { self.0.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }
}

/// A capture that is in progress on a stream.
pub(super) struct Capture {
    /// The number that tells this capture from others.
    pub serial: u64,
    /// Whether something happened that invalidates the capture.
    pub spoilt: bool,
    commands: Vec<Command>,
}

impl Capture {
    pub(super) fn record(&mut self, command: Command) -> Result<(), Failure> {
        if self.spoilt {
            return Err(spoilt());
        }
        self.commands.push(command);
        Ok(())
    }
}

fn spoilt() -> Failure {
    Failure::new(Status::StreamCaptureInvalidated, "an earlier call spoilt the capture")
}

/// Begins to record what is submitted to a stream, in any capture mode.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) -> Status {
    call("cuStreamBeginCapture_v2", || {
        if mode > 2 {
            return Err(Failure::invalid_value(format!("unknown capture mode {mode}")));
        }
        let mut on = OnStream::of(stream)?;
        if on.key == 0 {
            let text = "the default stream cannot capture";
            return Err(Failure::new(Status::StreamCaptureUnsupported, text));
        }
        let stream = on.stream()?;
        if stream.capture.is_some() {
            return Err(Failure::new(Status::IllegalState, "the stream captures already"));
        }
        stream.capture = Some(Capture { serial: serial(), spoilt: false, commands: Vec::new() });
        Ok(())
    })
}

/// Ends a capture and returns what was recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) -> Status {
    call("cuStreamEndCapture", || {
        graph.set(std::ptr::null_mut())?;
        let mut on = OnStream::of(stream)?;
        let capture = on.stream()?.capture.take();
        let text = "the stream does not capture";
        let capture = capture.ok_or_else(|| Failure::new(Status::StreamCaptureUnmatched, text))?;
        if capture.spoilt {
            return Err(spoilt());
        }
        let key = serial();
        graph.set(encode(Kind::Graph, on.device.ordinal, key))?;
        on.device.graphs.insert(key, Arc::new(capture.commands));
        Ok(())
    })
}

/// Returns whether a stream captures: 0 for no, 1 for yes, 2 for a capture that was invalidated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(stream: Handle, status: Out<c_uint>) -> Status {
    call("cuStreamIsCapturing", || {
        let mut on = OnStream::of(stream)?;
        status.set(match &on.stream()?.capture {
            None => 0,
            Some(capture) if !capture.spoilt => 1,
            Some(_) => 2,
        })
    })
}

/// Makes a graph executable. Flags only tune how hardware would run it, except device launch, which is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    exec: Out<Handle>,
    graph: Handle,
    flags: c_ulonglong,
) -> Status {
    call("cuGraphInstantiateWithFlags", || {
        if flags & !0b1011 != 0 {
            return Err(Failure::invalid_value(format!("unsupported instantiation flags {flags:#x}")));
        }
        let (ordinal, key) = decode(Kind::Graph, graph)?;
        let mut device = state::working(ordinal)?;
        let commands = device.graphs.get(&key).cloned().ok_or_else(|| unknown(Kind::Graph))?;
        let key = serial();
        exec.set(encode(Kind::GraphExec, ordinal, key))?;
        device.graphs.insert(key, commands);
        Ok(())
    })
}

/// Runs a graph's commands in the order in which they were recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphLaunch(exec: Handle, stream: Handle) -> Status {
    call("cuGraphLaunch", || {
        let (ordinal, key) = decode(Kind::GraphExec, exec)?;
        let mut on = OnStream::of(stream)?;
        if on.device.ordinal != ordinal {
            return Err(Failure::new(Status::InvalidHandle, "graph and stream are of different devices"));
        }
        on.stream()?.forbid_capture("the launch of a graph")?;
        let commands = on.device.graphs.get(&key).cloned().ok_or_else(|| unknown(Kind::GraphExec))?;
        commands.iter().try_for_each(|command| {
            if let Command::Launch(launch) = command
                && !on.device.modules.values().any(|module| module.has(&launch.kernel))
            {
                let text = format!(
                    "the module of kernel {} was unloaded before the graph's launch",
                    launch.kernel.name
                );
                return Err(Failure::new(Status::InvalidHandle, text));
            }
            on.device.execute(command)
        })
    })
}

/// Prepares a graph's launch, for which nothing is needed here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphUpload(exec: Handle, stream: Handle) -> Status {
    call("cuGraphUpload", || {
        let (_, key) = decode(Kind::GraphExec, exec)?;
        let on = OnStream::of(stream)?;
        if on.device.graphs.contains_key(&key) { Ok(()) } else { Err(unknown(Kind::GraphExec)) }
    })
}

/// Destroys an executable graph of the current device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecDestroy(exec: Handle) -> Status {
    call("cuGraphExecDestroy", || destroy(Kind::GraphExec, exec))
}

/// Destroys a graph; executable graphs made from it stay valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphDestroy(graph: Handle) -> Status {
    call("cuGraphDestroy", || destroy(Kind::Graph, graph))
}

fn destroy(kind: Kind, handle: Handle) -> Result<(), Failure> {
    let (ordinal, key) = decode(kind, handle)?;
    state::working(ordinal)?.graphs.remove(&key).map(drop).ok_or_else(|| unknown(kind))
}
