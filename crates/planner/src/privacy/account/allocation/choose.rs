//! The choice of a kernel: small where it matters, nowhere below the bounds.
//!
//! The loss' derivative by `K_jl` is `E[φ″(W) w_j w_l]/2`, so entries count as the product of their bins' shares at the output that most likely
//! loses ε (`tilt.rs`), summed over where around the circle that happens. Four numbers come first: for a correlation, the common part, the
//! chain's and the white noise's variance are a linear programme of one free variable. From there every bin's own numbers are
//! fitted by a descent on the logarithm of the weighted sum times the largest ratio of a bound to its entry, which a kernel has to be
//! multiplied by. All of it is a heuristic: what comes out is compared entry by entry.

use super::gram::{Bins, Bounds};
use super::guess::{FEW, Guessed, ln_stddev};
use super::kernel::{Chain, Kernel};
use super::tilt::tilt;
use crate::optimize::Iteration;
use crate::optimize::lbfgs::{Settings, minimize};
use crate::privacy::account::Budget;
use std::ops::ControlFlow;

/// A kernel, and the logarithm of the standard deviation that it is guessed to need.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) kernel: Kernel,
    pub(super) guessed: Guessed,
}

/// Bins beyond which every bin's own numbers are not fitted: quadratic work, a thousand times.
const FITTED: usize = 160;
/// Bins up to which a circle is tried as a whole, and around which a part of them is kept.
const WHOLE: usize = 128;
const LARGE: usize = 200;
const MOST_KEPT: usize = 2000;
/// Bins that a line leaves out, and how many usually.
const GAPS: [usize; 7] = [8, 15, 25, 40, 60, 90, 130];
const USUAL_GAP: usize = 40;
/// Fewer bins, which take less time, are preferred to more with less noise by this part.
const NEAR: f64 = 0.001;

/// A kernel that keeps as many bins as it may: what changes smoothly with a strategy, and takes little time.
pub(super) fn usual(bins: &Bins, budget: Budget, about: Guessed) -> Option<Choice> {
    let b = bins.num_bins();
    let stddev = about.at.exp();
    let kernel = match b <= LARGE {
        true => circle(bins, kept(b).into_iter().max()?, budget.epsilon, stddev)?,
        false => lines(bins, &[USUAL_GAP], budget.epsilon, stddev).pop()?,
    };
    judged(kernel, budget, FEW, about)
}

/// The kernels for a budget that were guessed to need least noise, the best one first; `about` is the logarithm of what the run's own
/// covariance needs.
pub(super) fn choices(bins: &Bins, budget: Budget, about: Guessed, numbers: usize) -> Vec<Choice> {
    let (b, stddev) = (bins.num_bins(), about.at.exp());
    let kernels: Vec<Kernel> = if b <= LARGE {
        kept(b).into_iter().filter_map(|m| circle(bins, m, budget.epsilon, stddev)).collect()
    } else {
        lines(bins, &GAPS, budget.epsilon, stddev)
    };
    let judge = |kernel| judged(kernel, budget, numbers, about);
    let mut out: Vec<Choice> = kernels.into_iter().filter_map(judge).collect();
    out.sort_by(|a, b| a.guessed.at.total_cmp(&b.guessed.at));
    let least = out.first().map_or(0.0, |first| first.guessed.at);
    let near = out.partition_point(|choice| choice.guessed.at <= least + NEAR);
    out[..near].sort_by_key(|choice| choice.kernel.num_bins());
    out
}

/// Numbers of bins that are kept of a circle.
fn kept(b: usize) -> Vec<usize> {
    let mut out: Vec<usize> = (1..=8).filter(|part| b.is_multiple_of(*part)).map(|part| b / part).collect();
    if out.len() < 3 {
        out.extend([b / 2, b / 4]);
    }
    out.retain(|m| (2..=WHOLE).contains(m) && (*m >= 12 || *m == b));
    if out.is_empty() {
        out.push(b.min(WHOLE));
    }
    out
}

/// A choice of a kernel that is to be judged.
fn judged(kernel: Kernel, budget: Budget, numbers: usize, about: Guessed) -> Option<Choice> {
    let guessed = ln_stddev(&kernel.turns(1.0), budget, numbers, about)?;
    Some(Choice { kernel, guessed })
}

