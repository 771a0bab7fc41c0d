//! Poisson subsampling: the privacy loss of the subsampled Gaussian mechanism over many steps, as a true upper bound.
//!
//! Each direction of the neighbouring relation has a dominating pair: `(1 − p)N(0, σ²) + pN(1, σ²)` against `N(0, σ²)` (a unit is removed)
//! and the reverse (added). The distribution of the privacy loss is put on a grid so that `δ(ε)` is exact at its points and
//! linear in `e^ε` between them ("connect the dots", Doroshenko et al. 2022): a convex function, drawn from above. Steps compose
//! by convolution, here one FFT, a power, and one FFT back. What is cut off, wrapped around or rounded is added to δ.

use crate::error::{Error, Result, check_finite};
use libm::erfc;
use rustfft::FftPlanner;
use rustfft::num_complex::Complex64;
use std::f64::consts::FRAC_1_SQRT_2;

/// Points of the composed grid: with it ε is within a thousandth of the truth.
pub(super) const FINE: usize = 1 << 20;
/// Points of a grid that is good enough to search on, and thirty times as fast. Still an upper bound.
pub(super) const COARSE: usize = 1 << 15;
/// Mass that may be cut off at each end of the composed distribution, and added to δ.
const CUT: f64 = 1e-15;
/// An allowance for the rounding of the FFTs.
const ROUNDING: f64 = 1e-14;

/// The subsampled Gaussian mechanism over a number of steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Subsampled {
    /// Standard deviation over sensitivity.
    pub noise_multiplier: f64,
    /// The probability that a unit takes part in a step.
    pub sampling_prob: f64,
    /// Steps.
    pub num_steps: u64,
}

/// Which neighbour is the larger dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Remove,
    Add,
}

impl Subsampled {
    /// Refuses what is no mechanism.
    pub fn new(noise_multiplier: f64, sampling_prob: f64, num_steps: u64) -> Result<Subsampled> {
        check_finite("noise multiplier", noise_multiplier)?;
        if noise_multiplier <= 0.0 {
            return Err(Error::parameter("noise multiplier", noise_multiplier, "positive"));
        }
        if sampling_prob.is_nan() || sampling_prob <= 0.0 || sampling_prob > 1.0 {
            return Err(Error::parameter("sampling probability", sampling_prob, "in (0, 1]"));
        }
        crate::error::check_steps(usize::try_from(num_steps).unwrap_or(usize::MAX))?;
        Ok(Subsampled { noise_multiplier, sampling_prob, num_steps })
    }

    /// The smallest ε this analysis proves for δ, under adding or removing one unit.
    pub fn epsilon(&self, delta: f64) -> Result<f64> {
        self.epsilon_on(FINE, delta)
    }

    pub(super) fn epsilon_on(&self, grid: usize, delta: f64) -> Result<f64> {
        super::gdp::Budget::new(0.0, delta)?;
        let [remove, add] = [Direction::Remove, Direction::Add]
            .map(|direction| self.composed(direction, grid).epsilon(delta));
        Ok(remove.max(add))
    }

    /// The smallest δ this analysis proves for ε.
    pub fn delta(&self, epsilon: f64) -> Result<f64> {
        super::gdp::Budget::new(epsilon, 0.5)?;
        let [remove, add] = [Direction::Remove, Direction::Add]
            .map(|direction| self.composed(direction, FINE).delta(epsilon));
        Ok(remove.max(add))
    }

    /// Where the loss of the larger dataset's side equals `loss`: `x = σ² ln((e^loss − 1 + p)/p) + ½`; −∞ below its smallest value.
    fn point(&self, loss: f64) -> f64 {
        let (sigma, p) = (self.noise_multiplier, self.sampling_prob);
        let excess = loss.exp_m1() + p;
        if excess <= 0.0 { f64::NEG_INFINITY } else { sigma * sigma * (excess / p).ln() + 0.5 }
    }

    /// `Q(loss > ε)`: the tail under the second of the pair.
    fn tail(&self, direction: Direction, epsilon: f64) -> f64 {
        let (sigma, p) = (self.noise_multiplier, self.sampling_prob);
        match direction {
            Direction::Remove => upper(self.point(epsilon) / sigma),
            Direction::Add => {
                let x = self.point(-epsilon);
                (1.0 - p) * upper(-x / sigma) + p * upper((1.0 - x) / sigma)
            }
        }
    }

