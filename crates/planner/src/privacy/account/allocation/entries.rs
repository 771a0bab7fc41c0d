//! The bins of the matrix that runs, or why balls in bins amplify nothing for it.
//!
//! The proof needs a `C` without negative entries, and not up to rounding: signs are read off coefficients that run exactly. An inverse of
//! a matrix with a positive diagonal and nothing positive beside it has no negative entry; of other inverses every entry is computed with a bound
//! on what it may have lost.

use super::gram::Bins;
use crate::error::{Error, Result};
use crate::factorization::gram::Gram;
use crate::factorization::{Factorization, LINEAR_LIMIT, QUADRATIC_LIMIT};
use crate::strategy::Strategy;

/// Most bins of a strategy that is restarted, scaled or not Toeplitz: all pairs are written down.
const WRITTEN: usize = 4096;
/// What an entry of such a strategy may have lost, relative to itself: an entry of K loses twice as much, and is raised by 1e-9.
const LOST: f64 = 2e-10;
/// Most products that bounds on K are made of.
const WORK: usize = 1 << 33;

impl Bins {
    /// The bins of a factorisation as it runs.
    pub(crate) fn of(running: &Factorization, num_bins: u64) -> Result<Bins> {
        let n = running.num_steps();
        let most = |limit: usize, why: &str| {
            let expected = format!("2 to {limit}, where balls in bins are to amplify{why}");
            Error::parameter("number of bins", num_bins, expected)
        };
        let num_bins = usize::try_from(num_bins).unwrap_or(usize::MAX);
        if !(2..=LINEAR_LIMIT).contains(&num_bins) {
            return Err(most(LINEAR_LIMIT, ""));
        }
        check_scales(running)?;
        if running.is_plain()
            && let Some((coefs, lost)) = coefficients(running)?
        {
            let products = coefs.len().saturating_mul(num_bins.min(2048));
            running.check_size(
                "the bins' products",
                LINEAR_LIMIT.min(WORK / (products / n).max(1)),
                "n·bins",
            )?;
            return Ok(Bins::moved(&coefs, num_bins, lost));
        }
        check_signs(running)?;
        if num_bins > WRITTEN {
            return Err(most(WRITTEN, " a strategy that is restarted, scaled or not Toeplitz"));
        }
        running.check_size("all pairs of bins", QUADRATIC_LIMIT, "n²")?;
        let gram = Gram::new(running)?;
        let mut entries = vec![0.0; num_bins * num_bins];
        let mut diagonal = Vec::new();
        for lag in 0..n {
            gram.diagonal_into(lag, &mut diagonal)?;
            for (s, entry) in diagonal.iter().enumerate() {
                let (j, l) = (s % num_bins, (s + lag) % num_bins);
                entries[j * num_bins + l] += entry;
                // Both steps of a pair in one bin count twice, as two bins' do in both orders.
                if lag > 0 {
                    entries[l * num_bins + j] += entry;
                }
            }
        }
        Ok(Bins::written(entries, num_bins, n))
    }
}

/// Refuses a factorisation that has a negative entry, or whose entries' signs are not known.
pub(in crate::privacy::account) fn check_entries(running: &Factorization) -> Result<()> {
    check_scales(running)?;
    check_signs(running)
}

fn check_scales(running: &Factorization) -> Result<()> {
    match running.divisors().iter().position(|divisor| *divisor < 0.0) {
        Some(t) => Err(negative(format!("output scale {t}"), running.divisors()[t])),
        None => Ok(()),
    }
}

fn negative(what: String, value: f64) -> Error {
    let expected = "0 or above: strategies are amplified that have no negative entries";
    Error::parameter(what, value, expected)
}

fn first_negative(what: &str, values: &[f64]) -> Result<()> {
    match values.iter().position(|value| *value < 0.0) {
        Some(t) => Err(negative(format!("{what} {t}"), values[t])),
        None => Ok(()),
    }
}

/// The first column of C for Toeplitz strategies, none of it negative, and what an entry may have lost, relative to itself.
fn coefficients(running: &Factorization) -> Result<Option<(Vec<f64>, f64)>> {
    let n = running.num_steps();
    match running.strategy() {
        Strategy::BandedInverse(weights) => inverse(weights, n).map(Some),
        Strategy::Identity | Strategy::OneParameter { .. } | Strategy::Blt(_) | Strategy::Toeplitz(_) => {
            let Some(coefs) = running.strategy_coefs()? else { return Ok(None) };
            first_negative("coefficient of the strategy", &coefs)?;
            Ok(Some((coefs, 64.0 * f64::EPSILON * n as f64)))
        }
        _ => Ok(None),
    }
}

