//! Gradients in anyone's memory: PyTorch tensors, buffers (NumPy, `array`), `__array_interface__`, DLPack.
//!
//! Whatever is not f32, f16 or bf16, on the CPU, C-contiguous and writable is refused here, before a step begins.

mod dlpack;
mod tensor;

use crate::error::invalid;
use corrnoise::{Device, Dtype};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyAttributeError, PyBufferError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

/// The spelling of a number type in other libraries.
struct Spelling {
    dtype: Dtype,
    /// The format of a buffer's items, where buffers know the type.
    buffer: Option<&'static [u8]>,
    /// The `typestr` of `__array_interface__`. Types that it cannot name are `V` and their size, and are asked for their name.
    typestr: &'static str,
    /// DLPack's code and number of bits.
    dlpack: (u8, u8),
}

const SPELLINGS: [Spelling; 3] = [
    Spelling { dtype: Dtype::F32, buffer: Some(b"f"), typestr: "<f4", dlpack: (2, 32) },
    Spelling { dtype: Dtype::F16, buffer: Some(b"e"), typestr: "<f2", dlpack: (2, 16) },
    Spelling { dtype: Dtype::Bf16, buffer: None, typestr: "<V2", dlpack: (4, 16) },
];

/// The number type whose spelling passes a test.
fn spelled(is_it: impl Fn(&Spelling) -> bool) -> Option<Dtype> {
    SPELLINGS.iter().find(|spelling| is_it(spelling)).map(|spelling| spelling.dtype)
}

/// One gradient, and what keeps its memory alive.
pub(crate) struct Memory<'py> {
    pub(crate) dtype: Dtype,
    pub(crate) device: Device,
    pub(crate) address: usize,
    pub(crate) len: usize,
    _owner: Owner<'py>,
}

/// The owner of the memory, which is held and never read.
#[allow(dead_code)]
enum Owner<'py> {
    Buffer(PyUntypedBuffer),
    Object(Bound<'py, PyAny>),
}

const EXPECTED_DTYPE: &str = "expected float32, float16 or bfloat16";

/// The name of a gradient in messages; its text is made only when a message needs it.
#[derive(Clone, Copy)]
struct Name(Option<usize>);

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(i) => write!(f, "gradient {i}"),
            None => write!(f, "gradient"),
        }
    }
}

/// The memory of one gradient, or of a list or tuple of them.
pub(crate) fn collect<'py>(gradients: &Bound<'py, PyAny>) -> PyResult<Vec<Memory<'py>>> {
    let numbered = |(i, item): (usize, Bound<'py, PyAny>)| memory(&item, Name(Some(i)));
    if let Ok(list) = gradients.cast::<PyList>() {
        return list.iter().enumerate().map(numbered).collect();
    }
    if let Ok(tuple) = gradients.cast::<PyTuple>() {
        return tuple.iter().enumerate().map(numbered).collect();
    }
    Ok(vec![memory(gradients, Name(None))?])
}

fn memory<'py>(object: &Bound<'py, PyAny>, name: Name) -> PyResult<Memory<'py>> {
    let py = object.py();
    if object.is_none() {
        return Err(invalid(format!("{name} is None: expected an array or a tensor")));
    }
    // SAFETY: looks at the type of a live object. This comes first, since an attribute that is missing costs an exception.
    let has_buffer = unsafe { pyo3::ffi::PyObject_CheckBuffer(object.as_ptr()) } != 0;
    // A buffer is refused for types that NumPy cannot describe in one, such as ml_dtypes' bfloat16.
    if has_buffer && let Ok(buffer) = PyUntypedBuffer::get(object) {
        return from_buffer(buffer, name);
    }
    if object.hasattr(intern!(py, "data_ptr"))? {
        return tensor::memory(object, name);
    }
    if let Ok(interface) = object.getattr(intern!(py, "__array_interface__")) {
        return from_interface(object, &interface.cast_into::<PyDict>()?, name);
    }
    if object.hasattr(intern!(py, "__dlpack__"))? {
        return dlpack::memory(object, name);
    }
    let kind = object.get_type().fully_qualified_name()?;
    Err(invalid(format!("{name} is a {kind}: expected an array or a tensor, or a list of them")))
}

