//! A guess at δ: Monte Carlo with importance sampling. It is within a few parts in a thousand of the noise that a budget takes, smooth in a strategy's
//! numbers, since all strategies are judged by the same normals, and takes a hundredth of a proof's time. It chooses strategies and kernels, and says where the search
//! for a proof begins; it bounds nothing.
//!
//! Under the distribution without the unit, δ is the mean of `(W − e^ε)₊`, which some rare log-likelihoods X make large. They are drawn from a mixture
//! of `N(K·θ_j, K)` instead, where `θ_j` is the most likely way to lose ε (`tilt.rs`) moved to bin j, or bin j alone, and weighted by the ratio of the densities,
//! `1/mean exp(θ_j·X − θ_j·Kθ_j/2)`.

use super::gram::Bounds;
use super::kernel::Turns;
use super::tilt::tilt;
use crate::privacy::account::Budget;
use corrnoise_numerics::{Cholesky, Matrix};

/// How many log-likelihoods are drawn in all: for comparing many strategies, and for choosing among a few kernels.
pub(super) const FEW: usize = 300_000;
pub(super) const MANY: usize = 1_800_000;
/// Shares below this part of the largest one are left out of a tilt.
const SMALL_SHARE: f64 = 1e-3;
/// How close to the budget ln δ has to come.
const CLOSE: f64 = 2e-3;
/// By how much ln σ, or ln ε, may leave the tilt that draws were made with.
const NEAR: f64 = 0.1;

/// A covariance that log-likelihoods are drawn with, for standard deviation 1.
pub(super) trait Covariance {
    /// K's product with a vector.
    fn times(&self, q: &[f64]) -> Vec<f64>;
    /// The variance of every bin's log-likelihood.
    fn diagonal(&self) -> Vec<f64>;
    /// A draw of `N(0, K)`.
    fn draw(&self, random: &mut Random) -> Vec<f64>;
}

/// A kernel, which is drawn as it is defined.
impl Covariance for Turns {
    fn times(&self, q: &[f64]) -> Vec<f64> {
        Turns::times(self, q)
    }

    fn diagonal(&self) -> Vec<f64> {
        Turns::diagonal(self)
    }

    fn draw(&self, random: &mut Random) -> Vec<f64> {
        let common = self.common.sqrt() * random.normal();
        let first = self.variance[0].sqrt() * random.normal();
        let (mut state, white) = (first, self.white.sqrt());
        let mut out = vec![common + first + white * random.normal()];
        for i in 1..self.num_bins() {
            state =
                self.previous[i] * state + self.first[i] * first + self.variance[i].sqrt() * random.normal();
            out.push(common + state + white * random.normal());
        }
        out
    }
}

/// A covariance by its entries.
pub(super) struct Entries {
    rows: Vec<Vec<f64>>,
    lower: Vec<Vec<f64>>,
}

impl Entries {
    /// `None` where it is no covariance.
    pub(super) fn new(bounds: &Bounds) -> Option<Entries> {
        let m = bounds.num_bins();
        let rows: Vec<Vec<f64>> = (0..m).map(|i| (0..m).map(|l| bounds.at(i, l)).collect()).collect();
        // Bins that differ by little are almost dependent.
        let ridge = 1e-9 * bounds.at(0, 0);
        let lower =
            Cholesky::new(Matrix::from_fn(m, m, |t, s| rows[t][s] + if t == s { ridge } else { 0.0 }))?;
        let lower = (0..m).map(|t| (0..=t).map(|s| lower.get(t, s)).collect()).collect();
        Some(Entries { rows, lower })
    }
}

impl Covariance for Entries {
    fn times(&self, q: &[f64]) -> Vec<f64> {
        let used: Vec<(usize, f64)> = q.iter().copied().enumerate().filter(|(_, q)| *q != 0.0).collect();
        self.rows.iter().map(|row| used.iter().map(|(l, q)| row[*l] * q).sum()).collect()
    }

    fn diagonal(&self) -> Vec<f64> {
        self.rows.iter().enumerate().map(|(i, row)| row[i]).collect()
    }

    fn draw(&self, random: &mut Random) -> Vec<f64> {
        let normals: Vec<f64> = self.rows.iter().map(|_| random.normal()).collect();
        self.lower.iter().map(|row| dot(row, &normals)).collect()
    }
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(a, b)| a * b).sum()
}

/// Numbers without any purpose but to look random, by SplitMix64, and normals by Box and Muller.
pub(super) struct Random {
    state: u64,
    spare: Option<f64>,
}

impl Random {
    fn new() -> Random {
        Random { state: 1, spare: None }
    }

    fn unit(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let length = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * self.unit()).sin_cos();
        self.spare = Some(length * sin);
        length * cos
    }
}

/// One way to lose ε: θ moved along the bins.
struct Way {
    /// θ_j is this from bin `j + from` on, around the circle.
    theta: Vec<f64>,
    from: usize,
    /// `θ_j·Kθ_j`, for standard deviation 1.
    squares: Vec<f64>,
    /// How many draws go this way.
    count: usize,
}

