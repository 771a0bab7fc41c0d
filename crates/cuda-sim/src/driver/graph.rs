//! Graphs: commands as values, run when the graph is launched.
//!
//! Kernel arguments are copied when a launch is recorded, host memory is read and written when the graph runs, as on hardware.
//! Allocations and frees inside a capture are refused. Capture modes are not told apart: what a mode would
//! forbid to calls outside the stream is allowed.

use std::ffi::{c_ulonglong, c_void};
use std::sync::Arc;

use super::boundary::{Out, call};
use super::handle::{Handle, Kind, decode, encode, serial, unknown};
use super::order::{Clock, describe};
use super::state::{self, Device};
use super::stream::OnStream;
use crate::exec::Launch;
use crate::memory::Use;
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

/// A command of a graph.
pub(super) struct Node {
    pub command: Command,
    /// The nodes that come before this one; without any, it comes first.
    pub after: Vec<usize>,
    /// The branch that the node belongs to; branch 0 is of the stream that the graph is launched on.
    pub branch: usize,
}

/// A recorded graph, whose nodes are in an order in which they may run.
pub(super) struct Graph {
    pub nodes: Vec<Node>,
    /// The number of each branch in clocks.
    pub branches: Vec<u64>,
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

/// Runs a graph's commands in the order in which they were recorded. Those of branches that nothing joins are not ordered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphLaunch(exec: Handle, stream: Handle) -> Status {
    call("cuGraphLaunch", || {
        let (ordinal, key) = decode(Kind::GraphExec, exec)?;
        let mut on = OnStream::of(stream)?;
        if on.device.ordinal != ordinal {
            return Err(Failure::new(Status::InvalidHandle, "graph and stream are of different devices"));
        }
        on.stream()?.forbid_capture("the launch of a graph")?;
        let graph = on.device.graphs.get(&key).cloned().ok_or_else(|| unknown(Kind::GraphExec))?;
        run(&mut on.device, &graph, on.key)
    })
}

fn run(device: &mut Device, graph: &Graph, key: u64) -> Result<(), Failure> {
    device.drain(key, u64::MAX)?;
    let (start, own) = (device.clock_of(key), device.stream_number(key));
    let mut clocks: Vec<Clock> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        if let Command::Launch(launch) = &node.command
            && !device.modules.values().any(|module| module.has(&launch.kernel))
        {
            let name = &launch.kernel.name;
            let text = format!("the module of kernel {name} was unloaded before the graph's launch");
            return Err(Failure::new(Status::InvalidHandle, text));
        }
        let mut clock = start.clone();
        node.after.iter().for_each(|before| clock.join(&clocks[*before]));
        let stream = if node.branch == 0 { own } else { graph.branches[node.branch] };
        let what = format!("{} in branch {} of a graph", node.command.name(), node.branch);
        let command = Use { stream, time: clock.tick(stream), name: describe(&what, key) };
        device.execute(&node.command, command, &clock)?;
        clocks.push(clock);
    }
    if let Some(stream) = device.streams.get_mut(&key) {
        clocks.iter().for_each(|clock| stream.clock.join(clock));
    }
    Ok(())
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
