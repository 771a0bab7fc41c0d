//! Claims by balls in bins: the kernel that shows an ε, what the end of the noise's tail takes from it, and its check.

use super::{Basis, MU_ROUNDING};
use crate::error::{Error, Result};
use crate::privacy::account::Budget;
use crate::privacy::account::allocation::{Kernel, check, delta as bound, least_epsilon, least_stddev};
use crate::privacy::account::tail::{beyond, delta_taken};
use serde::{Deserialize, Serialize};

/// What a proof by balls in bins assumes besides the rest.
pub(super) const ASSUMPTION: &str = "every unit's bin is drawn independently of all others and of the data; bins and the sizes of batches are never released or used, sums are divided by a fixed number, and no other run draws the same bins";

/// A proof by balls in bins: a kernel that is nowhere below the run's covariance, and the ε that it shows. Whoever checks it compares all
/// entries and evaluates one bound; nothing is searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allocated {
    /// The number of bins that units fall into.
    pub num_bins: u64,
    /// ε at the claim's δ by this proof.
    pub epsilon: f64,
    /// The covariance, for standard deviation and clip norm 1.
    pub kernel: Kernel,
}

/// Where a claim's proof by balls in bins comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Proof<'a> {
    /// It is searched for.
    Search,
    /// It is known, and checked.
    Known(&'a Allocated),
    /// There is none.
    Without,
}

impl Basis {
    /// The least standard deviation with which a claim meets a budget, and the proof that shows it if it is by balls in bins.
    pub(crate) fn stddev_of_budget(&self, budget: Budget) -> Result<(f64, Option<Allocated>)> {
        let plain = self.stddev_without_bins(budget)?;
        let (Some(bins), true) = (&self.bins, budget.epsilon > 0.0) else { return Ok((plain, None)) };
        let Budget { epsilon, delta } = budget;
        // What is added is a little less, by rounding scales, and more than what is calibrated here.
        let left = |relative: f64| {
            let mu = self.sensitivity.value * (1.0 + MU_ROUNDING) / relative;
            delta - self.allocated_tail(mu, epsilon, delta)
        };
        let found = least_stddev(bins, epsilon, delta, plain / self.clip_norm, left)?;
        Ok(match found {
            Some((relative, kernel)) => {
                let proof = Allocated { num_bins: bins.num_bins() as u64, epsilon, kernel };
                (relative * self.clip_norm * (1.0 + 2.0 * MU_ROUNDING), Some(proof))
            }
            None => (plain, None),
        })
    }

    /// What it takes under balls in bins. With the unit, noise leaves its disc as without sampling, whichever the bin. Without it,
    /// outputs inside their discs lack what would have come from beyond the shifted ones: no more than that, and it counts `e^ε` times.
    fn allocated_tail(&self, gdp_mu: f64, epsilon: f64, delta: f64) -> f64 {
        let pairs = Self::pairs(self.num_rows);
        delta_taken(delta, pairs, (beyond(gdp_mu, pairs) * epsilon.exp()).min(1.0))
    }

    /// The proof by balls in bins and the part of δ that the end of the tail takes from it, if it shows a smaller ε than the plain one.
    pub(super) fn allocated(
        &self,
        stddev: f64,
        gdp_mu: f64,
        delta: f64,
        plain: Option<(f64, f64)>,
        proof: Proof<'_>,
    ) -> Result<Option<(Allocated, f64)>> {
        let relative = stddev / self.clip_norm * (1.0 - MU_ROUNDING);
        let plain = plain.map_or(f64::INFINITY, |(epsilon, _)| epsilon);
        let smaller = |epsilon: f64| epsilon < (1.0 - 1e-6) * plain;
        let (known, bins) = match (proof, &self.bins) {
            (Proof::Without, _) | (Proof::Search, None) => return Ok(None),
            (Proof::Known(known), None) => return Err(unproven(known, "no proof by balls in bins")),
            (Proof::Known(known), Some(bins)) => (known.clone(), bins),
            (Proof::Search, Some(bins)) => {
                // The charge grows with ε, of which the plain one is the largest.
                let left = delta - self.allocated_tail(gdp_mu, plain.min(50.0), delta);
                match least_epsilon(bins, relative, delta, plain.min(50.0), left)? {
                    Some((epsilon, kernel)) => {
                        (Allocated { num_bins: bins.num_bins() as u64, epsilon, kernel }, bins)
                    }
                    None => return Ok(None),
                }
            }
        };
        let Allocated { num_bins, epsilon, ref kernel } = known;
        let applies = num_bins == bins.num_bins() as u64 && epsilon > 0.0 && epsilon <= MOST_EPSILON;
        if !applies || !smaller(epsilon) {
            return Err(unproven(&known, "one that is above 0 and smaller than that of the plain proof"));
        }
        check(kernel, bins)?;
        let tail = self.allocated_tail(gdp_mu, epsilon, delta);
        match bound(kernel, relative, epsilon, delta)? {
            Some(bound) if bound <= delta - tail => Ok(Some((known, tail))),
            Some(bound) => Err(unproven(&known, &format!("δ = {:e}, above {delta:e}", bound + tail))),
            None => Err(unproven(&known, "no bound, since its kernel is out of reach")),
        }
    }
}

/// Larger ones are no privacy, and their exponentials no numbers.
const MOST_EPSILON: f64 = 600.0;

/// The error of a proof by balls in bins that does not show its ε.
fn unproven(stated: &Allocated, computed: &str) -> Error {
    Error::Disagreement {
        what: "claim.allocated.epsilon".into(),
        stated: stated.epsilon.to_string(),
        computed: computed.into(),
    }
}
