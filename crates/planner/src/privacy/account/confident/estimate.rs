//! Bounded estimates of a hockey stick: samples of another distribution, weighted.
//!
//! ```text
//! add:     a tuple of k patterns, N(Σ_a m_{π_a}, 1) (`tuples.rs`)    Y = (W − e^ε)₊ W^{−k} ρ
//! remove:  N(−τ·m̄, 1), m̄ = Σ_π p_π m_π, τ > 0                        Y = (1 − e^ε W)₊ e^{τ⟨m̄, y⟩ + τ²|m̄|²/2}
//! ```
//! Their means are the hockey sticks: for the latter, the factor is Q's density over the other one's. Both are bounded. Where they are not 0,
//! `(W − e^ε) W^{−k}` has its largest value at `W = e^ε·k/(k−1)`, and ρ has a bound. By Jensen's inequality `ln W ≥ ⟨m̄, y⟩ − κ̄/2` with `κ̄ = Σ_π p_π |m_π|²`, so
//! that remove's Y is at most `(1 − e^ε W) W^τ e^{τκ̄/2 + τ²|m̄|²/2}`, which is the largest at `W = e^{−ε}·τ/(1+τ)`.

use super::law::Law;
use super::source::{Source, cipher};
use super::tuples::{Bounds, Room, draw};
use crate::privacy::account::allocation::grid::Direction;
use corrnoise_core::chacha::ChaCha;
use corrnoise_numerics::{LANES, Lane, Sparse, exponentials, sparse_times_lanes};
use std::sync::Mutex;

/// More than a ratio, or a bound, may be off by rounding, relative to itself.
const ROUNDING: f64 = 1e-9;
/// Groups of samples that a thread makes at a time.
const GROUPS: usize = 64;

/// What samples come from: one direction at some noise, ε and tilt.
pub(super) struct Proposal<'a> {
    law: &'a Law,
    direction: Direction,
    tilt: f64,
    /// The exponential of ε, e^ε.
    odds: f64,
    /// The vectors for the noise's standard deviation.
    vectors: Sparse,
    /// Half of their squares, below zero.
    constants: Vec<f64>,
    /// The mean vector of patterns.
    mean: Vec<f64>,
    stddev: f64,
    /// The logarithm of the bound.
    ln_most: f64,
}

/// Memory of a thread.
#[derive(Default)]
struct Work {
    words: Vec<u64>,
    output: Vec<Lane>,
    weights: Vec<Lane>,
    room: Room,
}

