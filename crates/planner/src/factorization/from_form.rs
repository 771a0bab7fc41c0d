//! From the engine's form back to the matrix: a claim is about the coefficients that run, rounded as they are.
//!
//! A form makes `C⁻¹Z`; this finds its `C`. The output scale of a step multiplies a row of `C⁻¹`, so it divides a column of `C`.

use crate::error::{Error, Result, check_steps};
use crate::factorization::lower_triangular::LowerTriangular;
use crate::factorization::{CUBIC_LIMIT, Factorization, LINEAR_LIMIT};
use crate::strategy::Strategy;
use crate::strategy::blt::Blt;
use corrnoise_core::Form;
use corrnoise_core::form::{Kernel, Regenerate, Ring};
use std::collections::BTreeMap;

impl Factorization {
    /// The factorisation that a form runs at a number of steps.
    ///
    /// Rows listed one by one (trees) have no square `C`: the Cholesky factor of their covariance stands for them, which has the
    /// same distribution, up to [`CUBIC_LIMIT`] steps. Its sensitivity is below that of the tree, whose analysis has every node
    /// released.
    pub fn from_form(form: &Form, num_steps: usize) -> Result<Factorization> {
        check_steps(num_steps)?;
        let strategy = match form.kernel() {
            Kernel::Blt(blt) => blt_strategy(&widen(blt.scale()), &widen(blt.decay()), num_steps)?,
            Kernel::Ring(ring) => return with_scales(ring_factorization(ring, form, num_steps)?, form),
            Kernel::Regenerate(regenerate) => match regenerate.toeplitz_weights() {
                Some(weights) => Strategy::banded_inverse(widen(weights))?,
                None => {
                    let matrix = noising_matrix(regenerate, form, num_steps)?.inverse();
                    return with_scales(Factorization::new(Strategy::Dense(matrix), num_steps)?, form);
                }
            },
        };
        with_scales(restarted(Factorization::new(strategy, num_steps)?, form)?, form)
    }
}

/// Divides columns by the form's output scale; a constant one disappears in the coefficients of a Toeplitz strategy.
fn with_scales(factorization: Factorization, form: &Form) -> Result<Factorization> {
    check_range(&factorization, form)?;
    let n = factorization.num_steps();
    let first = form.output_scale(0);
    let constant = !form.has_scale_per_step();
    if constant && first == 1.0 {
        return Ok(factorization);
    }
    let restarts = factorization.restart_every();
    let scaled = |coefs: &[f64], factor: f64| coefs.iter().map(|coef| coef * factor).collect::<Vec<f64>>();
    match factorization.strategy() {
        Strategy::Toeplitz(coefs) if constant => {
            Factorization::new(Strategy::toeplitz(scaled(coefs, 1.0 / first))?, n)?.restarted(restarts)
        }
        Strategy::BandedInverse(coefs) if constant => {
            Factorization::new(Strategy::banded_inverse(scaled(coefs, first))?, n)?.restarted(restarts)
        }
        _ => {
            factorization.check_size("an output scale on every step", LINEAR_LIMIT, "n")?;
            factorization.columns_divided((0..n).map(|t| form.output_scale(t as u64)).collect())
        }
    }
}

/// Most and least magnitudes of scales, and most of coefficients, with which squares and their sums over 10⁷ steps are numbers that have
/// lost nothing.
const MOST_SCALE: f64 = 1e100;
const MOST_COEF: f64 = 1e50;

