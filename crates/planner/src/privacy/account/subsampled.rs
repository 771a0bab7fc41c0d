//! Poisson subsampling: the privacy of the subsampled Gaussian mechanism over many steps, as an upper bound that is hardly above the truth.
//!
//! Each direction of the adjacency has a dominating pair: `(1 − p)N(0, σ²) + pN(1, σ²)` against `N(0, σ²)` (a unit is removed)
//! and the reverse (added). One step has a closed form, and so has p = 1. All else: one step's losses become atoms (`losses.rs`), whose sums
//! are inverted from their transform (`compose.rs`). Tails live in the logarithmic domain; what is cut off is added to δ.

use super::compose::{Aim, Level, Steps, Term};
use super::gdp::{self, Budget};
use super::losses::{Direction, Losses, Step};
use super::normal::quantile_above;
use crate::error::{Error, Result, check_finite};

/// The subsampled Gaussian mechanism over a number of steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Subsampled {
    /// Standard deviation over sensitivity.
    pub noise_multiplier: f64,
    /// The probability that a unit takes part in a step.
    pub sampling_prob: f64,
    /// The number of steps.
    pub num_steps: u64,
}

/// Precision: how much larger than the truth ε may become, as a share of it and absolutely.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slack {
    pub(super) share: f64,
    pub(super) absolute: f64,
}

/// The slack that claims are computed with.
pub(super) const FINE: Slack = Slack { share: 2e-5, absolute: 2e-8 };
/// The slack that searches are made with.
pub(super) const COARSE: Slack = Slack { share: 1e-4, absolute: 1e-6 };

/// The share of δ that outputs beyond the last cell may take (logarithm).
const TAIL_SHARE: f64 = -11.5;
/// Below this noise one step's loss has too many cells. What is claimed then is the bound without amplification.
const LEAST_NOISE: f64 = 0.02;
/// A probability above this counts as 1, which is an upper bound.
const CERTAIN: f64 = 1.0 - 1e-9;

impl Subsampled {
    /// Refuses what is no mechanism.
    pub fn new(noise_multiplier: f64, sampling_prob: f64, num_steps: u64) -> Result<Subsampled> {
        check_finite("noise multiplier", noise_multiplier)?;
        if noise_multiplier <= 0.0 {
            return Err(Error::parameter("noise multiplier", noise_multiplier, "positive"));
        }
        if sampling_prob.is_nan() || sampling_prob <= 0.0 || sampling_prob > 1.0 {
            return Err(Error::parameter("sampling probability", sampling_prob, "in (0, 1]"));
        }
        crate::error::check_steps(usize::try_from(num_steps).unwrap_or(usize::MAX))?;
        Ok(Subsampled { noise_multiplier, sampling_prob, num_steps })
    }

    /// The smallest ε this analysis proves for δ, under adding or removing one unit.
    pub fn epsilon(&self, delta: f64) -> Result<f64> {
        self.epsilon_with(FINE, delta)
    }

    pub(super) fn epsilon_with(&self, slack: Slack, delta: f64) -> Result<f64> {
        Budget::new(0.0, delta)?;
        // A unit that never took part loses nothing.
        if self.ln_ever() <= delta.ln() {
            return Ok(0.0);
        }
        let least = self.one_step_epsilon(delta.ln())?;
        if self.num_steps == 1 {
            return Ok(least);
        }
        let most = gdp::epsilon_of_delta(self.certain_mu(), delta)?;
        if self.sampling_prob > CERTAIN || self.noise_multiplier < LEAST_NOISE {
            return Ok(most);
        }
        let remove = self.composed_epsilon(Direction::Remove, slack, delta.ln(), 0.0);
        let add = self.composed_epsilon(Direction::Add, slack, delta.ln(), remove);
        // More steps never give more privacy than one of them, and certain participation never less loss.
        Ok(larger(remove, add).max(least).min(most))
    }

    /// The smallest δ this analysis proves for ε.
    pub fn delta(&self, epsilon: f64) -> Result<f64> {
        Budget::new(epsilon, 0.5)?;
        let least = self.one_step_ln_delta(epsilon)?;
        let most = gdp::ln_delta(self.certain_mu(), epsilon)?.min(self.ln_ever());
        let ln_delta = if self.num_steps == 1 {
            least
        } else if self.sampling_prob > CERTAIN || self.noise_multiplier < LEAST_NOISE {
            most
        } else {
            let [remove, add] = [Direction::Remove, Direction::Add]
                .map(|direction| self.composed_ln_delta(direction, epsilon));
            larger(remove, add).max(least).min(most)
        };
        Ok(ln_delta.exp().min(1.0))
    }

