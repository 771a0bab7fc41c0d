//! Fourier transforms of f64 for the planner, compiled once.
//!
//! rustfft is generic: whoever plans a transform compiles all of its code for every instruction set, 30 seconds of a core at full
//! optimisation. Behind this crate's functions, which are not generic, the planner and its tests share one copy.

pub use rustfft::num_complex::Complex64;
use rustfft::{Fft, FftPlanner};
use std::sync::Arc;

/// The forward and the inverse transform of one size.
#[derive(Clone)]
pub struct Transforms {
    forward: Arc<dyn Fft<f64>>,
    inverse: Arc<dyn Fft<f64>>,
}

impl Transforms {
    /// Plans the transforms of `size` values, at least 1.
    pub fn new(size: usize) -> Transforms {
        let mut planner = FftPlanner::new();
        Transforms { forward: planner.plan_fft_forward(size), inverse: planner.plan_fft_inverse(size) }
    }

    /// Transforms in place: `X_k = Σ_t x_t e^{−2πi·kt/size}`. There must be as many values as planned for.
    pub fn forward(&self, values: &mut [Complex64]) {
        self.forward.process(values);
    }

    /// Transforms back in place, without normalisation: `x_t = Σ_k X_k e^{2πi·kt/size}`, which is `size` times the original.
    pub fn inverse(&self, values: &mut [Complex64]) {
        self.inverse.process(values);
    }
}
