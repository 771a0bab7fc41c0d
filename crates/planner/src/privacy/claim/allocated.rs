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
    /// No proof by balls in bins is made.
    Without,
    /// Nor one by random allocation.
    Neither,
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
        let found = least_stddev(bins, budget, plain / self.clip_norm, left)?;
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
    pub(super) fn allocated_tail(&self, gdp_mu: f64, epsilon: f64, delta: f64) -> f64 {
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
            (Proof::Without | Proof::Neither, _) | (Proof::Search, None) => return Ok(None),
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
pub(super) const MOST_EPSILON: f64 = 600.0;

/// The error of a proof by balls in bins that does not show its ε.
fn unproven(stated: &Allocated, computed: &str) -> Error {
    Error::Disagreement {
        what: "claim.allocated.epsilon".into(),
        stated: stated.epsilon.to_string(),
        computed: computed.into(),
    }
}

#[cfg(test)]
mod tests {
    use crate::privacy::account::Budget;
    use crate::{
        Adjacency, Factorization, Goal, Method, PrivacyUnit, Schedule, Strategy, Terms, Workload, calibrate,
        verify,
    };
    use corrnoise_core::{Plan, Sampling};
    use serde_json::json;

    fn terms(sampling: Sampling, adjacency: Adjacency) -> Terms {
        Terms {
            schedule: Schedule::Sampling(sampling),
            adjacency,
            unit: PrivacyUnit::Example,
            clip_norm: 1.5,
        }
    }

    const BINS: Sampling = Sampling::BallsInBins { dataset_size: 600, num_bins: 6 };

    fn plan(strategy: Strategy, terms: &Terms, goal: Goal) -> Plan {
        let strategy = Factorization::new(strategy, 20).unwrap();
        calibrate(&strategy, terms, &Workload::Prefix, &goal).unwrap()
    }

    #[test]
    fn claims_are_amplified_where_the_proof_applies() {
        let goal = Goal::Budget(Budget { epsilon: 1.0, delta: 1e-3 });
        let bins = terms(BINS, Adjacency::ZeroOut);
        let one = || Strategy::one_parameter(0.5).unwrap();
        let found = plan(one(), &bins, goal);
        let claim = verify(&found).unwrap().claim;
        assert_eq!((claim.method, claim.epsilon), (Method::Allocated, 1.0));
        let cyclic = Sampling::Cyclic { dataset_size: 600, num_batches: 6 };
        let same = plan(one(), &terms(cyclic, Adjacency::ZeroOut), goal);
        assert!(found.stddev() < 0.9 * same.stddev(), "{} {}", found.stddev(), same.stddev());
        // The ε of given noise is that of the budget that it was made for.
        let again = plan(one(), &bins, Goal::GdpMu { gdp_mu: claim.gdp_mu, delta: 1e-3 });
        let epsilon = verify(&again).unwrap().claim.epsilon;
        assert!((epsilon - 1.0).abs() < 0.03, "{epsilon}");
        // Another pair, a negative entry, and no loss to speak of: the claim without amplification.
        let negative = Strategy::toeplitz(vec![1.0, -0.5]).unwrap();
        for (strategy, adjacency, epsilon) in [
            (one(), Adjacency::ReplaceOne, 1.0),
            (negative, Adjacency::ZeroOut, 1.0),
            (one(), Adjacency::ZeroOut, 0.0),
        ] {
            let goal = Goal::Budget(Budget { epsilon, delta: 1e-3 });
            let claim = verify(&plan(strategy, &terms(BINS, adjacency), goal)).unwrap().claim;
            assert!(claim.method == Method::Gaussian && claim.allocated.is_none(), "{claim:?}");
        }
    }

    /// One bin, as many bins as steps, one epoch and less, bins that divide neither the steps nor each other: a claim that holds, with
    /// no more noise than without amplification.
    #[test]
    fn every_number_of_bins_has_a_claim() {
        let goal = Goal::Budget(Budget { epsilon: 1.0, delta: 1e-3 });
        for num_bins in [1, 7, 13, 20, 26] {
            let one = || Strategy::one_parameter(0.5).unwrap();
            let bins = Sampling::BallsInBins { dataset_size: 600, num_bins };
            let found = plan(one(), &terms(bins, Adjacency::ZeroOut), goal);
            let cyclic = Sampling::Cyclic { dataset_size: 600, num_batches: num_bins };
            let plain = plan(one(), &terms(cyclic, Adjacency::ZeroOut), goal);
            let claim = verify(&found).unwrap().claim;
            assert!(claim.epsilon <= 1.0 && claim.epsilon > 0.999, "{num_bins}: {claim:?}");
            match num_bins {
                1 => assert_eq!((claim.method, found.stddev()), (Method::Gaussian, plain.stddev())),
                _ => assert!(claim.method == Method::Allocated && found.stddev() < 0.95 * plain.stddev()),
            }
        }
    }

    /// From almost no privacy to almost nothing else: every claim is verified, and amplified where that is worth something.
    #[test]
    fn extreme_budgets_have_claims() {
        for (epsilon, delta) in [(0.02, 1e-2), (0.02, 1e-15), (40.0, 1e-2), (40.0, 1e-12)] {
            let goal = Goal::Budget(Budget { epsilon, delta });
            let found = plan(Strategy::one_parameter(0.5).unwrap(), &terms(BINS, Adjacency::ZeroOut), goal);
            let claim = verify(&found).unwrap().claim;
            assert!(claim.epsilon <= epsilon && claim.epsilon > 0.999 * epsilon, "{claim:?}");
        }
    }

    #[test]
    fn resealed_proofs_that_show_less_are_refused() {
        let goal = Goal::Budget(Budget { epsilon: 1.0, delta: 1e-3 });
        let found = plan(Strategy::one_parameter(0.5).unwrap(), &terms(BINS, Adjacency::ZeroOut), goal);
        let stated = found.certificate().unwrap().clone();
        let edited = |edit: &dyn Fn(&mut serde_json::Value)| {
            let mut claim = stated["claim"].clone();
            edit(&mut claim);
            let mut map = stated.clone();
            map["claim"] = claim;
            verify(&found.clone().with_certificate(map).unwrap())
                .map(|_| ())
                .map_err(|error| error.to_string())
        };
        assert!(edited(&|_| {}).is_ok());
        let smaller = |claim: &mut serde_json::Value, epsilon: f64| {
            claim["epsilon"] = json!(epsilon);
            claim["allocated"]["epsilon"] = json!(epsilon);
        };
        let message = edited(&|claim| smaller(claim, 0.98)).unwrap_err();
        assert!(message.contains("claim.allocated.epsilon 0.98, but its numbers give δ ="), "{message}");
        let scaled = |claim: &mut serde_json::Value, factor: f64| {
            for part in ["common", "white"] {
                let value = claim["allocated"]["kernel"][part].as_f64().unwrap();
                claim["allocated"]["kernel"][part] = json!(value * factor);
            }
            for v in claim["allocated"]["kernel"]["chain"]["variance"].as_array_mut().unwrap() {
                *v = json!(v.as_f64().unwrap() * factor);
            }
        };
        let both = |claim: &mut serde_json::Value| {
            scaled(claim, 0.9);
            smaller(claim, 0.98);
        };
        let message = edited(&both).unwrap_err();
        assert!(message.contains("an entry below the bins' own"), "{message}");
        assert!(edited(&|claim| scaled(claim, -1.0)).is_err());
        // First bins of almost no variance, which a rule of integration may step over: no weight, no δ.
        let entry = (stated["claim"]["gdp_mu"].as_f64().unwrap() * found.stddev() / 1.5).powi(2);
        for variance in [1e-60, 1e-20, 1e-12, 1e-8, 1e-6] {
            let narrow = |claim: &mut serde_json::Value| {
                claim["allocated"]["kernel"] = json!({
                    "common": 1.001 * entry,
                    "white": 0.0,
                    "chain": {"kind": "circle", "variance": [variance, 1.0], "previous": [0.0], "first": [0.0]}
                });
                smaller(claim, 0.1);
            };
            let message = edited(&narrow).unwrap_err();
            assert!(
                message.contains("claim.allocated.epsilon 0.1, but its numbers give"),
                "{variance}: {message}"
            );
            assert!(!message.contains("below the bins' own"), "{variance}: {message}");
        }
        assert!(edited(&|claim| claim["allocated"]["num_bins"] = json!(600)).is_err());
        assert!(edited(&|claim| claim["allocated"]["epsilon"] = json!(-1.0)).is_err());
        assert!(edited(&|claim| claim["epsilon"] = json!(0.5)).is_err());
        assert!(edited(&|claim| claim["allocated"] = json!(null)).is_err());
    }
}
