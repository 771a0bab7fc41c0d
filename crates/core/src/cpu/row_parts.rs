//! A step's row written out part by part, for a device that adds it: while one part is sent, the threads make the next.
//!
//! A part is a run of the shard's coordinates in whole tiles, `[tile][512]`: a segment that begins or ends inside a tile gets the whole tile,
//! as in the state of a CUDA device. Parts are cut where pieces are, at multiples of 8192 coordinates, since a BLT's state is.

use super::Cpu;
use super::assignment::{PIECE, Target};
use super::kernels::Output;
use crate::backend::Step;
use crate::error::{Error, Result};
use crate::grid::DitherKey;
use crate::layout::Shard;
use crate::noise::TILE;
use std::ops::Range;
use std::sync::Arc;

/// A part of a shard's row, as [`row_parts`] cuts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPart {
    coords: Range<u64>,
    tiles: Range<u64>,
}

/// The memory that receives a row, part by part.
pub trait RowSink {
    /// Room for the next part: 512 values per tile, which the threads overwrite where the tiles have coordinates of the shard.
    fn room(&mut self, part: &RowPart) -> Result<&mut [f32]>;

    /// Takes the part that was just written, before room is asked for the next one.
    fn take(&mut self, part: &RowPart) -> Result<()>;
}

/// Cuts the row of a shard into parts of at most `max_tiles` tiles each, but not into less than 16.
pub fn row_parts(shard: &Shard, max_tiles: u64) -> impl Iterator<Item = RowPart> {
    let mut pieces = pieces(shard).peekable();
    std::iter::from_fn(move || {
        let mut part = pieces.next()?;
        while let Some(next) = pieces.next_if(|next| next.tiles.end - part.tiles.start <= max_tiles) {
            part = RowPart {
                coords: part.coords.start..next.coords.end,
                tiles: part.tiles.start..next.tiles.end,
            };
        }
        Some(part)
    })
}

/// The pieces of a shard, each with its tiles.
fn pieces(shard: &Shard) -> impl Iterator<Item = RowPart> {
    const SIZE: u64 = PIECE as u64;
    let mut tiles = 0;
    shard
        .segments_from(0)
        .filter(|(_, segment)| !segment.is_empty())
        .flat_map(|(before, segment)| {
            (segment.start / SIZE..=(segment.end - 1) / SIZE).map(move |piece| {
                let (first, end) = (segment.start.max(piece * SIZE), segment.end.min((piece + 1) * SIZE));
                (before + first - segment.start..before + end - segment.start, tiles_of(&(first..end)))
            })
        })
        .map(move |(coords, count)| {
            tiles += count;
            RowPart { coords, tiles: tiles - count..tiles }
        })
}

/// The number of tiles that hold coordinates of a range, which is not empty.
fn tiles_of(coords: &Range<u64>) -> u64 {
    (coords.end - 1) / TILE as u64 - coords.start / TILE as u64 + 1
}

impl RowPart {
    /// The coordinates of the part, by their number in the shard.
    pub fn coords(&self) -> Range<u64> {
        self.coords.clone()
    }

    /// The tiles of the part, by their number in the shard.
    pub fn tiles(&self) -> Range<u64> {
        self.tiles.clone()
    }

    /// The number of values of all tiles.
    pub fn num_values(&self) -> usize {
        (self.tiles.end - self.tiles.start) as usize * TILE
    }

    /// The runs of coordinates that the part has of each segment, with their places in the part's tiles.
    pub(super) fn runs<'a, G>(
        &self,
        shard: &'a Shard,
        mut tiles: &'a mut [G],
    ) -> impl Iterator<Item = (u64, &'a mut [G])> + use<'a, G> {
        let (start, end) = (self.coords.start, self.coords.end);
        let reached = shard.segments_from(start).take_while(move |(before, _)| *before < end);
        reached.filter(|(_, segment)| !segment.is_empty()).filter_map(move |(before, segment)| {
            let first = segment.start + start.saturating_sub(before);
            let run = first..segment.end.min(segment.start + (end - before));
            if run.is_empty() {
                return None;
            }
            let (own, rest) = std::mem::take(&mut tiles).split_at_mut(tiles_of(&run) as usize * TILE);
            tiles = rest;
            let offset = (run.start % TILE as u64) as usize;
            Some((run.start, &mut own[offset..offset + (run.end - run.start) as usize]))
        })
    }
}

impl Cpu {
    /// Makes a step and writes its noise, in unit scale and without a grid, to memory of another device's: in parts of at most `max_tiles`
    /// tiles, each as soon as there is room for it. Everything else is as in a step on gradients: a row that was prepared is used, and
    /// after an error the state may be half-way.
    pub fn write_row(&mut self, step: &Step<'_>, max_tiles: u64, sink: &mut impl RowSink) -> Result<()> {
        let ready = self.begin(step)?;
        let shard = Arc::clone(&self.shard);
        for part in row_parts(&shard, max_tiles) {
            let room = sink.room(&part)?;
            let len = room.len();
            let Some(tiles) = room.get_mut(..part.num_values()) else {
                let expected = format!("{} or more", part.num_values());
                return Err(Error::length("room for a part of a row", len, expected));
            };
            self.pass::<f32>(step, ready, Output::Store, DitherKey::default(), Target::Part(&part, tiles))?;
            sink.take(&part)?;
        }
        self.end(ready);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Add, Backend};
    use crate::{CpuOptions, Form, Gradients, Incarnations, Plan, RunKey};

