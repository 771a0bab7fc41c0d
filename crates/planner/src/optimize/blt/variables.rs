//! Variables without constraints for a BLT, and the loss as a function of them.
//!
//! | parameter | variable | keeps |
//! |---|---|---|
//! | λ | `x = ln((1 − λ)/λ)`, between the ends of f32 | `2⁻²⁴ ≤ λ ≤ 1 − 2⁻²⁴`, digits of 1 − λ |
//! | α | `a = ln α` | α > 0 |
//! | α, coefficients never increase | `a = ln(α / (1 − Σα))` | α > 0 and Σα < 1 |
//!
//! Near-optimal decays lie evenly in x and near-optimal scales in a, so that one step length suits them all. Only `λ̃₁ > −1` remains, where
//! the loss is infinite. `λ̃₁ > 0` is not asked for: the square root of momentum SGD has `λ̃₁ = 0`, so its approximations lie on both sides.

use super::gradient::{Buffer, Model};
use crate::optimize::lbfgs::Differentiable;
use crate::strategy::blt::Decay;

/// The distance from 1 of the largest f32 below it: the engine takes no decay between them.
pub(super) const EDGE: f64 = 1.0 / (1u64 << 24) as f64;
const RANGE: f64 = 1.0 - 2.0 * EDGE;
/// The smallest scale: f32 holds it, and it moves no loss.
pub(super) const MIN_SCALE: f64 = 1e-30;

/// The loss as a function of `(a₁, …, a_d, x₁, …, x_d)`; decays that are fixed ignore their variable.
pub(super) struct Variables<'a> {
    pub(super) model: &'a Model,
    pub(super) fixed: Vec<Option<Decay>>,
}

impl Variables<'_> {
    pub(super) fn encode(&self, buffers: &[Buffer]) -> Vec<f64> {
        let total: f64 = buffers.iter().map(|buffer| buffer.scale).sum();
        // A start outside is brought in.
        let shrink = if self.model.non_increasing && total > 0.999 { 0.999 / total } else { 1.0 };
        let slack = if self.model.non_increasing { 1.0 - shrink * total } else { 1.0 };
        let scales = buffers.iter().map(|buffer| (shrink * buffer.scale.max(MIN_SCALE) / slack).ln());
        let decays = buffers.iter().map(|buffer| {
            let [above, below] =
                [buffer.decay.complement, buffer.decay.value].map(|x| (x - EDGE).max(0.01 * EDGE));
            (above / below).ln()
        });
        scales.chain(decays).collect()
    }

    pub(super) fn decode(&self, x: &[f64]) -> Vec<Buffer> {
        let (scales, decays) = x.split_at(x.len() / 2);
        let largest = scales.iter().copied().fold(0.0, f64::max);
        // Divided by the largest exponential: none overflows.
        let slack = if self.model.non_increasing {
            (-largest).exp() + scales.iter().map(|a| (a - largest).exp()).sum::<f64>()
        } else {
            (-largest).exp()
        };
        let scale = |a: f64| ((a - largest).exp() / slack).max(MIN_SCALE);
        let decay = |x: f64| Decay {
            value: EDGE + RANGE / (1.0 + x.exp()),
            complement: EDGE + RANGE / (1.0 + (-x).exp()),
        };
        let pairs = scales.iter().zip(decays).zip(&self.fixed);
        pairs
            .map(|((&a, &x), fixed)| Buffer { scale: scale(a), decay: fixed.unwrap_or_else(|| decay(x)) })
            .collect()
    }
}

impl Differentiable for Variables<'_> {
    fn evaluate(&mut self, x: &[f64], gradient: &mut [f64]) -> f64 {
        let buffers = self.decode(x);
        let (order, sorted) = ascending(&buffers);
        let log = self.model.log_loss_squared(&sorted);
        let d = buffers.len();
        for (rank, &i) in order.iter().enumerate() {
            let [by_scale, by_decay] = log.slope[rank];
            gradient[i] = by_scale * buffers[i].scale;
            let u = x[d + i];
            gradient[d + i] = match self.fixed[i] {
                Some(_) => 0.0,
                None => -by_decay * RANGE / (1.0 + u.exp()) / (1.0 + (-u).exp()),
            };
        }
        if self.model.non_increasing {
            // ∂αᵢ/∂aⱼ = αᵢ(δᵢⱼ − αⱼ).
            let mean: f64 = gradient[..d].iter().sum();
            gradient[..d].iter_mut().zip(&buffers).for_each(|(slope, buffer)| *slope -= mean * buffer.scale);
        }
        log.value
    }
}

/// The buffers by ascending decay, and the order that sorts them.
pub(super) fn ascending(buffers: &[Buffer]) -> (Vec<usize>, Vec<Buffer>) {
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    // By the complement: it has the digits.
    order.sort_by(|&i, &j| buffers[j].decay.complement.total_cmp(&buffers[i].decay.complement));
    let sorted = order.iter().map(|&i| buffers[i]).collect();
    (order, sorted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimize::{Objective, Problem};
    use crate::{Participation, Workload};

    #[test]
    fn variables_name_buffers_and_their_gradient_is_that_of_the_loss() {
        let decay = |mu: f64| Decay { value: 1.0 - mu, complement: mu };
        let pairs = [(0.05, 3e-3), (0.3, 0.55), (0.01, 2e-7)];
        let buffers = pairs.map(|(scale, mu)| Buffer { scale, decay: decay(mu) });
        for participation in
            [Participation::Single, Participation::MinSep { min_sep: 9, max_participations: 20 }]
        {
            let problem = Problem {
                num_steps: 200,
                workload: Workload::Prefix,
                participation,
                objective: Objective::Rms,
            };
            let model = Model::new(&problem).unwrap();
            let mut variables = Variables { model: &model, fixed: vec![None, None, Some(buffers[2].decay)] };
            let x = variables.encode(&buffers);
            for (got, expected) in variables.decode(&x).iter().zip(&buffers) {
                assert!((got.scale / expected.scale - 1.0).abs() < 1e-12);
                assert!((got.decay.complement / expected.decay.complement - 1.0).abs() < 1e-12);
            }
            let (mut gradient, mut ignored) = (vec![0.0; 6], vec![0.0; 6]);
            variables.evaluate(&x, &mut gradient);
            assert_eq!(gradient[5], 0.0, "fixed");
            for i in 0..6 {
                let mut at = |step: f64| {
                    let mut moved = x.clone();
                    moved[i] += step;
                    variables.evaluate(&moved, &mut ignored)
                };
                let numeric = (8.0 * (at(1e-3) - at(-1e-3)) - (at(2e-3) - at(-2e-3))) / 12e-3;
                assert!(
                    (gradient[i] - numeric).abs() < 1e-6 * gradient[i].abs() + 1e-11,
                    "{i}: {gradient:?}, {numeric}"
                );
            }
        }
    }
}
