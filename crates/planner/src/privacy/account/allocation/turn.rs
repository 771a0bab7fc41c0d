//! One turn of the programme: from the value given a bin's state to the value given the state of the bin before.
//!
//! A row of weights ends where little mass is left. What lies below its first node is put there, and what lies above its last node there:
//! upwards where values rise with the state, downwards where they fall. On the other side it is charged:
//!
//! - adding, values rise with the state and their slope in the sum is at most 1, so a state above the node t adds at most the sum that it brings:
//!   `Σ_{l≥i} E[e^{y_l}; y_i > t]/m ≤ Φ(−(t − mean − v_i)/sd)·Σ_{l≥i} E[e^{y_l}]/m`, since no later bin has more of `x_i` than `x_i` itself;
//! - removing, values are at most `1 + e^ε·drift = 2` at every node, so a state below the node t adds at most twice its probability.

use super::super::normal::{quantile_above, upper};
use super::grid::Direction;
use super::hats::{FARTHEST, Polynomials};
use super::programme::{Programme, WEIGHT_ROUNDING};
use corrnoise_numerics::{BLOCK, LANES, Lane, blend_blocks, density_times_polynomials};
use std::collections::BTreeSet;

/// Where a row ends on the side where nothing is charged: the mass beyond moves by little.
const QUIET: f64 = 4.7;
/// By how much the weights of a row may be less than 1 in sum before the programme refuses to go on: less than every weight is raised by.
const MISSING: f64 = 0.5 * WEIGHT_ROUNDING;
/// By how much they may be more, which is safe.
const TOO_MUCH: f64 = 1e-8;

/// True for weights whose sum is that of a distribution, up to what they are raised by.
pub(super) fn is_whole(sum: f64) -> bool {
    (1.0 - MISSING..=1.0 + TOO_MUCH).contains(&sum)
}

/// The values of all nodes, sums and first bins, in blocks: by sums first, then by nodes.
#[derive(Default)]
pub(super) struct Workspace {
    values: Vec<[f64; BLOCK]>,
    next: Vec<[f64; BLOCK]>,
}

impl Workspace {
    /// The same values at every one of `n` nodes.
    pub(super) fn start(&mut self, n: usize, lanes: &[Lane]) {
        self.values.clear();
        for block in lanes.as_flattened().as_chunks::<BLOCK>().0 {
            self.values.extend(std::iter::repeat_n(*block, n));
        }
        self.next.resize(self.values.len(), [0.0; BLOCK]);
    }

    /// Copies the values of node k, of n.
    pub(super) fn read(&self, n: usize, k: usize, out: &mut [f64]) {
        let own = self.values[k..].iter().step_by(n);
        out.as_chunks_mut::<BLOCK>().0.iter_mut().zip(own).for_each(|(out, block)| *out = *block);
    }

    /// Sets the values of one node.
    pub(super) fn write(&mut self, n: usize, k: usize, values: &[f64]) {
        let own = self.values[k..].iter_mut().step_by(n);
        own.zip(values.as_chunks::<BLOCK>().0).for_each(|(block, value)| *block = *value);
    }
}

/// The weights of one turn.
pub(super) struct Turn {
    /// The first node of every row, and where its weights begin.
    rows: Vec<(usize, usize)>,
    weights: Vec<Lane>,
    /// What every row is charged, per unit of what it may bring.
    tails: Vec<Lane>,
    /// What it may bring.
    brings: Lane,
}

