//! The layout of state in CPU memory: chunks of coordinates, each `[slot][coordinate]`, one after another without gaps.
//!
//! A chunk's state is one slice, so threads that own different coordinates own different slices; a BLT uses chunks as long
//! as a piece of work (long runs of each buffer), a ring tiles or strips (all rows of a coordinate close together).

use super::assignment::PIECE;
use super::prefetch::LINE;
use super::ring::rows::{STRIP, place};
use crate::error::{Error, Result};
use crate::huge_pages::huge_pages;
use crate::layout::Shard;
use crate::noise::TILE;

// Chunks of a tile, and no others, have their rows rotated.
const _: () = assert!(STRIP < TILE && TILE < PIECE);

/// Memory for `slots` values per coordinate, zero at first and aligned to a cache line.
pub(super) struct State {
    /// The values, padded so that they start on a cache line.
    memory: Vec<f32>,
    start: usize,
    slots: usize,
    /// The number of coordinates per chunk; chunks of a tile have their rows rotated.
    chunk: usize,
}

impl State {
    pub(super) fn new(num_coords: u64, slots: usize, chunk: usize) -> Result<State> {
        let values = num_coords as u128 * slots as u128;
        let refuse = || Error::OutOfMemory { bytes: values * size_of::<f32>() as u128 };
        let len = usize::try_from(values).map_err(|_| refuse())?;
        // Allocated with the alignment of a value, zeroed pages cost nothing until a thread touches them; allocated with that
        // of a cache line, they would all be written here and now.
        let spare = LINE / size_of::<f32>();
        let padded = len.checked_add(spare).ok_or_else(refuse)?;
        let mut memory: Vec<f32> = bytemuck::allocation::try_zeroed_vec(padded).map_err(|()| refuse())?;
        let start = memory.as_ptr().align_offset(LINE).min(spare);
        memory.truncate(start + len);
        huge_pages(&mut memory);
        Ok(State { memory, start, slots, chunk })
    }

    /// Overwrites all values: they may be noise that nobody has released.
    pub(super) fn clear(&mut self) {
        self.memory.fill(0.0);
        std::hint::black_box(&mut self.memory);
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// The bytes of all values.
    pub(super) fn bytes(&self) -> u64 {
        ((self.memory.len() - self.start) * size_of::<f32>()) as u64
    }

    pub(super) fn values_mut(&mut self) -> &mut [f32] {
        &mut self.memory[self.start..]
    }

    /// Copies one slot of coordinates `first..` of the shard, as bytes.
    pub(super) fn read(&self, shard: &Shard, slot: usize, first: u64, bytes: &mut [u8]) {
        let size = size_of::<f32>();
        self.runs(shard, slot, first, bytes.len() / size, |visited, at| {
            let at = self.start + at;
            let from = bytemuck::cast_slice(&self.memory[at..at + visited.len()]);
            bytes[visited.start * size..visited.end * size].copy_from_slice(from);
        });
    }

    /// The reverse of [`State::read`].
    pub(super) fn write(&mut self, shard: &Shard, slot: usize, first: u64, bytes: &[u8]) {
        let size = size_of::<f32>();
        let mut memory = std::mem::take(&mut self.memory);
        self.runs(shard, slot, first, bytes.len() / size, |visited, at| {
            let at = self.start + at;
            let to = bytemuck::cast_slice_mut(&mut memory[at..at + visited.len()]);
            to.copy_from_slice(&bytes[visited.start * size..visited.end * size]);
        });
        self.memory = memory;
    }

    /// Visits coordinates `first..first + len` of the shard in one slot: for each run that is contiguous in memory, its
    /// place among the visited and its index in the state.
    fn runs(
        &self,
        shard: &Shard,
        slot: usize,
        first: u64,
        len: usize,
        mut visit: impl FnMut(std::ops::Range<usize>, usize),
    ) {
        let end = first + len as u64;
        for (before, segment) in shard.segments_from(first).take_while(|(before, _)| *before < end) {
            let size = segment.end - segment.start;
            let mut local = first.saturating_sub(before).min(size);
            let stop = end.saturating_sub(before).min(size);
            while local < stop {
                // The chunk around this coordinate, cut to the segment.
                let coord = segment.start + local;
                let chunk_start = (coord / self.chunk as u64 * self.chunk as u64).max(segment.start);
                let chunk_end = ((coord / self.chunk as u64 + 1) * self.chunk as u64).min(segment.end);
                let mut run = (chunk_end - coord).min(stop - local) as usize;
                let base = self.slots * (before + chunk_start - segment.start) as usize;
                let (chunk, at) = ((chunk_end - chunk_start) as usize, (coord - chunk_start) as usize);
                let within = if self.chunk == TILE {
                    run = run.min(STRIP - at % STRIP);
                    place(slot, chunk, at)
                } else {
                    slot * chunk + at
                };
                let visited = (before + local - first) as usize;
                visit(visited..visited + run, base + within);
                local += run as u64;
            }
        }
    }
}