    /// Memory that keeps every part, between values that nobody may overwrite.
    #[derive(Default)]
    struct Kept {
        parts: Vec<(RowPart, Vec<f32>)>,
    }

    impl RowSink for Kept {
        fn room(&mut self, part: &RowPart) -> Result<&mut [f32]> {
            self.parts.push((part.clone(), vec![f32::NAN; part.num_values() + 1]));
            Ok(&mut self.parts.last_mut().unwrap().1)
        }

        fn take(&mut self, part: &RowPart) -> Result<()> {
            assert_eq!(self.parts.last().unwrap().0, *part);
            Ok(())
        }
    }

    fn shard() -> Shard {
        let ranges = [3..515, 1_000..1_001, 2_048..30_000, 30_001..30_009, 40_959..40_961, 50_000..90_000];
        Shard::whole(100_000).unwrap().select(&ranges).unwrap()
    }

    #[test]
    fn parts_cover_a_shard_once_and_hold_what_they_may() {
        for max_tiles in [1, 16, 17, 40, 1_000] {
            let (mut coords, mut tiles) = (0, 0);
            for part in row_parts(&shard(), max_tiles) {
                assert_eq!((part.coords.start, part.tiles.start), (coords, tiles));
                (coords, tiles) = (part.coords.end, part.tiles.end);
                assert!(part.tiles.end - part.tiles.start <= max_tiles.max(16));
            }
            let all: u64 = shard().segments().iter().map(tiles_of).sum();
            assert_eq!((coords, tiles), (shard().num_coords(), all));
        }
        assert_eq!(row_parts(&shard(), 1_000).count(), 1);
    }

    /// Every form, prepared at some steps: the parts hold what a step adds in unit scale, and nothing else was written.
    #[test]
    fn the_parts_of_a_row_are_the_steps_noise() {
        let shard = shard();
        let keys = [RunKey::from_bytes([7; 32])];
        let ring = |bands: usize| Form::banded_toeplitz(&vec![0.3; bands]).unwrap();
        let forms = [
            Form::independent(),
            Form::blt(&[0.2, 0.1], &[0.9, 0.5]).unwrap().with_restarts(4).unwrap(),
            ring(4),
            ring(12),
            Form::regenerate(&[1.0, -0.5, 0.2]).unwrap(),
        ];
        for (form, max_tiles) in forms.iter().flat_map(|form| [(form, 16), (form, 50)]) {
            let plan = Plan::new(9, form.clone(), 1.0).unwrap();
            let new = || Cpu::new(&plan, &keys, &shard, CpuOptions { threads: 2, ..CpuOptions::default() });
            let (mut whole, mut parted) = (new().unwrap(), new().unwrap());
            let mut terms = Vec::new();
            for number in 0..9 {
                let step = Step::lower(&plan, number, &Incarnations::first(), &mut terms).unwrap();
                let step = Step { add: Add::Plain(1.0), ..step };
                if number % 3 > 0 {
                    parted.prepare(&step).unwrap();
                }
                let mut kept = Kept::default();
                parted.write_row(&step, max_tiles, &mut kept).unwrap();
                let lens = shard.segments().iter().map(|segment| (segment.end - segment.start) as usize);
                let mut expected: Vec<Vec<f32>> = lens.map(|len| vec![0.0; len]).collect();
                let mut slices: Vec<&mut [f32]> = expected.iter_mut().map(Vec::as_mut_slice).collect();
                whole.step(&step, Gradients::new(&mut slices)).unwrap();
                let mut tiles = Vec::new();
                for (segment, values) in shard.segments().iter().zip(&expected) {
                    let len = tiles.len();
                    tiles.resize(len + tiles_of(segment) as usize * TILE, f32::NAN);
                    let at = len + (segment.start % TILE as u64) as usize;
                    tiles[at..at + values.len()].copy_from_slice(values);
                }
                let got: Vec<f32> = kept
                    .parts
                    .iter()
                    .flat_map(|(part, values)| {
                        assert!(values[part.num_values()].is_nan(), "a part keeps within its room");
                        &values[..part.num_values()]
                    })
                    .copied()
                    .collect();
                let same = got
                    .iter()
                    .zip(&tiles)
                    .all(|(got, expected)| got == expected || (got.is_nan() && expected.is_nan()));
                assert!(same && got.len() == tiles.len(), "{form:?}, {max_tiles} tiles, step {number}");
            }
        }
    }
}
