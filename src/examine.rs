//! What tools ask of a device besides its noise: what it is, how fast it copies and steps, what a captured graph leaves behind.
//!
//! Hidden from the documentation, because the command line and its tests are the only callers. Results are plain numbers and bits, so
//! that a tool needs no types of a device's driver, and is compiled alike with and without it.

#[cfg(feature = "cuda")]
mod cuda;

use crate::device::{Device, Place};
use corrnoise_core::{Dtype, Error, Form, Key, Plan, Result};

/// The facts about a device that its speed and its bits may depend on. None of them names a machine or a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The name of the product, such as `NVIDIA A100-SXM4-40GB`.
    pub name: String,
    /// The compute capability, such as `(8, 0)`.
    pub capability: (i32, i32),
    /// The newest CUDA version that the driver serves, as 1000·major + 10·minor.
    pub cuda_version: i32,
    /// The size of the device's memory in bytes.
    pub memory_bytes: u64,
    /// The number of multiprocessors.
    pub multiprocessors: u64,
    /// The highest clock of the multiprocessors in hertz.
    pub clock_hz: f64,
    /// The peak rate of memory in bytes per second, from its clock and its width; 0 where the driver does not say.
    pub memory_bytes_per_second: f64,
    /// The size of the L2 cache in bytes.
    pub l2_bytes: u64,
}

/// The way in which a device runs steps; none of them changes the noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The number of rows that are made at a time; 1 without `prepare` is one fused pass per step.
    pub rows_ahead: usize,
    /// Whether rows are made before their step, on a stream of their own.
    pub prepare: bool,
}

/// The steps that [`Examine::step_seconds`] times.
#[derive(Clone, Copy, Debug)]
pub struct TimedSteps<'a> {
    /// The form of the noise.
    pub form: &'a Form,
    /// The number of steps that fill the form's state, which are made before.
    pub history: usize,
    /// The number of parameters.
    pub dim: u64,
    /// The type of the gradient.
    pub dtype: Dtype,
    /// The way in which the device runs them.
    pub way: Way,
    /// The number of steps that are timed.
    pub count: usize,
}

/// The seconds of steps, in the order in which they were made.
pub struct StepSeconds {
    /// The seconds of the step alone; with [`Way::prepare`], after its row was made.
    pub step: Vec<f64>,
    /// The seconds of `prepare` and the step together, with nothing beside them; empty without [`Way::prepare`].
    pub with_prepare: Vec<f64>,
}

/// Gradients as bits: those after each step of [`Examine::replay`], and after one more launch.
pub struct Replayed {
    /// The gradient after each step of the plan, in order.
    pub steps: Vec<Vec<u32>>,
    /// The number of steps that the device counted.
    pub counted: u64,
    /// The gradient after a launch that came too late.
    pub late: Vec<u32>,
}

/// An open device that a tool examines.
pub trait Examine {
    /// Asks the driver what the device is.
    fn facts(&self) -> Result<Facts>;

    /// The place where mechanisms that run in this way are made.
    fn place(&self, way: Way) -> Place;

    /// The seconds of plain copies of `bytes` bytes within the device's memory, in the order in which they were made.
    fn copy_seconds(&self, bytes: usize, timed: usize) -> Result<Vec<f64>>;

    /// The seconds of steps, after those that fill the form's state.
    fn step_seconds(&self, steps: TimedSteps<'_>) -> Result<StepSeconds>;

    /// Makes a plan's first and last step by value and those between by launches of one captured graph, each on the gradient `before`.
    /// Then launches the graph once more, which must not leave a gradient behind that has no noise.
    fn replay(&self, plan: &Plan, key: Key, dtype: Dtype, way: Way, before: &[u32]) -> Result<Replayed>;
}

/// Opens a device to examine it. The CPU is refused: it is what other devices are compared with.
pub fn open(device: Device) -> Result<Box<dyn Examine>> {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(number) => Ok(Box::new(cuda::CudaDevice::open(number)?)),
        #[cfg(not(feature = "cuda"))]
        Device::Cuda(_) => {
            let expected = "one with an engine: this library was built without the feature `cuda`";
            Err(Error::parameter("device", device, expected))
        }
        _ => Err(Error::parameter("device", device, "a GPU, such as cuda:0")),
    }
}
