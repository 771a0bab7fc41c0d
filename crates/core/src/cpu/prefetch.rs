//! Software prefetch, interleaved with sampling.
//!
//! Sampling a tile takes about a microsecond and touches no memory; updating its state is bound by memory and hardly computes.
//! One after the other, each waits for the other. So the sampler asks for state and gradient, a few cache lines at a time,
//! between its own instructions.

use super::ring::MAX_ROWS_AHEAD;

/// Prefetching that a sampler does between its own instructions.
pub(super) trait Ahead {
    /// Prefetches a few lines more. A vector sampler calls this at least [`PULLS`] times per tile, the portable one never.
    fn pull(&mut self);
}

/// The least number of calls of [`Ahead::pull`] per tile, which are made with 8 rounds; with 12 rounds, there are 18.
const PULLS: usize = 14;

/// Prefetches nothing: for kernels without state.
impl Ahead for () {
    #[inline(always)]
    fn pull(&mut self) {}
}

/// The bytes of a cache line.
pub(super) const LINE: usize = 64;

/// A few kilobytes that the very next update uses, prefetched from all streams side by side: they fit into L1. Of a longer stream, only
/// the beginning is prefetched.
pub(super) struct Streams {
    /// The beginning of each stream, and how many bytes of it to prefetch.
    streams: [(*const u8, usize); Streams::MAX],
    count: usize,
    lines_per_pull: usize,
    next: usize,
    end: usize,
}

impl Streams {
    /// The most streams of a kernel: eight buffers and a gradient.
    pub(super) const MAX: usize = 9;

    /// The most lines per pull: more outstanding lines than a core can track only make its loads wait.
    const MAX_LINES: usize = 20;

    /// Plans the prefetch of at most [`Streams::MAX`] streams.
    pub(super) fn new(streams: &[(*const u8, usize)]) -> Streams {
        let mut all = [(std::ptr::null(), 0); Self::MAX];
        all[..streams.len()].copy_from_slice(streams);
        let end = streams.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let limit = (Self::MAX_LINES / streams.len().max(1)).max(1);
        let lines_per_pull = end.div_ceil(LINE * PULLS).min(limit);
        Streams { streams: all, count: streams.len(), lines_per_pull, next: 0, end }
    }
}

impl Ahead for Streams {
    #[inline(always)]
    fn pull(&mut self) {
        if self.next < self.end {
            for (stream, end) in &self.streams[..self.count] {
                if self.next < *end {
                    prefetch_l1(stream.wrapping_add(self.next), self.lines_per_pull);
                }
            }
            self.next += LINE * self.lines_per_pull;
        }
    }
}

/// Tens of kilobytes or more that are used some microseconds later, prefetched one run after another into L2: in L1 they would drive out
/// each other and what the sampler writes there.
pub(super) struct Runs {
    /// The beginning and the end of each run; the last in the list comes next.
    runs: [(*const u8, *const u8); Runs::MAX],
    count: usize,
    /// The rest of the run that is being prefetched, up to `end`.
    next: *const u8,
    end: *const u8,
    /// The number of lines of all runs, which are spread over `pulls` calls of `pull`.
    lines: usize,
    pulls: usize,
    pairs_per_pull: usize,
}

impl Runs {
    /// The most runs of a kernel: a row of each tile of a ring's group, their gradient, and the history of one.
    const MAX: usize = MAX_ROWS_AHEAD + 2;

    /// The bytes of two cache lines, which are prefetched together.
    const PAIR: usize = 2 * LINE;

    /// The most pairs of lines per pull. A core tracks some 20 lines at once: if fewer than these arrive between two pulls, the sampler waits.
    const MAX_PAIRS: usize = 8;

    /// An empty list of runs, to be prefetched while that many tiles are sampled.
    pub(super) fn new(tiles: usize) -> Runs {
        let none = std::ptr::null();
        let runs = [(none, none); Self::MAX];
        Runs { runs, count: 0, next: none, end: none, lines: 0, pulls: PULLS * tiles, pairs_per_pull: 0 }
    }

    /// Adds a run, to be prefetched before those added earlier: at most [`MAX_ROWS_AHEAD`] + 2 of them.
    pub(super) fn push<T>(&mut self, start: *const T, len: usize) {
        self.runs[self.count] = (start.cast(), start.wrapping_add(len).cast());
        self.count += 1;
        self.lines += (len * size_of::<T>()).div_ceil(LINE);
        self.pairs_per_pull = self.lines.div_ceil(2 * self.pulls).min(Self::MAX_PAIRS);
    }

    /// The address of the next two lines, if any are left.
    #[inline(always)]
    fn next(&mut self) -> Option<*const u8> {
        if self.next >= self.end {
            self.count = self.count.checked_sub(1)?;
            (self.next, self.end) = self.runs[self.count];
        }
        let pair = self.next;
        self.next = self.next.wrapping_add(Self::PAIR);
        Some(pair)
    }
}

impl Ahead for Runs {
    #[inline(always)]
    fn pull(&mut self) {
        for _ in 0..self.pairs_per_pull {
            match self.next() {
                Some(pair) => prefetch_l2(pair),
                None => return,
            }
        }
    }
}

/// Prefetches some lines at once into L1.
#[inline(always)]
pub(super) fn prefetch_l1(start: *const u8, lines: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..lines {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86-64, and a prefetch of any address, mapped or not, is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line * LINE).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, lines);
}

/// Prefetches a line and its neighbour into L2.
#[inline(always)]
fn prefetch_l2(start: *const u8) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..2 {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch of any address, mapped or not, is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(start.wrapping_add(line * LINE).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = start;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_asked_for_whole_the_last_pushed_first_within_the_sampling() {
        let memory = vec![0_u8; 100_000];
        // Each run is given as (first byte, number of bytes).
        let pushed = [(0, 640), (5_000, 128), (64_000, 30_000), (40_000, 2_048)];
        let mut runs = Runs::new(8);
        for (start, len) in pushed {
            runs.push(memory[start..].as_ptr(), len);
        }
        assert!(PULLS * 8 * runs.pairs_per_pull * Runs::PAIR >= pushed.iter().map(|(_, len)| len).sum());
        for (start, len) in pushed.into_iter().rev() {
            for at in (start..start + len).step_by(Runs::PAIR) {
                assert_eq!(runs.next(), Some(memory[at..].as_ptr()));
            }
        }
        assert_eq!(runs.next(), None);
        assert_eq!(runs.next(), None);
    }
}
