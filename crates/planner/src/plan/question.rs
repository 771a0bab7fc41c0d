//! From a request to a question with an answer: every option that was left out is decided, and options that do not fit together are
//! refused.

use crate::error::{Error, Result, check_finite, check_steps};
use crate::optimize::{Objective, Problem};
use crate::plan::calibrate::Goal;
use crate::plan::options::{OptionError, OptionName};
use crate::plan::request::{Request, SettingName};
use crate::privacy::account::Budget;
use crate::privacy::claim::{Claims, PrivacyUnit, Terms};
use crate::privacy::participation::Participation;
use crate::privacy::sampling::{SamplingSpec, num_batches};
use crate::privacy::schedule::Schedule;
use crate::privacy::sensitivity::Adjacency;
use crate::strategy::names::StrategyChoice;
use crate::utility::workload::Workload;
use corrnoise_core::Sampling;

/// More than anyone trains; what is larger is refused before anything of that size is allocated.
const MAX_STEPS: u64 = 100_000_000;

/// δ where the budget does not name one.
const DELTA: f64 = 1e-6;

/// Where training happens, which decides who can take part when.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Setting {
    /// One dataset, passed over in batches of an exact or expected size.
    Centralized { dataset_size: u64, batch_size: u64 },
    /// Clients that come by themselves, admitted at least `min_sep` steps apart.
    Federated { min_sep: u64, max_participations: u64 },
    /// Everyone takes part at most once.
    Streaming,
    /// The trainer's own data pipeline guarantees it.
    Given(Participation),
}

/// What a trainer knows and wants, with everything decided but the strategy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Question {
    pub steps: usize,
    pub setting: Setting,
    /// How much privacy. Mechanisms are compared at the (ε, δ) that it has.
    pub goal: Goal,
    pub workload: Workload,
    pub objective: Objective,
    pub adjacency: Adjacency,
    pub unit: PrivacyUnit,
    pub clip_norm: f64,
    /// Which claims noise is calibrated to.
    pub claims: Claims,
    /// Memory allowed per parameter, beyond gradient and model: of what the engine holds.
    pub max_state_bytes: Option<u64>,
}

impl Setting {
    /// The schedule without Poisson sampling, which is for one dataset; all other settings have this one alone.
    pub(super) fn cycle(&self, steps: usize) -> Result<Schedule> {
        Ok(match *self {
            Setting::Given(ref participation) => Schedule::Participation(participation.clone()),
            Setting::Centralized { dataset_size, batch_size } => {
                let num_batches = num_batches(dataset_size, batch_size)?;
                Schedule::Sampling(Sampling::Cyclic { dataset_size, num_batches })
            }
            Setting::Federated { min_sep, max_participations } => {
                Schedule::Sampling(Sampling::MinSep { min_sep, max_participations })
            }
            Setting::Streaming => {
                check_steps(steps)?;
                Schedule::Participation(Participation::Single)
            }
        })
    }
}

impl Question {
    /// What a claim for this question is made for.
    pub(super) fn terms(&self, schedule: Schedule) -> Terms {
        Terms { schedule, adjacency: self.adjacency, unit: self.unit, clip_norm: self.clip_norm }
    }

    /// What a strategy under this schedule is optimised for.
    pub(super) fn problem(&self, schedule: &Schedule) -> Result<Problem> {
        let participation = match schedule.poisson(self.steps) {
            // Under Poisson sampling a strategy costs its largest column norm, as in a stream.
            Some(_) => Participation::Single,
            None => schedule.participation(self.steps)?,
        };
        Ok(Problem {
            num_steps: self.steps,
            workload: self.workload.clone(),
            participation,
            objective: self.objective,
        })
    }
}

/// Refuses options that do not fit together.
fn refuse<T>(error: OptionError) -> Result<T> {
    Err(error.into())
}

impl Request {
    /// Decides what was left out, or says which options do not fit together.
    pub(super) fn question(&self) -> Result<Question> {
        let steps = self.num_steps()?;
        Ok(Question {
            steps,
            setting: self.decided_setting(steps)?,
            goal: self.goal()?,
            workload: self.workload.clone(),
            objective: self.objective,
            adjacency: self.adjacency,
            unit: self.unit,
            clip_norm: self.clip_norm,
            claims: self.claims,
            max_state_bytes: self.max_state_bytes,
        })
    }

