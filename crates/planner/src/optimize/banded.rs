//! Banded strategies that are not Toeplitz, with normalised columns: the best of their class, since the problem is convex.
//!
//! With `M = CᵀC` and `F = A⁻¹`, which for SGD with or without momentum has two or three diagonals, `K = FᵀMF` is banded and the
//! squared error of released value `t` is `(K⁻¹)[t,t]`. The error is convex in `M`; the constraints are a unit diagonal
//! (columns of norm 1) and zeros outside the band. The band of `K⁻¹` follows from a banded Cholesky factor (Takahashi's
//! recursion), and the gradient `−K⁻¹WK⁻¹` is the derivative of `(K + xW)⁻¹`: the same recursion, in dual numbers. All of it costs
//! O(n·bands²).

use super::lbfgs::{Settings, minimize};
use super::{Iteration, Objective, Observer, Optimum, Problem};
use crate::error::{Error, Result};
use crate::factorization::Factorization;
use crate::privacy::participation::Participation;
use crate::strategy::Strategy;
use crate::utility::workload::Workload;
use std::ops::{Add, Div, Mul, Sub};
use std::time::Instant;

/// Most entries that are optimised.
const MAX_ENTRIES: usize = 4_000_000;

/// The best banded strategy with normalised columns. For several participations, no more bands than their separation.
pub fn optimize(problem: &Problem, num_bands: usize, observer: Observer<'_>) -> Result<Optimum> {
    let start = Instant::now();
    let setting = Setting::new(problem, num_bands)?;
    let mut x = setting.start()?;
    let mut iterations = 0;
    // The largest error as a p-norm, ever closer; the root mean square is one of its own.
    let powers: &[f64] =
        if problem.objective == Objective::Rms { &[1.0] } else { &[4.0, 32.0, 256.0, 2048.0] };
    for &power in powers {
        let mut objective = |x: &[f64], gradient: &mut [f64]| setting.objective(x, power, gradient);
        let mut report = |progress: Iteration| {
            observer.iteration(Iteration { loss: (0.5 * progress.loss).exp(), ..progress })
        };
        let settings = Settings { value_tolerance: 1e-9, max_iterations: 300, ..Settings::default() };
        let found = minimize(&mut objective, x, settings, &mut report);
        iterations += found.iterations;
        x = found.x;
    }
    let strategy = Strategy::banded(setting.strategy_rows(&x))?;
    let factorization = Factorization::new(strategy, problem.num_steps)?.column_normalized()?;
    Optimum::evaluate(problem, factorization, iterations, start)
}

/// A number and its derivative.
#[derive(Clone, Copy, Default)]
struct Dual(f64, f64);

impl Add for Dual {
    type Output = Dual;
    fn add(self, other: Dual) -> Dual {
        Dual(self.0 + other.0, self.1 + other.1)
    }
}
impl Sub for Dual {
    type Output = Dual;
    fn sub(self, other: Dual) -> Dual {
        Dual(self.0 - other.0, self.1 - other.1)
    }
}
impl Mul for Dual {
    type Output = Dual;
    fn mul(self, other: Dual) -> Dual {
        Dual(self.0 * other.0, self.0 * other.1 + self.1 * other.0)
    }
}
impl Div for Dual {
    type Output = Dual;
    fn div(self, other: Dual) -> Dual {
        let value = self.0 / other.0;
        Dual(value, (self.1 - value * other.1) / other.0)
    }
}
impl Dual {
    fn sqrt(self) -> Dual {
        let root = self.0.sqrt();
        Dual(root, 0.5 * self.1 / root)
    }
}

/// A symmetric banded matrix: entry (t, t − a) at `t·(width + 1) + a`.
struct Band<T> {
    n: usize,
    width: usize,
    entries: Vec<T>,
}

impl<T: Copy + Default> Band<T> {
    fn new(n: usize, width: usize) -> Band<T> {
        Band { n, width, entries: vec![T::default(); n * (width + 1)] }
    }
    fn at(&self, t: usize, s: usize) -> T {
        let (high, low) = (t.max(s), t.min(s));
        self.entries[high * (self.width + 1) + (high - low)]
    }
    fn set(&mut self, t: usize, s: usize, value: T) {
        let (high, low) = (t.max(s), t.min(s));
        self.entries[high * (self.width + 1) + (high - low)] = value;
    }
}

