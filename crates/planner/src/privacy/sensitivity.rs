//! Sensitivity: how far one privacy unit can move `CG`, over all steps it may take part in.
//!
//! Squared, and with unit clip norm, it is the largest `Σ_{s,t∈π} (CᵀC)[s,t]·⟨u_s, u_t⟩` over patterns π and unit vectors `u`.
//! Where no allowed pair has a negative entry, all `u` are equal and the sum over the best pattern is exact. With negative ones
//! the value depends on the dimension (Grothendieck), and the sum of absolute values is an upper bound.

mod min_sep_bounds;
mod patterns;
mod sums;

use crate::error::{Error, Result};
use crate::factorization::{Factorization, LINEAR_LIMIT};
use crate::privacy::participation::Participation;
use crate::strategy::Strategy;
use crate::strategy::blt::Blt;
use serde::{Deserialize, Serialize};
use sums::{
    best_cyclic_sum, best_separated_sum, early_and_often_of_few, early_and_often_squared, orthogonal_sum,
};

/// Which datasets are neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Adjacency {
    /// One unit's gradients become zero.
    #[default]
    ZeroOut,
    /// One unit is replaced by another: twice as far.
    ReplaceOne,
}

/// Whether a sensitivity is the true one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exactness {
    /// The value is the true one.
    Exact,
    /// No less than the true value.
    UpperBound,
}

/// A sensitivity for clip norm 1, and how it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sensitivity {
    /// The value for clip norm 1.
    pub value: f64,
    /// Exact or an upper bound.
    pub exactness: Exactness,
    /// Why the value is known.
    pub reason: &'static str,
}

/// Entries this close to zero, relative to the columns' norms, are rounding.
const ROUNDING: f64 = 1e-13;
/// Participations up to which the closed form of a BLT is the quicker one; beyond, its coefficients are written out.
const FEW_PARTICIPATIONS: usize = 2000;
/// Most participations times squared buffers of that closed form, where coefficients are too many to write out.
const MAX_CLOSED_WORK: usize = 40_000_000;
/// Most additions of the dynamic program over separated steps.
const MAX_SEPARATED_WORK: usize = 4_000_000_000;