/// A kernel around the circle, of so many bins.
fn circle(bins: &Bins, kept: usize, epsilon: f64, stddev: f64) -> Option<Kernel> {
    let bounds = bins.circle(kept);
    let (weights, start) = around(&bounds, epsilon, stddev)?;
    Some(match kept <= FITTED {
        true => fitted(&start, &bounds, &weights).unwrap_or(start),
        false => start,
    })
}

/// How far apart the bins of a line are kept.
pub(super) fn apart(num_bins: usize) -> usize {
    num_bins.div_ceil(MOST_KEPT)
}

/// Lines with gaps of several lengths, which pay for the way around.
fn lines(bins: &Bins, gaps: &[usize], epsilon: f64, stddev: f64) -> Vec<Kernel> {
    let b = bins.num_bins();
    let apart = apart(b);
    let all = bins.line(b / apart, apart);
    let mut out = Vec::new();
    for gap in gaps {
        let Some(m) = all.len().checked_sub(*gap).filter(|m| *m >= 12) else { continue };
        let bounds = &all[..m];
        let weights = line_weights(bounds, epsilon, stddev);
        let decay = |h: usize, rho: f64| rho.powi(h as i32);
        let [common, variance, white, correlation] = four(bounds, &weights, decay);
        let chain = Chain::Line { num_bins: m, variance, correlation };
        let kernel = Kernel { common, white, chain };
        let bound = |i: usize, l: usize| bounds[i - l];
        out.extend(raised(kernel, bound));
    }
    out
}

/// A kernel that dominates, by a factor on all of it.
fn raised(kernel: Kernel, bound: impl Fn(usize, usize) -> f64 + Copy) -> Option<Kernel> {
    let mut kernel = kernel;
    // Down to the first entry that is met, and up where rounding left one below.
    for _ in 0..4 {
        let factor = kernel.factor(bound);
        if !(factor.is_finite() && factor > 0.0) {
            return None;
        }
        kernel = kernel.times(factor * (1.0 + 1e-13));
        if kernel.check().is_ok() && kernel.dominates(bound) {
            return Some(kernel);
        }
    }
    None
}

/// How much entries count by distance around the circle, and a kernel of four numbers.
fn around(bounds: &Bounds, epsilon: f64, stddev: f64) -> Option<(Vec<f64>, Kernel)> {
    let m = bounds.num_bins();
    let by_distance = bounds.by_distance();
    let shares = shares(&by_distance, true, m, epsilon, stddev);
    let mut weights = vec![0.0; m / 2 + 1];
    for (i, a) in shares.iter().enumerate() {
        for (l, b) in shares.iter().enumerate() {
            let h = i.abs_diff(l);
            weights[h.min(m - h)] += a * b;
        }
    }
    // Per entry at this distance: there are m pairs at every one but the last.
    weights.iter_mut().enumerate().for_each(|(h, w)| *w /= if h == 0 || 2 * h == m { 1.0 } else { 2.0 });
    floor(&mut weights);
    let pairs: Vec<f64> =
        weights.iter().enumerate().map(|(h, w)| w * if h == 0 || 2 * h == m { 1.0 } else { 2.0 }).collect();
    let decay =
        |h: usize, rho: f64| (rho.powi(h as i32) + rho.powi((m - h) as i32)) / (1.0 + rho.powi(m as i32));
    let [common, variance, white, correlation] = four(&by_distance, &pairs, decay);
    let kernel = Kernel { common, white, chain: Chain::circle(m, variance, correlation) };
    Some((weights, raised(kernel, |i, l| bounds.at(i, l))?))
}

/// The bins' shares at the most likely output, for entries by distance.
fn shares(by_distance: &[f64], circle: bool, m: usize, epsilon: f64, stddev: f64) -> Vec<f64> {
    let scale = 1.0 / (stddev * stddev);
    let entry = |h: usize| scale * by_distance[if circle { h.min(m - h) } else { h }];
    let times = |q: &[f64]| (0..m).map(|i| (0..m).map(|l| entry(i.abs_diff(l)) * q[l]).sum()).collect();
    tilt(times, &vec![entry(0); m], epsilon).map_or_else(|| vec![1.0 / m as f64; m], |tilt| tilt.shares)
}

fn line_weights(bounds: &[f64], epsilon: f64, stddev: f64) -> Vec<f64> {
    // A window is enough: shares are those of a few bins next to each other.
    let m = bounds.len().min(200);
    let shares = shares(&bounds[..m], false, m, epsilon, stddev);
    let mut weights = vec![0.0; bounds.len()];
    for (i, a) in shares.iter().enumerate() {
        shares.iter().enumerate().for_each(|(l, b)| weights[i.abs_diff(l)] += a * b);
    }
    let most = weights.iter().fold(0.0_f64, |a, b| a.max(*b));
    // Distances beyond the window count for the common part alone.
    weights.iter_mut().for_each(|w| *w += 1e-4 * most);
    weights
}

