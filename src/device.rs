//! The devices: their names, how they are opened, and the backend of each.
//!
//! Devices are told apart in this file and nowhere else. A new device is a crate with its backend, a feature of this package, a line of
//! [`DEVICES`] and of [`engines`], and an arm of the enums here.

#[cfg(feature = "cuda")]
mod replay;

use crate::any::add_in_host_memory;
use corrnoise_core::backend::{Backend, Step};
use corrnoise_core::raw::RawGradients;
#[cfg(feature = "cuda")]
use corrnoise_core::raw::check_lengths;
use corrnoise_core::{Cpu, CpuOptions, Dtype, Error, Gradients, Isa, Mechanism, Plan, Result, RunKey, Shard};
#[cfg(feature = "cuda")]
use corrnoise_cuda::{Cuda, CudaOptions, DeviceGradient, HostMade, HostMadeOptions, Stream};
use std::ffi::c_void;
use std::fmt;
use std::str::FromStr;

/// The engines of devices other than the CPU, each under the name of its feature.
pub mod engines {
    /// The CUDA engine, which runs the same mechanisms on a GPU.
    #[cfg(feature = "cuda")]
    pub use corrnoise_cuda as cuda;
}

/// The names of each device and what it is, of which errors and help texts are made. `cuda:N+host` is not among them: it is a GPU, used in
/// a way that few need.
const DEVICES: [(&str, &str); 3] =
    [("cpu", "all cores, SIMD"), ("scalar", "plain Rust on one thread"), ("cuda or cuda:N", "a GPU")];

/// A device by name, such as `cpu`, `cuda:1` or `cuda:1+host`. Every build knows all names; [`Place::open`] refuses one without an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// The CPU, with the fastest instructions that it has.
    #[default]
    Cpu,
    /// The CPU, with plain Rust on one thread. Gradients lie in the memory of [`Device::Cpu`].
    Scalar,
    /// A CUDA device by its number.
    Cuda(usize),
    /// A CUDA device by its number, which adds noise that the host makes. Gradients lie in the memory of [`Device::Cuda`], the state in that of
    /// the host.
    HostMade(usize),
}

impl Device {
    /// The names of all devices, as a list in words.
    pub fn names() -> String {
        DEVICES.map(|(name, _)| name).join(", ")
    }

    /// The names of all devices, each with what it is, for help texts.
    pub fn help() -> String {
        DEVICES.map(|(name, what)| format!("{name} ({what})")).join(", ")
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => write!(f, "cpu"),
            Device::Scalar => write!(f, "scalar"),
            Device::Cuda(number) => write!(f, "cuda:{number}"),
            Device::HostMade(number) => write!(f, "cuda:{number}+host"),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Device> {
        let number = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok());
        let (device, is_host_made) = match text.strip_suffix("+host") {
            Some(device) => (device, true),
            None => (text, false),
        };
        let number = match device {
            "cuda" => Some(0),
            device => device.strip_prefix("cuda:").and_then(number).flatten(),
        };
        match (text, number) {
            ("cpu", _) => Ok(Device::Cpu),
            ("scalar", _) => Ok(Device::Scalar),
            (_, Some(number)) if is_host_made => Ok(Device::HostMade(number)),
            (_, Some(number)) => Ok(Device::Cuda(number)),
            _ => Err(Error::parameter("device", format!("{text:?}"), Device::names())),
        }
    }
}

/// The place where a mechanism is made: an open device, and the options to use it with.
#[derive(Clone)]
pub enum Place {
    /// The CPU, used with these options.
    Cpu(CpuOptions),
    /// A CUDA device, in the order of a stream, used with these options.
    #[cfg(feature = "cuda")]
    Cuda(Stream, CudaOptions),
    /// A CUDA device that adds noise which the host makes, in the order of a stream, used with these options.
    #[cfg(feature = "cuda")]
    HostMade(Stream, HostMadeOptions),
}

impl Default for Place {
    fn default() -> Place {
        Place::Cpu(CpuOptions::default())
    }
}