impl<'a> Proposal<'a> {
    pub(super) fn new(
        law: &'a Law,
        stddev: f64,
        epsilon: f64,
        direction: Direction,
        tilt: f64,
    ) -> Proposal<'a> {
        let ln_most = match direction {
            Direction::Add => {
                let order = order(tilt);
                Bounds::new(law, stddev).ln_weight(order) + ln_most_of_ratio(order, epsilon)
            }
            Direction::Remove => ln_most_removed(law, stddev, epsilon, tilt),
        };
        let mut vectors = law.vectors.clone();
        vectors.values.iter_mut().for_each(|value| *value /= stddev);
        let constants = law.squares.iter().map(|square| -0.5 * square / (stddev * stddev)).collect();
        let mean = law.mean_vector.iter().map(|value| value / stddev).collect();
        Proposal { law, direction, tilt, odds: epsilon.exp(), vectors, constants, mean, stddev, ln_most }
    }

    /// No sample is larger.
    pub(super) fn most(&self) -> f64 {
        (self.ln_most + 100.0 * ROUNDING * (1.0 + self.tilt)).exp()
    }

    /// What the hockey stick may be larger than the mean of samples.
    pub(super) fn charge(&self) -> f64 {
        if self.direction == Direction::Add { self.tilt * self.law.left_out } else { 0.0 }
    }

    /// So many samples, a multiple of eight, under a key; the same for any number of threads.
    pub(super) fn samples(&self, count: usize, key: &[u8; 32]) -> Vec<f64> {
        let cipher = cipher(key);
        let mut out = vec![0.0; count];
        let parts = Mutex::new(out.as_chunks_mut::<LANES>().0.chunks_mut(GROUPS).enumerate());
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.min(count.div_ceil(LANES * GROUPS));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut work = Work::default();
                    loop {
                        let next = parts.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
                        let Some((part, groups)) = next else { return };
                        for (g, group) in groups.iter_mut().enumerate() {
                            *group = self.group(&cipher, (part * GROUPS + g) as u64, &mut work);
                        }
                    }
                });
            }
        });
        out
    }

    /// Eight samples, one per lane.
    fn group(&self, cipher: &ChaCha, group: u64, work: &mut Work) -> Lane {
        let side = u64::from(self.direction == Direction::Remove);
        let mut source = Source::new(cipher, 2 * group + side);
        let Work { words, output, weights, room } = work;
        source.normals(words, output, self.mean.len());
        let ln_weight = match self.direction {
            Direction::Add => draw(self.law, self.stddev, order(self.tilt), &mut source, room, output),
            Direction::Remove => {
                let (mut dots, mut square) = ([0.0; LANES], 0.0);
                for (row, mean) in output.iter_mut().zip(&self.mean) {
                    square += mean * mean;
                    for lane in 0..LANES {
                        row[lane] -= self.tilt * mean;
                        dots[lane] += mean * row[lane];
                    }
                }
                dots.map(|dot| self.tilt * (dot + 0.5 * self.tilt * square))
            }
        };
        weights.resize(self.constants.len(), [0.0; LANES]);
        sparse_times_lanes(&self.vectors, &self.constants, output, weights);
        exponentials(weights.as_flattened_mut());
        let ratio = self.law.mean(weights);
        std::array::from_fn(|i| {
            let (excess, ln_scale) = match self.direction {
                Direction::Add => (ratio[i] * (1.0 + ROUNDING) - self.odds, -self.tilt * libm::log(ratio[i])),
                Direction::Remove => (1.0 + ROUNDING - self.odds * ratio[i], 0.0),
            };
            // Written so that what is no number stays none.
            if excess <= 0.0 { 0.0 } else { excess * libm::exp(ln_weight[i] + ln_scale) * (1.0 + ROUNDING) }
        })
    }
}

/// Adding: the number of patterns of a tuple, as which its tilt is written.
pub(super) fn order(tilt: f64) -> usize {
    tilt as usize
}

/// The logarithm of the most of `(W − e^ε) W^{−k}`.
fn ln_most_of_ratio(order: usize, epsilon: f64) -> f64 {
    let k = order as f64;
    (k - 1.0) * (1.0 - 1.0 / k).ln() - k.ln() - (k - 1.0) * epsilon
}

fn ln_most_removed(law: &Law, stddev: f64, epsilon: f64, tilt: f64) -> f64 {
    let variance = stddev * stddev;
    let square: f64 = law.mean_vector.iter().map(|value| value * value).sum();
    let of_ratio = tilt * (tilt / (1.0 + tilt)).ln() - (1.0 + tilt).ln() - tilt * epsilon;
    of_ratio + 0.5 * (tilt * tilt * square + tilt * law.mean_square()) / variance
}

/// The tilt with about the least bound on samples.
pub(super) fn usual_tilt(law: &Law, stddev: f64, epsilon: f64, direction: Direction) -> f64 {
    if direction == Direction::Add {
        let mut bounds = Bounds::new(law, stddev);
        let mut least = (f64::INFINITY, 2);
        for order in 2..=MOST_ORDER {
            let ln_most = bounds.ln_weight(order) + ln_most_of_ratio(order, epsilon);
            // It falls and then rises.
            if ln_most.is_nan() || ln_most > least.0 {
                break;
            }
            least = (ln_most, order);
        }
        return least.1 as f64;
    }
    let ln_most = |ln_tilt: f64| ln_most_removed(law, stddev, epsilon, ln_tilt.exp());
    // Golden section; the bound is convex in the tilt but for a slow factor.
    let (mut low, mut high) = (0.02_f64.ln(), 200_f64.ln());
    while high - low > 0.02 {
        let width = 0.381_966 * (high - low);
        if ln_most(low + width) < ln_most(high - width) {
            high -= width;
        } else {
            low += width;
        }
    }
    (0.5 * (low + high)).exp()
}

/// The largest number of patterns of a tuple.
pub(super) const MOST_ORDER: usize = 32;
