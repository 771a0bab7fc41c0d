//! Mechanisms side by side: at equal privacy, by noise and by what their engine holds.

use crate::error::{Error, Result};
use crate::plan::calibrate::Goal;
use crate::plan::candidate::Candidate;
use crate::plan::question::Question;
use crate::privacy::account::{Budget, epsilon_of_delta};
use crate::privacy::claim::Claim;

/// Making this many rows per step costs about what moving 640 bytes does: more is no sensible default, however little noise it has.
pub(super) const MAX_ROWS: f64 = 32.0;
/// A mechanism with less memory is preferred to one whose error is smaller by less than this.
const NEAR: f64 = 1.02;
/// Calibration to one budget leaves less than this between two claims, relative to ε.
const CALIBRATED: f64 = 2e-3;

/// The (ε, δ) of a goal: what every mechanism is calibrated to, so that noise is compared at equal privacy.
///
/// μ alone would not do: it bounds a run without amplification, so at one μ sampled mechanisms have a far smaller ε and more noise.
pub(super) fn budget(goal: &Goal) -> Result<Budget> {
    let (gdp_mu, delta) = match *goal {
        Goal::Budget(budget) => return Ok(budget),
        Goal::GdpMu { gdp_mu, delta } => (gdp_mu, delta),
        Goal::NoiseMultiplier { noise_multiplier, delta } => (1.0 / noise_multiplier, delta),
    };
    let epsilon = epsilon_of_delta(gdp_mu, delta)?;
    // At ε = 0 a whole range of μ meets the budget, and mechanisms calibrated to it would have less noise than was asked for.
    if epsilon > 0.0 && epsilon.is_finite() {
        return Ok(Budget { epsilon, delta });
    }
    let expected = format!(
        "one with a finite ε above 0 at δ = {delta:e}, where strategies are compared, not {epsilon}; or name one strategy"
    );
    Err(Error::parameter("mu", gdp_mu, expected))
}

/// Whether two claims are of one (ε, δ), up to what calibration leaves.
fn equal_privacy(a: &Claim, b: &Claim) -> bool {
    let [left, right] = [a, b].map(Claim::budgeted_epsilon);
    a.delta == b.delta && (left - right).abs() <= CALIBRATED * left.max(right)
}

impl Candidate {
    /// This mechanism's noise over another's, where both claim the same privacy; else there is no such number.
    pub fn noise_relative_to(&self, other: &Candidate) -> Option<f64> {
        let ratio = self.error / other.error;
        let equal = equal_privacy(&self.certificate.claim, &other.certificate.claim);
        (equal && ratio.is_finite() && ratio > 0.0).then_some(ratio)
    }
}

/// The independent noise with the least error.
pub(super) fn independent(candidates: &[Candidate]) -> Option<&Candidate> {
    candidates.iter().filter(|c| c.is_independent()).min_by(|a, b| a.error.total_cmp(&b.error))
}

/// The least error that memory and a sensible number of rows allow; less memory wins among near equals.
pub(super) fn choose(candidates: &[Candidate], question: &Question) -> Result<(usize, String)> {
    let fits = |candidate: &Candidate| {
        question.max_state_bytes.is_none_or(|most| candidate.engine_bytes <= most)
            && candidate.cost.rows <= MAX_ROWS
    };
    // Independent noise needs no state, so something always fits.
    let fitting: Vec<usize> = (0..candidates.len()).filter(|i| fits(&candidates[*i])).collect();
    let least = fitting.first().map_or(f64::INFINITY, |i| candidates[*i].error);
    let near = fitting.iter().filter(|i| candidates[**i].error <= NEAR * least);
    let best = *near
        .min_by_key(|i| (candidates[**i].engine_bytes, **i))
        .ok_or_else(|| Error::parameter("number of mechanisms that fit", 0, "at least 1"))?;
    Ok((best, reason(candidates, &candidates[best])))
}

/// Why it was chosen, in a sentence without a comparison that its privacy does not allow.
fn reason(candidates: &[Candidate], chosen: &Candidate) -> String {
    let relative = independent(candidates).and_then(|independent| chosen.noise_relative_to(independent));
    let mut parts = Vec::new();
    match relative {
        _ if chosen.is_independent() => parts.push("no correlation pays here".into()),
        Some(noise) => {
            parts.push(format!("{:.2} times less noise than the best independent noise", 1.0 / noise))
        }
        None => {}
    }
    parts.push(match (chosen.state_bytes, chosen.engine_bytes - chosen.state_bytes) {
        (0, 0) => "with no state".into(),
        (state, 0) => format!("with {state} bytes of state per parameter"),
        (state, ahead) => format!("with {state} bytes of state per parameter and {ahead} of rows made ahead"),
    });
    let less = candidates.first().and_then(|first| Some((first, first.noise_relative_to(chosen)?)));
    let less = match less {
        Some((first, noise)) if noise < 0.999 => format!(
            "; {} would have {:.1}% less noise, for {} bytes of state and {:.0} rows per step",
            first,
            100.0 * (1.0 - noise),
            first.memory(),
            first.cost.rows
        ),
        _ => String::new(),
    };
    let rule = format!(
        "chosen for the least memory within {:.0}% of the least noise, at up to {MAX_ROWS} rows per step",
        100.0 * (NEAR - 1.0)
    );
    format!("{chosen}: {}{less}; {rule}", parts.join(", "))
}
