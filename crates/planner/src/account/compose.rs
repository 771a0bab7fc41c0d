//! Sums of independent privacy losses, so that small tails keep their digits.
//!
//! One FFT, a power, one FFT back: what that rounds is relative to the *largest* mass and grows with the number of steps, so a δ of
//! 1e-8 would drown in it after 10⁵ steps. Hence losses are tilted first, each mass times `e^{θ·loss}/M(θ)`, which moves the bulk
//! of the sum to the ε in question; a mass of the sum is untilted by `M(θ)^n·e^{−θ·loss}`, and errors shrink with it.

use corrnoise_fft::{Complex64, Transforms};
use std::sync::OnceLock;

/// How many points to spend; any number gives true bounds.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    /// Of the composed grid.
    pub(super) grid: usize,
    /// At most, of one step's grid.
    pub(super) step_points: f64,
    /// Of the quadrature that chooses tilt and spacing.
    pub(super) quadrature_points: usize,
}

/// ε within a thousandth of the truth.
pub(super) const FINE: Effort = Effort { grid: 1 << 20, step_points: 3e5, quadrature_points: 4000 };
/// Good enough to search on, and some twenty times as fast.
pub(super) const COARSE: Effort = Effort { grid: 1 << 15, step_points: 1e4, quadrature_points: 800 };

fn transforms(grid: usize) -> Transforms {
    // The large plan takes longer to make than to use.
    static LARGE: OnceLock<Transforms> = OnceLock::new();
    let plan = || Transforms::new(grid);
    if grid == FINE.grid { LARGE.get_or_init(plan).clone() } else { plan() }
}

/// What may be lost at each end of the window, and what less than the full tilt may lose by rounding, as shares of the δ that
/// Chernoff's bound gives. The true δ is a hundredth of that, or where ε is small, down to 1e-5 of it.
const CUT_SHARE: f64 = 1e-12;
const ROUNDING_SHARE: f64 = 1e-8;

/// A distribution of losses as a list, the rest at infinity.
pub(super) trait Losses {
    /// Loss and probability of an atom.
    fn atoms(&self) -> impl Iterator<Item = (f64, f64)>;

    /// `ln Σ mass·e^{θ·loss}`.
    fn log_moment(&self, theta: f64) -> f64 {
        // Losses lie between the first and the last atom, in either order; their exponents are kept below 0.
        let shift = self.ends().map(|loss| theta * loss).into_iter().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = self.atoms().map(|(loss, mass)| mass * (theta * loss - shift).exp()).sum();
        sum.ln() + shift
    }

    /// The losses of the first and the last atom: no other loss lies outside.
    fn ends(&self) -> [f64; 2];
}

/// What is known of the privacy, and which tilt makes the rest exact.
#[derive(Clone, Copy)]
pub(super) enum Known {
    Delta(f64),
    Epsilon(f64),
}

/// How to compose: a tilt, the tilted mass that may lie outside the window on each side, and the tilts of the tilted sum that
/// bound the window from below and above (Chernoff).
#[derive(Clone, Copy)]
pub(super) struct Tilt {
    theta: f64,
    cut: f64,
    below: f64,
    above: f64,
}

impl Tilt {
    /// The one with the narrowest window for these losses, hence the finest grid; windows below `enough` are equally good. Any
    /// choice gives true bounds.
    pub(super) fn new(losses: &impl Losses, count: u64, known: Known, enough: f64) -> Tilt {
        let n = count as f64;
        let bound = |theta: f64| match known {
            Known::Delta(delta) => (n * losses.log_moment(theta) - delta.ln()) / theta,
            Known::Epsilon(epsilon) => n * losses.log_moment(theta) - theta * epsilon,
        };
        let best = least(bound);
        let (log_delta, epsilon) = match known {
            Known::Delta(delta) => (delta.ln(), bound(best)),
            Known::Epsilon(epsilon) => (bound(best), epsilon),
        };
        // The full tilt asks for the fewest digits; less of it lets a long upper tail, as of rare sampling, stay short.
        let candidates = (0..10).map(|i| best * 0.75_f64.powi(i)).filter_map(|theta| {
            let base = losses.log_moment(theta);
            let share = (log_delta - (n * base - theta * epsilon)).exp();
            if theta != best && rounding(n) > ROUNDING_SHARE * share {
                return None;
            }
            let cut = CUT_SHARE * share;
            let reach = |side: f64| {
                least(|tilt| (n * (losses.log_moment(theta + side * tilt) - base) - cut.ln()) / tilt)
            };
            let tilt = Tilt { theta, cut, below: reach(-1.0), above: reach(1.0) };
            let (low, high) = tilt.window(losses, count);
            Some(((high - low).max(enough), tilt))
        });
        // The first of equals, which has the most tilt.
        let narrowest = candidates.min_by(|a, b| a.0.total_cmp(&b.0));
        narrowest.expect("the full tilt is a candidate").1
    }

