//! The Python class `corrnoise.Mechanism`.

use crate::error::{busy, invalid, raise};
use crate::key::Key;
use crate::layout::Model;
use crate::memory::{Memory, collect};
use crate::place::{Options, place};
use crate::plan::Plan;
use crate::sampler::{Batch, Sampler};
use corrnoise::{AnyMechanism, Checkpoint, Device, Dtype, Resume, RunKey, Shard};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, TryLockError};
use zeroize::Zeroizing;

/// A running mechanism, which makes each step exactly once, in order, and none past the plan's end.
#[pyclass(module = "corrnoise", frozen)]
pub(crate) struct Mechanism {
    /// The mechanism itself, which `drop` takes.
    running: ManuallyDrop<Mutex<AnyMechanism>>,
    plan: corrnoise::Plan,
    /// The key, for the sampler and the commitment, which must be available while another thread uses the mechanism.
    key: corrnoise::Key,
    shard: Shard,
}

/// A mechanism, and a copy of its key beside it.
type Made = (AnyMechanism, corrnoise::Key);

/// The argument `batch` of a step.
#[derive(Clone, Copy)]
enum Given<'a> {
    Nothing,
    Batch(&'a corrnoise::Batch),
    /// The caller vouches for the batch.
    Unchecked,
}

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

/// Reads the argument `batch`: a batch, "unchecked" or None.
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
        make: impl FnOnce(corrnoise::Key) -> corrnoise::Result<AnyMechanism> + Send,
    ) -> PyResult<Mechanism> {
        let make = |key: corrnoise::Key| -> corrnoise::Result<Made> {
            let copy = key.duplicate();
            Ok((make(key)?, copy))
        };
        let (mechanism, key) = py.detach(|| key.spend(make))?;
        let running = ManuallyDrop::new(Mutex::new(mechanism));
        Ok(Mechanism { running, plan: plan.0.clone(), key, shard })
    }

    /// The key of this run of this plan.
    fn run_key(&self) -> RunKey {
        self.key.run_key(self.plan.fingerprint())
    }

    fn lock(&self) -> PyResult<MutexGuard<'_, AnyMechanism>> {
        match self.running.try_lock() {
            Ok(running) => Ok(running),
            Err(TryLockError::WouldBlock) => Err(busy("mechanism")),
            // A mechanism that panicked during a step is marked as poisoned by the engine; a panic elsewhere does not harm it.
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
        let mut mechanism = self.lock()?;
        // Only the step of this call is admitted: an admission by an earlier call ended with that call.
        match batch {
            Given::Nothing => {
                mechanism.withdraw_batch();
            }
            Given::Batch(batch) => {
                mechanism.for_batch(batch).map_err(raise)?;
            }
            Given::Unchecked => {
                mechanism.unchecked_batch().map_err(raise)?;
            }
        }
        let own = mechanism.device();
        if device != own {
            return Err(invalid(format!(
                "gradients are on {device}: expected {own}, where this mechanism runs"
            )));
        }
        let spans =
            gradients.iter().map(|(address, len)| (std::ptr::with_exposed_provenance_mut(*address), *len));
        // SAFETY: `collect` found memory of these lengths and this type, writable, on this device, whose owner `add_to` keeps
        // alive; that nothing else uses a gradient while noise is added to it is asked of the caller, as for any function that
        // writes. PyTorch keeps memory that is freed on the current stream from reuse by others until that has passed.
        unsafe { mechanism.add_to_raw(dtype, spans) }.map_err(raise)
    }
}

impl Drop for Mechanism {
    fn drop(&mut self) {
        // SAFETY: this is the only place that takes it, and it is used no more.
        let running = unsafe { ManuallyDrop::take(&mut self.running) };
        // A mechanism waits for the threads that make a row ahead; the interpreter's other threads go on meanwhile.
        Python::attach(|py| py.detach(|| drop(running)));
    }
}

#[pymethods]
impl Mechanism {
    /// Begins a run, at step 0. Takes the key. `replica` says that other processes add the same noise to the same gradients.
    /// With `awaits_state`, what the ledger refuses is refused at the first step, unless a state was loaded before. `stream` is the address of a CUDA stream that outlives the mechanism.
    ///
    /// None of the other options changes the noise. On the CPU, `threads` and `prepare_threads` are the numbers of threads of steps and of `prepare`, 0 for the usual ones, and `compact` keeps a ring
    /// in its least memory. On CUDA, `rows_ahead` is the number of rows made at a time (None: the engine's rule; 1: none ahead, which `compact` means too), `prepare_stream` lets `prepare` make rows on a
    /// stream of its own, and `max_state_bytes` limits what state and rows ahead take per parameter. These three are refused on the CPU.
    #[new]
    #[allow(clippy::too_many_arguments)] // keywords, in Python
    #[pyo3(signature = (plan, key, model, *, ranges = None, replica = false, threads = 0, compact = false, prepare_threads = 0, rows_ahead = None, prepare_stream = false, max_state_bytes = None, device = "cpu", stream = 0, awaits_state = false))]
    fn new(
        py: Python<'_>,
        plan: &Plan,
        key: &Key,
        model: Model<'_>,
        ranges: Option<Vec<(u64, u64)>>,
        replica: bool,
        threads: usize,
        compact: bool,
        prepare_threads: usize,
        rows_ahead: Option<usize>,
        prepare_stream: bool,
        max_state_bytes: Option<u64>,
        device: &str,
        stream: usize,
        awaits_state: bool,
    ) -> PyResult<Mechanism> {
        let shard = model.shard(ranges, replica)?;
        let options =
            Options { threads, compact, prepare_threads, rows_ahead, prepare_stream, max_state_bytes };
        let place = place(device, stream, &options)?;
        let make = |key| match awaits_state {
            true => AnyMechanism::awaiting_state(&plan.0, key, shard.clone(), &place),
            false => AnyMechanism::new(&plan.0, key, shard.clone(), &place),
        };
        Self::build(py, plan, key, shard.clone(), make)
    }

