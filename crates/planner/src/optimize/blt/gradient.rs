//! `ln loss²` of a BLT with its derivatives in every scale α and decay λ.
//!
//! Sensitivity and the error of prefix sums come from closed forms, at the cost of d² operations for one participation and any
//! number of steps; other workloads run the BLT itself, forward and backward. The inverse is never differentiated through a root
//! finder: at a root λ̃ᵢ of `f(y) = 1 + Σ αⱼ/(y − λⱼ)`, with `Dᵢⱼ = λ̃ᵢ − λⱼ` and `α̃ᵢ = 1/Σⱼ αⱼ/Dᵢⱼ²`, implicit differentiation gives
//!
//! ```text
//! ∂λ̃ᵢ/∂αⱼ = α̃ᵢ/Dᵢⱼ       ∂λ̃ᵢ/∂λⱼ = α̃ᵢαⱼ/Dᵢⱼ²
//! ```

use super::inverse::{Inverse, ramp_sum_slope, sum_slope};
use crate::error::{Error, Result};
use crate::optimize::{Objective, Problem};
use crate::privacy::participation::Participation;
use crate::strategy::blt::Decay;
use crate::utility::workload::Workload;

/// Buffers at most: what the engine holds.
pub(super) const MAX_BUFFERS: usize = corrnoise_core::form::Blt::MAX_BUFFERS;

/// One pair (α, λ).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Buffer {
    pub(super) scale: f64,
    pub(super) decay: Decay,
}

/// A positive number with its derivatives `[∂/∂α, ∂/∂λ]` per buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    pub(super) value: f64,
    pub(super) slope: [[f64; 2]; MAX_BUFFERS],
}

impl Term {
    fn constant(value: f64) -> Term {
        Term { value, slope: [[0.0; 2]; MAX_BUFFERS] }
    }
}

/// A problem, as far as BLTs care about it.
pub(super) struct Model {
    num_steps: u64,
    separation: u64,
    participations: u64,
    objective: Objective,
    /// The first column of a workload that is not the prefix sums.
    coefs: Option<Vec<f64>>,
    /// Whether sensitivity is exact only for coefficients that never increase.
    pub(super) non_increasing: bool,
}

/// Most multiplications of an evaluation, of which a search needs hundreds.
const MAX_WORK: usize = 120_000_000;

impl Model {
    /// Refuses a search that would take minutes.
    pub(super) fn check(problem: &Problem, num_buffers: usize) -> Result<()> {
        let n = problem.num_steps;
        let limit = MAX_WORK / (15 * num_buffers);
        if problem.workload != Workload::Prefix && n > limit {
            let what =
                format!("optimising a BLT with {num_buffers} buffers for another workload than prefix sums");
            return Err(Error::TooLarge { what, cost: "n·buffers", n, limit });
        }
        let participations = match problem.participation {
            Participation::Full => n,
            Participation::Cyclic { max_participations, .. }
            | Participation::MinSep { max_participations, .. } => max_participations,
            Participation::Single | Participation::Patterns(_) => 1,
        };
        let most = MAX_WORK / (3 * num_buffers.pow(2));
        if participations <= most {
            return Ok(());
        }
        let expected = format!("at most {most}, where a BLT with {num_buffers} buffers is optimised");
        Err(Error::parameter("number of participations", participations, expected))
    }

