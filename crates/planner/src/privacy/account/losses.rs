//! The privacy loss of one step of the subsampled Gaussian mechanism, as atoms of a pair of distributions that dominates the true pair.
//!
//! With a unit the output is `(1 − p)N(0, σ²) + pN(1, σ²)`, without it `N(0, σ²)`; their ratio at x is `1 + y`, `y = p(e^{(2x − 1)/2σ²} − 1)`.
//! Outputs are cut into cells. The mass of a cell is moved to its two ends so that both distributions keep their mass in it: a
//! spread of the ratio that keeps its mean, which no post-processing can tell from the finer pair's output. So the atoms' pair dominates the true
//! one in both directions and after any number of steps, whatever the cells ("connect the dots", Doroshenko et al. 2022, on a grid that
//! need not be uniform).

use super::normal::{LN_SQRT_TAU, ln_upper};

/// Which neighbour is the larger dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// Outputs come from the dataset with the unit.
    Remove,
    /// Outputs come from the dataset without it.
    Add,
}

/// One step of the subsampled mechanism.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) sigma: f64,
    /// The sampling probability, in (0, 1).
    pub(super) p: f64,
}

/// Widest cells: of σ, in which the normal density is smooth, and of σ², in which the ratio is.
const CELL_OF_SIGMA: f64 = 0.1;
const CELL_OF_VARIANCE: f64 = 0.5;

/// Gauss-Legendre on (0, 1): nodes and weights, of which the other half is the mirror image. Over the widest cell, out at 40σ, where the
/// density falls by e⁴, it is exact to 1e-12.
const GAUSS: [(f64, f64); 4] = [
    (0.019_855_071_751_231_884, 0.050_614_268_145_188_13),
    (0.101_666_761_293_186_63, 0.111_190_517_226_687_24),
    (0.237_233_795_041_835_5, 0.156_853_322_938_943_64),
    (0.408_282_678_752_175_1, 0.181_341_891_689_181),
];

impl Step {
    /// `(2x − 1)/2σ²`: the loss without sampling.
    fn exponent(&self, x: f64) -> f64 {
        (x - 0.5) / (self.sigma * self.sigma)
    }

    /// The loss of removing a unit at x.
    pub(super) fn loss(&self, x: f64) -> f64 {
        let exponent = self.exponent(x);
        if exponent > 30.0 {
            // ln(p·e^x·(1 + (1 − p)/(p·e^x))): e^x need not be a number.
            return exponent + self.p.ln() + ((1.0 - self.p) / self.p * (-exponent).exp()).ln_1p();
        }
        (self.p * exponent.exp_m1()).ln_1p()
    }

    /// The coarsest cells between two outputs.
    pub(super) fn cells(&self, low: f64, high: f64) -> Vec<f64> {
        let width = (CELL_OF_SIGMA * self.sigma).min(CELL_OF_VARIANCE * self.sigma * self.sigma);
        let count = ((high - low) / width).ceil().max(1.0);
        (0..=count as usize).map(|i| low + (high - low) * (i as f64 / count)).collect()
    }

    /// The atoms for cells with these ends, in the order of a direction's losses; outputs beyond the last end have infinite loss as far
    /// as they must.
    pub(super) fn losses(&self, ends: &[f64], direction: Direction) -> Losses {
        let Step { sigma, p } = *self;
        let (first, last) = (ends[0], ends[ends.len() - 1]);
        let loss: Vec<f64> =
            std::iter::once((-p).ln_1p()).chain(ends.iter().map(|x| self.loss(*x))).collect();
        let mut ln_mass = vec![f64::NEG_INFINITY; ends.len() + 1];
        let mut add = |at: usize, ln: f64| ln_mass[at] = ln_sum(ln_mass[at], ln);
        // Below the first end the ratio lies between 1 − p, at −∞, and the end's.
        let below = ln_upper((1.0 - first) / sigma) - self.exponent(first);
        add(1, below);
        add(0, ln_upper(-first / sigma) + (-(below - ln_upper(-first / sigma)).exp()).ln_1p());
        for (j, pair) in ends.windows(2).enumerate() {
            let (left, right) = self.shares(pair[0], pair[1]);
            add(j + 1, left);
            add(j + 2, right);
        }
        // Above the last one, between the end's ratio and ∞: all of the smaller dataset's mass stays, of the larger one's the rest is lost.
        add(ends.len(), ln_upper(last / sigma));
        let with = ln_upper((last - 1.0) / sigma);
        let kept = (ln_upper(last / sigma) + self.exponent(last) - with).exp();
        let ln_infinite = p.ln() + with + (1.0 - kept).max(1e-12).ln();
        match direction {
            Direction::Remove => Losses::new(loss, ln_mass, f64::NEG_INFINITY, ln_infinite),
            // The other way round the ratio is its inverse, and the smaller dataset makes the outputs.
            Direction::Add => {
                let turned = |values: Vec<f64>| values.into_iter().rev().collect::<Vec<f64>>();
                let with: Vec<f64> = ln_mass.iter().zip(&loss).map(|(ln, loss)| ln + loss).collect();
                let loss = turned(loss.into_iter().map(|loss: f64| -loss).collect());
                Losses::new(loss, turned(with), ln_infinite, f64::NEG_INFINITY)
            }
        }
    }

