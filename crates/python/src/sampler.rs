//! The Python classes `corrnoise.Sampler` and `corrnoise.Batch`.

use crate::error::{raise, whole};
use crate::key::Key;
use crate::plan::Plan;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use std::ffi::c_int;

/// The batches that a plan's claim assumes, drawn from the run's own key: the same on every rank, in any order of calls and
/// after every resume. A sampler reads the key and leaves it to a mechanism.
#[pyclass(module = "corrnoise", frozen)]
pub(crate) struct Sampler(corrnoise::Sampler);

impl Sampler {
    /// Makes the sampler of a run. Parts are drawn here, which takes a while for a large dataset.
    pub(crate) fn of(py: Python<'_>, plan: &corrnoise::Plan, key: &corrnoise::Key) -> PyResult<Sampler> {
        py.detach(|| corrnoise::Sampler::new(plan, key)).map(Sampler).map_err(raise)
    }
}

#[pymethods]
impl Sampler {
    /// A sampler for a plan that says how batches are chosen, and the key of the run.
    #[new]
    fn new(py: Python<'_>, plan: &Plan, key: &Key) -> PyResult<Sampler> {
        Sampler::of(py, &plan.0, key.read())
    }

    /// Draws the batch of a step.
    fn batch(&self, py: Python<'_>, step: i128) -> PyResult<Batch> {
        let step = whole("step", step, 0)?;
        let batch = py.detach(|| self.0.batch(step)).map_err(raise)?;
        Ok(Batch { shape: [batch.len() as ffi::Py_ssize_t], batch })
    }

    /// The number of steps of the plan.
    #[getter]
    fn num_steps(&self) -> u64 {
        self.0.num_steps()
    }

    /// The size that no batch exceeds: a length to which every batch can be padded.
    #[getter]
    fn max_batch_size(&self) -> u64 {
        self.0.max_batch_size()
    }

    /// The mean size of a batch, by which a sum over a batch is divided, whatever the batch's own size.
    #[getter]
    fn expected_batch_size(&self) -> f64 {
        self.0.expected_batch_size()
    }

    fn __repr__(&self) -> String {
        format!("Sampler({:?}, num_steps={})", self.0.sampling(), self.0.num_steps())
    }
}

/// The units of one step: indices into the dataset, ascending, each at most once. It is a read-only buffer of uint64, so that
/// `numpy.asarray(batch)` copies nothing. Where the claim rests on sampling, who was in a batch is as secret as the key.
#[pyclass(module = "corrnoise", frozen)]
pub(crate) struct Batch {
    batch: corrnoise::Batch,
    /// The shape that buffers point to.
    shape: [ffi::Py_ssize_t; 1],
}

const ITEM: ffi::Py_ssize_t = size_of::<u64>() as ffi::Py_ssize_t;
/// The strides that buffers point to. They are never written to, whatever the type of the pointer says.
static STRIDES: [ffi::Py_ssize_t; 1] = [ITEM];

impl Batch {
    pub(crate) fn drawn(&self) -> &corrnoise::Batch {
        &self.batch
    }
}

#[pymethods]
impl Batch {
    /// The step that the batch was drawn for.
    #[getter]
    fn step(&self) -> u64 {
        self.batch.step()
    }

    /// The indices as a list.
    fn tolist(&self) -> Vec<u64> {
        self.batch.indices().to_vec()
    }

    /// The batch at `length` places, so that one compiled step serves all of them: a NumPy array of the indices and then `padding`, and one of
    /// bool that says where a unit is. The gradients of padded places are multiplied by 0 before the sum. A batch of more units is refused.
    ///
    /// With 0 as padding every place is an index that exists; with the dataset's size, one that no array has, so that a mask that was
    /// forgotten is noticed. `Sampler.max_batch_size` is a length that always suffices.
    fn padded<'py>(
        &self,
        py: Python<'py>,
        length: i128,
        padding: i128,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let (length, padding) = (whole("length", length, 0)?, whole("padding", padding, 0)?);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let (indices, mask) = self.batch.padded(length, padding).map_err(raise)?;
        let numpy = py.import("numpy")?;
        let array = |bytes: Vec<u8>, dtype: &str| {
            numpy.call_method1("frombuffer", (PyByteArray::new(py, &bytes), dtype))
        };
        let indices = indices.into_iter().flat_map(u64::to_ne_bytes).collect();
        Ok((array(indices, "uint64")?, array(mask.into_iter().map(u8::from).collect(), "bool")?))
    }

    fn __len__(&self) -> usize {
        self.batch.len()
    }

    fn __repr__(&self) -> String {
        format!("Batch(step={}, {} units)", self.batch.step(), self.batch.len())
    }

    /// Fills a buffer that shares the batch's memory.
    ///
    /// # Safety
    /// `view` is null or a buffer to fill, as the interpreter promises.
    unsafe fn __getbuffer__(slf: Bound<'_, Batch>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: null or valid for as long as this runs.
        let Some(view) = (unsafe { view.as_mut() }) else {
            return Err(PyBufferError::new_err("no buffer to fill"));
        };
        view.obj = std::ptr::null_mut();
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("a batch is read-only"));
        }
        let asked = |flag: c_int| flags & flag == flag;
        let batch = slf.get();
        // Indices, shape and strides stay where they are while the object lives, which the view keeps alive; nobody writes to
        // them, since the view says that it is read-only.
        view.buf = batch.batch.indices().as_ptr().cast_mut().cast();
        view.len = batch.shape[0] * ITEM;
        view.readonly = 1;
        view.itemsize = ITEM;
        view.format = if asked(ffi::PyBUF_FORMAT) { c"Q".as_ptr().cast_mut() } else { std::ptr::null_mut() };
        view.ndim = 1;
        view.shape =
            if asked(ffi::PyBUF_ND) { batch.shape.as_ptr().cast_mut() } else { std::ptr::null_mut() };
        view.strides =
            if asked(ffi::PyBUF_STRIDES) { STRIDES.as_ptr().cast_mut() } else { std::ptr::null_mut() };
        view.suboffsets = std::ptr::null_mut();
        view.internal = std::ptr::null_mut();
        view.obj = slf.into_ptr();
        Ok(())
    }
}
