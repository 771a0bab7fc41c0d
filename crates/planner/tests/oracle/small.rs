//! Random plans of up to 64 steps: every class of strategy, participation, sampling, adjacency, clip norm and goal.

use super::random::Random;
use corrnoise_core::form::{Kernel, Regenerate, Ring, Term};
use corrnoise_core::{Family, Form, Plan, Sampling};
use corrnoise_planner::account::Budget;
use corrnoise_planner::{
    Adjacency, Blt, Certificate, Error, Estimator, Factorization, Goal, LowerTriangular, Participation,
    PrivacyUnit, Result, Schedule, Strategy, Terms, Workload, calibrate, certificate,
};

/// The most steps of a random plan.
pub const MOST_STEPS: usize = 64;
/// The number of classes of strategies, the last of which are given as forms.
pub const CLASSES: usize = 22;

/// A plan with a claim, or the reason why there is none; in either case with a description of the request.
pub struct Made {
    pub what: String,
    pub outcome: Result<Plan>,
}

/// The strategy of a class, or a form that no strategy lowers to.
enum Source {
    Strategy(Factorization),
    Form(Form),
}

/// A random plan of any class and number of steps.
pub fn plan(random: &mut Random) -> Made {
    let n = match random.below(4) {
        0 => 1 + random.below(4),
        1 => 1 + random.below(16),
        _ => 1 + random.below(MOST_STEPS),
    };
    let class = random.below(CLASSES);
    plan_of(random, class, n)
}

/// A random plan of a class and a number of steps.
pub fn plan_of(random: &mut Random, class: usize, n: usize) -> Made {
    let schedule = schedule(random, n);
    let adjacency = if random.once_in(3) { Adjacency::ReplaceOne } else { Adjacency::ZeroOut };
    let unit = if random.once_in(2) { PrivacyUnit::Example } else { PrivacyUnit::User };
    let clip_norm = if random.once_in(3) { 1.0 } else { random.power(-6.0, 6.0) };
    // Most plans under Poisson sampling would be refused for something else than what is looked for.
    let (class, adjacency) = match schedule {
        Schedule::Sampling(Sampling::Poisson { .. }) => ([0, 0, 5, 19][class % 4], Adjacency::ZeroOut),
        Schedule::Sampling(Sampling::RandomAllocation { .. }) if random.once_in(2) => {
            ([0, 0, 4, 19][class % 4], Adjacency::ZeroOut)
        }
        Schedule::Sampling(Sampling::BlockPoisson { .. } | Sampling::TruncatedPoisson { .. })
            if random.below(4) > 0 =>
        {
            ([0, 4, 4, 6][class % 4], Adjacency::ZeroOut)
        }
        _ => (class, adjacency),
    };
    let terms = Terms { schedule, adjacency, unit, clip_norm };
    let goal = goal(random, &terms.schedule);
    let workload = match random.below(3) {
        0 => Workload::Prefix,
        1 => Workload::Momentum { beta: 0.9, weight_decay: 0.01 },
        _ => Workload::Nesterov { beta: 0.8 },
    };
    let source = source(random, class, n, bands(&terms.schedule, n));
    let what = match &source {
        Ok(Source::Strategy(strategy)) => {
            format!("{}, {n} steps, {terms:?}, {goal:?}", strategy.describe())
        }
        Ok(Source::Form(form)) => format!("{form:?}, {n} steps, {terms:?}, {goal:?}"),
        Err(error) => error.to_string(),
    };
    let outcome = source.and_then(|source| match source {
        Source::Strategy(strategy) => calibrate(&strategy, &terms, &workload, &goal),
        Source::Form(form) => {
            let mu = match goal {
                Goal::GdpMu { gdp_mu, .. } => gdp_mu,
                _ => random.power(-2.0, 0.8),
            };
            let plan = Plan::new(n as u64, form, clip_norm / mu)?;
            let plan = match terms.schedule.sampling() {
                Some(sampling) => plan.with_sampling(sampling)?,
                None => plan,
            };
            certificate(&plan, &terms, &workload, goal.delta())?.attach(plan)
        }
    });
    Made { what, outcome }
}

/// The stated certificate of a plan that has one.
pub fn stated(plan: &Plan) -> Certificate {
    Certificate::of(plan).expect("a plan with a certificate")
}

/// True if a refusal is one that a user may meet; an internal error is a defect.
pub fn is_clear(error: &Error) -> bool {
    !matches!(error, Error::Internal { .. }) && !error.to_string().is_empty()
}

/// The most bands that a schedule allows.
fn bands(schedule: &Schedule, n: usize) -> usize {
    match schedule {
        Schedule::Sampling(
            Sampling::BlockPoisson { num_blocks, .. } | Sampling::TruncatedPoisson { num_blocks, .. },
        ) => (*num_blocks as usize).min(n),
        Schedule::Sampling(Sampling::Poisson { .. }) => 1,
        _ => n,
    }
}

