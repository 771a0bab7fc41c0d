//! Weights of interpolation from above: a normal's mass, shared out among nodes so that the mean of `x` or of `e^x` is kept.
//!
//! A convex function lies below its chords, so its mean is at most the sum of its values at the nodes with these weights. Every weight is
//! an integral of something positive, by Gauss's rule or by series of positive terms, so it keeps its relative digits however
//! small it is: values far out are huge, and an absolute error there would be multiplied by them. (Second differences of calls would
//! lose digits where nodes are close.)

use super::super::normal::{density, upper};
use std::collections::BTreeMap;

/// In what a chord is linear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hat {
    /// In x: for what is convex in x.
    Linear,
    /// In e^x: for what is convex in it.
    Exponential,
}

impl Hat {
    /// The part of a point at `from` its own node that belongs to this node, where the other one is `width` away; both may be negative.
    fn share(self, from: f64, width: f64) -> f64 {
        match self {
            Hat::Linear => (1.0 - from / width).max(0.0),
            Hat::Exponential => ((width.exp_m1() - from.exp_m1()) / width.exp_m1()).max(0.0),
        }
    }
}

/// Gauss's rule with ten points on [−1, 1]: positions and weights.
const GAUSS: [(f64, f64); 5] = [
    (0.148_874_338_981_631_22, 0.295_524_224_714_752_87),
    (0.433_395_394_129_247_2, 0.269_266_719_309_996_35),
    (0.679_409_568_299_024_4, 0.219_086_362_515_982_04),
    (0.865_063_366_688_984_5, 0.149_451_349_150_580_6),
    (0.973_906_528_517_171_7, 0.066_671_344_308_688_14),
];

fn integral(from: f64, to: f64, panels: usize, f: impl Fn(f64) -> f64) -> f64 {
    let half = 0.5 * (to - from) / panels as f64;
    (0..panels)
        .map(|p| {
            let middle = from + half * (2 * p + 1) as f64;
            half * GAUSS.iter().map(|(x, w)| w * (f(middle - half * x) + f(middle + half * x))).sum::<f64>()
        })
        .sum()
}

/// The most panels of half a standard deviation between two nodes.
const MOST_PANELS: f64 = 400.0;

/// The mass of a normal with mean 0, shared out among nodes in ascending order; what lies beyond the ends goes to the end nodes. `None`
/// where two nodes are so far apart, in standard deviations, that the rule between them would miss the normal.
pub(super) fn shares(nodes: &[f64], sd: f64, hat: Hat) -> Option<Vec<f64>> {
    let mut out = vec![0.0; nodes.len()];
    for (j, pair) in nodes.windows(2).enumerate() {
        let width = pair[1] - pair[0];
        let panels = (2.0 * width / sd).ceil().max(1.0);
        // Written so that what is no number does not fit.
        let fits = panels <= MOST_PANELS;
        if !fits {
            return None;
        }
        let panels = panels as usize;
        let normal = |x: f64| density(x / sd) / sd;
        out[j] += integral(pair[0], pair[1], panels, |x| normal(x) * hat.share(x - pair[0], width));
        out[j + 1] += integral(pair[0], pair[1], panels, |x| normal(x) * hat.share(x - pair[1], -width));
    }
    if let [first, .., last] = nodes {
        out[0] += upper(-first / sd);
        out[nodes.len() - 1] += upper(last / sd);
    }
    Some(out)
}

/// Polynomials p with which `φ(z)·p(z)` is a node's weight, `z` being its distance from the mean in standard deviations, by the widths of
/// the gaps on its left and right.
///
/// The integrand right of the node is `φ(z + τ)·hat(τ) = φ(z)·e^{−zτ}·e^{−τ²/2}·hat(τ)`, and `e^{−zτ}` is a series in z whose coefficients
/// are moments of a positive function. Left and right together have positive coefficients at even powers and small ones at odd powers,
/// so nothing cancels.
pub(super) struct Polynomials {
    sets: BTreeMap<(u32, u32), Vec<f64>>,
    /// The terms that are needed up to a distance, by halves of a standard deviation.
    lengths: Vec<usize>,
}

/// Beyond this many standard deviations a density is no number.
pub(super) const FARTHEST: f64 = 38.0;

impl Polynomials {
    /// For gaps of `gap·unit`, the pairs of gaps given by whole numbers; 0 for a gap that is left out. `None` where gaps are too wide, in
    /// standard deviations, for the series.
    pub(super) fn new(gaps: &[(u32, u32)], unit: f64, sd: f64, hat: Hat) -> Option<Polynomials> {
        let widest = gaps.iter().map(|(left, right)| left.max(right)).max().copied_or_zero();
        let reach = f64::from(widest) * unit / sd;
        if !(reach <= 2.5 && unit > 0.0 && unit.is_finite()) {
            return None;
        }
        let length = |z: f64| {
            let (mut term, mut n) = (1.0, 0);
            while term > 1e-17 || (n as f64) < z * reach {
                n += 1;
                term *= z * reach / n as f64;
            }
            n + 1
        };
        let lengths: Vec<usize> = (0..=2 * FARTHEST as usize).map(|half| length(0.5 * half as f64)).collect();
        let most = *lengths.last()?;
        let mut by_gap: BTreeMap<(u32, bool), Vec<f64>> = BTreeMap::new();
        let mut sets = BTreeMap::new();
        for &(left, right) in gaps {
            let mut moments = |gap: u32, to_left: bool| {
                let own = by_gap
                    .entry((gap, to_left))
                    .or_insert_with(|| moments(gap, to_left, unit, sd, hat, most));
                own.clone()
            };
            let (own, other) = (moments(left, true), moments(right, false));
            let signed =
                |(n, (own, other)): (usize, (&f64, &f64))| if n % 2 == 0 { own + other } else { own - other };
            let mut sum: Vec<f64> = own.iter().zip(&other).enumerate().map(signed).collect();
            raise(&mut sum, &own, &other);
            sets.insert((left, right), sum);
        }
        Some(Polynomials { sets, lengths })
    }

