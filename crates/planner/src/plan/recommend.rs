//! Which strategy? Every class is optimised, calibrated to one (ε, δ) and certified for the numbers a trainer knows, and compared by what
//! matters: noise in what is released, memory, and cost per step.
//!
//! The classes and schedules follow the recommendations of Pillutla et al. (2025): centralised training samples with block-cyclic
//! Poisson sampling or cycles through a shuffled dataset, federated training admits clients a minimum number of steps apart, a stream sees
//! everyone once.

use super::{allocated, compare};
use crate::error::{Error, Result};
use crate::factorization::Factorization;
use crate::optimize::{self, Observer, Problem, Stage, toeplitz};
use crate::plan::calibrate::{Goal, calibrate_bands, calibrate_blocks};
use crate::plan::candidate::{Candidate, Recommendation, Skipped, sampled};
use crate::plan::question::{Question, Setting};
use crate::privacy::account::Budget;
use crate::privacy::claim::Method;
use crate::privacy::participation::Participation;
use crate::privacy::sampling::{SamplingSpec, block_poisson, num_batches};
use crate::privacy::schedule::Schedule;
use crate::strategy::Strategy;
use crate::strategy::names::StrategySpec;
use crate::utility::cost::ring_bands_within;
use corrnoise_core::Sampling;

/// Most bands of a ring where no limit on memory is given.
const USUAL_BANDS: usize = 64;
/// Bands of the inverses that are tried: a step makes as many rows.
const INVERSE_BANDS: usize = 8;
/// Most steps for which a dense strategy is tried: beyond, optimising and certifying take more than seconds.
const DENSE_STEPS: usize = 512;
/// Most steps for which banded strategies and banded inverses are tried.
const BANDED_STEPS: usize = 200_000;

/// How much is tried under balls in bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bins {
    /// Strategies whose proofs take seconds.
    Quick,
    /// All of them, because it was asked for.
    Asked,
    /// None of them, but spaced Poisson samples with this separation, with confident claims.
    Spaced(u64),
}

/// A strategy that was found, and the schedule that it is for.
struct Found {
    strategy: StrategySpec,
    factorization: Factorization,
    schedule: Schedule,
}

/// A strategy that was tried: what was found, or the name under which it is said to be left out.
type Attempt = std::result::Result<Found, (String, Error)>;

/// Compares every class of strategy and recommends one. All are calibrated to one (ε, δ): that of the question's goal. Balls in bins
/// are tried where that takes seconds, and otherwise where they are `asked` for.
pub(super) fn all(question: &Question, bins: Bins, observer: Observer<'_>) -> Result<Recommendation> {
    let question = &Question { goal: Goal::Budget(compare::budget(&question.goal)?), ..question.clone() };
    let cycle = question.setting.cycle(question.steps)?;
    // Independent noise always works: if it does not, the question is at fault.
    let plain = Factorization::new(Strategy::Identity, question.steps)?;
    observer.stage(Stage::Certifying("identity"));
    let candidates = vec![Candidate::new(question, StrategySpec::Identity, &plain, cycle.clone())?];
    let mut attempts = sampled_attempts(question, &question.problem(&cycle)?, observer);
    attempts.extend(classes(question, &cycle, observer)?);
    match bins {
        Bins::Spaced(min_sep) => attempts.push(spaced_attempt(question, min_sep, observer)),
        _ => attempts.extend(allocated_attempts(question, bins, observer)),
    }
    certified(question, candidates, attempts, observer)
}

