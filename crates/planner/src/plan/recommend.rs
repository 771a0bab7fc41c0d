//! Which mechanism? Every class is optimised, calibrated to one (ε, δ) and certified for the numbers a trainer knows, and compared by what
//! matters: noise in what is released, memory, and cost per step.
//!
//! The classes and schedules follow the recommendations of Pillutla et al. (2025): centralised training samples with block-cyclic
//! Poisson sampling or cycles through a shuffled dataset, federated training admits clients a minimum number of steps apart, a stream sees
//! everyone once.

use super::compare;
pub(crate) use super::compare::independent;

use crate::error::{Error, Result, check_steps};
use crate::factorization::Factorization;
use crate::optimize::{self, Objective, Observer, Problem, toeplitz};
use crate::plan::calibrate::{Goal, block_poisson, calibrate, calibrate_bands, check_batches};
use crate::privacy::account::Budget;
use crate::privacy::certificate::{Certificate, Utility};
use crate::privacy::claim::{PrivacyUnit, Terms};
use crate::privacy::large_delta;
use crate::privacy::participation::Participation;
use crate::privacy::schedule::Schedule;
use crate::privacy::sensitivity::Adjacency;
use crate::strategy::Strategy;
use crate::strategy::tree::Estimator;
use crate::utility::cost::{Cost, ring_bands_within};
use crate::utility::workload::Workload;
use corrnoise_core::{Plan, Sampling};

/// Where training happens, which decides who can take part when.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// One dataset, passed over in batches.
    Centralized {
        /// Units in the dataset.
        dataset_size: u64,
        /// Of a batch, exact or expected.
        batch_size: u64,
    },
    /// Clients that come by themselves, admitted at least `min_sep` steps apart.
    Federated {
        /// Steps between two participations.
        min_sep: u64,
        /// At most so often.
        max_participations: u64,
    },
    /// Everyone takes part at most once.
    Streaming,
    /// The trainer's own data pipeline guarantees it.
    Given(Participation),
}

/// What a trainer knows and wants.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Steps.
    pub num_steps: usize,
    /// Who can take part when.
    pub setting: Setting,
    /// How much privacy. Mechanisms are compared at the (ε, δ) that it has.
    pub goal: Goal,
    /// What is released.
    pub workload: Workload,
    /// Which error counts.
    pub objective: Objective,
    /// Neighbouring datasets.
    pub adjacency: Adjacency,
    /// Whose privacy.
    pub privacy_unit: PrivacyUnit,
    /// Largest norm of one unit's contribution.
    pub clip_norm: f64,
    /// Memory allowed per parameter, beyond gradient and model: of what the engine holds.
    pub max_state_bytes: Option<u64>,
}

/// One mechanism, ready to run.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The class, as the command line names it.
    pub name: String,
    /// Calibrated and certified.
    pub plan: Plan,
    /// What the plan says of itself.
    pub certificate: Certificate,
    /// Standard deviation of the noise in the released value that counts, per coordinate of the summed gradient.
    pub error: f64,
    /// State per parameter: what a checkpoint stores.
    pub state_bytes: u64,
    /// What the engine holds per parameter: the state, and for some rings rows made ahead.
    pub engine_bytes: u64,
    /// Work per step.
    pub cost: Cost,
}

/// All candidates and which to take.
#[derive(Clone, Debug)]
pub struct Recommendation {
    /// By error, least first.
    pub candidates: Vec<Candidate>,
    /// Classes that do not apply, with the reason.
    pub skipped: Vec<(String, String)>,
    /// Index of the recommended one.
    pub best: usize,
    /// Why, in a sentence.
    pub reason: String,
    /// What is allowed and yet hardly meant, for people to read.
    pub warnings: Vec<String>,
}

/// Most bands of a ring where no limit on memory is given.
const USUAL_BANDS: usize = 64;
/// Most steps for which a dense strategy is tried: beyond, optimising and certifying take more than seconds.
const DENSE_STEPS: usize = 512;
/// Most steps for which banded strategies and banded inverses are tried.
const BANDED_STEPS: usize = 200_000;

