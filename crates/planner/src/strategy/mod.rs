//! Strategies `C`: a closed set, because each comes with a proof of its own.
//!
//! | strategy | `C` | noise per step | state |
//! |---|---|---|---|
//! | [`Strategy::Identity`] | `I`, input perturbation | 1 row | none |
//! | [`Strategy::Output`] | `A`, output perturbation | as many rows as `A⁻¹` has diagonals | none |
//! | [`Strategy::OneParameter`] | `c_t = λ^t` | 1 row | 1 buffer |
//! | [`Strategy::SquareRoot`] | `A^{1/2}`, optimal among Toeplitz for max loss | all rows | none |
//! | [`Strategy::Damped`] | `c_t (1 − ν)^t` of the square root | all rows | none |
//! | [`Strategy::Toeplitz`] | given coefficients; few of them: banded | ring, or all rows | bands − 1 |
//! | [`Strategy::Banded`] | given rows | ring | bands − 1 |
//! | [`Strategy::Blt`] | buffered linear Toeplitz | 1 row | d buffers |
//! | [`Strategy::Dense`] | any lower-triangular matrix | all rows | none |
//! | [`Strategy::Tree`] | binary tree | nodes of the tree | none |
//! | [`Strategy::BandedInverse`] | given coefficients of `C⁻¹` (BISR) | bands rows | none |

pub mod blt;
pub mod names;
pub mod series;
pub mod tree;

pub use blt::Blt;
pub use tree::{Estimator, Tree};

use crate::error::{Error, Result, check_finite};
use crate::factorization::lower_triangular::LowerTriangular;
use crate::utility::workload::Workload;

/// A strategy of any number of steps.
#[derive(Clone, Debug, PartialEq)]
pub enum Strategy {
    /// Independent noise on every gradient.
    Identity,
    /// Independent noise on every released value: `C = A`.
    Output(Workload),
    /// `c_t = decay^t`.
    OneParameter {
        /// In [0, 1).
        decay: f64,
    },
    /// The square root of a Toeplitz workload.
    SquareRoot(Workload),
    /// The square root of the prefix sums, damped: `c_t (1 − damping)^t`.
    Damped {
        /// In [0, 1).
        damping: f64,
    },
    /// Toeplitz with these coefficients, zero beyond them.
    Toeplitz(Vec<f64>),
    /// Row `t` as `[C[t,t], C[t,t−1], …]`, one row per step.
    Banded(Vec<Vec<f64>>),
    /// Buffered linear Toeplitz.
    Blt(Blt),
    /// Any lower-triangular matrix.
    Dense(LowerTriangular),
    /// Tree aggregation.
    Tree(Estimator),
    /// `C⁻¹` is Toeplitz with these coefficients, zero beyond them.
    BandedInverse(Vec<f64>),
}

impl Strategy {
    /// `c_t = decay^t`.
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