    pub(super) fn new(problem: &Problem) -> Result<Model> {
        let n = problem.num_steps;
        problem.participation.check(n)?;
        let (separation, participations, non_increasing) = match problem.participation {
            Participation::Single | Participation::MinSep { max_participations: 1, .. } => (n, 1, false),
            Participation::Full => (1, n, true),
            Participation::Cyclic { separation, max_participations } => {
                (separation, max_participations, true)
            }
            Participation::MinSep { min_sep, max_participations } => (min_sep, max_participations, true),
            Participation::Patterns(_) => {
                let expected =
                    "single, cyclic, min-sep or full: early and often is not the worst of any patterns";
                return Err(Error::parameter("participation", "a list of patterns", expected));
            }
        };
        let coefs = match &problem.workload {
            Workload::Prefix => None,
            other => Some(other.coefs(n).ok_or_else(|| {
                Error::parameter("workload", "not Toeplitz", "a Toeplitz one, as the strategy is")
            })?),
        };
        let [num_steps, separation, participations] = [n, separation, participations].map(|x| x as u64);
        Ok(Model {
            num_steps,
            separation,
            participations,
            objective: problem.objective,
            coefs,
            non_increasing,
        })
    }

    pub(super) fn num_steps(&self) -> u64 {
        self.num_steps
    }

    /// Multiplications of an evaluation, roughly.
    pub(super) fn cost(&self, num_buffers: usize) -> f64 {
        let d = num_buffers as f64;
        let coefs = self.coefs.as_ref().map_or(0.0, |coefs| coefs.len() as f64);
        100.0 * d * d + 3.0 * d * d * self.participations as f64 + 15.0 * d * coefs
    }

    /// `ln sensitivity² + ln error²`, and its derivatives. The buffers ascend in their decays. Infinite where the inverse is unstable.
    pub(super) fn log_loss_squared(&self, buffers: &[Buffer]) -> Term {
        // f(−1) > 0 is λ̃₁ > −1; the margin outlasts rounding to f32.
        let at_minus_one = 1.0 - buffers.iter().map(|b| b.scale / (1.0 + b.decay.value)).sum::<f64>();
        if at_minus_one.is_nan() || at_minus_one < 1e-5 {
            return Term::constant(f64::INFINITY);
        }
        let sensitivity = self.sensitivity_squared(buffers);
        let error = match &self.coefs {
            None => self.prefix_error_squared(buffers),
            Some(coefs) if buffers.len() <= 4 => self.error_squared(coefs, &Run::<4>::of(buffers)),
            Some(coefs) => self.error_squared(coefs, &Run::<MAX_BUFFERS>::of(buffers)),
        };
        let mut log = Term::constant(sensitivity.value.ln() + error.value.ln());
        for (slope, (s, e)) in log.slope.iter_mut().zip(sensitivity.slope.iter().zip(&error.slope)) {
            *slope = [0, 1].map(|i| s[i] / sensitivity.value + e[i] / error.value);
        }
        log
    }

