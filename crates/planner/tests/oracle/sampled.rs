//! Lower bounds of ε and δ for Poisson-sampled rounds.
//!
//! For one round, `δ(ε) = p·δ_Gauss(ln(1 + (e^ε − 1)/p))` exactly. For several, the privacy loss of every round is rounded down to a grid
//! and the rounded losses are summed; `δ = E[(1 − e^{ε − L})₊]` grows with every loss, so this is never above the truth, whether or not
//! outputs in the tails are left out.

use super::gauss::{Delta, epsilon, upper};

/// The ε of a single round, from below.
pub fn one_round(mu: f64, prob: f64, delta: Delta) -> f64 {
    // δ_Gauss = δ/p at ε'; nothing is needed where δ ≥ p.
    let Some(within) = delta.over(prob) else { return 0.0 };
    let inner = epsilon(mu, within);
    if inner > 30.0 {
        inner + (prob + (1.0 - prob) * (-inner).exp()).ln()
    } else {
        (prob * inner.exp_m1()).ln_1p()
    }
}

/// The number of points of the grid, for all rounds together.
const GRID: usize = 1 << 16;
/// The number of standard deviations beyond which tails are left out.
const REACH: f64 = 8.5;

/// The δ at ε for rounds of sampling with the same probability, from below, for a unit removed or added.
pub fn delta(mus: &[f64], prob: f64, epsilon: f64) -> f64 {
    [true, false].map(|removed| composed(mus, prob, epsilon, removed)).into_iter().fold(0.0, f64::max)
}

fn composed(mus: &[f64], prob: f64, epsilon: f64, removed: bool) -> f64 {
    let losses: Vec<Loss> = mus.iter().map(|mu| Loss { mu: *mu, prob, removed }).collect();
    let range = losses
        .iter()
        .map(|loss| loss.range())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |all, one| (all.0.min(one.0), all.1.max(one.1)));
    let rounds = mus.len() as f64;
    // The grid is fine relative to ε, unless it would not hold all losses.
    let step = (3e-4 * epsilon / rounds).max((range.1 - range.0) * rounds / (GRID as f64 - 4.0 * rounds));
    let first = (range.0 / step).floor();
    let mut product = vec![(1.0, 0.0); GRID];
    let mut last: Option<(f64, Vec<(f64, f64)>)> = None;
    for loss in &losses {
        if last.as_ref().is_none_or(|(mu, _)| *mu != loss.mu) {
            let count = ((range.1 - range.0) / step).ceil() as usize + 1;
            let mut masses = vec![(0.0, 0.0); GRID];
            let mut below = loss.place(first * step);
            for (i, mass) in masses.iter_mut().enumerate().take(count) {
                let above = loss.place((first + (i + 1) as f64) * step);
                mass.0 = loss.mass(&below, &above);
                below = above;
            }
            transform(&mut masses, 1.0);
            last = Some((loss.mu, masses));
        }
        let (_, spectrum) = last.as_ref().expect("just made");
        for (a, b) in product.iter_mut().zip(spectrum) {
            *a = (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0);
        }
    }
    transform(&mut product, -1.0);
    let excess = |(i, mass): (usize, &(f64, f64))| {
        let loss = (first * rounds + i as f64) * step;
        if loss > epsilon { (mass.0 / GRID as f64).max(0.0) * -(epsilon - loss).exp_m1() } else { 0.0 }
    };
    // The rounding errors of the transforms are subtracted.
    product.iter().enumerate().map(excess).sum::<f64>() - 1e-12
}

/// The privacy loss of one round, at the output x: `ln(1 − p + p e^{μx − μ²/2})`, or its negative if the unit is added.
struct Loss {
    mu: f64,
    prob: f64,
    removed: bool,
}

impl Loss {
    fn at(&self, x: f64) -> f64 {
        let exponent = self.mu * x - 0.5 * self.mu * self.mu;
        let loss = if exponent > 30.0 {
            exponent + (self.prob + (1.0 - self.prob) * (-exponent).exp()).ln()
        } else {
            (self.prob * exponent.exp_m1()).ln_1p()
        };
        if self.removed { loss } else { -loss }
    }

    fn range(&self) -> (f64, f64) {
        let ends = [self.at(-REACH), self.at(self.mu + REACH)];
        (ends[0].min(ends[1]), ends[0].max(ends[1]))
    }

    /// The output that has a given loss.
    fn output(&self, loss: f64) -> f64 {
        let loss = if self.removed { loss } else { -loss };
        let inner = loss.exp_m1() / self.prob;
        if inner <= -1.0 {
            return f64::NEG_INFINITY;
        }
        let exponent = if loss > 30.0 {
            loss - self.prob.ln() + (-(1.0 - self.prob) * (-loss).exp()).ln_1p()
        } else {
            inner.ln_1p()
        };
        (exponent + 0.5 * self.mu * self.mu) / self.mu
    }

    /// The output at which a loss divides the outputs, clamped to those that are not left out.
    fn place(&self, loss: f64) -> Place {
        let x = self.output(loss).clamp(-REACH, self.mu + REACH);
        Place { without: tails(x), with: tails(x - self.mu) }
    }

    /// The probability of losses between two places, under the dataset whose δ it is.
    fn mass(&self, below: &Place, above: &Place) -> f64 {
        let normal = |a: Tails, b: Tails| {
            let (low, high) = if self.removed { (a, b) } else { (b, a) };
            // The difference is taken of the smaller tails, which have more digits.
            let mass =
                if low.beyond < high.below { low.beyond - high.beyond } else { high.below - low.below };
            (mass - 1e-17).max(0.0)
        };
        let without = normal(below.without, above.without);
        if !self.removed {
            return without;
        }
        (1.0 - self.prob) * without + self.prob * normal(below.with, above.with)
    }
}

/// An output as seen from either mean.
struct Place {
    without: Tails,
    with: Tails,
}

/// The two tails `Φ(x)` and `Φ(−x)` of a normal.
#[derive(Clone, Copy)]
struct Tails {
    below: f64,
    beyond: f64,
}

fn tails(x: f64) -> Tails {
    let small = upper(x.abs());
    if x >= 0.0 {
        Tails { below: 1.0 - small, beyond: small }
    } else {
        Tails { below: small, beyond: 1.0 - small }
    }
}

/// A Fourier transform of a power of two, in place.
fn transform(values: &mut [(f64, f64)], sign: f64) {
    let n = values.len();
    let bits = n.trailing_zeros();
    for i in 0..n {
        let j = (i as u32).reverse_bits() as usize >> (32 - bits);
        if i < j {
            values.swap(i, j);
        }
    }
    let roots: Vec<(f64, f64)> = (0..n / 2)
        .map(|k| {
            let (sin, cos) = (sign * std::f64::consts::TAU * k as f64 / n as f64).sin_cos();
            (cos, sin)
        })
        .collect();
    let mut half = 1;
    while half < n {
        let stride = n / (2 * half);
        for start in (0..n).step_by(2 * half) {
            for k in 0..half {
                let (cos, sin) = roots[k * stride];
                let (a, b) = (values[start + k], values[start + k + half]);
                let turned = (b.0 * cos - b.1 * sin, b.0 * sin + b.1 * cos);
                values[start + k] = (a.0 + turned.0, a.1 + turned.1);
                values[start + k + half] = (a.0 - turned.0, a.1 - turned.1);
            }
        }
        half *= 2;
    }
}
