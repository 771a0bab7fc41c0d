//! The arguments that the host hands to a kernel. Device twin: `kernels/launch.cuh`.

use crate::device::device_error;
use crate::module::Kernels;
use bytemuck::{Pod, Zeroable};
use corrnoise_core::secret::Secret;
use corrnoise_core::{Dtype, Result, RunKey};
use cudarc::driver::{CudaStream, DeviceRepr, LaunchConfig, PushKernelArg};

/// The number of coordinates per warp.
pub(crate) const TILE: u64 = corrnoise_core::noise::TILE as u64;
pub(crate) const WARPS_PER_BLOCK: u64 = 4;
pub(crate) const THREADS_PER_BLOCK: u32 = 32 * WARPS_PER_BLOCK as u32;
/// The number of words that one launch of `stage` carries.
pub(crate) const STAGED_WORDS: usize = 960;
/// The number of words per entry of the segment table, and per term of a regenerated sum.
pub(crate) const SEGMENT_WORDS: usize = size_of::<Segment>() / 4;
pub(crate) const TERM_WORDS: usize = 12;

/// A run of coordinates and its gradient.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Segment {
    pub(crate) gradient: u64,
    pub(crate) first: u64,
    pub(crate) length: u64,
    pub(crate) first_tile: u64,
}

/// The record of one step, passed by value or in a schedule.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
pub(crate) struct StepRecord {
    pub(crate) number: u64,
    pub(crate) row: u64,
    /// The secret words of the step's dither.
    pub(crate) dither: [u32; 4],
    /// The columns of the step's row that its blocks share, secret as the key; zero for a sum of several rows.
    pub(crate) columns: [u32; 8],
    /// The scale of the step's noise in units of the grid.
    pub(crate) scale: f32,
    /// For a BLT, 1 if the buffers are zero; for a ring, the slot of the youngest output.
    pub(crate) head: u32,
    /// The index at which the step's coefficients or terms begin, counted in coefficients or terms.
    pub(crate) list: u32,
    pub(crate) count: u32,
}

/// The launch parameters of every noise kernel; addresses are device addresses.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
pub(crate) struct Args {
    pub(crate) segments: u64,
    pub(crate) state: u64,
    pub(crate) list: u64,
    pub(crate) keys: u64,
    pub(crate) schedule: u64,
    pub(crate) counter: u64,
    pub(crate) num_scheduled: u64,
    pub(crate) overflow: u64,
    pub(crate) num_tiles: u64,
    pub(crate) step: StepRecord,
    pub(crate) num_segments: u32,
    pub(crate) four_rounds: u32,
    pub(crate) num_slots: u32,
    /// The number 1, which the kernels multiply with: their compiler cannot know it.
    pub(crate) one: u32,
    /// The unit of the output grid.
    pub(crate) unit: f32,
    /// The reciprocal of the unit, or 0 where noise is added without a grid.
    pub(crate) per_unit: f32,
    pub(crate) key: [u32; 8],
    pub(crate) scale: [f32; 8],
    pub(crate) decay: [f32; 8],
    /// For rows ahead, the local time of the first row that is not made, one word per tile.
    pub(crate) due: u64,
    /// The number of the step at local time 0.
    pub(crate) base: u64,
    /// The rows that `make` writes; the address of `state` for every form but BLT.
    pub(crate) rows: u64,
    /// The number of rows of a turn.
    pub(crate) rows_ahead: u32,
    pub(crate) padding: u32,
}

/// The launch parameters of `stage`.
#[repr(C)]
pub(crate) struct Words(pub(crate) [u32; STAGED_WORDS]);

const _: () = assert!(size_of::<Segment>() == 32 && size_of::<StepRecord>() == 80);
const _: () = assert!(size_of::<Args>() == 304 && size_of::<Words>() == 3840);

// SAFETY: plain numbers in C layout, the same as in launch.cuh.
unsafe impl DeviceRepr for Args {}
// SAFETY: plain numbers in C layout, the same as in launch.cuh.
unsafe impl DeviceRepr for Words {}

/// The keys as a kernel reads them, 8 words each.
pub(crate) fn key_words(keys: &[RunKey]) -> Secret<[u32; 8]> {
    let mut list: Secret<[u32; 8]> = Secret::zeroed(keys.len());
    for (words, key) in list.iter_mut().zip(keys) {
        for (word, bytes) in words.iter_mut().zip(key.bytes().as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
    }
    list
}

/// Sends words as launch parameters: this needs no pinned memory, does not wait, and a captured graph sends them again.
///
/// # Safety
/// `to` is the address of device memory for all of `words`, which outlives every graph that this is captured into.
pub(crate) unsafe fn stage(stream: &CudaStream, kernels: &Kernels, to: u64, words: &[u32]) -> Result<()> {
    for (i, chunk) in words.chunks(STAGED_WORDS).enumerate() {
        let mut parameters = Words([0; STAGED_WORDS]);
        parameters.0[..chunk.len()].copy_from_slice(chunk);
        let (to, count) = (to + (4 * STAGED_WORDS * i) as u64, chunk.len() as u32);
        let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (count, 1, 1), shared_mem_bytes: 0 };
        let mut launch = stream.launch_builder(&kernels.stage);
        launch.arg(&to).arg(&count).arg(&parameters);
        // SAFETY: the kernel writes `count` words at `to`, where there is room for them.
        unsafe { launch.launch(config) }.map_err(device_error("launch the staging kernel"))?;
    }
    Ok(())
}

/// Launches a noise kernel for as many tiles as the arguments say.
///
/// # Safety
/// The addresses in `args` lead to device memory as the kernel expects it there, in the segment table to gradients of type `dtype`.
pub(crate) unsafe fn launch_noise(
    stream: &CudaStream,
    kernels: &Kernels,
    args: &Args,
    dtype: Dtype,
) -> Result<()> {
    // That the count fits was checked when the backend was made.
    let blocks = args.num_tiles.div_ceil(WARPS_PER_BLOCK) as u32;
    if blocks == 0 {
        return Ok(());
    }
    let config =
        LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (THREADS_PER_BLOCK, 1, 1), shared_mem_bytes: 0 };
    let mut launch = stream.launch_builder(kernels.noise(dtype));
    launch.arg(args);
    // SAFETY: `Args` is the kernel's only parameter, laid out as there; the rest is the caller's promise.
    unsafe { launch.launch(config) }.map_err(device_error("launch a noise kernel"))?;
    Ok(())
}
