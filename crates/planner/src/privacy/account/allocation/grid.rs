//! Where a programme evaluates: nodes of the chain's state, of the first bin, of the sum so far and of the white noise. Any grid gives a bound; these
//! give a close one. Positions are in standard deviations of the chain, around the output that most likely loses ε.

use super::super::normal::quantile_above;
use super::kernel::{Kernel, Turns};
use super::tilt::tilt;

/// Which of the two datasets the output comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::privacy::account) enum Direction {
    /// `E(W − e^ε)₊`: with the unit.
    Add,
    /// `E(1 − e^ε·W)₊`: the run without the unit is told from that with it.
    Remove,
}

/// How close grids are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fineness(pub(super) f64);

impl Fineness {
    /// The fineness of grids for answers.
    pub(super) const FINE: Fineness = Fineness(1.0);
}

/// What a programme is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    pub(super) epsilon: f64,
    /// The δ that matters.
    pub(super) delta: f64,
    pub(super) direction: Direction,
    pub(super) fineness: Fineness,
}

/// The nodes of a programme.
#[derive(Debug)]
pub(super) struct Grid {
    /// `x_i − variance/2` of a bin.
    pub(super) nodes: Vec<f64>,
    /// The gaps between nodes as whole numbers of this unit.
    pub(super) unit: f64,
    /// The whole numbers: one fewer than nodes.
    pub(super) gaps: Vec<u32>,
    /// Nodes that the first bin is tried at.
    pub(super) roots: Vec<usize>,
    /// Sums so far, less `drift` times the share of bins that were added.
    pub(super) sums: Vec<f64>,
    /// Where the sum starts, among them.
    pub(super) origin: usize,
    /// What a sum is expected to come to.
    pub(super) drift: f64,
    /// The logarithm of a δ that need not be resolved in every turn.
    pub(super) ln_negligible: f64,
}

/// Most nodes of a state, and of sums.
const MOST_NODES: f64 = 700.0;
const MOST_SUMS: usize = 4000;
/// Variances beyond this are no question of amplification.
pub(super) const MOST_VARIANCE: f64 = 300.0;

impl Grid {
    /// The grid for a kernel and what it is asked for; sums come in multiples of `block`. `None` where the kernel is out of reach.
    pub(super) fn new(kernel: &Kernel, turns: &Turns, stddev: f64, aim: Aim, block: usize) -> Option<Grid> {
        let Aim { epsilon, delta, direction, fineness: Fineness(fineness) } = aim;
        let m = turns.num_bins();
        let (most, least) =
            turns.own.iter().fold((0.0_f64, f64::INFINITY), |(a, b), v| (a.max(*v), b.min(*v)));
        let variance = most + turns.common + turns.white;
        if variance.is_nan() || variance > MOST_VARIANCE {
            return None;
        }
        let sd = most.sqrt();
        let steps = &turns.variance[1..];
        let step = (steps.iter().sum::<f64>() / steps.len() as f64).sqrt();
        let least_step = steps.iter().fold(f64::INFINITY, |least, v| least.min(*v)).sqrt();
        let ln_negligible = (1e-4 * delta / m as f64).ln();
        let far = quantile_above(ln_negligible) + sd;
        let peak = peak(turns, epsilon, direction) / sd;
        let (core, ends) = match direction {
            Direction::Add => ([-1.2, peak + 1.7], [-2.6, far.max(peak + 5.0)]),
            Direction::Remove => ([peak - 1.7, 1.2], [-far.max(5.0 - peak), 2.6]),
        };
        // In every turn the chord adds a sixth of the square of a gap to the variance.
        // Where a step is far smaller than the deviation that adds up to little, and nodes are many.
        let unit = fineness * (0.12 * sd).min((0.2 * step).max((0.06 * sd).min(0.4 * step)));
        // Gaps of three units are at most 2.4 deviations of any step.
        let unit = unit.min(0.8 * least_step);
        let unit = unit.max((core[1] - core[0] + 0.4 * (ends[1] - ends[0])) * sd / MOST_NODES);
        let at = |position: f64, variance: f64| position * sd - 0.5 * variance;
        let (core, ends) = ([at(core[0], most), at(core[1], least)], [at(ends[0], most), at(ends[1], least)]);
        let (nodes, gaps) = spaced(core, ends, unit);
        let first_sd = turns.variance[0].sqrt();
        let roots = roots(&nodes, core, 0.25 * fineness * first_sd, unit);
        let spread = spread(kernel, stddev);
        let (sums, drift) = match direction {
            Direction::Add => {
                let top = (2.0 * epsilon.exp()).max(2.5);
                (sums(1.0, top, spread, fineness, block), 1.0)
            }
            Direction::Remove => {
                let drift = (-epsilon).exp();
                let wide = quantile_above((1e-4 * delta).ln()) * turns.common.sqrt();
                let top = drift * wide.exp().max(3.0);
                (sums(drift, top, drift * spread, 1.3 * fineness, block), drift)
            }
        };
        let sums = sums?;
        let origin = sums.iter().position(|r| *r == 0.0)?;
        Some(Grid { nodes, unit, gaps, roots, sums, origin, drift, ln_negligible })
    }
}

