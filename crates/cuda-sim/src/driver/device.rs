//! Initialisation of the driver and queries about devices.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use super::boundary::{Out, call};
use super::state::{NUM_DEVICES, capability};
use crate::memory::TOTAL;
use crate::status::{Failure, Status};

const NAME: &[u8] = b"corrnoise stand-in (executes PTX)\0";

static INITIALISED: AtomicBool = AtomicBool::new(false);

/// The ordinal of a `CUdevice`, which is the same number.
pub(super) fn ordinal(device: c_int) -> Result<usize, Failure> {
    if !INITIALISED.load(Ordering::Relaxed) {
        return Err(Failure::new(Status::NotInitialized, "cuInit was not called"));
    }
    let ordinal = usize::try_from(device).ok().filter(|ordinal| *ordinal < NUM_DEVICES);
    ordinal.ok_or_else(|| Failure::new(Status::InvalidDevice, format!("there is no device {device}")))
}

/// Initialises the library, as every program must do first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(flags: c_uint) -> Status {
    call("cuInit", || {
        if flags != 0 {
            return Err(Failure::invalid_value("flags must be 0"));
        }
        INITIALISED.store(true, Ordering::Relaxed);
        Ok(())
    })
}

/// Returns the CUDA version of the driver: 12.0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: Out<c_int>) -> Status {
    call("cuDriverGetVersion", || version.set(12_000))
}

/// Refuses the table of internal functions that NVRTC asks for and can do without.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetExportTable(_table: *mut *const c_void, _id: *const c_void) -> Status {
    call("cuGetExportTable", || Err(Failure::new(Status::NotFound, "there are no export tables")))
}

/// Returns the number of devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: Out<c_int>) -> Status {
    call("cuDeviceGetCount", || {
        ordinal(0)?;
        count.set(NUM_DEVICES as c_int)
    })
}

/// Returns the device with an ordinal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: Out<c_int>, number: c_int) -> Status {
    call("cuDeviceGet", || device.set(ordinal(number)? as c_int))
}

/// Writes the device's name, cut to `len` bytes with its final zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int) -> Status {
    call("cuDeviceGetName", || {
        ordinal(device)?;
        let len = usize::try_from(len).unwrap_or(0).min(NAME.len());
        if name.is_null() || len == 0 {
            return Err(Failure::invalid_value("no room for the name"));
        }
        // SAFETY: the caller gives room for `len` bytes, and NAME has at least as many.
        unsafe {
            name.cast::<u8>().copy_from_nonoverlapping(NAME.as_ptr(), len);
            name.add(len - 1).write(0);
        }
        Ok(())
    })
}

/// Returns sixteen bytes that tell the devices apart.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: c_int) -> Status {
    call("cuDeviceGetUuid", || set_uuid(&uuid, device))
}

/// Returns sixteen bytes that tell the devices apart.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: c_int) -> Status {
    call("cuDeviceGetUuid_v2", || set_uuid(&uuid, device))
}

fn set_uuid(uuid: &Out<[u8; 16]>, device: c_int) -> Result<(), Failure> {
    let mut bytes = *b"corrnoise-sim--0";
    bytes[15] += ordinal(device)? as u8;
    uuid.set(bytes)
}

/// Returns the memory of a device in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: c_int) -> Status {
    call("cuDeviceTotalMem_v2", || {
        ordinal(device)?;
        bytes.set(TOTAL as usize)
    })
}

/// Returns an attribute of a device, by NVIDIA's number for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: Out<c_int>, attribute: c_uint, device: c_int) -> Status {
    call("cuDeviceGetAttribute", || {
        let ordinal = ordinal(device)?;
        value.set(attribute_value(attribute, ordinal)?)
    })
}

/// The attributes of an A100 where they matter; 0 ("no such feature") for textures, surfaces and all else that is not simulated.
fn attribute_value(attribute: c_uint, ordinal: usize) -> Result<c_int, Failure> {
    Ok(match attribute {
        // Threads per block, block dimensions, grid dimensions.
        1..=3 => 1024,
        4 => 64,
        5 => c_int::MAX,
        6 | 7 => 65_535,
        // Shared memory per block (also with opt-in) and per multiprocessor, constant memory.
        8 => 49_152,
        97 => 166_912,
        81 => 167_936,
        9 => 65_536,
        // Warp size, largest pitch, registers per block and per multiprocessor.
        10 => 32,
        11 => c_int::MAX,
        12 | 82 => 65_536,
        // Clocks in kHz, multiprocessors, bus width in bits, L2 in bytes.
        13 => 1_410_000,
        16 => 108,
        36 => 1_215_000,
        37 => 5_120,
        38 => 41_943_040,
        // Threads and blocks per multiprocessor.
        39 => 2_048,
        106 => 32,
        // Overlap, concurrent kernels, copy engines, unified addressing, stream priorities, caches, preemption.
        15 | 31 | 41 | 78 | 79 | 80 | 90 => 1,
        40 => 3,
        33 => ordinal as c_int + 1,
        75 => (capability(ordinal) / 10) as c_int,
        76 => (capability(ordinal) % 10) as c_int,
        // Memory pools: cudarc then allocates with cuMemAllocAsync.
        115 => 1,
        0 | 135.. => return Err(Failure::invalid_value(format!("unknown device attribute {attribute}"))),
        _ => 0,
    })
}
