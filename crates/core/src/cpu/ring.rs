//! The ring kernel, and its rows made ahead of time.
//!
//! Row by row, a ring of 64 bands moves 264 bytes per coordinate and step. But noise does not depend on gradients: once a
//! tile's history is in cache, several future rows can be made of it. So each tile makes `rows_ahead` rows at a time and then only
//! adds one of them per step; tiles take turns, so that every step costs the same. With 8 rows at a time, 16 bands
//! move 23.5 bytes in place of 72, 64 bands 47.5 in place of 264. The price is `rows_ahead − 1` more rows of state, since
//! the plain state at any step must stay readable.
//!
//! The row of local time `u` (steps since this backend was made or restored) lies in slot `u mod R`: reading the oldest first
//! is then reading forward. Device twin, which makes no rows ahead: `kernels/ring.cu`.

pub(super) mod rows;

use super::assignment::Piece;
use super::kernels::{Job, Phase, Simd, Span, Tile, add, spans};
use super::lanes::Stored;
use super::prefetch::{Runs, Streams};
use crate::noise::TILE;
use crate::row::Row;
use rows::{RingRows, STRIP};

/// The most rows that a tile makes at a time.
pub(super) const MAX_ROWS_AHEAD: usize = 8;

/// The number of rows made at a time for a ring of that many past outputs: a shorter one has too little traffic to save.
pub(super) fn rows_ahead(slots: usize) -> usize {
    if slots < MAX_ROWS_AHEAD { 1 } else { MAX_ROWS_AHEAD }
}

/// What a ring needs to know of a step.
#[derive(Clone, Copy, Default)]
pub(super) struct RingJob<'a> {
    /// The row of this step and its coefficients by age, then those of the steps after it, as far as a tile may make them now.
    pub(super) future: &'a [(Row, &'a [f32])],
    /// The number of rows that a tile makes at a time, that of the step at hand included; at most [`MAX_ROWS_AHEAD`].
    pub(super) rows_ahead: usize,
    /// The number of steps since the backend was made or restored.
    pub(super) time: u64,
}

impl RingJob<'_> {
    /// Panics unless the kernel stays inside a ring of `slots` rows.
    pub(super) fn check(&self, slots: usize) {
        assert!(
            !self.future.is_empty()
                && self.future.len() <= self.rows_ahead
                && self.rows_ahead <= MAX_ROWS_AHEAD
        );
        assert!(self.future.iter().all(|(_, coefs)| coefs.len() <= slots));
        assert!(self.rows_ahead == 1 || slots >= self.rows_ahead);
    }

    /// The number of rows that a tile makes at this step. At the first step each tile makes as many as last until its turn.
    pub(super) fn rows_due(&self, tile: u64) -> usize {
        let phase = ((self.time + tile) % self.rows_ahead as u64) as usize;
        let rows = match (self.time, phase) {
            (0, phase) => self.rows_ahead - phase,
            (_, 0) => self.rows_ahead,
            _ => 0,
        };
        rows.min(self.future.len())
    }
}

/// The slot of the row of local time `time − 1`, whose age at `time` is 1; older rows lie in the slots before it, wrapping around.
pub(super) fn head(time: u64, slots: usize) -> usize {
    let slots = slots as u64;
    ((time + slots - 1) % slots) as usize
}

/// The slot of a row by its age, from 1 on.
pub(super) fn slot(time: u64, age: usize, slots: usize) -> usize {
    (head(time, slots) + 1 + slots - age) % slots
}

/// The number of coordinates per `[slot][coordinate]` chunk of state: all rows that an output needs lie close together.
///
/// Rows ahead are made of whole tiles, and each step then adds one row of every tile: 2 KB in one run. Row by row, a strip's
/// rows are read strictly forward, which the prefetcher follows.
pub(super) fn chunk(rows_ahead: usize) -> usize {
    if rows_ahead == 1 { STRIP } else { TILE }
}

/// Makes this step's row of a ring, strip by strip, and adds it to the gradient; or does one of both.
///
/// # Safety
/// The contract is that of [`super::kernels::run`].
#[inline(always)]
pub(super) unsafe fn row_by_row<E: Simd, G: Stored>(job: &Job<'_>, piece: Piece<'_, G>) {
    let mut z = Tile::new();
    let (row, coefs) = job.ring.future[0];
    let (head, slots) = (|time| head(time, job.slots), job.slots);
    for span in spans(piece.first, piece.len) {
        let Span { tile, offset, at, len } = span;
        // SAFETY: a strip that starts at coordinate c of the piece has its rows at state[slots·c..].
        unsafe {
            let history = piece.state.as_mut_ptr().add(slots * at);
            let gradient = piece.gradient.as_mut_ptr().wrapping_add(at);
            let strips = || {
                let mut done = 0;
                std::iter::from_fn(move || {
                    let strip = (STRIP - (offset + done) % STRIP).min(len - done);
                    let rows = RingRows { first: history.add(slots * done), slots, len: strip };
                    done += strip;
                    (strip > 0).then_some((done - strip, rows))
                })
            };
            if job.phase == Phase::Add {
                for (done, rows) in strips() {
                    let part = Span { tile, offset: offset + done, at: at + done, len: rows.len };
                    rows.add::<E::Lanes, G>(job, part, head(job.ring.time + 1), gradient.add(done));
                }
                continue;
            }
            let mut ahead = Streams::new(&[
                (history.cast_const().cast(), slots * len * size_of::<f32>()),
                (gradient.cast_const().cast(), piece.gradient.len().min(len) * size_of::<G>()),
            ]);
            E::sample(job.cipher(row), row, tile, &mut z, &mut ahead);
            let z = z.as_mut_ptr().add(offset);
            if slots > 0 {
                for (done, rows) in strips() {
                    rows.make::<E::Lanes, true>(head(job.ring.time), coefs, z.add(done), 0);
                }
            }
            if job.phase == Phase::Fused {
                add::<E::Lanes, G>(job, span, z, gradient);
            }
        }
    }
}