pub fn participation(random: &mut Random, n: usize) -> Participation {
    let separation = 1 + random.below(n);
    let max_participations = 1 + random.below(n.div_ceil(separation));
    match random.below(6) {
        0 => Participation::Single,
        1 => Participation::Full,
        2 | 3 => Participation::Cyclic { separation, max_participations },
        4 => Participation::MinSep { min_sep: separation, max_participations },
        _ => {
            let rare = 1 + random.below(n);
            let pattern = |random: &mut Random| {
                let mut steps: Vec<usize> = (0..n).filter(|_| random.once_in(rare)).collect();
                if steps.is_empty() {
                    steps.push(random.below(n));
                }
                steps
            };
            Participation::Patterns((0..1 + random.below(5)).map(|_| pattern(random)).collect())
        }
    }
}

pub fn sampling(random: &mut Random, n: usize) -> Sampling {
    let parts = 1 + random.below(2 * n) as u64;
    let dataset_size = 200;
    let sampling_prob = match random.below(4) {
        0 => random.power(-9.0, 0.0),
        1 => 1.0,
        _ => random.unit().max(1e-3),
    };
    // Amplified claims have the most to check.
    match random.below(10) {
        0 | 1 => Sampling::Poisson { dataset_size, sampling_prob },
        2 | 3 => Sampling::BlockPoisson { dataset_size, num_blocks: parts, sampling_prob },
        4 => Sampling::Cyclic { dataset_size, num_batches: parts },
        5 => Sampling::BallsInBins { dataset_size, num_bins: parts },
        6 => Sampling::RandomAllocation { dataset_size, num_bins: parts },
        7 => Sampling::SpacedPoisson { dataset_size, min_sep: parts, sampling_prob },
        8 => Sampling::TruncatedPoisson {
            dataset_size,
            num_blocks: parts,
            sampling_prob,
            max_batch_size: parts,
        },
        _ => Sampling::MinSep { min_sep: parts, max_participations: 1 + random.below(5) as u64 },
    }
}

fn schedule(random: &mut Random, n: usize) -> Schedule {
    match random.below(3) {
        0 => Schedule::Sampling(sampling(random, n)),
        _ => Schedule::Participation(participation(random, n)),
    }
}

pub fn delta(random: &mut Random) -> f64 {
    match random.below(6) {
        0 => random.power(-300.0, 0.0),
        1 => 1.0 - random.power(-12.0, -0.1),
        2 => random.power(-19.0, -8.0),
        _ => random.power(-10.0, -0.3),
    }
}

fn goal(random: &mut Random, schedule: &Schedule) -> Goal {
    let delta = delta(random);
    let mu = if random.once_in(3) { random.power(-12.0, 9.0) } else { random.power(-3.0, 0.9) };
    let epsilon = if random.once_in(6) { random.power(-9.0, 15.0) } else { random.power(-2.0, 1.5) };
    // Searches for the noise of a budget take a tenth of a second each, those for sampled rounds a second.
    let sampled =
        schedule.is_poisson() || matches!(schedule, Schedule::Sampling(Sampling::RandomAllocation { .. }));
    match random.below(if sampled { 24 } else { 10 }) {
        0 => Goal::Budget(Budget { epsilon, delta }),
        1..=5 => Goal::GdpMu { gdp_mu: mu, delta },
        _ => Goal::NoiseMultiplier { noise_multiplier: 1.0 / mu, delta },
    }
}

fn source(random: &mut Random, class: usize, n: usize, bands: usize) -> Result<Source> {
    let count = 1 + random.below(bands);
    let form = match class {
        16 => odd_blt(random)?,
        17 => {
            let rows: Vec<Vec<f64>> =
                (0..n).map(|t| (0..random.below(t + 1)).map(|_| 0.7 * signed(random)).collect()).collect();
            Kernel::Ring(Ring::varying(&rows)?).into()
        }
        18 => listed(random, n)?,
        19 => Form::independent(),
        20 => Form::banded_toeplitz(&decaying(random, count))?,
        21 => Form::regenerate(&decaying(random, count))?,
        _ => {
            let strategy = strategy(random, class, n, count)?;
            let mut factorization = Factorization::new(strategy, n)?;
            if random.once_in(4) {
                factorization = factorization.restarted(1 + random.below(n))?;
            }
            if random.once_in(4) {
                factorization = factorization.column_normalized()?;
            }
            return Ok(Source::Strategy(factorization));
        }
    };
    let form = match random.below(4) {
        0 => form.with_output_scale((0..n).map(|_| signed(random) + 1e-3).collect())?,
        1 => form.with_output_scale(vec![random.power(-3.0, 3.0)])?,
        _ => form,
    };
    if class != 18 && random.once_in(4) {
        return Ok(Source::Form(form.with_restarts(1 + random.below(n + 2) as u64)?));
    }
    Ok(Source::Form(form))
}

