//! The Python function `corrnoise.recommend`: from a privacy budget to plans, with the meaning and the defaults of `corrnoise plan`.

use crate::error::{invalid, raise, raise_planner, whole};
use crate::plan::Plan;
use corrnoise::Rounds;
use corrnoise::planner::optimize::unobserved;
use corrnoise::planner::{self, Request, names};
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use std::ffi::CString;

/// One strategy under one schedule, calibrated and certified.
#[pyclass(module = "corrnoise", frozen, get_all)]
pub(crate) struct Candidate {
    /// The strategy, as the keyword `strategy` takes it.
    strategy: String,
    /// The sampling of batches, as the keyword `sampling` takes it; None where the sampler does not draw them.
    sampling: Option<String>,
    /// A description of who takes part when, in a few words.
    schedule: String,
    /// The word for what the noise was calibrated to: "proven" or "confident".
    claims: &'static str,
    /// The plan, ready to run.
    plan: Py<Plan>,
    /// The standard deviation of the noise in the released value that the objective names, per coordinate of the summed gradient.
    error: f64,
    /// The bytes of state per parameter, which a checkpoint stores.
    state_bytes: u64,
    /// The bytes per parameter that the CPU engine holds: the state, and for rings of 9 bands or more rows made ahead.
    engine_bytes: u64,
    /// The number of rows of normals that one step makes, on average.
    rows_per_step: f64,
}

impl Candidate {
    fn new(py: Python<'_>, candidate: planner::Candidate) -> PyResult<Py<Candidate>> {
        let own = Candidate {
            strategy: candidate.strategy.to_string(),
            sampling: candidate.sampling().map(|sampling| sampling.to_string()),
            schedule: candidate.schedule.to_string(),
            claims: if candidate.certificate.claim.confident.is_some() { "confident" } else { "proven" },
            plan: Py::new(py, Plan(candidate.plan))?,
            error: candidate.error,
            state_bytes: candidate.state_bytes,
            engine_bytes: candidate.engine_bytes,
            rows_per_step: candidate.cost.rows,
        };
        Py::new(py, own)
    }
}

#[pymethods]
impl Candidate {
    fn __repr__(&self) -> String {
        let Candidate { strategy, schedule, error, state_bytes, .. } = self;
        format!("Candidate('{strategy}', schedule='{schedule}', error={error}, state_bytes={state_bytes})")
    }
}

/// All strategies that were compared, and the recommended one.
#[pyclass(module = "corrnoise", frozen, get_all)]
pub(crate) struct Recommendation {
    /// The candidates by error, least first.
    candidates: Vec<Py<Candidate>>,
    /// The candidate that is recommended.
    best: Py<Candidate>,
    /// The reason why that candidate is recommended, in a sentence.
    reason: String,
    /// The strategies that do not apply, each with the reason.
    skipped: Vec<(String, String)>,
    /// The warnings about options that are allowed but probably not intended.
    warnings: Vec<String>,
}

#[pymethods]
impl Recommendation {
    fn __repr__(&self) -> String {
        format!("Recommendation({} candidates, {:?})", self.candidates.len(), self.reason)
    }
}

/// Parses a value by the name that the command line has for it.
fn named<T>(keyword: &str, text: &str, parse: fn(&str) -> planner::Result<T>) -> PyResult<T> {
    parse(text).map_err(|error| invalid(format!("{keyword} is {text:?}: {error}")))
}

/// Issues a UserWarning at the line that called into this module; returns an error where warnings are errors.
fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    let text = CString::new(text).map_err(|error| invalid(error.to_string()))?;
    PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 1)
}

fn count(keyword: &str, value: Option<i128>) -> PyResult<Option<u64>> {
    value.map(|value| whole(keyword, value, 1)).transpose()
}