/// The Cholesky factor `L` with `LLᵀ` the matrix; `None` if it is not positive definite.
fn cholesky(matrix: &Band<Dual>) -> Option<Band<Dual>> {
    let (n, width) = (matrix.n, matrix.width);
    let mut factor = Band::new(n, width);
    for t in 0..n {
        let first = t.saturating_sub(width);
        for s in first..=t {
            let mut sum = matrix.at(t, s);
            for k in first.max(s.saturating_sub(width))..s {
                sum = sum - factor.at(t, k) * factor.at(s, k);
            }
            if t == s {
                if sum.0.is_nan() || sum.0 <= 0.0 {
                    return None;
                }
                factor.set(t, t, sum.sqrt());
            } else {
                factor.set(t, s, sum / factor.at(s, s));
            }
        }
    }
    Some(factor)
}

/// The band of the inverse, from the factor: from the last row up, `Z[t,s] = −Σ_k (L[k,t]/L[t,t]) Z[k,s]`.
fn selected_inverse(factor: &Band<Dual>) -> Band<Dual> {
    let (n, width) = (factor.n, factor.width);
    let mut inverse = Band::new(n, width);
    let mut ratios = Vec::with_capacity(width);
    for t in (0..n).rev() {
        let end = (t + width).min(n - 1);
        let own = factor.at(t, t);
        ratios.clear();
        ratios.extend((t + 1..=end).map(|k| factor.at(k, t) / own));
        for s in (t..=end).rev() {
            let mut sum = if s == t { Dual(1.0, 0.0) / (own * own) } else { Dual::default() };
            for (ratio, k) in ratios.iter().zip(t + 1..) {
                sum = sum - *ratio * inverse.at(k, s);
            }
            inverse.set(t, s, sum);
        }
    }
    inverse
}

struct Setting {
    n: usize,
    bands: usize,
    /// The coefficients of `A⁻¹`.
    inverse: Vec<f64>,
    /// The best Toeplitz strategy, from which the search starts.
    first: Vec<f64>,
}

impl Setting {
    fn new(problem: &Problem, bands: usize) -> Result<Setting> {
        let n = problem.num_steps;
        problem.participation.check(n)?;
        let most = match &problem.participation {
            Participation::Single => n,
            Participation::Cyclic { separation, .. } => *separation,
            Participation::MinSep { min_sep, .. } => *min_sep,
            Participation::Full => 1,
            Participation::Patterns(_) => {
                return Err(Error::parameter("participation", "patterns", "single, full, cyclic or min-sep"));
            }
        };
        if !(1..=most).contains(&bands) {
            return Err(Error::parameter(
                "number of bands",
                bands,
                format!("1 to {most}, so that columns stay orthogonal"),
            ));
        }
        if n * bands > MAX_ENTRIES {
            let what = format!("optimising {bands} bands");
            return Err(Error::TooLarge { what, cost: "n·bands²", n, limit: MAX_ENTRIES / bands });
        }
        let inverse = match problem.workload {
            Workload::Prefix => vec![1.0, -1.0],
            Workload::Momentum { beta, weight_decay } => {
                vec![1.0, -(beta + 1.0 - weight_decay), beta * (1.0 - weight_decay)]
            }
            _ => {
                return Err(Error::parameter(
                    "workload",
                    "other",
                    "prefix sums or momentum: their inverse is banded",
                ));
            }
        };
        let toeplitz = super::toeplitz::banded(problem, bands, &mut super::unobserved())?;
        let coefs = toeplitz.factorization.strategy_coefs()?.expect("a Toeplitz strategy");
        Ok(Setting { n, bands, inverse, first: coefs[..bands].to_vec() })
    }

    /// Off-diagonal entries of `M`, row by row.
    fn entries(&self) -> impl Iterator<Item = (usize, usize)> {
        let bands = self.bands;
        (0..self.n).flat_map(move |t| (1..bands.min(t + 1)).map(move |age| (t, t - age)))
    }

    /// The Gram matrix of the best Toeplitz strategy with normalised columns.
    fn start(&self) -> Result<Vec<f64>> {
        let strategy = Strategy::toeplitz(self.first.clone())?;
        let factorization = Factorization::new(strategy, self.n)?.column_normalized()?;
        let gram = crate::factorization::gram::Gram::new(&factorization)?;
        let diagonals = (0..self.bands).map(|lag| gram.diagonal(lag)).collect::<Result<Vec<_>>>()?;
        Ok(self.entries().map(|(t, s)| diagonals[t - s][s]).collect())
    }

    fn gram_matrix(&self, x: &[f64]) -> Band<f64> {
        let mut matrix = Band::new(self.n, self.bands - 1);
        (0..self.n).for_each(|t| matrix.set(t, t, 1.0));
        self.entries().zip(x).for_each(|((t, s), value)| matrix.set(t, s, *value));
        matrix
    }