/// Refuses numbers whose squares overflow or vanish: a claim rests on sums of them.
fn check_range(factorization: &Factorization, form: &Form) -> Result<()> {
    let num_scales = if form.has_scale_per_step() { factorization.num_steps() as u64 } else { 1 };
    for step in 0..num_scales {
        let scale = form.output_scale(step);
        if !(1.0 / MOST_SCALE..=MOST_SCALE).contains(&scale.abs()) {
            let expected = format!("of magnitude {:e} to {MOST_SCALE:e}", 1.0 / MOST_SCALE);
            return Err(Error::parameter(format!("output scale {step}"), format!("{scale:e}"), expected));
        }
    }
    match factorization.strategy() {
        Strategy::Toeplitz(coefs) => check_coefs(coefs.iter().copied()),
        Strategy::Banded(rows) => check_coefs(rows.iter().flatten().copied()),
        Strategy::Dense(matrix) => check_coefs((0..matrix.len()).flat_map(|t| matrix.row(t).iter().copied())),
        Strategy::BandedInverse(_) if factorization.num_bands() == 1 => Ok(()),
        Strategy::BandedInverse(_) => check_coefs(factorization.strategy_coefs()?.into_iter().flatten()),
        _ => Ok(()),
    }
}

fn check_coefs(mut coefs: impl Iterator<Item = f64>) -> Result<()> {
    // Written so that what is no number does not fit.
    let fits = |coef: &f64| coef.abs() <= MOST_COEF;
    match coefs.find(|coef| !fits(coef)) {
        Some(coef) => {
            let expected = format!("at most {MOST_COEF:e}: noise that cancels so much is none");
            Err(Error::parameter("a coefficient of the strategy", format!("{coef:e}"), expected))
        }
        None => Ok(()),
    }
}

fn restarted(factorization: Factorization, form: &Form) -> Result<Factorization> {
    match form.restart_every() {
        Some(every) => factorization.restarted(usize::try_from(every).unwrap_or(usize::MAX)),
        None => Ok(factorization),
    }
}

/// A BLT that the closed forms do not cover (a scale below zero, decays that rounding made equal) is written out.
fn blt_strategy(scale: &[f64], decay: &[f64], n: usize) -> Result<Strategy> {
    match (scale, decay) {
        ([], _) => return Ok(Strategy::Identity),
        ([alpha], [lambda]) if alpha == lambda => return Strategy::one_parameter(*lambda),
        _ => {}
    }
    if let Ok(blt) = Blt::new(scale, decay) {
        return Ok(Strategy::Blt(blt));
    }
    if n > LINEAR_LIMIT {
        let what = "writing out a BLT without closed form (scales below 0, or equal decays)".into();
        return Err(Error::TooLarge { what, cost: "n", n, limit: LINEAR_LIMIT });
    }
    let mut powers = scale.to_vec();
    let mut coefs = vec![1.0];
    for _ in 1..n {
        coefs.push(powers.iter().sum());
        powers.iter_mut().zip(decay).for_each(|(power, lambda)| *power *= lambda);
    }
    Strategy::toeplitz(coefs)
}

fn ring_factorization(ring: &Ring, form: &Form, n: usize) -> Result<Factorization> {
    if let Some(coefs) = ring.toeplitz_coefs() {
        let coefs = std::iter::once(1.0).chain(coefs.iter().map(|coef| f64::from(*coef))).collect();
        return restarted(Factorization::new(Strategy::toeplitz(coefs)?, n)?, form);
    }
    // Rows end where their segment begins, so nothing else needs to know of restarts.
    let row = |t: usize| {
        let coefs = ring.coefs(t as u64);
        let len = coefs.len().min(form.age(t as u64) as usize);
        std::iter::once(1.0).chain(coefs[..len].iter().map(|coef| f64::from(*coef))).collect()
    };
    Factorization::new(Strategy::banded((0..n).map(row).collect())?, n)
}

/// `C⁻¹` without the output scale, lower triangular.
fn noising_matrix(regenerate: &Regenerate, form: &Form, n: usize) -> Result<LowerTriangular> {
    if n > CUBIC_LIMIT {
        let what = "the strategy of a form with weights per step".into();
        return Err(Error::TooLarge { what, cost: "n³/6", n, limit: CUBIC_LIMIT });
    }
    if regenerate.weights(0).is_none() {
        return listed_factor(regenerate, n);
    }
    Ok(LowerTriangular::from_rows((0..n).map(|t| {
        let weights = regenerate.weights(t as u64).expect("weights by age at every step");
        let mut row = vec![0.0; t + 1];
        let reach = form.age(t as u64) as usize + 1;
        for (age, weight) in weights.iter().enumerate().take(reach) {
            row[t - age] = f64::from(*weight);
        }
        row
    })))
}

