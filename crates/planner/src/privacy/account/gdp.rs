//! Gaussian differential privacy, exactly: μ-GDP ↔ (ε, δ), ρ-zCDP, noise multipliers, composition.
//!
//! The Gaussian mechanism with sensitivity over standard deviation μ satisfies `δ(ε) = Φ(−a) − e^ε Φ(−b)` with `a = ε/μ − μ/2`,
//! `b = a + μ` (Balle and Wang). Since `e^ε φ(b) = φ(a)`, Mills ratios `R(x) = Φ(−x)/φ(x)` give `δ = φ(a)·(R(a) − R(b))`: the exponent
//! is taken out, nothing overflows or underflows for any μ. All digits cancel in the difference where μ is small or `a` large; there it
//! is a series of positive terms around the middle `m = ε/μ`, with `h = μ/2`:
//!
//! ```text
//! R(m − h) − R(m + h) = 2 Σ_{k odd} I_k(m) h^k/k!     I_k(m) = ∫₀^∞ t^k e^{−t²/2 − mt} dt = (−1)^k R^{(k)}(m)
//! ```
//! Answers are rounded to the safe side: ε and δ upward, μ downward. Every one is checked against bounds that need no series, no
//! fraction and no search (Mills, Birnbaum and Sampford); what lies outside of them is an internal error, never an answer.

use super::normal::{LN_SQRT_TAU, density, mills, upper};
use crate::error::{Error, Result, check_finite};
use std::f64::consts::LN_2;

/// A privacy budget (ε, δ).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// ε, which is at least 0.
    pub epsilon: f64,
    /// δ in (0, 1).
    pub delta: f64,
}

impl Budget {
    /// Refuses what is no budget.
    pub fn new(epsilon: f64, delta: f64) -> Result<Budget> {
        check_finite("epsilon", epsilon)?;
        if epsilon < 0.0 {
            return Err(Error::parameter("epsilon", epsilon, "at least 0"));
        }
        check_delta(delta)?;
        Ok(Budget { epsilon, delta })
    }
}

fn check_delta(delta: f64) -> Result<()> {
    if delta > 0.0 && delta < 1.0 { Ok(()) } else { Err(Error::parameter("delta", delta, "in (0, 1)")) }
}

/// μ whose square, and with it every ε, is a number.
fn check_mu(mu: f64) -> Result<()> {
    check_finite("gdp_mu", mu)?;
    if (0.0..=MOST_MU).contains(&mu) { Ok(()) } else { Err(Error::parameter("gdp_mu", mu, "0 to 1e150")) }
}

const MOST_MU: f64 = 1e150;

/// The smallest δ with which μ-GDP gives (ε, δ), rounded up; 0 for μ = 0.
pub fn delta_of_epsilon(gdp_mu: f64, epsilon: f64) -> Result<f64> {
    check_mu(gdp_mu)?;
    Budget::new(epsilon, 0.5)?;
    Ok(ln_delta(gdp_mu, epsilon)?.exp().min(1.0))
}

/// The smallest ε with which μ-GDP gives (ε, δ), rounded up.
pub fn epsilon_of_delta(gdp_mu: f64, delta: f64) -> Result<f64> {
    check_mu(gdp_mu)?;
    check_delta(delta)?;
    epsilon_of_ln_delta(gdp_mu, delta.ln())
}

/// The same for a δ that may be too small for a number.
pub(super) fn epsilon_of_ln_delta(mu: f64, target: f64) -> Result<f64> {
    let at_zero = Point { mu, a: -0.5 * mu };
    if mu == 0.0 || at_zero.ln_delta()? <= target {
        return Ok(0.0);
    }
    // δ < Φ(−a) ≤ e^{−a²/2}/2 for a ≥ 0, and δ < ½ from a = 0 on.
    let most = (-2.0 * (target + LN_2)).max(0.0).sqrt();
    // In a, which has no digits to lose: μ·a + μ²/2 is a difference of large numbers only where ε is small beside both.
    let a = last(most, -0.5 * mu, |a| Ok(Point { mu, a }.ln_delta()? <= target))?;
    let (linear, square) = (mu * a, 0.5 * mu * mu);
    Ok((linear + square + 4.0 * f64::EPSILON * (linear.abs() + square)).max(0.0))
}

/// The largest μ with which μ-GDP gives a budget, rounded down.
pub fn gdp_mu_of_budget(budget: Budget) -> Result<f64> {
    let Budget { epsilon, delta } = Budget::new(budget.epsilon, budget.delta)?;
    largest_mu(|mu| Ok(ln_delta(mu, epsilon)? <= delta.ln()), epsilon)
}