    /// `K[s,t] = Σ f_i f_j M[s+i, t+j]`, with `weight(t)` as the derivative of its diagonal.
    fn decoder_matrix(&self, matrix: &Band<f64>, weight: impl Fn(usize) -> f64) -> Band<Dual> {
        let taps = self.inverse.len();
        let mut out: Band<Dual> = Band::new(self.n, self.bands - 1 + taps - 1);
        for t in 0..self.n {
            for s in t.saturating_sub(out.width)..=t {
                let mut sum = 0.0;
                for (i, left) in self.inverse.iter().enumerate().filter(|(i, _)| s + i < self.n) {
                    for (j, right) in self.inverse.iter().enumerate().filter(|(j, _)| t + j < self.n) {
                        if (s + i).abs_diff(t + j) < self.bands {
                            sum += left * right * matrix.at(s + i, t + j);
                        }
                    }
                }
                out.set(t, s, Dual(sum, if t == s { weight(t) } else { 0.0 }));
            }
        }
        out
    }

    /// `ln((Σ_t e_t^p / n)^{1/p})` of the squared errors `e`, which with `p = 1` is the logarithm of the mean.
    fn objective(&self, x: &[f64], power: f64, gradient: &mut [f64]) -> f64 {
        let matrix = self.gram_matrix(x);
        let invert = |weight: &dyn Fn(usize) -> f64| {
            cholesky(&self.decoder_matrix(&matrix, weight)).map(|l| selected_inverse(&l))
        };
        let Some(inverse) = invert(&|_| 1.0) else { return f64::INFINITY };
        let errors: Vec<f64> = (0..self.n).map(|t| inverse.at(t, t).0).collect();
        let largest = errors.iter().copied().fold(0.0, f64::max);
        let powers: Vec<f64> = errors.iter().map(|e| (e / largest).powf(power)).collect();
        let sum: f64 = powers.iter().sum();
        let value = largest.ln() + (sum / self.n as f64).ln() / power;
        // d value = Σ w_t de_t with w_t = e_t^{p−1}/Σ e^p; with p = 1 all weights are equal, and the pass above has it already.
        let derivative = if power == 1.0 {
            inverse
        } else {
            let Some(weighted) = invert(&|t| powers[t] / errors[t]) else { return f64::INFINITY };
            weighted
        };
        let scale = if power == 1.0 { 1.0 / (sum * largest) } else { 1.0 / sum };
        let taps = self.inverse.len();
        for (gradient, (u, v)) in gradient.iter_mut().zip(self.entries()) {
            let mut sum = 0.0;
            for (i, left) in self.inverse.iter().enumerate().take(taps.min(u + 1)) {
                for (j, right) in self.inverse.iter().enumerate().take(taps.min(v + 1)) {
                    sum += left * right * derivative.at(u - i, v - j).1;
                }
            }
            // An entry below the diagonal stands for two.
            *gradient = 2.0 * scale * sum;
        }
        value
    }

    /// The lower-triangular `C` with `CᵀC = M`: the Cholesky factor of the matrix turned around.
    fn strategy_rows(&self, x: &[f64]) -> Vec<Vec<f64>> {
        let (n, matrix) = (self.n, self.gram_matrix(x));
        let mut turned: Band<Dual> = Band::new(n, self.bands - 1);
        for t in 0..n {
            for s in t.saturating_sub(self.bands - 1)..=t {
                turned.set(t, s, Dual(matrix.at(n - 1 - t, n - 1 - s), 0.0));
            }
        }
        let factor = cholesky(&turned).expect("positive definite where the objective is finite");
        let entry = |t: usize, age: usize| factor.at(n - 1 - (t - age), n - 1 - t).0;
        (0..n).map(|t| (0..self.bands.min(t + 1)).map(|age| entry(t, age)).collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_are_derivatives() {
        for workload in [Workload::Prefix, Workload::momentum(0.7, 0.02).unwrap()] {
            let problem = Problem { workload, ..Problem::streaming(14, Objective::Rms) };
            let setting = Setting::new(&problem, 4).unwrap();
            let x: Vec<f64> = setting
                .start()
                .unwrap()
                .iter()
                .enumerate()
                .map(|(i, x)| x * (0.9 + 0.01 * (i % 7) as f64))
                .collect();
            for power in [1.0, 4.0, 16.0] {
                let mut gradient = vec![0.0; x.len()];
                setting.objective(&x, power, &mut gradient);
                let scale = gradient.iter().fold(0.0, |m: f64, g| m.max(g.abs()));
                for i in 0..x.len() {
                    let at = |shift: f64| {
                        let mut moved = x.clone();
                        moved[i] += shift;
                        setting.objective(&moved, power, &mut vec![0.0; x.len()])
                    };
                    let difference = (at(1e-6) - at(-1e-6)) / 2e-6;
                    assert!(
                        (difference - gradient[i]).abs() < 1e-6 * scale,
                        "{power}, {i}: {} {difference}",
                        gradient[i]
                    );
                }
            }
        }
    }
}