    /// `P(loss > ε)`: the tail under the first of the pair.
    fn mass_above(&self, direction: Direction, epsilon: f64) -> f64 {
        let (sigma, p) = (self.noise_multiplier, self.sampling_prob);
        match direction {
            Direction::Remove => {
                let x = self.point(epsilon);
                (1.0 - p) * upper(x / sigma) + p * upper((x - 1.0) / sigma)
            }
            Direction::Add => upper(-self.point(-epsilon) / sigma),
        }
    }

    /// The losses beyond which one step has less than 3e-23 of either tail; what lies above counts as infinite.
    fn range(&self, direction: Direction) -> (f64, f64) {
        let (sigma, p) = (self.noise_multiplier, self.sampling_prob);
        let loss = |x: f64| {
            let exponent = (2.0 * x - 1.0) / (2.0 * sigma * sigma);
            // Without sampling the loss is the exponent, of which ln(1 − p + p·e^exponent) loses all digits below −36.
            if p == 1.0 || exponent > 700.0 { exponent + p.ln() } else { (p * exponent.exp_m1()).ln_1p() }
        };
        // Φ(−9.9) < 3e-23.
        let (low, high) = (loss(-9.9 * sigma), loss(1.0 + 9.9 * sigma));
        match direction {
            Direction::Remove => (low, high),
            Direction::Add => (-high, -low),
        }
    }

    /// `∫ e^u Q(loss > start + u) du` from `low` to `high`, by three points of Gauss and Legendre. Next to the end of the losses, where
    /// the tail is a function of a logarithm, the interval is halved until it is smooth.
    fn weighted_tail(&self, direction: Direction, start: f64, low: f64, high: f64, halvings: u32) -> f64 {
        let width = high - low;
        // dx/σ per unit of loss is σ·e^loss/(e^loss − 1 + p), largest at the end that is nearer to the least loss.
        let (nearest, farthest) = match direction {
            Direction::Remove => (start + low, start + high),
            Direction::Add => (-(start + high), -(start + low)),
        };
        let excess = |loss: f64| loss.exp_m1() + self.sampling_prob;
        // Beyond the least loss the tail is constant.
        let smooth = self.noise_multiplier * width * nearest.exp() <= 0.05 * excess(nearest)
            || excess(farthest) <= 0.0;
        if !smooth && halvings > 0 {
            let middle = low + 0.5 * width;
            return self.weighted_tail(direction, start, low, middle, halvings - 1)
                + self.weighted_tail(direction, start, middle, high, halvings - 1);
        }
        let nodes = [(0.112_701_665_379_258_3, 5.0), (0.5, 8.0), (0.887_298_334_620_741_7, 5.0)];
        let terms = nodes.map(|(place, weight)| {
            let u = low + place * width;
            weight * u.exp() * self.tail(direction, start + u)
        });
        terms.iter().sum::<f64>() * width / 18.0
    }

    /// One step on a grid of the given spacing.
    fn step(&self, direction: Direction, spacing: f64) -> Loss {
        let (low, high) = self.range(direction);
        let first = (low / spacing).floor() as i64;
        let count = (high / spacing).ceil() as i64 - first + 1;
        // The mean of the tail over e^ε in each cell; below the grid all of Q counts.
        let mean = |cell: i64| {
            let start = (first + cell - 1) as f64 * spacing;
            self.weighted_tail(direction, start, 0.0, spacing, 40) / spacing.exp_m1()
        };
        let mut masses = Vec::with_capacity(count as usize);
        let mut here = 1.0;
        for j in 0..count {
            let next = if j + 1 < count { mean(j + 1) } else { 0.0 };
            masses.push(((first + j) as f64 * spacing).exp() * (here - next).max(0.0));
            here = next;
        }
        let top = (first + count - 1) as f64 * spacing;
        Loss { spacing, first, masses, infinite: self.mass_above(direction, top) }
    }

    fn composed(&self, direction: Direction, grid: usize) -> Loss {
        // So close to 1, the logarithms above have no digits; a larger probability bounds from above.
        if self.sampling_prob > 1.0 - 1e-9 && self.sampling_prob < 1.0 {
            return Subsampled { sampling_prob: 1.0, ..*self }.composed(direction, grid);
        }
        // A coarse grid says how far the sum reaches; the fine one fits that range.
        let (low, high) = self.range(direction);
        let coarse = self.step(direction, (high - low) / 4_000.0);
        let (low, high) = coarse.sum_range(self.num_steps);
        let spacing = ((high - low) / (grid as f64 * 0.9))
            .max((self.range(direction).1 - self.range(direction).0) / (0.4 * grid as f64));
        self.step(direction, spacing).power(self.num_steps, low, grid)
    }
}

