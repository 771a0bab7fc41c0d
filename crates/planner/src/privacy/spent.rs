//! What the first steps of a run cost: the claim of a run that ends early.
//!
//! The first steps of a mechanism are a mechanism by themselves: no row of `C⁻¹` looks at later steps. So the same form, over fewer
//! steps, has a claim of its own, by the same proofs; the whole run's claim holds as well, and the smaller one is told.

use crate::error::Result;
use crate::privacy::certificate::least_kept;
use crate::privacy::claim::{Basis, Claim, Method, Proof, Terms};
use crate::privacy::participation::{Participation, max_feasible_participations};
use crate::privacy::schedule::Schedule;
use crate::privacy::verify::verified;
use corrnoise_core::Plan;

/// The claim of a run that ends after its first `steps` steps; none after 0, which release nothing.
///
/// The whole run's claim, which holds for any part of it, stands in where a part has no proof of its own: under balls in bins, whose
/// proof is searched for minutes, and where fewer steps are refused. A plan whose claim does not hold is refused.
pub fn spent(plan: &Plan, steps: u64) -> Result<Option<Claim>> {
    let certificate = verified(plan)?;
    let whole = certificate.claim.clone();
    if steps == 0 {
        return Ok(None);
    }
    if steps >= plan.num_steps() || whole.method == Method::Allocated {
        return Ok(Some(whole));
    }
    let steps = usize::try_from(steps).unwrap_or(usize::MAX);
    let terms = shorter(certificate.terms(plan), steps);
    let stddev = plan.stddev() * least_kept(plan);
    let part = terms.and_then(|terms| {
        Basis::new(plan.form(), steps, &terms)?.claim(stddev, whole.delta, &terms, Proof::Without)
    });
    Ok(Some(match part {
        Ok(part) if part.epsilon < whole.epsilon => part,
        _ => whole,
    }))
}

/// The same terms, with no more participations than so many steps allow.
fn shorter(mut terms: Terms, steps: usize) -> Result<Terms> {
    if let Schedule::Participation(
        Participation::Cyclic { separation, max_participations }
        | Participation::MinSep { min_sep: separation, max_participations },
    ) = &mut terms.schedule
    {
        *max_participations = max_feasible_participations(steps, *separation)?.min(*max_participations);
    }
    Ok(terms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimize::unobserved;
    use crate::plan::Request;
    use crate::privacy::{certificate, sampling};
    use crate::strategy::names::{StrategyChoice, named};
    use crate::utility::workload::Workload;

    fn request(strategy: &str) -> Request {
        let strategy = StrategyChoice::One(named(strategy).unwrap());
        Request { epsilon: Some(2.0), delta: Some(1e-6), strategy, ..Request::default() }
    }

    fn drawn(strategy: &str, scheme: &str) -> Plan {
        let data =
            Request { epochs: Some(6.0), dataset_size: Some(100), batch_size: Some(10), ..request(strategy) };
        made(Request { sampling: Some(sampling::sampling(scheme).unwrap()), ..data })
    }

    fn made(request: Request) -> Plan {
        let recommendation = request.recommend(&mut unobserved()).unwrap();
        recommendation.candidates[recommendation.best].plan.clone()
    }

    /// Whatever the schedule: nothing before the first step, never less than before, never more than the whole, the claim at the end.
    #[test]
    fn more_steps_never_cost_less() {
        let federated =
            Request { steps: Some(60), min_sep: Some(10), max_participations: Some(5), ..request("blt:2") };
        let pipeline = Participation::Cyclic { separation: 20, max_participations: 3 };
        let plans = [
            drawn("identity", "poisson"),
            drawn("banded-opt:4", "block-poisson:5"),
            drawn("identity", "random-allocation"),
            drawn("identity", "truncated-poisson:25"),
            drawn("blt:2", "cyclic"),
            made(federated),
            made(Request { steps: Some(60), participation: Some(pipeline), ..request("blt:2") }),
        ];
        for plan in plans {
            let epsilon = |steps| spent(&plan, steps).unwrap().unwrap().epsilon;
            assert!(spent(&plan, 0).unwrap().is_none());
            let all: Vec<f64> = [1, 2, 5, 10, 11, 20, 21, 30, 59, 60, 61].into_iter().map(epsilon).collect();
            assert!(all.windows(2).all(|pair| pair[0] <= pair[1] * (1.0 + 1e-6)), "{all:?}");
            let whole = verified(&plan).unwrap().claim.epsilon;
            assert!(all[9] == whole && all[10] == whole && all[0] < 0.7 * whole, "{all:?}, {whole}");
        }
    }

    /// With independent noise a unit that took part once has moved one step, and one more epoch costs √2 as much.
    #[test]
    fn epochs_of_independent_noise_add_up() {
        let plan = drawn("identity", "cyclic");
        let mu = |steps| spent(&plan, steps).unwrap().unwrap().gdp_mu;
        let once = 1.0 / plan.stddev();
        for (steps, epochs) in [(1, 1.0f64), (10, 1.0), (11, 2.0), (20, 2.0), (41, 5.0)] {
            let expected = once * epochs.sqrt();
            assert!(
                (mu(steps) / expected - 1.0).abs() < 1e-6,
                "{steps} steps: {} against {expected}",
                mu(steps)
            );
        }
    }

    /// Under Poisson sampling the claim is that of a plan that was made for so many steps.
    #[test]
    fn rounds_of_sampling_add_up() {
        let plan = drawn("identity", "poisson");
        let terms = verified(&plan).unwrap().terms(&plan);
        for steps in [1, 7, 30] {
            let short = Plan::new(steps, plan.form().clone(), plan.stddev()).unwrap();
            let short = short.with_sampling(plan.sampling().unwrap()).unwrap();
            let workload = Workload::Prefix;
            let alone = certificate::certificate(&short, &terms, &workload, 1e-6).unwrap().claim;
            let part = spent(&plan, steps).unwrap().unwrap();
            assert!((part.epsilon / alone.epsilon - 1.0).abs() < 1e-9, "{steps}: {part:?} {alone:?}");
        }
    }

    /// A plan that was edited tells no numbers.
    #[test]
    fn a_claim_that_does_not_hold_is_refused() {
        let plan = drawn("identity", "cyclic");
        let mut certificate = plan.certificate().unwrap().clone();
        certificate["claim"]["epsilon"] = 0.5.into();
        assert!(spent(&plan.with_certificate(certificate).unwrap(), 3).is_err());
    }
}
