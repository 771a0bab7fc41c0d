//! `corrnoise.Mechanism`.

use crate::engine::{Engine, Given, Place};
use crate::error::{busy, invalid, raise};
use crate::key::Key;
use crate::layout::Model;
use crate::memory::{Device, Dtype, Memory, collect};
use crate::plan::Plan;
use crate::sampler::{Batch, Sampler};
use corrnoise::raw::RawGradients;
use corrnoise::{Checkpoint, Resume, Shard};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, TryLockError};
use zeroize::Zeroizing;

/// A running mechanism: each step exactly once, in order, never past the plan's end.
#[pyclass(module = "corrnoise", frozen)]
pub(crate) struct Mechanism {
    running: Mutex<Running>,
    plan: corrnoise::Plan,
    /// For `load_state`, which makes another life of the same run.
    key: corrnoise::Key,
    shard: Shard,
    place: Place,
}

struct Running {
    engine: Engine,
    raw: RawGradients,
}

/// A mechanism's own copy of its key beside it.
type Made = (Engine, corrnoise::Key);

fn resume_mode(resume: &str, nonce: Option<&[u8]>) -> PyResult<Resume> {
    match (resume, nonce) {
        ("new", None) => Ok(Resume::NewIncarnation),
        ("new", Some(nonce)) => {
            let len = nonce.len();
            let nonce = nonce.try_into();
            Ok(Resume::SharedIncarnation(
                nonce.map_err(|_| invalid(format!("nonce has length {len}: expected 16 bytes")))?,
            ))
        }
        ("exact", None) => Ok(Resume::Exact),
        ("exact", Some(_)) => Err(invalid("nonce is given: expected none, exact makes no new incarnation")),
        _ => Err(invalid(format!("resume is {resume:?}: expected \"new\" or \"exact\""))),
    }
}

/// A batch, "unchecked" or nothing.
fn given<'a>(batch: Option<&'a Bound<'_, PyAny>>) -> PyResult<Given<'a>> {
    let Some(batch) = batch else { return Ok(Given::Nothing) };
    if let Ok(batch) = batch.cast::<Batch>() {
        return Ok(Given::Batch(batch.get().drawn()));
    }
    match batch.extract::<&str>() {
        Ok("unchecked") => Ok(Given::Unchecked),
        Ok(other) => Err(invalid(format!("batch is {other:?}: expected a Batch or \"unchecked\""))),
        Err(_) => {
            let found = batch.get_type();
            let text = format!("batch is of type {found}: expected a Batch of a Sampler, or \"unchecked\"");
            Err(PyTypeError::new_err(text))
        }
    }
}

impl Mechanism {
    fn build(
        py: Python<'_>,
        plan: &Plan,
        key: &Key,
        shard: Shard,
        place: Place,
        make: impl FnOnce(corrnoise::Key) -> corrnoise::Result<Engine> + Send,
    ) -> PyResult<Mechanism> {
        let make = |key: corrnoise::Key| -> corrnoise::Result<Made> {
            let copy = key.duplicate();
            Ok((make(key)?, copy))
        };
        let (engine, key) = py.detach(|| key.spend(make))?;
        let running = Mutex::new(Running { engine, raw: RawGradients::default() });
        Ok(Mechanism { running, plan: plan.0.clone(), key, shard, place })
    }

    fn lock(&self) -> PyResult<MutexGuard<'_, Running>> {
        match self.running.try_lock() {
            Ok(running) => Ok(running),
            Err(TryLockError::WouldBlock) => Err(busy("mechanism")),
            // A mechanism that panicked during a step knows it by itself; elsewhere it is unharmed.
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        }
    }

    fn step(
        &self,
        device: Device,
        dtype: Dtype,
        gradients: &[(usize, usize)],
        batch: Given<'_>,
    ) -> PyResult<()> {
        let Running { engine, raw } = &mut *self.lock()?;
        engine.admit(batch).map_err(raise)?;
        let own = engine.device();
        if device != own {
            return Err(invalid(format!(
                "gradients are on {device}: expected {own}, where this mechanism runs"
            )));
        }
        // SAFETY: `collect` found memory of these lengths and this type, writable, on this device, whose owner `add_to` keeps
        // alive; that nothing else uses a gradient while noise is added to it is asked of the caller, as for any function that
        // writes. PyTorch keeps memory that is freed on the current stream from reuse by others until that has passed.
        unsafe { engine.step(raw, dtype, gradients) }.map_err(raise)
    }
}

#[pymethods]
impl Mechanism {
    /// A new run, from step 0 on. Takes the key. `replica` says that other processes add the same noise to the same gradients.
    /// With `awaits_state`, what the ledger refuses is refused at the first step, unless a state was loaded before. `stream` is the address of a CUDA stream that outlives the mechanism.
    #[new]
    #[allow(clippy::too_many_arguments)] // keywords, in Python
    #[pyo3(signature = (plan, key, model, *, ranges = None, replica = false, threads = 0, compact = false, device = "cpu", stream = 0, awaits_state = false))]
    fn new(
        py: Python<'_>,
        plan: &Plan,
        key: &Key,
        model: Model<'_>,
        ranges: Option<Vec<(u64, u64)>>,
        replica: bool,
        threads: usize,
        compact: bool,
        device: &str,
        stream: usize,
        awaits_state: bool,
    ) -> PyResult<Mechanism> {
        let shard = model.shard(ranges, replica)?;
        let place = Place::new(device, stream, threads, compact)?;
        let make = |key| Engine::new(&plan.0, key, shard.clone(), &place, awaits_state);
        Self::build(py, plan, key, shard.clone(), place.clone(), make)
    }

