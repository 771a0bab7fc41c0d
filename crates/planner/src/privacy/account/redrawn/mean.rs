//! The sum of independent lognormals as atoms, spread so that it only ever exceeds the truth in convex order.
//!
//! A lognormal's mass is moved to the two neighbouring points of a grid so that its mean stays. Sums of atoms are formed one by one and moved to
//! the next grid in the same way. Every such move is a mean-preserving spread, so every convex function's mean grows, and everything is a
//! sum of products of numbers without sign: no transform, nothing cancels, and tails of 1e-300 have as many digits as the middle.

use crate::privacy::account::normal::mills;
use crate::privacy::account::normal::{LN_SQRT_TAU, upper};

/// Atoms at ascending points, the first at 0, and what the mean lacks because points above the last one were moved down to it.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    pub(super) at: Vec<f64>,
    pub(super) mass: Vec<f64>,
    pub(super) missing: f64,
}

/// Distance of neighbouring points: in standard deviations of the sum, of the distance from its mean, and of the point itself. Points e⁴
/// and more from the mean are further apart: a loss is large there, and so is what its spread may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fineness(pub(super) f64);

/// The sum of `count` independent lognormals of mean 1 and log-variance `variance`; what lies beyond `top` of one of them may be moved.
pub(super) fn sum_of_lognormals(count: u64, variance: f64, top: f64, fineness: Fineness) -> Spread {
    let deviation = variance.exp_m1().sqrt();
    let grid = |terms: u64| points(terms as f64, deviation, variance, top, fineness);
    let mut power = lognormal(variance, grid(1));
    let (mut power_terms, mut rest) = (1_u64, count);
    let mut sum: Option<(Spread, u64)> = None;
    loop {
        if rest & 1 == 1 {
            sum = Some(match sum {
                None => (power.clone(), power_terms),
                Some((other, terms)) => (other.plus(&power, grid(terms + power_terms)), terms + power_terms),
            });
        }
        rest >>= 1;
        match sum {
            Some((sum, _)) if rest == 0 => return sum,
            _ => power = power.plus(&power, grid(2 * power_terms)),
        }
        power_terms *= 2;
    }
}

/// The points of a grid for a sum of so many lognormals: dense around its mean, then in proportion to the distance from it, and to the point.
fn points(terms: f64, deviation: f64, variance: f64, top: f64, Fineness(fineness): Fineness) -> Vec<f64> {
    let deviation = deviation * terms.sqrt();
    let low = ln_least(variance).exp();
    let high = top + 2.0 * terms;
    let mut points = vec![0.0, low];
    let mut at = low;
    while at < high {
        let far = 1.0 + 0.2 * ((at / terms).ln().abs() - 4.0).max(0.0);
        at += fineness * far * at.min(deviation.max((at - terms).abs()));
        points.push(at);
    }
    points
}

/// The logarithm of the lowest point above 0: one lognormal is below with probability Φ(−8.5).
pub(super) fn ln_least(variance: f64) -> f64 {
    -0.5 * variance - 8.5 * variance.sqrt()
}

/// A lognormal of mean 1, spread over points.
fn lognormal(variance: f64, at: Vec<f64>) -> Spread {
    let deviation = variance.sqrt();
    let last = at.len() - 1;
    // Calls above the mean and puts below have the same second differences; each keeps its digits where it is small.
    let call: Vec<f64> = at.iter().map(|point| option(*point, deviation, 1.0)).collect();
    let put: Vec<f64> = at.iter().map(|point| option(*point, deviation, -1.0)).collect();
    let slope = |values: &[f64], i: usize| (values[i + 1] - values[i]) / (at[i + 1] - at[i]);
    let inner = |i: usize| {
        let values = if at[i] > 1.0 { &call } else { &put };
        (slope(values, i) - slope(values, i - 1)).max(0.0)
    };
    let mut mass: Vec<f64> = (1..last).map(inner).collect();
    mass.insert(0, slope(&put, 0));
    mass.push(-slope(&call, last - 1));
    Spread { missing: call[last], at, mass }
}