    /// The logarithms of a cell's mass without the unit, as shared between its ends: in proportion to the ratio's distance.
    fn shares(&self, from: f64, to: f64) -> (f64, f64) {
        let (sigma, width) = (self.sigma, to - from);
        let variance = sigma * sigma;
        let whole = (width / variance).exp_m1();
        let (mut left, mut right) = (0.0, 0.0);
        // Relative to the density at the left end.
        let mut add = |at: f64, weight: f64| {
            let offset = at * width;
            let density = weight * (-offset * (from + 0.5 * offset) / variance).exp();
            let share = (offset / variance).exp_m1() / whole;
            right += density * share;
            left += density * (1.0 - share);
        };
        for (node, weight) in GAUSS {
            add(node, weight);
            add(1.0 - node, weight);
        }
        let scale = (width / sigma).ln() - 0.5 * (from / sigma).powi(2) - LN_SQRT_TAU;
        (scale + left.ln(), scale + right.ln())
    }
}

/// The logarithm of a sum, `ln(e^a + e^b)`.
fn ln_sum(a: f64, b: f64) -> f64 {
    let (small, large) = if a < b { (a, b) } else { (b, a) };
    if small == f64::NEG_INFINITY { large } else { large + (small - large).exp().ln_1p() }
}

/// Atoms of one step's loss: the logarithm of the ratio of the distribution that makes outputs to the other one.
pub(super) struct Losses {
    /// The losses in ascending order.
    pub(super) loss: Vec<f64>,
    /// The logarithm of the mass under the other distribution.
    ln_mass: Vec<f64>,
    mass: Vec<f64>,
    /// `above[j]`: mass from atom j on, under the other distribution and under that of outputs, with what lies at infinity.
    above: Vec<(f64, f64)>,
    /// The logarithm of the mass of infinite loss.
    pub(super) ln_infinite: f64,
}

impl Losses {
    /// `ln_never` is the other distribution's mass where no output is made, at a loss of −∞.
    pub(super) fn new(loss: Vec<f64>, ln_mass: Vec<f64>, ln_never: f64, ln_infinite: f64) -> Losses {
        let mass: Vec<f64> = ln_mass.iter().map(|ln| ln.exp()).collect();
        let mut above = vec![(ln_never.exp(), ln_infinite.exp()); loss.len() + 1];
        for j in (0..loss.len()).rev() {
            let (other, own) = above[j + 1];
            above[j] = (other + mass[j], own + (ln_mass[j] + loss[j]).exp());
        }
        Losses { loss, ln_mass, mass, above, ln_infinite }
    }

    /// δ of one step: `E[(1 − e^{ε − loss})₊]`.
    pub(super) fn hockey_stick(&self, epsilon: f64) -> f64 {
        let excess = |j: usize| match self.loss[j] > epsilon {
            true => (self.ln_mass[j] + self.loss[j]).exp() * -(epsilon - self.loss[j]).exp_m1(),
            false => 0.0,
        };
        (0..self.loss.len()).map(excess).sum::<f64>() + self.ln_infinite.exp()
    }

    pub(super) fn len(&self) -> usize {
        self.loss.len()
    }