/// The largest μ that something holds for which holds for all smaller ones and not for all; sought around `a = 0`, where `μ = √(2ε)`.
pub(crate) fn largest_mu(holds: impl Fn(f64) -> Result<bool>, epsilon: f64) -> Result<f64> {
    let mut high = 1.0 + (2.0 * epsilon).sqrt();
    while holds(high)? {
        high *= 2.0;
    }
    last(0.0, high, holds)
}

/// ρ-zCDP of μ-GDP: μ²/2.
pub fn zcdp_rho_of_gdp(gdp_mu: f64) -> f64 {
    0.5 * gdp_mu * gdp_mu
}

/// The μ of a Gaussian mechanism with ρ-zCDP: √(2ρ).
pub fn gdp_mu_of_zcdp(zcdp_rho: f64) -> Result<f64> {
    check_finite("zcdp_rho", zcdp_rho)?;
    if zcdp_rho < 0.0 {
        return Err(Error::parameter("zcdp_rho", zcdp_rho, "at least 0"));
    }
    Ok((2.0 * zcdp_rho).sqrt())
}

/// μ of mechanisms that run one after another on the same data: the root of the sum of squares.
pub fn compose(gdp_mus: &[f64]) -> f64 {
    gdp_mus.iter().map(|mu| mu * mu).sum::<f64>().sqrt()
}

/// The natural logarithm of δ(ε) for μ-GDP, rounded up.
pub(crate) fn ln_delta(mu: f64, epsilon: f64) -> Result<f64> {
    if mu == 0.0 {
        return Ok(f64::NEG_INFINITY);
    }
    let (ratio, half) = (epsilon / mu, 0.5 * mu);
    if !ratio.is_finite() {
        return Ok(f64::NEG_INFINITY);
    }
    // Rounded down, so that δ is rounded up; no ε is negative.
    let a = ratio - half - 2.0 * f64::EPSILON * (ratio + half);
    Point { mu, a: a.max(-half) }.ln_delta()
}

/// A point of the curve: `a = ε/μ − μ/2`, at least `−μ/2`.
#[derive(Clone, Copy, Debug)]
struct Point {
    mu: f64,
    a: f64,
}

/// Below this middle the series' recurrence would need too many terms.
const SERIES_FROM: f64 = 2.0;
/// Terms fall at least like 2^{−k}.
const SERIES_TERMS: usize = 60;
/// Where the recurrence for the ratios of `I_k` starts: what it starts with is forgotten like `e^{−2m(√start − √k)}`, 1e-16 at k = 60.
const RECURRENCE_FROM: usize = 320;

impl Point {
    /// `ln δ`, rounded up by what it may have lost, and checked.
    fn ln_delta(self) -> Result<f64> {
        // δ < φ(a)/a: so far out, products of small factors would vanish, and the exponent alone is exact to all digits.
        if self.a > 1e20 {
            return Ok(-0.5 * self.a * self.a);
        }
        let value = self.computed();
        // Rounding of the exponent a²/2, and some hundred units in the last place for all the rest: relative to δ, and to 1 − δ where
        // that is smaller.
        let allowance = (1e-13 + 4.0 * f64::EPSILON * self.a * self.a) * (-2.0 * value).min(1.0);
        let (low, high) = self.elementary();
        let slack = allowance + 1e-12 * value.abs();
        if !(value >= low - slack && value <= high + slack) {
            let Point { mu, a } = self;
            let what = format!("ln δ of μ = {mu:e} at a = {a:e} is {value:e}");
            return Err(Error::Internal { what, expected: format!("between {low:e} and {high:e}") });
        }
        Ok((value + allowance).min(0.0))
    }

    fn computed(self) -> f64 {
        let Point { mu, a } = self;
        let half = 0.5 * mu;
        let (middle, b) = ((a + half).max(0.0), a + mu);
        if half <= 0.5_f64.max(0.5 * middle) {
            return if middle < SERIES_FROM {
                difference(middle, half).ln()
            } else {
                -0.5 * a * a - LN_SQRT_TAU + (2.0 * odd_series(middle, half)).ln()
            };
        }
        if a < 0.0 {
            // 1 − δ, of which no digit is lost as δ → 1.
            (-(density(a) * (mills(-a) + mills(b)))).ln_1p()
        } else {
            -0.5 * a * a - LN_SQRT_TAU + (mills(a) - mills(b)).ln()
        }
    }

