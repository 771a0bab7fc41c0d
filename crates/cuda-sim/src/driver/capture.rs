//! Captures: what streams record instead of running it.
//!
//! A capture begins on one stream. An event that is recorded on a capturing stream and waited for by another one brings that one
//! into the capture, as a branch; every branch must be joined, by an event in the other direction, before the capture ends.

use std::ffi::c_uint;
use std::sync::{Arc, Mutex};

use super::boundary::{Out, call, lock};
use super::graph::{Command, Graph, Node};
use super::handle::{Handle, Kind, encode, serial};
use super::stream::OnStream;
use crate::status::{Failure, Status};

/// A capture that is in progress on one or more streams.
pub(super) struct Capture {
    /// The number that tells this capture from others.
    pub serial: u64,
    /// Whether something happened that invalidates the capture.
    pub spoilt: bool,
    /// Whether the capture has ended.
    ended: bool,
    nodes: Vec<Node>,
    branches: usize,
}

/// A place in a capture: the nodes that the next one comes after.
#[derive(Clone)]
pub(super) struct Point {
    pub capture: Arc<Mutex<Capture>>,
    tail: Vec<usize>,
}

/// A stream's part in a capture.
pub(super) struct Member {
    pub at: Point,
    /// The number of the branch; 0 is the stream that began the capture.
    branch: usize,
}

impl Point {
    pub(super) fn serial(&self) -> u64 {
        lock(&self.capture).serial
    }

    pub(super) fn has_ended(&self) -> bool {
        lock(&self.capture).ended
    }

    /// Brings a stream into the capture, after this place.
    pub(super) fn fork(&self) -> Member {
        let mut capture = lock(&self.capture);
        capture.branches += 1;
        Member { at: self.clone(), branch: capture.branches - 1 }
    }
}

impl Member {
    fn begin() -> Self {
        let capture =
            Capture { serial: serial(), spoilt: false, ended: false, nodes: Vec::new(), branches: 1 };
        Self { at: Point { capture: Arc::new(Mutex::new(capture)), tail: Vec::new() }, branch: 0 }
    }

    pub(super) fn record(&mut self, command: Command) -> Result<(), Failure> {
        let mut capture = lock(&self.at.capture);
        if capture.spoilt {
            return Err(spoilt());
        }
        let after = std::mem::replace(&mut self.at.tail, vec![capture.nodes.len()]);
        capture.nodes.push(Node { command, after, branch: self.branch });
        Ok(())
    }

    /// Makes what is recorded next come after `point` too, which is of the same capture.
    pub(super) fn wait(&mut self, point: &Point) {
        self.at.tail.extend(&point.tail);
        self.at.tail.sort_unstable();
        self.at.tail.dedup();
    }

    pub(super) fn spoil(&self) {
        lock(&self.at.capture).spoilt = true;
    }
}

/// Whether all nodes come before the end of the branch that began the capture.
fn is_joined(nodes: &[Node], tail: &[usize]) -> bool {
    let mut joined = vec![false; nodes.len()];
    tail.iter().for_each(|node| joined[*node] = true);
    for (index, node) in nodes.iter().enumerate().rev() {
        if joined[index] {
            node.after.iter().for_each(|before| joined[*before] = true);
        }
    }
    joined.into_iter().all(|joined| joined)
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
        stream.capture = Some(Member::begin());
        Ok(())
    })
}

/// Ends a capture on the stream that began it and returns what was recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) -> Status {
    call("cuStreamEndCapture", || {
        graph.set(std::ptr::null_mut())?;
        let mut on = OnStream::of(stream)?;
        let unmatched = |text| Failure::new(Status::StreamCaptureUnmatched, text);
        let member = on.stream()?.capture.take().ok_or_else(|| unmatched("the stream does not capture"))?;
        if member.branch != 0 {
            member.spoil();
            on.stream()?.capture = Some(member);
            return Err(unmatched("another stream began the capture"));
        }
        let mut capture = lock(&member.at.capture);
        capture.ended = true;
        for stream in on.device.streams.values_mut() {
            let of_this = |other: &Member| Arc::ptr_eq(&other.at.capture, &member.at.capture);
            stream.capture.take_if(|other| of_this(other));
        }
        if capture.spoilt {
            return Err(spoilt());
        }
        let nodes = std::mem::take(&mut capture.nodes);
        if !is_joined(&nodes, &member.at.tail) {
            let text = "a stream that an event brought into the capture was not joined by another event";
            return Err(Failure::new(Status::StreamCaptureUnjoined, text));
        }
        let key = serial();
        graph.set(encode(Kind::Graph, on.device.ordinal, key))?;
        let branches = (0..capture.branches).map(|_| serial()).collect();
        on.device.graphs.insert(key, Arc::new(Graph { nodes, branches }));
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
            Some(member) if !lock(&member.at.capture).spoilt => 1,
            Some(_) => 2,
        })
    })
}
