//! Claims by random allocation that is redrawn in every epoch: where the proof applies, what the end of the noise's tail takes from it.

use super::{Basis, EPSILON_ROUNDING, MU_ROUNDING, Terms};
use crate::error::Result;
use crate::factorization::Factorization;
use crate::privacy::account::tail::{beyond, delta_taken};
use crate::privacy::account::{Budget, Redrawn};
use crate::privacy::sensitivity::Adjacency;
use corrnoise_core::Sampling;
use serde::{Deserialize, Serialize};

/// Epochs of independent noise in each of which a unit takes part once, in a step that is drawn anew.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reallocated {
    /// The noise multiplier of a step, `stddev / (clip_norm · ‖C‖_col)`.
    pub noise_multiplier: f64,
    /// Steps of an epoch.
    pub num_bins: u64,
    /// Epochs; one that is cut off counts as a whole one.
    pub num_epochs: u64,
    /// ε at the claim's δ by this proof.
    pub epsilon: f64,
}

/// The epochs of a run whose columns are orthogonal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epochs {
    num_bins: u64,
    num_epochs: u64,
}

/// Shares of δ that are set aside for the end of the tail: the first that is enough. The charge grows with ε, which is what is looked for.
const SHARES: [f64; 4] = [1e-9, 1e-5, 1e-2, 0.5];

impl Epochs {
    /// The epochs that the proof is about, if it applies: it needs independent noise, so that no two columns overlap, and the pair of a
    /// unit that is zeroed. With one bin there is nothing to hide among.
    pub(super) fn of(running: &Factorization, terms: &Terms) -> Option<Epochs> {
        let Some(Sampling::RandomAllocation { num_bins, .. }) = terms.schedule.sampling() else {
            return None;
        };
        let applies = running.num_bands() == 1 && terms.adjacency == Adjacency::ZeroOut && num_bins > 1;
        let num_epochs = (running.num_steps() as u64).div_ceil(num_bins);
        applies.then_some(Epochs { num_bins, num_epochs })
    }
}

impl Basis {
    /// The least standard deviation, at most `plain`, with which epochs of random allocation meet a budget.
    pub(super) fn stddev_of_epochs(&self, epochs: Epochs, budget: Budget, plain: f64) -> Result<f64> {
        let Budget { epsilon, delta } = budget;
        let left = |noise_multiplier: f64| {
            let tail = self.redrawn_tail(epochs, noise_multiplier, epsilon, delta);
            let share = SHARES.into_iter().find(|share| tail <= share * delta);
            share.map_or(0.0, |share| delta * (1.0 - share))
        };
        let Epochs { num_bins, num_epochs } = epochs;
        let found = Redrawn::calibrated_with(budget, num_bins, num_epochs, left)?;
        Ok(plain.min(self.stddev_of_round(found.noise_multiplier)))
    }

    /// The proof by redrawn epochs and the part of δ that the end of the tail takes from it, if it gives a bound.
    pub(super) fn redrawn(
        &self,
        epochs: Epochs,
        stddev: f64,
        delta: f64,
    ) -> Result<Option<(Reallocated, f64)>> {
        let Epochs { num_bins, num_epochs } = epochs;
        let noise_multiplier = stddev / (self.clip_norm * self.column_norm) * (1.0 - MU_ROUNDING);
        let mechanism = Redrawn::new(noise_multiplier, num_bins, num_epochs)?;
        for share in SHARES {
            // With less noise than this not even ε = 0 leaves enough.
            if self.redrawn_tail(epochs, noise_multiplier, 0.0, delta) > share * delta {
                continue;
            }
            let epsilon = mechanism.epsilon(delta * (1.0 - share))? * (1.0 + EPSILON_ROUNDING);
            let tail = self.redrawn_tail(epochs, noise_multiplier, epsilon, delta);
            if epsilon.is_finite() && tail <= share * delta {
                return Ok(Some((Reallocated { noise_multiplier, num_bins, num_epochs, epsilon }, tail)));
            }
        }
        Ok(None)
    }