    /// Bounds of `ln δ` by elementary functions: `2/(x + √(x² + 4)) ≤ R(x) ≤ 4/(3x + √(x² + 8))` for x ≥ 0 (Birnbaum, Sampford), and
    /// for the slope of R `1/(x² + 3) ≤ 1 − x·R(x) ≤ 1/(x² + 1)`, which falls with x.
    fn elementary(self) -> (f64, f64) {
        let Point { mu, a } = self;
        let b = a + mu;
        let least = |x: f64| 2.0 / (x + x.hypot(2.0));
        let most = |x: f64| 4.0 / (3.0 * x + x.hypot(8.0_f64.sqrt()));
        let exponent = -0.5 * a * a - LN_SQRT_TAU;
        let by_slope = exponent + (mu / (b * b + 3.0)).ln();
        if a >= 0.0 {
            let low = by_slope.max(exponent + (least(a) - most(b)).max(0.0).ln());
            return (low, exponent + (mu / (a * a + 1.0)).min(most(a)).ln());
        }
        // R(a) = √(2π)e^{a²/2} − R(−a), and δ = 1 − φ(a)(R(−a) + R(b)).
        let slope = exponent.exp() * (1.0 + a * least(-a)) - a;
        let rest = |bound: &dyn Fn(f64) -> f64| (-exponent.exp() * (bound(-a) + bound(b))).max(-1.0).ln_1p();
        (by_slope.max(rest(&most)), (mu * slope).ln().min(rest(&least)))
    }
}

/// `Σ_{k odd} I_k(m) h^k/k!` for m ≥ 2 and h ≤ m/2, from the ratios `I_k/I_{k−1} = k/(m + I_{k+1}/I_k)`, which are stable downwards.
fn odd_series(middle: f64, half: f64) -> f64 {
    let mut ratios = [0.0; SERIES_TERMS + 1];
    let mut ratio = 0.0;
    for k in (1..=RECURRENCE_FROM).rev() {
        ratio = k as f64 / (middle + ratio);
        if k <= SERIES_TERMS {
            ratios[k] = ratio;
        }
    }
    let (mut term, mut sum) = (mills(middle), 0.0);
    for (k, ratio) in ratios.iter().enumerate().skip(1) {
        term *= ratio * half / k as f64;
        if k % 2 == 1 {
            sum += term;
        }
    }
    sum
}

/// `δ = Φ(m + h) − Φ(m − h) − (e^{2mh} − 1)Φ(−m − h)` for m < 2 and h ≤ 1: no more than one digit cancels. The first difference is its
/// Taylor series around m, `2hφ(m) Σ He_{2j}(m) h^{2j}/(2j + 1)!`.
fn difference(middle: f64, half: f64) -> f64 {
    let (mut before, mut hermite) = (0.0, 1.0);
    let (mut power, mut sum) = (1.0, 0.0);
    for k in 0..40_u32 {
        if k % 2 == 0 {
            sum += hermite * power / f64::from(k + 1);
        }
        (before, hermite) = (hermite, middle * hermite - f64::from(k) * before);
        power *= half / f64::from(k + 1);
    }
    2.0 * half * density(middle) * sum - (2.0 * middle * half).exp_m1() * upper(middle + half)
}