impl Setting {
    /// The schedule without Poisson sampling, which is for one dataset; all other settings have this one alone.
    pub fn cycle(&self, num_steps: usize) -> Result<Schedule> {
        Ok(match *self {
            Setting::Given(ref participation) => Schedule::Participation(participation.clone()),
            Setting::Centralized { dataset_size, batch_size } => {
                let num_batches = check_batches(dataset_size, batch_size)?;
                Schedule::Sampling(Sampling::Cyclic { dataset_size, num_batches })
            }
            Setting::Federated { min_sep, max_participations } => {
                Schedule::Sampling(Sampling::MinSep { min_sep, max_participations })
            }
            Setting::Streaming => {
                check_steps(num_steps)?;
                Schedule::Participation(Participation::Single)
            }
        })
    }
}

/// A class by name, and its strategy under a schedule, or why there is none.
type Attempt = (String, Result<(Factorization, Schedule)>);

/// Compares every class of mechanism and recommends one. All are calibrated to one (ε, δ): that of the question's goal.
pub fn recommend(question: &Question, observer: Observer<'_>) -> Result<Recommendation> {
    let question = &Question { goal: Goal::Budget(compare::budget(&question.goal)?), ..question.clone() };
    let cycle = question.setting.cycle(question.num_steps)?;
    // Independent noise always works: if it does not, the question is at fault.
    let plain = Factorization::new(Strategy::Identity, question.num_steps)?;
    let mut candidates = vec![candidate(question, "identity", &plain, cycle.clone())?];
    let mut skipped = Vec::new();
    for (name, attempt) in attempts(question, &cycle, observer)? {
        match attempt.and_then(|(strategy, schedule)| candidate(question, &name, &strategy, schedule)) {
            Ok(candidate) => candidates.push(candidate),
            Err(error) => skipped.push((name, error.to_string())),
        }
    }
    candidates.sort_by(|a, b| a.error.total_cmp(&b.error));
    let (best, reason) = compare::choose(&candidates, question)?;
    let warnings = match question.setting {
        Setting::Centralized { dataset_size, .. } => large_delta(question.goal.delta(), dataset_size),
        _ => None,
    };
    Ok(Recommendation { candidates, skipped, best, reason, warnings: warnings.into_iter().collect() })
}

/// One mechanism for a question: the strategy, calibrated and certified under a schedule, with its error and cost. The question's setting
/// does not matter here, the schedule takes its place.
pub fn candidate(
    question: &Question,
    name: &str,
    strategy: &Factorization,
    schedule: Schedule,
) -> Result<Candidate> {
    let plan = calibrate(strategy, &terms(question, schedule), &question.workload, &question.goal)?;
    let certificate = Certificate::of(&plan)?;
    let utility = match certificate.utility {
        Some(utility) => utility,
        // What is left out takes too long: asked for alone, it says why.
        None => {
            let running = Factorization::from_form(plan.form(), question.num_steps)?;
            let errors = running.errors(&question.workload)?;
            let [max_error, rms_error] = [errors.max, errors.rms].map(|error| plan.stddev() * error);
            Utility { max_error, rms_error }
        }
    };
    let error = match question.objective {
        Objective::Max => utility.max_error,
        Objective::Rms => utility.rms_error,
    };
    let (state_bytes, engine_bytes) =
        (plan.form().state_bytes_per_param(), plan.form().engine_bytes_per_param());
    let cost = Cost::of(plan.form(), plan.num_steps());
    Ok(Candidate { name: name.into(), plan, certificate, error, state_bytes, engine_bytes, cost })
}

/// What a claim for a question is made for.
pub(crate) fn terms(question: &Question, schedule: Schedule) -> Terms {
    Terms {
        schedule,
        adjacency: question.adjacency,
        privacy_unit: question.privacy_unit,
        clip_norm: question.clip_norm,
    }
}