    /// The logarithm of a moment, `ln Σ_{j < count} mass·e^{order·loss}`.
    ///
    /// A sum over the first atoms of `e^{r·loss} − 1 − r(e^{loss} − 1)`, which is of second order in the loss: both distributions
    /// have mass 1, so what is subtracted is known without any rounding. Logarithms of 1e-18 keep their digits through 10¹² steps.
    pub(super) fn ln_moment(&self, order: f64, count: usize) -> f64 {
        let exponent = |j: usize| self.ln_mass[j] + order * self.loss[j];
        let largest = (0..count).map(exponent).fold(f64::NEG_INFINITY, f64::max);
        let direct = || largest + (0..count).map(|j| (exponent(j) - largest).exp()).sum::<f64>().ln();
        if largest > 1.0 {
            return direct();
        }
        let sum: f64 = (0..count)
            .map(|j| {
                let (loss, mass) = (self.loss[j], self.mass[j]);
                if loss.abs() * order.abs().max(1.0) < SMALL {
                    mass * second_order(order, loss)
                } else {
                    exponent(j).exp() - mass - order * self.gain(j)
                }
            })
            .sum();
        let (other, own) = self.above[count];
        let change = sum - other - order * (own - other);
        // A part of the atoms with little of the mass: nothing is close to 1, and 1 would cancel.
        if change < -0.5 { direct() } else { change.ln_1p() }
    }

    /// The mean loss under the distribution with masses `∝ mass·e^{order·loss}` on the first atoms. As above: losses so
    /// small that their first order would cancel in the sum count without it.
    pub(super) fn mean(&self, order: f64, count: usize, ln_moment: f64) -> f64 {
        if ln_moment > 1.0 {
            return (0..count).map(|j| self.loss[j] * self.tilted(j, order, ln_moment)).sum();
        }
        let small = |loss: f64| loss.abs() * order.abs().max(1.0) < SMALL;
        // Σ mass·(e^loss − 1) over the small ones is what the others leave.
        let (mut sum, mut first_order) = (0.0, 0.0);
        for j in 0..count {
            let (loss, mass) = (self.loss[j], self.mass[j]);
            if small(loss) {
                // ℓe^{rℓ} − (e^ℓ − 1) = Σ_{m≥2} (m·r^{m−1} − 1)ℓ^m/m!.
                let (mut term, mut power) = (loss, 1.0);
                let mut series = 0.0;
                for m in 2..16_u32 {
                    term *= loss / f64::from(m);
                    power *= order;
                    let next = term * (f64::from(m) * power - 1.0);
                    series += next;
                    if next.abs() <= f64::EPSILON * 1e-3 * series.abs() {
                        break;
                    }
                }
                sum += mass * series;
            } else {
                sum += loss * (self.ln_mass[j] + order * loss).exp();
                first_order += self.gain(j);
            }
        }
        let (other, own) = self.above[count];
        (sum - first_order - (own - other)) * (-ln_moment).exp()
    }

    /// `mass·(e^loss − 1)` of one atom.
    fn gain(&self, j: usize) -> f64 {
        let (loss, mass) = (self.loss[j], self.mass[j]);
        // A large loss may belong to a mass that is no number any more.
        if loss < 1.0 { mass * loss.exp_m1() } else { (self.ln_mass[j] + loss).exp() - mass }
    }

    /// `mass·e^{order·loss − scale}` of one atom.
    pub(super) fn tilted(&self, j: usize, order: f64, scale: f64) -> f64 {
        (self.ln_mass[j] + order * self.loss[j] - scale).exp()
    }
}

/// Below this a power series in the loss is exact in 15 terms.
const SMALL: f64 = 0.25;

/// The series of `e^{rx} − 1 − r(e^x − 1) = Σ_{m≥2} (r^m − r)x^m/m!`.
fn second_order(order: f64, loss: f64) -> f64 {
    let (mut term, mut power, mut sum) = (loss, order, 0.0);
    for m in 2..16_u32 {
        term *= loss / f64::from(m);
        power *= order;
        let next = term * (power - order);
        sum += next;
        if next.abs() <= f64::EPSILON * 1e-3 * sum.abs() {
            break;
        }
    }
    sum
}
