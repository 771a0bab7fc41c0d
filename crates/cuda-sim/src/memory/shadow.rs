//! Race detection: a shadow of memory that records which threads touched what in the current launch.
//!
//! Execution is serial, so a race never shows in the values; it shows here. A cell stands for two bytes, because kernels use
//! no 8-bit stores (the parser refuses them), and follows this machine; a missing edge is a race:
//!
//! ```text
//! untouched ──read t──▶ read by t ──read u──▶ read by many ──read──▶ (stays)
//!     │                     │ write t, atomic t
//!     ├──write t────▶ owned by t ──any by t──▶ (stays)
//!     │                     ▲ read t, write t
//!     └──atomic t──▶ atomic by t ──atomic u──▶ atomic by many ──atomic──▶ (stays)
//! ```
//!
//! The reads are kept as well as the writes: otherwise a thread that reads what a later thread writes would go unnoticed.

/// Bytes per page; cells are made when a kernel first touches a page.
const PAGE: usize = 4096;
const CELLS: usize = PAGE / 2;

const STATE: u32 = 7 << 29;
const READ_BY: u32 = 1 << 29;
const READ_BY_MANY: u32 = 2 << 29;
const OWNED_BY: u32 = 3 << 29;
const ATOMIC_BY: u32 = 4 << 29;
const ATOMIC_BY_MANY: u32 = 5 << 29;

struct Page {
    /// The launch that these cells belong to.
    launch: u64,
    cells: [u32; CELLS],
}

/// The cells of one allocation.
pub(crate) struct Shadow {
    pages: Vec<Option<Box<Page>>>,
}

/// The access that an access raced with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Race {
    cell: u32,
}

impl Race {
    /// The race in words, such as "that thread 5 of the launch writes".
    pub(crate) fn describe(self) -> String {
        let thread = self.cell & !STATE;
        match self.cell & STATE {
            READ_BY => format!("that thread {thread} of the launch reads"),
            READ_BY_MANY => "that several threads of the launch read, or one by ld.global.nc".to_string(),
            OWNED_BY => format!("that thread {thread} of the launch writes"),
            _ => "that other threads of the launch update atomically".to_string(),
        }
    }
}

impl Shadow {
    pub(super) fn new(len: usize) -> Self {
        Self { pages: (0..len.div_ceil(PAGE)).map(|_| None).collect() }
    }

    /// The cells of an aligned access: one for 1 or 2 bytes, 8 for 16 bytes. Such an access never crosses a page.
    #[inline(always)]
    fn cells<const N: usize>(&mut self, launch: u64, at: usize) -> &mut [u32] {
        let page = self.pages[at / PAGE].get_or_insert_with(|| Box::new(Page { launch, cells: [0; CELLS] }));
        if page.launch != launch {
            page.launch = launch;
            page.cells.fill(0);
        }
        let first = at % PAGE / 2;
        &mut page.cells[first..first + N]
    }

    /// Records a read. `shared` means that the thread promises that nobody writes these bytes during the launch (`ld.global.nc`).
    #[inline(always)]
    pub(super) fn read<const N: usize>(
        &mut self,
        launch: u64,
        at: usize,
        thread: u32,
        shared: bool,
    ) -> Result<(), Race> {
        let cells = self.cells::<N>(launch, at);
        let [read, owned, atomic] = states(thread);
        let mut raced = false;
        for &mut cell in &mut *cells {
            raced |= (cell >= OWNED_BY) & (shared | ((cell != owned) & (cell != atomic)));
        }
        if raced {
            return Err(Race { cell: cells.iter().copied().max().unwrap_or(0) });
        }
        for cell in cells {
            *cell = match *cell {
                _ if shared => READ_BY_MANY,
                0 => read,
                c if c == read || c == owned => c,
                c if c == atomic => owned,
                _ => READ_BY_MANY,
            };
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn write<const N: usize>(&mut self, launch: u64, at: usize, thread: u32) -> Result<(), Race> {
        let cells = self.cells::<N>(launch, at);
        let [read, owned, atomic] = states(thread);
        let free = |cell: u32| (cell == 0) | (cell == read) | (cell == owned) | (cell == atomic);
        let mut raced = false;
        for &mut cell in &mut *cells {
            raced |= !free(cell);
        }
        if raced {
            let other = cells.iter().copied().find(|&cell| !free(cell));
            return Err(Race { cell: other.unwrap_or(0) });
        }
        cells.fill(owned);
        Ok(())
    }

    pub(super) fn atomic<const N: usize>(&mut self, launch: u64, at: usize, thread: u32) -> Result<(), Race> {
        let [read, owned, atomic] = states(thread);
        for cell in self.cells::<N>(launch, at) {
            *cell = match *cell {
                0 => atomic,
                c if c == atomic => atomic,
                c if c == read || c == owned => owned,
                c if c >= ATOMIC_BY => ATOMIC_BY_MANY,
                cell => return Err(Race { cell }),
            };
        }
        Ok(())
    }
}

/// The three values of a cell that only `thread` has read, owns, or has updated atomically.
#[inline(always)]
fn states(thread: u32) -> [u32; 3] {
    [READ_BY, OWNED_BY, ATOMIC_BY].map(|state| state | thread & !STATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `r`ead, `n`on-coherent read, `w`rite and `a`tomic of 4 bytes at 8, each by the thread that follows it.
    fn run(script: &str) -> Result<(), Race> {
        let mut shadow = Shadow::new(PAGE);
        for step in script.split(' ') {
            let thread = step[1..].parse().unwrap();
            match &step[..1] {
                "r" => shadow.read::<2>(1, 8, thread, false)?,
                "n" => shadow.read::<2>(1, 8, thread, true)?,
                "w" => shadow.write::<2>(1, 8, thread)?,
                _ => shadow.atomic::<2>(1, 8, thread)?,
            }
        }
        Ok(())
    }

    #[test]
    fn one_thread_or_only_readers_or_only_atomics_are_no_race() {
        for script in [
            "r1 w1 r1 w1",
            "w0 r0 w0",
            "r1 r2 r3 r1",
            "a1 a2 a1",
            "n1 n2 r3 n1",
            "w1 a1 r1 a1",
            "r1 a1 w1",
            "a1 r1 w1",
        ] {
            assert_eq!(run(script), Ok(()), "{script}");
        }
    }

    #[test]
    fn every_other_pair_is_a_race_in_both_orders() {
        for script in [
            "w1 w2", "w1 r2", "r1 w2", "r1 r2 w1", "r1 r2 w2", "a1 r2", "r2 a1", "a1 w2", "w2 a1", "n1 w1",
            "w1 n1",
        ] {
            assert!(run(script).is_err(), "{script}");
        }
    }

    #[test]
    fn neighbours_and_other_launches_do_not_race() {
        let mut shadow = Shadow::new(2 * PAGE);
        shadow.write::<1>(1, 8, 1).unwrap();
        shadow.write::<1>(1, 10, 2).unwrap();
        shadow.write::<1>(1, 6, 3).unwrap();
        shadow.write::<2>(2, 8, 4).unwrap();
        assert!(shadow.write::<1>(2, 10, 5).is_err());
    }
}