/// Compares every class of strategy that has a claim under one scheme, and nothing under another: whoever names it needs its batches.
pub(super) fn under(
    question: &Question,
    scheme: SamplingSpec,
    observer: Observer<'_>,
) -> Result<Recommendation> {
    let question = &Question { goal: Goal::Budget(compare::budget(&question.goal)?), ..question.clone() };
    let (Setting::Centralized { dataset_size, batch_size }, Goal::Budget(budget)) =
        (question.setting.clone(), question.goal)
    else {
        return Err(Error::parameter("sampling", scheme, "none, where there is no dataset to sample from"));
    };
    let drawn = |scheme: SamplingSpec| -> Result<Sampling> {
        let none = || Error::parameter("sampling", scheme, "one that the engine draws");
        scheme.scheme(dataset_size, batch_size)?.ok_or_else(none)
    };
    let schedule = Schedule::Sampling(drawn(scheme)?);
    let plain = Factorization::new(Strategy::Identity, question.steps)?;
    observer.stage(Stage::Certifying("identity"));
    let candidates = vec![Candidate::new(question, StrategySpec::Identity, &plain, schedule.clone())?];
    let attempts = match scheme {
        SamplingSpec::TruncatedPoisson { max_batch_size, num_blocks } => {
            observer.stage(Stage::Optimizing("banded-opt"));
            let problem = question.problem(&schedule)?;
            // Bands and blocks go together: where blocks are given, there is one number of bands, and else all are tried.
            let most = num_batches(dataset_size, batch_size)?.min(question.steps as u64) as usize;
            let found = match num_blocks {
                1 => calibrate_blocks(&problem, budget, most.min(most_bands(question)), |num_blocks| {
                    drawn(SamplingSpec::TruncatedPoisson { max_batch_size, num_blocks })
                }),
                _ => StrategySpec::BandedOpt(most.min(num_blocks as usize))
                    .build(&problem, observer)
                    .and_then(|factorization| Ok((factorization, drawn(scheme)?))),
            };
            vec![
                found
                    .and_then(bands)
                    .map_err(|error| (format!("banded-opt{}", sampled(Some(scheme))), error)),
            ]
        }
        // A single band is the independent noise that is there already.
        _ => {
            let mut classes = classes(question, &schedule, observer)?;
            classes.retain(|class| !matches!(class, Ok(Found { strategy: StrategySpec::BandedOpt(1), .. })));
            classes
        }
    };
    certified(question, candidates, attempts, observer)
}

/// All candidates with those of the attempts that can be certified, by their errors.
fn certified(
    question: &Question,
    mut candidates: Vec<Candidate>,
    attempts: Vec<Attempt>,
    observer: Observer<'_>,
) -> Result<Recommendation> {
    let mut skipped = Vec::new();
    for attempt in attempts {
        let candidate = attempt.and_then(|Found { strategy, factorization, schedule }| {
            let name =
                format!("{strategy}{}", sampled(schedule.sampling().and_then(|s| SamplingSpec::of(&s))));
            observer.stage(Stage::Certifying(&name));
            let candidate = Candidate::new(question, strategy, &factorization, schedule);
            candidate.and_then(amplified_as_asked).map_err(|error| (name, error))
        });
        match candidate {
            Ok(candidate) => candidates.push(candidate),
            Err((strategy, error)) => skipped.push(Skipped { strategy, reason: error.to_string() }),
        }
    }
    candidates.sort_by(|a, b| a.error.total_cmp(&b.error));
    let (best, reason) = compare::choose(&candidates, question)?;
    Ok(Recommendation { candidates, skipped, best, reason, warnings: Vec::new() })
}