/// A squared sensitivity, whether it is the true one, and why.
type Squared = (f64, Exactness, &'static str);

impl Factorization {
    /// The sensitivity under a participation schema.
    pub fn sensitivity(&self, participation: &Participation, adjacency: Adjacency) -> Result<Sensitivity> {
        participation.check(self.num_steps())?;
        let (squared, exactness, reason) = self.sensitivity_squared(participation)?;
        let factor = match adjacency {
            Adjacency::ZeroOut => 1.0,
            Adjacency::ReplaceOne => 2.0,
        };
        Ok(Sensitivity { value: factor * squared.sqrt(), exactness, reason })
    }

    fn sensitivity_squared(&self, participation: &Participation) -> Result<Squared> {
        let n = self.num_steps();
        let (separation, participations) = match participation {
            Participation::Single => (n, 1),
            Participation::Full => (1, n),
            Participation::Cyclic { separation, max_participations } => (*separation, *max_participations),
            Participation::MinSep { min_sep, max_participations } => (*min_sep, *max_participations),
            Participation::Patterns(patterns) => return self.over_patterns(patterns),
        };
        // A cycle may begin at any step, so that one participation is any one step.
        if participations == 1 {
            return Ok((self.max_column_norm_squared()?, Exactness::Exact, "largest column norm"));
        }
        let cyclic = !matches!(participation, Participation::MinSep { .. });
        if self.num_bands() <= separation {
            let squared = self.orthogonal(separation, participations, cyclic)?;
            return Ok((
                squared,
                Exactness::Exact,
                "no more bands than the separation: columns are orthogonal",
            ));
        }
        if let Some(found) = self.early_and_often(separation, participations, cyclic)? {
            return Ok(found);
        }
        match cyclic {
            true => self.cyclic(separation, participations),
            false => self.min_sep(separation, participations),
        }
    }

    fn max_column_norm_squared(&self) -> Result<f64> {
        if let Some(blt) = self.plain_blt() {
            return Ok(blt.column_norm_squared(self.num_steps() as u64));
        }
        if let Some(coefs) = self.few_coefs()? {
            return Ok(coefs.iter().map(|coef| coef * coef).sum());
        }
        if !self.has_scaled_columns()
            && let Some(coefs) = self.strategy_coefs()?
        {
            // The first column of a segment has all of the coefficients.
            return Ok(coefs.iter().map(|coef| coef * coef).sum());
        }
        Ok(self.column_norms_squared()?.into_iter().fold(0.0, f64::max))
    }

    /// Columns that may be met together do not overlap: the best sum of their squared norms.
    fn orthogonal(&self, separation: usize, participations: usize, cyclic: bool) -> Result<f64> {
        if let Some(coefs) = self.few_coefs()? {
            return Ok(orthogonal_sum(&coefs, self.num_steps(), separation, participations));
        }
        let norms = self.column_norms_squared()?;
        if cyclic {
            return Ok(best_cyclic_sum(&norms, separation, participations));
        }
        self.check_separated(participations)?;
        Ok(best_separated_sum(&norms, separation, participations))
    }

    /// The dynamic program over separated steps costs a pass over all steps per participation.
    fn check_separated(&self, participations: usize) -> Result<()> {
        let limit = MAX_SEPARATED_WORK / participations;
        self.check_size(
            &format!("min-sep sensitivity with {participations} participations"),
            limit,
            "n·participations",
        )
    }

    /// `‖Σ_j C[:, jb]‖²`, where a plain Toeplitz strategy has its worst pattern there.
    ///
    /// The columns of a cycle that begins at step `l` sum to those of the first cycle, moved down by `l` and cut at the end: without
    /// negative coefficients no later cycle is worse. Of all separated steps, the earliest are the worst if in addition
    /// coefficients never increase.
    fn early_and_often(
        &self,
        separation: usize,
        participations: usize,
        cyclic: bool,
    ) -> Result<Option<Squared>> {
        if !self.is_plain() {
            return Ok(None);
        }
        let found = |squared: f64, monotone: bool| {
            let reason = match monotone {
                true => "non-negative, non-increasing Toeplitz: early and often is worst",
                false => "non-negative Toeplitz: the earliest cycle is worst",
            };
            (monotone || cyclic).then_some((squared, Exactness::Exact, reason))
        };
        let closed = |blt: &Blt| {
            let [n, b, k] = [self.num_steps(), separation, participations].map(|number| number as u64);
            found(blt.min_sep_sensitivity_squared(n, b, k), blt.is_non_increasing())
        };
        let written = self.num_steps() <= LINEAR_LIMIT;
        if let Some(blt) = self.plain_blt()
            && (participations <= FEW_PARTICIPATIONS
                || !written && participations <= MAX_CLOSED_WORK / blt.num_buffers().pow(2).max(1))
        {
            return Ok(closed(&blt));
        }
        let shape = |coefs: &[f64]| {
            let monotone = coefs.windows(2).all(|pair| pair[0] >= pair[1]);
            (coefs.iter().all(|coef| *coef >= 0.0), monotone)
        };
        if let Some(coefs) = self.few_coefs()? {
            let (positive, monotone) = shape(&coefs);
            let squared = || early_and_often_of_few(&coefs, self.num_steps(), separation, participations);
            return Ok((positive && (monotone || cyclic)).then(|| found(squared(), monotone)).flatten());
        }
        let Some(coefs) = self.strategy_coefs()? else { return Ok(None) };
        let (positive, monotone) = shape(&coefs);
        let squared = || early_and_often_squared(&coefs, separation, participations);
        Ok((positive && (monotone || cyclic)).then(|| found(squared(), monotone)).flatten())
    }

    /// A plain BLT, or one of one buffer by another name.
    pub(crate) fn plain_blt(&self) -> Option<Blt> {
        match self.strategy() {
            _ if !self.is_plain() => None,
            Strategy::Blt(blt) => Some(blt.clone()),
            // Short ones are exact by their coefficients.
            Strategy::OneParameter { decay } if self.num_steps() > LINEAR_LIMIT => {
                Blt::new(&[*decay], &[*decay]).ok()
            }
            _ => None,
        }
    }
}

/// The largest of sums that are exact (false) or bounds (true); exact only if no bound exceeds it.
fn worst(sums: impl IntoIterator<Item = (f64, bool)>, reason: &'static str) -> Squared {
    match largest(sums) {
        (value, false) => (value, Exactness::Exact, reason),
        (value, true) => {
            (value, Exactness::UpperBound, "the Gram matrix has negative entries on allowed pairs")
        }
    }
}

fn largest(sums: impl IntoIterator<Item = (f64, bool)>) -> (f64, bool) {
    sums.into_iter().fold((0.0, false), |best, sum| if sum.0 > best.0 { sum } else { best })
}

impl Sensitivity {
    /// The value, or an error if it is only an upper bound.
    pub fn exact(&self) -> Result<f64> {
        match self.exactness {
            Exactness::Exact => Ok(self.value),
            Exactness::UpperBound => Err(Error::parameter(
                "sensitivity",
                self.value,
                format!("an exact one, not a bound: {}", self.reason),
            )),
        }
    }
}