/// Draws around the most likely outputs, for standard deviations and ε near those that they were made for.
struct Draws {
    ways: Vec<Way>,
    /// `K·θ_j` of every draw's own j and a draw of `N(0, K)`, for standard deviation 1.
    numbers: Vec<(Vec<f64>, Vec<f64>)>,
    half: Vec<f64>,
}

impl Draws {
    fn new(covariance: &impl Covariance, stddev: f64, epsilon: f64, numbers: usize) -> Option<Draws> {
        let diagonal = covariance.diagonal();
        let (m, scale) = (diagonal.len(), 1.0 / (stddev * stddev));
        let times = |q: &[f64]| covariance.times(q).into_iter().map(|k| k * scale).collect();
        let scaled: Vec<f64> = diagonal.iter().map(|d| d * scale).collect();
        let found = tilt(times, &scaled, epsilon)?;
        let most = found.shares.iter().fold(0.0_f64, |most, share| most.max(*share));
        let large = |share: &f64| *share >= SMALL_SHARE * most;
        let start = found.shares.iter().position(large)?;
        let end = found.shares.iter().rposition(large)?;
        // By all of a few bins, or by one bin alone.
        let several = found.shares[start..=end].iter().map(|share| found.length * share).collect();
        let variance = scaled.iter().fold(0.0_f64, |most, d| most.max(*d));
        let alone = vec![(epsilon + (m as f64).ln()) / variance + 0.5];
        let mut random = Random::new();
        let mut draws = Draws { ways: Vec::new(), numbers: Vec::new(), half: Vec::new() };
        for (theta, part) in [(several, 0.7), (alone, 0.3)] {
            draws.add(covariance, theta, part, numbers, &mut random);
        }
        draws.half = diagonal.into_iter().map(|d| 0.5 * d).collect();
        Some(draws)
    }

    /// Draws a part of so many numbers around θ at every bin.
    fn add(
        &mut self,
        covariance: &impl Covariance,
        theta: Vec<f64>,
        part: f64,
        numbers: usize,
        random: &mut Random,
    ) {
        let m = covariance.diagonal().len();
        let numbers = (part * numbers as f64) as usize;
        let count = (numbers / m).clamp(200, numbers / 100);
        // Its middle comes to bin j.
        let from = m - theta.len() / 2;
        let (mut squares, mut own, mut drawn) = (Vec::with_capacity(m), vec![0.0; m], 0);
        for j in 0..m {
            own.fill(0.0);
            theta.iter().enumerate().for_each(|(k, value)| own[(j + from + k) % m] += value);
            let moved = covariance.times(&own);
            squares.push(dot(&own, &moved));
            // Spread evenly over the bins.
            while (2 * drawn + 1) * m < 2 * count * (j + 1) {
                self.numbers.push((moved.clone(), covariance.draw(random)));
                drawn += 1;
            }
        }
        self.ways.push(Way { theta, from, squares, count });
    }

    /// The logarithm of δ, about.
    fn ln_delta(&self, stddev: f64, epsilon: f64) -> f64 {
        let (m, scale) = (self.half.len(), 1.0 / (stddev * stddev));
        let longest = self.ways.iter().map(|way| way.theta.len()).max().unwrap_or(0);
        let mut sum = 0.0;
        let mut x = vec![0.0; m + longest];
        let mut exponents = vec![0.0; m];
        for (moved, drawn) in &self.numbers {
            for ((x, moved), drawn) in x.iter_mut().zip(moved).zip(drawn) {
                *x = moved * scale + drawn / stddev;
            }
            let exponent = |(e, (x, half)): (&mut f64, (&f64, &f64))| *e = x - half * scale;
            exponents.iter_mut().zip(x.iter().zip(&self.half)).for_each(exponent);
            let ln_ratio = ln_mean_exp(&exponents);
            if ln_ratio <= epsilon {
                continue;
            }
            x.copy_within(0..longest, m);
            let mut density = 0.0;
            for way in &self.ways {
                for (j, (exponent, square)) in exponents.iter_mut().zip(&way.squares).enumerate() {
                    let start = (j + way.from) % m;
                    *exponent = dot(&way.theta, &x[start..]) - 0.5 * square * scale;
                }
                density += (ln_mean_exp(&exponents) - ln_ratio).exp() * way.count as f64;
            }
            // (W − e^ε) times the ratio of densities.
            sum += -(epsilon - ln_ratio).exp_m1() / density;
        }
        sum.ln()
    }
}

fn ln_mean_exp(exponents: &[f64]) -> f64 {
    let most = exponents.iter().fold(f64::NEG_INFINITY, |most, e| most.max(*e));
    most + (exponents.iter().map(|e| (e - most).exp()).sum::<f64>() / exponents.len() as f64).ln()
}

/// A place that was guessed: where δ is about the budget's, and what ln δ changes by per unit there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guessed {
    pub(super) at: f64,
    pub(super) slope: f64,
}