const CPU_OR_CUDA: &str = "expected memory of the CPU or of a CUDA device";
const READ_ONLY: &str =
    "is read-only: expected a writable array (JAX arrays are immutable: see corrnoise.jax)";
const STRIDED: &str =
    "is not C-contiguous: expected contiguous memory; call .contiguous() or numpy.ascontiguousarray";

fn from_buffer<'py>(buffer: PyUntypedBuffer, name: Name) -> PyResult<Memory<'py>> {
    let format = buffer.format().to_bytes();
    let format = format
        .strip_prefix(b"<")
        .or(format.strip_prefix(b"="))
        .or(format.strip_prefix(b"@"))
        .unwrap_or(format);
    let is_it =
        |spelling: &Spelling| spelling.buffer == Some(format) && spelling.dtype.bytes() == buffer.item_size();
    let Some(dtype) = spelled(is_it) else {
        let format = buffer.format().to_string_lossy();
        return Err(invalid(format!("{name} has numbers of format {format:?}: {EXPECTED_DTYPE}")));
    };
    if buffer.readonly() {
        return Err(invalid(format!("{name} {READ_ONLY}")));
    }
    if !buffer.is_c_contiguous() {
        return Err(invalid(format!("{name} {STRIDED}")));
    }
    let (address, len) = (buffer.buf_ptr().expose_provenance(), buffer.item_count());
    Ok(Memory { dtype, device: Device::Cpu, address, len, _owner: Owner::Buffer(buffer) })
}

/// The memory that `__array_interface__`, version 3, describes. A type that it cannot name is asked for its name.
fn from_interface<'py>(
    object: &Bound<'py, PyAny>,
    interface: &Bound<'py, PyDict>,
    name: Name,
) -> PyResult<Memory<'py>> {
    let py = object.py();
    let item = |key: &str| {
        let missing = || PyAttributeError::new_err(format!("__array_interface__ has no {key:?}"));
        interface.get_item(key)?.ok_or_else(missing)
    };
    let typestr: String = item("typestr")?.extract()?;
    let dtype_name =
        || object.getattr(intern!(py, "dtype")).and_then(|dtype| dtype.getattr(intern!(py, "name")));
    let is_named =
        |dtype: Dtype| dtype_name().is_ok_and(|found| found.eq(dtype.python_name()).unwrap_or(false));
    let is_it = |spelling: &Spelling| {
        spelling.typestr == typestr && (!typestr.starts_with("<V") || is_named(spelling.dtype))
    };
    let Some(dtype) = spelled(is_it) else {
        let shown = dtype_name().map_or(typestr.clone(), |found| found.to_string());
        return Err(invalid(format!("{name} is {shown}: {EXPECTED_DTYPE}")));
    };
    let (address, read_only): (usize, bool) = item("data")?.extract()?;
    if read_only {
        return Err(invalid(format!("{name} {READ_ONLY}")));
    }
    // An array without strides is C-contiguous.
    if interface.get_item("strides")?.is_some_and(|strides| !strides.is_none()) {
        return Err(invalid(format!("{name} {STRIDED}")));
    }
    let shape: Vec<usize> = item("shape")?.extract()?;
    let len = checked_len(shape.into_iter())
        .ok_or_else(|| PyBufferError::new_err("an array larger than memory"))?;
    Ok(Memory { dtype, device: Device::Cpu, address, len, _owner: Owner::Object(object.clone()) })
}

fn checked_len(mut shape: impl Iterator<Item = usize>) -> Option<usize> {
    shape.try_fold(1usize, usize::checked_mul)
}
