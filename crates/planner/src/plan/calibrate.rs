//! From a budget to a plan: how much noise a strategy needs, and, under Poisson sampling, how many bands.

use crate::error::{Error, Result, check_finite};
use crate::factorization::Factorization;
use crate::optimize::{Problem, toeplitz, unobserved};
use crate::privacy::account::{Budget, Search, Subsampled, gdp_mu_of_budget};
use crate::privacy::certificate::{Certificate, certify, claimed_stddev};
use crate::privacy::claim::{ATTEMPTS, Allocated, Attempted, Basis, Claims, Confident, Proof, Terms};
use crate::privacy::participation::Participation;
use crate::privacy::sampling::{block_poisson, num_batches};
use crate::privacy::schedule::{Poisson, Schedule};
use crate::strategy::names::StrategySpec;
use crate::utility::workload::Workload;
use corrnoise_core::{Plan, Sampling};

/// How much privacy a plan is to have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// (ε, δ), with amplification where the schedule has it.
    Budget(Budget),
    /// μ-GDP of the whole run, stated as ε at δ too.
    GdpMu {
        /// μ, which is above 0.
        gdp_mu: f64,
        /// δ of the claim.
        delta: f64,
    },
    /// Standard deviation over clip norm times sensitivity. Under Poisson sampling it is that of one round, as users of DP-SGD mean it:
    /// over clip norm times the largest column norm.
    NoiseMultiplier {
        /// The noise multiplier, above 0.
        noise_multiplier: f64,
        /// δ of the claim.
        delta: f64,
    },
}

impl Goal {
    /// δ of the claim.
    pub fn delta(&self) -> f64 {
        match *self {
            Goal::Budget(budget) => budget.delta,
            Goal::GdpMu { delta, .. } | Goal::NoiseMultiplier { delta, .. } => delta,
        }
    }

    fn check(&self) -> Result<()> {
        let positive = |name: &str, value: f64| {
            check_finite(name, value)?;
            if value > 0.0 { Ok(()) } else { Err(Error::parameter(name, value, "above 0")) }
        };
        Budget::new(0.0, self.delta())?;
        match *self {
            Goal::Budget(budget) => Budget::new(budget.epsilon, budget.delta).map(|_| ()),
            Goal::GdpMu { gdp_mu, .. } => positive("gdp_mu", gdp_mu),
            Goal::NoiseMultiplier { noise_multiplier, .. } => positive("noise multiplier", noise_multiplier),
        }
    }

    /// The standard deviation, and a proof by balls in bins if that is what shows that the budget is met.
    fn stddev(&self, basis: &Basis) -> Result<(f64, Option<Allocated>)> {
        let stddev = match (*self, basis.poisson) {
            (Goal::Budget(budget), _) => return basis.stddev_of_budget(budget),
            (Goal::GdpMu { gdp_mu, .. }, _) => basis.stddev_of_mu(gdp_mu),
            (Goal::NoiseMultiplier { noise_multiplier, .. }, None) => {
                basis.stddev_of_mu(1.0 / noise_multiplier)
            }
            (Goal::NoiseMultiplier { noise_multiplier, .. }, Some(_)) => {
                basis.stddev_of_round(noise_multiplier)
            }
        };
        Ok((stddev, None))
    }
}

/// The plan of a strategy with the least noise that meets a goal, and its certificate.
///
/// ```
/// use corrnoise_planner::account::Budget;
/// use corrnoise_planner::{
///     Adjacency, Factorization, Goal, Participation, PrivacyUnit, Schedule, Strategy, Terms, Workload, calibrate, verify,
/// };
/// let epochs = Participation::Cyclic { separation: 100, max_participations: 5 };
/// let terms = Terms {
///     schedule: Schedule::Participation(epochs),
///     adjacency: Adjacency::ZeroOut,
///     unit: PrivacyUnit::Example,
///     clip_norm: 1.0,
/// };
/// let strategy = Factorization::new(Strategy::banded_square_root(100)?, 500)?;
/// let goal = Goal::Budget(Budget { epsilon: 2.0, delta: 1e-6 });
/// let plan = calibrate(&strategy, &terms, &Workload::Prefix, &goal)?;
/// let claim = verify(&plan)?.claim;
/// assert!(claim.epsilon <= 2.0 && claim.epsilon > 1.99999);
/// # Ok::<(), corrnoise_planner::Error>(())
/// ```
pub fn calibrate(strategy: &Factorization, terms: &Terms, workload: &Workload, goal: &Goal) -> Result<Plan> {
    calibrated(strategy, None, terms, workload, goal, Claims::Proven).map(|(plan, _)| plan)
}

