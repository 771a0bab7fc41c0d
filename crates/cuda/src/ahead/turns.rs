//! Whose turn it is: every tile makes some rows at a time, and tiles take turns, so that every step costs the same.
//!
//! The time here is local: steps since the backend was made or restored. Device twin: `kernels/turn.cuh`.

use std::ops::Range;

/// The turns of a shard's tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    /// The number of rows that a tile makes at a time.
    pub(crate) rows: u64,
    pub(crate) tiles: u64,
}

impl Turns {
    /// The first tile of a phase, or of those after it: phases are contiguous, so that a step works on one run of memory.
    fn first(&self, phase: u64) -> u64 {
        (phase * self.tiles).div_ceil(self.rows)
    }

    /// The phase of a tile: it makes rows at time 0, and at times to which this is missing from a multiple of `rows`.
    fn phase(&self, tile: u64) -> u64 {
        tile * self.rows / self.tiles
    }

    /// The tiles that make rows at a time: all at time 0, else those of one phase.
    pub(crate) fn due(&self, time: u64) -> Range<u64> {
        match time {
            0 => 0..self.tiles,
            _ => {
                let phase = (self.rows - time % self.rows) % self.rows;
                self.first(phase)..self.first(phase + 1)
            }
        }
    }

    /// The most tiles that make rows at a time after 0.
    pub(crate) fn most_due(&self) -> u64 {
        self.tiles.div_ceil(self.rows)
    }

    /// The tiles from `tile` on that have its phase.
    pub(crate) fn same_phase(&self, tile: u64) -> Range<u64> {
        tile..self.first(self.phase(tile) + 1)
    }

    /// The time of the last turn of a tile whose next row to be made is that of `made_until`; none before its first turn.
    pub(crate) fn last_turn(&self, tile: u64, made_until: u64) -> Option<u64> {
        let phase = self.phase(tile);
        match made_until {
            0 => None,
            until => Some(((until - 1 + phase) / self.rows * self.rows).saturating_sub(phase)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays the turns of every tile as the device does.
    #[test]
    fn every_tile_makes_every_row_once_and_in_time() {
        for (rows, tiles) in [(1, 1), (1, 5), (8, 1), (8, 7), (8, 8), (8, 100), (16, 37), (3, 10)] {
            let turns = Turns { rows, tiles };
            let end = 50;
            let mut made = vec![0; tiles as usize];
            let mut last = vec![None; tiles as usize];
            for time in 0..end {
                let due = turns.due(time);
                assert!(time == 0 || due.end - due.start <= turns.most_due());
                for tile in due.clone() {
                    let phase = turns.phase(tile);
                    assert_eq!(made[tile as usize], time, "rows are made where the last ones ended");
                    let rows = if time == 0 { rows - phase } else { rows };
                    made[tile as usize] = (time + rows).min(end);
                    last[tile as usize] = Some(time);
                }
                for tile in 0..tiles {
                    assert!(made[tile as usize] > time && made[tile as usize] <= time + rows);
                    assert_eq!(turns.last_turn(tile, made[tile as usize]), last[tile as usize]);
                    assert_eq!(turns.last_turn(tile, 0), None);
                }
            }
        }
    }

    #[test]
    fn phases_are_contiguous() {
        let turns = Turns { rows: 8, tiles: 37 };
        let mut tile = 0;
        while tile < turns.tiles {
            let same = turns.same_phase(tile);
            assert!(same.contains(&tile) && same.clone().all(|t| turns.phase(t) == turns.phase(tile)));
            assert!(same.end == turns.tiles || turns.phase(same.end) > turns.phase(tile));
            tile = same.end;
        }
    }
}
