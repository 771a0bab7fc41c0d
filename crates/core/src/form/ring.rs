//! A ring of past outputs: the inverse of a banded strategy with unit diagonal.

use super::{round, widen};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// Coefficients by age, youngest first: the same at every step, or a row per step.
#[derive(Clone, Debug, PartialEq)]
enum Coefs {
    Toeplitz(Vec<f32>),
    Varying(Vec<Vec<f32>>),
}

/// The form `y_t = z_t − Σ c_{t,a} y_{t−a}`, with ages `a = 1, 2, …` ascending.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawRing", into = "RawRing")]
pub struct Ring {
    coefs: Coefs,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRing {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    toeplitz: Option<Vec<f64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    varying: Option<Vec<Vec<f64>>>,
}

impl TryFrom<RawRing> for Ring {
    type Error = Error;
    fn try_from(raw: RawRing) -> Result<Ring> {
        match (raw.toeplitz, raw.varying) {
            (Some(coefs), None) => Ring::toeplitz(&coefs),
            (None, Some(rows)) => Ring::varying(&rows),
            _ => Err(Error::Plan("a ring needs exactly one of `toeplitz` and `varying`".into())),
        }
    }
}

impl From<Ring> for RawRing {
    fn from(ring: Ring) -> RawRing {
        let (toeplitz, varying) = match ring.coefs {
            Coefs::Toeplitz(coefs) => (Some(widen(&coefs)), None),
            Coefs::Varying(rows) => (None, Some(rows.iter().map(|row| widen(row)).collect())),
        };
        RawRing { toeplitz, varying }
    }
}

impl Ring {
    /// A ring with the same coefficients at every step, for ages 1, 2, … (the unit diagonal is not listed).
    pub fn toeplitz(coefs: &[f64]) -> Result<Ring> {
        Ok(Ring { coefs: Coefs::Toeplitz(round(coefs, "ring coefficient")?) })
    }

    /// A ring with a row of coefficients per step; row `t` has at most `t` of them.
    pub fn varying(rows: &[Vec<f64>]) -> Result<Ring> {
        if let Some((t, row)) = rows.iter().enumerate().find(|(t, row)| row.len() > *t) {
            return Err(Error::length(format!("ring row {t}"), row.len(), format!("at most {t} past steps")));
        }
        let round_row = |(t, row): (usize, &Vec<f64>)| round(row, &format!("ring row {t}, coefficient"));
        let rows = rows.iter().enumerate().map(round_row).collect::<Result<_>>()?;
        Ok(Ring { coefs: Coefs::Varying(rows) })
    }

    /// The number of past outputs kept per parameter: bands − 1.
    pub fn num_slots(&self) -> usize {
        match &self.coefs {
            Coefs::Toeplitz(coefs) => coefs.len(),
            Coefs::Varying(rows) => rows.iter().map(Vec::len).max().unwrap_or(0),
        }
    }

    /// Coefficients by age, if they are the same at every step.
    pub fn toeplitz_coefs(&self) -> Option<&[f32]> {
        match &self.coefs {
            Coefs::Toeplitz(coefs) => Some(coefs),
            Coefs::Varying(_) => None,
        }
    }

    /// Coefficients of a step by age, before any cut at a restart.
    ///
    /// # Panics
    /// If coefficients are given per step and there is no such step.
    pub fn coefs(&self, step: u64) -> &[f32] {
        match &self.coefs {
            Coefs::Toeplitz(coefs) => coefs,
            Coefs::Varying(rows) => &rows[step as usize],
        }
    }

    pub(super) fn table_len(&self) -> Option<usize> {
        match &self.coefs {
            Coefs::Toeplitz(_) => None,
            Coefs::Varying(rows) => Some(rows.len()),
        }
    }
}