impl Turn {
    /// From bin i to the bin before, with the first bin's state in lanes. `None` where weights lose their digits.
    pub(super) fn new(programme: &Programme, i: usize, first: &Lane) -> Option<Turn> {
        let (turns, grid) = (&programme.turns, &programme.grid);
        let (nodes, n) = (&grid.nodes, grid.nodes.len());
        let sd = turns.variance[i].sqrt();
        // A circle's turns differ, a line's share their rows.
        let brings = brings(programme, i, first);
        let most = brings.iter().fold(1.0_f64, |most, b| most.max(*b));
        let charged = quantile_above((grid.ln_negligible - most.ln()).min(-2.0));
        let [below, above] = match programme.direction {
            Direction::Add => [QUIET, charged + sd],
            Direction::Remove => [charged, QUIET],
        };
        let sides = |k: usize, lo: usize, hi: usize| {
            (if k > lo { grid.gaps[k - 1] } else { 0 }, if k < hi { grid.gaps[k] } else { 0 })
        };
        let kinds: BTreeSet<(u32, u32)> = (0..n)
            .flat_map(|k| {
                let (left, right) = sides(k, 0, n - 1);
                [(left, right), (0, right), (left, 0)]
            })
            .collect();
        let kinds: Vec<_> = kinds.into_iter().collect();
        let polynomials = Polynomials::new(&kinds, grid.unit, sd, programme.hat)?;
        let mut turn = Turn { rows: Vec::with_capacity(n), weights: Vec::new(), tails: Vec::new(), brings };
        let mut chosen: Vec<&[f64]> = Vec::with_capacity(n);
        for node in nodes {
            let from = turns.previous[i] * (node + 0.5 * turns.own[i - 1]) - 0.5 * turns.own[i];
            let means: Lane = first.map(|x| from + turns.first[i] * x);
            let [least, most] = [f64::min, f64::max].map(|choose| means.into_iter().fold(means[0], choose));
            let lo = nodes.partition_point(|y| *y <= least - below * sd).saturating_sub(1).min(n - 2);
            let hi = nodes.partition_point(|y| *y < most + above * sd).clamp(lo + 1, n - 1);
            chosen.clear();
            for (k, node) in (lo..).zip(&nodes[lo..=hi]) {
                let farthest = (node - least).abs().max((node - most).abs()) / sd;
                chosen.push(polynomials.of(sides(k, lo, hi), farthest.min(FARTHEST)));
            }
            let start = turn.weights.len();
            turn.weights.resize(start + hi - lo + 1, [0.0; LANES]);
            let own = &mut turn.weights[start..];
            density_times_polynomials(&chosen, &nodes[lo..=hi], &means, sd, own);
            let mut tail = [0.0; LANES];
            for lane in 0..LANES {
                let [z_lo, z_hi] = [nodes[lo], nodes[hi]].map(|y| (y - means[lane]) / sd);
                own[0][lane] += upper(-z_lo);
                own[hi - lo][lane] += upper(z_hi);
                let sum: f64 = own.iter().map(|weight| weight[lane]).sum();
                if !is_whole(sum) {
                    return None;
                }
                tail[lane] = match programme.direction {
                    Direction::Add => upper(z_hi - sd),
                    Direction::Remove => upper(-z_lo),
                } * (1.0 + 1e-9);
            }
            for weight in own.iter_mut().flatten() {
                *weight = weight.max(0.0) * (1.0 + WEIGHT_ROUNDING);
            }
            turn.rows.push((lo, start));
            turn.tails.push(tail);
        }
        turn.rows.push((0, turn.weights.len()));
        Some(turn)
    }

    /// The same weights for another bin of a line, with what it may bring.
    pub(super) fn again(self, programme: &Programme, i: usize) -> Turn {
        Turn { brings: brings(programme, i, &[0.0; LANES]), ..self }
    }

    /// Replaces the values of all nodes by their means over this turn.
    pub(super) fn apply(&self, work: &mut Workspace) {
        let n = self.tails.len();
        for (values, next) in work.values.chunks(n).zip(work.next.chunks_mut(n)) {
            for (k, next) in next.iter_mut().enumerate() {
                let ((lo, start), (_, end)) = (self.rows[k], self.rows[k + 1]);
                let charge = std::array::from_fn(|lane| self.tails[k][lane] * self.brings[lane]);
                blend_blocks(&self.weights[start..end], &values[lo..lo + end - start], &charge, next);
            }
        }
        std::mem::swap(&mut work.values, &mut work.next);
    }
}

/// What bins i and later may bring, for the largest state before: adding, the mean of their part of W; removing, twice the probability.
fn brings(programme: &Programme, i: usize, first: &Lane) -> Lane {
    let (turns, nodes) = (&programme.turns, &programme.grid.nodes);
    if programme.direction == Direction::Remove {
        return [2.0; LANES];
    }
    let m = turns.num_bins();
    let top = nodes[nodes.len() - 1] + 0.5 * turns.own[i - 1];
    let (mut loading, mut of_first, mut variance) = (1.0, 0.0, 0.0);
    let mut sums = [0.0; LANES];
    for l in i..m {
        let (previous, weight) = (turns.previous[l], turns.first[l]);
        loading *= previous;
        of_first = previous * of_first + weight;
        variance = previous * previous * variance + turns.variance[l];
        let from = loading * top + 0.5 * (variance - turns.own[l]);
        for (sum, x) in sums.iter_mut().zip(first) {
            *sum += (from + of_first * x).exp();
        }
    }
    sums.map(|sum| sum / m as f64 * (1.0 + 1e-9))
}