    /// `‖Σ_{p<k} C e_{pb}‖²`. Before step `(p + 1)b` the first `p + 1` of these columns have begun: their sum is
    ///
    /// ```text
    /// 1 + Σ αᵢ λᵢ^(b−1) gᵢ,ₚ₋₁            at step pb        gᵢ,ₚ = 1 + λᵢᵇ + … + λᵢ^(pb)
    /// Σ αᵢ λᵢ^(s−1) gᵢ,ₚ                  s ≥ 1 steps later
    /// ```
    ///
    /// so that squares sum as geometric series, all of them positive; the last column's own stretch lasts to the end.
    fn sensitivity_squared(&self, buffers: &[Buffer]) -> Term {
        let (b, k, d) = (self.separation, self.participations, buffers.len());
        let mut total = Term::constant(0.0);
        let lead = by_buffer(buffers, |u| u.decay.power(b - 1));
        let lead_slope =
            by_buffer(buffers, |u| if b < 2 { 0.0 } else { (b - 1) as f64 * u.decay.power(b - 2) });
        let (mut g, mut g_slope) = ([0.0; MAX_BUFFERS], [0.0; MAX_BUFFERS]);
        let (mut products, mut product_slopes) =
            ([[0.0; MAX_BUFFERS]; MAX_BUFFERS], [[0.0; MAX_BUFFERS]; MAX_BUFFERS]);
        for p in 0..k {
            let head = 1.0 + (0..d).map(|i| buffers[i].scale * lead[i] * g[i]).sum::<f64>();
            total.value += head * head;
            for i in 0..d {
                total.slope[i][0] += 2.0 * head * lead[i] * g[i];
                total.slope[i][1] +=
                    2.0 * head * buffers[i].scale * (lead_slope[i] * g[i] + lead[i] * g_slope[i]);
                let (stride, stride_slope) = (lead[i] * buffers[i].decay.value, b as f64 * lead[i]);
                g_slope[i] = stride_slope * g[i] + stride * g_slope[i];
                g[i] = 1.0 + stride * g[i];
            }
            if p + 1 < k {
                for i in 0..d {
                    for l in 0..d {
                        products[i][l] += g[i] * g[l];
                        product_slopes[i][l] += g_slope[i] * g[l];
                    }
                }
            }
        }
        let rest = self.num_steps - (k - 1) * b - 1;
        for (i, own) in buffers.iter().enumerate() {
            for (l, other) in buffers.iter().enumerate() {
                let both = own.decay.times(other.decay);
                let (full, last) = (both.sum(b - 1), both.sum(rest));
                let form = products[i][l] * full + g[i] * g[l] * last;
                let slope = products[i][l] * sum_slope(both, b - 1) + g[i] * g[l] * sum_slope(both, rest);
                let slope =
                    product_slopes[i][l] * full + g_slope[i] * g[l] * last + other.decay.value * slope;
                total.value += own.scale * other.scale * form;
                total.slope[i][0] += 2.0 * other.scale * form;
                total.slope[i][1] += 2.0 * own.scale * other.scale * slope;
            }
        }
        total
    }

    /// `Σ w_t b_t²` for the decoder `b_t = κ + Σ βᵢλ̃ᵢᵗ` of the prefix sums; see [`crate::strategy::blt`].
    fn prefix_error_squared(&self, buffers: &[Buffer]) -> Term {
        let inverse = Inverse::of(buffers);
        let d = buffers.len();
        let (kappa, beta) = (inverse.floor, &inverse.weight);
        let ones = match self.objective {
            Objective::Max => self.num_steps as f64,
            Objective::Rms => 0.5 * (self.num_steps as f64 + 1.0),
        };
        let mut total = Term::constant(kappa * kappa * ones);
        let (mut by_kappa, mut by_beta, mut by_decay) =
            (2.0 * kappa * ones, [0.0; MAX_BUFFERS], [0.0; MAX_BUFFERS]);
        for i in 0..d {
            let (sum, slope) = self.weighted_sum(inverse.decay[i]);
            total.value += 2.0 * kappa * beta[i] * sum;
            by_kappa += 2.0 * beta[i] * sum;
            by_beta[i] += 2.0 * kappa * sum;
            by_decay[i] += 2.0 * kappa * beta[i] * slope;
            for l in 0..d {
                let (sum, slope) = self.weighted_sum(inverse.decay[i].times(inverse.decay[l]));
                total.value += beta[i] * beta[l] * sum;
                by_beta[i] += 2.0 * beta[l] * sum;
                by_decay[i] += 2.0 * beta[i] * beta[l] * inverse.decay[l].value * slope;
            }
        }
        for (j, buffer) in buffers.iter().enumerate() {
            let mu = buffer.decay.complement;
            let mut slope =
                [-by_kappa * kappa * kappa / mu, -by_kappa * kappa * kappa * buffer.scale / mu / mu];
            for i in 0..d {
                // β = 1/(S μ̃) with S = Σ αⱼ/Dᵢⱼ², which moves by itself and with λ̃.
                let (distance, alpha) = (inverse.distance[i][j], inverse.scale[i]);
                let by_root = by_decay[i] + by_beta[i] * beta[i] / inverse.decay[i].complement;
                let root = [alpha / distance, alpha * buffer.scale / distance / distance];
                let own = [1.0 / distance / distance, 2.0 * buffer.scale / distance / distance / distance];
                for (parameter, slope) in slope.iter_mut().enumerate() {
                    let residue = own[parameter] - 2.0 * inverse.cubes[i] * root[parameter];
                    *slope += by_root * root[parameter] - by_beta[i] * alpha * beta[i] * residue;
                }
            }
            total.slope[j] = slope;
        }
        total
    }