/// Where on a way through noise and ε a covariance has about this δ; `way` gives the standard deviation and ε at a place, and ln δ falls along it. `None` where
/// nothing is found.
fn along(
    covariance: &impl Covariance,
    delta: f64,
    numbers: usize,
    start: Guessed,
    way: impl Fn(f64) -> (f64, f64),
) -> Option<Guessed> {
    let wanted = delta.ln();
    let Guessed { mut at, mut slope } = start;
    let mut last: Option<(f64, f64)> = None;
    for _ in 0..8 {
        let (stddev, epsilon) = way(at);
        let draws = Draws::new(covariance, stddev, epsilon, numbers)?;
        let centre = at;
        for _ in 0..6 {
            let (stddev, epsilon) = way(at);
            // Where no draw loses ε, noise is far too large.
            let excess = (draws.ln_delta(stddev, epsilon) - wanted).max(-50.0);
            if let Some((before, value)) = last {
                let secant = (excess - value) / (at - before);
                if secant < 0.2 * slope && secant > 5.0 * slope {
                    slope = secant;
                }
            }
            if excess.abs() < CLOSE {
                return Some(Guessed { at, slope }).filter(|found| found.at.is_finite());
            }
            last = Some((at, excess));
            at -= (excess / slope).clamp(-4.0 * NEAR, 4.0 * NEAR);
            if (at - centre).abs() > NEAR {
                break;
            }
        }
    }
    None
}

impl Guessed {
    /// A place to begin at, before more is known of how ln δ falls.
    pub(super) fn near(at: f64) -> Guessed {
        Guessed { at, slope: -20.0 }
    }
}

/// The logarithm of the standard deviation that a budget takes, from so many numbers that are drawn.
pub(super) fn ln_stddev(
    covariance: &impl Covariance,
    budget: Budget,
    numbers: usize,
    start: Guessed,
) -> Option<Guessed> {
    along(covariance, budget.delta, numbers, start, |at| (at.exp(), budget.epsilon))
}

/// The logarithm of the ε that some noise has.
pub(super) fn ln_epsilon(
    covariance: &impl Covariance,
    stddev: f64,
    delta: f64,
    start: Guessed,
) -> Option<Guessed> {
    along(covariance, delta, MANY, start, |at| (stddev, at.exp()))
}

#[cfg(test)]
mod tests {
    use super::super::gram::Bins;
    use super::*;
    use crate::Factorization;

    /// The noise that `allocation.py` finds by Monte Carlo of its own, at real sizes.
    #[test]
    fn guesses_are_close_to_the_oracle() {
        let table = include_str!("../../../../tests/data/allocation_real.txt");
        let mut compared = 0;
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |i: usize| words[i].parse::<f64>().unwrap();
            let (n, b) = (number(1) as usize, number(2) as usize);
            let strategy = super::super::tests::strategy(words[0]);
            let bins = Bins::of(&Factorization::new(strategy, n).unwrap(), b as u64).unwrap();
            let run = Entries::new(&bins.sample(1)).unwrap();
            let budget = Budget { epsilon: number(3), delta: number(4) };
            let start = Guessed::near((1.3 * number(5)).ln());
            let numbers = if b > 500 { FEW } else { MANY };
            let found = ln_stddev(&run, budget, numbers, start).unwrap();
            let ratio = found.at.exp() / number(5);
            assert!((ratio - 1.0).abs() < 0.01, "{line}: {ratio}");
            compared += 1;
            if b > 500 {
                continue;
            }
            // And ε from that noise.
            let back = ln_epsilon(&run, number(5), number(4), Guessed::near((0.7 * number(3)).ln())).unwrap();
            assert!((back.at.exp() / number(3) - 1.0).abs() < 0.02, "{line}: {}", back.at.exp());
        }
        assert_eq!(compared, 9);
    }

    /// A kernel drawn as it is defined and by its entries.
    #[test]
    fn both_ways_of_drawing_agree() {
        use super::super::kernel::{Chain, Kernel};
        let kernel = Kernel { common: 0.3, white: 0.8, chain: Chain::circle(20, 0.9, 0.7) };
        let budget = Budget { epsilon: 1.0, delta: 1e-5 };
        let start = Guessed::near(0.0);
        let defined = ln_stddev(&kernel.turns(1.0), budget, MANY, start).unwrap();
        let mut rows = Vec::new();
        kernel.for_each_row(|_, row| rows.extend(row.to_vec()));
        let entry = |i: usize, l: usize| rows[i * (i + 1) / 2 + l];
        let all = (0..400).map(|at| entry((at / 20).max(at % 20), (at / 20).min(at % 20))).collect();
        let entries = Entries::new(&Bins::written(all, 20, 20).sample(1)).unwrap();
        let written = ln_stddev(&entries, budget, MANY, start).unwrap();
        assert!((defined.at - written.at).abs() < 0.01, "{defined:?} {written:?}");
    }
}
