//! Shared memory of the block that runs: its bytes, and who touched them since the last barrier.
//!
//! Warps run one after the other from barrier to barrier, so a race never shows in the values; it shows here. Each word of four
//! bytes remembers its last write and its reads. Two accesses of a word, one of them a write, race unless the launch's
//! [`Order`] says which comes first. A word that no thread of the block has written cannot be read.

use super::{Access, Mark, Order};
use crate::ptx::{Kernel, SHARED_WINDOW, Shared as Variable};
use crate::status::{Failure, Status};

#[derive(Clone, Copy, Default)]
struct Cell {
    write: Mark,
    read: Mark,
}

/// The place of an access: its first word, and where it lies for messages.
#[derive(Clone, Copy)]
struct Place {
    word: usize,
    variable: usize,
    offset: usize,
}

/// The shared memory of one block.
pub(crate) struct Shared<'k> {
    kernel: &'k Kernel,
    bytes: Vec<u8>,
    cells: Vec<Cell>,
    /// The first word of each variable.
    first: Vec<usize>,
}

impl<'k> Shared<'k> {
    pub(crate) fn new(kernel: &'k Kernel) -> Self {
        let (mut first, mut words) = (Vec::new(), 0);
        for variable in &kernel.shared {
            first.push(words);
            words += variable.size.div_ceil(4);
        }
        Self { kernel, bytes: vec![0; 4 * words], cells: vec![Cell::default(); words], first }
    }

    /// Whether a generic address lies in the window of shared memory.
    pub(crate) fn in_window(address: u64) -> bool {
        address & !(SHARED_WINDOW - 1) == SHARED_WINDOW
    }

    pub(crate) fn load<const N: usize>(
        &mut self,
        order: &Order,
        access: Access,
        address: u64,
    ) -> Result<[u8; N], Failure> {
        let place = self.locate::<N>(address, "reads")?;
        for word in place.word..place.word + N.div_ceil(4) {
            let Cell { write, read } = self.cells[word];
            if !order.in_block(&write) {
                let what = self.describe("reads", N, place);
                let text = format!("{what}, which no thread of the block has written");
                return Err(Failure::new(Status::LaunchFailed, text));
            }
            if let Some(who) = order.unordered(&write, access.lane) {
                return Err(self.race(&who, &write, "reads", N, place, "writes"));
            }
            let before = if order.in_block(&read) { read } else { Mark::default() };
            self.cells[word].read = order.marked(before, access);
        }
        let at = 4 * place.word + place.offset % 4;
        let mut value = [0; N];
        value.copy_from_slice(&self.bytes[at..at + N]);
        Ok(value)
    }

    /// Stores a multiple of four bytes.
    pub(crate) fn store<const N: usize>(
        &mut self,
        order: &Order,
        access: Access,
        address: u64,
        value: [u8; N],
    ) -> Result<(), Failure> {
        let place = self.locate::<N>(address, "writes")?;
        for word in place.word..place.word + N / 4 {
            let Cell { write, read } = self.cells[word];
            for (mark, verb) in [(write, "writes"), (read, "reads")] {
                // What another block did to its own shared memory is of no concern.
                if order.in_block(&mark)
                    && let Some(who) = order.unordered(&mark, access.lane)
                {
                    return Err(self.race(&who, &mark, "writes", N, place, verb));
                }
            }
            self.cells[word].write = order.marked(Mark::default(), access);
        }
        self.bytes[4 * place.word..4 * place.word + N].copy_from_slice(&value);
        Ok(())
    }

    #[cold]
    fn race(&self, who: &str, mark: &Mark, own: &str, len: usize, place: Place, verb: &str) -> Failure {
        let (line, source) = &self.kernel.lines[mark.pc as usize];
        let what = self.describe(own, len, place);
        let text = format!("{what}, which {who} {verb} at line {line} `{source}` with no barrier between");
        Failure::new(Status::LaunchFailed, text)
    }

    fn locate<const N: usize>(&self, address: u64, verb: &str) -> Result<Place, Failure> {
        let illegal = |status, text: &str| Err(Failure::new(status, format!("{verb} {N} bytes at {text}")));
        let index = (address >> Variable::SHIFT).wrapping_sub(1) as usize;
        let Some(variable) = self.kernel.shared.get(index) else {
            return illegal(Status::IllegalAddress, &format!("{address:#x}, where no shared variable is"));
        };
        let offset = address.wrapping_sub(Variable::address(index, variable.align)) as usize;
        if offset >= variable.size || N > variable.size - offset {
            let text = format!("{:+} of shared {} of {} bytes", offset as i64, variable.name, variable.size);
            return illegal(Status::IllegalAddress, &text);
        }
        if !address.is_multiple_of(N as u64) {
            let text =
                format!("+{offset} of shared {}, an address that is not a multiple of {N}", variable.name);
            return illegal(Status::MisalignedAddress, &text);
        }
        Ok(Place { word: self.first[index] + offset / 4, variable: index, offset })
    }

    fn describe(&self, verb: &str, len: usize, place: Place) -> String {
        let variable = &self.kernel.shared[place.variable];
        format!(
            "{verb} {len} bytes at +{} of shared {} of {} bytes",
            place.offset, variable.name, variable.size
        )
    }
}
