//! Random allocation redrawn in every epoch, of independent noise: a unit takes part in one step of each epoch, uniform among them and
//! independent of other epochs.
//!
//! The columns that a unit meets are orthogonal, so the likelihood ratio of one epoch of b steps is the mean of b independent
//! lognormals, and that of a run is a product over epochs (`docs/amplification.md`, section 6). The mean is spread over atoms so that every
//! convex function's mean grows (`redrawn/mean.rs`): a pair that dominates in both directions and under composition. Epochs are
//! composed as steps of Poisson sampling are (`compose.rs`). A last epoch that is cut off counts as a whole one, which is a bound.

mod mean;

use super::compose::Steps;
use super::gdp::{self, Budget};
use super::losses::{Direction, Losses};
use super::normal::quantile_above;
use super::subsampled::{COARSE, Slack, Terms, converged_epsilon, converged_ln_delta, larger};
use crate::error::{Error, Result, check_finite};
use mean::{Fineness, Spread, sum_of_lognormals};

/// Random allocation of the Gaussian mechanism, redrawn in every epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Redrawn {
    /// Standard deviation over sensitivity, of one step.
    pub noise_multiplier: f64,
    /// Steps of an epoch.
    pub num_bins: u64,
    /// Epochs; one that is cut off counts as a whole one.
    pub num_epochs: u64,
}

/// Most steps of an epoch.
const MOST_BINS: u64 = 1 << 30;
/// With so little noise that a step's ratio has a wider range (logarithm) atoms are too many, and the bound is the one without
/// amplification: about σ = 0.2 at usual δ.
const MOST_RANGE: f64 = 100.0;
/// The same with so much noise that an epoch's loss has a smaller deviation, beside which rounding an atom's loss would show.
const LEAST_DEVIATION: f64 = 1e-6;
/// The share of δ that masses above the last atom may take (logarithm).
const TAIL_SHARE: f64 = -14.0;
/// Distances of atoms for a claim, and for a search.
const FINENESS: Fineness = Fineness(0.01);
const COARSENESS: Fineness = Fineness(0.04);
/// The slack of a claim. An epoch has more atoms than a step of Poisson sampling, and an ε of a few millionths is worth none of them.
const SLACK: Slack = Slack { share: 2e-5, absolute: 1e-6 };
/// Rounding of one epoch (logarithm of δ): of its atoms' masses, and of the terms that they are products of, one per bin.
const ROUNDING: f64 = 1e-9;
const ROUNDING_OF_BIN: f64 = 1e-11;

impl Redrawn {
    /// Refuses what is no mechanism.
    pub fn new(noise_multiplier: f64, num_bins: u64, num_epochs: u64) -> Result<Redrawn> {
        check_finite("noise multiplier", noise_multiplier)?;
        if noise_multiplier <= 0.0 {
            return Err(Error::parameter("noise multiplier", noise_multiplier, "positive"));
        }
        for (name, value, most) in
            [("number of bins", num_bins, MOST_BINS), ("number of epochs", num_epochs, 1 << 30)]
        {
            if !(1..=most).contains(&value) {
                return Err(Error::parameter(name, value, format!("1 to {most}")));
            }
        }
        Ok(Redrawn { noise_multiplier, num_bins, num_epochs })
    }

    /// The smallest ε this analysis proves for δ, under zeroing one unit or bringing it back.
    pub fn epsilon(&self, delta: f64) -> Result<f64> {
        self.epsilon_with(FINENESS, SLACK, delta)
    }

    /// The same on coarser atoms: an upper bound too, in a small part of the time.
    pub(super) fn coarse_epsilon(&self, delta: f64) -> Result<f64> {
        self.epsilon_with(COARSENESS, COARSE, delta)
    }

    fn epsilon_with(&self, fineness: Fineness, slack: Slack, delta: f64) -> Result<f64> {
        Budget::new(0.0, delta)?;
        let most = gdp::epsilon_of_delta(self.certain_mu(), delta)?;
        if most == 0.0 {
            return Ok(most);
        }
        let Some(spread) = self.epoch(fineness, delta.ln()) else { return Ok(most) };
        let ln_delta = delta.ln() - self.rounding();
        let [remove, add] = [Direction::Remove, Direction::Add].map(|direction| {
            let losses = self.losses(&spread, direction);
            if self.num_epochs == 1 {
                return single_epsilon(&losses, ln_delta);
            }
            let steps = Steps { losses: &losses, count: self.num_epochs as f64 };
            let start = steps.chernoff_epsilon(ln_delta - 1e-5);
            converged_epsilon(slack, ln_delta, 0.0, start, |aim| self.terms(steps, aim))
        });
        Ok(larger(remove, add).min(most))
    }