/// As [`calibrate`], but to what samples show with confidence, where batches are balls in bins or spaced Poisson samples and there is such a claim that is
/// better than the one without amplification.
///
/// # Errors
/// Replace-one, strategies with negative entries, and more bands than the separation: no law of theirs is known that samples could show a claim for.
pub fn calibrate_confident(
    strategy: &Factorization,
    terms: &Terms,
    workload: &Workload,
    goal: &Goal,
) -> Result<Plan> {
    calibrated(strategy, None, terms, workload, goal, Claims::Confident).map(|(plan, _)| plan)
}

/// As [`calibrate`], with the certificate that the plan holds, and in it the strategy's name where it has one.
pub(crate) fn calibrated(
    strategy: &Factorization,
    name: Option<&StrategySpec>,
    terms: &Terms,
    workload: &Workload,
    goal: &Goal,
    claims: Claims,
) -> Result<(Plan, Certificate)> {
    goal.check()?;
    let form = strategy.form()?;
    let basis = Basis::new(&form, strategy.num_steps(), terms)?;
    let made = |stddev: f64| -> Result<Plan> {
        // Scales are rounded to f32 when they are used: with this much more, none falls below what is needed.
        let stddev = stddev * (1.0 + f64::from(f32::EPSILON));
        let plan = Plan::new(strategy.num_steps() as u64, form.clone(), stddev)?;
        Ok(match terms.schedule.sampling() {
            Some(sampling) => plan.with_sampling(sampling)?,
            None => plan,
        })
    };
    if claims == Claims::Confident
        && let Some((plan, confident)) = confident(&basis, terms, goal, &made)?
    {
        let certificate = certify(&plan, &basis, terms, workload, goal.delta(), name, Proof::Without)?;
        let certificate = certificate.with_confident(confident);
        return Ok((certificate.attach(plan)?, certificate));
    }
    let (stddev, shown) = goal.stddev(&basis)?;
    let plan = made(stddev)?;
    let proof = match (&shown, goal) {
        (Some(shown), _) => Proof::Known(shown),
        // The search for this budget found none.
        (None, Goal::Budget(_)) => Proof::Without,
        (None, _) => Proof::Search,
    };
    let certificate = certify(&plan, &basis, terms, workload, goal.delta(), name, proof)?;
    Ok((certificate.attach(plan)?, certificate))
}

/// A plan whose confident claim meets a goal, if samples show one that is better than the claim without amplification.
fn confident(
    basis: &Basis,
    terms: &Terms,
    goal: &Goal,
    made: &dyn Fn(f64) -> Result<Plan>,
) -> Result<Option<(Plan, Confident)>> {
    let delta = goal.delta();
    let Some(law) = basis.law(terms, delta)? else { return Ok(None) };
    let found = match *goal {
        Goal::Budget(budget) => basis.confident_stddev(&law, budget)?,
        Goal::GdpMu { .. } | Goal::NoiseMultiplier { .. } => {
            let (stddev, _) = goal.stddev(basis)?;
            let kept = claimed_stddev(&made(stddev)?);
            let plain = basis.claim(kept, delta, terms, Proof::Without)?.epsilon;
            basis.confident_epsilon(&law, kept, plain, delta)?.map(|confident| (stddev, confident))
        }
    };
    let Some((mut stddev, mut confident)) = found else { return Ok(None) };
    // Every attempt has a key of its own, and all of them are charged for.
    for _ in 0..ATTEMPTS {
        let plan = made(stddev)?;
        match basis.attempt(&law, &plan, claimed_stddev(&plan), terms, delta, &confident)? {
            Attempted::Shown => return Ok(Some((plan, confident))),
            Attempted::Short(short, [add, remove]) => {
                (confident.add, confident.remove) = (add, remove);
                match goal {
                    // δ falls faster than this with noise, and with ε.
                    Goal::Budget(_) => stddev *= (short / 20.0 + 5e-4).exp(),
                    _ => confident.epsilon *= 1.0 + short / 6.0 + 1e-3,
                }
            }
        }
    }
    let expected = "samples that show it at last: their law may have too heavy a tail";
    Err(Error::parameter("attempts at a confident claim", ATTEMPTS, expected))
}

