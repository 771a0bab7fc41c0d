//! Memory as a kernel sees it: one thread, one aligned access of at most 16 bytes at a time.

use super::barriers::{Clash, Deed};
use super::shadow::Race;
use super::{Access, Block, Kind, Memory, Order};
use crate::ptx::Kernel;
use crate::status::{Failure, Status};

/// A thread's number in its launch, counted over all blocks; the shadow keeps its low 29 bits.
pub(crate) type Thread = u32;

/// The state space that an instruction names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Global,
    Const,
    /// The memory of one block, which its threads share.
    Shared,
    /// The instruction names no space, so the access may be to any of the above.
    Generic,
}

/// What an atomic instruction does to the word it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomicOp {
    Add,
    MinUnsigned,
    MaxUnsigned,
    MinSigned,
    MaxSigned,
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
}

/// A memory instruction and how it accesses memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    /// The number of the instruction, by which the allocation that it last hit is remembered.
    pub site: usize,
    pub space: Space,
    /// The width of the access: 1, 2, 4, 8 or 16.
    pub bytes: usize,
    /// Whether the instruction promises that nobody writes there during the launch (`.nc`).
    pub read_only: bool,
}

/// The memory of a device during one launch.
pub(crate) struct Accessor<'a> {
    memory: &'a mut Memory,
    kernel: &'a Kernel,
    /// Per instruction, the index of the block that it hit last: nearly always it hits the same block next.
    hints: Vec<usize>,
    pub order: Order,
}

/// Why an access is a race.
enum Conflict {
    Race(Race),
    Clash(Clash),
}

impl From<Race> for Conflict {
    fn from(race: Race) -> Self {
        Self::Race(race)
    }
}

impl<'a> Accessor<'a> {
    /// Memory for a launch of blocks with `warps` warps.
    pub(crate) fn new(memory: &'a mut Memory, kernel: &'a Kernel, warps: usize) -> Self {
        memory.launch += 1;
        let order = Order::new(if kernel.needs_order() { warps } else { 0 }, memory.epoch);
        Self { memory, kernel, hints: vec![0; kernel.code.len()], order }
    }

    /// Records an access of `CELLS` cells in the shadow that suits the kernel, unless it races.
    #[inline(always)]
    fn record<const CELLS: usize>(
        order: &Order,
        launch: u64,
        block: &mut Block,
        (at, pc): (usize, usize),
        thread: Thread,
        deed: Deed,
    ) -> Result<(), Conflict> {
        if order.is_kept() {
            let access = Access { lane: order.lane(thread), pc };
            return block.barriers.touch::<CELLS>(order, access, at, deed).map_err(Conflict::Clash);
        }
        match deed {
            Deed::Write => block.shadow.write::<CELLS>(launch, at, thread)?,
            Deed::Atomic => block.shadow.atomic::<CELLS>(launch, at, thread)?,
            _ => block.shadow.read::<CELLS>(launch, at, thread, deed == Deed::ReadConstant)?,
        }
        Ok(())
    }

    /// Reads `N` bytes, which `CELLS` cells of the shadow record.
    #[inline(always)]
    pub(crate) fn load<const N: usize, const CELLS: usize>(
        &mut self,
        touch: Touch,
        address: u64,
        thread: Thread,
    ) -> Result<[u8; N], Failure> {
        let index = self.locate::<N>(touch, address, "reads")?;
        let launch = self.memory.launch;
        let block = &mut self.memory.blocks[index];
        let at = (address - block.base) as usize;
        if !block.is_written(at, N) {
            return Err(self.unwritten(touch, address));
        }
        let deed = if touch.read_only { Deed::ReadConstant } else { Deed::Read };
        if block.kind == Kind::Global
            && let Err(race) =
                Self::record::<CELLS>(&self.order, launch, block, (at, touch.site), thread, deed)
        {
            return Err(self.race("reads", touch, address, race));
        }
        block.uses.read(at);
        let mut value = [0; N];
        value.copy_from_slice(&block.bytes()[at..at + N]);
        Ok(value)
    }

    /// Writes `N` bytes, at least 2, which `CELLS` cells of the shadow record.
    #[inline(always)]
    pub(crate) fn store<const N: usize, const CELLS: usize>(
        &mut self,
        touch: Touch,
        address: u64,
        value: [u8; N],
        thread: Thread,
    ) -> Result<(), Failure> {
        let index = self.locate::<N>(touch, address, "writes")?;
        let launch = self.memory.launch;
        let block = &mut self.memory.blocks[index];
        let at = (address - block.base) as usize;
        if block.kind != Kind::Global {
            return Err(self.fault(Status::IllegalAddress, "writes", touch, address, ""));
        }
        let place = (at, touch.site);
        if let Err(race) = Self::record::<CELLS>(&self.order, launch, block, place, thread, Deed::Write) {
            return Err(self.race("writes", touch, address, race));
        }
        block.uses.write(at);
        block.set_written(at, N);
        block.bytes_mut()[at..at + N].copy_from_slice(&value);
        Ok(())
    }

