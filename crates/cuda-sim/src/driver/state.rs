//! The simulated devices and the objects that belong to each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use super::boundary::lock;
use super::event::Event;
use super::graph::{Command, Graph};
use super::handle::serial;
use super::memory::is_pinned;
use super::module::Loaded;
use super::order::{Clock, Pending};
use super::stream::Stream;
use crate::exec::{self, Watch};
use crate::memory::{Memory, Use};
use crate::ptx::Kernel;
use crate::status::{Failure, Status};
use crate::traffic::Traffic;

/// The number of devices. The last one has a compute capability that the kernels do not support, so that tests see the refusal; the one
/// before it lacks the instructions of Ampere, so that tests run what stands in for them.
pub(super) const NUM_DEVICES: usize = 8;

/// A mutation of PTX that is loaded: it replaces the `nth` occurrence of `from`.
pub(super) struct Mutation {
    pub from: String,
    pub to: String,
    pub nth: usize,
    /// Whether text in which `from` does not occur that often is loaded as it is, rather than refused.
    pub optional: bool,
}

/// One device with its primary context.
pub(super) struct Device {
    pub ordinal: usize,
    /// How often the primary context is retained.
    pub retained: u32,
    /// Serial number of the primary context, if it exists.
    pub context: Option<u64>,
    /// The failure of a launch. After it, nothing works in this context.
    pub fault: Option<Failure>,
    pub memory: Memory,
    pub streams: HashMap<u64, Stream>,
    pub events: HashMap<u64, Event>,
    pub modules: HashMap<u64, Loaded>,
    /// Kernels by the serial number of their function handle, with that of their module.
    pub functions: HashMap<u64, (u64, Arc<Kernel>)>,
    /// Recorded graphs and their executable forms.
    pub graphs: HashMap<u64, Arc<Graph>>,
    /// What the host has waited for.
    pub host: Clock,
    /// The copies from pinned memory that the host has not waited for.
    pub pending: Vec<Pending>,
    /// The last access that nothing orders, or use of pinned memory that came too early; it outlives its context.
    pub noticed: Option<String>,
    /// Whether streams with a priority delay their commands until something waits for them.
    pub delays: bool,
    pub traffic: Traffic,
    pub mutations: Vec<Mutation>,
    pub watch: Watch,
}

impl Device {
    fn new(ordinal: usize) -> Self {
        Self {
            ordinal,
            retained: 0,
            context: None,
            fault: None,
            memory: Memory::new(ordinal),
            streams: HashMap::new(),
            events: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            graphs: HashMap::new(),
            host: Clock::default(),
            pending: Vec::new(),
            noticed: None,
            delays: false,
            traffic: Traffic::default(),
            mutations: Vec::new(),
            watch: Watch::default(),
        }
    }

    /// The compute capability, written as 80 for 8.0.
    pub(super) fn capability(&self) -> u32 {
        capability(self.ordinal)
    }

    /// Creates a fresh context; every object of the context before it is gone.
    pub(super) fn new_context(&mut self) -> u64 {
        self.destroy_context();
        let context = serial();
        self.context = Some(context);
        self.streams.insert(0, Stream { blocking: true, ..Stream::default() });
        context
    }

    /// Ends the context and frees every object in it. Traffic counts, mutations and watched lines belong to the device and stay.
    pub(super) fn destroy_context(&mut self) {
        self.context = None;
        self.fault = None;
        self.memory.clear();
        self.streams.clear();
        self.events.clear();
        self.modules.clear();
        self.functions.clear();
        self.graphs.clear();
        self.host = Clock::default();
        self.pending.clear();
    }

    /// Runs a command, which must be ordered with those that used the same memory. A launch that fails leaves the context
    /// faulted, as on hardware.
    pub(super) fn execute(&mut self, command: &Command, by: Use, clock: &Clock) -> Result<(), Failure> {
        if let Err(failure) = self.run(command, by) {
            // What a refused command touched concerns nobody.
            let _ = self.memory.settle(None, |_| true);
            return Err(failure);
        }
        self.settle(by, clock)
    }

    fn run(&mut self, command: &Command, by: Use) -> Result<(), Failure> {
        match command {
            Command::Launch(launch) => {
                let outcome = exec::run(launch, &mut self.memory, &mut self.traffic, &mut self.watch);
                outcome.inspect_err(|failure| self.fault = Some(failure.clone()))
            }
            Command::ToDevice { to, from, len } => {
                // SAFETY: whoever submitted the copy keeps the host range alive and unchanged until it has run.
                self.memory.write(*to, unsafe { from.slice(*len) })?;
                self.memory.touch(*to, *len, true);
                if is_pinned(*from, *len) {
                    self.remember(by, *from, *len);
                }
                Ok(())
            }
            Command::ToHost { to, from, len } => {
                let mut bytes = vec![0; *len];
                self.memory.read(*from, &mut bytes)?;
                self.memory.touch(*from, *len, false);
                // SAFETY: whoever submitted the copy keeps the host range alive and unused until it has run.
                unsafe { to.write(&bytes) };
                Ok(())
            }
            Command::Copy { to, from, len } => {
                self.memory.copy(*to, *from, *len)?;
                self.memory.touch(*from, *len, false);
                self.memory.touch(*to, *len, true);
                Ok(())
            }
            Command::Fill { at, value, len } => {
                self.memory.fill(*at, *value, *len)?;
                self.memory.touch(*at, *len, true);
                Ok(())
            }
        }
    }
}

/// The compute capabilities, which tests may change.
pub(super) static CAPABILITIES: [AtomicU32; NUM_DEVICES] = {
    let mut capabilities = [const { AtomicU32::new(80) }; NUM_DEVICES];
    capabilities[NUM_DEVICES - 2] = AtomicU32::new(75);
    capabilities[NUM_DEVICES - 1] = AtomicU32::new(61);
    capabilities
};

pub(super) fn capability(ordinal: usize) -> u32 {
    CAPABILITIES[ordinal].load(Ordering::Relaxed)
}

static DEVICES: LazyLock<[Mutex<Device>; NUM_DEVICES]> =
    LazyLock::new(|| std::array::from_fn(|ordinal| Mutex::new(Device::new(ordinal))));

/// Locks a device, whatever the state of its context.
pub(super) fn device(ordinal: usize) -> Result<MutexGuard<'static, Device>, Failure> {
    let device = DEVICES.get(ordinal).map(lock);
    device.ok_or_else(|| Failure::new(Status::InvalidDevice, format!("there is no device {ordinal}")))
}

/// Locks a device whose context exists and is not faulted.
pub(super) fn working(ordinal: usize) -> Result<MutexGuard<'static, Device>, Failure> {
    let device = device(ordinal)?;
    if device.context.is_none() {
        return Err(Failure::new(Status::InvalidContext, format!("device {ordinal} has no context")));
    }
    match &device.fault {
        Some(fault) => Err(fault.clone()),
        None => Ok(device),
    }
}
