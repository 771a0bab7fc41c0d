//! Regenerated rows: counter-based noise can generate past rows again, so any `C⁻¹` runs without state.

use super::{round, widen};
use crate::error::{Error, Result};
use crate::row::{Family, Row};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// One weighted row of a listed step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// The family of the row: step rows or tree nodes.
    pub family: Family,
    /// The index of the row in its family.
    pub index: u64,
    /// The weight of the row, rounded to f32 when the form is built.
    pub weight: f64,
}

/// A listed term after rounding, with the step that first names its row: the incarnation of that step made the row.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Listed {
    family: Family,
    index: u64,
    weight: f32,
    born: u64,
}

impl Listed {
    fn term(&self) -> Term {
        Term { family: self.family, index: self.index, weight: f64::from(self.weight) }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Weights {
    /// Weights by age, the same at every step.
    Toeplitz(Vec<f32>),
    /// Weights by age, with a list per step.
    Varying(Vec<Vec<f32>>),
    /// Weights of any rows, with a list per step.
    Listed(Vec<Vec<Listed>>),
}

/// The form `z̃_t = Σ w z_row`, summed in the order listed (by age: youngest first).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawRegenerate", into = "RawRegenerate")]
pub struct Regenerate(Weights);

/// The file format has fields rather than variants, so that an unknown key is refused by name.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawRegenerate {
    #[serde(skip_serializing_if = "Option::is_none")]
    toeplitz: Option<Vec<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    varying: Option<Vec<Vec<f64>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    listed: Option<Vec<Vec<Term>>>,
}

impl TryFrom<RawRegenerate> for Regenerate {
    type Error = Error;
    fn try_from(raw: RawRegenerate) -> Result<Regenerate> {
        match (raw.toeplitz, raw.varying, raw.listed) {
            (Some(weights), None, None) => Regenerate::toeplitz(&weights),
            (None, Some(rows), None) => Regenerate::varying(&rows),
            (None, None, Some(steps)) => Regenerate::listed(&steps),
            _ => Err(Error::Plan(
                "a regenerated form needs exactly one of `toeplitz`, `varying` and `listed`".into(),
            )),
        }
    }
}

impl From<Regenerate> for RawRegenerate {
    fn from(regenerate: Regenerate) -> RawRegenerate {
        let mut raw = RawRegenerate::default();
        match regenerate.0 {
            Weights::Toeplitz(weights) => raw.toeplitz = Some(widen(&weights)),
            Weights::Varying(rows) => raw.varying = Some(rows.iter().map(|row| widen(row)).collect()),
            Weights::Listed(steps) => {
                let terms = |terms: &Vec<Listed>| terms.iter().map(Listed::term).collect();
                raw.listed = Some(steps.iter().map(terms).collect());
            }
        }
        raw
    }
}

impl Regenerate {
    /// A form with the same weights by age at every step: `z̃_t = w₀ z_t + w₁ z_{t−1} + …`.
    pub fn toeplitz(weights: &[f64]) -> Result<Regenerate> {
        if weights.is_empty() {
            return Err(Error::length("list of weights", 0, "at least 1"));
        }
        let rounded = round(weights, "weight")?;
        own_noise(rounded[0], "weight 0")?;
        Ok(Regenerate(Weights::Toeplitz(rounded)))
    }

    /// A form with weights by age for each step: the lower-triangular `C⁻¹` itself, each row from its diagonal leftwards.
    pub fn varying(rows: &[Vec<f64>]) -> Result<Regenerate> {
        let round_row = |(t, row): (usize, &Vec<f64>)| match row.len() {
            len if (1..=t + 1).contains(&len) => {
                let rounded = round(row, &format!("step {t}, weight"))?;
                own_noise(rounded[0], &format!("step {t}, weight 0"))?;
                Ok(rounded)
            }
            len => Err(Error::length(format!("weights of step {t}"), len, format!("1 to {}", t + 1))),
        };
        Ok(Regenerate(Weights::Varying(rows.iter().enumerate().map(round_row).collect::<Result<_>>()?)))
    }

