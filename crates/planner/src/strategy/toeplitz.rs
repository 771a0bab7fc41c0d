//! Toeplitz strategies: square roots of workloads, their damped and cut forms, given coefficients of `C` or of `C⁻¹`. Each is known by the
//! first columns of `C` and of `C⁻¹`, in closed form where there is one.

use super::{Strategy, series};
use crate::error::{Error, Result, check_finite};
use crate::utility::workload::Workload;

impl Strategy {
    /// Powers of one number: `c_t = decay^t`.
    pub fn one_parameter(decay: f64) -> Result<Strategy> {
        in_unit_interval("decay", decay)?;
        Ok(Strategy::OneParameter { decay })
    }

    /// The square root of a Toeplitz workload that starts with a positive coefficient.
    pub fn square_root(workload: Workload) -> Result<Strategy> {
        match workload.coefs(1) {
            Some(coefs) if coefs[0] > 0.0 => Ok(Strategy::SquareRoot(workload)),
            Some(coefs) => {
                Err(Error::parameter("workload coefficient 0", coefs[0], "positive: it has a square root"))
            }
            None => Err(Error::parameter("workload", "not Toeplitz", "a Toeplitz one, for its square root")),
        }
    }

    /// The damped square root.
    pub fn damped(damping: f64) -> Result<Strategy> {
        in_unit_interval("damping", damping)?;
        Ok(Strategy::Damped { damping })
    }

    /// Toeplitz with these coefficients; banded if they are fewer than the steps.
    pub fn toeplitz(coefs: Vec<f64>) -> Result<Strategy> {
        series::check(&coefs, "strategy coefficient")?;
        Ok(Strategy::Toeplitz(coefs))
    }

    /// The square root of the prefix sums, cut to its first diagonals.
    pub fn banded_square_root(num_bands: usize) -> Result<Strategy> {
        check_bands(num_bands)?;
        Ok(Strategy::Toeplitz(series::binomial(-0.5, num_bands)))
    }

    /// `C⁻¹` with these coefficients.
    pub fn banded_inverse(noising_coefs: Vec<f64>) -> Result<Strategy> {
        series::check(&noising_coefs, "noising coefficient")?;
        Ok(Strategy::BandedInverse(noising_coefs))
    }

    /// BISR: the inverse square root of the prefix sums, cut to its first diagonals.
    pub fn banded_inverse_square_root(num_bands: usize) -> Result<Strategy> {
        check_bands(num_bands)?;
        Ok(Strategy::BandedInverse(series::binomial(0.5, num_bands)))
    }
}

/// The first coefficients of the inverse of a Toeplitz matrix.
pub(super) fn inverse(coefs: &[f64], n: usize) -> Result<Vec<f64>> {
    series::check_product(coefs.len(), n)?;
    Ok(series::inverse(coefs, n))
}

/// Most steps for which the square root of an arbitrary Toeplitz workload is computed.
const SQUARE_ROOT_LIMIT: usize = 100_000;

/// The first coefficients of `A^{1/2}`.
pub(super) fn square_root_of(workload: &Workload, n: usize) -> Result<Vec<f64>> {
    match workload {
        Workload::Prefix => Ok(series::binomial(-0.5, n)),
        Workload::Momentum { beta, weight_decay } => Ok(quadratic_power(*beta, 1.0 - weight_decay, -0.5, n)),
        _ if n > SQUARE_ROOT_LIMIT => Err(Error::TooLarge {
            what: "the square root of an arbitrary Toeplitz workload".into(),
            cost: "n²/2",
            n,
            limit: SQUARE_ROOT_LIMIT,
        }),
        _ => Ok(series::square_root(&workload.coefs(n).expect("checked when it was made"), n)),
    }
}

/// The first coefficients of `A⁻¹`, if the workload is Toeplitz.
pub(super) fn inverse_of_output(workload: &Workload, n: usize) -> Result<Option<Vec<f64>>> {
    Ok(Some(match (workload, workload.coefs(n)) {
        (Workload::Prefix, _) => padded(&[1.0, -1.0], n),
        (Workload::Momentum { beta, weight_decay }, _) => {
            let gamma = 1.0 - weight_decay;
            padded(&[1.0, -(beta + gamma), beta * gamma], n)
        }
        (_, Some(coefs)) => inverse(&coefs, n)?,
        (_, None) => return Ok(None),
    }))
}

