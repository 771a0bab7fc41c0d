//! The layout of state on the device: `[slot][tile][512]` over the shard's tiles, ragged ones included.
//!
//! A segment that begins or ends inside a tile gets the whole tile, so that kernels read and write state in aligned fours
//! without a bound; values beyond the segment are noise of coordinates that nobody owns, and are never saved.

use crate::launch::{Segment, TILE};
use corrnoise_core::{Error, Result, Shard};
use std::ops::Range;

/// The bytes of a value of state, which is always f32.
pub(crate) const VALUE_BYTES: usize = size_of::<f32>();

/// The shard's segments as tiles.
pub(crate) struct Tiles {
    /// The table of segments, without gradients.
    pub(crate) segments: Vec<Segment>,
    /// For every segment, how many of the shard's coordinates lie before it.
    before: Vec<u64>,
    pub(crate) count: u64,
}

impl Tiles {
    pub(crate) fn new(shard: &Shard) -> Tiles {
        let mut count = 0;
        let segments = shard
            .segments()
            .iter()
            .map(|range| {
                let segment = Segment {
                    gradient: 0,
                    first: range.start,
                    length: range.end - range.start,
                    first_tile: count,
                };
                if range.start < range.end {
                    count += (range.end - 1) / TILE - range.start / TILE + 1;
                }
                segment
            })
            .collect();
        let before = shard.segments_from(0).map(|(before, _)| before).collect();
        Tiles { segments, before, count }
    }

    /// The number of values of one slot.
    pub(crate) fn slot_len(&self) -> u64 {
        self.count * TILE
    }

    /// The bytes of all slots.
    pub(crate) fn state_bytes(&self, slots: usize) -> Result<usize> {
        let bytes = u128::from(self.slot_len()) * slots as u128 * VALUE_BYTES as u128;
        usize::try_from(bytes).map_err(|_| Error::OutOfMemory { bytes })
    }

    /// The runs of a slot that hold the shard's coordinates `first..first + len`: for each, its place among them and in the slot.
    pub(crate) fn runs(&self, first: u64, len: u64) -> impl Iterator<Item = (Range<u64>, u64)> {
        let end = first + len;
        let at = self.before.partition_point(|before| *before <= first).saturating_sub(1);
        let reached =
            self.before[at..].iter().zip(&self.segments[at..]).take_while(move |(before, _)| **before < end);
        reached.filter_map(move |(&before, segment)| {
            let (low, high) = (first.max(before), end.min(before + segment.length));
            let at = segment.first_tile * TILE + segment.first % TILE + low.saturating_sub(before);
            (low < high).then(|| (low - first..high - first, at))
        })
    }
}

/// The slot of a ring's youngest output: each step writes the slot before it, so reading by age is reading forward.
pub(crate) fn ring_head(time: u64, slots: usize) -> usize {
    match slots as u64 {
        0 => 0,
        slots => ((slots - time % slots) % slots) as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ragged_segments_get_whole_tiles() {
        let space = Shard::whole(10_000).unwrap();
        let shard = space.select(&[3..515, 1000..1001, 2048..3000]).unwrap();
        let tiles = Tiles::new(&shard);
        assert_eq!(tiles.segments.iter().map(|s| s.first_tile).collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!(tiles.count, 2 + 1 + 2);
        // Coordinates 510 to 520 of the shard: the end of the first segment, the second, the start of the third.
        let runs: Vec<_> = tiles.runs(510, 10).collect();
        assert_eq!(runs, [(0..2, 513), (2..3, 2 * 512 + 1000 - 512), (3..10, 3 * 512)]);
    }
}