    /// A form with any rows for each step, for tree aggregation, output perturbation with two rows, and so on.
    pub fn listed(steps: &[Vec<Term>]) -> Result<Regenerate> {
        let mut born = HashMap::new();
        let mut list = |step: usize, term: &Term| {
            if !matches!(term.family, Family::Step | Family::TreeNode) {
                return Err(Error::parameter(
                    "family",
                    format!("{:?}", term.family).to_lowercase(),
                    "step or tree_node: noise reads no words of another purpose",
                ));
            }
            Row::new(term.family, 0, term.index)?;
            let weight =
                round(&[term.weight], &format!("step {step}, weight of row {}, part", term.index))?[0];
            let born = *born.entry((term.family, term.index)).or_insert(step as u64);
            Ok(Listed { family: term.family, index: term.index, weight, born })
        };
        let mut listed = Vec::with_capacity(steps.len());
        for (t, terms) in steps.iter().enumerate() {
            let terms: Vec<Listed> = terms.iter().map(|term| list(t, term)).collect::<Result<_>>()?;
            let mut named = HashSet::new();
            if let Some(twice) = terms.iter().find(|term| !named.insert((term.family, term.index))) {
                let name = format!("step {t}, row {}", twice.index);
                return Err(Error::parameter(name, "named twice", "one weight per row: two could cancel"));
            }
            own_noise(own_weight(t, &terms), &format!("step {t}, weight of rows that no earlier step used"))?;
            listed.push(terms);
        }
        Ok(Regenerate(Weights::Listed(listed)))
    }

    /// The largest number of rows that any step sums.
    pub fn max_terms(&self) -> usize {
        match &self.0 {
            Weights::Toeplitz(weights) => weights.len(),
            Weights::Varying(rows) => rows.iter().map(Vec::len).max().unwrap_or(0),
            Weights::Listed(steps) => steps.iter().map(Vec::len).max().unwrap_or(0),
        }
    }

    /// Appends the rows and weights of a step that has `age` steps before it since the last restart.
    pub(crate) fn terms(
        &self,
        step: u64,
        age: u64,
        incarnation: impl Fn(u64) -> u16,
        out: &mut Vec<(Row, f32)>,
    ) -> Result<()> {
        let by_age = match &self.0 {
            Weights::Toeplitz(weights) => weights,
            Weights::Varying(rows) => &rows[step as usize],
            Weights::Listed(steps) => {
                for term in &steps[step as usize] {
                    out.push((Row::new(term.family, incarnation(term.born), term.index)?, term.weight));
                }
                return Ok(());
            }
        };
        for (index, &weight) in (0..=age).map(|a| step - a).zip(by_age) {
            out.push((Row::new(Family::Step, incarnation(index), index)?, weight));
        }
        Ok(())
    }

    /// The weights by age, if they are the same at every step.
    pub fn toeplitz_weights(&self) -> Option<&[f32]> {
        match &self.0 {
            Weights::Toeplitz(weights) => Some(weights),
            _ => None,
        }
    }

    /// The weights of a step by age, unless its rows are listed.
    ///
    /// # Panics
    /// If weights are given per step and there is no such step.
    pub fn weights(&self, step: u64) -> Option<&[f32]> {
        match &self.0 {
            Weights::Toeplitz(weights) => Some(weights),
            Weights::Varying(rows) => Some(&rows[step as usize]),
            Weights::Listed(_) => None,
        }
    }

    /// The rows of a step and their weights, if they are listed.
    ///
    /// # Panics
    /// If there is no such step.
    pub fn listed_terms(&self, step: u64) -> Option<Vec<Term>> {
        match &self.0 {
            Weights::Listed(steps) => Some(steps[step as usize].iter().map(Listed::term).collect()),
            _ => None,
        }
    }

    /// The smallest size of a row: its own weight, that of the noise which no earlier step used.
    pub(super) fn smallest_row(&self) -> f32 {
        match &self.0 {
            Weights::Toeplitz(weights) => weights[0].abs(),
            Weights::Varying(rows) => rows.iter().map(|row| row[0].abs()).fold(f32::INFINITY, f32::min),
            Weights::Listed(steps) => {
                let own = steps.iter().enumerate().map(|(t, terms)| own_weight(t, terms));
                own.fold(f32::INFINITY, f32::min)
            }
        }
    }

