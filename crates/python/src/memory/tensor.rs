//! The memory of PyTorch tensors.
//!
//! PyTorch 2.10 and later describe a tensor in one call of C, DLPack's exchange table, which costs a tenth of asking for its properties
//! one by one. If that call does not describe plain memory, the properties are asked one by one, to find the reason.

use super::dlpack::Tensor;
use super::{CPU_OR_CUDA, EXPECTED_DTYPE, Memory, Name, Owner, STRIDED};
use crate::error::invalid;
use corrnoise::{Device, Dtype};
use pyo3::ffi::PyObject;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyCapsuleMethods};
use std::ffi::c_void;

/// The objects of PyTorch that are looked up once.
struct Torch {
    /// The class `Tensor` itself: subclasses may keep their values elsewhere.
    tensor: Py<PyAny>,
    /// PyTorch's number types, in the order of [`Dtype::ALL`].
    dtypes: Vec<Py<PyAny>>,
    describe: Option<Describe>,
}

/// Fills in the description of a live tensor; if it has none, the result is not 0 and an exception is set.
type Describe = unsafe extern "C" fn(*mut PyObject, *mut Tensor) -> i32;

/// The struct `DLPackExchangeAPI` of dlpack.h, version 1.3.
#[repr(C)]
struct Exchange {
    major: u32,
    minor: u32,
    previous: *const c_void,
    allocate: *const c_void,
    from_python: *const c_void,
    to_python: *const c_void,
    describe: Option<Describe>,
}

impl Torch {
    fn get(py: Python<'_>) -> PyResult<&Torch> {
        static TORCH: PyOnceLock<Torch> = PyOnceLock::new();
        TORCH.get_or_try_init(py, || {
            let torch = py.import("torch")?;
            let named = |dtype: Dtype| Ok::<_, PyErr>(torch.getattr(dtype.python_name())?.unbind());
            let tensor = torch.getattr("Tensor")?;
            let describe = describe(&tensor);
            let dtypes = Dtype::ALL.into_iter().map(named).collect::<PyResult<_>>()?;
            Ok(Torch { tensor: tensor.unbind(), dtypes, describe })
        })
    }
}

/// The function of the exchange table, where the class has one.
fn describe(class: &Bound<'_, PyAny>) -> Option<Describe> {
    let capsule = class.getattr("__dlpack_c_exchange_api__").ok()?.cast_into::<PyCapsule>().ok()?;
    let table = capsule.pointer_checked(Some(c"dlpack_exchange_api")).ok()?.cast::<Exchange>();
    // SAFETY: a capsule of this name holds such a table for as long as the process lives; the version is first in all of them.
    let table = unsafe { table.as_ref() };
    if table.major == 1 { table.describe } else { None }
}

/// The memory of a tensor.
pub(super) fn memory<'py>(tensor: &Bound<'py, PyAny>, name: Name) -> PyResult<Memory<'py>> {
    let torch = Torch::get(tensor.py())?;
    match described(torch, tensor, name) {
        Some(memory) => Ok(memory),
        None => asked(torch, tensor, name),
    }
}

fn is_neg(tensor: &Bound<'_, PyAny>) -> PyResult<bool> {
    tensor.call_method0(intern!(tensor.py(), "is_neg"))?.is_truthy()
}

fn described<'py>(torch: &Torch, tensor: &Bound<'py, PyAny>, name: Name) -> Option<Memory<'py>> {
    let describe = torch.describe?;
    if !tensor.get_type().is(&torch.tensor) {
        return None;
    }
    let mut found = Tensor::UNKNOWN;
    // SAFETY: a live object of the class that the function was found on; the description is read before anything else happens.
    if unsafe { describe(tensor.as_ptr(), &mut found) } != 0 {
        drop(PyErr::take(tensor.py()));
        return None;
    }
    // DLPack does not know lazily negated views.
    let memory = found.memory(name, Owner::Object(tensor.clone())).ok()?;
    is_neg(tensor).is_ok_and(|negated| !negated).then_some(memory)
}

/// Reads every property on its own, and reports what is wrong with it.
fn asked<'py>(torch: &Torch, tensor: &Bound<'py, PyAny>, name: Name) -> PyResult<Memory<'py>> {
    let py = tensor.py();
    let dtype = tensor.getattr(intern!(py, "dtype"))?;
    let Some(known) = torch.dtypes.iter().position(|known| dtype.is(known)) else {
        return Err(invalid(format!("{name} is {dtype}: {EXPECTED_DTYPE}")));
    };
    let dtype = Dtype::ALL[known];
    let device = match tensor.getattr(intern!(py, "is_cpu"))?.is_truthy()? {
        true => Device::Cpu,
        false => cuda_device(tensor, name)?,
    };
    let refuse = |error: PyErr| invalid(format!("{name} has no plain memory: {error}"));
    if !tensor.call_method0(intern!(py, "is_contiguous")).map_err(refuse)?.is_truthy()? {
        return Err(invalid(format!("{name} {STRIDED}")));
    }
    if is_neg(tensor)? {
        return Err(invalid(format!(
            "{name} is a lazily negated view: expected plain values; call .resolve_neg()"
        )));
    }
    let address = tensor.call_method0(intern!(py, "data_ptr")).map_err(refuse)?.extract()?;
    let len = tensor.call_method0(intern!(py, "numel"))?.extract()?;
    Ok(Memory { dtype, device, address, len, _owner: Owner::Object(tensor.clone()) })
}

/// The device of a CUDA tensor. Other devices are refused.
fn cuda_device(tensor: &Bound<'_, PyAny>, name: Name) -> PyResult<Device> {
    let py = tensor.py();
    let device = tensor.getattr(intern!(py, "device"))?;
    if !tensor.getattr(intern!(py, "is_cuda"))?.is_truthy()? {
        return Err(invalid(format!("{name} is on {device}: {CPU_OR_CUDA}")));
    }
    Ok(Device::Cuda(device.getattr(intern!(py, "index"))?.extract()?))
}
