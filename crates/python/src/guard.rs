//! The Python classes `corrnoise.Guard` and `corrnoise.Admission`.

use crate::error::{raise, whole};
use crate::plan::Plan;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Admits participants who come by themselves, at most as often and at least as many steps apart as a federated plan says. Save it
/// *before* a step's sum is released: what was admitted after the last save is forgotten by a crash.
#[pyclass(module = "corrnoise", frozen)]
pub(crate) struct Guard(Mutex<corrnoise::Guard>);

impl Guard {
    /// Locks the guard, waiting for other threads without the interpreter's lock.
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, corrnoise::Guard> {
        self.0.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Guard {
    /// A guard for a new run of a plan whose sampling is by minimum separation.
    #[new]
    fn new(plan: &Plan) -> PyResult<Guard> {
        corrnoise::Guard::new(&plan.0).map(|guard| Guard(Mutex::new(guard))).map_err(raise)
    }

    /// Reads the guard of this plan's run; a file that is damaged or of another plan is refused.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf, plan: &Plan) -> PyResult<Guard> {
        let guard = py.detach(|| corrnoise::Guard::load(path, &plan.0)).map_err(raise)?;
        Ok(Guard(Mutex::new(guard)))
    }

    /// Asks whether a participant may take part in a step, and records it if so. Steps may repeat and skip, but never go back. The
    /// answer is true for one who may; one who may not must not contribute.
    fn admit(&self, py: Python<'_>, step: i128, participant: i128) -> PyResult<Admission> {
        let (step, participant) = (whole("step", step, 0)?, whole("participant", participant, 0)?);
        self.lock(py).admit(step, participant).map(Admission).map_err(raise)
    }

    /// What `admit` would answer now. Nothing is recorded: whoever chooses participants at random chooses among those for whom this
    /// is true, and then admits the chosen ones.
    fn eligible(&self, py: Python<'_>, step: i128, participant: i128) -> PyResult<Admission> {
        let (step, participant) = (whole("step", step, 0)?, whole("participant", participant, 0)?);
        self.lock(py).eligible(step, participant).map(Admission).map_err(raise)
    }

    /// Writes the guard to a file that only its owner may read: it says who took part when.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).save(path)).map_err(raise)
    }

    /// The latest step that was asked for: a resumed run goes on there or later.
    #[getter]
    fn step(&self, py: Python<'_>) -> u64 {
        self.lock(py).step()
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("Guard(step={})", self.step(py))
    }
}

/// A guard's answer: true if the participant takes part in the step.
#[pyclass(module = "corrnoise", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct Admission(corrnoise::Admission);

#[pymethods]
impl Admission {
    /// The outcome: "admitted", "too soon" or "exhausted" (took part as often as the plan allows).
    #[getter]
    fn answer(&self) -> &'static str {
        match self.0 {
            corrnoise::Admission::Admitted => "admitted",
            corrnoise::Admission::TooSoon { .. } => "too soon",
            corrnoise::Admission::Exhausted => "exhausted",
        }
    }

    /// The first step that would admit a participant who came too soon; the plan may end before it. None for others.
    #[getter]
    fn next_step(&self) -> Option<u64> {
        match self.0 {
            corrnoise::Admission::TooSoon { next_step } => Some(next_step),
            _ => None,
        }
    }

    fn __bool__(&self) -> bool {
        self.0 == corrnoise::Admission::Admitted
    }

    fn __repr__(&self) -> String {
        match self.next_step() {
            Some(next_step) => format!("Admission('{}', next_step={next_step})", self.answer()),
            None => format!("Admission('{}')", self.answer()),
        }
    }
}
