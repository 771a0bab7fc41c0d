//! Memory exported by DLPack 1.x: only from this version on, a flag tells memory that may be written to.

use super::{CPU_OR_CUDA, EXPECTED_DTYPE, Memory, Name, Owner, READ_ONLY, STRIDED, checked_len, spelled};
use crate::error::invalid;
use corrnoise::Device;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyDict};
use std::ffi::{CStr, c_void};

const CAPSULE: &CStr = c"dltensor_versioned";
const DEVICE_CPU: i32 = 1;
const DEVICE_CUDA: i32 = 2;
const FLAG_READ_ONLY: u64 = 1;

/// The struct `DLManagedTensorVersioned` of dlpack.h.
#[repr(C)]
struct Managed {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: *mut c_void,
    flags: u64,
    tensor: Tensor,
}

/// The struct `DLTensor` of dlpack.h.
#[repr(C)]
pub(super) struct Tensor {
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
    if managed.flags & FLAG_READ_ONLY != 0 {
        return Err(invalid(format!("{name} {READ_ONLY}")));
    }
    managed.tensor.memory(name, Owner::Object(capsule.into_any()))
}

impl Tensor {
    /// A description that is refused unless a library overwrites it.
    pub(super) const UNKNOWN: Tensor = Tensor {
        data: std::ptr::null_mut(),
        device_type: 0,
        device_id: 0,
        ndim: 0,
        code: 0,
        bits: 0,
        lanes: 0,
        shape: std::ptr::null(),
        strides: std::ptr::null(),
        byte_offset: 0,
    };

    /// The memory of a tensor that `owner` keeps alive.
    pub(super) fn memory<'py>(&self, name: Name, owner: Owner<'py>) -> PyResult<Memory<'py>> {
        let device = match (self.device_type, usize::try_from(self.device_id)) {
            (DEVICE_CPU, _) => Device::Cpu,
            (DEVICE_CUDA, Ok(number)) => Device::Cuda(number),
            (kind, _) => {
                return Err(invalid(format!("{name} is on a device of DLPack type {kind}: {CPU_OR_CUDA}")));
            }
        };
        let is_it = |spelling: &super::Spelling| spelling.dlpack == (self.code, self.bits) && self.lanes == 1;
        let Some(dtype) = spelled(is_it) else {
            let shown = format!("DLPack code {}, {} bits, {} lanes", self.code, self.bits, self.lanes);
            return Err(invalid(format!("{name} has numbers of {shown}: {EXPECTED_DTYPE}")));
        };
        let shape = numbers(self.shape, self.ndim);
        // A negative size becomes one that no memory has.
        let sizes = shape.iter().map(|size| usize::try_from(*size).unwrap_or(usize::MAX));
        let Some(len) = checked_len(sizes) else {
            return Err(invalid(format!("{name} has an impossible shape")));
        };
        if !self.strides.is_null() && !is_contiguous(shape, numbers(self.strides, self.ndim)) {
            return Err(invalid(format!("{name} {STRIDED}")));
        }
        let address = self.data.expose_provenance() + self.byte_offset as usize;
        Ok(Memory { dtype, device, address, len, _owner: owner })
    }
}

fn numbers<'a>(pointer: *const i64, count: i32) -> &'a [i64] {
    match usize::try_from(count) {
        // SAFETY: DLPack says that shape and strides, where they are given, have `ndim` numbers, for as long as the export.
        Ok(count) if count > 0 && !pointer.is_null() => unsafe { std::slice::from_raw_parts(pointer, count) },
        _ => &[],
    }
}

/// True for C-contiguous memory. The stride of a dimension of one value does not matter.
fn is_contiguous(shape: &[i64], strides: &[i64]) -> bool {
    let mut expected = 1i64;
    shape.iter().zip(strides).rev().all(|(size, stride)| {
        let fits = *size <= 1 || *stride == expected;
        expected = expected.saturating_mul(*size);
        fits
    })
}