    /// The smallest δ this analysis proves for ε.
    pub fn delta(&self, epsilon: f64) -> Result<f64> {
        Budget::new(epsilon, 0.5)?;
        let most = gdp::ln_delta(self.certain_mu(), epsilon)?;
        let Some(spread) = self.epoch(FINENESS, most) else { return Ok(most.exp()) };
        let [remove, add] = [Direction::Remove, Direction::Add].map(|direction| {
            let losses = self.losses(&spread, direction);
            if self.num_epochs == 1 {
                return losses.hockey_stick(epsilon).ln();
            }
            let steps = Steps { losses: &losses, count: self.num_epochs as f64 };
            converged_ln_delta(SLACK, epsilon, steps.chernoff_ln_delta(epsilon), |aim| self.terms(steps, aim))
        });
        let found = larger(remove, add) + self.rounding();
        Ok(found.min(most).exp().min(1.0))
    }

    /// What rounding may have taken from the logarithm of δ.
    fn rounding(&self) -> f64 {
        self.num_epochs as f64 * (ROUNDING + ROUNDING_OF_BIN * self.num_bins as f64)
    }

    /// μ if everybody knew the steps.
    fn certain_mu(&self) -> f64 {
        (self.num_epochs as f64).sqrt() / self.noise_multiplier
    }

    /// The likelihood ratio of one epoch, times the number of bins.
    fn epoch(&self, fineness: Fineness, ln_delta: f64) -> Option<Spread> {
        let deviation = 1.0 / self.noise_multiplier;
        if self.num_bins == 1 || deviation < LEAST_DEVIATION * (self.num_bins as f64).sqrt() {
            return None;
        }
        // E(L − l)₊ ≤ Φ(σ/2 − ln l/σ), the tail under the measure that L weighs.
        let quantile = quantile_above((ln_delta + TAIL_SHARE - (self.num_epochs as f64).ln()).min(-20.0));
        let ln_top = deviation * (quantile + 0.5 * deviation);
        let variance = deviation * deviation;
        let wide = ln_top - mean::ln_least(variance) > MOST_RANGE;
        (!wide).then(|| sum_of_lognormals(self.num_bins, variance, ln_top.exp(), fineness))
    }

    /// The atoms of one epoch's loss in a direction.
    fn losses(&self, spread: &Spread, direction: Direction) -> Losses {
        let bins = self.num_bins as f64;
        let (never, missing) = (spread.mass[0].ln(), (spread.missing / bins).ln());
        let kept = || (1..spread.at.len()).filter(|i| spread.mass[*i] > 0.0);
        let loss = |i: usize| (spread.at[i] / bins).ln();
        match direction {
            Direction::Remove => Losses::new(
                kept().map(loss).collect(),
                kept().map(|i| spread.mass[i].ln()).collect(),
                never,
                missing,
            ),
            Direction::Add => Losses::new(
                kept().rev().map(|i| -loss(i)).collect(),
                kept().rev().map(|i| spread.mass[i].ln() + loss(i)).collect(),
                missing,
                never,
            ),
        }
    }

    fn terms(&self, steps: Steps<'_>, aim: super::compose::Aim) -> Terms {
        let terms = steps.levels(aim).into_iter().map(|level| steps.term(level, aim)).collect();
        Terms { terms, ln_infinite: steps.losses.ln_infinite + (self.num_epochs as f64).ln() }
    }
}

/// ε of a single epoch, by bisection of a sum.
fn single_epsilon(losses: &Losses, ln_delta: f64) -> f64 {
    let holds = |epsilon: f64| losses.hockey_stick(epsilon).ln() <= ln_delta;
    let (mut low, mut high) = (0.0, 1.0);
    if holds(low) {
        return 0.0;
    }
    while !holds(high) {
        (low, high) = (high, 2.0 * high);
        if high > 1e6 {
            return f64::INFINITY;
        }
    }
    while high - low > 1e-9 * high {
        let middle = 0.5 * (low + high);
        if holds(middle) { high = middle } else { low = middle }
    }
    high
}

#[cfg(test)]
mod tests;
