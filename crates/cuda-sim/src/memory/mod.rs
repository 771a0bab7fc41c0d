//! Device memory: separate host allocations behind fake device addresses, with every access checked.
//!
//! Addresses lie above 2^48, where no host pointer can, so a host pointer given to a kernel, or a device address cut to 32
//! bits, hits nothing. Allocations are a mebibyte apart and an address is never used twice, so running off an end or using
//! freed memory hits nothing either.

mod barriers;
mod block;
mod kernel;
mod order;
mod shadow;
mod shared;
mod uses;

use crate::status::{Failure, Status};
pub(crate) use block::{Block, Kind};
pub(crate) use kernel::{Accessor, AtomicOp, Space, Touch};
pub(crate) use order::{Access, Mark, Order, lanes};
pub(crate) use shared::Shared;
pub(crate) use uses::{Unordered, Use};

/// The memory of one device in bytes.
pub(crate) const TOTAL: u64 = 4 << 30;

const ALIGNMENT: u64 = 256;
const GAP: u64 = 1 << 20;

/// The address space of one device.
pub(crate) struct Memory {
    /// The allocations in ascending order.
    blocks: Vec<Block>,
    /// The base and the length of every freed allocation, sorted by base when needed; messages name them.
    freed: Vec<(u64, u64)>,
    next: u64,
    /// The address that the next allocation gets instead.
    placed: Option<u64>,
    used: u64,
    /// The number of the current launch: shadow cells of earlier launches are void.
    launch: u64,
    /// The number of blocks and barriers of all launches with barriers; their marks of earlier launches are void.
    epoch: u32,
}

impl Memory {
    pub(crate) fn new(ordinal: usize) -> Self {
        let next = (16 + ordinal as u64) << 44;
        Self { blocks: Vec::new(), freed: Vec::new(), next, placed: None, used: 0, launch: 0, epoch: 0 }
    }

    /// Frees every allocation; their addresses are not used again.
    pub(crate) fn clear(&mut self) {
        self.freed.extend(self.blocks.drain(..).map(|block| (block.base, block.len())));
        self.used = 0;
    }

    /// Puts the next allocation at an address, which a test chooses where nothing else will lie: such an address may be used again.
    pub(crate) fn place_next(&mut self, address: u64) {
        self.placed = Some(address);
    }

    pub(crate) fn available(&self) -> u64 {
        TOTAL - self.used
    }

    pub(crate) fn allocate(&mut self, len: usize, kind: Kind) -> Result<u64, Failure> {
        if len == 0 {
            return Err(Failure::invalid_value("an allocation of 0 bytes"));
        }
        if len as u64 > self.available() {
            let text = format!("{len} bytes asked for, {} of {TOTAL} free", self.available());
            return Err(Failure::new(Status::OutOfMemory, text));
        }
        let base = self.placed.take().unwrap_or(self.next);
        let index = self.blocks.partition_point(|block| block.base <= base);
        if base == self.next {
            self.next = (base + len as u64 + GAP).next_multiple_of(ALIGNMENT);
        } else if !self.is_free(base, len as u64) {
            return Err(Failure::invalid_value(format!("{len} bytes at {base:#x}, which are not free")));
        }
        self.used += len as u64;
        self.blocks.insert(index, Block::new(base, len, kind));
        Ok(base)
    }

    /// What lies in the allocation that begins at an address, if one does.
    pub(crate) fn bytes_of(&self, address: u64) -> Option<&[u8]> {
        let index = self.blocks.binary_search_by_key(&address, |block| block.base).ok()?;
        Some(self.blocks[index].bytes())
    }

    fn is_free(&self, base: u64, len: u64) -> bool {
        let meets = |block: &Block| base < block.base + block.len() && block.base < base + len;
        base.is_multiple_of(ALIGNMENT) && !self.blocks.iter().any(meets)
    }

    pub(crate) fn free(&mut self, address: u64) -> Result<(), Failure> {
        let found = self.blocks.binary_search_by_key(&address, |block| block.base);
        let Ok(index) = found else {
            return Err(Failure::invalid_value(format!("free of {}", self.describe(address))));
        };
        let block = self.blocks.remove(index);
        self.used -= block.len();
        self.freed.push((block.base, block.len()));
        Ok(())
    }

