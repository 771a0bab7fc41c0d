//! Strategies that are made for balls in bins: what is small is the error times the noise that the amplified claim takes, and not the
//! sensitivity. The search sees a guess at that noise; the answer is calibrated and proven like any other.

use crate::error::{Error, Result};
use crate::factorization::Factorization;
use crate::optimize::{Objective, Observer, Problem, Stage};
use crate::plan::calibrate::Goal;
use crate::plan::question::Question;
use crate::privacy::account::Budget;
use crate::privacy::account::allocation::{Bins, Judged, about_stddev};
use crate::privacy::schedule::Schedule;
use crate::privacy::sensitivity::Adjacency;
use crate::strategy::names::StrategySpec;
use crate::strategy::{Blt, Strategy};
use corrnoise_core::Sampling;

/// Rows of banded inverses that are tried: a step makes as many.
const INVERSE_ROWS: [usize; 7] = [4, 8, 12, 16, 20, 24, 32];
/// Buffers that are tuned: with more, the search sees less than its own errors.
pub(super) const MOST_BUFFERS: usize = 2;
/// Most bins for which strategies are made for the claim: beyond, a claim takes minutes.
const MOST_BINS: u64 = 2000;
/// Most bins for which they are tried unasked: a few seconds for each.
pub(super) const QUICK_BINS: u64 = 200;

/// The budget and the bins that a strategy is made for, or why a schedule has none.
pub(super) fn target(question: &Question, schedule: &Schedule) -> Result<(Budget, u64)> {
    let Some(Sampling::BallsInBins { num_bins, .. }) = schedule.sampling() else {
        return Err(Error::parameter("schedule", schedule.to_string(), "balls in bins"));
    };
    if question.adjacency != Adjacency::ZeroOut {
        let expected = "zero-out, where balls in bins are to amplify";
        return Err(Error::parameter("adjacency", "replace-one", expected));
    }
    if !(2..=MOST_BINS).contains(&num_bins) {
        let expected = format!("2 to {MOST_BINS}, for strategies that are made for a proof by balls in bins");
        return Err(Error::parameter("number of bins", num_bins, expected));
    }
    match question.goal {
        Goal::Budget(budget) if budget.epsilon > 0.0 => Ok((budget, num_bins)),
        _ => Err(Error::parameter("goal", "no ε above 0", "a budget, for strategies that are made for it")),
    }
}

/// The strategy of a name under a schedule: made for the claim by balls in bins, if that is how it is sampled.
pub(super) fn build(
    question: &Question,
    strategy: &StrategySpec,
    schedule: &Schedule,
    observer: Observer<'_>,
) -> Result<Factorization> {
    let problem = question.problem(schedule)?;
    if let (StrategySpec::Blt(buffers @ 1..=MOST_BUFFERS), Ok((budget, num_bins))) =
        (strategy, target(question, schedule))
        && let Some(found) = best_blt(&problem, *buffers, budget, num_bins)?
    {
        return Ok(found);
    }
    strategy.build(&problem, observer)
}

/// The banded inverse square root whose number of rows suits the claim.
pub(super) fn best_inverse(
    question: &Question,
    schedule: &Schedule,
    observer: Observer<'_>,
) -> Result<(StrategySpec, Factorization)> {
    observer.stage(Stage::Optimizing("bisr, balls in bins"));
    let problem = question.problem(schedule)?;
    let (budget, num_bins) = target(question, schedule)?;
    let mut loss = Loss { problem: &problem, budget, num_bins, judged: Judged::ByTheBest, near: None };
    let mut best: Option<(f64, usize, Factorization)> = None;
    for rows in INVERSE_ROWS.into_iter().filter(|rows| *rows <= problem.num_steps) {
        let built = StrategySpec::Bisr(rows).build(&problem, observer)?;
        let value = loss.of(&built);
        // Too many rows are no better than fewer.
        if best.as_ref().is_none_or(|(least, ..)| value < *least) {
            best = Some((value, rows, built));
        }
    }
    match best {
        Some((value, rows, built)) if value.is_finite() => Ok((StrategySpec::Bisr(rows), built)),
        _ => {
            Err(Error::parameter("noise that the claim takes", "unknown", "a number for some number of rows"))
        }
    }
}

/// Error times noise, as the search sees it.
struct Loss<'a> {
    problem: &'a Problem,
    budget: Budget,
    num_bins: u64,
    judged: Judged,
    /// The noise of the last strategy, next to which that of the next one is looked for.
    near: Option<f64>,
}