    /// Losses between which the tilted sum lies but for `cut` on each side.
    pub(super) fn window(&self, losses: &impl Losses, count: u64) -> (f64, f64) {
        let (count, base) = (count as f64, losses.log_moment(self.theta));
        let reach = |side: f64, tilt: f64| {
            side * (count * (losses.log_moment(self.theta + side * tilt) - base) - self.cut.ln()) / tilt
        };
        // A sum cannot leave the multiples of one step's range.
        let [first, last] = losses.ends().map(|loss| loss * count);
        (reach(-1.0, self.below).max(first.min(last)), reach(1.0, self.above).min(first.max(last)))
    }
}

/// By how much a coefficient of the transform may be wrong after a power: a few units in the last place before it, times the power.
fn rounding(count: f64) -> f64 {
    16.0 * f64::EPSILON * (count + 20.0)
}

/// Where a function of one positive number with one valley is least, to a few percent (golden section in its logarithm).
fn least(f: impl Fn(f64) -> f64) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    // From tilts that change nothing to those at which one loss decides; beyond, moments may not be finite.
    let (mut low, mut high) = (-7.0_f64, 14.0_f64);
    let at = |x: f64| {
        let value = f(x.exp());
        if value.is_nan() { f64::INFINITY } else { value }
    };
    let (mut a, mut b) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
    let (mut at_a, mut at_b) = (at(a), at(b));
    while high - low > 0.02 {
        if at_a <= at_b {
            (high, b, at_b) = (b, a, at_a);
            a = high - GOLDEN * (high - low);
            at_a = at(a);
        } else {
            (low, a, at_a) = (a, b, at_b);
            b = low + GOLDEN * (high - low);
            at_b = at(b);
        }
    }
    f64::midpoint(low, high).exp()
}

/// One step's losses on a grid: `masses[j]` at `(first + j)·spacing`, the rest at infinity.
pub(super) struct Grid {
    pub spacing: f64,
    pub first: i64,
    pub masses: Vec<f64>,
    pub infinite: f64,
}

impl Losses for Grid {
    fn atoms(&self) -> impl Iterator<Item = (f64, f64)> {
        self.masses.iter().enumerate().map(|(j, mass)| ((self.first + j as i64) as f64 * self.spacing, *mass))
    }

    fn ends(&self) -> [f64; 2] {
        [self.first, self.first + self.masses.len() as i64 - 1].map(|j| j as f64 * self.spacing)
    }
}

/// The sum of the losses of all steps.
pub(super) struct Composed {
    spacing: f64,
    first: i64,
    /// Tilted; the mass at loss `x` is this times `e^{log_scale − θ·x}`.
    tilted: Vec<f64>,
    theta: f64,
    log_scale: f64,
    infinite: f64,
    /// Tilted mass that may be missing or misplaced.
    error: f64,
}