fn strategy(random: &mut Random, class: usize, n: usize, count: usize) -> Result<Strategy> {
    match class {
        0 => Ok(Strategy::Identity),
        1 => Ok(Strategy::Output(if random.once_in(2) {
            Workload::Prefix
        } else {
            Workload::Momentum { beta: random.unit(), weight_decay: 0.1 * random.unit() }
        })),
        2 => Strategy::one_parameter(random.unit()),
        3 => Strategy::square_root(match random.below(3) {
            0 => Workload::Prefix,
            1 => Workload::Momentum { beta: random.unit(), weight_decay: 0.2 * random.unit() },
            _ => Workload::Nesterov { beta: random.unit() },
        }),
        4 => Strategy::banded_square_root(count),
        5 => Strategy::toeplitz(decaying(random, count)),
        6 => {
            let mut coefs: Vec<f64> = (0..count).map(|_| 0.01 + random.unit()).collect();
            coefs.sort_by(|a, b| b.total_cmp(a));
            Strategy::toeplitz(coefs)
        }
        7 => {
            let positive = random.once_in(2);
            let entry = |random: &mut Random| if positive { random.unit() } else { signed(random) };
            let row = |t: usize, random: &mut Random| {
                let len = count.min(t + 1);
                (0..len).map(|a| if a == 0 { 0.1 + random.unit() } else { entry(random) }).collect()
            };
            Strategy::banded((0..n).map(|t| row(t, random)).collect())
        }
        8 | 9 => Ok(Strategy::Blt(blt(random)?)),
        10 => {
            let positive = random.once_in(2);
            let mut rows = vec![vec![0.0; n]; n];
            for (t, row) in rows.iter_mut().enumerate() {
                for (s, value) in row[..t].iter_mut().enumerate() {
                    let size = 1.0 / (1.0 + (t - s) as f64);
                    *value = size * if positive { random.unit() } else { signed(random) };
                }
                row[t] = 0.3 + random.unit();
            }
            Ok(Strategy::Dense(LowerTriangular::new(&rows)?))
        }
        11 => Ok(Strategy::Tree(Estimator::Plain)),
        12 => Ok(Strategy::Tree(Estimator::Streaming)),
        13 => Ok(Strategy::Tree(Estimator::Full)),
        14 => Strategy::banded_inverse_square_root(count),
        _ => Strategy::banded_inverse(decaying(random, count)),
    }
}

fn signed(random: &mut Random) -> f64 {
    random.between(-1.0, 1.0)
}

/// Coefficients: a leading one and others, mostly smaller, of both signs or of one.
fn decaying(random: &mut Random, count: usize) -> Vec<f64> {
    let positive = random.once_in(2);
    let size = random.power(-2.0, 0.2);
    let lead = if random.once_in(4) { random.power(-2.0, 2.0) } else { 1.0 };
    (0..count)
        .map(|a| match a {
            0 => lead,
            _ if positive => lead * size * random.unit(),
            _ => lead * size * signed(random),
        })
        .collect()
}

/// A BLT of 1 to 8 buffers, some of them nearly equal or nearly without decay.
fn blt(random: &mut Random) -> Result<Blt> {
    let buffers = 1 + random.below(8);
    let mut decay: Vec<f64> = (0..buffers).map(|_| random.unit()).collect();
    if random.once_in(3) {
        decay[0] = 1.0 - random.power(-7.0, -1.0);
    }
    if random.once_in(3) && buffers > 1 {
        decay[1] = decay[0] * (1.0 - random.power(-9.0, -2.0));
    }
    let total = random.power(-2.0, 0.25);
    let scale: Vec<f64> = (0..buffers).map(|_| total * random.unit() / buffers as f64).collect();
    Blt::new(&scale, &decay)
}

/// An unusual BLT, with scales of both signs, equal decays, or decays of 0.
fn odd_blt(random: &mut Random) -> Result<Form> {
    let buffers = random.below(9);
    let mut decay: Vec<f64> = (0..buffers).map(|_| random.unit()).collect();
    if buffers > 0 && random.once_in(2) {
        decay[0] = *random.pick(&[0.0, 0.5, 0.999, 1.0 - 2_f64.powi(-24)]);
    }
    if buffers > 1 && random.once_in(2) {
        decay[1] = decay[0];
    }
    let scale: Vec<f64> = (0..buffers).map(|_| 0.5 * signed(random) / buffers as f64).collect();
    Ok(Form::blt(&scale, &decay)?)
}

/// A form of listed rows: each step has a row of its own, and some rows may occur twice.
fn listed(random: &mut Random, n: usize) -> Result<Form> {
    let steps: Vec<Vec<Term>> = (0..n)
        .map(|t| {
            let family =
                |random: &mut Random| if random.once_in(2) { Family::Step } else { Family::TreeNode };
            let own = Term { family: Family::Step, index: t as u64, weight: 0.3 + random.unit() };
            let mut terms: Vec<Term> = (0..random.below(6))
                .map(|_| {
                    let family = family(random);
                    let index = random.below(if family == Family::Step { t + 1 } else { n }) as u64;
                    Term { family, index, weight: 0.6 * signed(random) }
                })
                .collect();
            terms.insert(random.below(terms.len() + 1), own);
            terms
        })
        .collect();
    Ok(Kernel::Regenerate(Regenerate::listed(&steps)?).into())
}
