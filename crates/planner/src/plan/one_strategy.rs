//! One strategy that was asked for by name, beside independent noise.

use crate::error::{Error, Result};
use crate::factorization::Factorization;
use crate::optimize::{Observer, Stage};
use crate::plan::allocated;
use crate::plan::calibrate::Goal;
use crate::plan::candidate::{Candidate, Recommendation, Skipped};
use crate::plan::options::OptionError;
use crate::plan::question::{Question, Setting};
use crate::privacy::account::Budget;
use crate::privacy::claim::Basis;
use crate::privacy::sampling::SamplingSpec;
use crate::privacy::schedule::Schedule;
use crate::strategy::Strategy;
use crate::strategy::names::StrategySpec;
use corrnoise_core::Sampling;

/// One strategy at the privacy that was asked for, beside independent noise under the same schedule at the (ε, δ) that it claims.
pub(super) fn one(
    question: &Question,
    strategy: &StrategySpec,
    sampling: Option<SamplingSpec>,
    observer: Observer<'_>,
) -> Result<Recommendation> {
    let schedule = schedule(question, sampling)?;
    let plain = Factorization::new(Strategy::Identity, question.steps)?;
    // The cheapest mechanism comes first: what it refuses is the question's fault, and no optimiser need run for it.
    Basis::new(&plain.form()?, question.steps, &question.terms(schedule.clone()))?;
    let name = strategy.to_string();
    observer.stage(Stage::Optimizing(&name));
    let factorization = allocated::build(question, strategy, &schedule, observer)?;
    observer.stage(Stage::Certifying(&name));
    let chosen = Candidate::new(question, strategy.clone(), &factorization, schedule.clone())?;
    if let Some(limit) = question.max_state_bytes.filter(|limit| chosen.engine_bytes > *limit) {
        return Err(OptionError::State { held: chosen.memory(), limit }.into());
    }
    let (mut skipped, mut independent) = (Vec::new(), None);
    if !chosen.is_independent() {
        observer.stage(Stage::Certifying("identity"));
        // Samples of independent noise under spaced Poisson sampling show little in minutes: its proof without amplification stands for it.
        let beside = match schedule {
            Schedule::Sampling(Sampling::SpacedPoisson { .. }) => question.setting.cycle(question.steps)?,
            schedule => schedule,
        };
        match independent_beside(question, &chosen, &plain, beside) {
            Ok(candidate) => independent = Some(candidate),
            Err(error) => {
                let strategy = StrategySpec::Identity.to_string();
                skipped.push(Skipped { strategy, reason: error.to_string() });
            }
        }
    }
    let reason = reason(&chosen, independent.as_ref());
    // The chosen one comes first among equals.
    let (candidates, best) = match independent {
        Some(independent) if independent.error < chosen.error => (vec![independent, chosen], 1),
        independent => (std::iter::once(chosen).chain(independent).collect(), 0),
    };
    Ok(Recommendation { candidates, skipped, best, reason, warnings: Vec::new() })
}

/// The schedule of one strategy: the setting's own, or the sampling that was asked for where there is a dataset.
fn schedule(question: &Question, sampling: Option<SamplingSpec>) -> Result<Schedule> {
    if let (Setting::Centralized { dataset_size, batch_size }, Some(sampling)) = (&question.setting, sampling)
        && let Some(scheme) = sampling.scheme(*dataset_size, *batch_size)?
    {
        return Ok(Schedule::Sampling(scheme));
    }
    question.setting.cycle(question.steps)
}

/// Independent noise at the (ε, δ) that a mechanism claims: whatever goal that one has, both rows then have one privacy.
fn independent_beside(
    question: &Question,
    chosen: &Candidate,
    plain: &Factorization,
    schedule: Schedule,
) -> Result<Candidate> {
    let claim = &chosen.certificate.claim;
    let (epsilon, delta) = (claim.budgeted_epsilon(), claim.delta);
    // More than one μ has ε = 0 at a δ: there is no noise that is the least for it and comparable.
    if epsilon <= 0.0 {
        let expected =
            format!("above 0 at δ = {delta:e}, for independent noise to be calibrated to the same");
        return Err(Error::parameter(format!("epsilon of {chosen}"), epsilon, expected));
    }
    let goal = Goal::Budget(Budget::new(epsilon, delta)?);
    Candidate::new(&Question { goal, ..question.clone() }, StrategySpec::Identity, plain, schedule)
}

/// Why the chosen one is recommended, with its noise beside that of independent noise where there is such a row of equal privacy.
fn reason(chosen: &Candidate, independent: Option<&Candidate>) -> String {
    let asked = format!("{chosen}: as asked for");
    match independent.and_then(|independent| chosen.noise_relative_to(independent)) {
        None => asked,
        Some(noise) if noise <= 1.0 => {
            format!("{asked}; {:.2} times less noise than independent noise", 1.0 / noise)
        }
        Some(noise) => format!("{asked}; {noise:.2} times the noise of independent noise"),
    }
}
