//! The native half of the Python package: plans, keys, layouts, mechanisms, samplers, and gradients in anyone's memory.
//!
//! The other half is `python/corrnoise`: exception classes, PyTorch, JAX. Every check happens before a step begins; the step
//! itself runs without the interpreter's lock.

mod error;
mod guard;
mod key;
mod layout;
mod mechanism;
mod memory;
mod place;
mod plan;
mod recommend;
mod sampler;

use pyo3::prelude::*;

/// The native module `corrnoise._native` of the package.
#[pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use crate::guard::{Admission, Guard};
    #[pymodule_export]
    use crate::key::Key;
    #[pymodule_export]
    use crate::layout::Layout;
    #[pymodule_export]
    use crate::mechanism::Mechanism;
    #[pymodule_export]
    use crate::plan::Plan;
    #[pymodule_export]
    use crate::recommend::{Candidate, Recommendation, recommend};
    #[pymodule_export]
    use crate::sampler::{Batch, Sampler};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Warnings go through Python's own channel, with its filters; an exception that a filter raises is shown and goes no further.
        corrnoise::warning::set_handler(|text| {
            Python::attach(|py| {
                let category = py.get_type::<pyo3::exceptions::PyRuntimeWarning>();
                let text = std::ffi::CString::new(text).unwrap_or_default();
                if let Err(error) = PyErr::warn(py, &category, &text, 1) {
                    error.write_unraisable(py, None);
                }
            });
        });
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("NOISE_SPEC_VERSION", corrnoise::NOISE_SPEC_VERSION)
    }
}