/// No entry counts for nothing: the loss depends on all of them a little.
fn floor(weights: &mut [f64]) {
    let most = weights.iter().fold(0.0_f64, |a, b| a.max(*b));
    weights.iter_mut().for_each(|w| *w += 0.02 * most);
}

/// The common, the chain's and the white variance and the correlation with the least weighted sum that is nowhere below the bounds.
fn four(bounds: &[f64], weights: &[f64], decay: impl Fn(usize, f64) -> f64) -> [f64; 4] {
    let total: f64 = weights.iter().sum();
    let solve = |rho: f64| {
        let shape: Vec<f64> = (0..bounds.len()).map(|h| decay(h, rho)).collect();
        let of_chain: f64 = shape.iter().zip(weights).map(|(s, w)| s * w).sum();
        let parts = |variance: f64| {
            let missing = |(bound, shape): (&f64, &f64)| bound - variance * shape;
            let common = bounds.iter().zip(&shape).skip(1).map(missing).fold(0.0, f64::max);
            (common, (bounds[0] - common - variance).max(0.0))
        };
        let value = |variance: f64| {
            let (common, white) = parts(variance);
            common * total + variance * of_chain + white * weights[0]
        };
        let least = bounds[0] * 1e-3;
        let variance = golden(&value, least, 3.0 * bounds[0], 60);
        let (common, white) = parts(variance);
        (value(variance), [common, variance, white, rho])
    };
    // In the logarithm of the length of correlation.
    let rho = |x: f64| (-(-x).exp()).exp();
    let starts = (0..24).map(|k| -1.0 + 0.32 * f64::from(k));
    let best = starts.min_by(|a, b| solve(rho(*a)).0.total_cmp(&solve(rho(*b)).0)).unwrap_or(0.0);
    let found = golden(&|x| solve(rho(x)).0, best - 0.32, best + 0.32, 20);
    solve(rho(found)).1
}

fn golden(f: &impl Fn(f64) -> f64, mut low: f64, mut high: f64, turns: usize) -> f64 {
    const RATIO: f64 = 0.618_033_988_749_894_9;
    let (mut left, mut right) = (high - RATIO * (high - low), low + RATIO * (high - low));
    let (mut at_left, mut at_right) = (f(left), f(right));
    for _ in 0..turns {
        if at_left <= at_right {
            (high, right, at_right) = (right, left, at_left);
            left = high - RATIO * (high - low);
            at_left = f(left);
        } else {
            (low, left, at_left) = (left, right, at_right);
            right = low + RATIO * (high - low);
            at_right = f(right);
        }
    }
    if at_left <= at_right { left } else { right }
}

/// A chain with numbers of its own for every bin, from a kernel to start from.
fn fitted(start: &Kernel, bounds: &Bounds, weights: &[f64]) -> Option<Kernel> {
    let Chain::Circle { variance, previous, first } = &start.chain else { return None };
    let m = variance.len();
    let logit = |p: f64| (p.clamp(1e-6, 1.0 - 1e-6) / (1.0 - p.clamp(1e-6, 1.0 - 1e-6))).ln();
    let tiny = 1e-6 * variance[0];
    let mut x: Vec<f64> = vec![start.common.max(tiny).ln(), start.white.max(tiny).ln()];
    x.extend(variance.iter().map(|v| v.ln()));
    x.extend(previous.iter().map(|p| logit(*p)));
    x.extend(first.iter().map(|f| f.max(1e-9).ln()));
    let quiet = &mut |_: Iteration| ControlFlow::Continue(());
    for sharpness in [60.0, 400.0, 2500.0] {
        let mut objective = Fit { bounds, weights, sharpness, m };
        let settings = Settings {
            max_iterations: 250,
            gradient_tolerance: 1e-7,
            value_tolerance: 1e-7,
            ..Settings::default()
        };
        let mut function = |x: &[f64], gradient: &mut [f64]| objective.evaluate(x, gradient);
        x = minimize(&mut function, x, settings, quiet).x;
    }
    let mut kernel = unpack(&x, m);
    if let Chain::Circle { variance, .. } = &mut kernel.chain {
        // Steps that are far smaller than others, to bins that hardly anyone falls into, would need nodes close together.
        let usual = variance[1..].iter().sum::<f64>() / (m - 1) as f64;
        variance[1..].iter_mut().for_each(|v| *v = v.max(SMALL_STEP * usual));
    }
    raised(kernel, |i, l| bounds.at(i, l))
}