/// `E(Y − k)₊` (sign 1) or `E(k − Y)₊` (sign −1) of a lognormal Y of mean 1, to a relative error of some units in the last place over its
/// distance from the mean: `φ(a)(R(a) − R(b))` with Mills ratios, where a difference of two tails would cancel.
fn option(strike: f64, deviation: f64, sign: f64) -> f64 {
    if strike == 0.0 {
        return if sign > 0.0 { 1.0 } else { 0.0 };
    }
    // Y exceeds the strike with probability Φ(−high), and with Φ(−low) under the measure that Y weighs.
    let distance = strike.ln() / deviation;
    let (low, high) = (sign * (distance - 0.5 * deviation), sign * (distance + 0.5 * deviation));
    let near = if sign > 0.0 { low } else { high };
    if near < 0.0 {
        return sign * (upper(low) - strike * upper(high));
    }
    // φ(low) = strike·φ(high).
    let density = (-0.5 * low * low - LN_SQRT_TAU).exp();
    density * sign * (mills(low) - mills(high))
}

impl Spread {
    /// The sum of two independent ones, spread over points, the first of which is 0.
    fn plus(&self, other: &Spread, points: Vec<f64>) -> Spread {
        let mut mass = vec![0.0; points.len()];
        let last = points.len() - 1;
        let inverse: Vec<f64> = points.windows(2).map(|pair| 1.0 / (pair[1] - pair[0])).collect();
        let mut missing = self.missing + other.missing;
        // Of one with itself every pair is formed once.
        let same = std::ptr::eq(self, other);
        let mut lowest = 0;
        for (i, (a, a_mass)) in self.at.iter().zip(&self.mass).enumerate() {
            let from = if same { i } else { 0 };
            while lowest < last && points[lowest + 1] <= a + other.at[from] {
                lowest += 1;
            }
            let mut cell = lowest;
            for (j, (b, b_mass)) in other.at.iter().zip(&other.mass).enumerate().skip(from) {
                let times = if same && j > i { 2.0 } else { 1.0 };
                let (sum, both) = (a + b, times * a_mass * b_mass);
                while cell < last && points[cell + 1] <= sum {
                    cell += 1;
                }
                if cell == last {
                    mass[last] += both;
                    missing += both * (sum - points[last]);
                    continue;
                }
                let share = (sum - points[cell]) * inverse[cell];
                mass[cell] += both * (1.0 - share);
                mass[cell + 1] += both * share;
            }
        }
        Spread { at: points, mass, missing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Masses sum to 1, and means to the number of terms, whatever the grid.
    #[test]
    fn mass_and_mean_are_kept() {
        for (count, variance, top) in
            [(1, 0.3, 40.0), (2, 1.0, 300.0), (7, 4.0, 1e5), (100, 0.01, 3.0), (37, 2.0, 0.5)]
        {
            let sum = sum_of_lognormals(count, variance, top, Fineness(0.05));
            let mass: f64 = sum.mass.iter().sum();
            let mean: f64 = sum.at.iter().zip(&sum.mass).map(|(at, mass)| at * mass).sum();
            // A lognormal's own mass is off by some 1e-14, and sums have as many factors as terms.
            let rounding = 1e-13 * (count + 9) as f64;
            assert!((mass - 1.0).abs() < rounding, "{count} {variance}: {mass}");
            let kept = (mean + sum.missing) / count as f64;
            assert!((kept - 1.0).abs() < rounding, "{count} {variance}: {kept}");
            assert!(sum.mass.iter().all(|mass| *mass >= 0.0) && sum.missing >= 0.0);
        }
    }

    /// Masses of a fine grid are the density's, to the digits that second differences keep, out to 1e-200.
    #[test]
    fn far_atoms_keep_their_digits() {
        let (variance, step) = (0.25_f64, 1e-3);
        for center in [1e-6_f64, 0.02, 0.9, 1.1, 30.0, 1e6] {
            let at: Vec<f64> = [0.0, 1.0 - step, 1.0, 1.0 + step, 2.0].map(|f| f * center).to_vec();
            let spread = lognormal(variance, at);
            let z = |x: f64| (x.ln() + 0.5 * variance) / variance.sqrt();
            // Simpson's rule of the hat: two halves, each between its ends and its middle.
            let density = |x: f64| (-0.5 * z(x).powi(2) - LN_SQRT_TAU).exp() / (x * variance.sqrt());
            let h = step * center;
            let half = |sign: f64| h / 6.0 * (density(center) + 4.0 * 0.5 * density(center + 0.5 * sign * h));
            let expected = half(1.0) + half(-1.0);
            assert!(
                (spread.mass[2] / expected - 1.0).abs() < 1e-4,
                "{center}: {:e} {expected:e}",
                spread.mass[2]
            );
        }
    }
}
