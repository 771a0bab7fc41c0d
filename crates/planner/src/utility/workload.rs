//! Workloads `A`: what is released of the gradients, and therefore what the noise should disturb least.
//!
//! Most are Toeplitz with a rational generating function, and stay the few numbers that say so.

use crate::error::{Error, Result, check_finite};
use crate::factorization::lower_triangular::LowerTriangular;
use crate::strategy::series;
use serde::{Deserialize, Serialize};

/// A lower-triangular workload matrix `A`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Workload {
    /// Prefix sums: plain SGD. `1/(1 − x)`.
    Prefix,
    /// SGD with momentum and weight decay: `v ← βv + g`, `θ ← (1 − λ)θ − v`. `1/((1 − βx)(1 − (1 − λ)x))`.
    Momentum {
        /// β in [0, 1).
        beta: f64,
        /// λ in [0, 1).
        weight_decay: f64,
    },
    /// SGD with Nesterov's momentum: `v ← βv + g`, `θ ← θ − (βv + g)`. `(1 + β − βx)/((1 − x)(1 − βx))`.
    Nesterov {
        /// β in [0, 1).
        beta: f64,
    },
    /// Any Toeplitz workload, by its first column; as many coefficients as there are steps, or zero beyond.
    Toeplitz(Vec<f64>),
    /// A workload whose rows or columns are multiplied: a learning rate per step scales the columns.
    Scaled {
        /// The workload that is scaled.
        base: Box<Workload>,
        /// One factor per row; empty for none.
        rows: Vec<f64>,
        /// One factor per column; empty for none.
        columns: Vec<f64>,
    },
    /// Any lower-triangular matrix, written out.
    Dense(LowerTriangular),
}

/// A rational generating function `numerator / Π (1 − pole·x)`: products with it cost a few operations per coefficient.
pub(crate) struct Filter {
    pub(crate) numerator: Vec<f64>,
    pub(crate) poles: Vec<f64>,
}

impl Filter {
    /// The product with a series.
    pub(crate) fn apply(&self, coefs: &[f64]) -> Vec<f64> {
        let mut out = series::multiply(&self.numerator, coefs, coefs.len());
        for pole in &self.poles {
            let mut last = 0.0;
            for value in &mut out {
                last = *value + pole * last;
                *value = last;
            }
        }
        out
    }
}

impl Workload {
    /// SGD with momentum and weight decay.
    pub fn momentum(beta: f64, weight_decay: f64) -> Result<Workload> {
        fraction("momentum", beta)?;
        fraction("weight decay", weight_decay)?;
        Ok(Workload::Momentum { beta, weight_decay })
    }

    /// The workload of Nesterov's momentum.
    pub fn nesterov(beta: f64) -> Result<Workload> {
        fraction("momentum", beta)?;
        Ok(Workload::Nesterov { beta })
    }

    /// A Toeplitz workload by its first column.
    pub fn toeplitz(coefs: Vec<f64>) -> Result<Workload> {
        series::check(&coefs, "workload coefficient")?;
        Ok(Workload::Toeplitz(coefs))
    }

    /// Columns scaled by a learning rate per step.
    pub fn with_learning_rates(self, rates: Vec<f64>) -> Result<Workload> {
        factors("learning rate", &rates)?;
        Ok(Workload::Scaled { base: self.into(), rows: Vec::new(), columns: rates })
    }

    /// Rows scaled: how much each released value matters.
    pub fn with_row_weights(self, weights: Vec<f64>) -> Result<Workload> {
        factors("row weight", &weights)?;
        Ok(Workload::Scaled { base: self.into(), rows: weights, columns: Vec::new() })
    }

    /// The generating function, where it is rational.
    pub(crate) fn filter(&self) -> Option<Filter> {
        Some(match self {
            Workload::Prefix => Filter { numerator: vec![1.0], poles: vec![1.0] },
            Workload::Momentum { beta, weight_decay } => {
                Filter { numerator: vec![1.0], poles: vec![*beta, 1.0 - weight_decay] }
            }
            Workload::Nesterov { beta } => {
                Filter { numerator: vec![1.0 + beta, -beta], poles: vec![1.0, *beta] }
            }
            _ => return None,
        })
    }

    /// The first column, of a Toeplitz workload.
    pub fn coefs(&self, n: usize) -> Option<Vec<f64>> {
        match self {
            Workload::Toeplitz(coefs) => {
                let mut coefs = coefs.clone();
                coefs.resize(n, 0.0);
                Some(coefs)
            }
            _ => self.filter().map(|filter| {
                let mut unit = vec![0.0; n];
                unit[..n.min(1)].fill(1.0);
                filter.apply(&unit)
            }),
        }
    }

