//! Fourier transforms of f64 for the planner, compiled once.
//!
//! rustfft is generic: whoever plans a transform compiles all of its code for every instruction set, 30 seconds of a core at full
//! optimisation. Behind this crate's functions, which are not generic, the planner and its tests share one copy.

pub use rustfft::num_complex::Complex64;
use rustfft::{Fft, FftPlanner};
use std::sync::Arc;

/// The transforms of one size, there and back.
#[derive(Clone)]
pub struct Transforms {
    forward: Arc<dyn Fft<f64>>,
    inverse: Arc<dyn Fft<f64>>,
}

impl Transforms {
    /// Plans both. Not 0 values.
    pub fn new(size: usize) -> Transforms {
        let mut planner = FftPlanner::new();
        Transforms { forward: planner.plan_fft_forward(size), inverse: planner.plan_fft_inverse(size) }
    }

    /// `X_k = Σ_t x_t e^{−2πi·kt/size}`, in place. As many values as planned for.
    pub fn forward(&self, values: &mut [Complex64]) {
        self.forward.process(values);
    }

    /// `x_t = Σ_k X_k e^{2πi·kt/size}`, in place: `size` times what was transformed.
    pub fn inverse(&self, values: &mut [Complex64]) {
        self.inverse.process(values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforms_are_the_sums_they_say() {
        for size in [1, 8, 30, 64] {
            let values: Vec<Complex64> = (0..size)
                .map(|t| Complex64::new((t * t) as f64 * 0.1 - 1.0, (3.0 - t as f64).sin()))
                .collect();
            let transforms = Transforms::new(size);
            let mut there = values.clone();
            transforms.forward(&mut there);
            let angle = |k: usize, t: usize| -std::f64::consts::TAU * ((k * t) % size) as f64 / size as f64;
            for (k, found) in there.iter().enumerate() {
                let sum: Complex64 =
                    values.iter().enumerate().map(|(t, value)| value * Complex64::cis(angle(k, t))).sum();
                assert!((found - sum).norm() < 1e-11 * size as f64, "{size} {k}");
            }
            transforms.inverse(&mut there);
            for (found, value) in there.iter().zip(&values) {
                assert!((found / size as f64 - value).norm() < 1e-12 * size as f64);
            }
        }
    }
}
