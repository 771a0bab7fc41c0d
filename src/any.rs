//! A mechanism whose device is chosen at run time, which C, Python, candle and the command line share.
//!
//! A [`Mechanism`] is compiled for one backend. [`AnyBackend`] is a backend that is one of several, so [`AnyMechanism`] has all that a
//! mechanism has, and devices are told apart in this file and nowhere else. A new device is a crate with its backend, a feature of this
//! package, and an arm of the enums here.

use corrnoise_core::backend::{Backend, Step};
use corrnoise_core::raw::RawGradients;
use corrnoise_core::{
    Checkpoint, Cpu, CpuOptions, Dtype, Element, Error, Gradients, Isa, Key, Mechanism, Plan, Result, Resume,
    RunKey, Shard, with_element,
};
#[cfg(feature = "cuda")]
use corrnoise_core::{backend::Replay, raw::check_lengths};
#[cfg(feature = "cuda")]
use corrnoise_cuda::{Cuda, DeviceGradient, Stream};
use std::ffi::c_void;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::str::FromStr;

/// A device by name: `cpu`, `scalar`, `cuda` or `cuda:N`. Every build knows all names; [`Place::open`] refuses one without an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The CPU, with the fastest instructions that it has.
    #[default]
    Cpu,
    /// The CPU, with plain Rust on one thread. Gradients lie in the memory of [`Device::Cpu`].
    Scalar,
    /// A CUDA device by its number.
    Cuda(usize),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => write!(f, "cpu"),
            Device::Scalar => write!(f, "scalar"),
            Device::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Device> {
        let number = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok());
        match (text, text.strip_prefix("cuda:").and_then(number).flatten()) {
            ("cpu", _) => Ok(Device::Cpu),
            ("scalar", _) => Ok(Device::Scalar),
            ("cuda", _) => Ok(Device::Cuda(0)),
            (_, Some(number)) => Ok(Device::Cuda(number)),
            _ => Err(Error::parameter("device", format!("{text:?}"), "cpu, scalar, cuda or cuda:N")),
        }
    }
}

/// The place where a mechanism is made: an open device, and the options to use it with.
#[derive(Clone)]
pub enum Place {
    /// The CPU, used with these options.
    Cpu(CpuOptions),
    /// A CUDA device, in the order of a stream.
    #[cfg(feature = "cuda")]
    Cuda(Stream),
}

impl Default for Place {
    fn default() -> Place {
        Place::Cpu(CpuOptions::default())
    }
}

impl Place {
    /// Opens a device, on its default stream where it has streams. `options` are those of a CPU.
    pub fn open(device: Device, options: CpuOptions) -> Result<Place> {
        // SAFETY: null is the default stream.
        unsafe { Place::on_stream(device, options, std::ptr::null_mut()) }
    }

    /// Opens a device on a stream of another framework; null is the default stream.
    ///
    /// # Safety
    /// `stream` is null or a stream of the device's primary context that outlives every mechanism made here.
    pub unsafe fn on_stream(device: Device, options: CpuOptions, stream: *mut c_void) -> Result<Place> {
        match device {
            #[cfg(feature = "cuda")]
            // SAFETY: the caller's promise, passed on.
            Device::Cuda(number) => Ok(Place::Cuda(unsafe { Stream::of_device(number, stream) }?)),
            #[cfg(not(feature = "cuda"))]
            Device::Cuda(_) => {
                let expected = "cpu or scalar: this library was built without the feature `cuda`";
                Err(Error::parameter("device", device, expected))
            }
            _ if !stream.is_null() => {
                Err(Error::parameter("stream", format!("{:#x}", stream.addr()), "0 on the CPU"))
            }
            Device::Cpu => Ok(Place::Cpu(options)),
            Device::Scalar => Ok(Place::Cpu(CpuOptions { threads: 1, isa: Isa::Scalar, ..options })),
        }
    }
}

/// A backend on any device. Gradients in host memory are accepted by all: devices copy them, which is for tools and tests.
pub enum AnyBackend {
    /// A backend of the CPU engine.
    Cpu(Box<Cpu>),
    /// A backend of the CUDA engine.
    #[cfg(feature = "cuda")]
    Cuda(Box<Cuda>),
}

