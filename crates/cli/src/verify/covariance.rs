//! The covariance of generated noise against `C⁻¹C⁻ᵀ`, for every kind of form.
//!
//! Theory comes from the planner's f64 matrices, noise from the engine. Over m coordinates, the sample covariance of rows t and s has
//! the standard error `√((Σ_tt Σ_ss + Σ_ts²)/m)`. With all entries of all forms together, an engine that is right fails for one key in
//! 10⁶ at most (Bonferroni); the key is fixed.

use super::Finding;
use super::statistics::cdf;
use crate::failure::Result;
use corrnoise::planner::{Estimator, Factorization, LowerTriangular, Strategy, Tree, Workload};
use corrnoise::{Key, Mechanism, Plan, Shard};

const STEPS: usize = 24;
const STDDEV: f64 = 0.75;
const FALSE_ALARM: f64 = 1e-6;

/// Factorisations whose forms are all there are: BLT, rings with fixed and free rows, regenerated sums of every kind, restarts, normalised columns.
fn cases() -> Result<Vec<(&'static str, Factorization)>> {
    let n = STEPS;
    let blt = corrnoise::planner::Blt::new(&[0.5, 0.125, 0.03125], &[0.25, 0.75, 0.96875])?;
    let free = (0..n)
        .map(|t| (0..=t.min(4)).map(|age| 1.25 / (1.0 + age as f64 + 0.1 * t as f64)).collect())
        .collect();
    let dense: Vec<Vec<f64>> = (0..n)
        .map(|t| {
            (0..n)
                .map(|s| if s > t { 0.0 } else { 1.0 / (1.0 + (t - s) as f64) + 0.03 * s as f64 / n as f64 })
                .collect()
        })
        .collect();
    let make = |strategy| Factorization::new(strategy, n);
    Ok(vec![
        ("independent", make(Strategy::Identity)?),
        ("output", make(Strategy::Output(Workload::Prefix))?),
        ("BLT", make(Strategy::Blt(blt.clone()))?),
        ("BLT, restarted", make(Strategy::Blt(blt))?.restarted(7)?),
        ("banded", make(Strategy::banded_square_root(12)?)?),
        ("banded, normalised", make(Strategy::banded_square_root(5)?)?.column_normalized()?),
        ("banded, free rows", make(Strategy::banded(free)?)?),
        ("Toeplitz", make(Strategy::square_root(Workload::momentum(0.9, 0.0)?)?)?),
        ("banded inverse", make(Strategy::banded_inverse_square_root(4)?)?),
        ("dense", make(Strategy::Dense(LowerTriangular::new(&dense)?))?),
        ("tree", make(Strategy::Tree(Estimator::Streaming))?),
        ("full tree", make(Strategy::Tree(Estimator::Full))?),
    ])
}

pub fn every_form(quick: bool) -> Result<Finding> {
    let coords = if quick { 1 << 15 } else { 1 << 18 };
    let cases = cases()?;
    let limit = normal_quantile(FALSE_ALARM / (cases.len() * STEPS * (STEPS + 1) / 2) as f64);
    let mut worst = (0.0, "");
    for (name, factorization) in &cases {
        let errors = largest_error(factorization, STDDEV, coords)?;
        if errors.is_nan() || errors > worst.0 {
            worst = (if errors.is_nan() { f64::INFINITY } else { errors }, name);
        }
    }
    Ok(Finding::new(
        worst.0 <= limit,
        format!(
            "{} forms, {STEPS} steps, {coords} coordinates: worst entry at {:.1} standard errors ({}; limit {limit:.1})",
            cases.len(),
            worst.0,
            worst.1
        ),
    ))
}

/// The largest difference between a sample covariance and theory, in standard errors.
fn largest_error(factorization: &Factorization, stddev: f64, coords: u64) -> Result<f64> {
    let plan = Plan::new(STEPS as u64, factorization.form()?, STDDEV)?;
    let key = Key::from_bytes(*b"corrnoise verify: a public key!!", "covariance");
    let mut mechanism = Mechanism::cpu(&plan, key, Shard::whole(coords)?)?;
    let mut rows = Vec::with_capacity(STEPS);
    for _ in 0..STEPS {
        let mut row = vec![0.0_f32; coords as usize];
        mechanism.add_to(&mut row)?;
        rows.push(row);
    }
    let noising = noising_rows(factorization)?;
    let theory = |t: usize, s: usize| {
        let product: f64 = noising[t].iter().zip(&noising[s]).map(|(a, b)| a * b).sum();
        stddev * stddev * product
    };
    let mut worst = 0.0_f64;
    for t in 0..STEPS {
        for s in 0..=t {
            let sample = dot(&rows[t], &rows[s]) / coords as f64;
            let error = ((theory(t, t) * theory(s, s) + theory(t, s).powi(2)) / coords as f64).sqrt();
            let errors = (sample - theory(t, s)).abs() / error;
            worst = if errors.is_nan() { f64::NAN } else { worst.max(errors) };
        }
    }
    Ok(worst)
}

/// Sixteen sums side by side: the order is fixed, and a processor can keep up with memory.
fn dot(left: &[f32], right: &[f32]) -> f64 {
    let mut sums = [0.0_f64; 16];
    for (left, right) in left.chunks_exact(16).zip(right.chunks_exact(16)) {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum += f64::from(left[i]) * f64::from(right[i]);
        }
    }
    sums.iter().sum()
}

/// Rows of `C⁻¹`; those of a tree have a column per node.
fn noising_rows(factorization: &Factorization) -> Result<Vec<Vec<f64>>> {
    if let Strategy::Tree(estimator @ (Estimator::Plain | Estimator::Streaming)) = factorization.strategy() {
        let tree = Tree::new(*estimator, STEPS)?;
        let row = |t: usize| {
            let mut row = vec![0.0; 4 * STEPS];
            tree.noising_row(t).into_iter().for_each(|(node, weight)| row[node as usize] = weight);
            row
        };
        return Ok((0..STEPS).map(row).collect());
    }
    let inverse = factorization.inverse()?;
    Ok((0..STEPS).map(|t| (0..STEPS).map(|s| inverse.get(t, s)).collect()).collect())
}

/// How many standard errors are exceeded with probability `p`, on either side.
fn normal_quantile(p: f64) -> f64 {
    let (mut low, mut high) = (0.0, 40.0);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if 2.0 * cdf(-middle) > p { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_noise_is_refused() {
        assert!((normal_quantile(0.05) - 1.959_963_985).abs() < 1e-8);
        let cases = cases().unwrap();
        let limit = normal_quantile(FALSE_ALARM / 3600.0);
        for (name, factorization) in &cases {
            assert!(largest_error(factorization, STDDEV, 1 << 15).unwrap() < limit, "{name}");
            assert!(largest_error(factorization, 1.05 * STDDEV, 1 << 15).unwrap() > limit, "{name}");
        }
        let [banded, inverse] =
            ["banded", "banded inverse"].map(|name| &cases.iter().find(|case| case.0 == name).unwrap().1);
        assert_ne!(noising_rows(banded).unwrap(), noising_rows(inverse).unwrap());
    }
}