/// The least variance of a step, as a part of the usual one.
const SMALL_STEP: f64 = 0.1;

fn unpack(x: &[f64], m: usize) -> Kernel {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let variance = x[2..2 + m].iter().map(|x| x.exp()).collect();
    let previous = x[2 + m..1 + 2 * m].iter().map(|x| sigmoid(*x)).collect();
    let first = x[1 + 2 * m..].iter().map(|x| x.exp()).collect();
    Kernel { common: x[0].exp(), white: x[1].exp(), chain: Chain::Circle { variance, previous, first } }
}

/// The logarithm of the weighted sum of a kernel's entries, times a soft largest ratio of bounds to entries.
struct Fit<'a> {
    bounds: &'a Bounds,
    weights: &'a [f64],
    sharpness: f64,
    m: usize,
}

impl Fit<'_> {
    fn evaluate(&mut self, x: &[f64], gradient: &mut [f64]) -> f64 {
        let (m, sharpness) = (self.m, self.sharpness);
        let kernel = unpack(x, m);
        let Chain::Circle { variance, previous, first } = &kernel.chain else { return f64::INFINITY };
        let mut chain: Vec<Vec<f64>> = vec![vec![variance[0]]];
        for i in 1..m {
            let (a, b) = (previous[i - 1], first[i - 1]);
            let mut row: Vec<f64> = (0..i).map(|l| a * chain[i - 1][l] + b * chain[l][0]).collect();
            row.push(a * row[i - 1] + b * row[0] + variance[i]);
            chain.push(row);
        }
        let entry =
            |i: usize, l: usize| chain[i][l] + kernel.common + if i == l { kernel.white } else { 0.0 };
        // Every pair counts twice, the diagonal once.
        let weight = |i: usize, l: usize| {
            let h = i - l;
            self.weights[h.min(m - h)] * if h == 0 { 1.0 } else { 2.0 }
        };
        let (mut sum, mut most) = (0.0, f64::NEG_INFINITY);
        for i in 0..m {
            for l in 0..=i {
                sum += weight(i, l) * entry(i, l);
                most = most.max(self.bounds.at(i, l) / entry(i, l));
            }
        }
        // (ratio/most)^sharpness: a soft maximum.
        let mut soft = 0.0;
        let mut slopes: Vec<Vec<f64>> = Vec::with_capacity(m);
        for i in 0..m {
            let mut row = Vec::with_capacity(i + 1);
            for l in 0..=i {
                let ratio = self.bounds.at(i, l) / entry(i, l) / most;
                let power = if ratio > 1.0 - 40.0 / sharpness { (sharpness * ratio.ln()).exp() } else { 0.0 };
                soft += power;
                row.push(power);
            }
            slopes.push(row);
        }
        let value = sum.ln() + most.ln() + soft.ln() / sharpness;
        for (i, row) in slopes.iter_mut().enumerate() {
            for (l, slope) in row.iter_mut().enumerate() {
                *slope = weight(i, l) / sum - *slope / soft / entry(i, l);
            }
        }
        gradient.fill(0.0);
        gradient[0] = kernel.common * slopes.iter().flatten().sum::<f64>();
        gradient[1] = kernel.white * (0..m).map(|i| slopes[i][i]).sum::<f64>();
        for i in (1..m).rev() {
            let (a, b) = (previous[i - 1], first[i - 1]);
            let own = slopes[i][i];
            let (mut of_previous, mut of_first) = (own * chain[i][i - 1], own * chain[i][0]);
            slopes[i][i - 1] += own * a;
            slopes[i][0] += own * b;
            for l in 0..i {
                let slope = slopes[i][l];
                of_previous += slope * chain[i - 1][l];
                slopes[i - 1][l] += slope * a;
                of_first += slope * chain[l][0];
                slopes[l][0] += slope * b;
            }
            gradient[2 + i] = own * variance[i];
            gradient[2 + m + i - 1] = of_previous * a * (1.0 - a);
            gradient[1 + 2 * m + i - 1] = of_first * b;
        }
        gradient[2] = slopes[0][0] * variance[0];
        value
    }
}