/// Bands and noise together, for block-cyclic Poisson sampling of batches of expected size `batch_size`: fewer bands are sampled from
/// larger blocks, more bands correlate better. Returns the strategy and its schedule; the noise is [`calibrate`]'s.
///
/// Under sampling a strategy costs its largest column norm, so the strategy for a number of bands is the best one for a stream, and the
/// number of bands is the one with the least (noise multiplier × loss). Powers of two, then halvings around the best.
pub fn calibrate_bands(
    problem: &Problem,
    dataset_size: u64,
    batch_size: u64,
    budget: Budget,
    max_bands: usize,
) -> Result<(Factorization, Sampling)> {
    let most = num_batches(dataset_size, batch_size)?.min(problem.num_steps as u64) as usize;
    let scheme = |blocks: u64| Ok(block_poisson(dataset_size, batch_size, blocks));
    calibrate_blocks(problem, budget, most.min(max_bands.max(1)), scheme)
}

/// The same for any scheme of Poisson sampling that has a number of blocks, at most `most`.
pub(crate) fn calibrate_blocks(
    problem: &Problem,
    budget: Budget,
    most: usize,
    scheme: impl Fn(u64) -> Result<Sampling>,
) -> Result<(Factorization, Sampling)> {
    Budget::new(budget.epsilon, budget.delta)?;
    let stream = Problem { participation: Participation::Single, ..problem.clone() };
    let mut tried: std::collections::BTreeMap<usize, (f64, Factorization)> =
        std::collections::BTreeMap::new();
    let mut attempt = |bands: usize| -> Result<f64> {
        if let Some((loss, _)) = tried.get(&bands) {
            return Ok(*loss);
        }
        let poisson = Schedule::Sampling(scheme(bands as u64)?).poisson(stream.num_steps);
        let Poisson { sampling_prob, num_rounds, truncation_delta, .. } = poisson.expect("a Poisson scheme");
        // Without amplification a unit takes part in every round: √rounds over μ.
        let plain = (num_rounds as f64).sqrt() / gdp_mu_of_budget(budget)?;
        let delta = budget.delta - truncation_delta.unwrap_or(0.0);
        let noise = match delta > 0.0 {
            true => {
                let budget = Budget { delta, ..budget };
                let sampled = Subsampled::calibrated(budget, sampling_prob, num_rounds, Search::Coarse)?;
                sampled.noise_multiplier.min(plain)
            }
            false => plain,
        };
        let best = toeplitz::banded(&stream, bands, &mut unobserved())?;
        let loss = best.loss * noise;
        tried.insert(bands, (loss, best.factorization));
        Ok(loss)
    };
    let powers = std::iter::successors(Some(1), |bands| Some(bands * 2)).take_while(|bands| *bands < most);
    let (mut best, mut least) = (1, f64::INFINITY);
    for bands in powers.chain([most]) {
        let loss = attempt(bands)?;
        if loss < least {
            (best, least) = (bands, loss);
        }
    }
    let mut width = best / 2;
    // A tenth of the bands changes the loss by less than the coarse search resolves.
    while width > best / 16 {
        for bands in [best.saturating_sub(width).max(1), (best + width).min(most)] {
            let loss = attempt(bands)?;
            if loss < least {
                (best, least) = (bands, loss);
            }
        }
        width /= 2;
    }
    let (_, factorization) = tried.remove(&best).expect("the best was tried");
    Ok((factorization, scheme(best as u64)?))
}
