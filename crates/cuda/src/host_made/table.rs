//! The tables of segments of a row's parts: each part is a launch of its own, with the runs of coordinates that it has of the shard's
//! segments.

use crate::gradient::DeviceGradient;
use crate::launch::{Segment, TILE};
use crate::state::Tiles;
use corrnoise_core::{Error, Result, Shard, row_parts};

/// The tables of all parts, one after the other.
pub(super) struct PartTable {
    /// The entries, with the gradients of the step at hand.
    entries: Vec<Segment>,
    /// For every entry, the segment that it is of, and how many coordinates of that lie before it.
    origins: Vec<(usize, u64)>,
    /// For every part, the index of its first entry, and in the end their number.
    parts: Vec<usize>,
    max_values: usize,
    /// True if the device has the entries as they are.
    is_sent: bool,
}

impl PartTable {
    /// The tables of a shard whose row is cut into parts of at most `max_tiles` tiles.
    pub(super) fn new(shard: &Shard, max_tiles: u64) -> Result<PartTable> {
        let tiles = Tiles::new(shard);
        let mut table = PartTable {
            entries: Vec::new(),
            origins: Vec::new(),
            parts: vec![0],
            max_values: 0,
            is_sent: false,
        };
        let mut reached = 0;
        for part in row_parts(shard, max_tiles) {
            let range = part.tiles();
            for (i, segment) in tiles.segments.iter().enumerate().skip(reached) {
                if segment.first_tile >= range.end {
                    break;
                }
                let end = segment.first + segment.length;
                // The part's tiles, counted as those of the coordinate space.
                let tile = |tile: u64| (tile - segment.first_tile + segment.first / TILE) * TILE;
                let first = segment.first.max(tile(range.start.max(segment.first_tile)));
                let last = end.min(tile(range.end));
                if first < last {
                    let first_tile = segment.first_tile.saturating_sub(range.start);
                    table.entries.push(Segment { gradient: 0, first, length: last - first, first_tile });
                    table.origins.push((i, first - segment.first));
                }
                // A segment may go on in the next part.
                reached = i;
            }
            table.parts.push(table.entries.len());
            table.max_values = table.max_values.max(part.num_values());
        }
        let count = table.entries.len();
        match u32::try_from(count) {
            Ok(_) => Ok(table),
            Err(_) => Err(Error::length("list of segments", count, "less than 2^32")),
        }
    }

    pub(super) fn num_parts(&self) -> usize {
        self.parts.len() - 1
    }

    /// The number of values of the largest part.
    pub(super) fn max_values(&self) -> usize {
        self.max_values
    }

    /// The entries as words.
    pub(super) fn words(&self) -> &[u32] {
        bytemuck::cast_slice(&self.entries)
    }

    /// The entries with these gradients as words, unless the device has them.
    pub(super) fn changed(&mut self, gradients: &[DeviceGradient<'_>]) -> Option<&[u32]> {
        for (entry, (segment, before)) in self.entries.iter_mut().zip(&self.origins) {
            let gradient = &gradients[*segment];
            let address = gradient.pointer + before * gradient.dtype.bytes() as u64;
            self.is_sent &= entry.gradient == address;
            entry.gradient = address;
        }
        (!self.is_sent).then(|| bytemuck::cast_slice(&self.entries))
    }

    /// Records that the device has the entries.
    pub(super) fn sent(&mut self) {
        self.is_sent = true;
    }

    /// The place of a part's table in bytes, and the number of its entries.
    pub(super) fn of_part(&self, part: usize) -> (u64, u32) {
        let (first, end) = (self.parts[part], self.parts[part + 1]);
        ((first * size_of::<Segment>()) as u64, (end - first) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_segment_begin_at_tiles() {
        let ranges = [3..515, 1_000..1_001, 2_048..20_000, 20_001..20_009];
        let shard = Shard::whole(100_000).unwrap().select(&ranges).unwrap();
        let table = PartTable::new(&shard, 16).unwrap();
        let segment =
            |first, end: u64, first_tile| Segment { gradient: 0, first, length: end - first, first_tile };
        // Tiles: two, one, twelve up to the first multiple of 8192 coordinates; sixteen; eight, one.
        assert_eq!(
            table.entries,
            [
                segment(3, 515, 0),
                segment(1_000, 1_001, 2),
                segment(2_048, 8_192, 3),
                segment(8_192, 16_384, 0),
                segment(16_384, 20_000, 0),
                segment(20_001, 20_009, 8),
            ]
        );
        assert_eq!(table.origins, [(0, 0), (1, 0), (2, 0), (2, 6_144), (2, 14_336), (3, 0)]);
        assert_eq!(table.parts, [0, 3, 4, 6]);
        assert_eq!((table.of_part(1), table.max_values()), ((96, 1), 16 * 512));
    }
}