    fn num_steps(&self) -> Result<usize> {
        const LENGTHS: &[OptionName] = &[OptionName::Steps, OptionName::Epochs];
        let steps = match (self.steps, self.epochs, self.dataset_size, self.batch_size) {
            (Some(_), Some(_), ..) => {
                return refuse(OptionError::Several { what: "length", one_of: LENGTHS });
            }
            (Some(steps), ..) => steps,
            (None, Some(epochs), Some(dataset_size), Some(batch_size)) => {
                steps_of_epochs(epochs, num_batches(dataset_size, batch_size)?)?
            }
            (None, None, ..) => return refuse(OptionError::Missing { what: "length", one_of: LENGTHS }),
            _ => return refuse(needs(OptionName::Epochs, None, DATASET)),
        };
        if steps == 0 || steps > MAX_STEPS {
            return Err(Error::parameter("number of steps", steps, format!("1 to {MAX_STEPS}")));
        }
        Ok(steps as usize)
    }

    fn decided_setting(&self, steps: usize) -> Result<Setting> {
        match (self.dataset_size, self.batch_size) {
            (Some(_), None) => return refuse(needs(OptionName::DatasetSize, None, &[OptionName::BatchSize])),
            (None, Some(_)) => return refuse(needs(OptionName::BatchSize, None, &[OptionName::DatasetSize])),
            _ => {}
        }
        if let Some(participation) = &self.participation {
            return self.given(participation);
        }
        let name = self.setting.unwrap_or_else(|| self.usual_setting());
        match (name, self.clients()) {
            (SettingName::Federated, _) | (_, None) => {}
            (_, Some((option, value))) => return refuse(OptionError::OnlyFederated { option, value }),
        }
        if self.sampling.is_some() && name != SettingName::Centralized {
            return refuse(self.without_dataset_to_sample());
        }
        match name {
            SettingName::Streaming => Ok(Setting::Streaming),
            SettingName::Federated => self.federated(),
            SettingName::Centralized => self.centralized(steps),
        }
    }

    /// The setting of a participation that the trainer's own pipeline guarantees.
    fn given(&self, participation: &Participation) -> Result<Setting> {
        let other = match (self.setting, self.sampling, self.clients()) {
            (Some(_), ..) => OptionName::Setting,
            (_, Some(_), _) => OptionName::Sampling,
            (_, _, Some((option, _))) => option,
            (None, None, None) => return Ok(Setting::Given(participation.clone())),
        };
        refuse(OptionError::Excludes { option: OptionName::Participation, other })
    }

    /// The first option that is about clients, and its value.
    fn clients(&self) -> Option<(OptionName, u64)> {
        let min_sep = self.min_sep.map(|value| (OptionName::MinSep, value));
        min_sep.or(self.max_participations.map(|value| (OptionName::MaxParticipations, value)))
    }

    /// The setting that the other options are for.
    fn usual_setting(&self) -> SettingName {
        match (self.clients(), self.dataset_size) {
            (Some(_), _) => SettingName::Federated,
            (None, Some(_)) => SettingName::Centralized,
            (None, None) => SettingName::Streaming,
        }
    }

    /// Why there is no dataset that a sampling scheme could draw from.
    fn without_dataset_to_sample(&self) -> OptionError {
        match (self.setting, self.clients()) {
            (Some(_), _) => {
                OptionError::Excludes { option: OptionName::Setting, other: OptionName::Sampling }
            }
            (None, Some((option, _))) => OptionError::Excludes { option, other: OptionName::Sampling },
            (None, None) => needs(OptionName::Sampling, None, DATASET),
        }
    }

    fn federated(&self) -> Result<Setting> {
        const CLIENTS: &[OptionName] = &[OptionName::MinSep, OptionName::MaxParticipations];
        match (self.min_sep, self.max_participations) {
            (Some(min_sep), Some(max_participations)) => {
                Ok(Setting::Federated { min_sep, max_participations })
            }
            _ => refuse(needs(OptionName::Setting, Some("federated"), CLIENTS)),
        }
    }

    fn centralized(&self, steps: usize) -> Result<Setting> {
        let (Some(dataset_size), Some(batch_size)) = (self.dataset_size, self.batch_size) else {
            return refuse(needs(OptionName::Setting, Some("centralized"), DATASET));
        };
        let drawn = Setting::Centralized { dataset_size, batch_size };
        match self.sampling {
            Some(SamplingSpec::None) => Ok(Setting::Given(drawn.cycle(steps)?.participation(steps)?)),
            _ => Ok(drawn),
        }
    }