/// The Cholesky factor of the covariance of listed rows, row by row.
fn listed_factor(regenerate: &Regenerate, n: usize) -> Result<LowerTriangular> {
    // In order, so that sums round the same way in every process.
    let rows: Vec<BTreeMap<_, f64>> = (0..n as u64)
        .map(|t| {
            let mut row = BTreeMap::new();
            for term in regenerate.listed_terms(t).expect("listed at every step") {
                *row.entry((term.family as u8, term.index)).or_insert(0.0) += term.weight;
            }
            row
        })
        .collect();
    // By the rows they share, in order: as many operations as pairs of steps that share one, however long the lists.
    let mut users: BTreeMap<_, Vec<(usize, f64)>> = BTreeMap::new();
    for (t, row) in rows.iter().enumerate() {
        row.iter().for_each(|(name, weight)| users.entry(*name).or_default().push((t, *weight)));
    }
    let mut products: Vec<Vec<f64>> = (0..n).map(|t| vec![0.0; t + 1]).collect();
    for users in users.values() {
        for (at, (t, weight)) in users.iter().enumerate() {
            users[..=at].iter().for_each(|(s, other)| products[*t][*s] += weight * other);
        }
    }
    let product = |t: usize, s: usize| products[t][s];
    let mut factor: Vec<Vec<f64>> = Vec::with_capacity(n);
    for t in 0..n {
        let mut row = vec![0.0; t + 1];
        for s in 0..t {
            let known: f64 = row[..s].iter().zip(&factor[s]).map(|(a, b)| a * b).sum();
            row[s] = (product(t, s) - known) / factor[s][s];
        }
        let rest = product(t, t) - row[..t].iter().map(|value| value * value).sum::<f64>();
        // What the digits of the sums above cannot tell from zero is no noise of its own.
        if rest <= 1e-9 * product(t, t) {
            return Err(Error::parameter(
                format!("noise of step {t}, given the steps before it"),
                rest.max(0.0).sqrt(),
                "not 0: every step needs noise of its own",
            ));
        }
        row[t] = rest.sqrt();
        factor.push(row);
    }
    check_decided(&factor, &users)?;
    Ok(LowerTriangular::from_rows(factor))
}

/// Refuses listed rows whose shifts are not decided when they are first used. A shift of what is released is that of the least norm
/// in the rows, `T⁺G`; what it does to one row follows from outputs up to its first use, exactly if the row's weights over the steps are
/// in proportion to the factor's column of that step. Those of trees are. The end of the tail is counted row by row, and needs it.
fn check_decided<Name: std::fmt::Debug>(
    factor: &[Vec<f64>],
    users: &BTreeMap<Name, Vec<(usize, f64)>>,
) -> Result<()> {
    let mut norms = vec![0.0; factor.len()];
    for row in factor {
        row.iter().zip(&mut norms).for_each(|(value, norm)| *norm += value * value);
    }
    for (name, users) in users {
        let (first, weight) = users[0];
        let scale = weight / factor[first][first];
        let own: f64 = users.iter().map(|(_, weight)| weight * weight).sum();
        let common: f64 = users.iter().map(|(t, weight)| weight * factor[*t][first]).sum();
        let apart = own - 2.0 * scale * common + scale * scale * norms[first];
        if apart > 1e-9 * own {
            return Err(Error::parameter(
                format!("row {name:?}"),
                format!("used by {} steps with weights of its own", users.len()),
                "weights in proportion to the noise that is new at the row's first step",
            ));
        }
    }
    Ok(())
}

/// Rows of normals that a run is made of.
pub(crate) fn num_rows(form: &Form, num_steps: usize) -> usize {
    let Kernel::Regenerate(regenerate) = form.kernel() else { return num_steps };
    let listed = (0..num_steps as u64).map_while(|t| regenerate.listed_terms(t));
    let names: std::collections::BTreeSet<_> =
        listed.flatten().map(|term| (term.family as u8, term.index)).collect();
    names.len().max(num_steps)
}

fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::tree::Estimator;
    use crate::utility::workload::Workload;

    fn strategies() -> Vec<Strategy> {
        let rows = (0..40)
            .map(|t| vec![1.3, 0.7, 0.2][..3.min(t + 1)].iter().map(|c| c + 0.01 * t as f64).collect());
        let dense = LowerTriangular::from_fn(40, |t, s| 1.0 / (1.3 + (t - s) as f64 + 0.1 * s as f64));
        vec![
            Strategy::Identity,
            Strategy::Output(Workload::Prefix),
            Strategy::one_parameter(0.3).unwrap(),
            Strategy::square_root(Workload::Prefix).unwrap(),
            Strategy::toeplitz(vec![1.7, 0.9, 0.3]).unwrap(),
            Strategy::banded(rows.collect()).unwrap(),
            Strategy::Blt(Blt::new(&[0.3, 0.1], &[0.6, 0.95]).unwrap()),
            Strategy::Dense(dense),
            Strategy::Tree(Estimator::Plain),
            Strategy::Tree(Estimator::Streaming),
            Strategy::Tree(Estimator::Full),
            Strategy::banded_inverse_square_root(4).unwrap(),
        ]
    }

    /// The Gram matrix, which is all that privacy depends on.
    fn gram(factorization: &Factorization) -> Vec<Vec<f64>> {
        let gram = crate::factorization::gram::Gram::new(factorization).unwrap();
        (0..factorization.num_steps()).map(|lag| gram.diagonal(lag).unwrap()).collect()
    }

    #[test]
    fn the_matrix_comes_back_to_f32() {
        for strategy in strategies() {
            for normalized in [false, true] {
                for restarts in [40, 16] {
                    let plain =
                        Factorization::new(strategy.clone(), 40).unwrap().restarted(restarts).unwrap();
                    let original = if normalized { plain.column_normalized().unwrap() } else { plain };
                    let form = original.form().unwrap();
                    let back = Factorization::from_form(&form, 40).unwrap();
                    // A causal tree is analysed as if every node were released. The engine releases less.
                    let releases_less =
                        matches!(strategy, Strategy::Tree(Estimator::Plain | Estimator::Streaming));
                    let diagonals = if releases_less { 1 } else { 40 };
                    let [a, b] = [&original, &back].map(|matrix| gram(matrix)[..diagonals].concat());
                    for (a, b) in a.into_iter().zip(b) {
                        let close = (a - b).abs() < 3e-6 * (1.0 + a.abs());
                        assert!(close || releases_less && b < a, "{}: {a} {b}", original.describe());
                    }
                    // What was rounded once is not rounded again: the form of the matrix is the form.
                    if !matches!(strategy, Strategy::Tree(_) | Strategy::Dense(_)) {
                        let again = Factorization::from_form(&back.form().unwrap(), 40).unwrap();
                        assert_eq!(gram(&again), gram(&back), "{}", original.describe());
                    }
                }
            }
        }
    }

    #[test]
    fn the_claim_follows_the_rounded_coefficients() {
        // 0.3 is no f32: the matrix that runs has 0.30000001192….
        let form = Factorization::new(Strategy::one_parameter(0.3).unwrap(), 3).unwrap().form().unwrap();
        let matrix = Factorization::from_form(&form, 3).unwrap().matrix().unwrap();
        assert_eq!(matrix.get(1, 0), f64::from(0.3_f32));
    }

    #[test]
    fn a_blt_without_closed_form_is_written_out() {
        let form = Form::blt(&[0.3, -0.1], &[0.5, 0.4]).unwrap();
        let matrix = Factorization::from_form(&form, 4).unwrap().matrix().unwrap();
        let expected = 0.3 * 0.25 - 0.1 * 0.16;
        assert!((matrix.get(3, 0) - expected).abs() < 1e-7, "{}", matrix.get(3, 0));
    }
}