/// The series of `1/w` by its recurrence, with a bound on every coefficient's error.
fn inverse(weights: &[f64], n: usize) -> Result<(Vec<f64>, f64)> {
    let bands = weights.len().min(n);
    if n.saturating_mul(bands) > WORK {
        let what = "the inverse of a banded matrix, term by term".into();
        return Err(Error::TooLarge { what, cost: "n·bands", n, limit: WORK / bands });
    }
    let lead = weights[0];
    if lead < 0.0 {
        return Err(negative("weight 0 of the inverse".into(), lead));
    }
    let mut coefs = vec![1.0 / lead];
    let mut errors = vec![f64::EPSILON / lead];
    let mut relative = 0.0_f64;
    for t in 1..n {
        let (mut sum, mut size, mut error) = (0.0, 0.0, 0.0);
        for (a, weight) in weights.iter().enumerate().take(t + 1).skip(1) {
            sum -= weight * coefs[t - a];
            size += weight.abs() * coefs[t - a].abs();
            error += weight.abs() * errors[t - a];
        }
        let value = sum / lead;
        let error = (error + (bands + 2) as f64 * f64::EPSILON * size) / lead;
        // What is 0 by its terms' signs has no error; what is not must not be explained by one.
        if value - error < 0.0 {
            return Err(negative(format!("coefficient of the strategy {t}"), value));
        }
        if value > 0.0 {
            relative = relative.max(error / value);
        }
        coefs.push(value);
        errors.push(error);
    }
    Ok((coefs, relative * 1.01))
}

/// Signs of strategies whose pairs are written down.
fn check_signs(running: &Factorization) -> Result<()> {
    match running.strategy() {
        Strategy::Banded(rows) => {
            let mut rows = rows[..running.num_steps()].iter().enumerate();
            rows.try_for_each(|(t, row)| {
                first_negative(&format!("row {t} of the strategy, entry of age"), row)
            })
        }
        _ if running.restart_every() <= LINEAR_LIMIT => {
            let segment = Factorization::new(running.strategy().clone(), running.restart_every())?;
            match coefficients(&segment)? {
                Some((_, lost)) if lost <= LOST => Ok(()),
                Some((_, lost)) => Err(Error::parameter(
                    "relative error of the strategy's entries",
                    lost,
                    format!(
                        "at most {LOST:e}, where a strategy that is restarted or scaled is to be amplified"
                    ),
                )),
                None => Err(Error::parameter(
                    "strategy",
                    running.describe_matrix(),
                    "a Toeplitz or banded one, whose entries' signs are known exactly, where it is to be amplified",
                )),
            }
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corrnoise_core::Form;

    fn bins(form: &Form, n: usize, b: u64) -> Result<Bins> {
        Bins::of(&Factorization::from_form(form, n).unwrap(), b)
    }

    /// K by its definition, from the matrix that runs.
    fn plain(form: &Form, n: usize, b: usize) -> Vec<f64> {
        let matrix = Factorization::from_form(form, n).unwrap().matrix().unwrap();
        let column = |j: usize| -> Vec<f64> {
            (0..n).map(|t| (j..=t).step_by(b).map(|s| matrix.get(t, s)).sum()).collect()
        };
        let columns: Vec<Vec<f64>> = (0..b).map(column).collect();
        let dot = |j: usize, l: usize| columns[j].iter().zip(&columns[l]).map(|(a, b)| a * b).sum();
        (0..b * b).map(|at| dot(at / b, at % b)).collect()
    }

    #[test]
    fn bins_are_those_of_the_form_that_runs() {
        let scales: Vec<f64> = (0..23).map(|t| 1.0 + 0.03 * f64::from(t)).collect();
        let rows: Vec<Vec<f64>> =
            (0..23).map(|t| vec![1.0 + 0.01 * t as f64, 0.5, 0.2][..3.min(t + 1)].to_vec()).collect();
        let forms = [
            Form::independent(),
            Form::blt(&[0.3, 0.1], &[0.6, 0.95]).unwrap(),
            Form::regenerate(&[1.0, -0.5, -0.125]).unwrap(),
            Form::regenerate(&[1.0, -0.5, 0.06]).unwrap(),
            Form::banded_toeplitz(&[1.0, 0.5, 0.25]).unwrap().with_restarts(5).unwrap(),
            Form::blt(&[0.3], &[0.6]).unwrap().with_output_scale(scales).unwrap(),
            Form::banded(&rows).unwrap(),
        ];
        for form in forms {
            for b in [2, 6, 7, 23] {
                let exact = plain(&form, 23, b);
                let bounds = bins(&form, 23, b as u64).unwrap().circle(b);
                for i in 0..b {
                    for l in 0..=i {
                        let (bound, entry) = (bounds.at(i, l), exact[i * b + l]);
                        assert!(bound >= entry && bound <= entry * (1.0 + 1e-8), "{form:?} {b} {i} {l}");
                    }
                }
            }
        }
    }

    #[test]
    fn negative_entries_are_refused_by_name() {
        let message = |form: Form, b: u64| bins(&form, 12, b).unwrap_err().to_string();
        let refused = message(Form::banded_toeplitz(&[1.0, 0.5, -0.25]).unwrap(), 4);
        assert!(refused.contains("coefficient of the strategy 2 is -0.25: expected 0 or above"), "{refused}");
        assert!(message(Form::regenerate(&[1.0, 0.5]).unwrap(), 4).contains("coefficient of the strategy 1"));
        let flipped = Form::independent().with_output_scale((0..12).map(|t| 6.5 - f64::from(t)).collect());
        assert!(message(flipped.unwrap(), 4).contains("output scale 7 is -0.5"));
        assert!(message(Form::independent(), 1).contains("number of bins is 1: expected 2 to"));
        assert!(message(Form::independent(), 1 << 40).contains("number of bins"));
        let tree =
            Factorization::new(Strategy::Tree(crate::Estimator::Streaming), 12).unwrap().form().unwrap();
        assert!(message(tree, 4).contains("a Toeplitz or banded one"));
    }
}
