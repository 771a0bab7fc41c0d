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

pub(crate) mod banded;
pub mod blt;
pub mod names;
pub mod series;
mod toeplitz;
pub mod tree;

pub use blt::Blt;
pub use tree::{Estimator, Tree};

use crate::error::Result;
use crate::factorization::lower_triangular::LowerTriangular;
use crate::utility::workload::Workload;
use toeplitz::{damp, inverse, inverse_of_output, inverse_of_square_root, padded, powers, square_root_of};

/// A strategy of any number of steps.
#[derive(Clone, Debug, PartialEq)]
pub enum Strategy {
    /// Independent noise on every gradient.
    Identity,
    /// Independent noise on every released value: `C = A`.
    Output(Workload),
    /// Powers of one number: `c_t = decay^t`.
    OneParameter {
        /// The number, in [0, 1).
        decay: f64,
    },
    /// The square root of a Toeplitz workload.
    SquareRoot(Workload),
    /// The square root of the prefix sums, damped: `c_t (1 − damping)^t`.
    Damped {
        /// The damping, in [0, 1).
        damping: f64,
    },
    /// Toeplitz with these coefficients, zero beyond them.
    Toeplitz(Vec<f64>),
    /// Row `t` as `[C[t,t], C[t,t−1], …]`, one row per step.
    Banded(Vec<Vec<f64>>),
    /// A buffered linear Toeplitz matrix.
    Blt(Blt),
    /// Any lower-triangular matrix, written out.
    Dense(LowerTriangular),
    /// Tree aggregation with this estimator.
    Tree(Estimator),
    /// `C⁻¹` is Toeplitz with these coefficients, zero beyond them.
    BandedInverse(Vec<f64>),
}

impl Strategy {
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
            Strategy::Output(workload) => return inverse_of_output(workload, n),
            Strategy::OneParameter { decay } => padded(&[1.0, -decay], n),
            Strategy::SquareRoot(workload) => inverse_of_square_root(workload, n)?,
            Strategy::Damped { damping } => damp(series::binomial(0.5, n), *damping),
            Strategy::Toeplitz(coefs) => inverse(coefs, n)?,
            Strategy::Blt(blt) => blt.noising_coefs(n),
            Strategy::BandedInverse(coefs) => padded(coefs, n),
            Strategy::Banded(_) | Strategy::Dense(_) | Strategy::Tree(_) => return Ok(None),
        }))
    }
}