    /// Replaces the word of `N` bytes, 4 or 8, at `address` and returns what was there.
    pub(crate) fn atomic<const N: usize, const CELLS: usize>(
        &mut self,
        touch: Touch,
        op: AtomicOp,
        address: u64,
        operands: [u64; 2],
        thread: Thread,
    ) -> Result<[u8; N], Failure> {
        let index = self.locate::<N>(touch, address, "atomically updates")?;
        let launch = self.memory.launch;
        let block = &mut self.memory.blocks[index];
        let at = (address - block.base) as usize;
        if block.kind != Kind::Global {
            return Err(self.fault(Status::IllegalAddress, "atomically updates", touch, address, ""));
        }
        if !block.is_written(at, N) {
            return Err(self.unwritten(touch, address));
        }
        let place = (at, touch.site);
        if let Err(race) = Self::record::<CELLS>(&self.order, launch, block, place, thread, Deed::Atomic) {
            return Err(self.race("atomically updates", touch, address, race));
        }
        block.uses.write(at);
        let word = &mut block.bytes_mut()[at..at + N];
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(word);
        let new = op.apply(u64::from_le_bytes(bytes), operands, N);
        word.copy_from_slice(&new.to_le_bytes()[..N]);
        let mut old = [0; N];
        old.copy_from_slice(&bytes[..N]);
        Ok(old)
    }

    /// The index of the block that contains the access.
    #[inline(always)]
    fn locate<const N: usize>(&mut self, touch: Touch, address: u64, verb: &str) -> Result<usize, Failure> {
        if address & (N as u64 - 1) != 0 {
            let text = format!(", an address that is not a multiple of {}", touch.bytes);
            return Err(self.fault(Status::MisalignedAddress, verb, touch, address, &text));
        }
        let hint = self.hints[touch.site];
        match self.memory.blocks.get(hint) {
            Some(block) if block.holds(address, N as u64) && in_space(touch.space, block.kind) => Ok(hint),
            _ => self.search(touch, address, verb),
        }
    }

    #[cold]
    fn search(&mut self, touch: Touch, address: u64, verb: &str) -> Result<usize, Failure> {
        let blocks = &self.memory.blocks;
        match self.memory.find(address) {
            Some(index) if blocks[index].holds(address, touch.bytes as u64) => {
                if !in_space(touch.space, blocks[index].kind) {
                    let text = format!(", which is not in the {:?} state space", touch.space);
                    return Err(self.fault(Status::IllegalAddress, verb, touch, address, &text));
                }
                self.hints[touch.site] = index;
                Ok(index)
            }
            _ => Err(self.fault(Status::IllegalAddress, verb, touch, address, "")),
        }
    }

    #[cold]
    fn unwritten(&self, touch: Touch, address: u64) -> Failure {
        self.fault(Status::LaunchFailed, "reads", touch, address, ", not all of which were written before")
    }

    #[cold]
    fn race(&self, verb: &str, touch: Touch, address: u64, conflict: Conflict) -> Failure {
        let text = match conflict {
            Conflict::Race(race) => format!(", {}", race.describe()),
            Conflict::Clash(Clash { who, verb, pc }) => {
                let (line, source) = &self.kernel.lines[pc];
                format!(", which {who} {verb} at line {line} `{source}` with no barrier between")
            }
        };
        self.fault(Status::LaunchFailed, verb, touch, address, &text)
    }

    #[cold]
    fn fault(&self, status: Status, verb: &str, touch: Touch, address: u64, text: &str) -> Failure {
        let place = self.memory.describe(address);
        Failure::new(status, format!("{verb} {} bytes at {place}{text}", touch.bytes))
    }
}

fn in_space(space: Space, kind: Kind) -> bool {
    match space {
        Space::Global => kind == Kind::Global,
        Space::Const => kind == Kind::Const,
        Space::Shared => false,
        Space::Generic => true,
    }
}

impl Drop for Accessor<'_> {
    fn drop(&mut self) {
        self.memory.epoch = self.order.epoch();
    }
}

impl AtomicOp {
    fn apply(self, old: u64, [b, c]: [u64; 2], bytes: usize) -> u64 {
        let signed = |x: u64| if bytes == 4 { i64::from(x as u32 as i32) } else { x as i64 };
        match self {
            AtomicOp::Add => old.wrapping_add(b),
            AtomicOp::MinUnsigned => old.min(b),
            AtomicOp::MaxUnsigned => old.max(b),
            AtomicOp::MinSigned => signed(old).min(signed(b)) as u64,
            AtomicOp::MaxSigned => signed(old).max(signed(b)) as u64,
            AtomicOp::And => old & b,
            AtomicOp::Or => old | b,
            AtomicOp::Xor => old ^ b,
            AtomicOp::Exchange => b,
            AtomicOp::CompareAndSwap => {
                if old == b {
                    c
                } else {
                    old
                }
            }
        }
    }
}
