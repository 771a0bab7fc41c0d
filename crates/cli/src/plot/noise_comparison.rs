//! A chart of the noise in every released value: of the strategy, and of independent noise.
//!
//! A strategy without a plan has losses: sensitivity times error, for unit privacy without amplification. A plan has a standard deviation,
//! and independent noise has another one for the same (ε, δ): what the table of `plan` compares, under the sampling that suits
//! independent noise best. A plan that is drawn under other terms than its own is compared with nothing, because losses leave out
//! the amplification that its own terms may have.

use super::canvas::{BLACK, BLUE, ORANGE, Stroke};
use super::log_chart::Series;
use crate::failure::Result;
use crate::inspect::Inspected;
use crate::table::digits;
use corrnoise::planner::account::Budget;
use corrnoise::planner::{
    Claim, Factorization, Goal, Method, Schedule, Strategy, Terms, Workload, calibrate, verify,
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
        let (claim, terms) = (certificate.claim.clone(), certificate.terms(plan));
        let rival = |(schedule, sampled): (Schedule, String)| -> Option<(f64, String)> {
            let goal = Goal::Budget(Budget::new(claim.epsilon, claim.delta).ok()?);
            let identity = Factorization::new(Strategy::Identity, num_steps).ok()?;
            let terms = Terms { schedule, ..terms.clone() };
            Some((calibrate(&identity, &terms, workload, &goal).ok()?.stddev(), sampled))
        };
        // At every step its error is the same multiple of its standard deviation, so the least of them is the best rival.
        let rivals = schedules_of_independent_noise(&terms.schedule).into_iter().filter_map(rival);
        let independent = rivals.min_by(|a, b| a.0.total_cmp(&b.0));
        Ok(PlanNoise { stddev: plan.stddev(), claim: Some(certificate.claim), independent })
    }
}

/// The plan's own schedule, and Poisson sampling of the same batches on average where there is a dataset to sample from, each with
/// how the picture names it. Independent noise needs no blocks that take turns: it is sampled from the whole dataset.
fn schedules_of_independent_noise(own: &Schedule) -> Vec<(Schedule, String)> {
    let same = (own.clone(), ", same schedule".to_owned());
    let Some(sampling) = own.sampling() else { return vec![same] };
    let (Some(dataset_size), Some(sampling_prob)) = (sampling.dataset_size(), sampling.mean_rate()) else {
        return vec![same];
    };
    let schedule = Schedule::Sampling(Sampling::Poisson { dataset_size, sampling_prob });
    let poisson = (schedule, format!(", Poisson, p = {}", digits(sampling_prob)));
    if own.is_poisson() { vec![poisson] } else { vec![same, poisson] }
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
            let independent = match inspected.is_plan {
                true => None,
                false => Some(("independent noise".to_owned(), errors(&identity, sensitivity)?)),
            };
            let own_name = if inspected.is_plan { "this plan's strategy" } else { "this strategy" };
            return Ok(Comparison {
                titles: [
                    "Loss of every released value",
                    "step, from 1 on",
                    "sensitivity times standard error",
                ],
                own: (own_name.into(), errors(&inspected.factorization, own)?),
                independent,
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
            let name = "under this participation, every strategy's largest value is above";
            series.push(line(name, vec![(1.0, bound), (last, bound)], dotted));
        }
        series
    }
}
