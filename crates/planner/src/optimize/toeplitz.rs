//! Toeplitz strategies of least loss: a few bands of `C`, all of them, or a few bands of `C⁻¹`.
//!
//! With `d = a/c` the decoder's coefficients, the squared error is `Σ w_t d_t²`, `w_t = 1` (max) or `(n − t)/n` (RMS). From
//! `δd = −(d/c)·δc` its derivative by `c_j` is `−2 Σ_t w_t d_t (d/c)_{t−j}`: two divisions and a correlation, each O(n·bands).

use super::lbfgs::{Settings, minimize};
use super::{Iteration, Objective, Observer, Optimum, Problem};
use crate::error::{Error, Result};
use crate::factorization::Factorization;
use crate::privacy::participation::Participation;
use crate::strategy::Strategy;
use crate::strategy::series;
use crate::utility::workload::Workload;
use std::time::Instant;

/// The best Toeplitz strategy with `num_bands` bands.
pub fn banded(problem: &Problem, num_bands: usize, observer: Observer<'_>) -> Result<Optimum> {
    let start = Instant::now();
    let setting = Setting::new(problem, num_bands)?;
    let root = setting.square_root(num_bands)?;
    let coefs = if setting.needs_monotone(num_bands) {
        let mut objective = |x: &[f64], gradient: &mut [f64]| setting.monotone_objective(x, gradient);
        let found = minimize(&mut objective, increments(&root), settings(), &mut report(observer));
        (normalized(&monotone(&found.x)), found.iterations)
    } else {
        let mut objective = |x: &[f64], gradient: &mut [f64]| setting.banded_objective(x, gradient);
        let found = minimize(&mut objective, root[1..].to_vec(), settings(), &mut report(observer));
        (with_lead(&found.x), found.iterations)
    };
    // What the engine's ring runs.
    let rounded = coefs.0.iter().map(|coef| f64::from(*coef as f32)).collect();
    let factorization = Factorization::new(Strategy::toeplitz(rounded)?, problem.num_steps)?;
    Optimum::evaluate(problem, factorization, coefs.1, start)
}

/// The best Toeplitz strategy of all.
pub fn full(problem: &Problem, observer: Observer<'_>) -> Result<Optimum> {
    banded(problem, problem.num_steps, observer)
}

/// The best strategy whose inverse has `num_bands` bands.
///
/// For more than one participation the search stays where the strategy's coefficients are non-negative and never increase, so that its
/// sensitivity is exact.
pub fn banded_inverse(problem: &Problem, num_bands: usize, observer: Observer<'_>) -> Result<Optimum> {
    let start = Instant::now();
    let setting = Setting::new(problem, num_bands)?;
    let root = series::inverse(&setting.square_root(num_bands)?, num_bands);
    let mut objective = |x: &[f64], gradient: &mut [f64]| setting.inverse_objective(x, gradient);
    let found = minimize(&mut objective, root[1..].to_vec(), settings(), &mut report(observer));
    let rounded = with_lead(&found.x).iter().map(|coef| f64::from(*coef as f32)).collect();
    let factorization = Factorization::new(Strategy::banded_inverse(rounded)?, problem.num_steps)?;
    Optimum::evaluate(problem, factorization, found.iterations, start)
}

/// The number of bands of least loss, from 1 to `max_bands`: powers of two, then halvings around the best.
pub fn best_bands(problem: &Problem, max_bands: usize, observer: Observer<'_>) -> Result<(usize, Optimum)> {
    let mut tried: std::collections::BTreeMap<usize, Optimum> = std::collections::BTreeMap::new();
    let most = max_bands.clamp(1, problem.num_steps);
    let mut candidates: Vec<usize> =
        std::iter::successors(Some(1), |b| Some(2 * b)).take_while(|b| *b < most).collect();
    candidates.push(most);
    let mut stride = most.next_power_of_two();
    loop {
        for bands in candidates.drain(..) {
            if let std::collections::btree_map::Entry::Vacant(entry) = tried.entry(bands) {
                entry.insert(banded(problem, bands, observer)?);
            }
        }
        let best = *tried.iter().min_by(|a, b| a.1.loss.total_cmp(&b.1.loss)).expect("one band was tried").0;
        stride /= 2;
        if stride == 0 {
            let optimum = tried.remove(&best).expect("the best was tried");
            return Ok((best, optimum));
        }
        // Between the best and its neighbours, ever closer; far from it the loss only grows.
        if stride < best {
            candidates.extend([best - stride, best + stride].into_iter().filter(|b| (1..=most).contains(b)));
        }
    }
}

fn settings() -> Settings {
    Settings { value_tolerance: 1e-10, gradient_tolerance: 1e-8, ..Settings::default() }
}

/// Objectives are logarithms of squared losses; people want losses.
fn report(observer: Observer<'_>) -> impl FnMut(Iteration) -> std::ops::ControlFlow<()> {
    |progress| observer.iteration(Iteration { loss: (0.5 * progress.loss).exp(), ..progress })
}

