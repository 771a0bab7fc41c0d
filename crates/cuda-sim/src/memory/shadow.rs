//! Who touched what in the current launch: finds threads that race.
//!
//! Execution is serial, so a race never shows in the values; it shows here. A cell stands for two bytes, because kernels use
//! no 8-bit stores (the parser refuses them), and follows this machine; a missing edge is a race:
//!
//! ```text
//! untouched ──read t──▶ read by t ──read u──▶ read by many ──read──▶ (stays)
//!     │                     │ write t
//!     └──write t──▶ written by t ──read or write t──▶ (stays)
//! untouched ──atomic──▶ atomic ──atomic──▶ (stays)
//! ```
//!
//! The reads are kept as well as the writes: otherwise a thread that reads what a later thread writes would go unnoticed.

/// Bytes per page; cells are made when a kernel first touches a page.
const PAGE: usize = 4096;
const CELLS: usize = PAGE / 2;

const STATE: u32 = 7 << 29;
const READ_BY: u32 = 1 << 29;
const READ_BY_MANY: u32 = 2 << 29;
const WRITTEN_BY: u32 = 3 << 29;
const ATOMIC: u32 = 4 << 29;

struct Page {
    /// The launch these cells belong to.
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
    /// Such as "that thread 5 of the launch writes".
    pub(crate) fn describe(self) -> String {
        let thread = self.cell & !STATE;
        match self.cell & STATE {
            READ_BY => format!("that thread {thread} of the launch reads"),
            READ_BY_MANY => "that several threads of the launch read, or one by ld.global.nc".to_string(),
            WRITTEN_BY => format!("that thread {thread} of the launch writes"),
            _ => "that the launch uses atomically".to_string(),
        }
    }
}

impl Shadow {
    pub(super) fn new(len: usize) -> Self {
        Self { pages: (0..len.div_ceil(PAGE)).map(|_| None).collect() }
    }

    /// The cells of an aligned access of at most 16 bytes; such an access never crosses a page.
    #[inline(always)]
    fn cells(&mut self, launch: u64, at: usize, len: usize) -> &mut [u32] {
        let page = self.pages[at / PAGE].get_or_insert_with(|| Box::new(Page { launch, cells: [0; CELLS] }));
        if page.launch != launch {
            page.launch = launch;
            page.cells.fill(0);
        }
        let first = at % PAGE / 2;
        &mut page.cells[first..first + len.div_ceil(2)]
    }

    /// `shared`: the thread promises that nobody writes these bytes during the launch (`ld.global.nc`).
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        launch: u64,
        at: usize,
        len: usize,
        thread: u32,
        shared: bool,
    ) -> Result<(), Race> {
        let cells = self.cells(launch, at, len);
        let (read, written) = (READ_BY | thread & !STATE, WRITTEN_BY | thread & !STATE);
        let own = if shared { READ_BY_MANY } else { written };
        if cells.iter().any(|&cell| cell >= WRITTEN_BY && cell != own) {
            return Err(Race { cell: worst(cells) });
        }
        for cell in cells {
            *cell = match *cell {
                _ if shared => READ_BY_MANY,
                0 => read,
                c if c == read || c == written => c,
                _ => READ_BY_MANY,
            };
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn write(&mut self, launch: u64, at: usize, len: usize, thread: u32) -> Result<(), Race> {
        let cells = self.cells(launch, at, len);
        let (read, written) = (READ_BY | thread & !STATE, WRITTEN_BY | thread & !STATE);
        let free = |cell: u32| cell == 0 || cell == read || cell == written;
        if let Some(&cell) = cells.iter().find(|&&cell| !free(cell)) {
            return Err(Race { cell });
        }
        cells.fill(written);
        Ok(())
    }

    pub(super) fn atomic(&mut self, launch: u64, at: usize, len: usize) -> Result<(), Race> {
        let cells = self.cells(launch, at, len);
        if let Some(&cell) = cells.iter().find(|&&cell| cell != 0 && cell != ATOMIC) {
            return Err(Race { cell });
        }
        cells.fill(ATOMIC);
        Ok(())
    }
}

/// The cell that a read raced with.
fn worst(cells: &[u32]) -> u32 {
    cells.iter().copied().max().unwrap_or(0)
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
                "r" => shadow.read(1, 8, 4, thread, false)?,
                "n" => shadow.read(1, 8, 4, thread, true)?,
                "w" => shadow.write(1, 8, 4, thread)?,
                _ => shadow.atomic(1, 8, 4)?,
            }
        }
        Ok(())
    }

    #[test]
    fn one_thread_or_only_readers_or_only_atomics_are_no_race() {
        for script in ["r1 w1 r1 w1", "w0 r0 w0", "r1 r2 r3 r1", "a1 a2 a1", "n1 n2 r3 n1"] {
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
        shadow.write(1, 8, 2, 1).unwrap();
        shadow.write(1, 10, 2, 2).unwrap();
        shadow.write(1, 6, 2, 3).unwrap();
        shadow.write(2, 8, 4, 4).unwrap();
        assert!(shadow.write(2, 10, 2, 5).is_err());
    }
}