impl Loss<'_> {
    fn of(&mut self, factorization: &Factorization) -> f64 {
        self.known(factorization).ok().flatten().unwrap_or(f64::INFINITY)
    }

    fn known(&mut self, factorization: &Factorization) -> Result<Option<f64>> {
        let errors = factorization.errors(&self.problem.workload)?;
        let error = match self.problem.objective {
            Objective::Max => errors.max,
            Objective::Rms => errors.rms,
        };
        let bins = Bins::of(factorization, self.num_bins)?;
        let stddev = about_stddev(&bins, self.budget, self.judged, self.near);
        self.near = stddev.or(self.near);
        Ok(stddev.map(|stddev| stddev * error))
    }
}

/// A BLT for the claim: a simplex search over the logarithms of scales and of what decays lack of 1.
fn best_blt(
    problem: &Problem,
    buffers: usize,
    budget: Budget,
    num_bins: u64,
) -> Result<Option<Factorization>> {
    let mut loss = Loss { problem, budget, num_bins, judged: Judged::Smoothly, near: None };
    let built = |x: &[f64]| -> Result<Factorization> {
        let (scale, lacking): (Vec<f64>, Vec<f64>) =
            x.chunks(2).map(|pair| (pair[0].exp(), pair[1].exp())).unzip();
        let decay: Vec<f64> = lacking.iter().map(|lacking| 1.0 / (1.0 + lacking)).collect();
        Factorization::new(Strategy::Blt(Blt::new(&scale, &decay)?), problem.num_steps)
    };
    let mut value = |x: &[f64]| built(x).map_or(f64::INFINITY, |built| loss.of(&built));
    // One buffer that reaches over a third of an epoch, or a little farther with a quick one beside it.
    let bins = num_bins as f64;
    let lacking = |epochs: f64| (epochs / bins).min(1.0).ln();
    let start = match buffers {
        1 => vec![0.15_f64.ln(), lacking(3.4)],
        _ => vec![0.1_f64.ln(), lacking(2.4), 0.22_f64.ln(), 0.8_f64.ln()],
    };
    let found = simplex(&mut value, start, 0.25, 20 * buffers);
    value(&found).is_finite().then(|| built(&found)).transpose()
}

/// The least of a function by reflections of a simplex (Nelder and Mead), after so many evaluations.
fn simplex(f: &mut impl FnMut(&[f64]) -> f64, start: Vec<f64>, size: f64, evaluations: usize) -> Vec<f64> {
    let dimension = start.len();
    let mut corners: Vec<(f64, Vec<f64>)> = vec![(f(&start), start.clone())];
    for i in 0..dimension {
        let mut corner = start.clone();
        corner[i] += size;
        corners.push((f(&corner), corner));
    }
    let mut count = dimension + 1;
    while count < evaluations {
        corners.sort_by(|a, b| a.0.total_cmp(&b.0));
        let centre: Vec<f64> = (0..dimension)
            .map(|i| corners[..dimension].iter().map(|(_, x)| x[i]).sum::<f64>() / dimension as f64)
            .collect();
        let (worst, from) = corners[dimension].clone();
        let along =
            |by: f64| -> Vec<f64> { centre.iter().zip(&from).map(|(c, x)| c + by * (c - x)).collect() };
        let mut best: Option<(f64, Vec<f64>)> = None;
        for by in [1.0, 2.0, -0.5, 0.5] {
            let tried = match (by, &best) {
                // Farther if the reflection was the best of all, nearer if it was the worst.
                (1.0, _) => true,
                (2.0, Some((value, _))) => *value < corners[0].0,
                (_, Some((value, _))) => *value >= corners[dimension - 1].0,
                _ => false,
            };
            if !tried {
                continue;
            }
            let x = along(by);
            let value = f(&x);
            count += 1;
            if best.as_ref().is_none_or(|(least, _)| value < *least) {
                best = Some((value, x));
            }
        }
        match best {
            Some((value, x)) if value < worst => corners[dimension] = (value, x),
            _ => {
                let (_, least) = corners[0].clone();
                for (value, corner) in &mut corners[1..] {
                    corner.iter_mut().zip(&least).for_each(|(x, to)| *x = 0.5 * (*x + to));
                    *value = f(corner);
                    count += 1;
                }
            }
        }
    }
    corners.sort_by(|a, b| a.0.total_cmp(&b.0));
    corners.swap_remove(0).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simplex_finds_the_end_of_a_bowl() {
        let mut bowl = |x: &[f64]| (x[0] - 1.0).powi(2) + 3.0 * (x[1] + 2.0 - 0.5 * x[0]).powi(2);
        let found = simplex(&mut bowl, vec![0.0, 0.0], 0.5, 150);
        assert!((found[0] - 1.0).abs() < 1e-3 && (found[1] + 1.5).abs() < 1e-3, "{found:?}");
    }
}