impl Grid {
    /// The sum of `count` independent draws, on the window that starts at `low` and must hold what [`Tilt::window`] says.
    pub(super) fn power(&self, count: u64, tilt: &Tilt, low: f64, grid: usize) -> Composed {
        let (n, theta) = (count as f64, tilt.theta);
        let log_moment = self.log_moment(theta);
        let transforms = transforms(grid);
        let mut values = vec![Complex64::default(); grid];
        for (j, (loss, mass)) in self.atoms().enumerate() {
            let place = (self.first + j as i64).rem_euclid(grid as i64) as usize;
            values[place].re += mass * (theta * loss - log_moment).exp();
        }
        transforms.forward(&mut values);
        // Most coefficients vanish in the power: below e^{−100} they are not worth the work.
        let vanishing = (-200.0 / n).exp();
        // The transform of real numbers: the second half is the first one's mirror image.
        for k in 0..=grid / 2 {
            let vanishes = values[k].norm_sqr() < vanishing;
            values[k] = if vanishes { Complex64::default() } else { power(values[k], count) };
            values[(grid - k) % grid] = values[k].conj();
        }
        let energy: f64 = values.iter().map(Complex64::norm_sqr).sum();
        transforms.inverse(&mut values);
        let first = (low / self.spacing).floor() as i64 - 1;
        let place = |j: i64| (first + j).rem_euclid(grid as i64) as usize;
        Composed {
            spacing: self.spacing,
            first,
            tilted: (0..grid as i64).map(|j| (values[place(j)].re / grid as f64).max(0.0)).collect(),
            theta,
            log_scale: n * log_moment,
            infinite: -(n * (-self.infinite).ln_1p()).exp_m1(),
            // What wraps around from either side, what is missing there, and rounding: by Parseval, Cauchy and Schwarz the masses are
            // together wrong by at most the root of the energy times the error of a coefficient.
            error: 4.0 * tilt.cut + rounding(n) * energy.sqrt().max(1.0),
        }
    }
}

/// By squaring: about `count` times the rounding of one product.
fn power(mut base: Complex64, mut count: u64) -> Complex64 {
    let mut product = Complex64::new(1.0, 0.0);
    while count > 1 {
        if count % 2 == 1 {
            product *= base;
        }
        base *= base;
        count /= 2;
    }
    product * base
}

impl Composed {
    /// Losses of which nothing is known.
    pub(super) fn unknown() -> Composed {
        Composed {
            spacing: 1.0,
            first: 0,
            tilted: vec![0.0],
            theta: 1.0,
            log_scale: 0.0,
            infinite: 1.0,
            error: 0.0,
        }
    }

    fn at(&self, j: usize) -> f64 {
        (self.first + j as i64) as f64 * self.spacing
    }

    /// What turns tilted mass at a loss into mass.
    fn untilt(&self, loss: f64) -> f64 {
        (self.log_scale - self.theta * loss).exp()
    }

    pub(super) fn delta(&self, epsilon: f64) -> f64 {
        let above = self.tilted.iter().enumerate().rev().map(|(j, mass)| (self.at(j), mass));
        let sum: f64 = above
            .take_while(|(loss, _)| *loss > epsilon)
            .map(|(loss, mass)| mass * self.untilt(loss) * -(epsilon - loss).exp_m1())
            .sum();
        // Misplaced mass above ε is worth the most just above it.
        (sum + self.infinite + self.error * self.untilt(epsilon)).min(1.0)
    }

    /// From the largest loss down: between two grid points `δ = mass − e^ε·weighted`, so ε follows at once.
    pub(super) fn epsilon(&self, delta: f64) -> f64 {
        if self.infinite >= delta {
            return f64::INFINITY;
        }
        let top = self.at(self.tilted.len() - 1);
        if self.infinite + self.error * self.untilt(top) >= delta {
            // Even the window's end is too low: there only the allowance is left, and falls with the tilt.
            return (self.log_scale - ((delta - self.infinite) / self.error).ln()) / self.theta;
        }
        // `weighted` is Σ mass·e^{−loss}, relative to the grid point at hand: it shrinks by one spacing per point, so nothing overflows.
        let (mut mass, mut weighted) = (self.infinite, 0.0);
        let shrink = (-self.spacing).exp();
        for j in (0..self.tilted.len()).rev() {
            let here = self.at(j);
            let added = self.tilted[j] * self.untilt(here);
            mass += added;
            weighted = weighted * shrink + added;
            // δ just below this grid point, with the allowance of the next one, which is larger.
            let previous = here - self.spacing;
            let most = mass + self.error * self.untilt(previous);
            if most - shrink * weighted >= delta && weighted > 0.0 {
                let inside = here + ((most - delta) / weighted).ln();
                return inside.min(here).max(0.0);
            }
        }
        (self.at(0) - self.spacing).max(0.0)
    }
}
