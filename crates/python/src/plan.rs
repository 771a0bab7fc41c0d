//! The Python class `corrnoise.Plan`.

use crate::error::{raise, refuted, whole};
use corrnoise::planner::{self, Certificate};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use std::path::PathBuf;
use std::sync::Arc;

/// A plan: the number of steps, the form of the noise and its amount. It is a JSON file with a fingerprint, and holds no secret.
///
/// Loading detects damage, and noise that is not what the claim was made for. The fingerprint is no signature, though: so epsilon,
/// delta, certificate and repr() compute the claim again, at the first use of any of them for a plan (milliseconds to seconds, without
/// the interpreter's lock), and epsilon, delta and certificate raise PlanError if it does not hold.
#[pyclass(module = "corrnoise", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct Plan(pub(crate) corrnoise::Plan);

impl Plan {
    /// The claim, computed again at the first use and remembered; none if the plan makes none.
    fn verified(&self, py: Python<'_>) -> planner::Result<Option<Arc<Certificate>>> {
        match self.0.certificate() {
            Some(_) => py.detach(|| planner::verified(&self.0)).map(Some),
            None => Ok(None),
        }
    }

    /// A part of the plan's file, as Python reads JSON.
    fn part<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let file = py.import("json")?.call_method1("loads", (self.to_json(),))?;
        file.get_item("plan")?.cast_into::<PyDict>()?.get_item(name)
    }
}

#[pymethods]
impl Plan {
    /// Reads a plan from its file; one that is damaged, or has other noise than its claim was made for, is refused.
    #[staticmethod]
    fn load(path: PathBuf) -> PyResult<Plan> {
        corrnoise::Plan::load(path).map(Plan).map_err(raise)
    }

    /// Reads a plan from the content of a plan file.
    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Plan> {
        corrnoise::Plan::from_json(text).map(Plan).map_err(raise)
    }

    /// The content of the plan's file.
    fn to_json(&self) -> String {
        self.0.to_json()
    }

    /// Writes the plan; the file appears whole or not at all.
    fn save(&self, path: PathBuf) -> PyResult<()> {
        self.0.save(path).map_err(raise)
    }

    /// The number of steps of the plan.
    #[getter]
    fn num_steps(&self) -> u64 {
        self.0.num_steps()
    }

    /// The standard deviation of the i.i.d. noise Z; the rows of C⁻¹Z are added to gradients.
    #[getter]
    fn stddev(&self) -> f64 {
        self.0.stddev()
    }

    /// The fingerprint that names the plan: 64 hexadecimal digits.
    #[getter]
    fn fingerprint(&self) -> String {
        self.0.fingerprint().to_string()
    }

    /// The bytes of state per parameter that the noise depends on, which a checkpoint stores.
    #[getter]
    fn state_bytes_per_param(&self) -> u64 {
        self.0.form().state_bytes_per_param()
    }

    /// The bytes per parameter that the CPU engine holds: the state, and for rings of 9 bands or more rows made ahead.
    #[getter]
    fn engine_bytes_per_param(&self) -> u64 {
        self.0.form().engine_bytes_per_param()
    }

    /// The ε of the plan's claim, computed again at the first use; None if it makes none, PlanError if it does not hold.
    #[getter]
    fn epsilon(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        Ok(self.verified(py).map_err(refuted)?.map(|certificate| certificate.claim.epsilon))
    }

    /// The δ of the plan's claim, computed again at the first use; None if it makes none, PlanError if it does not hold.
    #[getter]
    fn delta(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        Ok(self.verified(py).map_err(refuted)?.map(|certificate| certificate.claim.delta))
    }

    /// The plan's certificate: the claim, how it is known, what it assumes. It is computed again at the first use; None if the plan has
    /// none, PlanError if it does not hold. to_json() has it unchecked.
    #[getter]
    fn certificate<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.verified(py).map_err(refuted)?;
        self.part(py, "certificate")
    }

    /// The ε of a run that ends after its first `steps` steps, at the plan's δ: that of the plan or less, and 0 before the first one. It
    /// holds for a length that was not chosen by looking at what was released. None if the plan makes no claim.
    fn epsilon_after(&self, py: Python<'_>, steps: i128) -> PyResult<Option<f64>> {
        let steps = whole("steps", steps, 0)?;
        if self.0.certificate().is_none() {
            return Ok(None);
        }
        let claim = py.detach(|| planner::spent(&self.0, steps)).map_err(refuted)?;
        Ok(Some(claim.map_or(0.0, |claim| claim.epsilon)))
    }

    /// True if the plan draws the batch of every step, so that a step must be given its batch.
    #[getter]
    fn draws_batches(&self) -> bool {
        self.0.draws_batches()
    }

    /// The sampling scheme of batches; None if the plan leaves that to the trainer.
    #[getter]
    fn sampling<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.part(py, "sampling")
    }

    /// Computes every statement of the certificate again from the plan's own numbers, now, and refuses a plan with another one.
    fn verify(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| planner::verify(&self.0)).map_err(refuted).map(|_| ())
    }

    fn __hash__(&self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|i| self.0.fingerprint().0[i]))
    }

    /// A short text that never raises an exception: debuggers and tracebacks show plans too.
    fn __repr__(&self, py: Python<'_>) -> String {
        let (steps, stddev) = (self.num_steps(), self.stddev());
        let claim = match self.verified(py) {
            Ok(Some(certificate)) => {
                let (claim, strategy) = (&certificate.claim, &certificate.strategy);
                format!("epsilon={}, delta={:e}, strategy='{strategy}', ", claim.epsilon, claim.delta)
            }
            Ok(None) => String::new(),
            Err(error) => format!("refused={:?}, ", error.to_string()),
        };
        format!("Plan(num_steps={steps}, stddev={stddev}, {claim}fingerprint='{}')", self.fingerprint())
    }

    /// Supports pickling, since plans are sent between processes.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let class: Bound<'py, PyType> = py.get_type::<Plan>();
        Ok((class.getattr("from_json")?, (self.to_json(),)))
    }
}
