//! The least noise for a budget, and the least ε of some noise, with the kernel that shows it.
//!
//! ln δ falls almost linearly in ln σ and in ε, so a secant needs a handful of evaluations: the first ones on coarse grids, the last ones on
//! fine grids. Kernels do not depend on σ. Every answer was evaluated itself, in both directions.

use super::choose::{Choice, choices, simple};
use super::gram::Bins;
use super::grid::{Direction, Fineness};
use super::kernel::Kernel;
use super::programme::Programme;
use crate::error::Result;
use crate::privacy::account::Budget;

/// A kernel's δ, from above: the larger one of both directions. `None` where the programme refuses it.
pub(crate) fn delta(kernel: &Kernel, stddev: f64, epsilon: f64, scale: f64) -> Result<Option<f64>> {
    evaluate(kernel, stddev, epsilon, scale, Fineness::FINE, &BOTH)
}

/// The larger δ of some directions; `scale` is the δ that matters, for which grids are made.
fn evaluate(
    kernel: &Kernel,
    stddev: f64,
    epsilon: f64,
    scale: f64,
    fineness: Fineness,
    sides: &[Direction],
) -> Result<Option<f64>> {
    let one = |direction| -> Result<Option<f64>> {
        let programme = Programme::new(kernel, stddev, epsilon, scale, direction, fineness)?;
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
/// And where grids are coarse.
const NEAR: f64 = 0.1;
/// Noise above this much of the plain proof's is no amplification.
const WORTH: f64 = 0.999;

/// A point that was evaluated: the logarithm of δ over what is left of it.
struct Evaluated {
    at: f64,
    excess: f64,
}

/// Searches where a falling function of a position is just below 0; `slope` is a guess at first and the secant's at the end. The last position at which it
/// was not above 0, and close to it if it may be.
fn root(
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
        if value <= 0.0 && value >= -tolerance {
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
    epsilon: f64,
    scale: f64,
    plain: f64,
    left: impl Fn(f64) -> f64,
) -> Result<Option<(f64, Kernel)>> {
    let mut best: Option<(f64, f64, Kernel)> = None;
    let excess =
        |kernel: &Kernel, ln_stddev: f64, fineness: Fineness, sides: &[Direction]| -> Result<Option<f64>> {
            let stddev = ln_stddev.exp();
            let left = left(stddev) * (1.0 - SPARED);
            if stddev > plain {
                return Ok(None);
            }
            if left <= 0.0 {
                return Ok(Some(5.0));
            }
            let found = evaluate(kernel, stddev, epsilon, scale, fineness, sides)?;
            Ok(found.map(|delta| (delta.max(1e-300) / left).ln()))
        };
    for Choice { kernel, expected } in promising(bins, epsilon, scale) {
        let start = expected.min(0.98 * plain).ln();
        let mut slope = -20.0;
        let coarse =
            root(start, &mut slope, NEAR, 8, |at| excess(&kernel, at, Fineness::COARSE, &[Direction::Add]))?;
        let Some(coarse) = coarse else { continue };
        if best.as_ref().is_none_or(|(least, ..)| coarse < *least) {
            best = Some((coarse, slope, kernel));
        }
    }
    let Some((coarse, mut slope, kernel)) = best else { return Ok(None) };
    let add = &[Direction::Add];
    let fine = |at, sides: &[Direction]| excess(&kernel, at, Fineness::FINE, sides);
    let Some(mut at) = root(coarse, &mut slope, CLOSE, 8, |at| fine(at, add))? else { return Ok(None) };
    // With the unit the loss is larger, almost always: the other direction is looked at where that one ended.
    if fine(at, &[Direction::Remove])?.is_none_or(|value| value > 0.0) {
        match root(at, &mut slope, CLOSE, 8, |at| fine(at, &BOTH))? {
            Some(found) => at = found,
            None => return Ok(None),
        }
    }
    Ok(Some((at.exp(), kernel)).filter(|(stddev, _)| *stddev < WORTH * plain))
}

/// The kernels that are worth a programme: none whose saddle point expects more noise than the best one's grids would cost.
fn promising(bins: &Bins, epsilon: f64, scale: f64) -> Vec<Choice> {
    let mut all = choices(bins, epsilon, scale);
    let most = all.first().map_or(0.0, |first| 1.006 * first.expected);
    all.retain(|choice| choice.expected <= most);
    all.truncate(2);
    all
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
    let mut guess = 0.7 * plain;
    let mut slope = -6.0;
    let mut found = None;
    // A kernel is made for an ε: for the one that the first kernel leads to, too.
    for fineness in [Fineness::COARSE, Fineness::COARSE, Fineness::FINE] {
        let Some(Choice { kernel, .. }) = choices(bins, guess, scale).into_iter().next() else {
            return Ok(None);
        };
        let tolerance = if fineness == Fineness::FINE { CLOSE } else { NEAR };
        let excess = |epsilon: f64| -> Result<Option<f64>> {
            if epsilon <= 0.0 || epsilon > plain {
                return Ok(None);
            }
            let found = evaluate(&kernel, stddev, epsilon, scale, fineness, &BOTH)?;
            Ok(found.map(|delta| (delta.max(1e-300) / left).ln()))
        };
        match root(guess, &mut slope, tolerance, 10, excess)? {
            Some(epsilon) => (guess, found) = (epsilon, Some((epsilon, kernel))),
            None => return Ok(None),
        }
    }
    Ok(found.filter(|(epsilon, _)| *epsilon < WORTH * plain))
}

/// About the standard deviation that a budget takes, for comparing strategies of one class; `near` is a guess, `whole` asks for all bins
/// where they are few enough. It bounds nothing.
pub(crate) fn about_stddev(
    bins: &Bins,
    whole: bool,
    budget: Budget,
    near: Option<f64>,
) -> Result<Option<f64>> {
    let Budget { epsilon, delta: scale } = budget;
    let Some(Choice { kernel, expected }) = simple(bins, whole, epsilon, scale) else { return Ok(None) };
    let mut stddev = near.unwrap_or(expected);
    // What ln δ changes by per ln σ, in searches for answers: a twentieth of the last step's excess is all that is left.
    const SLOPE: f64 = 20.0;
    for _ in 0..4 {
        let programme = Programme::new(&kernel, stddev, epsilon, scale, Direction::Add, Fineness(2.5))?;
        let Some(bound) = programme.and_then(|programme| programme.bound()) else { return Ok(None) };
        let excess = (bound.max(1e-300) / scale).ln();
        stddev *= (excess / SLOPE).clamp(-1.0, 1.0).exp();
        if excess.abs() < 1.0 {
            break;
        }
    }
    Ok(Some(stddev))
}
