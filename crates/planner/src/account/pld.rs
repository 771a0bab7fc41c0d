//! Poisson subsampling: the privacy loss of the subsampled Gaussian mechanism over many steps, as a true upper bound.
//!
//! Each direction of the neighbouring relation has a dominating pair: `(1 − p)N(0, σ²) + pN(1, σ²)` against `N(0, σ²)` (a unit is removed)
//! and the reverse (added). The distribution of the privacy loss is put on a grid so that `δ(ε)` is exact at its points and
//! linear in `e^ε` between them ("connect the dots", Doroshenko et al. 2022): a convex function, drawn from above. Steps compose
//! by convolution (`compose.rs`). What is cut off, wrapped around or rounded is added to δ.

use super::compose::{Composed, Effort, FINE, Grid, Known, Losses, Tilt};
use crate::error::{Error, Result, check_finite};
use libm::erfc;
use std::f64::consts::FRAC_1_SQRT_2;

/// What one step may have outside its grid where δ is not known beforehand.
const LEAST_TAIL: f64 = 1e-23;

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
        self.epsilon_with(FINE, delta)
    }

    pub(super) fn epsilon_with(&self, effort: Effort, delta: f64) -> Result<f64> {
        super::gdp::Budget::new(0.0, delta)?;
        Ok(self.worse(|direction| self.composed(direction, Known::Delta(delta), effort).epsilon(delta)))
    }

    /// The smallest δ this analysis proves for ε.
    pub fn delta(&self, epsilon: f64) -> Result<f64> {
        super::gdp::Budget::new(epsilon, 0.5)?;
        Ok(self
            .worse(|direction| self.composed(direction, Known::Epsilon(epsilon), FINE).delta(epsilon))
            .min(1.0))
    }

    /// The larger of both directions, computed side by side; numbers that are none prove nothing.
    fn worse(&self, of: impl Fn(Direction) -> f64 + Sync) -> f64 {
        let [remove, add] = std::thread::scope(|scope| {
            let remove = scope.spawn(|| of(Direction::Remove));
            let add = of(Direction::Add);
            [remove.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), add]
        });
        if remove.is_nan() || add.is_nan() { f64::INFINITY } else { remove.max(add) }
    }

    /// Where the loss of the larger dataset's side equals `loss`: `x = σ² ln((e^loss − 1 + p)/p) + ½`; −∞ below its smallest value.
    fn point(&self, loss: f64) -> f64 {
        let (sigma, p) = (self.noise_multiplier, self.sampling_prob);
        let excess = loss.exp_m1() + p;
        if excess <= 0.0 { f64::NEG_INFINITY } else { sigma * sigma * (excess / p).ln() + 0.5 }
    }

    /// `Q(loss > ε)`, the tail under the second of the pair, where the output `x` has loss ε.
    fn tail(&self, direction: Direction, x: f64) -> f64 {
        let (sigma, p) = (self.noise_multiplier, self.sampling_prob);
        match direction {
            Direction::Remove => upper(x / sigma),
            Direction::Add => (1.0 - p) * upper(-x / sigma) + p * upper((1.0 - x) / sigma),
        }
    }

    /// `|d e^ε/dx|` where the output `x` has loss ε.
    fn slope(&self, direction: Direction, x: f64) -> f64 {
        let (sigma, p) = (self.noise_multiplier, self.sampling_prob);
        let growth = ((2.0 * x - 1.0) / (2.0 * sigma * sigma)).exp();
        let slope = p * growth / (sigma * sigma);
        match direction {
            Direction::Remove => slope,
            Direction::Add => slope / (1.0 + p * (growth - 1.0)).powi(2),
        }
    }

    /// The mean of `Q(loss > ε)` over `e^ε` in the cell of losses that starts at `start`.
    ///
    /// The integral is taken over outputs, in which the tail is smooth: for rare sampling half of all outputs share one cell, and
    /// in it the tail as a function of ε has a logarithm's singularity.
    fn mean_tail(&self, direction: Direction, start: f64, spacing: f64) -> f64 {
        let sigma = self.noise_multiplier;
        let (mut low, mut high) = match direction {
            Direction::Remove => (self.point(start), self.point(start + spacing)),
            Direction::Add => (self.point(-start - spacing), self.point(-start)),
        };
        // No output has a loss beyond that of x = −∞; 40 standard deviations are as good.
        let edge = -40.0 * sigma;
        (low, high) = (low.max(edge), high.max(edge));
        let panels = ((high - low) * 4.0 / sigma).ceil().max(1.0);
        let width = (high - low) / panels;
        let (mut sum, mut covered) = (0.0, 0.0);
        for panel in 0..panels as u32 {
            let from = low + f64::from(panel) * width;
            for (at, weight) in [(0.112_701_665_379_258_3, 5.0), (0.5, 8.0), (0.887_298_334_620_741_7, 5.0)] {
                let x = from + at * width;
                let weight = weight / 18.0 * width * self.slope(direction, x);
                sum += weight * self.tail(direction, x);
                covered += weight;
            }
        }
        if low > edge {
            return sum / covered;
        }
        // The rest of the cell lies beyond every output's loss: all losses are above it, or none.
        let rest = (start.exp() * spacing.exp_m1() - covered).max(0.0);
        match direction {
            Direction::Remove => (sum + rest) / (covered + rest),
            Direction::Add => sum / (covered + rest),
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

    /// The loss of removing a unit at `x`; that of adding one is its negative.
    fn loss(&self, x: f64) -> f64 {
        let (sigma, p) = (self.noise_multiplier, self.sampling_prob);
        let exponent = (2.0 * x - 1.0) / (2.0 * sigma * sigma);
        // Without sampling the loss is the exponent, of which ln(1 − p + p·e^exponent) loses all digits below −36.
        if p == 1.0 || exponent > 700.0 { exponent + p.ln() } else { (p * exponent.exp_m1()).ln_1p() }
    }

    /// Outputs beyond which one step has less than `tail` of either side.
    fn outputs(&self, tail: f64) -> (f64, f64) {
        // Φ(−z) < e^{−z²/2}/2: this z is at most half a unit larger than needed.
        let z = (-2.0 * (2.0 * tail).ln()).sqrt();
        (-z * self.noise_multiplier, 1.0 + z * self.noise_multiplier)
    }

    /// The losses of these outputs; what lies above counts as infinite.
    fn range(&self, direction: Direction, tail: f64) -> (f64, f64) {
        let (low, high) = self.outputs(tail);
        match direction {
            Direction::Remove => (self.loss(low), self.loss(high)),
            Direction::Add => (-self.loss(high), -self.loss(low)),
        }
    }

    /// The losses as they are, on evenly spaced outputs: a good estimate of every moment, where a coarse grid of losses is a
    /// bound, and for rare sampling a bad one.
    fn quadrature(&self, direction: Direction, tail: f64, points: usize) -> Quadrature {
        let (sigma, p) = (self.noise_multiplier, self.sampling_prob);
        let (low, high) = self.outputs(tail);
        let width = (high - low) / points as f64;
        let density =
            |x: f64| (-0.5 * (x / sigma).powi(2)).exp() * width / (sigma * std::f64::consts::TAU.sqrt());
        let atom = |x: f64| match direction {
            Direction::Remove => (self.loss(x), (1.0 - p) * density(x) + p * density(x - 1.0)),
            Direction::Add => (-self.loss(x), density(x)),
        };
        Quadrature((0..points).map(|i| atom(low + (i as f64 + 0.5) * width)).collect())
    }

    /// One step on a grid of the given spacing.
    fn step(&self, direction: Direction, spacing: f64, (low, high): (f64, f64)) -> Grid {
        let first = (low / spacing).floor() as i64;
        let count = (high / spacing).ceil() as i64 - first + 1;
        let mut masses = Vec::with_capacity(count as usize);
        // Below the grid all of Q counts, above it nothing.
        let mut here = 1.0;
        for j in 0..count {
            let start = (first + j) as f64 * spacing;
            let next = if j + 1 < count { self.mean_tail(direction, start, spacing) } else { 0.0 };
            masses.push(start.exp() * (here - next).max(0.0));
            here = next;
        }
        let top = (first + count - 1) as f64 * spacing;
        Grid { spacing, first, masses, infinite: self.mass_above(direction, top) }
    }

    fn composed(&self, direction: Direction, known: Known, effort: Effort) -> Composed {
        // So close to 1, the logarithms above have no digits; a larger probability bounds from above.
        if self.sampling_prob > 1.0 - 1e-9 && self.sampling_prob < 1.0 {
            return Subsampled { sampling_prob: 1.0, ..*self }.composed(direction, known, effort);
        }
        let Effort { grid, step_points, quadrature_points } = effort;
        // A millionth of δ for all steps together: a longer tail would only make the grid coarse.
        let tail = match known {
            Known::Delta(delta) => 1e-6 * delta / self.num_steps as f64,
            Known::Epsilon(_) => LEAST_TAIL,
        };
        let quadrature = self.quadrature(direction, tail, quadrature_points);
        let range = self.range(direction, tail);
        // e^loss and e^−loss must be numbers.
        if range.1.max(-range.0) > 690.0 {
            return Composed::unknown();
        }
        let finest = (range.1 - range.0) / step_points;
        let tilt = Tilt::new(&quadrature, self.num_steps, known, finest * grid as f64);
        let (low, high) = tilt.window(&quadrature, self.num_steps);
        let mut spacing = ((high - low) / (grid as f64 * 0.9)).max(finest);
        for _ in 0..20 {
            // The window that counts is that of the losses on the grid, which are larger than they are.
            let step = self.step(direction, spacing, range);
            let (low, high) = tilt.window(&step, self.num_steps);
            let needed = (high - low) / (grid as f64 * 0.98);
            if needed <= spacing {
                return step.power(self.num_steps, &tilt, low, grid);
            }
            spacing = 1.1 * needed;
        }
        Composed::unknown()
    }
}

/// Losses and weights.
struct Quadrature(Vec<(f64, f64)>);

impl Losses for Quadrature {
    fn atoms(&self) -> impl Iterator<Item = (f64, f64)> {
        self.0.iter().copied()
    }

    fn ends(&self) -> [f64; 2] {
        [self.0[0].0, self.0[self.0.len() - 1].0]
    }
}

/// `Φ(−x)`.
fn upper(x: f64) -> f64 {
    0.5 * erfc(x * FRAC_1_SQRT_2)
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

    /// Many steps and a small δ: tails that an untilted transform would lose in its rounding.
    #[test]
    fn small_tails_survive_many_steps() {
        for (steps, delta) in [(100_000, 1e-10), (1_000_000, 1e-12)] {
            let exact = gdp::epsilon_of_delta(1.0, delta).unwrap();
            let got = epsilon((steps as f64).sqrt(), 1.0, steps, delta);
            assert!(got >= exact && got <= exact * 1.0001, "{steps}, {delta}: {exact} {got}");
        }
    }

    /// Half of all outputs in one cell: what a step's grid says must still be a distribution, and no loss may be lost. Limits of
    /// dp_accounting 0.6.0 on ever finer grids.
    #[test]
    fn rare_sampling_over_many_steps() {
        for (sigma, p, steps, delta, limit) in [
            (0.5, 1e-4, 10_000, 1e-6, 1.953_224),
            (0.9, 1e-4, 100_000, 1e-8, 0.241_22),
            (2.0, 1e-3, 1, 1e-10, 0.011_004_6),
        ] {
            let got = epsilon(sigma, p, steps, delta);
            assert!(got >= limit * 0.999_95 && got <= limit * 1.005, "{sigma}, {p}, {steps}: {limit} {got}");
        }
        let mechanism = Subsampled::new(0.5, 1e-4, 10_000).unwrap();
        for direction in [Direction::Remove, Direction::Add] {
            for spacing in [1e-5, 3e-5, 1e-4] {
                let step = mechanism.step(direction, spacing, mechanism.range(direction, 1e-16));
                let total: f64 = step.masses.iter().sum::<f64>() + step.infinite;
                assert!((total - 1.0).abs() < 1e-11, "{direction:?}, {spacing}: {total}");
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
                    let got = mechanism.epsilon_with(super::super::compose::COARSE, 1e-6).unwrap();
                    // No run is better than one of its steps: δ = p·δ_Gauss at ε' = ln(1 + (e^ε − 1)/p).
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
