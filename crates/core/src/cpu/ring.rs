//! The ring kernel, and its rows made ahead of time.
//!
//! Row by row, a ring of 64 bands moves 264 bytes per coordinate and step. But noise does not depend on gradients: once a
//! chunk's history is in L1, several future rows can be made of it. So each tile makes `batch` rows at a time and then only
//! adds one of them per step; tiles take turns, so that every step costs the same. With 8 rows at a time, 16 bands
//! move 23.5 bytes in place of 72, 64 bands 47.5 in place of 264. The price is `batch − 1` more rows of state, since
//! the plain state at any step must stay readable.
//!
//! The row of local time `u` (steps since this backend was made or restored) lies in slot `R − 1 − u mod R`: reading by age
//! is then reading forward.

use super::kernels::{Engine, Job, Piece, Span, Tile, add, spans};
use super::lanes::{Lanes, Stored};
use super::prefetch::{Prefetch, prefetch};
use crate::noise::TILE;
use crate::row::Row;

/// Coordinates per `[slot][coordinate]` chunk of a ring: all rows that an output needs then lie in one run of memory, which
/// the prefetcher follows, instead of in as many pages as the ring has rows. 64 are what one pass keeps in registers, so
/// the run is read strictly forward: with 64 bands, 1.4 times as fast as chunks of 128.
pub(super) const CHUNK: usize = 64;

/// Most rows that a tile makes at a time.
pub(super) const MAX_BATCH: usize = 8;

/// Rows made at a time for a ring of that many past outputs: a shorter one has too little traffic to save.
pub(super) fn batch(slots: usize) -> usize {
    if slots < MAX_BATCH { 1 } else { MAX_BATCH }
}

/// What a ring needs to know of a step.
#[derive(Clone, Copy, Default)]
pub(super) struct RingJob<'a> {
    /// This step's row and coefficients by age, then those of the steps after it, as far as a tile may make them now.
    pub(super) future: &'a [(Row, &'a [f32])],
    /// Rows that a tile makes at a time, at most [`MAX_BATCH`].
    pub(super) batch: usize,
    /// Local time.
    pub(super) time: u64,
}

impl RingJob<'_> {
    /// Panics unless the kernel stays inside a ring of `slots` rows.
    pub(super) fn check(&self, slots: usize) {
        assert!(!self.future.is_empty() && self.future.len() <= self.batch && self.batch <= MAX_BATCH);
        assert!(self.future.iter().all(|(_, coefs)| coefs.len() <= slots));
        assert!(self.batch == 1 || slots >= self.batch);
    }

    /// How many rows a tile makes at this step. At the first step each makes as many as last until its turn.
    fn rows_due(&self, tile: u64) -> usize {
        let phase = ((self.time + tile) % self.batch as u64) as usize;
        let rows = match (self.time, phase) {
            (0, phase) => self.batch - phase,
            (_, 0) => self.batch,
            _ => 0,
        };
        rows.min(self.future.len())
    }
}

/// The slot of the row of local time `time − 1`, whose age at `time` is 1; ages ascend from here, wrapping around.
pub(super) fn head(time: u64, slots: usize) -> usize {
    let slots = slots as u64;
    (slots - 1 - (time + slots - 1) % slots) as usize
}

/// # Safety
/// As [`super::kernels::run`]; with a batch of more than one row the state is f32.
#[inline(always)]
pub(super) unsafe fn run<E: Engine, G: Stored, H: Stored>(job: &Job<'_>, piece: Piece<'_, G, H>) {
    let ring = &job.ring;
    assert!(ring.batch == 1 || size_of::<H>() == size_of::<f32>());
    let mut z = [const { Tile([0.0; TILE]) }; MAX_BATCH];
    for Span { tile, offset, at, len } in spans(piece.first, piece.gradient.len()) {
        let rows_due = ring.rows_due(tile);
        // SAFETY: a chunk that starts at coordinate c of the piece has its rows at state[slots·c..], `chunk` values each;
        // rows that a batch of more than one left there are f32, as asserted.
        unsafe {
            let history = piece.state.as_mut_ptr().add(job.slots * at);
            let gradient = piece.gradient.as_mut_ptr().add(at);
            // The history of this tile, and the gradient up to the next tile that makes rows.
            let mut ahead = Prefetch::new(&[
                (history.cast_const().cast(), job.slots * len * size_of::<H>()),
                (gradient.cast_const().cast(), ring.batch * TILE * size_of::<G>()),
            ]);
            for ((row, _), z) in ring.future[..rows_due].iter().zip(&mut z) {
                E::sample(job.cipher(*row), *row, tile, &mut z.0, &mut ahead);
            }
            let mut done = 0;
            while done < len && job.slots > 0 {
                let chunk = (CHUNK - (offset + done) % CHUNK).min(len - done);
                let rows = history.add(job.slots * done);
                for (k, (_, coefs)) in ring.future[..rows_due].iter().enumerate() {
                    let z = z[k].0.as_mut_ptr().add(offset + done);
                    let head = head(ring.time + k as u64, job.slots);
                    let place = Place { rows, slots: job.slots, head, chunk, first: k == 0 };
                    make_row::<E::Lanes, H>(&place, coefs, z);
                }
                if ring.batch > 1 {
                    let row = rows.add(head(ring.time + 1, job.slots) * chunk);
                    prefetch(
                        row.wrapping_add(job.slots * TILE).cast_const().cast(),
                        CHUNK * size_of::<f32>(),
                    );
                    add::<E::Lanes, G>(job.scale, row.cast_const().cast(), gradient.add(done), chunk);
                }
                done += chunk;
            }
            if ring.batch == 1 {
                add::<E::Lanes, G>(job.scale, z[0].0.as_ptr().add(offset), gradient, len);
            }
        }
    }
}