    pub(crate) fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Failure> {
        let (block, at) = self.range(address, to.len(), "read")?;
        block.check_written(at, to.len()).map_err(Failure::invalid_value)?;
        to.copy_from_slice(&block.bytes()[at..at + to.len()]);
        Ok(())
    }

    pub(crate) fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Failure> {
        let (block, at) = self.range_mut(address, from.len())?;
        block.bytes_mut()[at..at + from.len()].copy_from_slice(from);
        block.mark_written(at, from.len());
        Ok(())
    }

    pub(crate) fn fill(&mut self, address: u64, value: u8, len: usize) -> Result<(), Failure> {
        let (block, at) = self.range_mut(address, len)?;
        block.bytes_mut()[at..at + len].fill(value);
        block.mark_written(at, len);
        Ok(())
    }

    pub(crate) fn copy(&mut self, to: u64, from: u64, len: usize) -> Result<(), Failure> {
        // The bytes go through a temporary buffer: both ends are checked before a byte moves, and they may overlap or share a block.
        let mut bytes = vec![0; len];
        self.read(from, &mut bytes)?;
        self.write(to, &bytes)
    }

    /// Says that the current command reads or writes a range, if it is inside an allocation.
    pub(crate) fn touch(&mut self, address: u64, len: usize, writes: bool) {
        if let Ok((block, at)) = self.range_mut(address, len)
            && len > 0
        {
            block.uses.range(at, len, writes);
        }
    }

    /// Says that the current command ends the life of an allocation, which counts as writing all of it.
    pub(crate) fn touch_all(&mut self, address: u64) {
        if let Ok(index) = self.blocks.binary_search_by_key(&address, |block| block.base) {
            let len = self.blocks[index].len() as usize;
            self.blocks[index].uses.range(0, len, true);
        }
    }

    /// Ends the current command: `knows` tells which others come before it. Its touches are kept, or dropped without a name.
    pub(crate) fn settle(
        &mut self,
        command: Option<Use>,
        knows: impl Fn(Use) -> bool,
    ) -> Result<(), (String, Unordered)> {
        let mut outcome = Ok(());
        for block in &mut self.blocks {
            let settled = block.uses.settle(command, &knows);
            let place =
                |at| format!("the 512 bytes at +{at} of {} of {} bytes", block.kind.name(), block.len());
            outcome = outcome.and(settled.map_err(|unordered| (place(unordered.at), unordered)));
        }
        outcome
    }

    /// The block and the offset of `[address, address + len)`, which must lie inside one allocation.
    fn range(&self, address: u64, len: usize, verb: &str) -> Result<(&Block, usize), Failure> {
        let found = self.find(address).map(|index| &self.blocks[index]);
        match found {
            Some(block) if block.holds(address, len as u64) => Ok((block, (address - block.base) as usize)),
            _ => Err(Failure::invalid_value(format!("{verb} of {len} bytes at {}", self.describe(address)))),
        }
    }

    fn range_mut(&mut self, address: u64, len: usize) -> Result<(&mut Block, usize), Failure> {
        self.range(address, len, "write")?;
        let index = self.find(address).unwrap_or_default();
        let block = &mut self.blocks[index];
        let at = (address - block.base) as usize;
        Ok((block, at))
    }

    /// The index of the block that begins at or before `address`.
    fn find(&self, address: u64) -> Option<usize> {
        self.blocks.partition_point(|block| block.base <= address).checked_sub(1)
    }

