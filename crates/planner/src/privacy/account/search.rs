//! The least noise for a budget under Poisson sampling, and under allocation that is redrawn in every epoch.
//!
//! ε falls smoothly as noise grows, so a secant in (ln σ, ln ε) that keeps its bracket needs a handful of evaluations: most of them
//! coarse, the last ones fine. Both bound ε from above, so the answer is safe either way.

use super::gdp::{Budget, gdp_mu_of_budget};
use super::redrawn::Redrawn;
use super::subsampled::{COARSE, FINE, Slack, Subsampled};
use crate::error::{Error, Result};

/// No less noise is sought, although a budget may allow it: no one trains with so little.
const LEAST: f64 = 0.05;

/// How exact the answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// To compare mechanisms with each other: half a percent.
    Coarse,
    /// To run one of them: five digits.
    Fine,
}

impl Subsampled {
    /// The least noise multiplier (within the search's precision, never below) with which `num_steps` steps meet the budget.
    pub fn calibrated(
        budget: Budget,
        sampling_prob: f64,
        num_steps: u64,
        search: Search,
    ) -> Result<Subsampled> {
        Subsampled::calibrated_with(budget, sampling_prob, num_steps, search, |_| budget.delta)
    }

    /// The same where a part of δ is spent otherwise: `delta_left` of a noise multiplier is what may be used, and falls to 0 or
    /// below as noise falls.
    pub(crate) fn calibrated_with(
        budget: Budget,
        sampling_prob: f64,
        num_steps: u64,
        search: Search,
        delta_left: impl Fn(f64) -> f64,
    ) -> Result<Subsampled> {
        if budget.epsilon <= 0.0 {
            return Err(Error::parameter("epsilon", budget.epsilon, "above 0 under Poisson sampling"));
        }
        // Without sampling this much would do; the analysis' own excess is below one percent.
        let most = 1.02 * (num_steps as f64).sqrt() / gdp_mu_of_budget(budget)?;
        let excess = |slack: Slack, noise_multiplier: f64| -> Result<f64> {
            let mechanism = Subsampled::new(noise_multiplier, sampling_prob, num_steps)?;
            let delta = delta_left(noise_multiplier);
            let epsilon = if delta > 0.0 { mechanism.epsilon_with(slack, delta)? } else { f64::INFINITY };
            Ok(ln_over(epsilon, budget.epsilon))
        };
        let coarse = least(LEAST.min(0.5 * most), most, 1e-4, |sigma| excess(COARSE, sigma))?;
        let found = match search {
            Search::Coarse => coarse,
            Search::Fine => least(0.999 * coarse, coarse, 1e-6, |sigma| excess(FINE, sigma))?,
        };
        Subsampled::new(found, sampling_prob, num_steps)
    }
}

impl Redrawn {
    /// The least noise multiplier, to a few digits and never below it, with which an allocation meets a budget, where `delta_left` of a noise
    /// multiplier is what may be used of δ and falls to 0 or below as noise falls.
    pub(crate) fn calibrated_with(
        budget: Budget,
        num_bins: u64,
        num_epochs: u64,
        delta_left: impl Fn(f64) -> f64,
    ) -> Result<Redrawn> {
        // Without sampling this much would do, and the bound is never above that one.
        let most = 1.02 * (num_epochs as f64).sqrt() / gdp_mu_of_budget(budget)?;
        let excess = |coarse: bool, noise_multiplier: f64| -> Result<f64> {
            let mechanism = Redrawn::new(noise_multiplier, num_bins, num_epochs)?;
            let delta = delta_left(noise_multiplier);
            let epsilon = match delta > 0.0 {
                true if coarse => mechanism.coarse_epsilon(delta)?,
                true => mechanism.epsilon(delta)?,
                false => f64::INFINITY,
            };
            Ok(ln_over(epsilon, budget.epsilon))
        };
        let coarse = least(LEAST.min(0.5 * most), most, 1e-4, |sigma| excess(true, sigma))?;
        let found = least(0.999 * coarse, coarse, 1e-5, |sigma| excess(false, sigma))?;
        Redrawn::new(found, num_bins, num_epochs)
    }
}

/// The logarithm of an ε over a budget's, within bounds: it may be 0, whose logarithm a secant cannot use.
fn ln_over(epsilon: f64, budget: f64) -> f64 {
    (epsilon.clamp(1e-9 * budget, 1e9 * budget) / budget).ln()
}

/// The least σ, up to a relative tolerance and never below it, where a falling function is not positive. `high` is such a σ already, or
/// the first of a doubling sequence is.
fn least(low: f64, high: f64, tolerance: f64, excess: impl Fn(f64) -> Result<f64>) -> Result<f64> {
    let (mut low, mut high) = (low.ln(), high.ln());
    let mut above = excess(low.exp())?;
    // The fine grid may find that even less noise is enough.
    while above <= 0.0 {
        if low <= LEAST.ln() {
            return Ok(low.exp());
        }
        (high, low) = (low, (low - 0.01).max(LEAST.ln()));
        above = excess(low.exp())?;
    }
    let mut below = excess(high.exp())?;
    while below > 0.0 {
        (low, above) = (high, below);
        high += 2_f64.ln();
        below = excess(high.exp())?;
    }
    // Illinois: a secant; an end that stays put twice counts half.
    let (mut left, mut right, mut stayed) = (above, below, 0);
    for _ in 0..60 {
        if high - low <= tolerance || -below <= tolerance {
            break;
        }
        let middle = (low * right - high * left) / (right - left);
        // A little towards the safe side: what comes next to the root lies below the budget, and ends the search.
        let middle = (middle + 0.3 * tolerance).clamp(low, high);
        let value = excess(middle.exp())?;
        if value > 0.0 {
            (low, left) = (middle, value);
            right *= if stayed > 0 { 0.5 } else { 1.0 };
            stayed = 1;
        } else {
            (high, right, below) = (middle, value, value);
            left *= if stayed < 0 { 0.5 } else { 1.0 };
            stayed = -1;
        }
    }
    Ok(high.exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_met_and_hardly_less_noise_would_do() {
        for (epsilon, delta, p, steps) in
            [(1.0, 1e-6, 0.01, 1000), (8.0, 1e-5, 0.1, 200), (0.1, 1e-9, 0.5, 4)]
        {
            let budget = Budget { epsilon, delta };
            let found = Subsampled::calibrated(budget, p, steps, Search::Fine).unwrap();
            let met = found.epsilon(delta).unwrap();
            assert!(met <= epsilon && met > epsilon * (1.0 - 1e-5), "{found:?}: {met}");
            let coarse = Subsampled::calibrated(budget, p, steps, Search::Coarse).unwrap().noise_multiplier;
            let excess = coarse / found.noise_multiplier - 1.0;
            assert!((0.0..5e-3).contains(&excess), "{found:?}: {excess}");
        }
        let budget = Budget { epsilon: 0.0, delta: 1e-6 };
        assert!(Subsampled::calibrated(budget, 0.1, 10, Search::Coarse).is_err());
        // Whoever is sampled less often than δ needs no noise: the answer stays finite.
        let rare =
            Subsampled::calibrated(Budget { epsilon: 1.0, delta: 1e-3 }, 1e-5, 10, Search::Fine).unwrap();
        assert!(rare.noise_multiplier < 0.3, "{rare:?}");
    }
}