/// One chunk of the ring at one step.
struct Place<H> {
    rows: *mut H,
    slots: usize,
    head: usize,
    chunk: usize,
    /// The first row of a batch: the others find the history in L1.
    first: bool,
}

/// # Safety
/// `z` valid for `chunk` floats, `rows` for `slots · chunk` values; `coefs` no longer than `slots`, which is not 0.
#[inline(always)]
unsafe fn make_row<V: Lanes, H: Stored>(place: &Place<H>, coefs: &[f32], z: *mut f32) {
    // Eight accumulators hide the latency of fma and leave registers for the coefficient and the loads.
    const WIDE: usize = 8;
    let mut at = 0;
    // SAFETY: every run of lanes starts below `chunk` and ends at or below it.
    unsafe {
        while at + WIDE * V::WIDTH <= place.chunk {
            make_lanes::<V, H, WIDE>(place, coefs, z, at);
            at += WIDE * V::WIDTH;
        }
        while at + V::WIDTH <= place.chunk {
            make_lanes::<V, H, 1>(place, coefs, z, at);
            at += V::WIDTH;
        }
        while at < place.chunk {
            make_lanes::<f32, H, 1>(place, coefs, z, at);
            at += 1;
        }
    }
}

/// `y = z − Σ cₐ y₋ₐ` by age, youngest first; `y` replaces `z` and the oldest row.
///
/// # Safety
/// As [`make_row`], and `at + N·WIDTH ≤ chunk`.
#[inline(always)]
unsafe fn make_lanes<V: Lanes, H: Stored, const N: usize>(
    place: &Place<H>,
    coefs: &[f32],
    z: *mut f32,
    at: usize,
) {
    let Place { rows, slots, head, chunk, .. } = *place;
    // SAFETY: indices as promised; the slot stays below `slots`.
    unsafe {
        let mut sum = [V::zero(); N];
        for (i, sum) in sum.iter_mut().enumerate() {
            *sum = V::load_f32(z.add(at + i * V::WIDTH));
        }
        let mut slot = head;
        for &coef in coefs {
            let coef = V::splat(-coef);
            let row = rows.add(slot * chunk + at);
            for (i, sum) in sum.iter_mut().enumerate() {
                *sum = coef.fma(H::load::<V>(row.add(i * V::WIDTH)), *sum);
            }
            if N > 1 && place.first {
                // The next chunk, so that memory works while this one is computed.
                prefetch(row.wrapping_add(slots * chunk).cast_const().cast(), N * V::WIDTH * size_of::<H>());
            }
            slot += 1;
            if slot == slots {
                slot = 0;
            }
        }
        let oldest = rows.add((head + slots - 1) % slots * chunk + at);
        for (i, sum) in sum.into_iter().enumerate() {
            sum.store_f32(z.add(at + i * V::WIDTH));
            H::store(sum, oldest.add(i * V::WIDTH));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_makes_every_row_once_and_in_time() {
        for batch in [1, 4, 8] {
            for tile in 0..20 {
                let mut made = 0;
                for time in 0..50 {
                    let future =
                        [(Row::new(crate::row::Family::Step, 0, 0).unwrap(), &[0.0_f32][..]); MAX_BATCH];
                    let left = (50 - time).min(batch);
                    let ring = RingJob { future: &future[..left], batch, time: time as u64 };
                    let due = ring.rows_due(tile);
                    assert!(due == 0 || made == time, "rows are made where the last batch ended");
                    made += due;
                    assert!(
                        made > time && made <= time + batch,
                        "this step's row is there, and few after it"
                    );
                }
                assert_eq!(made, 50);
            }
        }
    }

    #[test]
    fn slots_by_age_lie_side_by_side() {
        for slots in [1, 3, 18] {
            for time in 0..40_u64 {
                let row = |u: u64| head(u + 1, slots);
                for age in 1..=slots.min(time as usize) {
                    assert_eq!(row(time - age as u64), (head(time, slots) + age - 1) % slots);
                }
                assert_eq!(row(time), (head(time, slots) + slots - 1) % slots);
            }
        }
    }
}