/// Compares every strategy for a privacy budget, or one with independent noise, as `corrnoise plan` does: always at one (ε, δ).
///
/// How long: steps, or epochs of ⌈dataset_size / batch_size⌉ steps. How much: epsilon and delta, or mu, or noise_multiplier
/// (delta is then 1e-6 by default; where strategies are compared, all are calibrated to the ε that mu has at delta). A delta of
/// 1/dataset_size or more is warned of. max_state_bytes limits what the CPU engine holds per parameter. Who takes part: dataset_size and batch_size (the sampler draws the batches), min_sep and
/// max_participations (a guard admits clients), or participation ("single", "cyclic:B,K", "minsep:B,K", "full": your own
/// pipeline guarantees it); without any of them everyone takes part at most once.
///
/// strategy is "auto" or one by name: "identity", "blt:4", "banded-opt:16", "bisr:8", …; sampling, for one strategy, is the
/// name of a scheme, "cyclic" by default; `corrnoise plan --help` and docs/cli.md list all. workload is "prefix", "momentum:BETA",
/// "momentum:BETA,DECAY" or "nesterov:BETA"; claims "proven" or "confident" (for balls in bins and spaced Poisson samples also what
/// samples show, with a failure probability that delta pays for); objective "max" or "rms"; adjacency "zero-out" or "replace-one"; unit
/// "example" or "user". The interpreter's lock is released meanwhile.
#[pyfunction]
#[pyo3(signature = (
    steps = None, *, epochs = None, epsilon = None, delta = None, mu = None, noise_multiplier = None, dataset_size = None,
    batch_size = None, min_sep = None, max_participations = None, participation = None, setting = None, strategy = "auto",
    sampling = None, workload = "prefix", objective = "max", adjacency = "zero-out", unit = "example", clip_norm = 1.0,
    max_state_bytes = None, claims = "proven", rounds = 12
))]
#[allow(clippy::too_many_arguments)] // keywords, in Python
pub(crate) fn recommend(
    py: Python<'_>,
    steps: Option<i128>,
    epochs: Option<f64>,
    epsilon: Option<f64>,
    delta: Option<f64>,
    mu: Option<f64>,
    noise_multiplier: Option<f64>,
    dataset_size: Option<i128>,
    batch_size: Option<i128>,
    min_sep: Option<i128>,
    max_participations: Option<i128>,
    participation: Option<&str>,
    setting: Option<&str>,
    strategy: &str,
    sampling: Option<&str>,
    workload: &str,
    objective: &str,
    adjacency: &str,
    unit: &str,
    clip_norm: f64,
    max_state_bytes: Option<i128>,
    claims: &str,
    rounds: u32,
) -> PyResult<Recommendation> {
    let optional = |value: Option<i128>| value.map(|value| whole("max_state_bytes", value, 0)).transpose();
    let request = Request {
        steps: count("steps", steps)?,
        epochs,
        dataset_size: count("dataset_size", dataset_size)?,
        batch_size: count("batch_size", batch_size)?,
        participation: participation
            .map(|text| named("participation", text, names::participation))
            .transpose()?,
        setting: setting.map(|text| named("setting", text, names::setting)).transpose()?,
        min_sep: count("min_sep", min_sep)?,
        max_participations: count("max_participations", max_participations)?,
        epsilon,
        delta,
        mu,
        noise_multiplier,
        clip_norm,
        adjacency: named("adjacency", adjacency, names::adjacency)?,
        unit: named("unit", unit, names::unit)?,
        workload: named("workload", workload, names::workload)?,
        objective: named("objective", objective, names::objective)?,
        max_state_bytes: optional(max_state_bytes)?,
        strategy: named("strategy", strategy, names::strategy_choice)?,
        sampling: sampling.map(|text| named("sampling", text, names::sampling)).transpose()?,
        claims: named("claims", claims, names::claims)?,
        rounds: Rounds::try_from(rounds).map_err(raise)?,
    };
    let answer = py.detach(|| request.recommend(&mut unobserved())).map_err(raise_planner)?;
    let candidates = answer.candidates.into_iter().map(|candidate| Candidate::new(py, candidate));
    let candidates = candidates.collect::<PyResult<Vec<_>>>()?;
    let best = candidates[answer.best].clone_ref(py);
    for warning in &answer.warnings {
        warn(py, warning)?;
    }
    let planner::Recommendation { reason, skipped, warnings, .. } = answer;
    let skipped = skipped.into_iter().map(|skipped| (skipped.strategy, skipped.reason)).collect();
    Ok(Recommendation { candidates, best, reason, skipped, warnings })
}
