//! `corrnoise.Plan`.

use crate::error::{raise, raise_planner};
use corrnoise::planner::{self, Certificate, Claim};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use std::path::PathBuf;

/// How many steps, which noise, how much of it: a JSON file that checks itself and holds no secret.
#[pyclass(module = "corrnoise", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct Plan(pub(crate) corrnoise::Plan);

impl Plan {
    fn claim(&self) -> PyResult<Option<Claim>> {
        if self.0.certificate().is_none() {
            return Ok(None);
        }
        Ok(Some(Certificate::of(&self.0).map_err(raise_planner)?.claim))
    }

    /// A part of the plan's file, as Python reads JSON.
    fn part<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let file = py.import("json")?.call_method1("loads", (self.to_json(),))?;
        file.get_item("plan")?.cast_into::<PyDict>()?.get_item(name)
    }
}

#[pymethods]
impl Plan {
    /// Reads a plan from its file and checks that nobody edited it.
    #[staticmethod]
    fn load(path: PathBuf) -> PyResult<Plan> {
        corrnoise::Plan::load(path).map(Plan).map_err(raise)
    }

    /// Reads a plan from the content of such a file.
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

    /// Number of steps.
    #[getter]
    fn num_steps(&self) -> u64 {
        self.0.num_steps()
    }

    /// Standard deviation of the i.i.d. noise Z whose rows C⁻¹Z are added.
    #[getter]
    fn stddev(&self) -> f64 {
        self.0.stddev()
    }

    /// What names the plan: 64 hexadecimal digits.
    #[getter]
    fn fingerprint(&self) -> String {
        self.0.fingerprint().to_string()
    }

    /// Bytes of state that the plan's form keeps per parameter.
    #[getter]
    fn state_bytes_per_param(&self) -> u64 {
        self.0.form().state_bytes_per_param()
    }

    /// ε of the plan's claim; None if it makes none.
    #[getter]
    fn epsilon(&self) -> PyResult<Option<f64>> {
        Ok(self.claim()?.map(|claim| claim.epsilon))
    }

    /// δ of the plan's claim; None if it makes none.
    #[getter]
    fn delta(&self) -> PyResult<Option<f64>> {
        Ok(self.claim()?.map(|claim| claim.delta))
    }

    /// What the plan says of itself: the claim, how it is known, what it assumes. None if it says nothing.
    #[getter]
    fn certificate<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.part(py, "certificate")
    }

    /// How batches are chosen; None if the plan leaves that to the trainer.
    #[getter]
    fn sampling<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.part(py, "sampling")
    }

    /// Computes every statement of the certificate again from the plan's own numbers, and refuses a plan with another one.
    fn verify(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| planner::verify(&self.0)).map_err(raise_planner).map(|_| ())
    }

    fn __hash__(&self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|i| self.0.fingerprint().0[i]))
    }

    fn __repr__(&self) -> PyResult<String> {
        let (steps, stddev) = (self.num_steps(), self.stddev());
        let claim = match self.0.certificate() {
            Some(_) => {
                let certificate = Certificate::of(&self.0).map_err(raise_planner)?;
                let (claim, strategy) = (certificate.claim, certificate.strategy);
                format!("epsilon={}, delta={:e}, strategy='{strategy}', ", claim.epsilon, claim.delta)
            }
            None => String::new(),
        };
        Ok(format!("Plan(num_steps={steps}, stddev={stddev}, {claim}fingerprint='{}')", self.fingerprint()))
    }

    /// For pickling: plans travel between processes.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let class: Bound<'py, PyType> = py.get_type::<Plan>();
        Ok((class.getattr("from_json")?, (self.to_json(),)))
    }
}
