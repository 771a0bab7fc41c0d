//! A ring of past outputs: the inverse of a banded strategy with unit diagonal.

use super::{round, widen};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// How past outputs are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum History {
    /// As f32: the mechanism of the plan.
    #[default]
    F32,
    /// Rounded to bf16: half the memory and traffic, an *approximation* of the mechanism.
    ///
    /// The output itself keeps f32 precision; each remembered row carries a relative error of up to 2⁻⁹, so the noise is
    /// that of `C⁻¹` applied to `Z` plus an error of about 0.1% of the past rows' contribution. No claim is adjusted for it.
    Bf16,
}

impl History {
    /// Bytes per remembered value.
    pub fn bytes(self) -> usize {
        match self {
            History::F32 => 4,
            History::Bf16 => 2,
        }
    }
}

/// Coefficients by age, youngest first: the same at every step, or a row per step.
#[derive(Clone, Debug, PartialEq)]
enum Coefs {
    Toeplitz(Vec<f32>),
    Varying(Vec<Vec<f32>>),
}

/// `y_t = z_t − Σ c_{t,a} y_{t−a}`, ages `a = 1, 2, …` ascending.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawRing", into = "RawRing")]
pub struct Ring {
    coefs: Coefs,
    history: History,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRing {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    toeplitz: Option<Vec<f64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    varying: Option<Vec<Vec<f64>>>,
    history: History,
}

impl TryFrom<RawRing> for Ring {
    type Error = Error;
    fn try_from(raw: RawRing) -> Result<Ring> {
        let ring = match (raw.toeplitz, raw.varying) {
            (Some(coefs), None) => Ring::toeplitz(&coefs)?,
            (None, Some(rows)) => Ring::varying(&rows)?,
            _ => return Err(Error::Plan("a ring needs exactly one of `toeplitz` and `varying`".into())),
        };
        Ok(ring.with_history(raw.history))
    }
}

impl From<Ring> for RawRing {
    fn from(ring: Ring) -> RawRing {
        let (toeplitz, varying) = match ring.coefs {
            Coefs::Toeplitz(coefs) => (Some(widen(&coefs)), None),
            Coefs::Varying(rows) => (None, Some(rows.iter().map(|row| widen(row)).collect())),
        };
        RawRing { toeplitz, varying, history: ring.history }
    }
}

impl Ring {
    /// The same coefficients at every step, for ages 1, 2, … (the unit diagonal is not listed).
    pub fn toeplitz(coefs: &[f64]) -> Result<Ring> {
        Ok(Ring { coefs: Coefs::Toeplitz(round(coefs, "ring coefficient")?), history: History::F32 })
    }

    /// A row of coefficients per step; row `t` has at most `t` of them.
    pub fn varying(rows: &[Vec<f64>]) -> Result<Ring> {
        if let Some((t, row)) = rows.iter().enumerate().find(|(t, row)| row.len() > *t) {
            return Err(Error::length(format!("ring row {t}"), row.len(), format!("at most {t} past steps")));
        }
        let round_row = |(t, row): (usize, &Vec<f64>)| round(row, &format!("ring row {t}, coefficient"));
        let rows = rows.iter().enumerate().map(round_row).collect::<Result<_>>()?;
        Ok(Ring { coefs: Coefs::Varying(rows), history: History::F32 })
    }

    /// Chooses how past outputs are kept; see [`History::Bf16`] for what it costs.
    pub fn with_history(mut self, history: History) -> Ring {
        self.history = history;
        self
    }

    /// How past outputs are kept.
    pub fn history(&self) -> History {
        self.history
    }

    /// Past outputs kept per parameter: bands − 1.
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
