//! Kernel launches and queries about kernels.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use super::boundary::{Out, call};
use super::graph::Command;
use super::handle::{Handle, Kind, decode, unknown};
use super::state;
use super::stream::OnStream;
use crate::exec::Launch;
use crate::ptx::Kernel;
use crate::status::{Failure, Status};

/// The largest grid that the hardware allows along each axis.
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
const MAX_THREADS: u64 = 1024;
const MAX_SHARED: usize = 49_152;

/// Launches a kernel on a stream, or records the launch if the stream captures.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the signature is NVIDIA's")]
pub unsafe extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: Handle,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Status {
    call("cuLaunchKernel", || {
        let (ordinal, key) = decode(Kind::Function, function)?;
        let mut on = OnStream::of(stream)?;
        if on.device.ordinal != ordinal {
            return Err(Failure::new(Status::InvalidHandle, "kernel and stream are of different devices"));
        }
        let found = on.device.functions.get(&key).ok_or_else(|| unknown(Kind::Function))?;
        let kernel = Arc::clone(&found.1);
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        check_shape(&kernel, grid, block, shared)?;
        if !extra.is_null() {
            return Err(Failure::invalid_value("arguments as one buffer are not supported"));
        }
        // SAFETY: the driver's interface asks for one pointer per parameter, to as many bytes as the parameter has.
        let params = unsafe { copy_params(&kernel, params) }?;
        on.submit(Command::Launch(Arc::new(Launch { kernel, grid, block, params })))
    })
}

fn check_shape(kernel: &Kernel, grid: [u32; 3], block: [u32; 3], shared: u32) -> Result<(), Failure> {
    let within =
        |shape: [u32; 3], most: [u32; 3]| shape.iter().zip(most).all(|(n, most)| (1..=most).contains(n));
    let threads: u64 = block.iter().map(|n| u64::from(*n)).product();
    let refuse = |what: &str| {
        let name = &kernel.name;
        Err(Failure::invalid_value(format!("kernel {name}, grid {grid:?}, block {block:?}: {what}")))
    };
    if !within(grid, MAX_GRID) || !within(block, MAX_BLOCK) || threads > MAX_THREADS {
        return refuse("beyond what the hardware allows");
    }
    if let Some(most) = kernel.max_threads
        && threads > most.iter().map(|n| u64::from(*n)).product()
    {
        return refuse(&format!(".maxntid {most:?} forbids it"));
    }
    if let Some(required) = kernel.required_threads
        && required != block
    {
        return refuse(&format!(".reqntid {required:?} forbids it"));
    }
    let declared: usize = kernel.shared.iter().map(|variable| variable.size).sum();
    if shared as usize + declared > MAX_SHARED { refuse("too much shared memory") } else { Ok(()) }
}

/// The arguments, copied into a parameter block as the kernel expects it.
///
/// # Safety
///
/// `params` is null or has one entry per parameter, each null or valid for reading as many bytes as the parameter has.
unsafe fn copy_params(kernel: &Kernel, params: *mut *mut c_void) -> Result<Vec<u8>, Failure> {
    let mut block = vec![0; kernel.param_bytes];
    for (i, param) in kernel.params.iter().enumerate() {
        let missing =
            || Failure::invalid_value(format!("kernel {}: no argument for {}", kernel.name, param.name));
        if params.is_null() {
            return Err(missing());
        }
        // SAFETY: `params` has one entry per parameter.
        let argument = unsafe { *params.add(i) };
        if argument.is_null() {
            return Err(missing());
        }
        let to = &mut block[param.offset..param.offset + param.size];
        // SAFETY: the argument has as many bytes as the parameter, and `to` is fresh memory of that size.
        unsafe { to.as_mut_ptr().copy_from_nonoverlapping(argument.cast(), param.size) };
    }
    Ok(block)
}

/// Returns an attribute of a kernel, by NVIDIA's number for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(
    value: Out<c_int>,
    attribute: c_uint,
    function: Handle,
) -> Status {
    call("cuFuncGetAttribute", || {
        let (ordinal, key) = decode(Kind::Function, function)?;
        let device = state::working(ordinal)?;
        let (_, kernel) = device.functions.get(&key).ok_or_else(|| unknown(Kind::Function))?;
        value.set(match attribute {
            // Threads per block.
            0 => {
                let declared = kernel.required_threads.or(kernel.max_threads);
                declared.map_or(MAX_THREADS, |most| most.iter().map(|n| u64::from(*n)).product()) as c_int
            }
            // Bytes of shared memory.
            1 => kernel.shared.iter().map(|variable| variable.size as c_int).sum(),
            // Registers per thread: a guess, as only the real compiler assigns them.
            4 => 64,
            // PTX version and binary version.
            5 => 80,
            6 => device.capability() as c_int,
            // Constant and local memory, cache modes, clusters: none.
            2..=15 => 0,
            _ => return Err(Failure::invalid_value(format!("unknown function attribute {attribute}"))),
        })
    })
}

/// Returns how many blocks fit on a multiprocessor, judged by their threads alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: Out<c_int>,
    function: Handle,
    threads: c_int,
    _shared: usize,
) -> Status {
    call("cuOccupancyMaxActiveBlocksPerMultiprocessor", || set_occupancy(&blocks, function, threads))
}

/// Returns how many blocks fit on a multiprocessor, judged by their threads alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: Out<c_int>,
    function: Handle,
    threads: c_int,
    _shared: usize,
    _flags: c_uint,
) -> Status {
    call("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", || set_occupancy(&blocks, function, threads))
}

fn set_occupancy(blocks: &Out<c_int>, function: Handle, threads: c_int) -> Result<(), Failure> {
    decode(Kind::Function, function)?;
    if !(1..=MAX_THREADS as c_int).contains(&threads) {
        return Err(Failure::invalid_value(format!("blocks of {threads} threads")));
    }
    blocks.set((2048 / threads).min(32))
}
