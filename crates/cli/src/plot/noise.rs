//! What the picture compares: the noise in every released value, of the strategy and of independent noise.
//!
//! A strategy without a plan has losses: sensitivity times error, for unit privacy without amplification. A plan has a standard deviation,
//! and independent noise has another one for the same (ε, δ), under sampling of its own kind: what the table of `plan` compares.

use super::axes::Series;
use super::{BLACK, BLUE, ORANGE, Stroke};
use crate::failure::Result;
use crate::inspect::Inspected;
use corrnoise::planner::account::Budget;
use corrnoise::planner::{
    Claim, Factorization, Goal, Method, Schedule, Strategy, Workload, calibrate, verify,
};
use corrnoise::{Plan, Sampling};

/// Standard deviations of a plan and of its rival.
pub struct PlanNoise {
    /// Of the plan's `Z`.
    pub stddev: f64,
    /// The plan's claim, computed again; absent if what the plan says does not hold.
    pub claim: Option<Claim>,
    /// Of independent noise for the same (ε, δ), where it can be computed, and how that is sampled.
    independent: Option<(f64, String)>,
}

impl PlanNoise {
    /// Of a plan with a claim.
    pub fn of(plan: &Plan, num_steps: usize, workload: &Workload) -> Result<PlanNoise> {
        let Ok(certificate) = verify(plan) else {
            return Ok(PlanNoise { stddev: plan.stddev(), claim: None, independent: None });
        };
        let mut terms = certificate.terms(plan);
        let mut sampled = String::new();
        if let Schedule::Sampling(sampling) = &mut terms.schedule {
            // Independent noise has one band and needs no blocks that take turns: the same batches on average, from the whole dataset.
            if let Sampling::BlockPoisson { dataset_size, num_blocks, sampling_prob } = *sampling {
                let sampling_prob = sampling_prob / num_blocks as f64;
                *sampling = Sampling::Poisson { dataset_size, sampling_prob };
            }
            if let Sampling::Poisson { sampling_prob, .. } = *sampling {
                sampled = format!(", Poisson, p = {sampling_prob}");
            }
        }
        let claim = certificate.claim;
        let rival = || -> Option<f64> {
            let goal = Goal::Budget(Budget::new(claim.epsilon, claim.delta).ok()?);
            let identity = Factorization::new(Strategy::Identity, num_steps).ok()?;
            Some(calibrate(&identity, &terms, workload, &goal).ok()?.stddev())
        };
        let independent = rival().map(|stddev| (stddev, sampled));
        Ok(PlanNoise { stddev: plan.stddev(), claim: Some(claim), independent })
    }
}

/// The last of the picture's charts.
pub struct Comparison {
    pub titles: [&'static str; 3],
    own: (String, Vec<f64>),
    independent: Option<(String, Vec<f64>)>,
    bound: Option<f64>,
}

impl Comparison {
    /// Of a plan's noise, or of losses.
    pub fn of(inspected: &Inspected) -> Result<Comparison> {
        let problem = &inspected.problem;
        let errors = |factorization: &Factorization, factor: f64| -> Result<Vec<f64>> {
            let squared = factorization.per_query_error_squared(&problem.workload)?;
            Ok(squared.into_iter().map(|value| factor * value.sqrt()).collect())
        };
        let identity = Factorization::new(Strategy::Identity, problem.num_steps)?;
        let bound = inspected.lower_bound.map(|(bound, _)| bound);
        let own = inspected.loss.sensitivity.value;
        let Some(noise) = &inspected.noise else {
            let sensitivity = identity.sensitivity(&problem.participation, inspected.adjacency)?.value;
            return Ok(Comparison {
                titles: [
                    "Loss of every released value",
                    "step, from 1 on",
                    "sensitivity times standard error",
                ],
                own: ("this strategy".into(), errors(&inspected.factorization, own)?),
                independent: Some(("independent noise".into(), errors(&identity, sensitivity)?)),
                bound,
            });
        };
        let independent = match &noise.independent {
            Some((stddev, sampled)) => Some((
                format!("independent noise for the same ε and δ{sampled}"),
                errors(&identity, *stddev)?,
            )),
            None => None,
        };
        // Losses become standard deviations with the plan's noise per unit of sensitivity; under amplification the bound says nothing.
        let plain = noise.claim.as_ref().is_some_and(|claim| claim.method == Method::Gaussian);
        Ok(Comparison {
            titles: [
                "Noise in every released value",
                "step, from 1 on",
                "standard deviation, in units of the summed gradient",
            ],
            own: ("this plan".into(), errors(&inspected.factorization, noise.stddev)?),
            independent,
            bound: bound.filter(|_| plain).map(|bound| bound * noise.stddev / own),
        })
    }

    /// Lines of the chart, with points thinned by `thinned`.
    pub fn series(&self, thinned: fn(&[f64]) -> Vec<(f64, f64)>) -> Vec<Series<'_>> {
        let line = |name, points, stroke| Series { name, points, stroke, mark: None };
        let solid = Stroke { colour: BLUE, width: 2.0, dash: None };
        let dashed = Stroke { colour: ORANGE, width: 2.0, dash: Some((8.0, 5.0)) };
        let dotted = Stroke { colour: BLACK, width: 1.5, dash: Some((2.0, 4.0)) };
        let mut series = vec![line(self.own.0.as_str(), thinned(&self.own.1), solid)];
        if let Some((name, values)) = &self.independent {
            series.push(line(name, thinned(values), dashed));
        }
        if let Some(bound) = self.bound {
            let last = self.own.1.len() as f64;
            let name = "the largest one of any strategy is above this";
            series.push(line(name, vec![(1.0, bound), (last, bound)], dotted));
        }
        series
    }
}