/// Every class of strategy but independent noise, made for a schedule.
fn classes(question: &Question, cycle: &Schedule, observer: Observer<'_>) -> Result<Vec<Attempt>> {
    let n = question.steps;
    let problem = question.problem(cycle)?;
    let found = |strategy: StrategySpec, factorization: Factorization| Found {
        strategy,
        factorization,
        schedule: cycle.clone(),
    };
    let built = |strategy: StrategySpec, observer: Observer<'_>| {
        let name = strategy.to_string();
        observer.stage(Stage::Optimizing(&name));
        let factorization = strategy.build(&problem, observer).map_err(|error| (name, error))?;
        Ok(found(strategy, factorization))
    };
    observer.stage(Stage::Optimizing("blt"));
    let mut attempts = vec![match optimize::blt::optimize_auto(&problem, 1e-3, observer) {
        Ok(best) => Ok(found(StrategySpec::Blt(num_buffers(&best.factorization)), best.factorization)),
        Err(error) => Err(("blt".into(), error)),
    }];
    if n <= BANDED_STEPS {
        // A ring must be kept: as many bands as memory allows, and no more than are orthogonal.
        let separation = match problem.participation {
            Participation::Cyclic { separation, .. } => separation,
            Participation::MinSep { min_sep, .. } => min_sep,
            _ => n,
        };
        let most = separation.min(most_bands(question)).min(n).max(1);
        observer.stage(Stage::Optimizing("banded-opt"));
        attempts.push(match toeplitz::best_bands(&problem, most, observer) {
            Ok((bands, best)) => Ok(found(StrategySpec::BandedOpt(bands), best.factorization)),
            Err(error) => Err(("banded-opt".into(), error)),
        });
        let bands = INVERSE_BANDS.min(n);
        attempts.push(built(StrategySpec::BandinvOpt(bands), observer));
        attempts.push(built(StrategySpec::Bisr(bands), observer));
    } else {
        let names = ["banded-opt", "bandinv-opt", "bisr"];
        attempts.extend(names.map(|name| too_large(name, "n² bands", n, BANDED_STEPS)));
    }
    attempts.push(match n <= crate::CUBIC_LIMIT {
        true => built(StrategySpec::Tree, observer),
        false => too_large("tree", "n³/6", n, crate::CUBIC_LIMIT),
    });
    attempts.push(match n <= DENSE_STEPS {
        true => built(StrategySpec::Dense, observer),
        false => too_large("dense", "n³", n, DENSE_STEPS),
    });
    Ok(attempts)
}

fn num_buffers(factorization: &Factorization) -> usize {
    match factorization.strategy() {
        Strategy::Blt(blt) => blt.num_buffers(),
        _ => 0,
    }
}

/// A class that is not tried at this size.
fn too_large(name: &str, cost: &'static str, n: usize, limit: usize) -> Attempt {
    let what = "optimising and certifying it".into();
    Err((name.into(), Error::TooLarge { what, cost, n, limit }))
}

/// Independent noise and bands under Poisson sampling, where there is a dataset to sample from.
fn sampled_attempts(question: &Question, problem: &Problem, observer: Observer<'_>) -> Vec<Attempt> {
    let Setting::Centralized { dataset_size, batch_size } = question.setting else { return Vec::new() };
    let schedule = Schedule::Sampling(block_poisson(dataset_size, batch_size, 1));
    let plain = Factorization::new(Strategy::Identity, question.steps);
    let strategy = StrategySpec::Identity;
    let mut attempts = vec![match plain {
        Ok(factorization) => Ok(Found { strategy, factorization, schedule }),
        Err(error) => Err((format!("identity{}", sampled(Some(SamplingSpec::Poisson))), error)),
    }];
    // Always so: `all` has made a budget of the goal.
    if question.steps <= BANDED_STEPS
        && let Goal::Budget(budget) = question.goal
    {
        observer.stage(Stage::Optimizing("banded-opt, block-cyclic Poisson"));
        let tuned = tuned_bands(question, problem, dataset_size, batch_size, budget);
        let name = || format!("banded-opt{}", sampled(Some(SamplingSpec::BlockPoisson(0))));
        attempts.push(tuned.map_err(|error| (name(), error)));
    }
    attempts
}

/// BLTs and banded inverses under balls in bins, made for the amplified claim.
fn allocated_attempts(question: &Question, bins: Bins, observer: Observer<'_>) -> Vec<Attempt> {
    let Setting::Centralized { dataset_size, batch_size } = question.setting else { return Vec::new() };
    let Ok(Some(sampling)) = SamplingSpec::BallsInBins.scheme(dataset_size, batch_size) else {
        return Vec::new();
    };
    let schedule = Schedule::Sampling(sampling);
    let name = |strategy: &str| format!("{strategy}{}", sampled(Some(SamplingSpec::BallsInBins)));
    let num_bins = match allocated::target(question, &schedule) {
        Ok((_, num_bins)) => num_bins,
        Err(error) => return vec![Err((name("blt"), error))],
    };
    if bins == Bins::Quick && num_bins > allocated::QUICK_BINS {
        let expected =
            format!("at most {}, or sampling balls-in-bins asked for: a minute", allocated::QUICK_BINS);
        return vec![Err((name("blt"), Error::parameter("number of bins", num_bins, expected)))];
    }
    if question.steps > BANDED_STEPS {
        return vec![too_large(&name("blt"), "n bins", question.steps, BANDED_STEPS)];
    }
    let found = |strategy, factorization| Found { strategy, factorization, schedule: schedule.clone() };
    // With a second buffer noise falls by a percent at most, and one takes as long as the other.
    let buffers = 1..=if bins == Bins::Asked { allocated::MOST_BUFFERS } else { 1 };
    let mut attempts: Vec<Attempt> = Vec::new();
    for buffers in buffers {
        let strategy = StrategySpec::Blt(buffers);
        let name = name(&strategy.to_string());
        observer.stage(Stage::Optimizing(&name));
        let built = allocated::build(question, &strategy, &schedule, observer);
        attempts.push(built.map(|built| found(strategy, built)).map_err(|error| (name, error)));
    }
    let inverse = allocated::best_inverse(question, &schedule, observer);
    attempts
        .push(inverse.map(|(strategy, built)| found(strategy, built)).map_err(|error| (name("bisr"), error)));
    attempts
}

