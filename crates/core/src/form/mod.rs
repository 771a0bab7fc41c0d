//! Noising forms: the few programs that every strategy's `C⁻¹` lowers to.
//!
//! | form | state per parameter | row `t` of `C⁻¹Z` |
//! |---|---|---|
//! | [`Blt`] | `d` floats | `z − Σ αᵢ mᵢ`, then `mᵢ ← λᵢ mᵢ + z̃` |
//! | [`Ring`] | `bands − 1` floats | `y = z − Σ cₐ yₜ₋ₐ` over the last rows |
//! | [`Regenerate`] | none | `Σ w z_row`, every row made again from its name |
//!
//! Coefficients are rounded to f32 when a form is built, so that sensitivity, loss and claim can be computed from what runs.

mod blt;
mod regenerate;
mod ring;
mod spread;

pub use blt::Blt;
pub use regenerate::{Regenerate, Term};
pub use ring::Ring;

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// The size of a value of state: BLT buffers and past outputs of a ring are f32, on every device and in checkpoints.
pub(crate) const STATE_BYTES: usize = size_of::<f32>();

/// The kernel of a form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Kernel {
    /// A buffered linear Toeplitz inverse.
    Blt(Blt),
    /// A ring of past outputs.
    Ring(Ring),
    /// A weighted sum of rows, each generated again from its name.
    Regenerate(Regenerate),
}

/// A noising form: a kernel, its output scale per step and its restarts, which is all that a backend needs to know of a strategy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawForm")]
pub struct Form {
    kernel: Kernel,
    /// The output scales: empty for 1 at every step, one value for the same at every step, else one value per step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    output_scale: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restart_every: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawForm {
    kernel: Kernel,
    #[serde(default)]
    output_scale: Vec<f64>,
    #[serde(default)]
    restart_every: Option<u64>,
}

impl TryFrom<RawForm> for Form {
    type Error = Error;
    fn try_from(raw: RawForm) -> Result<Form> {
        let form = Form::from(raw.kernel).with_output_scale(raw.output_scale)?;
        match raw.restart_every {
            Some(every) => form.with_restarts(every),
            None => Ok(form),
        }
    }
}

impl From<Kernel> for Form {
    fn from(kernel: Kernel) -> Form {
        Form { kernel, output_scale: Vec::new(), restart_every: None }
    }
}

impl Form {
    /// The form of independent noise: `z̃ = z`.
    pub fn independent() -> Form {
        Kernel::Blt(Blt::independent()).into()
    }

    /// The inverse of the BLT with coefficients `1, Σ αᵢ, Σ αᵢλᵢ, …`; see [`Blt::new`].
    pub fn blt(scale: &[f64], decay: &[f64]) -> Result<Form> {
        Ok(Kernel::Blt(Blt::new(scale, decay)?).into())
    }

    /// The inverse of a banded Toeplitz strategy with coefficients `c₀, c₁, …` (`c₀ ≠ 0`).
    pub fn banded_toeplitz(strategy_coefs: &[f64]) -> Result<Form> {
        let lead = leading(strategy_coefs, "strategy coefficient 0")?;
        let ring = Ring::toeplitz(&strategy_coefs[1..].iter().map(|c| c / lead).collect::<Vec<_>>())?;
        let form = Form::from(Kernel::Ring(ring));
        if lead == 1.0 { Ok(form) } else { form.with_output_scale(vec![1.0 / lead]) }
    }

    /// The inverse of a banded strategy that is not Toeplitz: `rows[t] = [C[t,t], C[t,t−1], …]`, youngest first.
    ///
    /// With `y_t = C[t,t]·z̃_t` the diagonal becomes 1: `y_t = z_t − Σ (C[t,s]/C[s,s]) y_s` and `z̃_t = y_t / C[t,t]`.
    pub fn banded(rows: &[Vec<f64>]) -> Result<Form> {
        let diagonal = rows
            .iter()
            .enumerate()
            .map(|(t, row)| leading(row, &format!("diagonal entry {t}")))
            .collect::<Result<Vec<f64>>>()?;
        let mut coefs = Vec::with_capacity(rows.len());
        for (t, row) in rows.iter().enumerate() {
            if row.len() > t + 1 {
                return Err(Error::length(format!("row {t}"), row.len(), format!("at most {}", t + 1)));
            }
            coefs.push(row[1..].iter().zip(diagonal[..t].iter().rev()).map(|(c, d)| c / d).collect());
        }
        Form::from(Kernel::Ring(Ring::varying(&coefs)?))
            .with_output_scale(diagonal.iter().map(|d| 1.0 / d).collect())
    }