/// The first coefficients of `A^{−1/2}`.
pub(super) fn inverse_of_square_root(workload: &Workload, n: usize) -> Result<Vec<f64>> {
    match workload {
        Workload::Prefix => Ok(series::binomial(0.5, n)),
        Workload::Momentum { beta, weight_decay } => Ok(quadratic_power(*beta, 1.0 - weight_decay, 0.5, n)),
        _ => inverse(&square_root_of(workload, n)?, n),
    }
}

/// `((1 − βx)(1 − γx))^p`. With `q` the quadratic, `q f' = p q' f` gives
/// `(t+1) f_{t+1} = (β+γ)(t − p) f_t − βγ(t − 1 − 2p) f_{t−1}`: every coefficient keeps its own digits.
fn quadratic_power(beta: f64, gamma: f64, p: f64, n: usize) -> Vec<f64> {
    let (sum, product) = (beta + gamma, beta * gamma);
    let mut coefs = Vec::with_capacity(n);
    let (mut last, mut coef) = (0.0, 1.0);
    for t in 0..n {
        coefs.push(coef);
        let t = t as f64;
        let next = (sum * (t - p) * coef - product * (t - 1.0 - 2.0 * p) * last) / (t + 1.0);
        (last, coef) = (coef, next);
    }
    coefs
}

pub(super) fn damp(mut coefs: Vec<f64>, damping: f64) -> Vec<f64> {
    let mut factor = 1.0;
    for coef in &mut coefs {
        *coef *= factor;
        factor *= 1.0 - damping;
    }
    coefs
}

pub(super) fn powers(base: f64, n: usize) -> Vec<f64> {
    std::iter::successors(Some(1.0), |power| Some(power * base)).take(n).collect()
}

pub(super) fn padded(coefs: &[f64], n: usize) -> Vec<f64> {
    let mut coefs = coefs.to_vec();
    coefs.resize(n, 0.0);
    coefs
}

fn in_unit_interval(name: &str, value: f64) -> Result<()> {
    check_finite(name, value)?;
    if (0.0..1.0).contains(&value) { Ok(()) } else { Err(Error::parameter(name, value, "in [0, 1)")) }
}

fn check_bands(num_bands: usize) -> Result<()> {
    if num_bands == 0 { Err(Error::parameter("number of bands", 0, "at least 1")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_recurrences_are_the_square_roots() {
        let momentum = Workload::momentum(0.9, 0.01).unwrap();
        let strategy = Strategy::square_root(momentum.clone()).unwrap();
        let root = strategy.coefs(60).unwrap().unwrap();
        let square = series::multiply(&root, &root, 60);
        let expected = momentum.coefs(60).unwrap();
        assert!(square.iter().zip(&expected).all(|(a, b)| (a / b - 1.0).abs() < 1e-12));
        let unit = series::multiply(&root, &strategy.inverse_coefs(60).unwrap().unwrap(), 60);
        assert!((unit[0] - 1.0).abs() < 1e-14 && unit[1..].iter().all(|c| c.abs() < 1e-12));
    }

    #[test]
    fn bad_parameters_are_named() {
        let message = |strategy: Result<Strategy>| strategy.unwrap_err().to_string();
        assert!(message(Strategy::one_parameter(1.0)).contains("decay is 1: expected in [0, 1)"));
        assert!(message(Strategy::damped(f64::NAN)).contains("damping is NaN"));
        assert!(message(Strategy::toeplitz(vec![0.0, 1.0])).contains("strategy coefficient 0 is 0"));
        assert!(message(Strategy::toeplitz(vec![])).contains("number of strategy coefficients is 0"));
        assert!(message(Strategy::banded_square_root(0)).contains("number of bands is 0"));
        let infinite = vec![1.0, f64::INFINITY];
        assert!(message(Strategy::banded_inverse(infinite)).contains("noising coefficient 1 is inf"));
        let negative = Workload::toeplitz(vec![-1.0]).unwrap();
        assert!(message(Strategy::square_root(negative)).contains("workload coefficient 0 is -1"));
    }
}