    /// The polynomial of a node, for distances up to `farthest` standard deviations.
    pub(super) fn of(&self, gaps: (u32, u32), farthest: f64) -> &[f64] {
        let length = self.lengths[((2.0 * farthest).ceil() as usize).min(self.lengths.len() - 1)];
        &self.sets[&gaps][..length]
    }
}

/// Raises the coefficients of a node's series by what rounding may take from its value, at any distance z: `2N + 8` last places of
/// `Σ (left + right)·|z|ⁿ`, where terms of both signs may leave little. Odd powers count as `|z|ⁿ ≤ (zⁿ⁻¹ + zⁿ⁺¹)/2`.
fn raise(sum: &mut [f64], left: &[f64], right: &[f64]) {
    let count = sum.len();
    let part = (2 * count + 8) as f64 * f64::EPSILON;
    for (n, (left, right)) in left.iter().zip(right).enumerate() {
        let size = part * (left + right);
        match n % 2 {
            0 => sum[n] += size,
            _ => {
                sum[n - 1] += 0.5 * size;
                if n + 1 < count {
                    sum[n + 1] += 0.5 * size;
                }
            }
        }
    }
}

/// `∫₀^a hat(τ)·e^{−τ²/2}·τⁿ/n! dτ` for every n.
fn moments(gap: u32, to_left: bool, unit: f64, sd: f64, hat: Hat, count: usize) -> Vec<f64> {
    let width = f64::from(gap) * unit;
    let side = if to_left { -1.0 } else { 1.0 };
    let mut out = vec![0.0; count];
    if gap == 0 {
        return out;
    }
    // Powers up to some hundred are integrated exactly enough by so many panels: a weight of 1e-17 of the largest is none.
    let (reach, panels) = (width / sd, 8);
    let half = 0.5 * reach / f64::from(panels);
    for p in 0..panels {
        let middle = half * f64::from(2 * p + 1);
        for (x, w) in GAUSS.iter().flat_map(|(x, w)| [(-x, w), (*x, w)]) {
            let tau = middle + half * x;
            let mut term = half * w * hat.share(side * tau * sd, side * width) * (-0.5 * tau * tau).exp();
            for (n, out) in out.iter_mut().enumerate() {
                *out += term;
                term *= tau / (n + 1) as f64;
            }
        }
    }
    out
}

trait CopiedOrZero {
    fn copied_or_zero(self) -> u32;
}

impl CopiedOrZero for Option<&u32> {
    fn copied_or_zero(self) -> u32 {
        self.copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_keep_mass_and_mean() {
        let nodes: Vec<f64> = (-30..=40).map(|k| 0.11 * f64::from(k)).collect();
        let sd = 0.3;
        let linear = shares(&nodes, sd, Hat::Linear).unwrap();
        assert!((linear.iter().sum::<f64>() - 1.0).abs() < 1e-13);
        assert!(linear.iter().zip(&nodes).map(|(w, x)| w * x).sum::<f64>().abs() < 1e-13);
        let exponential = shares(&nodes, sd, Hat::Exponential).unwrap();
        let mean: f64 = exponential.iter().zip(&nodes).map(|(w, x)| w * x.exp()).sum();
        assert!((mean / (0.5 * sd * sd).exp() - 1.0).abs() < 1e-12, "{mean}");
    }

    /// Weights by series are those by quadrature, to relative digits, however far out; with unequal gaps too.
    #[test]
    fn series_keep_relative_digits() {
        for hat in [Hat::Linear, Hat::Exponential] {
            for (unit, sd) in [(0.02, 0.5), (0.1, 0.55), (0.03, 0.1), (0.5, 1.2), (1e-4, 1e-3)] {
                let gaps = [(1, 1), (1, 2), (2, 2), (0, 2), (3, 0), (3, 1)];
                let polynomials = Polynomials::new(&gaps, unit, sd, hat).unwrap();
                for &(left, right) in &gaps {
                    for z in [-30.0, -9.3, -4.0, -0.2, 0.0, 1.7, 6.0, 12.0, 37.0] {
                        let polynomial = polynomials.of((left, right), f64::abs(z));
                        let series = polynomial.iter().rev().fold(0.0, |sum, coef| sum * z + coef);
                        let (l, r) = (f64::from(left) * unit, f64::from(right) * unit);
                        let side = |width: f64| {
                            let reach = width / sd;
                            if width == 0.0 {
                                return 0.0;
                            }
                            let f =
                                |tau: f64| hat.share(tau * sd, width) * (-z * tau - 0.5 * tau * tau).exp();
                            integral(reach.min(0.0), reach.max(0.0), 200, f)
                        };
                        let exact = side(-l) + side(r);
                        // Where a wide gap looks away from the mean, terms of both signs leave little: what rounding may take of it is
                        // added, some (2N + 8)·2⁻⁵² · e^{|z|u}·(1 + |z|)/2 with fewer than 400 terms. Quadrature is exact to 1e-13.
                        let widest = l.max(r) / sd;
                        let added = 1e-13 * (1.0 + z.abs()) * (z.abs() * widest).exp() + 1e-12 * exact;
                        let range = exact * (1.0 - 1e-12)..=exact + added;
                        assert!(
                            range.contains(&series),
                            "{hat:?} {unit} {sd} {left} {right} {z}: {series} {exact}"
                        );
                    }
                }
            }
        }
        assert!(Polynomials::new(&[(1, 1)], 3.0, 1.0, Hat::Linear).is_none());
    }
}