    fn goal(&self) -> Result<Goal> {
        const BUDGETS: &[OptionName] = &[OptionName::Epsilon, OptionName::Mu, OptionName::NoiseMultiplier];
        let delta = self.delta.unwrap_or(DELTA);
        Budget::new(0.0, delta)?;
        match (self.epsilon, self.mu, self.noise_multiplier) {
            (Some(_), None, None) if self.delta.is_none() => {
                refuse(needs(OptionName::Epsilon, None, &[OptionName::Delta]))
            }
            (Some(epsilon), None, None) => {
                Ok(Goal::Budget(Budget::new(positive("epsilon", epsilon)?, delta)?))
            }
            (None, Some(mu), None) => Ok(Goal::GdpMu { gdp_mu: positive("mu", mu)?, delta }),
            (None, None, Some(sigma)) => {
                let noise_multiplier = positive("noise multiplier", sigma)?;
                Ok(match self.strategy {
                    // σ of the whole run, without a schedule: strategies are compared at the (ε, δ) that it has.
                    StrategyChoice::Auto => Goal::GdpMu { gdp_mu: 1.0 / noise_multiplier, delta },
                    StrategyChoice::One(_) => Goal::NoiseMultiplier { noise_multiplier, delta },
                })
            }
            (None, None, None) => refuse(OptionError::Missing { what: "budget", one_of: BUDGETS }),
            _ => refuse(OptionError::Several { what: "budget", one_of: BUDGETS }),
        }
    }
}

/// The options that describe a dataset.
const DATASET: &[OptionName] = &[OptionName::DatasetSize, OptionName::BatchSize];

fn needs(option: OptionName, value: Option<&'static str>, others: &'static [OptionName]) -> OptionError {
    OptionError::Needs { option, value, others }
}

/// As many steps as a data loader makes in so many epochs; the last batches of a fraction of an epoch are rounded up.
fn steps_of_epochs(epochs: f64, num_batches: u64) -> Result<u64> {
    check_finite("number of epochs", epochs)?;
    if epochs <= 0.0 {
        return Err(Error::parameter("number of epochs", epochs, "above 0"));
    }
    let steps = epochs * num_batches as f64;
    // A whole number that rounding has missed, as of 0.1 epochs, is that number.
    let near = (steps - steps.round()).abs() < 1e-9 * steps;
    Ok(if near { steps.round() as u64 } else { steps.ceil() as u64 })
}

fn positive(name: &str, value: f64) -> Result<f64> {
    check_finite(name, value)?;
    if value > 0.0 { Ok(value) } else { Err(Error::parameter(name, value, "positive")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::names::StrategySpec;

    #[test]
    fn epochs_are_counted_as_a_data_loader_counts_them() {
        for (epochs, batches, expected) in
            [(1.0, 512, 512), (2.0, 17, 34), (0.1, 30, 3), (2.5, 3, 8), (1.0 / 3.0, 9, 3), (1e-9, 512, 1)]
        {
            assert_eq!(steps_of_epochs(epochs, batches).unwrap(), expected, "{epochs} of {batches}");
        }
        // 511 whole batches and one of 88 examples: a loader's epoch is 512 steps.
        let request = |epochs| Request {
            epochs: Some(epochs),
            dataset_size: Some(51_188),
            batch_size: Some(100),
            mu: Some(1.0),
            ..Request::default()
        };
        let steps = |epochs| request(epochs).question().unwrap().steps;
        assert_eq!((steps(1.0), steps(3.0), steps(0.5)), (512, 1536, 256));
        // Whole epochs are whole cycles: nobody takes part more often than there are epochs.
        let schedule = request(3.0).question().unwrap().setting.cycle(1536).unwrap();
        let cyclic = Participation::Cyclic { separation: 512, max_participations: 3 };
        assert_eq!(schedule.participation(1536).unwrap(), cyclic);
    }

    #[test]
    fn the_setting_follows_from_what_is_given() {
        let strategy = StrategyChoice::One(StrategySpec::Identity);
        let base =
            || Request { steps: Some(8), mu: Some(1.0), strategy: strategy.clone(), ..Request::default() };
        let setting = |request: Request| request.question().unwrap().setting;
        assert_eq!(setting(base()), Setting::Streaming);
        let data = Request { dataset_size: Some(80), batch_size: Some(10), ..base() };
        assert_eq!(setting(data.clone()), Setting::Centralized { dataset_size: 80, batch_size: 10 });
        assert_eq!(
            setting(Request { sampling: Some(SamplingSpec::None), ..data.clone() }),
            Setting::Given(Participation::Cyclic { separation: 8, max_participations: 1 })
        );
        // A separation is about clients, whatever else is known.
        for request in [base(), data] {
            let clients = Request { min_sep: Some(3), max_participations: Some(2), ..request };
            assert_eq!(setting(clients), Setting::Federated { min_sep: 3, max_participations: 2 });
        }
    }
}
