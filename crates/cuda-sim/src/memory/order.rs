//! The order of the threads of a launch: which of two accesses comes first, whatever the hardware does.
//!
//! Threads of a block are ordered by its barriers; lanes of a warp also by chains of `bar.warp.sync` that lead from one to the
//! other, which vector clocks keep track of. Threads of different blocks are not ordered at all.

/// The number of threads in a warp.
const WARP: usize = 32;

/// Accesses of one word by the lanes of one warp.
#[derive(Clone, Copy, Default)]
pub(crate) struct Mark {
    /// The number of blocks and barriers before the accesses, counted over all launches; 0 for no access.
    pub epoch: u32,
    lanes: u32,
    /// The latest time of the accesses, on their warp's clock.
    time: u32,
    /// The last instruction that accessed the word.
    pub pc: u32,
    warp: u8,
    /// Whether threads of other warps accessed the word in the same epoch.
    warps: bool,
    /// Whether threads of other blocks of the launch did.
    blocks: bool,
    /// Whether an access promised that nobody writes there during the launch.
    pub constant: bool,
}

/// A lane and the instruction that it executes.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    pub lane: usize,
    pub pc: usize,
}

/// What the lanes of one warp know of each other.
#[derive(Clone)]
struct Clocks {
    now: u32,
    /// The time at which each lane is.
    time: [u32; WARP],
    /// Per lane, up to which time of each lane it knows that everything has happened.
    seen: [[u32; WARP]; WARP],
}

/// The warp that runs, and what it knows of the others.
pub(crate) struct Order {
    clocks: Vec<Clocks>,
    /// The epoch with which the launch began.
    launch: u32,
    /// The epoch with which the block began.
    block: u32,
    epoch: u32,
    warp: usize,
    /// The number in the launch of the warp's first thread, modulo 2^32.
    first: u32,
}

impl Order {
    /// The order of a launch whose blocks have `warps` warps, after everything up to `epoch`.
    pub(crate) fn new(warps: usize, epoch: u32) -> Self {
        let clocks = Clocks { now: 1, time: [1; WARP], seen: [[0; WARP]; WARP] };
        Self { clocks: vec![clocks; warps], launch: epoch + 1, block: epoch, epoch, warp: 0, first: 0 }
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(crate) fn enter_block(&mut self) {
        self.epoch += u32::from(self.is_kept());
        self.block = self.epoch;
    }

    /// Says which warp of the block runs, and the number in the launch of its first thread.
    pub(crate) fn enter_warp(&mut self, warp: usize, first: u32) {
        (self.warp, self.first) = (warp, first);
    }

    /// Whether the launch has barriers, which this value keeps track of.
    #[inline(always)]
    pub(crate) fn is_kept(&self) -> bool {
        !self.clocks.is_empty()
    }

    /// The lane of a thread of the warp that runs.
    pub(crate) fn lane(&self, thread: u32) -> usize {
        thread.wrapping_sub(self.first) as usize
    }

    /// All threads of the block have met.
    pub(crate) fn barrier(&mut self) {
        self.epoch += 1;
    }

    /// Some lanes of the warp have met.
    pub(crate) fn warp_barrier(&mut self, members: u32) {
        let Some(clocks) = self.clocks.get_mut(self.warp) else { return };
        let mut joined = [0; WARP];
        for lane in lanes(members) {
            for (joined, seen) in joined.iter_mut().zip(clocks.seen[lane]) {
                *joined = seen.max(*joined);
            }
        }
        clocks.now += 1;
        for lane in lanes(members) {
            joined[lane] = clocks.time[lane];
            clocks.time[lane] = clocks.now;
        }
        lanes(members).for_each(|lane| clocks.seen[lane] = joined);
    }

    /// Whether a thread of the launch made the accesses.
    pub(crate) fn in_launch(&self, mark: &Mark) -> bool {
        mark.epoch >= self.launch
    }

    /// Whether a thread of the block made the accesses.
    pub(crate) fn in_block(&self, mark: &Mark) -> bool {
        mark.epoch >= self.block
    }

    /// The mark of earlier accesses, with one more.
    pub(crate) fn marked(&self, before: Mark, Access { lane, pc }: Access) -> Mark {
        let time = self.clocks[self.warp].time[lane];
        let mut mark = Mark { epoch: self.epoch, lanes: 1 << lane, time, pc: pc as u32, ..Mark::default() };
        mark.warp = self.warp as u8;
        if before.epoch == self.epoch {
            mark.lanes |= before.lanes;
            mark.time = time.max(before.time);
            mark.warps = before.warps || before.warp != mark.warp;
        }
        if before.epoch >= self.launch {
            mark.blocks = before.blocks || before.epoch < self.block;
            mark.constant = before.constant;
        }
        mark
    }

    /// Who made accesses of this launch that are not ordered before one of `lane`, in words; none if there are no such accesses.
    #[inline(always)]
    pub(crate) fn unordered(&self, mark: &Mark, lane: usize) -> Option<String> {
        let earlier = mark.epoch < self.launch || (mark.epoch < self.epoch && mark.epoch >= self.block);
        if earlier && !(mark.epoch >= self.launch && mark.blocks) {
            return None;
        }
        self.concurrent(mark, lane)
    }

    fn concurrent(&self, mark: &Mark, lane: usize) -> Option<String> {
        if mark.blocks || mark.epoch < self.block {
            return Some("a thread of another block".to_string());
        }
        if mark.warps {
            return Some("a thread of another warp".to_string());
        }
        let own = usize::from(mark.warp) == self.warp;
        let others = if own { mark.lanes & !(1 << lane) } else { mark.lanes };
        let seen = &self.clocks[self.warp].seen[lane];
        let other = lanes(others).find(|other| !own || seen[*other] < mark.time)?;
        Some(format!("thread {} of the block", WARP * usize::from(mark.warp) + other))
    }
}

/// The numbers of the lanes whose bit is set in `mask`.
pub(crate) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}
