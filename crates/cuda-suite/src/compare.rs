//! One plan on both engines, step by step.

use corrnoise::cuda::cudarc::driver::{CudaStream, DeviceRepr};
use corrnoise::cuda::{Cuda, DeviceGradient, OnCuda};
use corrnoise::{Element, Key, Mechanism, Plan, Shard};
use corrnoise_testkit::gradients::{assert_same, gradient};
use std::sync::Arc;

/// A fixed key for comparisons.
pub fn key() -> Key {
    Key::from_bytes(std::array::from_fn(|i| (i * 31 + 5) as u8), "cuda")
}

/// A gradient type on both engines.
pub trait Both: Element + DeviceRepr {}
impl<T: Element + DeviceRepr> Both for T {}

/// The gradient that a step's noise is added to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Onto {
    /// A gradient of zeros: every bit of the noise shows.
    Zero,
    /// Values of all sizes: rounding shows.
    Values,
}

impl Onto {
    /// A gradient of `len` values of this kind.
    pub fn gradient<E: Both>(self, len: u64) -> Vec<E> {
        match self {
            Onto::Zero => vec![E::from_f32(0.0); len as usize],
            Onto::Values => gradient(len, E::from_f32),
        }
    }
}

/// Runs a plan on both engines on a shard of one segment and compares every step.
pub fn same_steps<E: Both>(stream: &Arc<CudaStream>, plan: &Plan, shard: &Shard, onto: Onto, what: &str) {
    let mut cpu = Mechanism::cpu(plan, key(), shard.clone()).expect("a CPU run");
    let mut cuda = Mechanism::cuda(plan, key(), shard.clone(), stream).expect("a CUDA run");
    for step in 0..plan.num_steps() {
        same_step::<E>(&mut cpu, &mut cuda, onto, &format!("{what}, step {step}"));
    }
}

/// Makes the next step on both engines and compares the gradients.
pub fn same_step<E: Both>(cpu: &mut Mechanism, cuda: &mut Mechanism<Cuda>, onto: Onto, what: &str) {
    let mut expected = onto.gradient::<E>(cpu.shard().num_coords());
    let got = on_device(cuda, &expected);
    cpu.add_to(&mut expected).expect("a CPU step");
    assert_same(&expected, &got, what);
}

/// Makes the next step on a gradient that is copied to the device and back.
pub fn on_device<E: Both>(cuda: &mut Mechanism<Cuda>, gradient: &[E]) -> Vec<E> {
    let stream = cuda.backend().stream().clone();
    let mut device = stream.clone_htod(gradient).expect("a copy to the device");
    cuda.run_step(&[DeviceGradient::from_slice(&mut device, &stream)]).expect("a CUDA step");
    stream.clone_dtoh(&device).expect("a copy from the device")
}