    /// Goes on from any checkpoints that together hold the model's part. Takes the key.
    #[staticmethod]
    #[pyo3(signature = (plan, key, model, files, *, resume = "new", nonce = None, ranges = None, replica = false, threads = 0, compact = false, device = "cpu", stream = 0))]
    #[allow(clippy::too_many_arguments)] // keywords, in Python
    fn resume(
        py: Python<'_>,
        plan: &Plan,
        key: &Key,
        model: Model<'_>,
        files: Vec<PathBuf>,
        resume: &str,
        nonce: Option<&[u8]>,
        ranges: Option<Vec<(u64, u64)>>,
        replica: bool,
        threads: usize,
        compact: bool,
        device: &str,
        stream: usize,
    ) -> PyResult<Mechanism> {
        let (shard, resume) = (model.shard(ranges, replica)?, resume_mode(resume, nonce)?);
        let place = Place::new(device, stream, threads, compact)?;
        let make = |key| {
            let checkpoints = files.iter().map(Checkpoint::open).collect::<corrnoise::Result<_>>()?;
            Engine::resume_from(&plan.0, key, shard.clone(), checkpoints, resume, &place)
        };
        Self::build(py, plan, key, shard.clone(), place.clone(), make)
    }

    /// Adds the noise of the next step in place, to one array or tensor, or to a list with one per segment. `batch` is the one that
    /// the gradients were summed over: one of another step, plan or run is refused, and so is none where the plan draws batches.
    /// "unchecked" instead says that the caller vouches for it.
    #[pyo3(signature = (gradients, batch = None))]
    fn add_to(
        &self,
        py: Python<'_>,
        gradients: &Bound<'_, PyAny>,
        batch: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let batch = given(batch)?;
        let memory: Vec<Memory<'_>> = collect(gradients)?;
        let Some(first) = memory.first() else { return Err(invalid("list of gradients is empty")) };
        let (dtype, device) = (first.dtype, first.device);
        if let Some((i, other)) = memory.iter().enumerate().find(|(_, other)| other.device != device) {
            let other = other.device;
            return Err(invalid(format!(
                "gradient {i} is on {other}: expected {device}, where gradient 0 is"
            )));
        }
        if let Some((i, other)) = memory.iter().enumerate().find(|(_, other)| other.dtype != dtype) {
            let (first, other) = (dtype.name(), other.dtype.name());
            return Err(invalid(format!(
                "gradient {i} is {other}: expected {first}, the type of gradient 0"
            )));
        }
        let list: Vec<(usize, usize)> = memory.iter().map(|memory| (memory.address, memory.len)).collect();
        py.detach(|| self.step(device, dtype, &list, batch))
    }

    /// The sampler of this run: the batches that its plan's claim assumes, after a resume the same as before.
    fn sampler(&self, py: Python<'_>) -> PyResult<Sampler> {
        Sampler::of(py, &self.plan, &self.key)
    }

    /// The step that the next call makes.
    #[getter]
    fn next_step(&self) -> PyResult<u64> {
        Ok(self.lock()?.engine.next_step())
    }

    /// The plan.
    #[getter]
    fn plan(&self) -> Plan {
        Plan(self.plan.clone())
    }

    /// First coordinate and the one past the last, for every gradient that a step expects.
    #[getter]
    fn segments(&self) -> Vec<(u64, u64)> {
        self.shard.segments().iter().map(|segment| (segment.start, segment.end)).collect()
    }

    /// Bytes of state.
    #[getter]
    fn state_bytes(&self) -> PyResult<u64> {
        Ok(self.lock()?.engine.state_bytes())
    }

    /// A public value that only this key, plan and run have: equal on all processes of one run.
    #[getter]
    fn commitment(&self) -> String {
        self.key.run_key(self.plan.fingerprint()).commitment().to_string()
    }

    /// Writes a checkpoint, for the owner alone. As secret as the key.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.lock()?.engine.save(&path).map_err(raise))
    }

    /// A checkpoint as bytes. As secret as the key.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.lock()?.engine.state().map(Zeroizing::new).map_err(raise))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Goes on from checkpoints given as bytes, in place of where this mechanism is now. "exact" is refused if this mechanism made
    /// steps of the checkpoint's incarnation after it, whatever it loaded since.
    #[pyo3(signature = (states, *, resume = "new", nonce = None))]
    fn load_state(
        &self,
        py: Python<'_>,
        states: Vec<Vec<u8>>,
        resume: &str,
        nonce: Option<&[u8]>,
    ) -> PyResult<()> {
        let mode = resume_mode(resume, nonce)?;
        py.detach(|| {
            let checkpoints =
                states.into_iter().map(Checkpoint::from_bytes).collect::<corrnoise::Result<_>>();
            let checkpoints = checkpoints.map_err(raise)?;
            self.lock()?.engine.reload(checkpoints, mode, &self.place).map_err(raise)
        })
    }

    fn __repr__(&self) -> PyResult<String> {
        let running = self.lock()?;
        let (next, engine) = (running.engine.next_step(), running.engine.describe());
        Ok(format!("Mechanism(next_step={next}, num_steps={}, engine='{engine}')", self.plan.num_steps()))
    }
}