    /// `A·series` for a Toeplitz workload and the first column of a Toeplitz matrix.
    pub(crate) fn apply(&self, coefs: &[f64]) -> Option<Vec<f64>> {
        match self {
            Workload::Toeplitz(own) => Some(series::multiply(own, coefs, coefs.len())),
            _ => self.filter().map(|filter| filter.apply(coefs)),
        }
    }

    /// The matrix `A` itself.
    pub fn matrix(&self, n: usize) -> Result<LowerTriangular> {
        Ok(match self {
            Workload::Dense(matrix) if matrix.len() == n => matrix.clone(),
            Workload::Dense(matrix) => {
                return Err(Error::parameter(
                    "rows of the workload",
                    matrix.len(),
                    format!("{n}, one per step"),
                ));
            }
            Workload::Scaled { base, rows, columns } => {
                for (name, list) in [("row weights", rows), ("learning rates", columns)] {
                    if !list.is_empty() && list.len() != n {
                        let name = format!("number of {name}");
                        return Err(Error::parameter(name, list.len(), format!("{n}, one per step")));
                    }
                }
                let base = base.matrix(n)?;
                let factor = |list: &[f64], t: usize| list.get(t).copied().unwrap_or(1.0);
                LowerTriangular::from_fn(n, |t, s| factor(rows, t) * base.get(t, s) * factor(columns, s))
            }
            _ => {
                let coefs = self.coefs(n).expect("every other workload is Toeplitz");
                LowerTriangular::from_fn(n, |t, s| coefs[t - s])
            }
        })
    }
}

fn fraction(name: &str, value: f64) -> Result<()> {
    check_finite(name, value)?;
    if (0.0..1.0).contains(&value) { Ok(()) } else { Err(Error::parameter(name, value, "in [0, 1)")) }
}

fn factors(name: &str, values: &[f64]) -> Result<()> {
    for (t, value) in values.iter().enumerate() {
        check_finite(&format!("{name} {t}"), *value)?;
        if *value == 0.0 {
            return Err(Error::parameter(format!("{name} {t}"), value, "not 0"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// θ after each step of the recursion itself, for a unit gradient at step 0.
    fn simulate(n: usize, mut update: impl FnMut(&mut f64, &mut f64, f64)) -> Vec<f64> {
        let (mut v, mut theta) = (0.0, 0.0);
        (0..n)
            .map(|t| {
                update(&mut v, &mut theta, f64::from(u8::from(t == 0)));
                -theta
            })
            .collect()
    }

    #[test]
    fn coefficients_are_what_the_optimiser_does() {
        let close = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-12);
        let momentum = simulate(40, |v, theta, g| {
            *v = 0.9 * *v + g;
            *theta = 0.97 * *theta - *v;
        });
        assert!(close(Workload::momentum(0.9, 0.03).unwrap().coefs(40).unwrap(), momentum));
        let nesterov = simulate(40, |v, theta, g| {
            *v = 0.8 * *v + g;
            *theta -= 0.8 * *v + g;
        });
        assert!(close(Workload::nesterov(0.8).unwrap().coefs(40).unwrap(), nesterov));
        assert_eq!(Workload::Prefix.coefs(5).unwrap(), vec![1.0; 5]);
        assert_eq!(Workload::momentum(0.0, 0.0).unwrap().coefs(5).unwrap(), vec![1.0; 5]);
    }

    #[test]
    fn scaling_multiplies_rows_and_columns_and_bad_input_is_named() {
        let scaled = Workload::Prefix.with_learning_rates(vec![1.0, 2.0, 4.0]).unwrap();
        let both = scaled.clone().with_row_weights(vec![1.0, 10.0, 100.0]).unwrap().matrix(3).unwrap();
        assert_eq!(both.row(2), [100.0, 200.0, 400.0]);
        assert!(
            scaled.matrix(4).unwrap_err().to_string().contains("number of learning rates is 3: expected 4")
        );
        assert!(Workload::momentum(1.0, 0.0).unwrap_err().to_string().contains("momentum is 1"));
        assert!(Workload::toeplitz(vec![0.0, 1.0]).unwrap_err().to_string().contains("coefficient 0 is 0"));
        assert!(Workload::Prefix.with_learning_rates(vec![0.1, f64::NAN]).is_err());
    }
}
