//! Gaussian differential privacy, exactly: μ-GDP ↔ (ε, δ), ρ-zCDP, noise multipliers, composition.
//!
//! The Gaussian mechanism with sensitivity over standard deviation μ satisfies `δ(ε) = Φ(−a) − e^ε Φ(−b)` with `a = ε/μ − μ/2`,
//! `b = a + μ` (Balle and Wang). As written, all digits cancel when μ is small or δ tiny. With `Φ(−x) = ½ e^{−x²/2} erfcx(x/√2)`
//! and `erfcx(x) = (2/√π) ∫ e^{−t² − 2xt} dt` the two terms combine into one integral of a positive function,
//!
//! ```text
//! δ = (1/√π) ∫₀^∞ e^{−(t + a/√2)²} (1 − e^{−√2·μ·t}) dt
//! ```
//! which a trapezoidal rule in a doubly exponential variable gives to all digits, for δ down to 1e-300 and below.

use crate::error::{Error, Result, check_finite};
use std::f64::consts::{FRAC_1_SQRT_2, PI, SQRT_2};

/// A privacy budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// ε ≥ 0.
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

fn check_mu(mu: f64) -> Result<()> {
    check_finite("gdp_mu", mu)?;
    if mu >= 0.0 { Ok(()) } else { Err(Error::parameter("gdp_mu", mu, "at least 0")) }
}

/// The smallest δ with which μ-GDP gives (ε, δ); 0 for μ = 0.
pub fn delta_of_epsilon(gdp_mu: f64, epsilon: f64) -> Result<f64> {
    check_mu(gdp_mu)?;
    Budget::new(epsilon, 0.5)?;
    Ok(ln_delta(gdp_mu, epsilon).exp())
}

/// The smallest ε with which μ-GDP gives (ε, δ).
pub fn epsilon_of_delta(gdp_mu: f64, delta: f64) -> Result<f64> {
    check_mu(gdp_mu)?;
    check_delta(delta)?;
    let target = delta.ln();
    if ln_delta(gdp_mu, 0.0) <= target {
        return Ok(0.0);
    }
    // Beyond a = √(−2 ln δ) even the first term alone is below δ.
    let high = gdp_mu * ((-2.0 * target).sqrt() + 0.5 * gdp_mu);
    Ok(root(0.0, high, |epsilon| ln_delta(gdp_mu, epsilon) - target))
}

/// The largest μ with which μ-GDP gives a budget.
pub fn gdp_mu_of_budget(budget: Budget) -> Result<f64> {
    let Budget { epsilon, delta } = Budget::new(budget.epsilon, budget.delta)?;
    let target = delta.ln();
    let mut high = 1.0;
    while ln_delta(high, epsilon) < target {
        high *= 2.0;
    }
    // δ grows with μ: the sign is turned so that the function falls.
    Ok(root(0.0, high, |mu| target - ln_delta(mu, epsilon)))
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

/// The natural logarithm of δ(ε) for μ-GDP.
pub(crate) fn ln_delta(mu: f64, epsilon: f64) -> f64 {
    if mu == 0.0 {
        return f64::NEG_INFINITY;
    }
    let a = epsilon / mu - 0.5 * mu;
    let shift = a * FRAC_1_SQRT_2;
    // The largest exponent is taken out, so that nothing underflows: at t = 0 for a ≥ 0, at t = −a/√2 otherwise.
    let lead = if shift > 0.0 { -shift * shift } else { 0.0 };
    let integrand = |t: f64| {
        let exponent = -(t + shift) * (t + shift) - lead;
        if exponent < -745.0 { 0.0 } else { exponent.exp() * -(-SQRT_2 * mu * t).exp_m1() }
    };
    lead + (positive_integral(integrand, shift) / PI.sqrt()).ln()
}

/// `∫₀^∞`, with t = c·exp(u − e^{−u}): smooth at both ends, and c the scale on which the integrand lives. The trapezoidal rule then
/// converges faster than any power of its step.
fn positive_integral(integrand: impl Fn(f64) -> f64, shift: f64) -> f64 {
    // Gaussian decay for shift ≤ 0 happens around −shift + O(1); exponential decay on the scale 1/(2·shift) for a large one.
    let scale = if shift > 0.5 { 0.5 / shift } else { 1.0 + (-shift).max(0.0) };
    const STEP: f64 = 1.0 / 32.0;
    let mut sum = 0.0;
    // u from −4.5 (t below 1e-40 of the scale) to 5.5 (t = 245 scales).
    for i in -144..=176 {
        let u = f64::from(i) * STEP;
        let t = scale * (u - (-u).exp()).exp();
        sum += integrand(t) * t * (1.0 + (-u).exp());
    }
    sum * STEP
}

/// The zero of a function that falls from a positive value at `low` to a non-positive one at `high`: bisection, then to the last bits.
fn root(mut low: f64, mut high: f64, f: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if f(middle) > 0.0 { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 50-digit values from mpmath: δ = Φ(−a) − e^ε Φ(−b).
    #[test]
    fn reference_values() {
        let text = include_str!("../../tests/data/gdp.txt");
        let (mut count, mut worst) = (0, 0.0_f64);
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let numbers: Vec<f64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
            let [mu, epsilon, delta] = numbers[..] else { panic!("{line}") };
            let got = delta_of_epsilon(mu, epsilon).unwrap();
            worst = worst.max((got / delta - 1.0).abs());
            count += 1;
        }
        println!("{count} values, worst relative error {worst:e}");
        assert!(count >= 300 && worst <= 1e-12, "{count}, {worst:e}");
    }

    #[test]
    fn conversions_invert_each_other() {
        for mu in [1e-3, 0.1, 1.0, 4.7, 30.0] {
            for delta in [1e-2, 1e-5, 1e-12, 1e-100, 1e-300] {
                let epsilon = epsilon_of_delta(mu, delta).unwrap();
                if epsilon == 0.0 {
                    assert!(delta_of_epsilon(mu, 0.0).unwrap() <= delta);
                    continue;
                }
                let back = delta_of_epsilon(mu, epsilon).unwrap();
                assert!((back / delta - 1.0).abs() < 1e-9, "{mu}, {delta}: {back}");
                let found = gdp_mu_of_budget(Budget { epsilon, delta }).unwrap();
                assert!((found / mu - 1.0).abs() < 1e-10, "{mu}, {delta}: {found}");
            }
        }
        assert_eq!(compose(&[3.0, 4.0]), 5.0);
        assert_eq!(gdp_mu_of_zcdp(zcdp_rho_of_gdp(1.7)).unwrap(), 1.7);
    }

    #[test]
    fn what_is_no_budget_is_named() {
        assert!(Budget::new(-1.0, 0.1).unwrap_err().to_string().contains("epsilon is -1"));
        assert!(Budget::new(1.0, 1.0).unwrap_err().to_string().contains("delta is 1"));
        assert!(epsilon_of_delta(f64::NAN, 0.1).is_err() && epsilon_of_delta(1.0, 0.0).is_err());
    }
}