/// The last place before `bad`, coming from `good`, at which something holds; it holds at `good` and not at `bad`.
fn last(mut good: f64, mut bad: f64, holds: impl Fn(f64) -> Result<bool>) -> Result<f64> {
    // Halving an interval of f64 ends after at most 2100 turns, where one end is 0.
    loop {
        let middle = 0.5 * (good + bad);
        if middle == good || middle == bad {
            return Ok(good);
        }
        if holds(middle)? { good = middle } else { bad = middle }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> impl Iterator<Item = [f64; 3]> {
        text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let numbers: Vec<f64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
            numbers.try_into().unwrap_or_else(|_| panic!("{line}"))
        })
    }

    /// 50-digit values from mpmath: δ = Φ(−a) − e^ε Φ(−b).
    #[test]
    fn reference_values() {
        let mut count = 0;
        for [mu, epsilon, delta] in lines(include_str!("../../../tests/data/gdp.txt")) {
            let excess = delta_of_epsilon(mu, epsilon).unwrap() / delta - 1.0;
            assert!((0.0..4e-12).contains(&excess), "{mu}, {epsilon}: {excess:e}");
            count += 1;
        }
        assert!(count >= 300, "{count}");
    }

    /// The same for μ from 1e-12 to 1e9, δ from 1e-300 to 1 − 1e-12, and ε to 1e15: never below, and hardly above. Data by
    /// tests/data/gdp_extremes.py; both sides are rounded to f64 here.
    #[test]
    fn extremes_are_never_below_the_truth() {
        let mut count = 0;
        for [mu, delta, epsilon] in lines(include_str!("../../../tests/data/gdp_extremes.txt")) {
            let got = epsilon_of_delta(mu, delta).unwrap();
            assert!(
                got >= epsilon && got <= epsilon * (1.0 + 1e-9) + 1e-12 * mu,
                "{mu}, {delta}: {got} {epsilon}"
            );
            count += 1;
        }
        for [epsilon, delta, mu] in lines(include_str!("../../../tests/data/gdp_inverse.txt")) {
            let got = gdp_mu_of_budget(Budget { epsilon, delta }).unwrap();
            assert!(got <= mu && got >= mu * (1.0 - 1e-11), "{epsilon}, {delta}: {got} {mu}");
            count += 1;
        }
        assert!(count >= 1600, "{count}");
    }

    /// ε must fall with δ and grow with μ: between grid points, and across the borders of the formulas.
    #[test]
    fn epsilon_is_monotone() {
        let powers = |from: f64, to: f64, count: u32| {
            (0..=count).map(move |i| 10_f64.powf(from + (to - from) * f64::from(i) / f64::from(count)))
        };
        let tails = || powers(-300.0, -0.3, 60).chain(powers(-0.31, -12.0, 20).map(|rest| 1.0 - rest));
        let mut below = vec![0.0; tails().count()];
        for mu in powers(-12.0, 9.0, 211) {
            let mut before = f64::INFINITY;
            for (delta, below) in tails().zip(&mut below) {
                let epsilon = epsilon_of_delta(mu, delta).unwrap();
                assert!(epsilon <= before * (1.0 + 1e-12) && epsilon >= *below, "{mu}, {delta}: {epsilon}");
                (before, *below) = (epsilon, epsilon);
            }
        }
    }

    #[test]
    fn conversions_invert_each_other() {
        for mu in [1e-3, 0.1, 1.0, 4.7, 30.0, 1e4, 1e8] {
            for delta in [0.3, 1e-2, 1e-5, 1e-12, 1e-100, 1e-300] {
                let epsilon = epsilon_of_delta(mu, delta).unwrap();
                if epsilon == 0.0 {
                    assert!(delta_of_epsilon(mu, 0.0).unwrap() <= delta);
                    continue;
                }
                // An ε that is rounded to f64 is uncertain by 1e-16 of itself, which moves δ by much where μ is large.
                let uncertain = 1e-14 * (1.0 + epsilon / mu) * (1.0 + mu);
                let back = delta_of_epsilon(mu, epsilon).unwrap();
                assert!((back / delta - 1.0).abs() < 1e-9 + 40.0 * uncertain, "{mu}, {delta}: {back}");
                let found = gdp_mu_of_budget(Budget { epsilon, delta }).unwrap();
                assert!((found / mu - 1.0).abs() < 1e-10, "{mu}, {delta}: {found}");
            }
        }
        assert_eq!(compose(&[3.0, 4.0]), 5.0);
        assert_eq!(gdp_mu_of_zcdp(zcdp_rho_of_gdp(1.7)).unwrap(), 1.7);
    }

    /// The run-time check must be able to fail: its bounds are close, and what a broken formula would say lies outside.
    #[test]
    fn elementary_bounds_are_close() {
        for mu in [1e-9, 1e-3, 0.3, 1.0, 3.0, 50.0, 1e6] {
            for a in [-0.5_f64, 0.0, 1e-3, 0.7, 2.0, 5.0, 30.0] {
                let point = Point { mu, a: a.max(-0.5 * mu) };
                let (low, high) = point.elementary();
                let value = point.computed();
                assert!(low <= value + 1e-12 && value <= high + 1e-12, "{point:?}: {low} {value} {high}");
                assert!(high - low < 2.5, "{point:?}: {low} {high}");
            }
        }
    }

    #[test]
    fn what_is_no_budget_is_named() {
        assert!(Budget::new(-1.0, 0.1).unwrap_err().to_string().contains("epsilon is -1"));
        assert!(Budget::new(1.0, 1.0).unwrap_err().to_string().contains("delta is 1"));
        assert!(epsilon_of_delta(f64::NAN, 0.1).is_err() && epsilon_of_delta(1.0, 0.0).is_err());
        assert!(epsilon_of_delta(1e200, 0.1).unwrap_err().to_string().contains("gdp_mu is 1"));
    }
}
