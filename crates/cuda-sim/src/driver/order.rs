//! The order of commands: which of two commands of different streams comes first, whatever the hardware does.
//!
//! Every stream has a vector clock, an event keeps the clock of the stream at its record, and a wait joins it. What the host
//! has waited for comes before all that it submits later. A blocking stream and the default stream wait for each other, as with
//! the legacy default stream. Two commands of which neither knows the other, that use the same memory and of which one writes,
//! are a fault, although the stand-in runs commands one by one.

use std::collections::{BTreeMap, HashMap};
use std::sync::{LazyLock, Mutex};

use super::boundary::lock;
use super::graph::{Command, Host};
use super::handle::serial;
use super::memory::is_pinned;
use super::state::Device;
use crate::memory::Use;
use crate::status::{Failure, Status};

/// Up to which time everything of each stream is known to have happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock(BTreeMap<u64, u64>);

impl Clock {
    pub(super) fn join(&mut self, other: &Clock) {
        for (stream, time) in &other.0 {
            let own = self.0.entry(*stream).or_default();
            *own = (*own).max(*time);
        }
    }

    fn knows(&self, command: Use) -> bool {
        self.0.get(&command.stream).is_some_and(|time| *time >= command.time)
    }

    /// The next moment of a stream.
    pub(super) fn tick(&mut self, stream: u64) -> u64 {
        let time = serial();
        self.0.insert(stream, time);
        time
    }
}

/// A copy from pinned host memory that the host has not waited for: the bytes must stay until it has.
pub(super) struct Pending {
    command: Use,
    from: Host,
    bytes: Vec<u8>,
}

impl Pending {
    /// Whether the copy reads from `[start, start + len)` of the host.
    pub(super) fn reads(&self, start: usize, len: usize) -> bool {
        let from = self.from.0.addr();
        from < start + len && start < from + self.bytes.len()
    }
}

/// A command that a stream delays.
pub(super) struct Queued {
    command: Command,
    by: Use,
    clock: Clock,
}

/// The names of commands by number; there are as many as kernels and streams, not as commands.
static NAMES: LazyLock<Mutex<Names>> = LazyLock::new(Mutex::default);

/// Names, and the number of each.
type Names = (Vec<String>, HashMap<String, u32>);

fn number(name: String) -> u32 {
    let mut names = lock(&NAMES);
    if let Some(number) = names.1.get(&name) {
        return *number;
    }
    let number = names.0.len() as u32;
    names.0.push(name.clone());
    names.1.insert(name, number);
    number
}

fn name(number: u32) -> String {
    lock(&NAMES).0.get(number as usize).cloned().unwrap_or_default()
}

/// A command's name in messages.
pub(super) fn describe(what: &str, key: u64) -> u32 {
    number(match key {
        0 => format!("{what} on the default stream"),
        key => format!("{what} on stream {key}"),
    })
}

impl Device {
    /// The number of a stream in clocks, which tells the default streams of devices apart.
    pub(super) fn stream_number(&self, key: u64) -> u64 {
        if key == 0 { u64::MAX - self.ordinal as u64 } else { key }
    }

    /// What a command that is submitted to a stream now comes after.
    pub(super) fn clock_of(&self, key: u64) -> Clock {
        let mut clock = self.host.clone();
        let Some(own) = self.streams.get(&key) else { return clock };
        clock.join(&own.clock);
        if key == 0 {
            let blocking = self.streams.values().filter(|stream| stream.blocking);
            blocking.for_each(|stream| clock.join(&stream.clock));
        } else if own.blocking
            && let Some(default) = self.streams.get(&0)
        {
            clock.join(&default.clock);
        }
        clock
    }

    /// Places a command at the end of a stream; returns its place and what it comes after.
    pub(super) fn begin(&mut self, what: &str, key: u64) -> (Use, Clock) {
        let (mut clock, stream) = (self.clock_of(key), self.stream_number(key));
        let time = clock.tick(stream);
        if let Some(own) = self.streams.get_mut(&key) {
            own.clock = clock.clone();
        }
        (Use { stream, time, name: describe(what, key) }, clock)
    }

