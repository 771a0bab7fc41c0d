//! The Python class `corrnoise.Key`.

use crate::error::{busy, invalid, raise};
use corrnoise::Error;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Mutex;

/// 32 secret bytes and the public name of the run that uses them. A key serves one mechanism: two with the same key, plan and run
/// would make the same noise, for instance when a cell of a notebook is run twice. Samplers only read the key, at any time:
/// drawing a batch again gives the same batch.
#[pyclass(module = "corrnoise", frozen)]
pub(crate) struct Key {
    key: corrnoise::Key,
    /// True once a mechanism has the key.
    spent: Mutex<bool>,
}

impl From<corrnoise::Key> for Key {
    fn from(key: corrnoise::Key) -> Key {
        Key { key, spent: Mutex::new(false) }
    }
}

/// A key with its ledger in a folder that the caller names, or else in the default place.
fn with_ledger(key: corrnoise::Key, ledger: Option<PathBuf>) -> Key {
    Key::from(match ledger {
        Some(folder) => key.with_ledger(folder),
        None => key,
    })
}

impl Key {
    /// The key, for uses that make no noise.
    pub(crate) fn read(&self) -> &corrnoise::Key {
        &self.key
    }

    /// Hands a copy of the key to `make`; if that succeeds, nobody gets another copy.
    pub(crate) fn spend<T>(&self, make: impl FnOnce(corrnoise::Key) -> corrnoise::Result<T>) -> PyResult<T> {
        let Ok(mut spent) = self.spent.try_lock() else { return Err(busy("key")) };
        if *spent {
            let text = "it already serves a mechanism; a run that goes on is resumed from its checkpoint, another run needs \
                        another key or run id";
            return Err(raise(Error::Key(text.into())));
        }
        let made = make(self.key.duplicate()).map_err(raise)?;
        *spent = true;
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

    /// A fresh key that is also written to a new file, for the owner alone. Refuses to overwrite a file. `ledger` names the folder
    /// that records which noise was made; by default it is `<path>.ledger`, or what `CORRNOISE_LEDGER` says.
    #[staticmethod]
    #[pyo3(signature = (path, *, ledger = None))]
    fn create_file(py: Python<'_>, path: PathBuf, ledger: Option<PathBuf>) -> PyResult<Key> {
        let key = py.detach(|| corrnoise::Key::create_file(path)).map_err(raise)?;
        Ok(with_ledger(key, ledger))
    }

    /// The key in a file of 32 raw bytes or 64 hexadecimal digits; `ledger` means what it means for `create_file`.
    #[staticmethod]
    #[pyo3(signature = (path, run_id = "", *, ledger = None))]
    fn from_file(py: Python<'_>, path: PathBuf, run_id: &str, ledger: Option<PathBuf>) -> PyResult<Key> {
        let key = py.detach(|| corrnoise::Key::from_file(path, run_id)).map_err(raise)?;
        Ok(with_ledger(key, ledger))
    }

    /// A key from 32 bytes of a good generator. Runs of one plan under one key need different run ids, which nothing checks unless
    /// `ledger` names a folder that records them.
    #[staticmethod]
    #[pyo3(signature = (key, run_id, *, ledger = None))]
    fn from_bytes(key: &[u8], run_id: &str, ledger: Option<PathBuf>) -> PyResult<Key> {
        let bytes = key
            .try_into()
            .map_err(|_| invalid(format!("key has length {}: expected 32 bytes", key.len())))?;
        Ok(with_ledger(corrnoise::Key::from_bytes(bytes, run_id), ledger))
    }

    /// A key from 64 hexadecimal digits, with the duties of `from_bytes`.
    #[staticmethod]
    #[pyo3(signature = (digits, run_id, *, ledger = None))]
    fn from_hex(digits: &str, run_id: &str, ledger: Option<PathBuf>) -> PyResult<Key> {
        let key = corrnoise::Key::from_hex(digits, run_id).map_err(raise)?;
        Ok(with_ledger(key, ledger))
    }

    /// A copy without a ledger, for noise that is looked at and thrown away: nothing is compared and nothing recorded.
    fn without_ledger(&self) -> Key {
        self.key.duplicate().without_ledger().into()
    }

    /// The name of the run that the key is for.
    #[getter]
    fn run_id(&self) -> &str {
        self.key.run_id()
    }

    fn __repr__(&self) -> String {
        format!("Key(run_id={:?})", self.run_id())
    }
}
