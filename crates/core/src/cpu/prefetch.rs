//! Memory that works while the sampler computes.
//!
//! Sampling a tile takes about a microsecond and touches no memory; updating its state is bound by memory and hardly computes.
//! One after the other, each waits for the other. So the sampler asks for the tile's state and gradient, a few cache lines at
//! a time, between its own instructions.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Memory to ask for: a few streams of equal length, a few lines of each per [`Prefetch::pull`].
pub(super) struct Prefetch {
    streams: [*const u8; Prefetch::MAX_STREAMS],
    count: usize,
    lines_per_pull: usize,
    next: usize,
    end: usize,
}

impl Prefetch {
    /// Eight buffers and a gradient.
    pub(super) const MAX_STREAMS: usize = 9;

    /// A sampler pulls at least this often per tile.
    pub(super) const PULLS: usize = 14;

    /// More outstanding lines than a core can track only make its loads wait.
    const MAX_LINES: usize = 20;

    /// Nothing to ask for.
    pub(super) fn none() -> Prefetch {
        Prefetch {
            streams: [std::ptr::null(); Self::MAX_STREAMS],
            count: 0,
            lines_per_pull: 0,
            next: 0,
            end: 0,
        }
    }

    /// Streams that begin at `streams` and are `bytes` long, at most [`Prefetch::MAX_STREAMS`] of them.
    pub(super) fn new(streams: &[*const u8], bytes: usize) -> Prefetch {
        let mut prefetch = Prefetch::none();
        prefetch.streams[..streams.len()].copy_from_slice(streams);
        prefetch.count = streams.len();
        prefetch.lines_per_pull =
            bytes.div_ceil(LINE * Self::PULLS).min((Self::MAX_LINES / streams.len().max(1)).max(1));
        prefetch.end = bytes;
        prefetch
    }

    /// Asks for the next lines of every stream.
    #[inline(always)]
    pub(super) fn pull(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if self.next < self.end {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            for stream in &self.streams[..self.count] {
                for line in 0..self.lines_per_pull {
                    // SAFETY: SSE is part of x86-64, and a prefetch of any address, mapped or not, is harmless.
                    unsafe {
                        _mm_prefetch::<_MM_HINT_T0>(stream.wrapping_add(self.next + LINE * line).cast());
                    }
                }
            }
            self.next += LINE * self.lines_per_pull;
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