    /// μ if the unit took part in every step.
    fn certain_mu(&self) -> f64 {
        (self.num_steps as f64).sqrt() / self.noise_multiplier
    }

    /// The logarithm of the probability that a unit takes part at all.
    fn ln_ever(&self) -> f64 {
        let never = self.num_steps as f64 * (-self.sampling_prob).ln_1p();
        (-never.exp_m1()).ln().min(0.0)
    }

    /// One step, exactly. Removing: `δ(ε) = p·h(γ')` with `h(γ)` the Gaussian mechanism's δ at `ln γ`, `γ = e^ε` and `γ' = 1 + (γ − 1)/p`.
    /// Adding gives no more: its δ is `(1 − (γ − 1)(1/p − 1))·p·h(γ'')` with `γ'' = pγ/(1 − γ(1 − p))`, which is at least γ'.
    fn one_step_epsilon(&self, ln_delta: f64) -> Result<f64> {
        let p = self.sampling_prob;
        let target = ln_delta - p.ln();
        if target >= 0.0 {
            return Ok(0.0);
        }
        let one = gdp::epsilon_of_ln_delta(1.0 / self.noise_multiplier, target)?;
        let exact = if one > 30.0 {
            one + p.ln() + ((1.0 - p) / p * (-one).exp()).ln_1p()
        } else {
            (p * one.exp_m1()).ln_1p()
        };
        Ok((exact * (1.0 + 4.0 * f64::EPSILON)).max(0.0))
    }

    fn one_step_ln_delta(&self, epsilon: f64) -> Result<f64> {
        let p = self.sampling_prob;
        let one = if epsilon > 30.0 {
            epsilon - p.ln() + (-(1.0 - p) * (-epsilon).exp()).ln_1p()
        } else {
            (epsilon.exp_m1() / p).ln_1p()
        };
        Ok(p.ln() + gdp::ln_delta(1.0 / self.noise_multiplier, one * (1.0 - 4.0 * f64::EPSILON))?)
    }

    /// Outputs with all but a small share of δ, cut into the coarsest cells.
    fn cells(&self, ln_delta: f64) -> (Step, Vec<f64>) {
        let step = Step { sigma: self.noise_multiplier, p: self.sampling_prob };
        let per_step = ln_delta + TAIL_SHARE - (self.num_steps as f64).ln() - self.sampling_prob.ln();
        let reach = quantile_above(per_step.min(-20.0)) * step.sigma;
        (step, step.cells(-reach, 1.0 + reach))
    }

    fn steps<'a>(&self, losses: &'a Losses) -> Steps<'a> {
        Steps { losses, count: self.num_steps as f64 }
    }

    /// Bounds of δ that are tight around an aim: the terms and what has infinite loss.
    fn terms(&self, direction: Direction, aim: Aim) -> Terms {
        let (step, ends) = self.cells(aim.ln_delta);
        let coarse = step.losses(&ends, direction);
        let steps = self.steps(&coarse);
        let levels = steps.levels(aim);
        let mut parts = vec![1; coarse.len() - 1];
        levels.iter().for_each(|level| steps.divisions(*level, aim, &mut parts));
        // From one atom to the next; beyond the first or the last end there is one more, which is not divided.
        if direction == Direction::Add {
            parts.reverse();
        }
        let fine = step.losses(&divided(&ends, &parts[1..]), direction);
        let steps = self.steps(&fine);
        // A level ends where it did: at the first atom beyond the same loss.
        let place = |j: usize| match coarse.loss.get(j) {
            Some(loss) if j > 0 => fine.loss.partition_point(|other| other < loss),
            Some(_) => 0,
            None => fine.len(),
        };
        let level = |level: &Level| Level { from: place(level.from), to: place(level.to) };
        let terms = levels.iter().map(|coarse| steps.term(level(coarse), aim)).collect();
        Terms { terms, ln_infinite: fine.ln_infinite + (self.num_steps as f64).ln() }
    }

    /// ε at δ, or a bound that is no larger than `enough`.
    fn composed_epsilon(&self, direction: Direction, slack: Slack, ln_delta: f64, enough: f64) -> f64 {
        let (step, ends) = self.cells(ln_delta);
        // What is infinite takes a share of δ, which this bound does not count.
        let most = ln_delta - 2.0 * TAIL_SHARE.exp();
        let start = self.steps(&step.losses(&ends, direction)).chernoff_epsilon(most);
        converged_epsilon(slack, ln_delta, enough, start, |aim| self.terms(direction, aim))
    }

    /// The logarithm of δ at ε.
    fn composed_ln_delta(&self, direction: Direction, epsilon: f64) -> f64 {
        let (step, ends) = self.cells(-30.0);
        let start = self.steps(&step.losses(&ends, direction)).chernoff_ln_delta(epsilon);
        converged_ln_delta(FINE, epsilon, start, |aim| self.terms(direction, aim))
    }
}

