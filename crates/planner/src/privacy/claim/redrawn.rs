//! Claims by random allocation that is redrawn in every epoch: where the proof applies, what the end of the noise's tail takes from it.

use super::allocated::MOST_EPSILON;
use super::{Basis, EPSILON_ROUNDING, MU_ROUNDING, Terms};
use crate::error::Result;
use crate::factorization::Factorization;
use crate::privacy::account::tail::{beyond, delta_taken};
use crate::privacy::account::{Budget, Redrawn};
use crate::privacy::sensitivity::Adjacency;
use corrnoise_core::Sampling;
use serde::{Deserialize, Serialize};

/// Epochs in each of which a unit takes part once, in a step that is drawn anew.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reallocated {
    /// The noise multiplier of a step, `stddev / (clip_norm · ‖C‖_col)`.
    pub noise_multiplier: f64,
    /// Places of an epoch among which a unit hides: its steps over the number of bands, so that their columns do not overlap.
    pub num_bins: u64,
    /// Epochs; one that is cut off counts as a whole one.
    pub num_epochs: u64,
    /// ε at the claim's δ by this proof.
    pub epsilon: f64,
}

/// The epochs of a run, and the places of each whose columns are orthogonal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epochs {
    num_bins: u64,
    num_epochs: u64,
}

/// Shares of δ that are set aside for the end of the tail: the first that is enough. The charge grows with ε, which is what is looked for.
const SHARES: [f64; 4] = [1e-9, 1e-5, 1e-2, 0.5];

impl Epochs {
    /// The epochs that the proof is about, if it applies: no columns of two epochs may overlap, and the pair is that of a unit that is
    /// zeroed. Steps that are as far apart as there are bands have columns that do not overlap, and a mean over all steps is one over
    /// shifts of such places (`docs/amplification.md`, sections 3 and 6). With one place there is nothing to hide among.
    pub(super) fn of(running: &Factorization, terms: &Terms) -> Option<Epochs> {
        let Some(Sampling::RandomAllocation { num_bins, .. }) = terms.schedule.sampling() else {
            return None;
        };
        let (steps, bands) = (running.num_steps() as u64, running.num_bands() as u64);
        let apart =
            bands == 1 || steps <= num_bins || num_bins.is_multiple_of(running.restart_every() as u64);
        let (num_places, num_epochs) = (num_bins / bands, steps.div_ceil(num_bins));
        // More places than anybody has steps are no question of this bound.
        let applies = num_places > 1 && Redrawn::new(1.0, num_places, num_epochs).is_ok();
        let applies = applies && apart && terms.adjacency == Adjacency::ZeroOut;
        applies.then_some(Epochs { num_bins: num_places, num_epochs })
    }
}

impl Basis {
    /// The least standard deviation, at most `plain`, with which epochs of random allocation meet a budget.
    pub(super) fn stddev_of_epochs(&self, epochs: Epochs, budget: Budget, plain: f64) -> Result<f64> {
        let Budget { epsilon, delta } = budget;
        // Beyond, e^ε leaves nothing of δ to the end of the tail, whatever the noise.
        if epsilon > MOST_EPSILON {
            return Ok(plain);
        }
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
        let Ok(mechanism) = Redrawn::new(noise_multiplier, num_bins, num_epochs) else { return Ok(None) };
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
    use crate::privacy::certificate::certificate_with;
    use crate::privacy::claim::Proof;
    use crate::{
        Adjacency, Factorization, Goal, Method, PrivacyUnit, Schedule, Strategy, Terms, Workload, calibrate,
        verify,
    };
    use corrnoise_core::{Plan, Sampling};
    use serde_json::json;

    fn terms(num_bins: u64, adjacency: Adjacency) -> Terms {
        Terms {
            schedule: Schedule::Sampling(Sampling::RandomAllocation { dataset_size: 1 << 40, num_bins }),
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

    /// Bands that begin anew in every epoch hide among fewer places: their claim is that of those places, and above samples of the run's own
    /// likelihood ratio.
    #[test]
    fn bands_within_epochs_are_amplified() {
        let terms = terms(10, Adjacency::ZeroOut);
        let bands = |restart_every: usize| {
            let banded = Factorization::new(Strategy::toeplitz(vec![1.0, 0.5]).unwrap(), 20).unwrap();
            let goal = budget(1.5, 0.02);
            calibrate(&banded.restarted(restart_every).unwrap(), &terms, &Workload::Prefix, &goal).unwrap()
        };
        for (restart_every, amplified) in [(10, true), (5, true), (4, false), (20, false)] {
            let found = verify(&bands(restart_every)).unwrap().claim;
            assert_eq!(found.method == Method::Redrawn, amplified, "{restart_every}: {found:?}");
            assert_eq!(found.redrawn.map(|redrawn| redrawn.num_bins), amplified.then_some(5));
        }
        let plan = bands(10);
        let sigma = plan.stddev() / 1.5;
        let mut state = 9_u64;
        let mut unit = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) as f64 + 0.5) / 2_f64.powi(31)
        };
        let mut lost = [0.0; 2];
        const SAMPLES: usize = 200_000;
        for _ in 0..SAMPLES {
            let mut ratio = 1.0;
            for _ in 0..2 {
                let z: Vec<f64> = (0..10)
                    .map(|_| (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos())
                    .collect();
                let column = |j: usize| match z.get(j + 1) {
                    Some(next) => ((z[j] + 0.5 * next) / sigma - 0.5 * 1.25 / (sigma * sigma)).exp(),
                    None => (z[j] / sigma - 0.5 / (sigma * sigma)).exp(),
                };
                ratio *= (0..10).map(column).sum::<f64>() / 10.0;
            }
            lost[0] += (ratio - 1.5_f64.exp()).max(0.0) / SAMPLES as f64;
            lost[1] += (1.0 - 1.5_f64.exp() * ratio).max(0.0) / SAMPLES as f64;
        }
        assert!(lost[0].max(lost[1]) < 0.02 && lost[0] > 0.005, "{lost:?}");
    }

    /// Bands, replaced units, one bin and no loss to speak of have the claim without amplification, for any steps of a unit.
    #[test]
    fn what_is_not_covered_has_the_plain_claim() {
        let bands = || Strategy::toeplitz(vec![1.0, 0.5]).unwrap();
        for (strategy, bins, adjacency, epsilon) in [
            (bands(), 10, Adjacency::ZeroOut, 1.0),
            (Strategy::Identity, 10, Adjacency::ReplaceOne, 1.0),
            (Strategy::Identity, 1, Adjacency::ZeroOut, 1.0),
            (Strategy::Identity, 1 << 39, Adjacency::ZeroOut, 1.0),
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
        // More than any bound by epochs can say: the plain claim.
        let strategy = Factorization::new(Strategy::Identity, 20).unwrap();
        let made = calibrate(&strategy, &terms, &Workload::Prefix, &budget(2000.0, 1e-6)).unwrap();
        assert_eq!(verify(&made).unwrap().claim.method, Method::Gaussian);
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
        // The claim without amplification, which plans had before there was another one, is true as well.
        let terms = terms(10, Adjacency::ZeroOut);
        let before = certificate_with(&found, &terms, &Workload::Prefix, 1e-6, Proof::Neither, None).unwrap();
        let claim = verify(&before.attach(found).unwrap()).unwrap().claim;
        assert!(claim.method == Method::Gaussian && claim.epsilon > 1.5, "{claim:?}");
    }
}