    /// An address in words: where it lies relative to what is, or was, allocated.
    fn describe(&self, address: u64) -> String {
        let live = self.find(address).map(|index| &self.blocks[index]);
        let live = live.map(|block| (block.base, block.len(), block.kind.name()));
        let freed = self.freed.iter().filter(|(base, _)| *base <= address).max_by_key(|(base, _)| *base);
        let freed = freed.map(|&(base, len)| (base, len, "a freed allocation"));
        match live.max(freed) {
            Some((base, len, what)) if address - base < len + GAP => {
                format!("+{} of {what} of {len} bytes", address - base)
            }
            _ => format!("{address:#x}, where nothing is allocated"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<T>(result: Result<T, Failure>) -> String {
        result.err().map(|failure| failure.text).unwrap_or_default()
    }

    #[test]
    fn an_allocation_holds_what_was_written_and_nothing_else() {
        let mut memory = Memory::new(3);
        let a = memory.allocate(1000, Kind::Global).unwrap();
        let b = memory.allocate(10, Kind::Global).unwrap();
        assert!(a > 1 << 33 && a.is_multiple_of(256) && b >= a + 1000 + GAP);
        memory.write(a + 5, &[1, 2, 3]).unwrap();
        let mut out = [0; 3];
        memory.read(a + 5, &mut out).unwrap();
        assert_eq!(out, [1, 2, 3]);
        assert_eq!(
            text(memory.read(a + 6, &mut out)),
            "byte +8 of the allocation of 1000 bytes was never written"
        );
        assert_eq!(
            text(memory.read(a + 4, &mut out)),
            "byte +4 of the allocation of 1000 bytes was never written"
        );
        assert_eq!(
            text(memory.write(a + 998, &[0; 3])),
            "write of 3 bytes at +998 of an allocation of 1000 bytes"
        );
        assert_eq!(
            text(memory.write(a - 1, &[0])),
            format!("write of 1 bytes at {:#x}, where nothing is allocated", a - 1)
        );
    }

    #[test]
    fn freed_addresses_are_not_used_again_and_are_named_as_such() {
        let mut memory = Memory::new(0);
        let a = memory.allocate(64, Kind::Global).unwrap();
        memory.fill(a, 7, 64).unwrap();
        memory.free(a).unwrap();
        assert_eq!(memory.available(), TOTAL);
        assert_ne!(memory.allocate(64, Kind::Global).unwrap(), a);
        assert_eq!(
            text(memory.read(a, &mut [0; 4])),
            "read of 4 bytes at +0 of a freed allocation of 64 bytes"
        );
        assert_eq!(text(memory.free(a)), "free of +0 of a freed allocation of 64 bytes");
    }

    #[test]
    fn the_device_is_full_at_its_total() {
        let mut memory = Memory::new(0);
        let a = memory.allocate((TOTAL - 10) as usize, Kind::Global).unwrap();
        assert_eq!(memory.allocate(11, Kind::Global).unwrap_err().status, Status::OutOfMemory);
        memory.allocate(10, Kind::Global).unwrap();
        memory.free(a).unwrap();
        memory.allocate(11, Kind::Global).unwrap();
    }

    #[test]
    fn an_allocation_lies_where_a_test_wants_it() {
        let mut memory = Memory::new(0);
        let a = memory.allocate(64, Kind::Global).unwrap();
        let far = 1 << 57;
        for taken in [far, a, far + 1] {
            memory.place_next(taken);
            assert_eq!(memory.allocate(64, Kind::Global).is_ok(), taken == far);
        }
        memory.place_next(far - 256);
        assert!(memory.allocate(257, Kind::Global).is_err());
        let b = memory.allocate(64, Kind::Global).unwrap();
        assert!(a < b && b < far);
        memory.write(b, &[1]).unwrap();
        memory.write(far, &[2]).unwrap();
        let mut out = [0];
        memory.read(b, &mut out).unwrap();
        assert_eq!(out, [1]);
    }

    #[test]
    fn copies_move_bytes_between_and_within_blocks() {
        let mut memory = Memory::new(0);
        let (a, b) = (memory.allocate(8, Kind::Global).unwrap(), memory.allocate(8, Kind::Global).unwrap());
        memory.write(a, &[1, 2, 3, 4]).unwrap();
        memory.copy(a + 1, a, 4).unwrap();
        memory.copy(b, a, 5).unwrap();
        let mut out = [0; 5];
        memory.read(b, &mut out).unwrap();
        assert_eq!(out, [1, 1, 2, 3, 4]);
        assert_eq!(text(memory.copy(b, a, 6)), "byte +5 of the allocation of 8 bytes was never written");
    }
}
