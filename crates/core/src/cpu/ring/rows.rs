//! The rows of a ring: where they lie, how one is made, how one is added.

use crate::cpu::kernels::{Job, Span, add};
use crate::cpu::lanes::{Lanes, Stored};
use crate::cpu::prefetch::{LINE, prefetch_l1};
use crate::noise::TILE;

/// The number of coordinates that one pass keeps in registers.
pub(in crate::cpu) const STRIP: usize = 64;

/// The index of coordinate `at` of row `slot` among rows of `len` coordinates.
///
/// The rows of a whole tile are 2 KB long, so the same strip of all of them would compete for an eighth of L1. Therefore row `s` of a tile
/// is rotated by ⌊s/2⌋ strips, so that rows do not share L1 sets.
#[inline(always)]
pub(in crate::cpu) fn place(slot: usize, len: usize, at: usize) -> usize {
    let turned = if len == TILE { (at + slot / 2 * STRIP) % TILE } else { at };
    slot * len + turned
}

/// The `slots` rows of a tile, of a part of one, or of a strip.
pub(in crate::cpu) struct RingRows {
    pub(in crate::cpu) first: *mut f32,
    pub(in crate::cpu) slots: usize,
    /// The number of coordinates per row.
    pub(in crate::cpu) len: usize,
}

impl RingRows {
    /// Makes one row in the strip that begins at coordinate `strip`: `y = z − Σ cₐ y₋ₐ` by age, oldest first, where age 1 lies in
    /// slot `head`. `y` replaces `z` and the oldest row. With `NEXT`, it prefetches the rows after these.
    ///
    /// # Safety
    /// `first` is valid for `slots · len` values, `z` for `len` floats; `strip` is a multiple of [`STRIP`] below `len`, `head` is
    /// below `slots`, and `coefs` are no longer than `slots`. The lanes' features are enabled.
    #[inline(always)]
    pub(in crate::cpu) unsafe fn make<V: Lanes, const NEXT: bool>(
        &self,
        head: usize,
        coefs: &[f32],
        z: *mut f32,
        strip: usize,
    ) {
        // Eight accumulators hide the latency of fma and leave registers for the coefficient and the loads.
        const WIDE: usize = 8;
        debug_assert!(
            strip.is_multiple_of(STRIP) && strip < self.len && head < self.slots && coefs.len() <= self.slots
        );
        let end = (strip + STRIP).min(self.len);
        let mut at = strip;
        // SAFETY: every run of lanes starts below `end` and ends at or below it.
        unsafe {
            if self.len == TILE && WIDE * V::WIDTH == STRIP {
                // A whole tile has a length that the compiler knows: `place` is then a few shifts.
                let tile = RingRows { len: TILE, ..*self };
                return tile.make_lanes::<V, WIDE, NEXT>(head, coefs, z, at);
            }
            while at + WIDE * V::WIDTH <= end {
                self.make_lanes::<V, WIDE, NEXT>(head, coefs, z, at);
                at += WIDE * V::WIDTH;
            }
            while at + V::WIDTH <= end {
                self.make_lanes::<V, 1, false>(head, coefs, z, at);
                at += V::WIDTH;
            }
            while at < end {
                self.make_lanes::<f32, 1, false>(head, coefs, z, at);
                at += 1;
            }
        }
    }

    /// Makes coordinates `at..at + N·WIDTH` of one row, all of them in one strip.
    ///
    /// # Safety
    /// The contract is that of [`RingRows::make`].
    #[inline(always)]
    unsafe fn make_lanes<V: Lanes, const N: usize, const NEXT: bool>(
        &self,
        head: usize,
        coefs: &[f32],
        z: *mut f32,
        at: usize,
    ) {
        let RingRows { first, slots, len } = *self;
        // SAFETY: indices as promised; the slot stays below `slots`.
        unsafe {
            let mut sum = [V::zero(); N];
            for (i, sum) in sum.iter_mut().enumerate() {
                *sum = V::load_f32(z.add(at + i * V::WIDTH));
            }
            // The oldest output that has a coefficient comes first; younger ones lie in the slots after it.
            let mut slot = (head + slots - coefs.len()) % slots;
            for &coef in coefs.iter().rev() {
                slot = if slot + 1 == slots { 0 } else { slot + 1 };
                let coef = V::splat(-coef);
                let row = first.add(place(slot, len, at));
                for (i, sum) in sum.iter_mut().enumerate() {
                    *sum = coef.fma(V::load_f32(row.add(i * V::WIDTH)), *sum);
                }
                if NEXT {
                    // The next rows are prefetched while these are computed.
                    let next = row.wrapping_add(slots * len).cast_const().cast();
                    prefetch_l1(next, (N * V::WIDTH * size_of::<f32>()).div_ceil(LINE));
                }
            }
            let oldest = if head + 1 == slots { 0 } else { head + 1 };
            let oldest = first.add(place(oldest, len, at));
            for (i, sum) in sum.into_iter().enumerate() {
                sum.store_f32(z.add(at + i * V::WIDTH));
                sum.store_f32(oldest.add(i * V::WIDTH));
            }
        }
    }

    /// Adds the row in `slot` to the gradient of its span.
    ///
    /// # Safety
    /// `first` is valid for `slots · len` values, `gradient` for the span's `len`; `slot` is below `slots`. The lanes' features are
    /// enabled.
    #[inline(always)]
    pub(in crate::cpu) unsafe fn add<V: Lanes, G: Stored>(
        &self,
        job: &Job<'_>,
        span: Span,
        slot: usize,
        gradient: *mut G,
    ) {
        let row = slot * self.len;
        let turn = place(slot, self.len, 0) - row;
        let before_turn = self.len - turn;
        let Span { tile, offset, at, .. } = span;
        // SAFETY: both parts lie within the row, and together they are as long as the gradient.
        unsafe {
            let first = Span { tile, offset, at, len: before_turn };
            add::<V, G>(job, first, self.first.add(row + turn), gradient);
            let second = Span { tile, offset: offset + before_turn, at: at + before_turn, len: turn };
            add::<V, G>(job, second, self.first.add(row), gradient.add(before_turn));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_a_tile_has_a_place_and_strips_stay_whole() {
        for len in [1, 100, TILE] {
            let slots = 22;
            let mut seen = vec![false; slots * len];
            for slot in 0..slots {
                for at in 0..len {
                    let found = place(slot, len, at);
                    assert_eq!(found / len, slot);
                    assert!(!std::mem::replace(&mut seen[found], true));
                    assert_eq!(found, place(slot, len, at / STRIP * STRIP) + at % STRIP);
                }
            }
        }
    }

    /// L1 has 64 sets of 8 lines each: they hold one strip of all rows of a ring of 64 bands, those made ahead included.
    #[test]
    fn a_strip_of_all_rows_spreads_over_l1() {
        let (slots, sets) = (63 + super::super::MAX_ROWS_AHEAD - 1, 64);
        for strip in (0..TILE).step_by(STRIP) {
            let mut used = vec![0; sets];
            for slot in 0..slots {
                for at in (strip..strip + STRIP).step_by(LINE / size_of::<f32>()) {
                    used[place(slot, TILE, at) * size_of::<f32>() / LINE % sets] += 1;
                }
            }
            assert!(used.iter().all(|lines| *lines <= 5), "{used:?}");
        }
    }
}
