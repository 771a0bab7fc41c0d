//! The check that a plan has the amount of noise that its certificate was made for.
//!
//! A fingerprint is no signature: whoever edits a plan can write its fingerprint anew. Computing a claim again takes the planner and,
//! for some plans, seconds, so it is not done here; but that the noise is as much as the claim was made for is one multiplication.

use super::Certificate;
use crate::error::{Error, Result};
use serde_json::Value;

/// The tolerance between the noise that a claim is made for and the plan's standard deviation: scales are rounded to f32, by at most
/// 2⁻²⁴ of each, and several times that is allowed.
const ROUNDING: f64 = 3e-7;

/// The tolerance for a reciprocal that was computed in f64, written as decimals and read again.
const RECIPROCAL: f64 = 1e-9;

/// Refuses a certificate that was made for more or less noise than `stddev`, or that does not say for how much.
pub(super) fn check(stddev: f64, certificate: &Certificate) -> Result<()> {
    let clip_norm = positive(certificate, &["clip_norm"])?;
    let noise_multiplier = positive(certificate, &["claim", "noise_multiplier"])?;
    let sensitivity = positive(certificate, &["claim", "sensitivity"])?;
    let gdp_mu = positive(certificate, &["claim", "gdp_mu"])?;
    // A ratio that overflows or is no number compares as unequal.
    let near = |a: f64, b: f64, tolerance: f64| (a / b - 1.0).abs() <= tolerance;
    let stated = noise_multiplier * clip_norm * sensitivity;
    if !near(stated, stddev, ROUNDING) {
        return Err(Error::Plan(format!(
            "its stddev is {stddev}, but its certificate is for {stated}: noise multiplier {noise_multiplier} × clip norm {clip_norm} × sensitivity {sensitivity}"
        )));
    }
    if !near(noise_multiplier * gdp_mu, 1.0, RECIPROCAL) {
        return Err(Error::Plan(format!(
            "its certificate's gdp_mu is {gdp_mu}: expected 1 over the noise multiplier {noise_multiplier}, which is {}",
            1.0 / noise_multiplier
        )));
    }
    Ok(())
}

/// A positive number of the certificate, by the keys that lead to it.
fn positive(certificate: &Certificate, keys: &[&str]) -> Result<f64> {
    let mut found = certificate.get(keys[0]);
    for key in &keys[1..] {
        found = found.and_then(|value| value.get(key));
    }
    match found.and_then(Value::as_f64) {
        Some(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => {
            let value = found.map_or("missing".into(), Value::to_string);
            let name = keys.join(".");
            Err(Error::Plan(format!("its certificate's {name} is {value}: expected a finite number above 0")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Plan;
    use super::*;
    use crate::form::Form;
    use serde_json::json;

    /// A short certificate of a plan with standard deviation 1.5.
    fn certificate() -> Value {
        json!({ "clip_norm": 0.5, "claim": { "noise_multiplier": 2.0, "gdp_mu": 0.5, "sensitivity": 1.5 } })
    }

    fn with(certificate: Value) -> Result<Plan> {
        Plan::new(5, Form::independent(), 1.5)?.with_certificate(certificate.as_object().unwrap().clone())
    }

    fn message(certificate: Value) -> String {
        with(certificate).unwrap_err().to_string()
    }

    #[test]
    fn noise_is_the_certificates() {
        let plan = with(certificate()).unwrap();
        assert_eq!(Plan::from_json(&plan.to_json()).unwrap(), plan);
        for (key, value) in [("noise_multiplier", 2.001), ("sensitivity", 1.49999), ("sensitivity", 3.0)] {
            let mut other = certificate();
            other["claim"][key] = value.into();
            let text = message(other);
            assert!(
                text.contains("its stddev is 1.5, but its certificate is for")
                    && text.contains(&value.to_string())
            );
        }
        let mut other = certificate();
        other["claim"]["gdp_mu"] = 0.49999.into();
        assert!(
            message(other)
                .contains("gdp_mu is 0.49999: expected 1 over the noise multiplier 2, which is 0.5")
        );
        // The loss by rounding scales to f32 is no disagreement.
        let mut rounded = certificate();
        rounded["clip_norm"] = (0.5 * (1.0 - 6e-8)).into();
        assert!(with(rounded).is_ok());
    }

    #[test]
    fn what_is_needed_must_be_there_and_a_number() {
        for path in ["/clip_norm", "/claim/noise_multiplier", "/claim/gdp_mu", "/claim/sensitivity", "/claim"]
        {
            for value in [json!(0), json!(-1.5), json!("2"), json!(null), json!([2]), json!({})] {
                let mut other = certificate();
                *other.pointer_mut(path).unwrap() = value;
                let text = message(other);
                assert!(
                    text.contains("its certificate's ") && text.contains("expected a finite number above 0"),
                    "{text}"
                );
            }
            let mut other = certificate();
            let (parent, key) = path.rsplit_once('/').unwrap();
            other.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key);
            assert!(message(other).contains("is missing: expected a finite number above 0"));
        }
        // Products that overflow or vanish are equal to nothing.
        for (clip_norm, sensitivity) in [(1e300, 1e300), (1e-300, 1e-300)] {
            let mut other = certificate();
            other["clip_norm"] = clip_norm.into();
            other["claim"]["sensitivity"] = sensitivity.into();
            assert!(message(other).contains("but its certificate is for"));
        }
    }
}
