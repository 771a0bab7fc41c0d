//! Where the CPU keeps state: chunks of coordinates, each `[slot][coordinate]`, one after another without gaps.
//!
//! A chunk's state is one slice, so threads that own different coordinates own different slices; a BLT uses chunks as long
//! as a piece of work (long runs of each buffer), a ring short ones (all rows of a coordinate close together).

use super::kernels::{History, PIECE};
use crate::error::{Error, Result};
use crate::layout::Shard;

/// A cache line; state begins at one.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Zeroed memory for `slots` values of type `H` per coordinate.
pub(super) struct State<H> {
    lines: Vec<Line>,
    len: usize,
    slots: usize,
    chunk: usize,
    kind: std::marker::PhantomData<H>,
}

impl<H: History> State<H> {
    pub(super) fn new(num_coords: u64, slots: usize, chunk: usize) -> Result<State<H>> {
        let bytes = num_coords as u128 * slots as u128 * size_of::<H>() as u128;
        let refuse = || Error::OutOfMemory { bytes };
        let len = usize::try_from(bytes / size_of::<H>() as u128).map_err(|_| refuse())?;
        let lines = usize::try_from(bytes.div_ceil(64)).map_err(|_| refuse())?;
        // Zeroed pages cost nothing until they are touched, and are then placed near the thread that touches them.
        let lines = bytemuck::allocation::try_zeroed_vec(lines).map_err(|()| refuse())?;
        Ok(State { lines, len, slots, chunk, kind: std::marker::PhantomData })
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    fn values(&self) -> &[H] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }

    pub(super) fn values_mut(&mut self) -> &mut [H] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.len]
    }

    /// Copies one slot of coordinates `first..` of the shard, as bytes.
    pub(super) fn read(&self, shard: &Shard, slot: usize, first: u64, bytes: &mut [u8]) {
        let size = size_of::<H>();
        self.runs(shard, slot, first, bytes.len() / size, |place, at| {
            let from = bytemuck::cast_slice(&self.values()[at..at + place.len()]);
            bytes[place.start * size..place.end * size].copy_from_slice(from);
        });
    }

    /// The reverse of [`State::read`].
    pub(super) fn write(&mut self, shard: &Shard, slot: usize, first: u64, bytes: &[u8]) {
        let size = size_of::<H>();
        let mut lines = std::mem::take(&mut self.lines);
        let values: &mut [H] = bytemuck::cast_slice_mut(&mut lines);
        self.runs(shard, slot, first, bytes.len() / size, |place, at| {
            let to = bytemuck::cast_slice_mut(&mut values[at..at + place.len()]);
            to.copy_from_slice(&bytes[place.start * size..place.end * size]);
        });
        self.lines = lines;
    }

    /// Visits coordinates `first..first + len` of the shard in one slot: for each run that is contiguous in memory, its
    /// place among the visited and its index in [`State::values`].
    fn runs(
        &self,
        shard: &Shard,
        slot: usize,
        first: u64,
        len: usize,
        mut visit: impl FnMut(std::ops::Range<usize>, usize),
    ) {
        let (mut before, end) = (0, first + len as u64);
        for segment in shard.segments() {
            let size = segment.end - segment.start;
            let mut local = first.saturating_sub(before).min(size);
            let stop = end.saturating_sub(before).min(size);
            while local < stop {
                // The chunk around this coordinate, cut to the segment.
                let coord = segment.start + local;
                let chunk_start = (coord / self.chunk as u64 * self.chunk as u64).max(segment.start);
                let chunk_end = ((coord / self.chunk as u64 + 1) * self.chunk as u64).min(segment.end);
                let run = (chunk_end - coord).min(stop - local) as usize;
                let base = self.slots * (before + chunk_start - segment.start) as usize;
                let within = slot * (chunk_end - chunk_start) as usize + (coord - chunk_start) as usize;
                let place = (before + local - first) as usize;
                visit(place..place + run, base + within);
                local += run as u64;
            }
            before += size;
        }
    }
}

/// Cuts a segment into pieces at multiples of [`PIECE`], handing each its gradient and state.
pub(super) fn cut<'a, G, H>(
    first: u64,
    mut gradient: &'a mut [G],
    mut state: &'a mut [H],
    slots: usize,
) -> impl Iterator<Item = (u64, &'a mut [G], &'a mut [H])> {
    let mut coord = first;
    std::iter::from_fn(move || {
        let to_boundary = PIECE - (coord % PIECE as u64) as usize;
        let len = to_boundary.min(gradient.len());
        if len == 0 {
            return None;
        }
        let (gradient_piece, rest) = std::mem::take(&mut gradient).split_at_mut(len);
        gradient = rest;
        let (state_piece, rest) = std::mem::take(&mut state).split_at_mut(len * slots);
        state = rest;
        let piece = (coord, gradient_piece, state_piece);
        coord += len as u64;
        Some(piece)
    })
}