/// Evaluates one expression for whichever backend there is.
macro_rules! whichever {
    ($any:expr, $backend:ident => $body:expr) => {
        match $any {
            AnyBackend::Cpu($backend) => $body,
            #[cfg(feature = "cuda")]
            AnyBackend::Cuda($backend) => $body,
        }
    };
}

/// Gradients as [`AnyBackend`] takes them.
pub enum AnyGradients<'list, 'memory> {
    /// Gradients that lie in host memory.
    Host(Gradients<'list, 'memory>),
    /// Gradients that lie in the memory of a CUDA device.
    #[cfg(feature = "cuda")]
    Cuda(&'list [DeviceGradient<'memory>]),
}

impl AnyBackend {
    /// A backend whose state is that before the first step. `keys` are those of the run's incarnations, by number.
    pub fn new(plan: &Plan, keys: &[RunKey], shard: &Shard, place: &Place) -> Result<AnyBackend> {
        match place {
            Place::Cpu(options) => Ok(AnyBackend::Cpu(Cpu::new(plan, keys, shard, *options)?.into())),
            #[cfg(feature = "cuda")]
            Place::Cuda(stream) => Ok(AnyBackend::Cuda(Cuda::new(plan, keys, shard, stream)?.into())),
        }
    }

    /// The device in whose memory gradients are expected.
    pub fn device(&self) -> Device {
        match self {
            AnyBackend::Cpu(_) => Device::Cpu,
            #[cfg(feature = "cuda")]
            AnyBackend::Cuda(cuda) => Device::Cuda(cuda.stream().context().ordinal()),
        }
    }

    /// A text for people that names the instructions and the threads in use, or the device.
    pub fn describe(&self) -> String {
        whichever!(self, backend => backend.describe())
    }

    /// The bytes of state that the backend holds.
    pub fn state_bytes(&self) -> u64 {
        whichever!(self, backend => backend.state_bytes())
    }

    /// The first step at which an f16 gradient left its range, on a device that does not say so at that step. Waits for the device.
    pub fn first_overflow(&self) -> Result<Option<u64>> {
        match self {
            AnyBackend::Cpu(_) => Ok(None),
            #[cfg(feature = "cuda")]
            AnyBackend::Cuda(cuda) => cuda.first_overflow(),
        }
    }
}

/// The refusal of device memory by a backend that is elsewhere.
#[cfg(feature = "cuda")]
fn not_on_this_device() -> Error {
    Error::parameter("gradients", "in the memory of a CUDA device", "host memory, where the mechanism runs")
}

impl Backend for AnyBackend {
    type Gradients<'list, 'memory: 'list> = AnyGradients<'list, 'memory>;

    fn check(&self, gradients: &AnyGradients<'_, '_>) -> Result<()> {
        match (self, gradients) {
            (AnyBackend::Cpu(cpu), AnyGradients::Host(gradients)) => cpu.check(gradients),
            #[cfg(feature = "cuda")]
            (AnyBackend::Cpu(_), AnyGradients::Cuda(_)) => Err(not_on_this_device()),
            #[cfg(feature = "cuda")]
            (AnyBackend::Cuda(cuda), AnyGradients::Host(gradients)) => cuda.check_on_host(gradients),
            #[cfg(feature = "cuda")]
            (AnyBackend::Cuda(cuda), AnyGradients::Cuda(gradients)) => cuda.check(gradients),
        }
    }

    fn check_ready(&self) -> Result<()> {
        whichever!(self, backend => backend.check_ready())
    }

    fn step(&mut self, step: &Step<'_>, gradients: AnyGradients<'_, '_>) -> Result<()> {
        match (self, gradients) {
            (AnyBackend::Cpu(cpu), AnyGradients::Host(gradients)) => cpu.step(step, gradients),
            #[cfg(feature = "cuda")]
            (AnyBackend::Cpu(_), AnyGradients::Cuda(_)) => Err(not_on_this_device()),
            #[cfg(feature = "cuda")]
            (AnyBackend::Cuda(cuda), AnyGradients::Host(gradients)) => cuda.step_on_host(step, gradients),
            #[cfg(feature = "cuda")]
            (AnyBackend::Cuda(cuda), AnyGradients::Cuda(gradients)) => cuda.step(step, gradients),
        }
    }