impl Place {
    /// Opens a device, on its default stream where it has streams. `options` are those of a CPU, which makes the noise or does not.
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
            Device::Cuda(number) => {
                // SAFETY: the caller's promise, passed on.
                let stream = unsafe { Stream::of_device(number, stream) }?;
                Ok(Place::Cuda(stream, CudaOptions::default()))
            }
            #[cfg(feature = "cuda")]
            Device::HostMade(number) => {
                // SAFETY: the caller's promise, passed on.
                let stream = unsafe { Stream::of_device(number, stream) }?;
                Ok(Place::HostMade(stream, HostMadeOptions { cpu: options, ..HostMadeOptions::default() }))
            }
            #[cfg(not(feature = "cuda"))]
            Device::Cuda(_) | Device::HostMade(_) => {
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

    /// The same place, with other options if it is a CUDA device.
    #[cfg(feature = "cuda")]
    pub fn with_cuda_options(self, options: CudaOptions) -> Place {
        match self {
            Place::Cuda(stream, _) => Place::Cuda(stream, options),
            other => other,
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
    /// A backend whose noise the host makes and a CUDA device adds.
    #[cfg(feature = "cuda")]
    HostMade(Box<HostMade>),
}

/// Evaluates one expression for whichever backend there is.
macro_rules! whichever {
    ($any:expr, $backend:ident => $body:expr) => {
        match $any {
            AnyBackend::Cpu($backend) => $body,
            #[cfg(feature = "cuda")]
            AnyBackend::Cuda($backend) => $body,
            #[cfg(feature = "cuda")]
            AnyBackend::HostMade($backend) => $body,
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
            Place::Cuda(stream, options) => {
                Ok(AnyBackend::Cuda(Cuda::with_options(plan, keys, shard, stream, *options)?.into()))
            }
            #[cfg(feature = "cuda")]
            Place::HostMade(stream, options) => {
                Ok(AnyBackend::HostMade(HostMade::new(plan, keys, shard, stream, *options)?.into()))
            }
        }
    }

    /// The device in whose memory gradients are expected.
    pub fn device(&self) -> Device {
        match self {
            AnyBackend::Cpu(_) => Device::Cpu,
            #[cfg(feature = "cuda")]
            AnyBackend::Cuda(cuda) => Device::Cuda(cuda.stream().context().ordinal()),
            #[cfg(feature = "cuda")]
            AnyBackend::HostMade(host_made) => Device::Cuda(host_made.stream().context().ordinal()),
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

    /// The first step at which a gradient left the range of its number type, on a device that does not say so at that step. Waits for the device.
    pub fn first_overflow(&self) -> Result<Option<u64>> {
        match self {
            AnyBackend::Cpu(_) => Ok(None),
            #[cfg(feature = "cuda")]
            AnyBackend::Cuda(cuda) => cuda.first_overflow(),
            #[cfg(feature = "cuda")]
            AnyBackend::HostMade(host_made) => host_made.first_overflow(),
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
            (AnyBackend::Cuda(cuda), AnyGradients::Host(gradients)) => cuda.check_on_host(gradients),
            #[cfg(feature = "cuda")]
            (AnyBackend::Cuda(cuda), AnyGradients::Cuda(gradients)) => cuda.check(gradients),
            #[cfg(feature = "cuda")]
            (AnyBackend::HostMade(host_made), AnyGradients::Host(gradients)) => {
                host_made.check_on_host(gradients)
            }
            #[cfg(feature = "cuda")]
            (AnyBackend::HostMade(host_made), AnyGradients::Cuda(gradients)) => host_made.check(gradients),
            #[cfg(feature = "cuda")]
            (_, AnyGradients::Cuda(_)) => Err(not_on_this_device()),
        }
    }

    fn check_ready(&self) -> Result<()> {
        whichever!(self, backend => backend.check_ready())
    }

    fn prepare(&mut self, step: &Step<'_>) -> Result<()> {
        whichever!(self, backend => backend.prepare(step))
    }

    fn step(&mut self, step: &Step<'_>, gradients: AnyGradients<'_, '_>) -> Result<()> {
        match (self, gradients) {
            (AnyBackend::Cpu(cpu), AnyGradients::Host(gradients)) => cpu.step(step, gradients),
            #[cfg(feature = "cuda")]
            (AnyBackend::Cuda(cuda), AnyGradients::Host(gradients)) => cuda.step_on_host(step, gradients),
            #[cfg(feature = "cuda")]
            (AnyBackend::Cuda(cuda), AnyGradients::Cuda(gradients)) => cuda.step(step, gradients),
            #[cfg(feature = "cuda")]
            (AnyBackend::HostMade(host_made), AnyGradients::Host(gradients)) => {
                host_made.step_on_host(step, gradients)
            }
            #[cfg(feature = "cuda")]
            (AnyBackend::HostMade(host_made), AnyGradients::Cuda(gradients)) => {
                host_made.step(step, gradients)
            }
            #[cfg(feature = "cuda")]
            (_, AnyGradients::Cuda(_)) => Err(not_on_this_device()),
        }
    }

    fn prepare_counted(&mut self) -> Result<()> {
        whichever!(self, backend => backend.prepare_counted())
    }

    fn read_state(&self, slot: usize, first: u64, bytes: &mut [u8]) -> Result<()> {
        whichever!(self, backend => backend.read_state(slot, first, bytes))
    }

    fn write_state(&mut self, slot: usize, first: u64, bytes: &[u8]) -> Result<()> {
        whichever!(self, backend => backend.write_state(slot, first, bytes))
    }
}

/// Makes the next step of a mechanism on memory of its device: `(address, length)` of one gradient per segment of the shard.
///
/// # Safety
/// The contract is that of [`AnyMechanism::add_to_raw`](crate::AnyMechanism::add_to_raw).
pub(crate) unsafe fn add_to_raw(
    mechanism: &mut Mechanism<AnyBackend>,
    raw: &mut RawGradients,
    dtype: Dtype,
    gradients: impl ExactSizeIterator<Item = (*mut (), usize)> + Clone,
) -> Result<()> {
    match mechanism.backend() {
        // SAFETY: the caller's promise, passed on.
        AnyBackend::Cpu(_) => unsafe { add_in_host_memory(mechanism, raw, dtype, gradients) },
        #[cfg(feature = "cuda")]
        AnyBackend::Cuda(_) | AnyBackend::HostMade(_) => {
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
