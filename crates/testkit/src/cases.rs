//! Forms of realistic size, by name: benches and comparisons with peers measure these.

use corrnoise::form::{Kernel, Regenerate, Term};
use corrnoise::{Family, Form, Result};

/// The names that [`form`] knows.
pub const NAMES: [&str; 8] =
    ["independent", "blt4", "blt8", "ring16", "ring64", "regenerate4", "regenerate64", "dense255"];

/// The form of a name in [`NAMES`].
pub fn form(name: &str, num_steps: u64) -> Option<Result<Form>> {
    Some(match name {
        "independent" => Ok(Form::independent()),
        // Decays and scales of the size that the optimiser finds for thousands of steps.
        "blt4" => Form::blt(&[0.29, 0.13, 0.06, 0.015], &[0.22, 0.71, 0.944, 0.9957]),
        "blt8" => Form::blt(
            &[0.21, 0.11, 0.07, 0.04, 0.022, 0.011, 0.005, 0.0012],
            &[0.13, 0.49, 0.76, 0.89, 0.952, 0.981, 0.9937, 0.9989],
        ),
        "ring16" => Form::banded_toeplitz(&square_root_coefs(16)),
        "ring64" => Form::banded_toeplitz(&square_root_coefs(64)),
        "regenerate4" => Form::regenerate(&inverse_square_root_coefs(4)),
        "regenerate64" => Form::regenerate(&inverse_square_root_coefs(64)),
        "dense255" => dense_row(256, num_steps),
        _ => return None,
    })
}

/// Coefficients of the square root of the prefix-sum matrix: `(1 − x)^(−1/2)`.
pub fn square_root_coefs(len: usize) -> Vec<f64> {
    binomial_series(len, |t| 1.0 - 0.5 / t)
}

/// Coefficients of the inverse of that square root: `(1 − x)^(1/2)`.
pub fn inverse_square_root_coefs(len: usize) -> Vec<f64> {
    binomial_series(len, |t| 1.0 - 1.5 / t)
}

fn binomial_series(len: usize, ratio: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut coefs = vec![1.0];
    for t in 1..len {
        coefs.push(coefs[t - 1] * ratio(t as f64));
    }
    coefs
}

/// A form that sums at every step as many rows as the last step of a dense `C⁻¹` does, so that it can be timed repeatedly.
fn dense_row(rows: u64, num_steps: u64) -> Result<Form> {
    let weights = inverse_square_root_coefs(rows as usize);
    let step = |t: u64| {
        let term = |(age, &weight): (usize, &f64)| Term {
            family: Family::Step,
            index: rows * t + age as u64,
            weight,
        };
        weights.iter().enumerate().map(term).collect()
    };
    let steps: Vec<Vec<Term>> = (0..num_steps).map(step).collect();
    Ok(Kernel::Regenerate(Regenerate::listed(&steps)?).into())
}

/// Forms of every kernel, every number of BLT buffers and every way to give coefficients, with their names.
pub fn every_form(num_steps: u64) -> Vec<(String, Form)> {
    let n = num_steps as usize;
    let scale = [0.21, 0.11, 0.07, 0.04, 0.022, 0.011, 0.005, 0.0012];
    let decay = [0.13, 0.49, 0.76, 0.89, 0.952, 0.981, 0.9937, 0.9989];
    let mut forms: Vec<(String, Form)> =
        (0..=8).map(|d| (format!("blt{d}"), Form::blt(&scale[..d], &decay[..d]).unwrap())).collect();
    let mut add = |name: &str, form: Form| forms.push((name.into(), form));
    add("blt restarted", Form::blt(&scale[..3], &decay[..3]).unwrap().with_restarts(2).unwrap());
    for bands in [1, 2, 5, 16] {
        add(&format!("ring {bands}"), Form::banded_toeplitz(&square_root_coefs(bands)).unwrap());
    }
    let rows: Vec<Vec<f64>> =
        (0..n).map(|t| (0..=t.min(3)).map(|a| 1.5 / (1.0 + a as f64 + 0.1 * t as f64)).collect()).collect();
    add("ring varying", Form::banded(&rows).unwrap());
    add("ring restarted", Form::banded_toeplitz(&square_root_coefs(4)).unwrap().with_restarts(3).unwrap());
    add("regenerate", Form::regenerate(&inverse_square_root_coefs(3)).unwrap());
    let dense: Vec<Vec<f64>> = (0..n).map(|t| inverse_square_root_coefs(t + 1)).collect();
    add("regenerate dense", Kernel::Regenerate(Regenerate::varying(&dense).unwrap()).into());
    let term = |family, index, weight| Term { family, index, weight };
    let tree: Vec<Vec<Term>> = (0..n as u64)
        .map(|t| vec![term(Family::TreeNode, t / 2, 0.75), term(Family::Step, t, -0.3)])
        .collect();
    add("regenerate tree", Kernel::Regenerate(Regenerate::listed(&tree).unwrap()).into());
    forms
}
