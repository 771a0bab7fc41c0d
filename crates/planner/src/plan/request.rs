//! From options to an answer: what `corrnoise plan` and `corrnoise.plan` ask for, with one meaning, the same defaults and the same refusals.

use crate::error::{Error, Result, check_finite};
use crate::optimize::Objective;
use crate::plan::calibrate::Goal;
use crate::plan::recommend::{Question, Setting};
use crate::privacy::account::Budget;
use crate::privacy::claim::PrivacyUnit;
use crate::privacy::participation::Participation;
use crate::privacy::sensitivity::Adjacency;
use crate::strategy::names::{SamplingSpec, StrategyChoice};
use crate::utility::workload::Workload;
use corrnoise_core::Rounds;

/// More than anyone trains; what is larger is refused before anything of that size is allocated.
const MAX_STEPS: u64 = 100_000_000;

/// δ where the budget does not name one.
const DELTA: f64 = 1e-6;

/// Where training happens, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingName {
    /// One dataset, whose batches the engine draws.
    Centralized,
    /// Clients come by themselves, the engine admits them.
    Federated,
    /// Everyone takes part at most once.
    Streaming,
}

/// How messages spell options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spelling {
    /// `min_sep`, as the fields of [`Request`].
    #[default]
    Keywords,
    /// `--min-sep`; `--steps` for `num_steps`, `--strategy` for `mechanism`.
    Flags,
}

impl Spelling {
    /// A message that is written with flags.
    pub(super) fn of(self, text: &str) -> String {
        let keyword = |word: &str| match word.strip_prefix("--") {
            Some(flag) => {
                flag.replace('-', "_").replace("steps", "num_steps").replace("strategy", "mechanism")
            }
            None => word.into(),
        };
        match self {
            Spelling::Flags => text.into(),
            Spelling::Keywords => text.split(' ').map(keyword).collect::<Vec<String>>().join(" "),
        }
    }
}

/// What was asked for, with `None` for what was left out.
///
/// ```
/// use corrnoise_planner::optimize::unobserved;
/// use corrnoise_planner::{Request, names, verify};
///
/// let request = Request {
///     epochs: Some(2.0),
///     dataset_size: Some(330),
///     batch_size: Some(20),
///     epsilon: Some(2.0),
///     delta: Some(1e-6),
///     mechanism: names::strategy_choice("blt:2")?,
///     ..Request::default()
/// };
/// let answer = request.answer(&request.question()?, &mut unobserved())?;
/// let plan = &answer.candidates[answer.best].plan;
/// assert_eq!(plan.num_steps(), 33);
/// assert!(verify(plan)?.claim.epsilon <= 2.0);
/// # Ok::<(), corrnoise_planner::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Steps; or `epochs`.
    pub num_steps: Option<u64>,
    /// Passes over the dataset.
    pub epochs: Option<f64>,
    /// Units in the dataset.
    pub dataset_size: Option<u64>,
    /// Units in a batch, exactly or on average.
    pub batch_size: Option<u64>,
    /// Who takes part when, guaranteed by the trainer's own pipeline.
    pub participation: Option<Participation>,
    /// By default what the other options are for: a dataset, clients, or else a stream.
    pub setting: Option<SettingName>,
    /// Federated: steps between two participations.
    pub min_sep: Option<u64>,
    /// Federated: participations of one client.
    pub max_participations: Option<u64>,
    /// The budget's ε, with `delta`.
    pub epsilon: Option<f64>,
    /// δ; 1e-6 beside `mu` and `noise_multiplier`.
    pub delta: Option<f64>,
    /// The budget as μ of Gaussian differential privacy; where mechanisms are compared, the ε that it has at `delta`.
    pub mu: Option<f64>,
    /// The budget as noise: 1/μ, with the same meaning; for one mechanism under Poisson sampling that of one round.
    pub noise_multiplier: Option<f64>,
    /// Largest norm of what one unit contributes to a step.
    pub clip_norm: f64,
    /// Neighbouring datasets.
    pub adjacency: Adjacency,
    /// Whose privacy.
    pub privacy_unit: PrivacyUnit,
    /// What is released.
    pub workload: Workload,
    /// Which error counts.
    pub objective: Objective,
    /// Memory for noise per parameter, at most: of what the engine holds.
    pub max_state_bytes: Option<u64>,
    /// Which mechanism.
    pub mechanism: StrategyChoice,
    /// How one mechanism's batches are drawn from one dataset; cyclic by default.
    pub sampling: Option<SamplingSpec>,
    /// ChaCha rounds.
    pub rounds: Rounds,
    /// Of messages.
    pub spelling: Spelling,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            num_steps: None,
            epochs: None,
            dataset_size: None,
            batch_size: None,
            participation: None,
            setting: None,
            min_sep: None,
            max_participations: None,
            epsilon: None,
            delta: None,
            mu: None,
            noise_multiplier: None,
            clip_norm: 1.0,
            adjacency: Adjacency::ZeroOut,
            privacy_unit: PrivacyUnit::Example,
            workload: Workload::Prefix,
            objective: Objective::Max,
            max_state_bytes: None,
            mechanism: StrategyChoice::Auto,
            sampling: None,
            rounds: Rounds::default(),
            spelling: Spelling::default(),
        }
    }
}

