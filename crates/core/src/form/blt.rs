//! Buffered linear Toeplitz: an infinite Toeplitz strategy with a finite memory of `d` buffers per parameter.
//!
//! `C` has coefficients `1, Σ αᵢ, Σ αᵢλᵢ, Σ αᵢλᵢ², …` (α = `scale`, λ = `decay`); its inverse runs as
//! `z̃ = z − Σ αᵢ mᵢ`, `mᵢ ← λᵢ mᵢ + z̃`.

use super::{round, widen};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// The pairs `(αᵢ, λᵢ)` of a BLT, rounded to f32 and known to have a stable inverse.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawBlt", into = "RawBlt")]
pub struct Blt {
    scale: Vec<f32>,
    decay: Vec<f32>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBlt {
    scale: Vec<f64>,
    decay: Vec<f64>,
}

impl TryFrom<RawBlt> for Blt {
    type Error = Error;
    fn try_from(raw: RawBlt) -> Result<Blt> {
        Blt::new(&raw.scale, &raw.decay)
    }
}

impl From<Blt> for RawBlt {
    fn from(blt: Blt) -> RawBlt {
        RawBlt { scale: widen(&blt.scale), decay: widen(&blt.decay) }
    }
}

impl Blt {
    /// The largest number of buffers: a kernel can hold them in registers on every device.
    pub const MAX_BUFFERS: usize = 8;

    /// A BLT without buffers, which is independent noise.
    pub fn independent() -> Blt {
        Blt { scale: Vec::new(), decay: Vec::new() }
    }

    /// Rounds the pairs to f32 and checks them: at most 8, decays in [0, 1) after rounding, a stable inverse.
    pub fn new(scale: &[f64], decay: &[f64]) -> Result<Blt> {
        if scale.len() != decay.len() {
            return Err(Error::length(
                "list of decays",
                decay.len(),
                format!("one per scale: {}", scale.len()),
            ));
        }
        if scale.len() > Self::MAX_BUFFERS {
            return Err(Error::length(
                "list of buffers",
                scale.len(),
                format!("at most {}", Self::MAX_BUFFERS),
            ));
        }
        let blt = Blt { scale: round(scale, "scale")?, decay: round(decay, "decay")? };
        for (i, (&rounded, given)) in blt.decay.iter().zip(decay).enumerate() {
            if rounded == 1.0 && *given < 1.0 {
                return Err(Error::parameter(
                    format!("decay {i}"),
                    given,
                    "a value that does not round to 1 in f32: the largest is 1 - 2^-24, a memory of 16777216 steps",
                ));
            }
            if !(0.0..1.0).contains(&rounded) {
                return Err(Error::parameter(format!("decay {i}"), given, "at least 0 and below 1"));
            }
        }
        let radius = blt.inverse_radius();
        // 1e-9 forgives the rounding of the estimate at a pole on the circle itself.
        if radius > 1.0 + 1e-9 {
            return Err(Error::parameter(
                "largest pole of the inverse",
                radius,
                "at most 1: this BLT's noise would grow without bound",
            ));
        }
        Ok(blt)
    }

    /// The scales α, one per buffer.
    pub fn scale(&self) -> &[f32] {
        &self.scale
    }

    /// The decays λ, one per buffer.
    pub fn decay(&self) -> &[f32] {
        &self.decay
    }

    /// Spectral radius of the buffers' update `M = diag(λ) − 1·αᵀ`, as `‖M^(2^k)‖^(2^−k)`: squaring 48 times makes the
    /// norm's constant irrelevant, needs no eigensolver, and holds for α of any sign.
    fn inverse_radius(&self) -> f64 {
        let d = self.scale.len();
        let mut power: Vec<Vec<f64>> = (0..d)
            .map(|i| {
                let diagonal = |j| if i == j { f64::from(self.decay[i]) } else { 0.0 };
                (0..d).map(|j| diagonal(j) - f64::from(self.scale[j])).collect()
            })
            .collect();
        let mut log_radius = 0.0;
        for k in 0..=48 {
            let norm = power.iter().flatten().fold(0.0_f64, |max, x| max.max(x.abs()));
            if norm == 0.0 {
                return 0.0;
            }
            log_radius += norm.ln() / 2f64.powi(k);
            power.iter_mut().flatten().for_each(|x| *x /= norm);
            power = (0..d)
                .map(|i| (0..d).map(|j| (0..d).map(|l| power[i][l] * power[l][j]).sum()).collect())
                .collect();
        }
        log_radius.exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poles_of_the_inverse() {
        // With one buffer, the pole is λ − α.
        for (scale, decay, pole) in [(0.5, 0.25, 0.25), (1.25, 0.5, 0.75), (-0.25, 0.5, 0.75)] {
            let blt = Blt { scale: vec![scale], decay: vec![decay] };
            assert!((blt.inverse_radius() - pole).abs() < 1e-12, "{}", blt.inverse_radius());
        }
        // Two buffers with M = [[0, −½], [−¼, 0]] have the poles ±√⅛.
        let blt = Blt { scale: vec![0.25, 0.5], decay: vec![0.25, 0.5] };
        assert!((blt.inverse_radius() - 0.125f64.sqrt()).abs() < 1e-12);
        assert!(Blt::new(&[1.0], &[0.0]).is_ok(), "a pole at -1 is on the circle, not outside");
        let message = Blt::new(&[1.75], &[0.5]).unwrap_err().to_string();
        assert!(message.contains("1.25"), "{message}");
    }

    #[test]
    fn decays_are_checked_after_rounding() {
        let message = Blt::new(&[0.1], &[1.0 - 1e-9]).unwrap_err().to_string();
        assert!(message.contains("round to 1"), "{message}");
        for bad in [1.0, -0.1, f64::NAN, f64::INFINITY] {
            assert!(Blt::new(&[0.1], &[bad]).is_err());
        }
        assert!(Blt::new(&[0.01], &[1.0 - 2f64.powi(-24)]).is_ok());
        assert!(Blt::new(&[0.01; 9], &[0.5; 9]).unwrap_err().to_string().contains("at most 8"));
        assert!(Blt::new(&[0.01; 2], &[0.5; 3]).is_err());
    }
}