/// `Φ(−x)`.
fn upper(x: f64) -> f64 {
    0.5 * erfc(x * FRAC_1_SQRT_2)
}

/// A distribution of losses on a grid: `masses[j]` at `(first + j)·spacing`, the rest at infinity.
struct Loss {
    spacing: f64,
    first: i64,
    masses: Vec<f64>,
    infinite: f64,
}

impl Loss {
    /// Losses between which the sum of `count` draws lies but for `CUT` on each side (Chernoff).
    fn sum_range(&self, count: u64) -> (f64, f64) {
        let log_moment = |theta: f64| {
            let shift = self
                .masses
                .iter()
                .enumerate()
                .map(|(j, _)| theta * self.at(j))
                .fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 =
                self.masses.iter().enumerate().map(|(j, m)| m * (theta * self.at(j) - shift).exp()).sum();
            sum.ln() + shift
        };
        let bound = |theta: f64| (count as f64 * log_moment(theta) - CUT.ln()) / theta;
        let thetas = (-16..=40).map(|i| 2.0_f64.powf(f64::from(i) / 2.0));
        let high = thetas.clone().map(bound).fold(f64::INFINITY, f64::min);
        let low =
            thetas.map(|theta| bound(-theta)).filter(|b| b.is_finite()).fold(f64::NEG_INFINITY, f64::max);
        // A sum cannot leave the multiples of the step's own range.
        let (least, most) = (self.at(0) * count as f64, self.at(self.masses.len() - 1) * count as f64);
        (low.max(least), high.min(most))
    }

    fn at(&self, j: usize) -> f64 {
        (self.first + j as i64) as f64 * self.spacing
    }

    /// The sum of `count` independent draws, on a grid that starts at `low`.
    fn power(&self, count: u64, low: f64, grid: usize) -> Loss {
        let infinite = -(count as f64 * (-self.infinite).ln_1p()).exp_m1() + 2.0 * CUT + ROUNDING;
        let mut values = vec![Complex64::default(); grid];
        for (j, mass) in self.masses.iter().enumerate() {
            values[(self.first + j as i64).rem_euclid(grid as i64) as usize].re += mass;
        }
        let mut planner = FftPlanner::new();
        planner.plan_fft_forward(grid).process(&mut values);
        for value in &mut values {
            let (radius, angle) = value.to_polar();
            *value = Complex64::from_polar(radius.powf(count as f64), angle * count as f64);
        }
        planner.plan_fft_inverse(grid).process(&mut values);
        let first = (low / self.spacing).floor() as i64 - 1;
        let place = |j: i64| (first + j).rem_euclid(grid as i64) as usize;
        let masses: Vec<f64> =
            (0..grid as i64).map(|j| (values[place(j)].re / grid as f64).max(0.0)).collect();
        // Numbers that are no distribution (an overflow, a NaN) prove nothing.
        let total = masses.iter().sum::<f64>() + infinite;
        let infinite = if (total - 1.0).abs() < 1e-6 { infinite } else { 1.0 };
        Loss { spacing: self.spacing, first, masses, infinite }
    }

    fn delta(&self, epsilon: f64) -> f64 {
        let terms = self.masses.iter().enumerate().rev().take_while(|(j, _)| self.at(*j) > epsilon);
        let sum: f64 = terms.map(|(j, mass)| mass * -(epsilon - self.at(j)).exp_m1()).sum();
        (sum + self.infinite).min(1.0)
    }