/// As many bands as the separation and memory allow, under spaced Poisson sampling. The columns of a unit's steps do not overlap, so the best strategy
/// is that of any steps so far apart.
fn spaced_attempt(question: &Question, min_sep: u64, observer: Observer<'_>) -> Attempt {
    let spaced = SamplingSpec::SpacedPoisson(min_sep);
    let name = format!("banded-opt{}", sampled(Some(spaced)));
    observer.stage(Stage::Optimizing(&name));
    let built = || {
        let Setting::Centralized { dataset_size, batch_size } = question.setting else {
            let expected = "a dataset that batches are drawn from";
            return Err(Error::parameter("setting of spaced Poisson sampling", "another", expected));
        };
        if question.steps > BANDED_STEPS {
            return Err(Error::parameter(
                "number of steps",
                question.steps,
                format!("at most {BANDED_STEPS}"),
            ));
        }
        let Some(sampling) = spaced.scheme(dataset_size, batch_size)? else {
            return Err(Error::parameter("sampling", spaced, "one that is drawn"));
        };
        let schedule = Schedule::Sampling(sampling);
        let separation = usize::try_from(min_sep).unwrap_or(usize::MAX);
        let strategy = StrategySpec::BandedOpt(separation.min(most_bands(question)).min(question.steps));
        let factorization = strategy.build(&question.problem(&schedule)?, &mut optimize::unobserved())?;
        Ok(Found { strategy, factorization, schedule })
    };
    built().map_err(|error| (name, error))
}

/// Leaves out what balls in bins, or spaced Poisson samples, do not amplify: with as much noise it may as well be sampled in cycles.
fn amplified_as_asked(candidate: Candidate) -> Result<Candidate> {
    let claim = &candidate.certificate.claim;
    let amplified = claim.method == Method::Allocated || claim.confident.is_some();
    match candidate.sampling() {
        Some(SamplingSpec::BallsInBins | SamplingSpec::SpacedPoisson(_)) if !amplified => {
            Err(Error::parameter(
                format!("amplification{}", sampled(candidate.sampling()).replace(", ", " by ")),
                "none that is known",
                "less noise than without",
            ))
        }
        _ => Ok(candidate),
    }
}

fn tuned_bands(
    question: &Question,
    problem: &Problem,
    dataset_size: u64,
    batch_size: u64,
    budget: Budget,
) -> Result<Found> {
    bands(calibrate_bands(problem, dataset_size, batch_size, budget, most_bands(question))?)
}

/// Bands with their scheme, if there are several.
fn bands((factorization, sampling): (Factorization, Sampling)) -> Result<Found> {
    let bands = factorization.num_bands();
    if bands == 1 {
        return Err(Error::parameter("best number of bands", 1, "more than the independent noise above"));
    }
    let (strategy, schedule) = (StrategySpec::BandedOpt(bands), Schedule::Sampling(sampling));
    Ok(Found { strategy, factorization, schedule })
}

/// As many bands as memory allows.
fn most_bands(question: &Question) -> usize {
    question.max_state_bytes.map_or(USUAL_BANDS, ring_bands_within)
}

#[cfg(test)]
mod tests;