    /// What the end of the tail takes: in every epoch a unit moves the noise of one step, and it may leave its disc whichever the step. Without
    /// the unit, outputs inside their discs lack what would have come from beyond the shifted ones: no more than that, and it counts
    /// `e^ε` times.
    fn redrawn_tail(&self, epochs: Epochs, noise_multiplier: f64, epsilon: f64, delta: f64) -> f64 {
        let pairs = Self::pairs(self.num_rows);
        let leaves = epochs.num_epochs as f64 * beyond(1.0 / noise_multiplier, pairs);
        delta_taken(delta, pairs, (leaves * epsilon.exp()).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use crate::privacy::account::{Budget, Redrawn};
    use crate::{
        Adjacency, Factorization, Goal, Method, PrivacyUnit, Schedule, Strategy, Terms, Workload, calibrate,
        verify,
    };
    use corrnoise_core::{Plan, Sampling};
    use serde_json::json;

    fn terms(num_bins: u64, adjacency: Adjacency) -> Terms {
        Terms {
            schedule: Schedule::Sampling(Sampling::RandomAllocation { dataset_size: 600, num_bins }),
            adjacency,
            unit: PrivacyUnit::Example,
            clip_norm: 1.5,
        }
    }

    fn plan(strategy: Strategy, steps: usize, terms: &Terms, goal: Goal) -> Plan {
        let strategy = Factorization::new(strategy, steps).unwrap();
        calibrate(&strategy, terms, &Workload::Prefix, &goal).unwrap()
    }

    fn budget(epsilon: f64, delta: f64) -> Goal {
        Goal::Budget(Budget { epsilon, delta })
    }

    /// A budget is met and hardly more, also by a run whose last epoch is cut off, which counts as a whole one.
    #[test]
    fn independent_noise_is_amplified() {
        for (steps, bins, epsilon, delta) in [(40, 10, 1.0, 1e-6), (33, 10, 4.0, 1e-9), (7, 20, 0.3, 1e-3)] {
            let found =
                plan(Strategy::Identity, steps, &terms(bins, Adjacency::ZeroOut), budget(epsilon, delta));
            let claim = verify(&found).unwrap().claim;
            let redrawn = claim.redrawn.unwrap();
            assert_eq!((claim.method, claim.epsilon), (Method::Redrawn, redrawn.epsilon));
            assert!(claim.epsilon <= epsilon && claim.epsilon > epsilon * (1.0 - 1e-4), "{claim:?}");
            assert_eq!((redrawn.num_bins, redrawn.num_epochs), (bins, (steps as u64).div_ceil(bins)));
            assert!((found.stddev() / (1.5 * redrawn.noise_multiplier) - 1.0).abs() < 1e-6);
            let alone = Redrawn::new(redrawn.noise_multiplier, bins, redrawn.num_epochs).unwrap();
            assert!((alone.epsilon(delta).unwrap() / claim.epsilon - 1.0).abs() < 1e-6);
            assert!(claim.tail_delta > 0.0 && claim.tail_delta < 1e-9 * delta, "{claim:?}");
            assert!(claim.assumptions.iter().any(|text| text.contains("drawn independently of all others")));
        }
    }

    /// Bands, replaced units, one bin and no loss to speak of have the claim without amplification, for any steps of a unit.
    #[test]
    fn what_is_not_covered_has_the_plain_claim() {
        let bands = || Strategy::toeplitz(vec![1.0, 0.5]).unwrap();
        for (strategy, bins, adjacency, epsilon) in [
            (bands(), 10, Adjacency::ZeroOut, 1.0),
            (Strategy::Identity, 10, Adjacency::ReplaceOne, 1.0),
            (Strategy::Identity, 1, Adjacency::ZeroOut, 1.0),
            (Strategy::Identity, 10, Adjacency::ZeroOut, 0.0),
        ] {
            let found = plan(strategy, 20, &terms(bins, adjacency), budget(epsilon, 1e-6));
            let claim = verify(&found).unwrap().claim;
            assert_eq!(claim.method, Method::Gaussian, "{claim:?}");
            assert!(!claim.assumptions.iter().any(|text| text.contains("drawn independently")));
        }
    }

    /// Whatever δ and ε are: a claim that is no larger than the plain one, or a refusal with its reason.
    #[test]
    fn extremes_are_claimed_or_refused() {
        let terms = terms(10, Adjacency::ZeroOut);
        let (mut claimed, mut amplified) = (0, 0);
        for delta in [1e-300, 1e-20, 1e-3, 1.0 - 1e-9] {
            for epsilon in [1e-9, 1.0, 9.0, 1e9] {
                let strategy = Factorization::new(Strategy::Identity, 20).unwrap();
                let made = calibrate(&strategy, &terms, &Workload::Prefix, &budget(epsilon, delta));
                let Ok(made) = made.map_err(|error| {
                    let text = error.to_string();
                    assert!(text.contains("expected"), "ε = {epsilon}, δ = {delta}: {text}");
                }) else {
                    continue;
                };
                let claim = verify(&made).unwrap().claim;
                assert!(claim.epsilon <= epsilon && claim.tail_delta < delta, "{claim:?}");
                claimed += 1;
                amplified += usize::from(claim.method == Method::Redrawn);
            }
        }
        assert!(claimed > 7 && amplified > 3, "{claimed} {amplified}");
    }

    #[test]
    fn resealed_claims_that_say_more_are_refused() {
        let found = plan(Strategy::Identity, 20, &terms(10, Adjacency::ZeroOut), budget(1.0, 1e-6));
        let stated = found.certificate().unwrap().clone();
        let edited = |edit: &dyn Fn(&mut serde_json::Value)| {
            let mut map = stated.clone();
            edit(&mut map["claim"]);
            verify(&found.clone().with_certificate(map).unwrap())
                .map(|_| ())
                .map_err(|error| error.to_string())
        };
        assert!(edited(&|_| {}).is_ok());
        for (key, value) in [
            ("epsilon", json!(0.99)),
            ("num_bins", json!(11)),
            ("num_epochs", json!(1)),
            ("noise_multiplier", json!(100.0)),
        ] {
            let message = edited(&|claim| claim["redrawn"][key] = value.clone()).unwrap_err();
            assert!(message.contains(&format!("claim.redrawn.{key}")), "{message}");
        }
        assert!(edited(&|claim| claim["epsilon"] = json!(0.99)).unwrap_err().contains("claim.epsilon 0.99"));
        assert!(edited(&|claim| claim["method"] = json!("gaussian")).is_err());
        assert!(edited(&|claim| claim["redrawn"] = json!(null)).is_err());
    }
}