impl Request {
    /// Everything but the mechanism.
    pub fn question(&self) -> Result<Question> {
        let num_steps = self.num_steps()?;
        Ok(Question {
            num_steps,
            setting: self.setting(num_steps)?,
            goal: self.goal()?,
            workload: self.workload.clone(),
            objective: self.objective,
            adjacency: self.adjacency,
            privacy_unit: self.privacy_unit,
            clip_norm: self.clip_norm,
            max_state_bytes: self.max_state_bytes,
        })
    }

    pub(super) fn refuse<T>(&self, text: &str) -> Result<T> {
        Err(Error::Input(self.spelling.of(text)))
    }

    fn num_steps(&self) -> Result<usize> {
        let steps = match (self.num_steps, self.epochs, self.dataset_size, self.batch_size) {
            (Some(_), Some(_), ..) => return self.refuse("--steps and --epochs: expected one of them"),
            (Some(steps), ..) => steps,
            (None, Some(epochs), Some(dataset_size), Some(batch_size)) => {
                steps_of_epochs(epochs, dataset_size, batch_size)?
            }
            (None, None, ..) => return self.refuse("no length: expected --steps or --epochs"),
            _ => return self.refuse("--epochs needs --dataset-size and --batch-size; or give --steps"),
        };
        if steps == 0 || steps > MAX_STEPS {
            return Err(Error::parameter("number of steps", steps, format!("1 to {MAX_STEPS}")));
        }
        Ok(steps as usize)
    }

    fn setting(&self, num_steps: usize) -> Result<Setting> {
        if self.dataset_size.is_some() != self.batch_size.is_some() {
            return self.refuse("--dataset-size and --batch-size need each other");
        }
        if let Some(participation) = &self.participation {
            let clients = self.min_sep.is_some() || self.max_participations.is_some();
            if self.setting.is_some() || self.sampling.is_some() || clients {
                return self.refuse(
                    "--participation takes the place of --setting and --sampling: leave one of them out",
                );
            }
            return Ok(Setting::Given(participation.clone()));
        }
        let name = self.setting.unwrap_or_else(|| self.usual_setting());
        if name != SettingName::Federated
            && let Some(min_sep) = self.min_sep.or(self.max_participations)
        {
            let option = if self.min_sep.is_some() { "--min-sep" } else { "--max-participations" };
            return self.refuse(&format!(
                "{option} {min_sep} is for --setting federated; for a pipeline of your own give --participation minsep:B,K"
            ));
        }
        if self.sampling.is_some() && name != SettingName::Centralized {
            return self.refuse(
                "--sampling draws batches from one dataset: give --dataset-size and --batch-size, or leave it out",
            );
        }
        match name {
            SettingName::Streaming => Ok(Setting::Streaming),
            SettingName::Federated => self.federated(),
            SettingName::Centralized => self.centralized(num_steps),
        }
    }