    fn read_state(&self, slot: usize, first: u64, bytes: &mut [u8]) -> Result<()> {
        whichever!(self, backend => backend.read_state(slot, first, bytes))
    }

    fn write_state(&mut self, slot: usize, first: u64, bytes: &[u8]) -> Result<()> {
        whichever!(self, backend => backend.write_state(slot, first, bytes))
    }
}

/// The refusal of a graph by a backend that has none.
#[cfg(feature = "cuda")]
fn no_graphs() -> Error {
    Error::Device("the CPU engine replays no graphs: make the steps one by one".into())
}

#[cfg(feature = "cuda")]
impl Replay for AnyBackend {
    fn schedule(&mut self, step: &Step<'_>) -> Result<()> {
        match self {
            AnyBackend::Cpu(_) => Err(no_graphs()),
            AnyBackend::Cuda(cuda) => cuda.schedule(step),
        }
    }

    fn start(&mut self) -> Result<()> {
        match self {
            AnyBackend::Cpu(_) => Err(no_graphs()),
            AnyBackend::Cuda(cuda) => cuda.start(),
        }
    }

    fn enqueue(&mut self, gradients: AnyGradients<'_, '_>) -> Result<()> {
        match (self, gradients) {
            (AnyBackend::Cuda(cuda), AnyGradients::Cuda(gradients)) => cuda.enqueue(gradients),
            (AnyBackend::Cuda(_), AnyGradients::Host(_)) => {
                Err(Error::parameter("gradients", "in host memory", "memory of the device that replays"))
            }
            (AnyBackend::Cpu(_), _) => Err(no_graphs()),
        }
    }

    fn stop(&mut self) -> Result<u64> {
        match self {
            AnyBackend::Cpu(_) => Ok(0),
            AnyBackend::Cuda(cuda) => cuda.stop(),
        }
    }
}

/// A [`Mechanism`] on any device, with the memory that steps on foreign addresses reuse.
///
/// ```
/// use corrnoise::any::{AnyMechanism, Place};
/// use corrnoise::{CpuOptions, Form, Key, Plan, Shard};
///
/// let plan = Plan::new(10, Form::independent(), 0.5)?;
/// let place = Place::open("cpu".parse()?, CpuOptions::default())?;
/// let mut noise = AnyMechanism::new(&plan, Key::from_os()?, Shard::whole(3)?, &place)?;
/// let mut gradient = [1.0_f32; 3];
/// noise.add_to(&mut gradient)?;
/// assert_eq!(noise.next_step(), 1);
/// # Ok::<(), corrnoise::Error>(())
/// ```
pub struct AnyMechanism {
    mechanism: Mechanism<AnyBackend>,
    /// The place, declared after the mechanism so that it is dropped later: the last owner of a device's context closes it.
    place: Place,
    raw: RawGradients,
}

impl AnyMechanism {
    fn on(place: &Place, mechanism: Mechanism<AnyBackend>) -> AnyMechanism {
        AnyMechanism { mechanism, place: place.clone(), raw: RawGradients::default() }
    }

    /// Begins a run, at step 0.
    pub fn new(plan: &Plan, key: Key, shard: Shard, place: &Place) -> Result<AnyMechanism> {
        let make = |keys: &[RunKey], shard: &Shard| AnyBackend::new(plan, keys, shard, place);
        Ok(Self::on(place, Mechanism::with_backend(plan, key, shard, make)?))
    }

    /// Begins a run, unless a state is loaded before its first step; see [`Mechanism::awaiting_state`].
    pub fn awaiting_state(plan: &Plan, key: Key, shard: Shard, place: &Place) -> Result<AnyMechanism> {
        let make = |keys: &[RunKey], shard: &Shard| AnyBackend::new(plan, keys, shard, place);
        Ok(Self::on(place, Mechanism::awaiting_state(plan, key, shard, make)?))
    }