/// The chain's farthest move at the most likely output, without its sign's other side.
fn peak(turns: &Turns, epsilon: f64, direction: Direction) -> f64 {
    let target = match direction {
        Direction::Add => epsilon,
        Direction::Remove => -epsilon,
    };
    let Some(found) = tilt(|q| turns.times(q), &turns.diagonal(), target) else { return 0.0 };
    let moves = turns.chain_times(&found.shares).into_iter().map(|c| found.length * c);
    match direction {
        Direction::Add => moves.fold(0.0, f64::max),
        Direction::Remove => moves.fold(0.0, f64::min),
    }
}

/// Nodes a unit apart in the core, two and then three units at the ends.
fn spaced(core: [f64; 2], ends: [f64; 2], unit: f64) -> (Vec<f64>, Vec<u32>) {
    let count = ((core[1] - core[0]) / unit).ceil().max(2.0) as u32;
    let widths = |length: f64| {
        let (mut out, mut reached) = (Vec::new(), 0.0);
        while reached < length / unit {
            let gap = if out.len() < 2 { 2 } else { 3 };
            out.push(gap);
            reached += f64::from(gap);
        }
        out
    };
    let below = widths(core[0] - ends[0]);
    let gaps: Vec<u32> = below
        .iter()
        .rev()
        .copied()
        .chain(std::iter::repeat_n(1, count as usize))
        .chain(widths(ends[1] - core[1]))
        .collect();
    let mut place = -f64::from(below.iter().sum::<u32>());
    let mut nodes = vec![core[0] + place * unit];
    for gap in &gaps {
        place += f64::from(*gap);
        nodes.push(core[0] + place * unit);
    }
    (nodes, gaps)
}

/// Some of the nodes, so far apart, and twice as far outside the core.
fn roots(nodes: &[f64], core: [f64; 2], apart: f64, unit: f64) -> Vec<usize> {
    let mut out = vec![0];
    for k in 1..nodes.len() - 1 {
        let from = nodes[out[out.len() - 1]];
        let wanted = if from >= core[0] && from < core[1] { apart } else { 2.0 * apart };
        if nodes[k] - from >= wanted - 0.5 * unit {
            out.push(k);
        }
    }
    out.push(nodes.len() - 1);
    out
}

/// The standard deviation of W without its common part, at most 1.
fn spread(kernel: &Kernel, stddev: f64) -> f64 {
    let scale = 1.0 / (stddev * stddev);
    let mut sum = 0.0;
    kernel.for_each_row(|i, row| {
        let term = |entry: f64| ((entry - kernel.common) * scale).clamp(0.0, 30.0).exp_m1();
        sum += 2.0 * row[..i].iter().map(|entry| term(*entry)).sum::<f64>() + term(row[i]);
    });
    let m = kernel.num_bins() as f64;
    (sum / (m * m)).sqrt().min(1.0)
}

/// Sums from `−drift` to `top − drift`, with 0 among them: close together around 0, where most sums are, farther apart outside.
fn sums(drift: f64, top: f64, spread: f64, fineness: f64, block: usize) -> Option<Vec<f64>> {
    for coarser in [1.0, 2.0, 4.0, 8.0] {
        let wide = 0.01 * fineness * coarser;
        let close = (0.025 * fineness * coarser * spread).min(wide * drift);
        let gap = |r: f64| {
            let growing = 0.045 * fineness * coarser * (r.abs() - 4.0 * spread).max(0.0);
            (wide * (drift + r.max(0.0))).min(close.max(growing))
        };
        let mut below = vec![-gap(0.0)];
        while below.len() < MOST_SUMS && below[below.len() - 1] > -drift {
            let last = below[below.len() - 1];
            below.push(last - gap(last));
        }
        if let Some(last) = below.last_mut() {
            *last = -drift;
        }
        let mut above = vec![0.0];
        while above.len() < MOST_SUMS && above[above.len() - 1] < top - drift
            || !(below.len() + above.len()).is_multiple_of(block)
        {
            let last = above[above.len() - 1];
            above.push(last + gap(last));
        }
        if below.len() + above.len() < MOST_SUMS {
            let out: Vec<f64> = below.into_iter().rev().chain(above).collect();
            return out.windows(2).all(|pair| pair[0] < pair[1]).then_some(out);
        }
    }
    None
}