    /// The largest standard deviation of a row.
    pub(super) fn largest_row(&self) -> f64 {
        fn squares(weights: impl Iterator<Item = f32>) -> f64 {
            weights.map(|weight| f64::from(weight).powi(2)).sum()
        }
        let largest = match &self.0 {
            Weights::Toeplitz(weights) => squares(weights.iter().copied()),
            Weights::Varying(rows) => rows.iter().map(|row| squares(row.iter().copied())).fold(0.0, f64::max),
            Weights::Listed(steps) => {
                steps.iter().map(|row| squares(row.iter().map(|term| term.weight))).fold(0.0, f64::max)
            }
        };
        largest.sqrt()
    }

    pub(super) fn is_listed(&self) -> bool {
        matches!(self.0, Weights::Listed(_))
    }

    pub(super) fn table_len(&self) -> Option<usize> {
        match &self.0 {
            Weights::Toeplitz(_) => None,
            Weights::Varying(rows) => Some(rows.len()),
            Weights::Listed(steps) => Some(steps.len()),
        }
    }
}

/// The largest weight of a row that no earlier step used.
fn own_weight(step: usize, terms: &[Listed]) -> f32 {
    let own = terms.iter().filter(|term| term.born == step as u64);
    own.fold(0.0, |largest, term| largest.max(term.weight.abs()))
}

/// Refuses a step without a row of its own: its noise would be known from the steps before it.
fn own_noise(weight: f32, name: &str) -> Result<()> {
    match weight == 0.0 {
        true => Err(Error::parameter(name, weight, "not zero in f32: every step needs noise of its own")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(index: u64, weight: f64) -> Term {
        Term { family: Family::Step, index, weight }
    }

    #[test]
    fn rows_are_named_youngest_first_and_stop_at_a_restart() {
        let form = Regenerate::toeplitz(&[1.0, -0.5, 0.25]).unwrap();
        let incarnation = |step: u64| (step >= 6) as u16;
        let names = |t, age| {
            let mut out = Vec::new();
            form.terms(t, age, incarnation, &mut out).unwrap();
            out.iter().map(|(row, w)| (row.stream(), *w)).collect::<Vec<_>>()
        };
        assert_eq!(names(7, 7), [(1 << 40 | 7, 1.0), (1 << 40 | 6, -0.5), (5, 0.25)]);
        assert_eq!(names(7, 1), [(1 << 40 | 7, 1.0), (1 << 40 | 6, -0.5)]);
        assert_eq!(names(0, 0), [(0, 1.0)]);
    }

    #[test]
    fn a_listed_row_belongs_to_the_incarnation_that_first_used_it() {
        let node = Term { family: Family::TreeNode, index: 9, weight: 1.0 };
        let last = vec![node, step(0, 1.0), step(2, 1.0)];
        let form = Regenerate::listed(&[vec![step(0, 1.0)], vec![node, step(1, 2.0)], last]).unwrap();
        let mut out = Vec::new();
        form.terms(2, 2, |step| step as u16, &mut out).unwrap();
        let names = [(Family::TreeNode, 1, 9), (Family::Step, 0, 0), (Family::Step, 2, 2)];
        let expected =
            names.map(|(family, incarnation, index)| Row::new(family, incarnation, index).unwrap());
        assert_eq!(out.iter().map(|t| t.0).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn bad_lists_are_named() {
        let error = |result: Result<Regenerate>| result.unwrap_err().to_string();
        assert!(error(Regenerate::listed(&[vec![]])).contains("step 0, weight of rows"));
        assert!(error(Regenerate::listed(&[vec![step(0, 1.0)], vec![step(0, 1.0)]])).contains("step 1"));
        assert!(error(Regenerate::toeplitz(&[0.0, 1.0])).contains("noise of its own"));
        assert!(error(Regenerate::toeplitz(&[1e-50, 1.0])).contains("noise of its own"));
        assert!(error(Regenerate::varying(&[vec![1.0], vec![0.0, 1.0]])).contains("step 1, weight 0"));
        assert!(error(Regenerate::listed(&[vec![step(1 << 40, 1.0)]])).contains("row index"));
        assert!(error(Regenerate::listed(&[vec![step(3, f64::NAN)]])).contains("weight of row 3"));
        let sampler = Term { family: Family::Sampler, index: 0, weight: 1.0 };
        assert!(error(Regenerate::listed(&[vec![sampler]])).contains("sampler"));
        assert!(error(Regenerate::varying(&[vec![1.0, 2.0]])).contains("weights of step 0 has length 2"));
    }
}