/// What all evaluations share.
struct Setting {
    n: usize,
    workload: Workload,
    /// Coefficients of the workload.
    workload_coefs: Vec<f64>,
    /// What each squared decoder coefficient counts in the squared error.
    weights: Vec<f64>,
    separation: usize,
    participations: usize,
}

/// Most operations of an evaluation, of which a search needs hundreds.
const MAX_WORK: usize = 100_000_000;
/// What an evaluation costs per step besides its bands, and in their place where transforms divide.
const PER_STEP: usize = 100;
const TRANSFORMED: usize = 300;

impl Setting {
    fn new(problem: &Problem, num_bands: usize) -> Result<Setting> {
        let n = problem.num_steps;
        problem.participation.check(n)?;
        let per_step = PER_STEP + if num_bands > 2000 { TRANSFORMED } else { num_bands };
        if n > MAX_WORK / per_step {
            let what = format!("optimising {} bands", num_bands.min(n));
            return Err(Error::TooLarge { what, cost: "n·(bands + 100)", n, limit: MAX_WORK / per_step });
        }
        if !(1..=n).contains(&num_bands) {
            return Err(Error::parameter(
                "number of bands",
                num_bands,
                format!("1 to {n}, the number of steps"),
            ));
        }
        let Some(workload_coefs) = problem.workload.coefs(n) else {
            return Err(Error::parameter(
                "workload",
                "not Toeplitz",
                "a Toeplitz one for a Toeplitz strategy",
            ));
        };
        let (separation, participations) = match problem.participation {
            Participation::Single => (n, 1),
            Participation::Full => (1, n),
            Participation::Cyclic { separation, max_participations } => (separation, max_participations),
            Participation::MinSep { min_sep, max_participations } => (min_sep, max_participations),
            Participation::Patterns(_) => {
                return Err(Error::parameter("participation", "patterns", "single, full, cyclic or min-sep"));
            }
        };
        let weight = |t: usize| match problem.objective {
            Objective::Max => 1.0,
            Objective::Rms => (n - t) as f64 / n as f64,
        };
        let weights = (0..n).map(weight).collect();
        Ok(Setting {
            n,
            workload: problem.workload.clone(),
            workload_coefs,
            weights,
            separation,
            participations,
        })
    }

    /// Where every search begins: the square root of the workload, cut.
    fn square_root(&self, num_bands: usize) -> Result<Vec<f64>> {
        let root =
            Strategy::square_root(self.workload.clone())?.coefs(num_bands)?.expect("a Toeplitz strategy");
        Ok(normalized(&root))
    }

    /// Columns that overlap have an exact sensitivity only if coefficients are non-negative and never increase.
    fn needs_monotone(&self, num_bands: usize) -> bool {
        self.participations > 1 && num_bands > self.separation
    }

    /// The objective `ln(sensitivity²·error²)` of the coefficients `c = (1, x)`.
    fn banded_objective(&self, x: &[f64], gradient: &mut [f64]) -> f64 {
        let coefs = with_lead(x);
        let (value, by_coef) = self.loss_of(&coefs);
        gradient.copy_from_slice(&by_coef[1..]);
        value
    }

    /// The same of coefficients that fall: `c_t = Σ_{s≥t} exp(x_s)`.
    fn monotone_objective(&self, x: &[f64], gradient: &mut [f64]) -> f64 {
        let (value, by_coef) = self.loss_of(&monotone(x));
        let mut sum = 0.0;
        for ((gradient, x), by_coef) in gradient.iter_mut().zip(x).zip(by_coef) {
            sum += by_coef;
            *gradient = sum * x.exp();
        }
        value
    }

    fn loss_of(&self, coefs: &[f64]) -> (f64, Vec<f64>) {
        let decoder = series::divide(&self.workload_coefs, coefs, self.n);
        let weighted: Vec<f64> = decoder.iter().zip(&self.weights).map(|(d, w)| d * w).collect();
        let error = series::dot(&weighted, &decoder);
        let moved = series::divide(&decoder, coefs, self.n);
        let by_error = series::correlate(&weighted, &moved, coefs.len());
        let (sensitivity, by_sensitivity) = self.sensitivity_of(coefs);
        let by_coef =
            by_error.iter().zip(&by_sensitivity).map(|(e, s)| s / sensitivity - 2.0 * e / error).collect();
        (sensitivity.ln() + error.ln(), by_coef)
    }

    /// `‖Σ_j C[:, jb]‖²` and its derivative by the coefficients, which may be fewer than the steps. Where columns do not overlap, this
    /// is the sum of their norms, and exact whatever the signs.
    fn sensitivity_of(&self, coefs: &[f64]) -> (f64, Vec<f64>) {
        let (n, b, k) = (self.n, self.separation, self.participations);
        // x_t = Σ_{j<k} c_{t−jb}; gradient by c_t: 2 Σ_j x_{t+jb}.
        let reach = n.min((k - 1) * b + coefs.len());
        let mut sums = vec![0.0; reach];
        for j in 0..k {
            sums[(j * b).min(reach)..].iter_mut().zip(coefs).for_each(|(sum, coef)| *sum += coef);
        }
        let mut gradient = vec![0.0; coefs.len()];
        for j in 0..k {
            gradient.iter_mut().zip(&sums[(j * b).min(reach)..]).for_each(|(g, sum)| *g += 2.0 * sum);
        }
        (series::dot(&sums, &sums), gradient)
    }