    /// `Σ w_t λᵗ` and its derivative: `w_t` is 1 in the last row, `(n − t)/n` on average over rows.
    fn weighted_sum(&self, decay: Decay) -> (f64, f64) {
        let n = self.num_steps;
        match self.objective {
            Objective::Max => (decay.sum(n), sum_slope(decay, n)),
            Objective::Rms => (decay.ramp_sum(n) / n as f64, ramp_sum_slope(decay, n) / n as f64),
        }
    }

    /// `Σ w_t b_t²` for `b = C⁻¹a`, by running the BLT. With `Cᵀy = w∘b` the derivative is `−2 yᵀ(dC)b`, and `(dC)b` is what the
    /// buffers hold: `mᵢ` for αᵢ, `αᵢ ∂mᵢ/∂λᵢ` for λᵢ.
    fn error_squared<const D: usize>(&self, coefs: &[f64], run: &Run<D>) -> Term {
        let n = coefs.len();
        let weight = |t: usize| match self.objective {
            Objective::Max => 1.0,
            Objective::Rms => (n - t) as f64 / n as f64,
        };
        let mut decoder = coefs.to_vec();
        run.solve(decoder.iter_mut());
        let mut adjoint: Vec<f64> = decoder.iter().enumerate().map(|(t, value)| weight(t) * value).collect();
        let squares = decoder.iter().zip(&adjoint).map(|(value, weighted)| value * weighted);
        let mut total = Term::constant(squares.sum());
        run.solve(adjoint.iter_mut().rev());
        let (mut memory, mut memory_slope) = ([0.0; D], [0.0; D]);
        let (mut by_scale, mut by_decay) = ([0.0; D], [0.0; D]);
        for (value, y) in decoder.iter().zip(&adjoint) {
            for i in 0..D {
                by_scale[i] += y * memory[i];
                by_decay[i] += y * memory_slope[i];
                memory_slope[i] = run.decay[i] * memory_slope[i] + memory[i];
                memory[i] = run.decay[i] * memory[i] + value;
            }
        }
        for i in (0..D).filter(|&i| run.scale[i] > 0.0) {
            total.slope[i] = [-2.0 * by_scale[i], -2.0 * run.scale[i] * by_decay[i]];
        }
        total
    }
}

/// Buffers as they run, padded with idle ones to a length the compiler knows.
struct Run<const D: usize> {
    scale: [f64; D],
    decay: [f64; D],
}

impl<const D: usize> Run<D> {
    fn of(buffers: &[Buffer]) -> Run<D> {
        let mut run = Run { scale: [0.0; D], decay: [0.0; D] };
        for (i, buffer) in buffers.iter().enumerate() {
            (run.scale[i], run.decay[i]) = (buffer.scale, buffer.decay.value);
        }
        run
    }

    /// Replaces the values by `C⁻¹·values`.
    fn solve<'a>(&self, values: impl Iterator<Item = &'a mut f64>) {
        let mut memory = [0.0; D];
        for value in values {
            let terms: [f64; D] = std::array::from_fn(|i| self.scale[i] * memory[i]);
            *value -= terms.iter().sum::<f64>();
            memory = std::array::from_fn(|i| self.decay[i] * memory[i] + *value);
        }
    }
}

fn by_buffer(buffers: &[Buffer], value: impl Fn(&Buffer) -> f64) -> [f64; MAX_BUFFERS] {
    let mut values = [0.0; MAX_BUFFERS];
    values.iter_mut().zip(buffers).for_each(|(to, buffer)| *to = value(buffer));
    values
}

#[cfg(test)]
mod tests;