    /// Rows `[C[t,t], C[t,t−1], …]`, one per step.
    pub fn banded(rows: Vec<Vec<f64>>) -> Result<Strategy> {
        for (t, row) in rows.iter().enumerate() {
            series::check(row, &format!("row {t}, coefficient"))?;
            if row.len() > t + 1 {
                return Err(Error::parameter(
                    format!("length of row {t}"),
                    row.len(),
                    format!("at most {}", t + 1),
                ));
            }
        }
        crate::error::check_steps(rows.len())?;
        Ok(Strategy::Banded(rows))
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

    /// One line for people.
    pub fn describe(&self) -> String {
        match self {
            Strategy::Identity => "identity: independent noise on every gradient".into(),
            Strategy::Output(workload) => {
                format!("workload: independent noise on every output ({workload:?})")
            }
            Strategy::OneParameter { decay } => format!("one parameter: c_t = {decay}^t"),
            Strategy::SquareRoot(workload) => format!("Toeplitz: square root of the workload ({workload:?})"),
            Strategy::Damped { damping } => {
                format!("Toeplitz: square root of the prefix sums, damped by {damping}")
            }
            Strategy::Toeplitz(coefs) => format!("Toeplitz with {} bands", coefs.len()),
            Strategy::Banded(rows) => {
                format!("banded, {} bands", rows.iter().map(Vec::len).max().unwrap_or(0))
            }
            Strategy::Blt(blt) => format!("BLT with {} buffers", blt.num_buffers()),
            Strategy::Dense(matrix) => format!("dense lower-triangular, {} steps", matrix.len()),
            Strategy::Tree(estimator) => format!("binary tree, {estimator:?} estimator"),
            Strategy::BandedInverse(coefs) => format!("banded inverse, {} bands", coefs.len()),
        }
    }

    /// The first `n` coefficients of `C`, if it is Toeplitz.
    pub(crate) fn coefs(&self, n: usize) -> Result<Option<Vec<f64>>> {
        Ok(Some(match self {
            Strategy::Identity => padded(&[1.0], n),
            Strategy::Output(workload) => return Ok(workload.coefs(n)),
            Strategy::OneParameter { decay } => powers(*decay, n),
            Strategy::SquareRoot(workload) => square_root_of(workload, n)?,
            Strategy::Damped { damping } => damp(series::binomial(-0.5, n), *damping),
            Strategy::Toeplitz(coefs) => padded(coefs, n),
            Strategy::Blt(blt) => blt.strategy_coefs(n),
            Strategy::BandedInverse(coefs) => inverse(coefs, n)?,
            Strategy::Banded(_) | Strategy::Dense(_) | Strategy::Tree(_) => return Ok(None),
        }))
    }

    /// The first `n` coefficients of `C⁻¹`, if it is Toeplitz.
    pub(crate) fn inverse_coefs(&self, n: usize) -> Result<Option<Vec<f64>>> {
        Ok(Some(match self {
            Strategy::Identity => padded(&[1.0], n),
            Strategy::Output(workload) => match (workload, workload.coefs(n)) {
                (Workload::Prefix, _) => padded(&[1.0, -1.0], n),
                (Workload::Momentum { beta, weight_decay }, _) => {
                    let gamma = 1.0 - weight_decay;
                    padded(&[1.0, -(beta + gamma), beta * gamma], n)
                }
                (_, Some(coefs)) => inverse(&coefs, n)?,
                (_, None) => return Ok(None),
            },
            Strategy::OneParameter { decay } => padded(&[1.0, -decay], n),
            Strategy::SquareRoot(Workload::Prefix) => series::binomial(0.5, n),
            Strategy::SquareRoot(Workload::Momentum { beta, weight_decay }) => {
                quadratic_power(*beta, 1.0 - weight_decay, 0.5, n)
            }
            Strategy::SquareRoot(workload) => inverse(&square_root_of(workload, n)?, n)?,
            Strategy::Damped { damping } => damp(series::binomial(0.5, n), *damping),
            Strategy::Toeplitz(coefs) => inverse(coefs, n)?,
            Strategy::Blt(blt) => blt.noising_coefs(n),
            Strategy::BandedInverse(coefs) => padded(coefs, n),
            Strategy::Banded(_) | Strategy::Dense(_) | Strategy::Tree(_) => return Ok(None),
        }))
    }
}

fn inverse(coefs: &[f64], n: usize) -> Result<Vec<f64>> {
    series::check_product(coefs.len(), n)?;
    Ok(series::inverse(coefs, n))
}

/// Most steps for which the square root of an arbitrary Toeplitz workload is computed.
const SQUARE_ROOT_LIMIT: usize = 100_000;

fn square_root_of(workload: &Workload, n: usize) -> Result<Vec<f64>> {
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

fn damp(mut coefs: Vec<f64>, damping: f64) -> Vec<f64> {
    let mut factor = 1.0;
    for coef in &mut coefs {
        *coef *= factor;
        factor *= 1.0 - damping;
    }
    coefs
}

fn powers(base: f64, n: usize) -> Vec<f64> {
    std::iter::successors(Some(1.0), |power| Some(power * base)).take(n).collect()
}

fn padded(coefs: &[f64], n: usize) -> Vec<f64> {
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
        assert!(message(Strategy::banded(vec![vec![1.0, 2.0]])).contains("length of row 0 is 2"));
        let infinite = vec![1.0, f64::INFINITY];
        assert!(message(Strategy::banded_inverse(infinite)).contains("noising coefficient 1 is inf"));
        let negative = Workload::toeplitz(vec![-1.0]).unwrap();
        assert!(message(Strategy::square_root(negative)).contains("workload coefficient 0 is -1"));
    }
}
