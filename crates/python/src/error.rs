//! Errors as the exception classes of `corrnoise.errors`.

use corrnoise::{Error, planner};
use pyo3::{PyErr, PyResult};

mod classes {
    use pyo3::import_exception;

    import_exception!(corrnoise.errors, BatchRefused);
    import_exception!(corrnoise.errors, BusyError);
    import_exception!(corrnoise.errors, CheckpointError);
    import_exception!(corrnoise.errors, DeviceError);
    import_exception!(corrnoise.errors, FileError);
    import_exception!(corrnoise.errors, Forked);
    import_exception!(corrnoise.errors, InvalidArgument);
    import_exception!(corrnoise.errors, KeyRefused);
    import_exception!(corrnoise.errors, OutOfMemory);
    import_exception!(corrnoise.errors, GradientOverflow);
    import_exception!(corrnoise.errors, PastEnd);
    import_exception!(corrnoise.errors, PlanError);
    import_exception!(corrnoise.errors, Poisoned);
    import_exception!(corrnoise.errors, RepeatedNoise);
}

/// The exception for an error of the engine.
pub(crate) fn raise(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Parameter { .. } | Error::Length { .. } => classes::InvalidArgument::new_err(text),
        Error::PastEnd { .. } => classes::PastEnd::new_err(text),
        Error::Poisoned { .. } => classes::Poisoned::new_err(text),
        Error::Repeated(_) => classes::RepeatedNoise::new_err(text),
        Error::Forked => classes::Forked::new_err(text),
        Error::Overflow { .. } => classes::GradientOverflow::new_err(text),
        // The engine's text names Rust functions, so Python gets a text of its own.
        Error::NoBatch { step } => classes::BatchRefused::new_err(format!(
            "step {step} has no batch, and the plan's claim holds for the batches it draws: expected \
             batch=sampler.batch({step}), the one that the gradients are of, or batch=\"unchecked\" if it was drawn elsewhere"
        )),
        Error::Batch(_) | Error::BatchStep { .. } => classes::BatchRefused::new_err(text),
        Error::Plan(_) => classes::PlanError::new_err(text),
        Error::Key(_) => classes::KeyRefused::new_err(text),
        Error::Checkpoint { .. } => classes::CheckpointError::new_err(text),
        Error::Io { .. } => classes::FileError::new_err(text),
        Error::OutOfMemory { .. } => classes::OutOfMemory::new_err(text),
        _ => classes::DeviceError::new_err(text),
    }
}

/// The exception for an error of the planner.
pub(crate) fn raise_planner(error: planner::Error) -> PyErr {
    match error {
        planner::Error::Engine(error) => raise(error),
        planner::Error::Disagreement { .. } | planner::Error::Certificate(_) | planner::Error::Refuted(_) => {
            refuted(error)
        }
        _ => invalid(error.to_string()),
    }
}

/// The exception for a plan whose claim does not hold or cannot be computed, whatever the reason.
pub(crate) fn refuted(error: planner::Error) -> PyErr {
    classes::PlanError::new_err(error.to_string())
}

/// The exception for an argument that is refused.
pub(crate) fn invalid(text: impl Into<String>) -> PyErr {
    classes::InvalidArgument::new_err(text.into())
}

/// A whole number that fits into 64 bits: Python's integers have a sign and any size.
pub(crate) fn whole(name: &str, value: i128, least: u64) -> PyResult<u64> {
    let expected = if least == 0 { "at least 0" } else { "at least 1" };
    let value_of = u64::try_from(value).ok().filter(|value| *value >= least);
    value_of.ok_or_else(|| invalid(format!("{name} is {value}: expected a whole number, {expected}")))
}

/// The exception for a mechanism or a key that another thread is using.
pub(crate) fn busy(what: &str) -> PyErr {
    classes::BusyError::new_err(format!("another thread is using this {what}: it serves one call at a time"))
}
