//! Many steps: δ(ε) of the sum of independent losses, by Fourier inversion on a line through a tilt.
//!
//! With `M(s) = E[e^{s·loss}]` of one step and any θ > 0,
//!
//! ```text
//! δ(ε) = E[(1 − e^{ε − S})₊] = 1/(2πi) ∫ e^{−εs} M(s)^n / (s(s + 1)) ds     along s = θ + it
//! ```
//! Three facts make sums of this integral upper bounds that hardly exceed δ:
//!
//! - The trapezoidal rule of step h gives `Σ_j e^{θjP} δ(ε + jP)` with `P = 2π/h` (Poisson summation): δ itself and terms that are not
//!   negative. It errs upward, by what Chernoff's bound makes small.
//! - One more Gaussian mechanism with a tiny μ is composed with the steps. It only adds to δ, and its factor `e^{−μ²t²/2}` ends the
//!   integral where all else would fall like t⁻².
//! - Where sampling is rare, one large loss among many tiny ones decides, and no tilt brings the sum to ε without making the
//!   largest losses dominate. So runs are told apart by the largest loss that occurs in them: `M^n = M₁^n + (M₂^n − M₁^n) + …` with `M_i` the sum
//!   over losses up to a level. Every term is the transform of a positive measure, with a tilt of its own.

use super::losses::Losses;
use num_complex::Complex64;
use std::f64::consts::{PI, TAU};

/// The steps of one direction.
#[derive(Clone, Copy)]
pub(super) struct Steps<'a> {
    pub(super) losses: &'a Losses,
    pub(super) count: f64,
}

/// The runs whose largest loss is one of the atoms `from..to`; all runs up to `to` for `from = 0`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Where the answer is expected: bounds are true everywhere and tight here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    pub(super) epsilon: f64,
    pub(super) ln_delta: f64,
    /// How much larger ε may become.
    pub(super) slack: f64,
}

/// Rounding loses what is 1e-14 of a term's Chernoff bound, so a bound may exceed δ by this factor (its logarithm) and no more.
const ROOM: f64 = 14.0;
/// A level's Chernoff bound exceeds its part of δ by a factor that its tilt explains; more than this (logarithm) means that the tilt
/// brings other runs to ε than those that matter.
const LOOSE: f64 = 6.0;
/// What may be added to δ at each of a few places (logarithm).
const NEGLIGIBLE: f64 = -14.0;
/// Most atoms that one level asks for.
const MOST_ATOMS: f64 = 3e4;
/// Most frequencies times atoms of one level, half a second; beyond, Chernoff's bound must do. Only losses of 1e8 and more ask for it.
const MOST_WORK: f64 = 5e8;

