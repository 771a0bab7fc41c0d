//! The launch parameters of `kernels/launch.cuh`, for tests that run a kernel without the engine's host code. They are written from that
//! header and not shared with `crates/cuda/src/launch.rs`, so that a field in another's place there shows.

use corrnoise::backend::Add;
use corrnoise::{Plan, RunKey};

/// The struct `Step` of `kernels/launch.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
#[allow(missing_docs, reason = "as in `launch.cuh`")]
pub struct Record {
    pub number: u64,
    pub row: u64,
    pub dither: [u32; 4],
    pub columns: [u32; 8],
    pub scale: f32,
    pub head: u32,
    pub list: u32,
    pub count: u32,
}

/// The struct `Args` of `kernels/launch.cuh`, with addresses as numbers.
#[repr(C)]
#[derive(Clone, Copy, Default)]
#[allow(missing_docs, reason = "as in `launch.cuh`")]
pub struct Args {
    pub segments: u64,
    pub state: u64,
    pub list: u64,
    pub keys: u64,
    pub schedule: u64,
    pub counter: u64,
    pub num_scheduled: u64,
    pub overflow: u64,
    pub num_tiles: u64,
    pub step: Record,
    pub num_segments: u32,
    pub four_rounds: u32,
    pub num_slots: u32,
    pub one: u32,
    pub unit: f32,
    pub per_unit: f32,
    pub key: [u32; 8],
    pub scale: [f32; 8],
    pub decay: [f32; 8],
    pub due: u64,
    pub base: u64,
    pub rows: u64,
    pub rows_ahead: u32,
    pub padding: u32,
}
const _: () = assert!(size_of::<Record>() == 80 && size_of::<Args>() == 304);

impl Args {
    /// The parameters that all steps of a plan share, for a shard of one segment; every address is null.
    pub fn of(plan: &Plan, num_tiles: u64, num_slots: usize) -> Args {
        Args {
            num_tiles,
            num_segments: 1,
            four_rounds: u32::from(plan.rounds()) / 4,
            num_slots: num_slots as u32,
            one: 1,
            ..Args::default()
        }
    }

    /// Sets the coefficients of a BLT.
    pub fn set_blt(&mut self, scale: &[f32], decay: &[f32]) {
        self.scale[..scale.len()].copy_from_slice(scale);
        self.decay[..decay.len()].copy_from_slice(decay);
    }

    /// Sets how the noise is added.
    pub fn set_add(&mut self, add: Add) {
        (self.step.scale, self.unit, self.per_unit) = match add {
            Add::OnGrid(grid) => (grid.scale, grid.unit, grid.per_unit),
            Add::Plain(scale) => (scale, 0.0, 0.0),
        };
    }

    /// The struct as a launch copies it.
    pub fn bytes(&self) -> Vec<u8> {
        let bytes: *const Args = self;
        // SAFETY: the struct is plain numbers without gaps.
        unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), size_of::<Args>()) }.to_vec()
    }
}

/// The keys as a kernel reads them, 8 words each.
pub fn key_words(keys: &[RunKey]) -> Vec<u32> {
    let word = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
    keys.iter().flat_map(|key| key.bytes().as_chunks::<4>().0.iter().map(word)).collect()
}