    /// `ln(sensitivity²·error²)` of the strategy whose inverse is `p = (1, x)`: `d = a·p`, `c = 1/p`, `δc = −(c/p)·δp`.
    fn inverse_objective(&self, x: &[f64], gradient: &mut [f64]) -> f64 {
        let noising = with_lead(x);
        let coefs = series::inverse(&noising, self.n);
        let falls = coefs.windows(2).all(|pair| pair[0] >= pair[1]) && coefs[self.n - 1] >= 0.0;
        if self.participations > 1 && !falls {
            return f64::INFINITY;
        }
        let mut padded = noising.clone();
        padded.resize(self.n, 0.0);
        let decoder = self.workload.apply(&padded).expect("a Toeplitz workload");
        let weighted: Vec<f64> = decoder.iter().zip(&self.weights).map(|(d, w)| d * w).collect();
        let error = series::dot(&weighted, &decoder);
        let by_error = series::correlate(&weighted, &self.workload_coefs, noising.len());
        let (sensitivity, by_coef) = self.sensitivity_of(&coefs);
        let moved = series::divide(&coefs, &noising, self.n);
        let by_sensitivity = series::correlate(&by_coef, &moved, noising.len());
        for (j, gradient) in gradient.iter_mut().enumerate() {
            *gradient = 2.0 * by_error[j + 1] / error - by_sensitivity[j + 1] / sensitivity;
        }
        sensitivity.ln() + error.ln()
    }
}

fn with_lead(x: &[f64]) -> Vec<f64> {
    let mut coefs = vec![1.0];
    coefs.extend_from_slice(x);
    coefs
}

fn normalized(coefs: &[f64]) -> Vec<f64> {
    coefs.iter().map(|coef| coef / coefs[0]).collect()
}

fn monotone(x: &[f64]) -> Vec<f64> {
    let mut coefs: Vec<f64> = x.iter().map(|x| x.exp()).collect();
    for t in (1..coefs.len()).rev() {
        coefs[t - 1] += coefs[t];
    }
    coefs
}

/// The reverse of [`monotone`]; where the start does not fall, it is made to, a little.
fn increments(coefs: &[f64]) -> Vec<f64> {
    let next = |t: usize| coefs.get(t + 1).copied().unwrap_or(0.0);
    (0..coefs.len()).map(|t| (coefs[t] - next(t)).max(1e-6).ln()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_gradient(name: &str, x: &[f64], mut objective: impl FnMut(&[f64], &mut [f64]) -> f64) {
        let mut gradient = vec![0.0; x.len()];
        objective(x, &mut gradient);
        let scale = gradient.iter().fold(0.0, |m: f64, g| m.max(g.abs()));
        for i in 0..x.len() {
            let mut at = |shift: f64| {
                let mut moved = x.to_vec();
                moved[i] += shift;
                objective(&moved, &mut vec![0.0; x.len()])
            };
            let difference = (at(1e-5) - at(-1e-5)) / 2e-5;
            let error = (difference - gradient[i]).abs();
            assert!(
                error <= 1e-6 * scale.max(gradient[i].abs()),
                "{name}, {i}: {} and {difference}",
                gradient[i]
            );
        }
    }

    #[test]
    fn gradients_are_derivatives() {
        let workloads =
            [Workload::Prefix, Workload::momentum(0.8, 0.01).unwrap(), Workload::nesterov(0.6).unwrap()];
        let participations = [
            Participation::Single,
            Participation::MinSep { min_sep: 12, max_participations: 3 },
            Participation::Cyclic { separation: 3, max_participations: 5 },
        ];
        for workload in workloads {
            for participation in &participations {
                for objective in [Objective::Max, Objective::Rms] {
                    let (workload, participation) = (workload.clone(), participation.clone());
                    let problem = Problem { num_steps: 40, workload, participation, objective };
                    let setting = Setting::new(&problem, 7).unwrap();
                    let x = [0.6, 0.3, 0.31, 0.1, -0.02, 0.05];
                    check_gradient("banded", &x, |x, g| setting.banded_objective(x, g));
                    let x = [-1.0, -2.0, -0.5, -3.0, -1.5];
                    check_gradient("monotone", &x, |x, g| setting.monotone_objective(x, g));
                    let x: Vec<f64> = series::binomial(0.5, 6)[1..].iter().map(|c| 0.95 * c).collect();
                    check_gradient("inverse", &x, |x, g| setting.inverse_objective(x, g));
                }
            }
        }
    }
}