impl Steps<'_> {
    /// `ln ∫ e^{θS}` over a level's runs: the logarithm of the difference of two powers.
    pub(super) fn ln_moment(&self, level: Level, theta: f64) -> f64 {
        let order = theta + 1.0;
        let whole = self.losses.ln_moment(order, level.to);
        self.count * whole + self.ln_share(level, order, whole)
    }

    /// The logarithm of `1 − (M_from/M_to)^n`.
    fn ln_share(&self, level: Level, order: f64, whole: f64) -> f64 {
        if level.from == 0 {
            return 0.0;
        }
        let own: f64 = (level.from..level.to).map(|j| self.losses.tilted(j, order, whole)).sum();
        (-(self.count * (-own).ln_1p()).exp_m1()).ln()
    }

    /// Chernoff's bound of the level's δ at ε, as a function of the tilt (logarithm).
    fn bound(&self, level: Level, epsilon: f64, theta: f64) -> f64 {
        self.ln_moment(level, theta) - theta * epsilon
    }

    /// The best such tilt.
    fn best_tilt(&self, level: Level, epsilon: f64) -> (f64, f64) {
        least(|theta| self.bound(level, epsilon, theta))
    }

    /// The smallest ε that Chernoff's bound gives.
    pub(super) fn chernoff_epsilon(&self, ln_delta: f64) -> f64 {
        let all = Level { from: 0, to: self.losses.len() };
        let (_, epsilon) = least(|theta| (self.ln_moment(all, theta) - ln_delta) / theta);
        epsilon.max(0.0)
    }

    /// Chernoff's bound of δ at ε (logarithm).
    pub(super) fn chernoff_ln_delta(&self, epsilon: f64) -> f64 {
        self.best_tilt(Level { from: 0, to: self.losses.len() }, epsilon).1.min(0.0)
    }

    /// As few levels as have tilts with little to lose by rounding.
    pub(super) fn levels(&self, aim: Aim) -> Vec<Level> {
        let len = self.losses.len();
        let fits = |level: Level| self.best_tilt(level, aim.epsilon).1 <= aim.ln_delta + LOOSE;
        // Losses far below ε matter by their sum alone, which every tilt moves.
        let small = self.losses.loss.partition_point(|loss| *loss < 0.01 * aim.epsilon);
        let mut levels = Vec::new();
        let mut from = 0;
        while from < len {
            if fits(Level { from, to: len }) || levels.len() == MOST_LEVELS {
                levels.push(Level { from, to: len });
                break;
            }
            let (mut good, mut bad) = ((from + 1 + (len - from) / 24).max(small).min(len), len);
            while bad - good > 1 {
                let middle = usize::midpoint(good, bad);
                if fits(Level { from, to: middle }) { good = middle } else { bad = middle }
            }
            levels.push(Level { from, to: good });
            from = good;
        }
        levels
    }

    /// Into how many parts to divide the cells between neighbouring atoms, for atoms that add no more than the slack to ε: moving mass to
    /// the ends of a cell of losses of width w adds at most w²/4, w²/6 where the density is flat, to a loss's variance.
    pub(super) fn divisions(&self, level: Level, aim: Aim, parts: &mut [usize]) {
        if self.best_tilt(level, aim.epsilon).1 < aim.ln_delta + NEGLIGIBLE {
            return;
        }
        let (theta, _) = self.line(level, aim);
        let order = theta + 1.0;
        let whole = self.losses.ln_moment(order, level.to);
        let certain = (-self.ln_share(level, order, whole)).exp();
        let weights: Vec<f64> = (1..level.to)
            .map(|j| {
                let mass =
                    0.5 * (self.losses.tilted(j - 1, order, whole) + self.losses.tilted(j, order, whole));
                let width = self.losses.loss[j] - self.losses.loss[j - 1];
                let occurrence = if j >= level.from.max(1) && level.from > 0 { certain } else { 1.0 };
                (self.count * mass * occurrence * width * width).cbrt()
            })
            .collect();
        // Σ mass·w²/k² is least for k ∝ (mass·w²)^{1/3}.
        let slack = aim.slack.min(0.1 / theta);
        let total = weights.iter().sum::<f64>();
        let factor = (total * (theta + 1.0) / (12.0 * slack)).sqrt().min(MOST_ATOMS / total);
        for (part, weight) in parts.iter_mut().zip(&weights) {
            *part = (*part).max((factor * weight).ceil() as usize);
        }
    }

    /// The level's part of δ, as a function of ε.
    pub(super) fn term(&self, level: Level, aim: Aim) -> Term {
        let (best, bound) = self.best_tilt(level, aim.epsilon);
        if bound < aim.ln_delta + NEGLIGIBLE {
            return Term { theta: best, ln_scale: bound + best * aim.epsilon, ..Term::bound() };
        }
        let (theta, period) = self.line(level, aim);
        // The extra mechanism's μ²: it adds (θ + 1)μ²/2 to ε, and θ times that to ln δ.
        let variance = 2.0 * aim.slack.min(0.1 / theta) / (theta + 1.0);
        let excess = (self.bound(level, aim.epsilon, theta) - aim.ln_delta).max(0.0);
        let end = (2.0 * (excess - NEGLIGIBLE + 2.0) / variance).sqrt();
        let step = TAU / period;
        let frequencies = (end / step).ceil().max(16.0);
        if frequencies * level.to as f64 > MOST_WORK {
            return Term { theta: best, ln_scale: bound + best * aim.epsilon, ..Term::bound() };
        }
        self.transform(level, theta, variance, step, frequencies as usize)
    }

    /// The tilt and the period with the fewest frequencies.
    fn line(&self, level: Level, aim: Aim) -> (f64, f64) {
        let (best, least_bound) = self.best_tilt(level, aim.epsilon);
        let bound = |theta: f64| self.bound(level, aim.epsilon, theta);
        let floor = aim.ln_delta + NEGLIGIBLE;
        let mass = self.ln_moment(level, 0.0).min(0.0);
        let period = |theta: f64| {
            // δ(ε − jP)e^{−θjP} and δ(ε + jP)e^{θjP}, the first by a smaller tilt, the second by a larger one.
            let left =
                [0.25, 0.5, 0.75].map(|share| (bound(share * theta) - floor) / ((1.0 - share) * theta));
            let left = left.into_iter().fold((mass - floor) / theta, f64::min);
            let right = [1.001, 1.003, 1.01, 1.03, 1.07, 1.15, 1.3, 1.6, 2.0, 3.0, 6.0, 15.0, 50.0]
                .map(|share| (bound(share * theta) - floor) / ((share - 1.0) * theta));
            let right = right.into_iter().filter(|p| !p.is_nan()).fold(f64::INFINITY, f64::min);
            left.max(right).max(1e-3 / theta)
        };
        // The larger the tilt, the shorter the period on the left; the largest that rounding allows.
        let room = (least_bound + 2.0).max(aim.ln_delta + ROOM);
        let (mut good, mut bad) = (best.ln(), best.ln() + 60.0);
        while bad - good > 0.05 {
            let middle = f64::midpoint(good, bad);
            if bound(middle.exp()) <= room { good = middle } else { bad = middle }
        }
        let most = good.exp();
        let candidates = [1.0, 0.85, 0.7, 0.5, 0.35, 0.2, 0.1].map(|share| (share * most).max(best));
        let lines = candidates.map(|theta| (theta, period(theta)));
        let cost = |line: &(f64, f64)| line.1 * (line.0 + 1.0).sqrt();
        lines.into_iter().min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or((best, period(best)))
    }

    fn transform(&self, level: Level, theta: f64, variance: f64, step: f64, frequencies: usize) -> Term {
        let losses = self.losses;
        let order = theta + 1.0;
        let whole = losses.ln_moment(order, level.to);
        let weight = |j: usize| losses.tilted(j, order, whole);
        // Losses so small that their phase stays below a half: a power series in the frequency for all of them together. Their mean is
        // what the others leave of the mean of all, which is known to more digits than a sum would have.
        let end = step * frequencies as f64;
        let slow = |j: usize| (losses.loss[j] * end).abs() <= 0.5 && !(level.from > 0 && j >= level.from);
        let mut mean = losses.mean(order, level.to, whole);
        let mut moments = [0.0; MOMENTS];
        let (mut common, mut own) = (Spinner::default(), Spinner::default());
        for j in 0..level.to {
            let (loss, weight) = (losses.loss[j], weight(j));
            if slow(j) {
                let mut power = weight * loss;
                for (m, moment) in moments.iter_mut().enumerate() {
                    power *= loss / (m + 2) as f64;
                    *moment += power;
                }
            } else {
                mean -= weight * loss;
                if level.from > 0 && j >= level.from {
                    own.push(weight, loss)
                } else {
                    common.push(weight, loss)
                }
            }
        }
        let own_share = own.total;
        let mut values = Vec::with_capacity(frequencies + 1);
        for k in 0..=frequencies {
            let t = k as f64 * step;
            let own_change = own.at(k, step);
            // The characteristic function of the tilted loss, less 1.
            let change = power_series(mean, &moments, t) + common.at(k, step) + own_change;
            let extra = Complex64::new(-0.5 * variance * t * t, 0.5 * variance * t * (2.0 * theta + 1.0));
            let all = self.count * ln_1p(change) + extra;
            let value = if level.from == 0 {
                all.exp()
            } else {
                // The difference of two powers, of which either may be the larger here.
                let without = self.count * ln_1p(-(own_change + own_share) / (change + 1.0));
                if without.re < 1.0 {
                    -exp_m1(without) * all.exp()
                } else {
                    all.exp() - (all + without).exp()
                }
            };
            let s = Complex64::new(theta, t);
            values.push(value / (s * (s + 1.0)));
        }
        let absolute: f64 = values.iter().map(|value| value.norm()).sum();
        let share = values[0].norm() * theta * (theta + 1.0);
        // Rounding: of n times a sum over spinning atoms, of n·ln M, of phases, and of some tens of operations.
        let spinning = self.count * (common.total + own_share);
        let phases = end * (self.count * losses.mean(order, level.to, whole)).abs();
        let rounding = f64::EPSILON
            * (2.0 * TURNS as f64 * spinning + 4.0 * (self.count * whole).abs() + 4.0 * phases + 5e3);
        // Beyond the last frequency nothing exceeds the share at t = 0 times the extra mechanism's factor over t².
        let cut = share * (-0.5 * variance * end * end).exp() / (variance * end.powi(3)) / PI;
        Term {
            theta,
            ln_scale: self.count * whole + 0.5 * variance * theta * (theta + 1.0),
            step,
            values,
            rest: cut + rounding * absolute * step / PI,
        }
    }
}