    fn usual_setting(&self) -> SettingName {
        match (self.dataset_size, self.min_sep.or(self.max_participations)) {
            (Some(_), _) => SettingName::Centralized,
            (None, Some(_)) => SettingName::Federated,
            (None, None) => SettingName::Streaming,
        }
    }

    fn federated(&self) -> Result<Setting> {
        match (self.min_sep, self.max_participations) {
            (Some(min_sep), Some(max_participations)) => {
                Ok(Setting::Federated { min_sep, max_participations })
            }
            _ => self.refuse("--setting federated needs --min-sep and --max-participations"),
        }
    }

    fn centralized(&self, num_steps: usize) -> Result<Setting> {
        let (Some(dataset_size), Some(batch_size)) = (self.dataset_size, self.batch_size) else {
            return self.refuse("--setting centralized needs --dataset-size and --batch-size");
        };
        let engine = Setting::Centralized { dataset_size, batch_size };
        match self.sampling {
            Some(SamplingSpec::None) => {
                Ok(Setting::Given(engine.cycle(num_steps)?.participation(num_steps)?))
            }
            _ => Ok(engine),
        }
    }

    fn goal(&self) -> Result<Goal> {
        let delta = self.delta.unwrap_or(DELTA);
        Budget::new(0.0, delta)?;
        match (self.epsilon, self.mu, self.noise_multiplier) {
            (Some(_), None, None) if self.delta.is_none() => self.refuse("--epsilon needs --delta"),
            (Some(epsilon), None, None) => {
                Ok(Goal::Budget(Budget::new(positive("epsilon", epsilon)?, delta)?))
            }
            (None, Some(mu), None) => Ok(Goal::GdpMu { gdp_mu: positive("mu", mu)?, delta }),
            (None, None, Some(sigma)) => {
                let noise_multiplier = positive("noise multiplier", sigma)?;
                Ok(match self.mechanism {
                    // σ of the whole run, without a schedule: `recommend` compares at the (ε, δ) that it has.
                    StrategyChoice::Auto => Goal::GdpMu { gdp_mu: 1.0 / noise_multiplier, delta },
                    StrategyChoice::One(_) => Goal::NoiseMultiplier { noise_multiplier, delta },
                })
            }
            (None, None, None) => {
                self.refuse("no budget: expected --epsilon and --delta, or --mu, or --noise-multiplier")
            }
            _ => self.refuse("two budgets: expected one of --epsilon, --mu and --noise-multiplier"),
        }
    }
}