    /// Resumes from checkpoints, whichever device wrote them; see [`Mechanism::resume_from`].
    pub fn resume(
        plan: &Plan,
        key: Key,
        shard: Shard,
        checkpoints: Vec<Checkpoint>,
        resume: Resume,
        place: &Place,
    ) -> Result<AnyMechanism> {
        let make = |keys: &[RunKey], shard: &Shard| AnyBackend::new(plan, keys, shard, place);
        Ok(Self::on(place, Mechanism::resume_from(plan, key, shard, checkpoints, resume, make)?))
    }

    /// Resumes from checkpoints and drops the present state; see [`Mechanism::reload_from`].
    pub fn reload(&mut self, checkpoints: Vec<Checkpoint>, resume: Resume) -> Result<()> {
        let AnyMechanism { mechanism, place, .. } = self;
        let plan = mechanism.plan().clone();
        let make = |keys: &[RunKey], shard: &Shard| AnyBackend::new(&plan, keys, shard, place);
        mechanism.reload_from(checkpoints, resume, make)
    }

    /// Adds the noise of the next step to a gradient in host memory, for a shard of one segment. A device copies it there and back.
    pub fn add_to<E: Element>(&mut self, gradient: &mut [E]) -> Result<()> {
        self.mechanism.run_step(AnyGradients::Host(Gradients::new(&mut [gradient])))
    }

    /// Adds the noise of the next step to memory of [`AnyMechanism::device`]: `(address, length)` of one gradient per segment of the
    /// shard. Refuses addresses that are null, misaligned or overlap, and lengths that are not the shard's.
    ///
    /// # Safety
    /// The memory lies on that device and holds initialised values of `dtype`. Nobody else uses it until this returns, or on a device
    /// until the stream has passed the step.
    pub unsafe fn add_to_raw(
        &mut self,
        dtype: Dtype,
        gradients: impl ExactSizeIterator<Item = (*mut (), usize)> + Clone,
    ) -> Result<()> {
        let AnyMechanism { mechanism, raw, .. } = self;
        match mechanism.backend() {
            AnyBackend::Cpu(_) => with_element!(dtype, E => {
                let typed = gradients.map(|(address, len)| (address.cast::<E>(), len));
                // SAFETY: the caller's promise, passed on.
                unsafe {
                    raw.with_slices(mechanism, typed, |mechanism, slices| {
                        mechanism.run_step(AnyGradients::Host(Gradients::new(slices)))
                    })
                }
            }),
            #[cfg(feature = "cuda")]
            AnyBackend::Cuda(_) => {
                check_lengths(mechanism.shard(), gradients.clone().map(|(_, len)| len as u64))?;
                let spans = gradients.clone().map(|(address, len)| (address.addr(), len));
                raw.check_addresses(spans, dtype.bytes())?;
                // SAFETY: of the right lengths, aligned, not overlapping; the rest is the caller's promise.
                let gradient = |(address, len): (*mut (), usize)| unsafe {
                    DeviceGradient::from_raw(address.addr() as u64, len as u64, dtype)
                };
                let list: Vec<DeviceGradient<'_>> = gradients.map(gradient).collect();
                mechanism.run_step(AnyGradients::Cuda(&list))
            }
        }
    }

    /// The device in whose memory [`AnyMechanism::add_to_raw`] expects gradients.
    pub fn device(&self) -> Device {
        self.backend().device()
    }

    /// A text for people that names the instructions and the threads in use, or the device.
    pub fn describe(&self) -> String {
        self.backend().describe()
    }

    /// The bytes of state that this process holds.
    pub fn state_bytes(&self) -> u64 {
        self.backend().state_bytes()
    }
}

impl Deref for AnyMechanism {
    type Target = Mechanism<AnyBackend>;

    fn deref(&self) -> &Mechanism<AnyBackend> {
        &self.mechanism
    }
}

impl DerefMut for AnyMechanism {
    fn deref_mut(&mut self) -> &mut Mechanism<AnyBackend> {
        &mut self.mechanism
    }
}