const MOST_LEVELS: usize = 20;
const MOMENTS: usize = 14;

/// `Σ_m (it)^m·moment_m`, the moments over their factorials, from the first on.
fn power_series(mean: f64, moments: &[f64; MOMENTS], t: f64) -> Complex64 {
    let it = Complex64::new(0.0, t);
    let rest = moments.iter().rev().fold(Complex64::ZERO, |sum, moment| sum * it + moment);
    (rest * it + mean) * it
}

/// `Σ weight·(e^{it·loss} − 1)` at the multiples of a frequency, one after another: a turn of every atom instead of a sine and a cosine.
#[derive(Default)]
struct Spinner {
    weights: Vec<f64>,
    losses: Vec<f64>,
    total: f64,
    re: Vec<f64>,
    im: Vec<f64>,
    turn_re: Vec<f64>,
    turn_im: Vec<f64>,
}

/// Turns between two fresh starts, over which rounding grows.
const TURNS: usize = 32;

impl Spinner {
    fn push(&mut self, weight: f64, loss: f64) {
        self.weights.push(weight);
        self.losses.push(loss);
        self.total += weight;
    }

    fn at(&mut self, k: usize, step: f64) -> Complex64 {
        if self.weights.is_empty() {
            return Complex64::ZERO;
        }
        if k.is_multiple_of(TURNS) {
            let angle = |loss: &f64| loss * step * k as f64;
            let pairs = || self.losses.iter().zip(&self.weights);
            let re = pairs().map(|(loss, weight)| weight * angle(loss).cos()).collect();
            let im = pairs().map(|(loss, weight)| weight * angle(loss).sin()).collect();
            (self.re, self.im) = (re, im);
            if k == 0 {
                self.turn_re = self.losses.iter().map(|loss| (loss * step).cos()).collect();
                self.turn_im = self.losses.iter().map(|loss| (loss * step).sin()).collect();
            }
        } else {
            let turns = self.turn_re.iter().zip(&self.turn_im);
            for ((re, im), (a, b)) in self.re.iter_mut().zip(&mut self.im).zip(turns) {
                (*re, *im) = (*re * a - *im * b, *re * b + *im * a);
            }
        }
        Complex64::new(self.re.iter().sum::<f64>() - self.total, self.im.iter().sum())
    }
}