fn steps_of_epochs(epochs: f64, dataset_size: u64, batch_size: u64) -> Result<u64> {
    check_finite("number of epochs", epochs)?;
    if epochs <= 0.0 {
        return Err(Error::parameter("number of epochs", epochs, "above 0"));
    }
    let steps = epochs * dataset_size as f64 / batch_size as f64;
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
    use crate::optimize::unobserved;
    use crate::strategy::names::StrategySpec;

    /// Independent noise for 8 steps.
    fn base() -> Request {
        let mechanism = StrategyChoice::One(StrategySpec::Identity);
        Request { num_steps: Some(8), mu: Some(1.0), mechanism, ..Request::default() }
    }

    fn refusal(request: Request) -> String {
        let answer = request.question().and_then(|question| request.answer(&question, &mut unobserved()));
        answer.unwrap_err().to_string()
    }

    #[test]
    fn what_does_not_fit_together_is_named_in_either_spelling() {
        let data = || Request { dataset_size: Some(80), batch_size: Some(10), ..base() };
        let full = || Request { participation: Some(Participation::Full), ..base() };
        let cases = [
            (Request { num_steps: None, ..base() }, "no length: expected num_steps or epochs"),
            (Request { num_steps: Some(0), ..base() }, "number of steps is 0: expected 1 to"),
            (Request { epochs: Some(2.0), ..data() }, "num_steps and epochs: expected one of them"),
            (
                Request { num_steps: None, epochs: Some(2.0), ..base() },
                "epochs needs dataset_size and batch_size; or give num_steps",
            ),
            (Request { num_steps: None, epochs: Some(f64::NAN), ..data() }, "number of epochs is NaN"),
            (Request { batch_size: None, ..data() }, "dataset_size and batch_size need each other"),
            (
                Request { setting: Some(SettingName::Streaming), ..full() },
                "participation takes the place of setting",
            ),
            (Request { min_sep: Some(3), ..full() }, "participation takes the place"),
            (Request { min_sep: Some(3), ..data() }, "min_sep 3 is for setting federated"),
            (
                Request { max_participations: Some(4), ..data() },
                "max_participations 4 is for setting federated",
            ),
            (
                Request { min_sep: Some(3), ..base() },
                "setting federated needs min_sep and max_participations",
            ),
            (
                Request { setting: Some(SettingName::Centralized), ..base() },
                "setting centralized needs dataset_size",
            ),
            (
                Request { sampling: Some(SamplingSpec::Poisson), ..base() },
                "sampling draws batches from one dataset",
            ),
            (
                Request { sampling: Some(SamplingSpec::Poisson), mechanism: StrategyChoice::Auto, ..data() },
                "sampling is for one mechanism: auto compares",
            ),
            (
                Request { mu: None, ..base() },
                "no budget: expected epsilon and delta, or mu, or noise_multiplier",
            ),
            (Request { noise_multiplier: Some(1.0), ..base() }, "two budgets"),
            (Request { mu: None, epsilon: Some(1.0), ..base() }, "epsilon needs delta"),
            (Request { mu: Some(f64::INFINITY), ..base() }, "mu is inf: expected a finite number"),
            (
                Request {
                    mechanism: StrategyChoice::One(StrategySpec::Blt(2)),
                    max_state_bytes: Some(4),
                    ..base()
                },
                "state is 8 bytes per parameter: expected at most 4, as max_state_bytes says",
            ),
            (
                Request {
                    num_steps: Some(20),
                    mechanism: StrategyChoice::One(StrategySpec::BandedSquareRoot(10)),
                    max_state_bytes: Some(40),
                    ..base()
                },
                "state is 36 + 28 bytes per parameter: expected at most 40, as max_state_bytes says",
            ),
        ];
        for (request, expected) in cases {
            let text = refusal(request.clone());
            assert!(text.contains(expected), "{text}");
            let flags = refusal(Request { spelling: Spelling::Flags, ..request });
            assert_eq!(Spelling::Keywords.of(&flags), text);
        }
        let flags = Request { spelling: Spelling::Flags, num_steps: None, ..base() };
        assert_eq!(refusal(flags), "no length: expected --steps or --epochs");
    }

    #[test]
    fn the_setting_follows_from_what_is_given() {
        let setting = |request: Request| request.question().unwrap().setting;
        assert_eq!(setting(base()), Setting::Streaming);
        let data = Request { dataset_size: Some(80), batch_size: Some(10), ..base() };
        assert_eq!(setting(data.clone()), Setting::Centralized { dataset_size: 80, batch_size: 10 });
        assert_eq!(
            setting(Request { sampling: Some(SamplingSpec::None), ..data }),
            Setting::Given(Participation::Cyclic { separation: 8, max_participations: 1 })
        );
        let clients = Request { min_sep: Some(3), max_participations: Some(2), ..base() };
        assert_eq!(setting(clients), Setting::Federated { min_sep: 3, max_participations: 2 });
    }

    fn answer(request: &Request) -> crate::plan::recommend::Recommendation {
        request.answer(&request.question().unwrap(), &mut unobserved()).unwrap()
    }

    /// One mechanism and independent noise: at one ε under every goal and schedule.
    #[test]
    fn one_mechanism_is_compared_at_its_own_privacy() {
        let mechanism = StrategyChoice::One(StrategySpec::BandedOpt(3));
        let data = Request {
            num_steps: Some(24),
            dataset_size: Some(400),
            batch_size: Some(10),
            mechanism,
            ..base()
        };
        let noise = Request { mu: None, noise_multiplier: Some(1.25), ..data.clone() };
        let budget = Request { mu: None, epsilon: Some(1.0), delta: Some(1e-6), ..data.clone() };
        for request in [data, noise, budget] {
            for sampling in [None, Some(SamplingSpec::BlockPoisson(4)), Some(SamplingSpec::BallsInBins)] {
                let answer = answer(&Request { sampling, ..request.clone() });
                let [a, b] = &answer.candidates[..] else { panic!("{:?}", answer.skipped) };
                let [a, b] = [a, b].map(|candidate| &candidate.certificate.claim);
                assert!(a.delta == b.delta && (a.epsilon / b.epsilon - 1.0).abs() < 1e-3, "{a:?} {b:?}");
                assert!(answer.reason.contains("independent noise"), "{}", answer.reason);
                let best = &answer.candidates[answer.best];
                assert!(best.name == "banded-opt:3" && answer.relative_noise(best).is_some());
            }
        }
    }

    /// The goal is met as asked, and nothing is said of what has no number.
    #[test]
    fn without_an_epsilon_there_is_no_comparison() {
        let mechanism = StrategyChoice::One(StrategySpec::BandedSquareRoot(3));
        let answer = answer(&Request { mu: Some(1e-9), mechanism, ..base() });
        assert_eq!((answer.candidates.len(), answer.reason.as_str()), (1, "banded:3: as asked for"));
        let claim = &answer.candidates[0].certificate.claim;
        assert!(claim.epsilon == 0.0 && (claim.gdp_mu / 1e-9 - 1.0).abs() < 1e-6, "{claim:?}");
        assert!(answer.skipped[0].1.contains("epsilon of banded:3 is 0: expected above 0 at δ = 1e-6"));
        assert_eq!(answer.relative_noise(&answer.candidates[0]), None);
    }

    #[test]
    fn a_large_delta_is_a_warning_whoever_draws_the_batches() {
        let data = || Request { dataset_size: Some(80), batch_size: Some(10), delta: Some(0.0125), ..base() };
        let full = Some(Participation::Full);
        for request in [
            data(),
            Request { sampling: Some(SamplingSpec::None), ..data() },
            Request { participation: full, ..data() },
        ] {
            let warnings = answer(&request).warnings;
            assert!(
                warnings.len() == 1 && warnings[0].contains("1.25e-2 for a dataset of 80"),
                "{warnings:?}"
            );
        }
        assert!(answer(&Request { delta: Some(0.0124), ..data() }).warnings.is_empty());
        assert!(answer(&Request { delta: Some(0.5), ..base() }).warnings.is_empty(), "of no known size");
    }

    #[test]
    fn rounds_are_those_of_every_candidate() {
        let mechanism = StrategyChoice::One(StrategySpec::BandedSquareRoot(3));
        let request = Request { rounds: Rounds::R20, mechanism, ..base() };
        let answer = request.answer(&request.question().unwrap(), &mut unobserved()).unwrap();
        assert_eq!((answer.candidates.len(), answer.candidates[answer.best].name.as_str()), (2, "banded:3"));
        assert!(answer.candidates.iter().all(|candidate| candidate.plan.rounds() == Rounds::R20));
        assert!(answer.reason.starts_with("banded:3: as asked for; 1."), "{}", answer.reason);
    }
}