fn attempts(question: &Question, cycle: &Schedule, observer: Observer<'_>) -> Result<Vec<Attempt>> {
    let n = question.num_steps;
    let problem = Problem {
        num_steps: n,
        workload: question.workload.clone(),
        participation: cycle.participation(n)?,
        objective: question.objective,
    };
    let under = |strategy: Result<Factorization>| strategy.map(|strategy| (strategy, cycle.clone()));
    let mut attempts = sampled(question, &problem);
    let blt = optimize::blt::optimize_auto(&problem, 1e-3, observer).map(|best| best.factorization);
    let buffers = |strategy: &Factorization| match strategy.strategy() {
        Strategy::Blt(blt) => blt.num_buffers(),
        _ => 0,
    };
    let name = blt.as_ref().map_or("blt".into(), |strategy| format!("blt:{}", buffers(strategy)));
    attempts.push((name, under(blt)));
    if n <= BANDED_STEPS {
        // A ring must be kept: as many bands as memory allows, and no more than are orthogonal.
        let separation = match problem.participation {
            Participation::Cyclic { separation, .. } => separation,
            Participation::MinSep { min_sep, .. } => min_sep,
            _ => n,
        };
        let most = separation.min(most_bands(question)).min(n).max(1);
        let banded = toeplitz::best_bands(&problem, most, observer);
        let name = banded.as_ref().map_or("banded-opt".into(), |(bands, _)| format!("banded-opt:{bands}"));
        attempts.push((name, under(banded.map(|(_, best)| best.factorization))));
        let bands = 8.min(n);
        let inverse = toeplitz::banded_inverse(&problem, bands, observer);
        attempts.push((format!("bandinv-opt:{bands}"), under(inverse.map(|best| best.factorization))));
        let bisr = Strategy::banded_inverse_square_root(bands).and_then(|s| Factorization::new(s, n));
        attempts.push((format!("bisr:{bands}"), under(bisr)));
    } else {
        attempts.push(too_large("banded strategies and inverses", "n² bands", n, BANDED_STEPS));
    }
    if n <= crate::CUBIC_LIMIT {
        attempts.push(("tree".into(), under(Factorization::new(Strategy::Tree(Estimator::Streaming), n))));
    } else {
        attempts.push(too_large("tree", "n³/6", n, crate::CUBIC_LIMIT));
    }
    if n <= DENSE_STEPS {
        let dense = optimize::dense::optimize(&problem, observer).map(|best| best.factorization);
        attempts.push(("dense".into(), under(dense)));
    } else {
        attempts.push(too_large("dense", "n³", n, DENSE_STEPS));
    }
    Ok(attempts)
}

/// A class that is not tried at this size.
fn too_large(name: &str, cost: &'static str, n: usize, limit: usize) -> Attempt {
    let what = "optimising and certifying it".into();
    (name.into(), Err(Error::TooLarge { what, cost, n, limit }))
}

/// Independent noise and bands under Poisson sampling, where there is a dataset to sample from.
fn sampled(question: &Question, problem: &Problem) -> Vec<Attempt> {
    let Setting::Centralized { dataset_size, batch_size } = question.setting else { return Vec::new() };
    let one_block = Schedule::Sampling(block_poisson(dataset_size, batch_size, 1));
    let plain = Factorization::new(Strategy::Identity, question.num_steps);
    let mut attempts = vec![("identity, Poisson".into(), plain.map(|strategy| (strategy, one_block)))];
    // Always so: `recommend` has made a budget of the goal.
    if question.num_steps <= BANDED_STEPS
        && let Goal::Budget(budget) = question.goal
    {
        let tuned = tuned_bands(question, problem, dataset_size, batch_size, budget);
        let name = match &tuned {
            Ok((strategy, _)) => format!("banded-opt:{}, block-cyclic Poisson", strategy.num_bands()),
            Err(_) => "banded-opt, block-cyclic Poisson".into(),
        };
        attempts.push((name, tuned));
    }
    attempts
}

