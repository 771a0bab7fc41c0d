//! A request's answer: all mechanisms compared, or the one that was asked for.

use crate::error::{Error, Result};
use crate::factorization::Factorization;
use crate::optimize::{Observer, Problem};
use crate::plan::calibrate::{Goal, block_poisson};
use crate::plan::recommend::{
    Candidate, Question, Recommendation, Setting, candidate, independent, recommend, terms,
};
use crate::plan::request::Request;
use crate::privacy::account::Budget;
use crate::privacy::claim::{Basis, Claim};
use crate::privacy::large_delta;
use crate::privacy::participation::Participation;
use crate::privacy::schedule::Schedule;
use crate::strategy::Strategy;
use crate::strategy::names::{SamplingSpec, StrategyChoice, StrategySpec};
use corrnoise_core::Sampling;

impl Request {
    /// All mechanisms compared, or one beside independent noise.
    pub fn answer(&self, question: &Question, observer: Observer<'_>) -> Result<Recommendation> {
        let mut answer = match (&self.mechanism, self.sampling) {
            (StrategyChoice::Auto, None | Some(SamplingSpec::None)) => recommend(question, observer)?,
            (StrategyChoice::Auto, Some(_)) => {
                return self.refuse(
                    "--sampling is for one --strategy: auto compares them under cyclic and Poisson sampling; leave it out, or say none",
                );
            }
            (StrategyChoice::One(spec), _) => self.one(question, spec, observer)?,
        };
        // The size of the dataset counts, whoever draws the batches.
        let warning = self.dataset_size.and_then(|size| large_delta(question.goal.delta(), size));
        answer.warnings = warning.into_iter().collect();
        for candidate in &mut answer.candidates {
            candidate.plan = candidate.plan.clone().with_rounds(self.rounds)?;
        }
        Ok(answer)
    }

    /// One mechanism at the privacy that was asked for, beside independent noise under the same schedule at the (ε, δ) that it claims.
    fn one(
        &self,
        question: &Question,
        spec: &StrategySpec,
        observer: Observer<'_>,
    ) -> Result<Recommendation> {
        let schedule = self.schedule(question)?;
        let plain = Factorization::new(Strategy::Identity, question.num_steps)?;
        // The cheapest mechanism comes first: what it refuses is the question's fault, and no optimiser need run for it.
        Basis::new(&plain.form()?, question.num_steps, &terms(question, schedule.clone()))?;
        let strategy = match spec {
            StrategySpec::Identity => plain.clone(),
            _ => spec.build(&self.problem(question, &schedule)?, observer)?,
        };
        let chosen = candidate(question, &spec.to_string(), &strategy, schedule.clone())?;
        if let Some(most) = question.max_state_bytes.filter(|most| chosen.engine_bytes > *most) {
            let expected = self.spelling.of(&format!("at most {most}, as --max-state-bytes says"));
            let held = format!("{} bytes per parameter", chosen.memory());
            return Err(Error::parameter("state", held, expected));
        }
        let (mut candidates, mut skipped) = (vec![chosen], Vec::new());
        if *spec != StrategySpec::Identity {
            match independent_beside(question, &candidates[0], &plain, schedule) {
                Ok(independent) => candidates.push(independent),
                Err(error) => skipped.push(("identity".into(), error.to_string())),
            }
        }
        let reason = reason(&candidates);
        // The chosen one comes first among equals.
        let name = candidates[0].name.clone();
        candidates.sort_by(|a, b| a.error.total_cmp(&b.error));
        let best = candidates.iter().position(|candidate| candidate.name == name).unwrap_or(0);
        Ok(Recommendation { candidates, skipped, best, reason, warnings: Vec::new() })
    }

    /// What one mechanism's strategy is optimised for.
    fn problem(&self, question: &Question, schedule: &Schedule) -> Result<Problem> {
        let participation = match schedule.sampling() {
            // Under Poisson sampling a strategy costs its largest column norm, as in a stream.
            Some(Sampling::Poisson { .. } | Sampling::BlockPoisson { .. }) => Participation::Single,
            _ => schedule.participation(question.num_steps)?,
        };
        Ok(Problem {
            num_steps: question.num_steps,
            workload: question.workload.clone(),
            participation,
            objective: question.objective,
        })
    }

    /// The schedule of one mechanism.
    fn schedule(&self, question: &Question) -> Result<Schedule> {
        let cycle = question.setting.cycle(question.num_steps)?;
        let (Setting::Centralized { dataset_size, batch_size }, Some(Sampling::Cyclic { num_batches, .. })) =
            (&question.setting, cycle.sampling())
        else {
            return Ok(cycle);
        };
        let (dataset_size, batch_size) = (*dataset_size, *batch_size);
        Ok(Schedule::Sampling(match self.sampling {
            None | Some(SamplingSpec::Cyclic | SamplingSpec::None) => return Ok(cycle),
            Some(SamplingSpec::Poisson) => block_poisson(dataset_size, batch_size, 1),
            Some(SamplingSpec::BlockPoisson(blocks)) if blocks > num_batches => {
                let expected = format!("1 to {num_batches}, the batches of an epoch");
                return Err(Error::parameter("number of blocks", blocks, expected));
            }
            Some(SamplingSpec::BlockPoisson(blocks)) => block_poisson(dataset_size, batch_size, blocks),
            Some(SamplingSpec::BallsInBins) => Sampling::BallsInBins { dataset_size, num_bins: num_batches },
        }))
    }
}

/// Independent noise at the (ε, δ) that a mechanism claims: whatever goal that one has, both rows then have one privacy.
fn independent_beside(
    question: &Question,
    chosen: &Candidate,
    plain: &Factorization,
    schedule: Schedule,
) -> Result<Candidate> {
    let Claim { epsilon, delta, .. } = chosen.certificate.claim;
    // More than one μ has ε = 0 at a δ: there is no noise that is the least for it and comparable.
    if epsilon <= 0.0 {
        let expected =
            format!("above 0 at δ = {delta:e}, for independent noise to be calibrated to the same");
        return Err(Error::parameter(format!("epsilon of {}", chosen.name), epsilon, expected));
    }
    let goal = Goal::Budget(Budget::new(epsilon, delta)?);
    candidate(&Question { goal, ..question.clone() }, "identity", plain, schedule)
}

/// Of the chosen one, which comes first, beside independent noise where there is such a row of equal privacy.
fn reason(candidates: &[Candidate]) -> String {
    let chosen = &candidates[0];
    let relative = independent(&candidates[1..]).and_then(|row| chosen.noise_relative_to(row));
    let asked = format!("{}: as asked for", chosen.name);
    match relative {
        None => asked,
        Some(noise) if noise <= 1.0 => {
            format!("{asked}; {:.2} times less noise than independent noise", 1.0 / noise)
        }
        Some(noise) => format!("{asked}; {noise:.2} times the noise of independent noise"),
    }
}