/// Goes through groups of as many tiles as a tile makes rows at a time. One tile of a whole group makes its rows at this step (at the first step,
/// all do): while it samples them, as much as there is time for is prefetched: its history, then the group's gradient, then this step's
/// row of the other tiles.
///
/// # Safety
/// The contract is that of [`super::kernels::run`].
#[inline(always)]
pub(super) unsafe fn with_rows_ahead<E: Simd, G: Stored>(job: &Job<'_>, piece: Piece<'_, G>) {
    let ring = &job.ring;
    let mut z = [const { Tile::new() }; MAX_ROWS_AHEAD];
    let (state, gradient) = (piece.state.as_mut_ptr(), piece.gradient.as_mut_ptr());
    let heads: [usize; MAX_ROWS_AHEAD + 1] = std::array::from_fn(|k| head(ring.time + k as u64, job.slots));
    // This step's row is the one whose age at the next step is 1.
    let current = heads[1];
    for group in groups(piece.first, piece.len, ring.rows_ahead * TILE) {
        let tiles = || {
            let spans = spans(piece.first + group.start as u64, group.len());
            spans.map(|span| Span { at: group.start + span.at, ..span })
        };
        // SAFETY: a tile that starts at coordinate c of the piece has its rows at state[slots·c..]; of `z`, what is read was sampled;
        // heads are below `slots`, coefficients were checked.
        unsafe {
            let rows = |span: &Span| RingRows {
                first: state.add(job.slots * span.at),
                slots: job.slots,
                len: span.len,
            };
            let due = |span: &Span| job.phase != Phase::Add && ring.rows_due(span.tile) > 0;
            for span in tiles().filter(due) {
                let future = &ring.future[..ring.rows_due(span.tile)];
                let rows = rows(&span);
                let mut ahead = Runs::new(future.len());
                if job.phase == Phase::Fused {
                    for other in tiles().filter(|span| ring.rows_due(span.tile) == 0) {
                        ahead.push(state.add(job.slots * other.at + current * other.len), other.len);
                    }
                    ahead.push(gradient.add(group.start), group.len());
                }
                ahead.push(rows.first, job.slots * span.len);
                for ((row, _), z) in future.iter().zip(&mut z) {
                    E::sample(job.cipher(*row), *row, span.tile, z, &mut ahead);
                }
                for strip in (0..span.len).step_by(STRIP) {
                    for (k, (_, coefs)) in future.iter().enumerate() {
                        let z = z[k].as_mut_ptr().add(span.offset);
                        rows.make::<E::Lanes, false>(heads[k], coefs, z, strip);
                    }
                }
            }
            for span in tiles().filter(|_| job.phase != Phase::Make) {
                let to = gradient.add(span.at);
                rows(&span).add::<E::Lanes, G>(job, span, current, to);
            }
        }
    }
}

/// Cuts `len` coordinates from `first` on at multiples of `size`.
fn groups(first: u64, len: usize, size: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let to_boundary = size - ((first + start as u64) % size as u64) as usize;
        let group = start..(start + to_boundary).min(len);
        start = group.end;
        (!group.is_empty()).then_some(group)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_makes_every_row_once_and_in_time() {
        for rows_ahead in [1, 4, 8] {
            for tile in 0..20 {
                let mut made = 0;
                for time in 0..50 {
                    let future =
                        [(Row::new(crate::row::Family::Step, 0, 0).unwrap(), &[0.0_f32][..]); MAX_ROWS_AHEAD];
                    let left = (50 - time).min(rows_ahead);
                    let ring = RingJob { future: &future[..left], rows_ahead, time: time as u64 };
                    let due = ring.rows_due(tile);
                    assert!(due == 0 || made == time, "rows are made where the last ones ended");
                    made += due;
                    assert!(
                        made > time && made <= time + rows_ahead,
                        "this step's row is there, and few after it"
                    );
                }
                assert_eq!(made, 50);
            }
        }
    }

    #[test]
    fn groups_cover_all_and_end_at_multiples() {
        for (first, len) in [(0, 1), (0, 8192), (100, 4000), (4095, 2), (4096, 12_289)] {
            let mut end = 0;
            for group in groups(first, len, 4096) {
                assert!(group.start == end && !group.is_empty());
                end = group.end;
                assert!(end == len || (first + end as u64).is_multiple_of(4096));
            }
            assert_eq!(end, len);
        }
    }

    #[test]
    fn slots_by_age_lie_side_by_side() {
        for slots in [1, 3, 18] {
            for time in 0..40_u64 {
                let row = |u: u64| head(u + 1, slots);
                for age in 1..=slots.min(time as usize) {
                    assert_eq!(row(time - age as u64), slot(time, age, slots));
                }
                assert_eq!(row(time), (head(time, slots) + 1) % slots);
            }
        }
    }
}
