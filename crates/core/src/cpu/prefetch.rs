//! Memory that works while the sampler computes.
//!
//! Sampling a tile takes about a microsecond and touches no memory; updating its state is bound by memory and hardly computes.
//! One after the other, each waits for the other. So the sampler asks for the tile's state and gradient, a few cache lines at
//! a time, between its own instructions.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Memory to ask for: a few streams, a few lines of each per [`Prefetch::pull`].
pub(super) struct Prefetch {
    /// Where each begins, and how many bytes of it to ask for.
    streams: [(*const u8, usize); Prefetch::MAX_STREAMS],
    count: usize,
    lines_per_pull: usize,
    next: usize,
    end: usize,
}

impl Prefetch {
    /// Eight buffers and a gradient.
    pub(super) const MAX_STREAMS: usize = 9;

    /// A sampler pulls at least this often per tile.
    const PULLS: usize = 14;

    /// More outstanding lines than a core can track only make its loads wait.
    const MAX_LINES: usize = 20;

    /// Nothing to ask for.
    pub(super) fn none() -> Prefetch {
        Prefetch::new(&[])
    }

    /// At most [`Prefetch::MAX_STREAMS`] streams.
    pub(super) fn new(streams: &[(*const u8, usize)]) -> Prefetch {
        let mut all = [(std::ptr::null(), 0); Self::MAX_STREAMS];
        all[..streams.len()].copy_from_slice(streams);
        let end = streams.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let limit = (Self::MAX_LINES / streams.len().max(1)).max(1);
        let lines_per_pull = end.div_ceil(LINE * Self::PULLS).min(limit);
        Prefetch { streams: all, count: streams.len(), lines_per_pull, next: 0, end }
    }

    /// Asks for the next lines of every stream.
    #[inline(always)]
    pub(super) fn pull(&mut self) {
        if self.next < self.end {
            let bytes = LINE * self.lines_per_pull;
            for (stream, end) in &self.streams[..self.count] {
                if self.next < *end {
                    prefetch(stream.wrapping_add(self.next), bytes);
                }
            }
            self.next += bytes;
        }
    }
}

/// Asks for all lines of a run at once.
#[inline(always)]
pub(super) fn prefetch(run: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..bytes).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86-64, and a prefetch of any address, mapped or not, is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(run.wrapping_add(line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (run, bytes);
}