    /// Runs a command on a stream, or delays it.
    pub(super) fn submit(&mut self, key: u64, command: Command) -> Result<Clock, Failure> {
        let (by, clock) = self.begin(&command.name(), key);
        let may_wait = match &command {
            Command::ToDevice { from, len, .. } => is_pinned(*from, *len),
            Command::ToHost { .. } => false,
            _ => true,
        };
        let delays = self.delays && may_wait;
        if let Some(stream) = self.streams.get_mut(&key).filter(|stream| delays && stream.priority.is_some())
        {
            stream.queue.push_back(Queued { command, by, clock: clock.clone() });
            return Ok(clock);
        }
        self.drain(key, u64::MAX)?;
        self.execute(&command, by, &clock).map(|()| clock)
    }

    /// Runs the delayed commands of a stream up to a time; for the default stream, those of all that it waits for.
    pub(super) fn drain(&mut self, key: u64, until: u64) -> Result<(), Failure> {
        if key == 0 {
            let blocking = self.streams.iter().filter(|(key, stream)| **key != 0 && stream.blocking);
            let keys: Vec<u64> = blocking.map(|(key, _)| *key).collect();
            keys.into_iter().try_for_each(|key| self.drain(key, u64::MAX))?;
        }
        loop {
            let Some(stream) = self.streams.get_mut(&key) else { return Ok(()) };
            if stream.queue.front().is_none_or(|first| first.by.time > until) {
                return Ok(());
            }
            if let Some(Queued { command, by, clock }) = stream.queue.pop_front() {
                self.execute(&command, by, &clock)?;
            }
        }
    }

    /// Runs all delayed commands.
    pub(super) fn drain_all(&mut self) -> Result<(), Failure> {
        let keys: Vec<u64> = self.streams.keys().copied().collect();
        keys.into_iter().try_for_each(|key| self.drain(key, u64::MAX))
    }

    /// The host waits for all streams.
    pub(super) fn host_waits(&mut self) -> Result<(), Failure> {
        self.drain_all()?;
        let mut clock = Clock::default();
        self.streams.values().for_each(|stream| clock.join(&stream.clock));
        self.host_learns(&clock)
    }

    /// Ends a command whose touches of memory were recorded: it must be ordered with all others that used the same memory.
    pub(super) fn settle(&mut self, command: Use, clock: &Clock) -> Result<(), Failure> {
        let outcome = self.memory.settle(Some(command), |other| clock.knows(other));
        outcome.map_err(|(place, unordered)| {
            let (own, other) = (name(command.name), name(unordered.other.name));
            let text = format!(
                "{own} {} {place}, which {other} {}, and nothing orders them: no event, wait or common stream",
                unordered.verb, unordered.other_verb
            );
            let failure = Failure::new(Status::LaunchFailed, text);
            self.noticed = Some(failure.text.clone());
            self.fault = Some(failure.clone());
            failure
        })
    }

    /// Remembers a copy from pinned memory until the host has waited for it.
    pub(super) fn remember(&mut self, command: Use, from: Host, len: usize) {
        // SAFETY: whoever submitted the copy keeps the host range alive until it has run.
        let bytes = unsafe { from.slice(len) }.to_vec();
        self.pending.push(Pending { command, from, bytes });
    }

    /// The host has waited for everything that `clock` knows.
    pub(super) fn host_learns(&mut self, clock: &Clock) -> Result<(), Failure> {
        self.host.join(clock);
        let host = &self.host;
        let done: Vec<Pending> = self.pending.extract_if(.., |copy| host.knows(copy.command)).collect();
        for copy in done {
            // SAFETY: pinned memory with a pending copy is not freed, so the range is alive.
            let now = unsafe { copy.from.slice(copy.bytes.len()) };
            if let Some(at) = now.iter().zip(&copy.bytes).position(|(now, then)| now != then) {
                let what = name(copy.command.name);
                let text = format!(
                    "byte +{at} of the pinned memory that {what} reads changed before the host waited for it"
                );
                let failure = Failure::new(Status::LaunchFailed, text);
                self.noticed = Some(failure.text.clone());
                self.fault = Some(failure.clone());
                return Err(failure);
            }
        }
        Ok(())
    }
}

impl Command {
    /// The command in words.
    pub(super) fn name(&self) -> String {
        match self {
            Command::Launch(launch) => format!("kernel {}", launch.kernel.name),
            Command::ToDevice { .. } => "the copy to the device".to_string(),
            Command::ToHost { .. } => "the copy to the host".to_string(),
            Command::Copy { .. } => "the copy".to_string(),
            Command::Fill { .. } => "the fill".to_string(),
        }
    }
}
