//! DLPack 1.x, of which the first version with a read-only flag is the oldest that can be trusted to write through.

use super::{
    CPU_OR_CUDA, Device, Dtype, EXPECTED_DTYPE, Memory, Name, Owner, READ_ONLY, STRIDED, checked_len,
};
use crate::error::invalid;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyDict};
use std::ffi::{CStr, c_void};

const CAPSULE: &CStr = c"dltensor_versioned";
const DEVICE_CPU: i32 = 1;
const DEVICE_CUDA: i32 = 2;
const CODE_FLOAT: u8 = 2;
const CODE_BFLOAT: u8 = 4;
const FLAG_READ_ONLY: u64 = 1;

/// `DLManagedTensorVersioned` of dlpack.h.
#[repr(C)]
struct Managed {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: *mut c_void,
    flags: u64,
    tensor: Tensor,
}

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// The memory that an object exports. The capsule is not consumed: dropping it releases the export.
pub(super) fn memory<'py>(object: &Bound<'py, PyAny>, name: Name) -> PyResult<Memory<'py>> {
    let arguments = PyDict::new(object.py());
    arguments.set_item("max_version", (1, 0))?;
    let refuse = |error: PyErr| invalid(format!("{name} exports no DLPack 1.0: {error}"));
    let capsule = object.call_method("__dlpack__", (), Some(&arguments)).map_err(refuse)?;
    let capsule = capsule.cast_into::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(CAPSULE)).map_err(refuse)?.cast::<Managed>();
    // SAFETY: a capsule of this name holds this struct for as long as it lives; the first fields never change between versions.
    let managed = unsafe { pointer.as_ref() };
    if managed.major != 1 {
        return Err(invalid(format!("{name} exports DLPack {}: expected version 1", managed.major)));
    }
    let tensor = &managed.tensor;
    let device = match (tensor.device_type, usize::try_from(tensor.device_id)) {
        (DEVICE_CPU, _) => Device::Cpu,
        (DEVICE_CUDA, Ok(number)) => Device::Cuda(number),
        _ => {
            let kind = tensor.device_type;
            return Err(invalid(format!("{name} is on a device of DLPack type {kind}: {CPU_OR_CUDA}")));
        }
    };
    let dtype = match (tensor.code, tensor.bits, tensor.lanes) {
        (CODE_FLOAT, 32, 1) => Dtype::F32,
        (CODE_FLOAT, 16, 1) => Dtype::F16,
        (CODE_BFLOAT, 16, 1) => Dtype::Bf16,
        (code, bits, lanes) => {
            let shown = format!("DLPack code {code}, {bits} bits, {lanes} lanes");
            return Err(invalid(format!("{name} has numbers of {shown}: {EXPECTED_DTYPE}")));
        }
    };
    if managed.flags & FLAG_READ_ONLY != 0 {
        return Err(invalid(format!("{name} {READ_ONLY}")));
    }
    let shape = numbers(tensor.shape, tensor.ndim)
        .iter()
        .map(|size| usize::try_from(*size).ok())
        .collect::<Option<Vec<_>>>();
    let Some((shape, len)) = shape.and_then(|shape| checked_len(&shape).map(|len| (shape, len))) else {
        return Err(invalid(format!("{name} has an impossible shape")));
    };
    if !tensor.strides.is_null() && !is_contiguous(&shape, numbers(tensor.strides, tensor.ndim)) {
        return Err(invalid(format!("{name} {STRIDED}")));
    }
    let address = tensor.data.expose_provenance() + tensor.byte_offset as usize;
    Ok(Memory { dtype, device, address, len, _owner: Owner::Object(capsule.into_any()) })
}

fn numbers<'a>(pointer: *const i64, count: i32) -> &'a [i64] {
    match usize::try_from(count) {
        // SAFETY: DLPack says that shape and strides, where they are given, have `ndim` numbers, for as long as the export.
        Ok(count) if count > 0 && !pointer.is_null() => unsafe { std::slice::from_raw_parts(pointer, count) },
        _ => &[],
    }
}

/// Strides of a dimension of one value say nothing.
fn is_contiguous(shape: &[usize], strides: &[i64]) -> bool {
    let mut expected = 1i64;
    shape.iter().zip(strides).rev().all(|(size, stride)| {
        let fits = *size <= 1 || *stride == expected;
        expected = expected.saturating_mul(*size as i64);
        fits
    })
}
