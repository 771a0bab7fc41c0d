//! A request's answer: all mechanisms compared, or the one that was asked for.

use super::Request;
use crate::auto::{Candidate, Question, Recommendation, Setting, candidate, recommend};
use crate::calibrate::block_poisson;
use crate::error::{Error, Result};
use crate::factorization::Factorization;
use crate::optimize::{Observer, Problem};
use crate::participation::Participation;
use crate::schedule::Schedule;
use crate::spec::{SamplingSpec, StrategyChoice, StrategySpec};
use crate::strategy::Strategy;
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
        for candidate in &mut answer.candidates {
            candidate.plan = candidate.plan.clone().with_rounds(self.rounds)?;
        }
        Ok(answer)
    }

    /// One mechanism, beside independent noise under the same schedule.
    fn one(
        &self,
        question: &Question,
        spec: &StrategySpec,
        observer: Observer<'_>,
    ) -> Result<Recommendation> {
        let schedule = self.schedule(question)?;
        let plain = Factorization::new(Strategy::Identity, question.num_steps)?;
        // The cheapest mechanism comes first: if it fails, the question is at fault.
        let mut candidates = vec![candidate(question, "identity", &plain, schedule.clone())?];
        if *spec != StrategySpec::Identity {
            let participation = match schedule.sampling() {
                // Under Poisson sampling a strategy costs its largest column norm, as in a stream.
                Some(Sampling::Poisson { .. } | Sampling::BlockPoisson { .. }) => Participation::Single,
                _ => schedule.participation(question.num_steps)?,
            };
            let problem = Problem {
                num_steps: question.num_steps,
                workload: question.workload.clone(),
                participation,
                target: question.target,
            };
            let strategy = spec.build(&problem, observer)?;
            candidates.push(candidate(question, &spec.to_string(), &strategy, schedule)?);
        }
        let chosen = &candidates[candidates.len() - 1];
        if let Some(most) = question.max_state_bytes.filter(|most| chosen.state_bytes > *most) {
            let expected = self.spelling.of(&format!("at most {most}, as --max-state-bytes says"));
            return Err(Error::parameter(
                "state",
                format!("{} bytes per parameter", chosen.state_bytes),
                expected,
            ));
        }
        let (name, reason) = (chosen.name.clone(), reason(&candidates));
        candidates.sort_by(|a, b| a.error.total_cmp(&b.error));
        let best = candidates.iter().position(|candidate| candidate.name == name).unwrap_or(0);
        Ok(Recommendation { candidates, skipped: Vec::new(), best, reason })
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

fn reason(candidates: &[Candidate]) -> String {
    let chosen = &candidates[candidates.len() - 1];
    let gain = candidates[0].error / chosen.error;
    match candidates {
        [_] => format!("{}: as asked for", chosen.name),
        _ if gain >= 1.0 => {
            format!("{}: as asked for; {gain:.2} times less noise than independent noise", chosen.name)
        }
        _ => format!("{}: as asked for; {:.2} times the noise of independent noise", chosen.name, 1.0 / gain),
    }
}