    /// The form that sums rows with the weights of `C⁻¹` by age, the same at every step: a banded inverse, or any Toeplitz `C⁻¹`.
    pub fn regenerate(noising_coefs: &[f64]) -> Result<Form> {
        Ok(Kernel::Regenerate(Regenerate::toeplitz(noising_coefs)?).into())
    }

    /// The kernel of this form.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The number of steps between two clearings of the state, if it is ever cleared.
    pub fn restart_every(&self) -> Option<u64> {
        self.restart_every
    }

    /// The factor on the output of a step, before the standard deviation.
    ///
    /// # Panics
    /// If scales are given per step and the plan has no such step.
    pub fn output_scale(&self, step: u64) -> f64 {
        match self.output_scale[..] {
            [] => 1.0,
            [scale] => scale,
            ref scales => scales[step as usize],
        }
    }

    /// Whether the output scales are given per step.
    pub fn has_scale_per_step(&self) -> bool {
        self.output_scale.len() > 1
    }

    /// The number of different output scales that a run can meet.
    pub(crate) fn num_output_scales(&self) -> u64 {
        self.output_scale.len().max(1) as u64
    }

    /// Multiplies the output of step `t` by `scale[t]`, or of every step if there is one value.
    pub fn with_output_scale(mut self, scale: Vec<f64>) -> Result<Form> {
        for (t, value) in scale.iter().enumerate() {
            if !value.is_finite() || *value == 0.0 {
                return Err(Error::parameter(format!("output scale {t}"), value, "finite and not zero"));
            }
        }
        self.output_scale = scale;
        Ok(self)
    }

    /// Clears the state every `steps` steps: step `t` refers to no row before `t − t mod steps`.
    pub fn with_restarts(mut self, steps: u64) -> Result<Form> {
        if steps == 0 {
            return Err(Error::parameter("restart_every", steps, "at least 1"));
        }
        if matches!(&self.kernel, Kernel::Regenerate(r) if r.is_listed()) {
            return Err(Error::parameter(
                "restart_every",
                steps,
                "no restarts: the listed terms already say it all",
            ));
        }
        self.restart_every = Some(steps);
        Ok(self)
    }

    /// The number of steps since the last restart.
    pub fn age(&self, step: u64) -> u64 {
        self.restart_every.map_or(step, |every| step % every)
    }

    /// The coefficients of a ring at a step, for the ages that exist; none for other kernels.
    pub(crate) fn ring_coefs(&self, step: u64) -> &[f32] {
        let Kernel::Ring(ring) = &self.kernel else { return &[] };
        let coefs = ring.coefs(step);
        &coefs[..usize::try_from(self.age(step)).map_or(coefs.len(), |age| age.min(coefs.len()))]
    }

    /// The number of state rows that are kept per parameter.
    pub fn num_slots(&self) -> usize {
        match &self.kernel {
            Kernel::Blt(blt) => blt.scale().len(),
            Kernel::Ring(ring) => ring.num_slots(),
            Kernel::Regenerate(_) => 0,
        }
    }

    /// Bytes of state per parameter that the noise depends on: what a checkpoint stores and the least that an engine keeps.
    pub fn state_bytes_per_param(&self) -> u64 {
        (self.num_slots() * STATE_BYTES) as u64
    }

    /// Bytes per parameter that the CPU engine holds with its default options: the state, and the rows that a ring of 9 bands or more
    /// makes ahead. With [`crate::CpuOptions::compact`] it holds no more than the state. The CUDA engine has a rule and
    /// a limit of its own, `CudaOptions::max_state_bytes`.
    ///
    /// ```
    /// let ring = corrnoise_core::Form::banded_toeplitz(&[1.0; 10])?;
    /// assert_eq!((ring.state_bytes_per_param(), ring.engine_bytes_per_param()), (36, 36 + 28));
    /// # Ok::<(), corrnoise_core::Error>(())
    /// ```
    pub fn engine_bytes_per_param(&self) -> u64 {
        crate::cpu::bytes_per_coord(self, crate::cpu::CpuOptions::default())
    }

