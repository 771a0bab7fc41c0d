//! `corrnoise.Key`.

use crate::error::{busy, invalid, raise};
use corrnoise::Error;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Mutex;

/// 32 secret bytes and the public name of the run that uses them. Serves one mechanism: two with the same key, plan and run
/// would make the same noise, for instance when a cell of a notebook is run twice.
#[pyclass(module = "corrnoise", frozen)]
pub(crate) struct Key {
    /// None once a mechanism has it.
    key: Mutex<Option<corrnoise::Key>>,
    run_id: String,
}

impl From<corrnoise::Key> for Key {
    fn from(key: corrnoise::Key) -> Key {
        Key { run_id: key.run_id().into(), key: Mutex::new(Some(key)) }
    }
}

impl Key {
    /// Hands a copy to `make`, and gives up the own one if that succeeds.
    pub(crate) fn spend<T>(&self, make: impl FnOnce(corrnoise::Key) -> corrnoise::Result<T>) -> PyResult<T> {
        let Ok(mut slot) = self.key.try_lock() else { return Err(busy("key")) };
        let Some(key) = slot.as_ref() else {
            let text = "it already serves a mechanism; a run that goes on is resumed from its checkpoint, another run needs \
                        another key or run id";
            return Err(raise(Error::Key(text.into())));
        };
        let made = make(key.duplicate()).map_err(raise)?;
        *slot = None;
        Ok(made)
    }
}

#[pymethods]
impl Key {
    /// A fresh key from the operating system, kept nowhere else: a run with it cannot be resumed by another process.
    #[staticmethod]
    fn from_os() -> PyResult<Key> {
        corrnoise::Key::from_os().map(Key::from).map_err(raise)
    }

    /// A fresh key that is also written to a new file, for the owner alone. Refuses to overwrite a file.
    #[staticmethod]
    fn create_file(path: PathBuf) -> PyResult<Key> {
        corrnoise::Key::create_file(path).map(Key::from).map_err(raise)
    }

    /// The key in a file of 32 raw bytes or 64 hexadecimal digits.
    #[staticmethod]
    #[pyo3(signature = (path, run_id = ""))]
    fn from_file(path: PathBuf, run_id: &str) -> PyResult<Key> {
        corrnoise::Key::from_file(path, run_id).map(Key::from).map_err(raise)
    }

    /// A key from 32 bytes of a good generator. Runs of one plan under one key need different run ids.
    #[staticmethod]
    fn from_bytes(key: &[u8], run_id: &str) -> PyResult<Key> {
        let bytes = key
            .try_into()
            .map_err(|_| invalid(format!("key has length {}: expected 32 bytes", key.len())))?;
        Ok(corrnoise::Key::from_bytes(bytes, run_id).into())
    }

    /// As `from_bytes`, from 64 hexadecimal digits.
    #[staticmethod]
    fn from_hex(digits: &str, run_id: &str) -> PyResult<Key> {
        corrnoise::Key::from_hex(digits, run_id).map(Key::from).map_err(raise)
    }

    /// The run's name.
    #[getter]
    fn run_id(&self) -> &str {
        &self.run_id
    }

    fn __repr__(&self) -> String {
        format!("Key(run_id={:?})", self.run_id)
    }
}