fn tuned_bands(
    question: &Question,
    problem: &Problem,
    dataset_size: u64,
    batch_size: u64,
    budget: Budget,
) -> Result<(Factorization, Schedule)> {
    let most = most_bands(question);
    let (strategy, sampling) = calibrate_bands(problem, dataset_size, batch_size, budget, most)?;
    if strategy.num_bands() == 1 {
        return Err(Error::parameter("best number of bands", 1, "more than the independent noise above"));
    }
    Ok((strategy, Schedule::Sampling(sampling)))
}

/// As many bands as memory allows.
fn most_bands(question: &Question) -> usize {
    question.max_state_bytes.map_or(USUAL_BANDS, ring_bands_within)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimize::unobserved;
    use crate::privacy::certificate::verify;

    fn question(setting: Setting, num_steps: usize, epsilon: f64) -> Question {
        Question {
            num_steps,
            setting,
            goal: Goal::Budget(Budget { epsilon, delta: 1e-6 }),
            workload: Workload::Prefix,
            objective: Objective::Max,
            adjacency: Adjacency::ZeroOut,
            privacy_unit: PrivacyUnit::Example,
            clip_norm: 1.0,
            max_state_bytes: None,
        }
    }

    #[test]
    fn every_candidate_is_certified_within_the_budget() {
        let central = Setting::Centralized { dataset_size: 2000, batch_size: 100 };
        let federated = Setting::Federated { min_sep: 20, max_participations: 4 };
        let given = Setting::Given(Participation::MinSep { min_sep: 30, max_participations: 3 });
        for setting in [central, federated, Setting::Streaming, given] {
            let answer = recommend(&question(setting.clone(), 100, 2.0), &mut unobserved()).unwrap();
            assert!(answer.candidates.len() >= 6, "{setting:?}: {:?}", answer.skipped);
            for candidate in &answer.candidates {
                let claim = verify(&candidate.plan).unwrap().claim;
                assert!(
                    claim.epsilon <= 2.0 && claim.epsilon > 1.999,
                    "{}: {}",
                    candidate.name,
                    claim.epsilon
                );
            }
            let best = &answer.candidates[answer.best];
            assert!(
                best.cost.rows <= compare::MAX_ROWS && answer.reason.contains(&best.name),
                "{}",
                answer.reason
            );
            let identity = answer.candidates.iter().find(|c| c.name == "identity").unwrap();
            assert!(best.error < identity.error);
        }
    }

    #[test]
    fn memory_is_respected_and_high_privacy_prefers_sampling() {
        let central = Setting::Centralized { dataset_size: 8000, batch_size: 100 };
        let mut asked = question(central, 160, 0.3);
        let strict = recommend(&asked, &mut unobserved()).unwrap();
        let name = &strict.candidates[strict.best].name;
        assert!(name.contains("Poisson"), "{}", strict.reason);
        asked.max_state_bytes = Some(0);
        let frugal = recommend(&asked, &mut unobserved()).unwrap();
        assert_eq!(frugal.candidates[frugal.best].state_bytes, 0);
    }

    /// Whatever the goal, one (ε, δ) for all, amplified or not; else their noise could not be compared.
    #[test]
    fn every_row_has_one_epsilon_whatever_the_goal() {
        let delta = 1e-6;
        let expected = crate::privacy::account::epsilon_of_delta(1.25, delta).unwrap();
        let whole_run = Goal::NoiseMultiplier { noise_multiplier: 0.8, delta };
        for goal in [Goal::GdpMu { gdp_mu: 1.25, delta }, whole_run] {
            let central = Setting::Centralized { dataset_size: 2000, batch_size: 50 };
            let asked = Question { goal, ..question(central, 120, 1.0) };
            let answer = recommend(&asked, &mut unobserved()).unwrap();
            let names = answer.candidates.iter().map(|c| c.name.as_str()).collect::<Vec<_>>();
            assert!(names.iter().any(|name| name.ends_with("block-cyclic Poisson")), "{names:?}");
            for candidate in &answer.candidates {
                let claim = &candidate.certificate.claim;
                assert!(claim.delta == delta && claim.epsilon <= expected * (1.0 + 1e-9), "{claim:?}");
                assert!(claim.epsilon > 0.999 * expected, "{}: {claim:?}", candidate.name);
                assert!(answer.relative_noise(candidate).is_some_and(f64::is_finite));
            }
            assert!(answer.reason.contains("times less noise than the best independent noise"));
            let least = answer.independent().unwrap();
            assert_eq!(answer.relative_noise(least), Some(1.0));
        }
    }

    #[test]
    fn claims_of_different_privacy_have_no_ratio() {
        let row = |gdp_mu: f64, delta: f64| {
            let asked =
                Question { goal: Goal::GdpMu { gdp_mu, delta }, ..question(Setting::Streaming, 10, 1.0) };
            let plain = Factorization::new(Strategy::Identity, 10).unwrap();
            let schedule = asked.setting.cycle(10).unwrap();
            candidate(&asked, "identity", &plain, schedule).unwrap()
        };
        let one = row(1.0, 1e-6);
        assert!(one.noise_relative_to(&row(1.0, 1e-6)).is_some());
        assert!(one.noise_relative_to(&row(1.01, 1e-6)).is_none());
        assert!(one.noise_relative_to(&row(1.0, 1e-7)).is_none());
    }

    #[test]
    fn a_goal_without_an_epsilon_to_compare_at_is_refused() {
        let asked = |gdp_mu: f64| {
            let goal = Goal::GdpMu { gdp_mu, delta: 1e-6 };
            recommend(&Question { goal, ..question(Setting::Streaming, 10, 1.0) }, &mut unobserved())
        };
        let message = asked(1e-12).unwrap_err().to_string();
        assert!(
            message.contains("mu is 0.000000000001: expected one with a finite ε above 0 at δ = 1e-6"),
            "{message}"
        );
        assert!(asked(0.1).is_ok());
    }

    /// A limit is about what runs.
    #[test]
    fn the_engine_holds_no_more_than_the_limit() {
        let federated = Setting::Federated { min_sep: 40, max_participations: 3 };
        let mut asked = question(federated, 120, 2.0);
        for most in [0, 4, 30, 40, 59, 64, 120] {
            asked.max_state_bytes = Some(most);
            let answer = recommend(&asked, &mut unobserved()).unwrap();
            let best = &answer.candidates[answer.best];
            let shard = corrnoise_core::Shard::whole(1000).unwrap();
            let key = corrnoise_core::Key::from_bytes([1; 32], "limit");
            let held = corrnoise_core::Mechanism::cpu(&best.plan, key, shard).unwrap().state_bytes();
            assert!(
                held == 1000 * best.engine_bytes && held <= 1000 * most,
                "{}: {held} of {most}",
                best.name
            );
        }
    }

    #[test]
    fn a_large_delta_is_a_warning() {
        let central = Setting::Centralized { dataset_size: 1_000_000, batch_size: 100_000 };
        let answer = recommend(&question(central, 10, 1.0), &mut unobserved()).unwrap();
        assert!(
            answer.warnings[0].contains("delta is 1e-6 for a dataset of 1000000"),
            "{:?}",
            answer.warnings
        );
        let central = Setting::Centralized { dataset_size: 999_000, batch_size: 99_900 };
        assert!(recommend(&question(central, 10, 1.0), &mut unobserved()).unwrap().warnings.is_empty());
    }

    #[test]
    fn a_bad_question_is_an_error() {
        let central = |dataset_size, batch_size| Setting::Centralized { dataset_size, batch_size };
        let message = |setting, n, epsilon| {
            recommend(&question(setting, n, epsilon), &mut unobserved()).unwrap_err().to_string()
        };
        assert!(message(central(10, 11), 10, 1.0).contains("batch size is 11: expected 1 to 10"));
        assert!(message(central(0, 1), 10, 1.0).contains("dataset size is 0"));
        assert!(message(Setting::Streaming, 0, 1.0).contains("number of steps is 0"));
        assert!(message(Setting::Streaming, 10, -1.0).contains("epsilon is -1"));
        let federated = Setting::Federated { min_sep: 0, max_participations: 1 };
        assert!(message(federated, 10, 1.0).contains("minimum separation is 0"));
    }
}
