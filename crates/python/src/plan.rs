//! `corrnoise.Plan`.

use crate::error::raise;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::path::PathBuf;

/// How many steps, which noise, how much of it: a JSON file that checks itself and holds no secret.
#[pyclass(module = "corrnoise", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct Plan(pub(crate) corrnoise::Plan);

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

    fn __hash__(&self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|i| self.0.fingerprint().0[i]))
    }

    fn __repr__(&self) -> String {
        let (steps, stddev) = (self.num_steps(), self.stddev());
        format!("Plan(num_steps={steps}, stddev={stddev}, fingerprint='{}')", self.fingerprint())
    }

    /// For pickling: plans travel between processes.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let class: Bound<'py, PyType> = py.get_type::<Plan>();
        Ok((class.getattr("from_json")?, (self.to_json(),)))
    }
}
