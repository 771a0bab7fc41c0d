//! The inverse of a BLT with the distances its derivatives need, and derivatives of geometric sums.

use super::gradient::{Buffer, MAX_BUFFERS};
use crate::strategy::blt::{Decay, Pole, Root};

/// What the closed form of the error needs of `C⁻¹`.
pub(super) struct Inverse {
    /// κ, the sum of all coefficients of `C⁻¹`.
    pub(super) floor: f64,
    /// α̃, λ̃ and `β = α̃/(1 − λ̃)`.
    pub(super) scale: [f64; MAX_BUFFERS],
    pub(super) decay: [Decay; MAX_BUFFERS],
    pub(super) weight: [f64; MAX_BUFFERS],
    /// The distances of decays, `λ̃ᵢ − λⱼ`.
    pub(super) distance: [[f64; MAX_BUFFERS]; MAX_BUFFERS],
    /// The sums over cubed distances, `Σⱼ αⱼ/Dᵢⱼ³`.
    pub(super) cubes: [f64; MAX_BUFFERS],
}

impl Inverse {
    pub(super) fn of(buffers: &[Buffer]) -> Inverse {
        // Poles counted from 1 downwards: −(1 − λ) has the digits that λ lacks near 1.
        let poles: Vec<Pole> =
            buffers.iter().map(|u| Pole { scale: u.scale, decay: -u.decay.complement }).collect();
        let mut inverse = Inverse {
            floor: 1.0 / (1.0 + buffers.iter().map(|u| u.scale / u.decay.complement).sum::<f64>()),
            scale: [0.0; MAX_BUFFERS],
            decay: [Decay::new(0.0); MAX_BUFFERS],
            weight: [0.0; MAX_BUFFERS],
            distance: [[0.0; MAX_BUFFERS]; MAX_BUFFERS],
            cubes: [0.0; MAX_BUFFERS],
        };
        for i in 0..poles.len() {
            let root = Root::below(&poles, i);
            let origin = &buffers[root.origin];
            let complement = origin.decay.complement - root.offset;
            inverse.decay[i] = Decay { value: origin.decay.value + root.offset, complement };
            let mut squares = 0.0;
            for (j, pole) in poles.iter().enumerate() {
                let distance = root.offset + (poles[root.origin].decay - pole.decay);
                inverse.distance[i][j] = distance;
                squares += pole.scale / distance / distance;
                inverse.cubes[i] += pole.scale / distance / distance / distance;
            }
            inverse.scale[i] = 1.0 / squares;
            inverse.weight[i] = inverse.scale[i] / complement;
        }
        inverse
    }
}

/// `γ_n'(λ) = Σ t λ^(t−1)`: `(γ_n − nλ^(n−1))/(1 − λ)`, or where that is 0/0 the series `Σ_k k C(n, k+1) (−μ)^(k−1)`.
pub(super) fn sum_slope(decay: Decay, n: u64) -> f64 {
    let (steps, mu) = (n as f64, decay.complement);
    if n < 2 {
        return 0.0;
    }
    if steps * mu >= 0.5 {
        return (decay.sum(n) - steps * decay.power(n - 1)) / mu;
    }
    // Ratio of successive terms: −μ (n − k − 1)/(k + 2) · (k + 1)/k.
    series(0.5 * steps * (steps - 1.0), |k| -mu * (steps - k - 1.0) / (k + 2.0) * (k + 1.0) / k)
}

/// `S_n'(λ) = Σ (n − t) t λ^(t−1)`: `(S_n − γ_n − λγ_n')/(1 − λ)`, or the series `Σ_k k C(n+1, k+2) (−μ)^(k−1)`.
pub(super) fn ramp_sum_slope(decay: Decay, n: u64) -> f64 {
    let (steps, mu) = (n as f64, decay.complement);
    if n < 2 {
        return 0.0;
    }
    if steps * mu >= 0.5 {
        return (decay.ramp_sum(n) - decay.sum(n) - decay.value * sum_slope(decay, n)) / mu;
    }
    let first = (steps + 1.0) * steps * (steps - 1.0) / 6.0;
    series(first, |k| -mu * (steps - k - 1.0) / (k + 3.0) * (k + 1.0) / k)
}

/// The sum of a series that starts with `term`, by the ratio of term k + 1 to term k.
fn series(mut term: f64, ratio: impl Fn(f64) -> f64) -> f64 {
    let (mut sum, mut k) = (0.0, 1.0);
    while term.abs() > 1e-17 * f64::abs(sum) {
        sum += term;
        term *= ratio(k);
        k += 1.0;
    }
    sum
}