/// ε at δ, or a bound that is no larger than `enough`, from terms that are tight around an aim. `start` is a bound. Every turn gives a true
/// bound, which is tight if the aim was right: the turns end where it was.
pub(super) fn converged_epsilon(
    slack: Slack,
    ln_delta: f64,
    enough: f64,
    start: f64,
    terms: impl Fn(Aim) -> Terms,
) -> f64 {
    let mut aim = start;
    let mut sure = aim;
    let mut before: Option<(f64, f64)> = None;
    for turn in 0..TURNS {
        if sure <= enough.max(TINY) {
            break;
        }
        let slack = if turn == 0 { COARSE } else { slack };
        let slack = (slack.share * aim).max(slack.absolute);
        let terms = terms(Aim { epsilon: aim, ln_delta, slack });
        let (excess, found) = (terms.ln_delta(aim) - ln_delta, terms.epsilon(ln_delta, aim));
        if !found.is_finite() {
            break;
        }
        sure = sure.min(found);
        if turn > 0 && excess.abs() <= CLOSE {
            break;
        }
        // Away from its aim a bound is loose: where two aims show the slope, the secant goes further.
        let secant = match before {
            Some((other, its)) if its != excess => aim - excess * (aim - other) / (excess - its),
            _ => found,
        };
        before = if turn > 0 && excess > -10.0 { Some((aim, excess)) } else { None };
        let next = if excess < 0.0 { secant.clamp(0.5 * found, found) } else { found };
        aim = next.min(sure);
    }
    sure
}

/// The logarithm of δ at ε, from terms that are tight around an aim; `start` is a guess of it.
pub(super) fn converged_ln_delta(
    slack: Slack,
    epsilon: f64,
    start: f64,
    terms: impl Fn(Aim) -> Terms,
) -> f64 {
    let mut best = start;
    let mut sure = 0.0_f64;
    for _ in 0..TURNS {
        let slack = (slack.share * epsilon).max(slack.absolute);
        let found = terms(Aim { epsilon, ln_delta: best.max(-700.0), slack }).ln_delta(epsilon);
        sure = sure.min(found);
        let moved = (found - best).abs();
        best = found;
        if moved <= CLOSE {
            break;
        }
    }
    sure
}

/// Numbers that are none prove nothing.
pub(super) fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::INFINITY } else { a.max(b) }
}

/// An ε that is not worth another digit: Chernoff's bound will do.
const TINY: f64 = 5e-7;
/// Most turns; three or four are usual.
const TURNS: usize = 8;
/// An aim is right if its δ is that close (difference of logarithms).
const CLOSE: f64 = 0.3;

/// Every cell divided into as many equal parts as are given for it.
fn divided(ends: &[f64], parts: &[usize]) -> Vec<f64> {
    let mut fine = vec![ends[0]];
    for (pair, parts) in ends.windows(2).zip(parts) {
        fine.extend((1..=*parts).map(|i| {
            if i == *parts { pair[1] } else { pair[0] + (pair[1] - pair[0]) * (i as f64 / *parts as f64) }
        }));
    }
    fine
}

/// δ as a function of ε.
pub(super) struct Terms {
    pub(super) terms: Vec<Term>,
    pub(super) ln_infinite: f64,
}

impl Terms {
    fn ln_delta(&self, epsilon: f64) -> f64 {
        let parts: Vec<f64> =
            self.terms.iter().map(|term| term.ln_delta(epsilon)).chain([self.ln_infinite]).collect();
        let largest = parts.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        largest + parts.iter().map(|part| (part - largest).exp()).sum::<f64>().ln()
    }

    /// The smallest ε with at most this δ.
    fn epsilon(&self, ln_delta: f64, near: f64) -> f64 {
        let holds = |epsilon: f64| self.ln_delta(epsilon) <= ln_delta;
        if holds(0.0) {
            return 0.0;
        }
        let (mut low, mut high) = (0.0, near.max(1e-9));
        for _ in 0..60 {
            if holds(high) {
                break;
            }
            (low, high) = (high, 1.5 * high);
        }
        if !holds(high) {
            return f64::INFINITY;
        }
        for _ in 0..60 {
            if high - low <= 1e-9 * high {
                break;
            }
            let middle = 0.5 * (low + high);
            if holds(middle) { high = middle } else { low = middle }
        }
        high
    }
}

#[cfg(test)]
mod tests;