    /// From the largest loss down: between two grid points `δ = mass − e^ε·weighted`, so ε follows at once.
    fn epsilon(&self, delta: f64) -> f64 {
        if self.infinite > delta {
            return f64::INFINITY;
        }
        // `weighted` is Σ mass·e^{−loss}, relative to the grid point at hand: it shrinks by one spacing per point, so nothing overflows.
        let (mut mass, mut weighted) = (self.infinite, 0.0);
        let shrink = (-self.spacing).exp();
        for j in (0..self.masses.len()).rev() {
            let here = self.at(j);
            weighted *= shrink;
            mass += self.masses[j];
            weighted += self.masses[j];
            // δ just below this grid point.
            let previous = here - self.spacing;
            if mass - (previous - here).exp() * weighted >= delta && weighted > 0.0 {
                return (here + ((mass - delta) / weighted).ln()).max(0.0);
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::gdp;

    fn epsilon(noise_multiplier: f64, sampling_prob: f64, num_steps: u64, delta: f64) -> f64 {
        Subsampled::new(noise_multiplier, sampling_prob, num_steps).unwrap().epsilon(delta).unwrap()
    }

    /// Without sampling the answer is known exactly: μ-GDP with μ = √steps/σ.
    #[test]
    fn without_sampling_it_is_gaussian() {
        for (sigma, steps) in [(1.0, 1), (5.0, 30), (20.0, 1000), (0.7, 2)] {
            for delta in [1e-5, 1e-8] {
                let exact = gdp::epsilon_of_delta((steps as f64).sqrt() / sigma, delta).unwrap();
                let got = epsilon(sigma, 1.0, steps, delta);
                assert!(
                    got >= exact * (1.0 - 1e-9) && got <= exact * 1.0005,
                    "{sigma}, {steps}, {delta}: {exact} {got}"
                );
            }
        }
    }

    /// Rényi divergences of integer orders: another route to an upper bound, which is never below the truth.
    fn renyi_epsilon(sigma: f64, p: f64, steps: u64, delta: f64) -> f64 {
        let ln_binomial =
            |n: f64, k: f64| libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0);
        let order = |alpha: u32| {
            let a = f64::from(alpha);
            let terms: Vec<f64> = (0..=alpha)
                .map(f64::from)
                .map(|k| {
                    ln_binomial(a, k)
                        + (a - k) * (-p).ln_1p()
                        + k * p.ln()
                        + k * (k - 1.0) / (2.0 * sigma * sigma)
                })
                .collect();
            let most = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let divergence = (terms.iter().map(|t| (t - most).exp()).sum::<f64>().ln() + most) / (a - 1.0);
            steps as f64 * divergence - delta.ln() / (a - 1.0)
        };
        (2..256).map(order).fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn renyi_is_never_better() {
        for (sigma, p, steps) in
            [(1.0, 0.01, 1000), (0.6, 0.001, 10_000), (4.0, 0.2, 500), (1.5, 1e-4, 100_000)]
        {
            let (tight, loose) = (epsilon(sigma, p, steps, 1e-6), renyi_epsilon(sigma, p, steps, 1e-6));
            assert!(tight < loose && tight > 0.2 * loose, "{sigma}, {p}, {steps}: {tight} {loose}");
        }
    }

    #[test]
    fn more_noise_fewer_steps_and_less_sampling_never_cost_more() {
        let base = epsilon(1.0, 0.02, 300, 1e-6);
        assert!(epsilon(1.1, 0.02, 300, 1e-6) < base && epsilon(1.0, 0.018, 300, 1e-6) < base);
        assert!(epsilon(1.0, 0.02, 270, 1e-6) < base && epsilon(1.0, 0.02, 300, 1e-5) < base);
        let back = Subsampled::new(1.0, 0.02, 300).unwrap().delta(base).unwrap();
        assert!((back / 1e-6 - 1.0).abs() < 1e-3, "{back}");
    }

    /// Where the grid cannot hold the loss the answer is infinite, never small.
    #[test]
    fn extremes_are_safe() {
        for sigma in [1e-3, 0.01, 0.03, 0.05, 0.1, 0.3, 300.0] {
            for p in [1e-9, 1e-3, 0.5, 1.0 - 1e-16, 1.0] {
                for steps in [1, 5, 1000] {
                    let mechanism = Subsampled::new(sigma, p, steps).unwrap();
                    let got = mechanism.epsilon_on(COARSE, 1e-6).unwrap();
                    // No mechanism is better than one step that is sampled: δ = p·δ_Gauss at ε' = ln(1 + (e^ε − 1)/p).
                    let one =
                        if p <= 1e-6 { 0.0 } else { gdp::epsilon_of_delta(1.0 / sigma, 1e-6 / p).unwrap() };
                    let least = if one > 700.0 { one + p.ln() } else { (p * one.exp_m1()).ln_1p() };
                    assert!(got >= least * (1.0 - 1e-9) - 1e-12, "{sigma}, {p}, {steps}: {got} {least}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_mechanism_is_named() {
        let message = |sigma, p, steps| Subsampled::new(sigma, p, steps).unwrap_err().to_string();
        assert!(message(0.0, 0.1, 1).contains("noise multiplier is 0"));
        assert!(message(1.0, 1.5, 1).contains("sampling probability is 1.5"));
        assert!(message(1.0, 0.1, 0).contains("number of steps is 0"));
    }
}
