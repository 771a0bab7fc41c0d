//! The least noise for a budget, and the least ε of some noise, with the kernel that shows it.
//!
//! ln δ falls almost linearly in ln σ and in ln ε, so from a good guess (`guess.rs`) a secant needs two or three evaluations. Kernels do not depend on σ. Every
//! answer was evaluated itself, in both directions.

use super::choose::{Choice, choices, usual};
use super::gram::Bins;
use super::grid::{Direction, Fineness};
use super::guess::{Covariance, Entries, FEW, Guessed, MANY, ln_epsilon, ln_stddev};
use super::kernel::Kernel;
use super::programme::Programme;
use crate::error::Result;
use crate::privacy::account::{Budget, gdp_mu_of_budget};

/// A kernel's δ, from above: the larger one of both directions. `None` where the programme refuses it.
pub(crate) fn delta(kernel: &Kernel, stddev: f64, epsilon: f64, scale: f64) -> Result<Option<f64>> {
    evaluate(kernel, stddev, epsilon, scale, &BOTH)
}

/// The larger δ of some directions; `scale` is the δ that matters, for which grids are made.
fn evaluate(
    kernel: &Kernel,
    stddev: f64,
    epsilon: f64,
    scale: f64,
    sides: &[Direction],
) -> Result<Option<f64>> {
    let one = |direction| -> Result<Option<f64>> {
        let programme = Programme::new(kernel, stddev, epsilon, scale, direction, Fineness::FINE)?;
        Ok(programme.and_then(|programme| programme.bound()))
    };
    // A circle's programme uses all processors by itself.
    let found: Vec<Result<Option<f64>>> = if kernel.is_circle() || sides.len() < 2 {
        sides.iter().map(|side| one(*side)).collect()
    } else {
        std::thread::scope(|scope| {
            let running: Vec<_> = sides.iter().map(|side| scope.spawn(|| one(*side))).collect();
            running.into_iter().map(|side| side.join().unwrap_or(Ok(None))).collect()
        })
    };
    found.into_iter().try_fold(Some(0.0), |most, found| {
        Ok(most.zip(found?).map(|(most, found): (f64, f64)| most.max(found)))
    })
}

const BOTH: [Direction; 2] = [Direction::Add, Direction::Remove];

/// A part of δ that is left for other machines, whose functions round differently.
const SPARED: f64 = 1e-6;
/// By how much ln δ may lie below the budget's: a few hundredths of a percent of noise.
const CLOSE: f64 = 0.012;
/// Most evaluations of a search.
const MOST_EVALUATIONS: usize = 8;
/// What grids take of the noise, about.
const GRIDS: f64 = 0.005;
/// Noise above this much of the plain proof's is no amplification.
const WORTH: f64 = 0.999;

/// A point that was evaluated: the logarithm of δ over what is left of it.
struct Evaluated {
    at: f64,
    excess: f64,
}

/// Searches where a falling function of a position is just below 0; `slope` is a guess at first and the secant's at the end. The last position at which it
/// was not above 0, and close to it if it may be.
pub(in crate::privacy::account) fn root(
    start: f64,
    slope: &mut f64,
    tolerance: f64,
    most: usize,
    mut excess: impl FnMut(f64) -> Result<Option<f64>>,
) -> Result<Option<f64>> {
    let (mut best, mut last): (Option<Evaluated>, Option<Evaluated>) = (None, None);
    let mut at = start;
    for _ in 0..most {
        let Some(value) = excess(at)? else { return Ok(best.map(|best| best.at)) };
        if let Some(last) = &last
            && (at - last.at).abs() > 1e-12
        {
            let secant = (value - last.excess) / (at - last.at);
            if secant.is_finite() && secant < 0.2 * *slope && secant > 8.0 * *slope {
                *slope = secant;
            }
        }
        if value <= 0.0 && best.as_ref().is_none_or(|best| at < best.at) {
            best = Some(Evaluated { at, excess: value });
        }
        if (-tolerance..=0.0).contains(&value) {
            break;
        }
        last = Some(Evaluated { at, excess: value });
        // A little below 0, and never far at once: lines are lines nearby.
        at += ((-0.3 * tolerance - value) / *slope).clamp(-1.0, 1.0);
        if let Some(best) = &best
            && at >= best.at
        {
            break;
        }
    }
    Ok(best.map(|best| best.at))
}