    /// Refuses per-step tables that do not have exactly `num_steps` rows.
    pub(crate) fn check_steps(&self, num_steps: u64) -> Result<()> {
        let exact = |name: &str, got: usize| match got as u64 == num_steps {
            true => Ok(()),
            false => Err(Error::length(name, got, format!("the plan's {num_steps} steps"))),
        };
        if self.output_scale.len() > 1 {
            exact("output scale", self.output_scale.len())?;
        }
        match &self.kernel {
            Kernel::Ring(ring) => ring.table_len().map_or(Ok(()), |len| exact("table of ring rows", len)),
            Kernel::Regenerate(r) => r.table_len().map_or(Ok(()), |len| exact("table of weights", len)),
            Kernel::Blt(_) => Ok(()),
        }
    }
}

/// The leading coefficient of a row, which a triangular system divides by.
fn leading(row: &[f64], name: &str) -> Result<f64> {
    match row.first() {
        Some(c) if c.is_finite() && *c != 0.0 => Ok(*c),
        Some(c) => Err(Error::parameter(name, c, "finite and not zero: the strategy must be invertible")),
        None => Err(Error::parameter(name, "missing", "at least one coefficient")),
    }
}

/// Rounds to f32, refusing NaN, infinities and what overflows.
fn round(values: &[f64], name: &str) -> Result<Vec<f32>> {
    let rounded = |(i, value): (usize, &f64)| match *value as f32 {
        single if single.is_finite() => Ok(single),
        _ => Err(Error::parameter(format!("{name} {i}"), value, "finite and within the range of f32")),
    };
    values.iter().enumerate().map(rounded).collect()
}

/// The f64 values equal to f32 values: plans store these, since every reader parses them back exactly.
fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(result: Result<Form>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn bad_numbers_are_named() {
        assert!(message(Form::banded_toeplitz(&[0.0, 0.5])).contains("strategy coefficient 0 is 0"));
        assert!(message(Form::banded_toeplitz(&[])).contains("at least one coefficient"));
        assert!(message(Form::banded_toeplitz(&[1.0, f64::NAN])).contains("ring coefficient 0 is NaN"));
        assert!(message(Form::banded(&[vec![1.0], vec![0.0, 0.3]])).contains("diagonal entry 1 is 0"));
        assert!(message(Form::banded(&[vec![1.0, 2.0]])).contains("row 0 has length 2: expected at most 1"));
        assert!(message(Form::regenerate(&[1.0, f64::INFINITY])).contains("weight 1 is inf"));
        assert!(message(Form::regenerate(&[1.0, 1e39])).contains("within the range of f32"));
        assert!(
            message(Form::independent().with_output_scale(vec![1.0, 0.0])).contains("output scale 1 is 0")
        );
        assert!(message(Form::independent().with_restarts(0)).contains("restart_every is 0"));
    }

    #[test]
    fn banded_rows_are_brought_to_a_unit_diagonal() {
        let form = Form::banded(&[vec![2.0], vec![4.0, 3.0], vec![8.0, 6.0, 5.0]]).unwrap();
        let Kernel::Ring(ring) = form.kernel() else { panic!() };
        assert_eq!(ring.coefs(1), [1.5]);
        assert_eq!(ring.coefs(2), [1.5, 2.5]);
        assert_eq!([0, 1, 2].map(|t| form.output_scale(t)), [0.5, 0.25, 0.125]);
    }

    #[test]
    fn forms_survive_json_to_the_bit() {
        let form = Form::blt(&[0.1, 1.0 / 3.0], &[0.9, 0.123456789]).unwrap().with_restarts(17).unwrap();
        let text = serde_json::to_string(&form).unwrap();
        assert_eq!(serde_json::from_str::<Form>(&text).unwrap(), form);
        let broken = text.replace("\"decay\":[0.8", "\"decay\":[1.8");
        assert_ne!(broken, text);
        let error = serde_json::from_str::<Form>(&broken).unwrap_err().to_string();
        assert!(error.contains("expected at least 0 and below 1"), "{error}");
    }
}
