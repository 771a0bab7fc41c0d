//! From the numbers a trainer knows to the planner's question, and to the schedule of one strategy.

use crate::args::{PlanArgs, SettingName, Unit};
use crate::failure::{Failure, Result};
use crate::parse::{SamplingSpec, StrategyChoice};
use corrnoise::Sampling;
use corrnoise::planner::account::Budget;
use corrnoise::planner::auto::{Question, Setting};
use corrnoise::planner::{Goal, PrivacyUnit, Schedule, block_poisson};

/// More than anyone trains; what is larger is refused before anything of that size is allocated.
const MAX_STEPS: u64 = 100_000_000;

/// δ where the budget does not name one.
const DELTA: f64 = 1e-6;

/// Everything but the strategy.
pub fn question(args: &PlanArgs) -> Result<Question> {
    let num_steps = num_steps(args)?;
    Ok(Question {
        num_steps,
        setting: setting(args, num_steps)?,
        goal: goal(args)?,
        workload: args.workload.clone(),
        target: args.objective,
        adjacency: args.adjacency,
        privacy_unit: match args.unit {
            Unit::Example => PrivacyUnit::Example,
            Unit::User => PrivacyUnit::User,
        },
        clip_norm: args.clip_norm,
        max_state_bytes: args.max_state_bytes,
    })
}

fn num_steps(args: &PlanArgs) -> Result<usize> {
    let steps = match (args.steps, args.epochs, args.dataset_size, args.batch_size) {
        (Some(steps), ..) => steps,
        (None, Some(epochs), Some(dataset_size), Some(batch_size)) => {
            if epochs <= 0.0 {
                return Err(Failure::value("number of epochs", epochs, "above 0"));
            }
            let steps = epochs * dataset_size as f64 / batch_size as f64;
            // A whole number that rounding has missed, as of 0.1 epochs, is that number.
            let near = (steps - steps.round()).abs() < 1e-9 * steps;
            if near { steps.round() as u64 } else { steps.ceil() as u64 }
        }
        _ => {
            return Err(Failure::input("--epochs needs --dataset-size and --batch-size; or give --steps"));
        }
    };
    if steps > MAX_STEPS {
        return Err(Failure::value("number of steps", steps, format!("at most {MAX_STEPS}")));
    }
    Ok((steps as usize).max(1))
}

fn setting(args: &PlanArgs, num_steps: usize) -> Result<Setting> {
    if let Some(participation) = &args.participation {
        return Ok(Setting::Given(participation.clone()));
    }
    let by_default =
        if args.dataset_size.is_some() { SettingName::Centralized } else { SettingName::Streaming };
    let name = args.setting.unwrap_or(by_default);
    if let Some(min_sep) = args.min_sep.filter(|_| name != SettingName::Federated) {
        return Err(Failure::input(format!(
            "--min-sep {min_sep} is for --setting federated; for a pipeline of your own give --participation minsep:B,K"
        )));
    }
    if args.sampling.is_some() && name != SettingName::Centralized {
        return Err(Failure::input(
            "--sampling draws batches from one dataset: give --dataset-size and --batch-size, or leave it out",
        ));
    }
    Ok(match (name, args.dataset_size, args.batch_size, args.min_sep, args.max_participations) {
        (SettingName::Streaming, ..) => Setting::Streaming,
        (SettingName::Federated, _, _, Some(min_sep), Some(max_participations)) => {
            Setting::Federated { min_sep, max_participations }
        }
        (SettingName::Federated, ..) => {
            return Err(Failure::input("--setting federated needs --min-sep and --max-participations"));
        }
        (SettingName::Centralized, Some(dataset_size), Some(batch_size), ..) => {
            let engine = Setting::Centralized { dataset_size, batch_size };
            match args.sampling {
                Some(SamplingSpec::None) => {
                    Setting::Given(engine.cycle(num_steps)?.participation(num_steps)?)
                }
                _ => engine,
            }
        }
        (SettingName::Centralized, ..) => {
            return Err(Failure::input("--setting centralized needs --dataset-size and --batch-size"));
        }
    })
}

fn goal(args: &PlanArgs) -> Result<Goal> {
    let delta = args.delta.unwrap_or(DELTA);
    let positive = |name: &str, value: f64| {
        if value > 0.0 { Ok(value) } else { Err(Failure::value(name, value, "positive")) }
    };
    Budget::new(0.0, delta)?;
    match (args.epsilon, args.mu, args.noise_multiplier) {
        (Some(epsilon), ..) => Ok(Goal::Budget(Budget::new(positive("epsilon", epsilon)?, delta)?)),
        (_, Some(mu), _) => Ok(Goal::GdpMu { gdp_mu: positive("mu", mu)?, delta }),
        (_, _, Some(sigma)) => {
            let noise_multiplier = positive("noise multiplier", sigma)?;
            Ok(match args.strategy {
                // Mechanisms are compared at equal privacy: σ of the whole run, under every schedule.
                StrategyChoice::Auto => Goal::GdpMu { gdp_mu: 1.0 / noise_multiplier, delta },
                StrategyChoice::One(_) => Goal::NoiseMultiplier { noise_multiplier, delta },
            })
        }
        _ => Err(Failure::input("no budget: expected --epsilon and --delta, or --mu, or --noise-multiplier")),
    }
}

/// The schedule of one strategy.
pub fn schedule(args: &PlanArgs, question: &Question) -> Result<Schedule> {
    let cycle = question.setting.cycle(question.num_steps)?;
    let (Setting::Centralized { dataset_size, batch_size }, Some(Sampling::Cyclic { num_batches, .. })) =
        (&question.setting, cycle.sampling())
    else {
        return Ok(cycle);
    };
    let (dataset_size, batch_size) = (*dataset_size, *batch_size);
    Ok(Schedule::Sampling(match args.sampling {
        None | Some(SamplingSpec::Cyclic | SamplingSpec::None) => return Ok(cycle),
        Some(SamplingSpec::Poisson) => block_poisson(dataset_size, batch_size, 1),
        Some(SamplingSpec::BlockPoisson(blocks)) if blocks > num_batches => {
            return Err(Failure::value(
                "number of blocks",
                blocks,
                format!("1 to {num_batches}, the batches of an epoch"),
            ));
        }
        Some(SamplingSpec::BlockPoisson(blocks)) => block_poisson(dataset_size, batch_size, blocks),
        Some(SamplingSpec::BallsInBins) => Sampling::BallsInBins { dataset_size, num_bins: num_batches },
    }))
}