/// A level's part of δ: `e^{ln_scale − θε}·(step/π·(½F₀ + Σ Re F_k e^{−iεt_k}) + rest)`.
pub(super) struct Term {
    theta: f64,
    ln_scale: f64,
    step: f64,
    values: Vec<Complex64>,
    rest: f64,
}

impl Term {
    /// A term with Chernoff's bound alone.
    fn bound() -> Term {
        Term { theta: 0.0, ln_scale: 0.0, step: 0.0, values: Vec::new(), rest: 1.0 }
    }

    pub(super) fn ln_delta(&self, epsilon: f64) -> f64 {
        let turn = Complex64::new(0.0, -epsilon * self.step).exp();
        let mut phase = Complex64::ONE;
        let mut sum = 0.0;
        for (k, value) in self.values.iter().enumerate() {
            if k.is_multiple_of(TURNS) {
                phase = Complex64::new(0.0, -epsilon * self.step * k as f64).exp();
            }
            sum += if k == 0 { 0.5 * value.re } else { value.re * phase.re - value.im * phase.im };
            phase *= turn;
        }
        let value = (sum * self.step / PI).max(0.0) + self.rest;
        value.ln() + self.ln_scale - self.theta * epsilon
    }
}

/// `e^z − 1` with its digits where z is small: `(e^x − 1)cos y − 2 sin²(y/2) + i e^x sin y`.
fn exp_m1(z: Complex64) -> Complex64 {
    let (sin, cos) = z.im.sin_cos();
    let half = (0.5 * z.im).sin();
    Complex64::new(z.re.exp_m1() * cos - 2.0 * half * half, z.re.exp() * sin)
}

/// `ln(1 + z)` with its digits where z is small.
fn ln_1p(z: Complex64) -> Complex64 {
    Complex64::new(0.5 * (2.0 * z.re + z.norm_sqr()).ln_1p(), z.im.atan2(1.0 + z.re))
}

/// Where a function of one positive number with one valley is least, to a few percent (golden section in its logarithm), and its value there.
fn least(f: impl Fn(f64) -> f64) -> (f64, f64) {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let (mut low, mut high) = (-25.0_f64, 25.0_f64);
    let at = |x: f64| {
        let value = f(x.exp());
        if value.is_nan() { f64::INFINITY } else { value }
    };
    let (mut a, mut b) = (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
    let (mut at_a, mut at_b) = (at(a), at(b));
    while high - low > 0.03 {
        // Where both are infinite the valley lies to the left.
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
    if at_a <= at_b { (a.exp(), at_a) } else { (b.exp(), at_b) }
}