/// The least standard deviation below `plain` with which a kernel's bound fits into `left`, the part of δ that a standard deviation leaves, and
/// the kernel. `None` where there is none.
pub(crate) fn least_stddev(
    bins: &Bins,
    budget: Budget,
    plain: f64,
    left: impl Fn(f64) -> f64,
) -> Result<Option<(f64, Kernel)>> {
    let Budget { epsilon, delta: scale } = budget;
    // A bound needs no less than the run itself, and hardly more than the plain proof is no use.
    let about = guess(bins, budget).unwrap_or(Guessed::near((0.8 * plain).ln()));
    if about.at >= (WORTH * plain).ln() {
        return Ok(None);
    }
    let excess = |kernel: &Kernel, ln_stddev: f64, sides: &[Direction]| -> Result<Option<f64>> {
        let stddev = ln_stddev.exp();
        let left = left(stddev) * (1.0 - SPARED);
        if stddev > plain {
            return Ok(None);
        }
        if left <= 0.0 {
            return Ok(Some(5.0));
        }
        let found = evaluate(kernel, stddev, epsilon, scale, sides)?;
        Ok(found.map(|delta| (delta.max(1e-300) / left).ln()))
    };
    for Choice { kernel, guessed } in choices(bins, budget, about, MANY).into_iter().take(2) {
        let start = (guessed.at + GRIDS).min((0.98 * plain).ln());
        let mut slope = guessed.slope;
        let Some(mut at) =
            root(start, &mut slope, CLOSE, MOST_EVALUATIONS, |at| excess(&kernel, at, &[Direction::Add]))?
        else {
            continue;
        };
        // With the unit the loss is larger, almost always: the other direction is looked at where that one ended.
        let side = |at, side: Direction| excess(&kernel, at, &[side]);
        let fits = |value: Option<f64>| value.is_some_and(|value| value <= 0.0);
        if !fits(side(at, Direction::Remove)?) {
            let Some(found) =
                root(at, &mut slope, CLOSE, MOST_EVALUATIONS, |at| side(at, Direction::Remove))?
            else {
                continue;
            };
            if !fits(side(found, Direction::Add)?) {
                continue;
            }
            at = found;
        }
        return Ok(Some((at.exp(), kernel)).filter(|(stddev, _)| *stddev < WORTH * plain));
    }
    Ok(None)
}

/// An ε below `plain` with which a kernel's bound fits into `left`, and the kernel: the least that the search finds.
pub(crate) fn least_epsilon(
    bins: &Bins,
    stddev: f64,
    scale: f64,
    plain: f64,
    left: f64,
) -> Result<Option<(f64, Kernel)>> {
    let left = left * (1.0 - SPARED);
    if left <= 0.0 || !plain.is_finite() {
        return Ok(None);
    }
    let near = Guessed::near((0.7 * plain).ln());
    let run = covariance(bins).and_then(|run| ln_epsilon(&run, stddev, scale, near));
    let about = run.map_or(near.at, |guessed| guessed.at);
    if about >= (WORTH * plain).ln() {
        return Ok(None);
    }
    let budget = Budget { epsilon: about.exp(), delta: scale };
    for Choice { kernel, guessed } in
        choices(bins, budget, Guessed::near(stddev.ln()), MANY).into_iter().take(2)
    {
        // What noise a kernel lacks at about this ε, it lacks in ε, if nothing better is known.
        let start = Guessed { at: about + guessed.at - stddev.ln(), ..run.unwrap_or(near) };
        let found = ln_epsilon(&kernel.turns(1.0), stddev, scale, start);
        let Guessed { at: start, mut slope } = found.unwrap_or(start);
        let excess = |ln_epsilon: f64| -> Result<Option<f64>> {
            let epsilon = ln_epsilon.exp();
            if epsilon > plain {
                return Ok(None);
            }
            let found = evaluate(&kernel, stddev, epsilon, scale, &BOTH)?;
            Ok(found.map(|delta| (delta.max(1e-300) / left).ln()))
        };
        if let Some(at) =
            root((start + GRIDS).min((0.98 * plain).ln()), &mut slope, CLOSE, MOST_EVALUATIONS, excess)?
        {
            return Ok(Some((at.exp(), kernel)).filter(|(epsilon, _)| *epsilon < WORTH * plain));
        }
    }
    Ok(None)
}

/// Most bins of a run whose covariance is looked at as it is; of more, some are.
const GUESSED: usize = 1000;

fn covariance(bins: &Bins) -> Option<Entries> {
    Entries::new(&bins.sample(bins.num_bins().div_ceil(GUESSED)))
}

/// Where the noise lies that the run's own covariance needs.
fn guess(bins: &Bins, budget: Budget) -> Option<Guessed> {
    let run = covariance(bins)?;
    let largest = run.diagonal().into_iter().fold(0.0, f64::max);
    // A little less than without amplification.
    let start = 0.8 * largest.sqrt() / gdp_mu_of_budget(budget).ok()?;
    ln_stddev(&run, budget, FEW, Guessed::near(start.ln()))
}

/// Which kernels a strategy is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// By one of a kind, which changes smoothly with the strategy.
    Smoothly,
    /// By the best one.
    ByTheBest,
}

/// About the standard deviation with which a proof will meet a budget; `near` is one to begin with. It bounds nothing.
pub(crate) fn about_stddev(bins: &Bins, budget: Budget, judged: Judged, near: Option<f64>) -> Option<f64> {
    let about = match near {
        Some(near) => Guessed::near(near.ln()),
        None => guess(bins, budget)?,
    };
    let choice = match judged {
        Judged::Smoothly => usual(bins, budget, about),
        Judged::ByTheBest => choices(bins, budget, about, FEW).into_iter().next(),
    };
    choice.map(|choice| choice.guessed.at.exp())
}
