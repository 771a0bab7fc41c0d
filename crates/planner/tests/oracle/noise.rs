//! The matrix of the noise that a plan runs, from the engine's recursions.
//!
//! A run adds `o_t = scale_t · z̃_t` to the gradients; `C` maps outputs back to independent normals, `z = C o`. For the
//! recursions of buffers and rings it is the recursion itself, read the other way; weights are inverted by forward substitution.

use super::dd::{Dd, ONE, ZERO};
use corrnoise_core::Plan;
use corrnoise_core::form::{Kernel, Regenerate};
use std::collections::HashMap;

/// The columns of the matrix `C`.
pub type Columns = Vec<Vec<Dd>>;

/// True if every step draws one normal, so that the rows of `C` belong to the engine's own normals.
pub fn is_square(plan: &Plan) -> bool {
    match plan.form().kernel() {
        Kernel::Regenerate(regenerate) => regenerate.weights(0).is_some(),
        _ => true,
    }
}

/// The matrix `C` in units of the added noise: columns are divided by the f32 scales of their steps.
pub fn strategy(plan: &Plan) -> Columns {
    let n = plan.num_steps() as usize;
    let form = plan.form();
    let mut columns = match form.kernel() {
        Kernel::Regenerate(regenerate) if regenerate.weights(0).is_none() => listed(regenerate, n),
        _ => (0..n).map(|s| normals_of_unit_output(plan, s, n)).collect(),
    };
    for (t, column) in columns.iter_mut().enumerate() {
        let scale = Dd::from(plan.scale(t as u64));
        column.iter_mut().for_each(|entry| *entry = *entry / scale);
    }
    columns
}

/// The number of steps since the state was cleared.
fn age(plan: &Plan, t: usize) -> usize {
    plan.form().restart_every().map_or(t, |every| (t as u64 % every) as usize)
}

/// The normals that make `z̃` 1 at step `s` and 0 at all others.
fn normals_of_unit_output(plan: &Plan, s: usize, n: usize) -> Vec<Dd> {
    let output = |t: usize| if t == s { ONE } else { ZERO };
    let mut normals: Vec<Dd> = Vec::with_capacity(n);
    let mut buffers = Vec::new();
    for t in 0..n {
        let age = age(plan, t);
        let normal = match plan.form().kernel() {
            Kernel::Blt(blt) => {
                if age == 0 {
                    buffers = vec![ZERO; blt.scale().len()];
                }
                let past = blt.scale().iter().zip(&buffers).map(|(scale, m)| Dd::from(*scale) * *m);
                let normal = past.fold(output(t), |sum, term| sum + term);
                for (decay, m) in blt.decay().iter().zip(&mut buffers) {
                    *m = Dd::from(*decay) * *m + output(t);
                }
                normal
            }
            Kernel::Ring(ring) => {
                let coefs = ring.coefs(t as u64);
                let ages = 1..=coefs.len().min(age);
                ages.fold(output(t), |sum, a| sum + Dd::from(coefs[a - 1]) * output(t - a))
            }
            Kernel::Regenerate(regenerate) => {
                let weights = regenerate.weights(t as u64).expect("listed rows are treated elsewhere");
                let ages = 1..weights.len().min(age + 1);
                let known = ages.fold(output(t), |sum, a| sum - Dd::from(weights[a]) * normals[t - a]);
                known / Dd::from(weights[0])
            }
        };
        normals.push(normal);
    }
    normals
}

/// The matrix of listed rows: their covariance is `K = L D Lᵀ`, and `D^{−1/2}L⁻¹` turns it into the identity.
fn listed(regenerate: &Regenerate, n: usize) -> Columns {
    let rows: Vec<HashMap<(u8, u64), Dd>> = (0..n as u64)
        .map(|t| {
            let mut row = HashMap::new();
            for term in regenerate.listed_terms(t).expect("listed rows") {
                let sum = row.entry((term.family as u8, term.index)).or_insert(ZERO);
                *sum = *sum + Dd::from(term.weight as f32);
            }
            row
        })
        .collect();
    let covariance = |t: usize, s: usize| {
        rows[t].iter().fold(ZERO, |sum, (name, weight)| match rows[s].get(name) {
            Some(other) => sum + *weight * *other,
            None => sum,
        })
    };
    let (mut lower, mut diagonal): (Vec<Vec<Dd>>, Vec<Dd>) = (Vec::new(), Vec::new());
    for t in 0..n {
        let mut row: Vec<Dd> = Vec::with_capacity(t);
        for s in 0..t {
            let known = (0..s).fold(covariance(t, s), |sum, r| sum - row[r] * lower[s][r] * diagonal[r]);
            row.push(known / diagonal[s]);
        }
        let rest = (0..t).fold(covariance(t, t), |sum, r| sum - row[r] * row[r] * diagonal[r]);
        lower.push(row);
        diagonal.push(rest);
    }
    (0..n)
        .map(|s| {
            let mut column: Vec<Dd> = vec![ZERO; n];
            for t in s..n {
                let own = if t == s { ONE } else { ZERO };
                column[t] = (s..t).fold(own, |sum, r| sum - lower[t][r] * column[r]);
            }
            column.iter().zip(&diagonal).map(|(entry, variance)| *entry / variance.sqrt()).collect()
        })
        .collect()
}

/// The Gram matrix `CᵀC` of the columns.
pub fn gram(columns: &Columns) -> Vec<Vec<f64>> {
    let n = columns.len();
    let mut gram = vec![vec![0.0; n]; n];
    for s in 0..n {
        for t in s..n {
            // A column is zero before its own step.
            let entry = (t..n).fold(ZERO, |sum, r| sum + columns[s][r] * columns[t][r]).value();
            (gram[s][t], gram[t][s]) = (entry, entry);
        }
    }
    gram
}

/// The shift of the normals by a unit that adds `±size` at some steps.
pub fn image(columns: &Columns, steps: &[usize], signs: &[f64], size: f64) -> Vec<f64> {
    (0..columns.len())
        .map(|r| {
            let sum =
                steps.iter().zip(signs).fold(ZERO, |sum, (t, sign)| sum + columns[*t][r] * Dd::from(*sign));
            sum.value() * size
        })
        .collect()
}