    /// Resumes from any checkpoints that together hold the process's part of the model. Takes the key.
    #[staticmethod]
    #[pyo3(signature = (plan, key, model, files, *, resume = "new", nonce = None, ranges = None, replica = false, threads = 0, compact = false, prepare_threads = 0, rows_ahead = None, prepare_stream = false, max_state_bytes = None, device = "cpu", stream = 0))]
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
        prepare_threads: usize,
        rows_ahead: Option<usize>,
        prepare_stream: bool,
        max_state_bytes: Option<u64>,
        device: &str,
        stream: usize,
    ) -> PyResult<Mechanism> {
        let (shard, resume) = (model.shard(ranges, replica)?, resume_mode(resume, nonce)?);
        let options =
            Options { threads, compact, prepare_threads, rows_ahead, prepare_stream, max_state_bytes };
        let place = place(device, stream, &options)?;
        let make = |key| {
            let checkpoints = files.iter().map(Checkpoint::open).collect::<corrnoise::Result<_>>()?;
            AnyMechanism::resume(&plan.0, key, shard.clone(), checkpoints, resume, &place)
        };
        Self::build(py, plan, key, shard.clone(), make)
    }

    /// Adds the noise of the next step in place, to one array or tensor, or to a list with one per segment. `batch` is the one that
    /// the gradients were summed over: one of another step, plan or run is refused, and so is none where the plan draws batches.
    /// "unchecked" instead says that the caller vouches for the batch.
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
            let (first, other) = (dtype.python_name(), other.dtype.python_name());
            return Err(invalid(format!(
                "gradient {i} is {other}: expected {first}, the type of gradient 0"
            )));
        }
        let list: Vec<(usize, usize)> = memory.iter().map(|memory| (memory.address, memory.len)).collect();
        py.detach(|| self.step(device, dtype, &list, batch))
    }

    /// Begins to make the noise of the next step in the background and returns at once; the step then only adds it. To be called after
    /// a step, before the next gradients are computed. The bits are the same with and without. A refused step leaves what was made, a
    /// checkpoint in between is that of the state before the step, and a second call does nothing. On CUDA it does nothing without `prepare_stream`.
    fn prepare(&self, py: Python<'_>) -> PyResult<()> {
        // The first call takes memory and starts threads, so that the interpreter's lock is released here too.
        py.detach(|| self.lock()?.prepare().map_err(raise))
    }

    /// The sampler of this run: the batches that its plan's claim assumes, after a resume the same as before.
    fn sampler(&self, py: Python<'_>) -> PyResult<Sampler> {
        Sampler::of(py, &self.plan, &self.key)
    }

    /// The step that the next call makes.
    #[getter]
    fn next_step(&self) -> PyResult<u64> {
        Ok(self.lock()?.next_step())
    }

    /// The plan that the mechanism runs.
    #[getter]
    fn plan(&self) -> Plan {
        Plan(self.plan.clone())
    }

    /// The first coordinate and the one past the last, for every gradient that a step expects.
    #[getter]
    fn segments(&self) -> Vec<(u64, u64)> {
        self.shard.segments().iter().map(|segment| (segment.start, segment.end)).collect()
    }

    /// The bytes of state that this process holds.
    #[getter]
    fn state_bytes(&self) -> PyResult<u64> {
        Ok(self.lock()?.state_bytes())
    }

    /// A public value that only this key, plan and run have: equal on all processes of one run.
    #[getter]
    fn commitment(&self) -> String {
        self.run_key().commitment().to_string()
    }

    /// Writes a checkpoint that only its owner may read. It is as secret as the key.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.lock()?.save(&path).map_err(raise))
    }

    /// A checkpoint as bytes, which is as secret as the key; with `sealed` it is encrypted and authenticated under the run's key, for
    /// files that others may read. Equal states give equal sealed bytes.
    #[pyo3(signature = (*, sealed = false))]
    fn state<'py>(&self, py: Python<'py>, sealed: bool) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| {
            let state = self.lock()?.state().map(Zeroizing::new).map_err(raise)?;
            Ok::<_, PyErr>(if sealed { Zeroizing::new(self.run_key().seal(&state)) } else { state })
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Resumes from checkpoints given as bytes, sealed or not, and drops the present state. "exact" is refused if this mechanism made
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
            let key = self.run_key();
            let open = |state: Vec<u8>| match RunKey::is_sealed(&state) {
                true => key.open(&state).and_then(Checkpoint::from_bytes),
                false => Checkpoint::from_bytes(state),
            };
            let checkpoints = states.into_iter().map(open).collect::<corrnoise::Result<_>>();
            let checkpoints = checkpoints.map_err(raise)?;
            self.lock()?.reload(checkpoints, mode).map_err(raise)
        })
    }

    fn __repr__(&self) -> PyResult<String> {
        let running = self.lock()?;
        let (next, engine) = (running.next_step(), running.describe());
        Ok(format!("Mechanism(next_step={next}, num_steps={}, engine='{engine}')", self.plan.num_steps()))
    }
}
