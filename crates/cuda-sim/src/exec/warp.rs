//! Control flow of one warp.
//!
//! Every lane has its own program counter. The lanes with the smallest one run together until they branch apart, return, or
//! catch up with others. Compilers lay code out so that branches meet again further down, so this keeps lanes together.

use super::lanes::{Registers, WARP, Writer};
use super::{Fault, Machine, Watch};
use crate::memory::lanes;
use crate::ptx::{Code, Inst, Kernel, Kind, NONE};
use crate::status::{Failure, Status};

/// The program counter of a lane that has returned or never started.
const DONE: u32 = u32::MAX;
/// Added to the program counter of a lane that waits at a barrier, so that no group runs it.
const WAITING: u32 = 1 << 31;

/// A warp in progress: where each of its lanes is.
#[derive(Clone)]
pub(super) struct Warp {
    pcs: [u32; WARP],
    /// The lanes that the warp began with.
    all: u32,
    steps: u64,
}

impl Default for Warp {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Warp {
    /// A warp whose lanes of `all` are at the kernel's first instruction.
    pub(super) fn new(all: u32) -> Self {
        let mut pcs = [DONE; WARP];
        send(&mut pcs, all, 0);
        Self { pcs, all, steps: 0 }
    }

    /// The barrier at which all lanes wait, after a run; none if all have returned.
    pub(super) fn waits(&self) -> Option<u32> {
        Some(self.pcs[0]).filter(|pc| *pc != DONE).map(|pc| pc & !WAITING)
    }

    /// Lets the lanes pass the barrier at which all of them wait.
    pub(super) fn release(&mut self) {
        let next = self.waits().unwrap_or_default() + 1;
        send(&mut self.pcs, self.all, next);
    }
}

/// The lanes at which a program counter is `pc`.
fn at(pcs: &[u32; WARP], pc: u32) -> u32 {
    pcs.iter().enumerate().fold(0, |mask, (lane, at)| mask | u32::from(*at == pc) << lane)
}

/// Lanes that run together, at one program counter.
struct Group {
    pc: u32,
    mask: u32,
    /// The program counter at which the next group waits.
    limit: u32,
}

impl Group {
    #[inline(always)]
    fn lowest(pcs: &[u32; WARP]) -> Option<Group> {
        let pc = pcs.iter().copied().min().filter(|pc| *pc < WAITING)?;
        let mut group = Group { pc, mask: 0, limit: DONE };
        for (lane, &at) in pcs.iter().enumerate() {
            if at == pc {
                group.mask |= 1 << lane;
            } else {
                group.limit = group.limit.min(at);
            }
        }
        Some(group)
    }
}

/// Moves the lanes of `mask` to `pc`.
fn send(pcs: &mut [u32; WARP], mask: u32, pc: u32) {
    for (lane, at) in pcs.iter_mut().enumerate() {
        if mask >> lane & 1 == 1 {
            *at = pc;
        }
    }
}

impl Machine<'_> {
    /// Runs a warp until all its lanes have returned, or wait at one barrier of the block.
    #[inline(always)]
    pub(super) fn warp<const FAST: bool>(&mut self, warp: &mut Warp) -> Result<(), Fault> {
        loop {
            while let Some(mut group) = Group::lowest(&warp.pcs) {
                self.run_group::<FAST>(&mut warp.pcs, &mut group, &mut warp.steps)?;
            }
            if !self.settle(warp)? {
                return Ok(());
            }
        }
    }

    /// Judges a warp none of whose lanes can run. Returns true if some can now, because those that they waited for have
    /// returned; refuses lanes that wait for some that do not come.
    #[inline(never)]
    fn settle(&mut self, warp: &mut Warp) -> Result<bool, Fault> {
        let live = !at(&warp.pcs, DONE);
        let Some(lane) = lanes(live).next() else { return Ok(false) };
        let (pc, together) = (warp.pcs[lane] & !WAITING, at(&warp.pcs, warp.pcs[lane]));
        let inst = &self.kernel.code[pc as usize];
        let mut missing = warp.all & !together;
        if inst.code == Code::WarpBarrier {
            self.meet(inst, &mut warp.pcs, pc, together)?;
            if warp.pcs[lane] < WAITING {
                return Ok(true);
            }
            missing = live & !together & self.registers.x[usize::from(inst.a)].0[lane];
        }
        let Some(other) = lanes(missing).next() else { return Ok(false) };
        let where_to = match warp.pcs[other] {
            DONE => "has returned".to_string(),
            other => {
                let (line, source) = &self.kernel.lines[(other & !WAITING) as usize];
                format!("waits at line {line} `{source}`")
            }
        };
        let text = format!("a barrier in divergent code: lane {lane} waits, but lane {other} {where_to}");
        Err(Fault { pc: pc as usize, lane, failure: Failure::new(Status::LaunchFailed, text) })
    }

    /// Lets lanes that have come to a `bar.warp.sync` pass, if all that it names are there.
    #[inline(never)]
    fn meet(&mut self, inst: &Inst, pcs: &mut [u32; WARP], pc: u32, came: u32) -> Result<(), Fault> {
        let masks = self.registers.x[usize::from(inst.a)].0;
        let fault = |lane, text: &str| {
            Err(Fault { pc: pc as usize, lane, failure: Failure::new(Status::LaunchFailed, text) })
        };
        for lane in lanes(came) {
            if masks[lane] >> lane & 1 == 0 {
                return fault(lane, "the lane is not in its own mask");
            }
            let (live, here) = (!at(pcs, DONE), at(pcs, WAITING | pc));
            let members = masks[lane] & live;
            if here >> lane & 1 == 0 || members & !here != 0 {
                continue;
            }
            if lanes(members).any(|other| masks[other] != masks[lane]) {
                return fault(lane, "the lanes that the mask names have other masks");
            }
            send(pcs, members, pc + 1);
            self.memory.order.warp_barrier(members);
        }
        Ok(())
    }

    /// Runs a group until its lanes diverge or reach those of another group; `pcs` then holds each lane's program counter.
    #[inline(always)]
    fn run_group<const FAST: bool>(
        &mut self,
        pcs: &mut [u32; WARP],
        group: &mut Group,
        steps: &mut u64,
    ) -> Result<(), Fault> {
        let kernel = self.kernel;
        let width = u64::from(group.mask.count_ones());
        while group.pc < group.limit {
            let inst = &kernel.code[group.pc as usize];
            self.traffic.instructions += width * u64::from(inst.weight);
            *steps += 1;
            if self.watch.lines.is_some() {
                self.note(inst, group.pc as usize, group.mask);
            }
            match inst.kind {
                Kind::Alu => self.alu::<FAST>(inst, group.mask),
                Kind::Memory => {
                    let active = self.active(inst, group.mask);
                    self.memory(inst, group.pc as usize, active)?;
                }
                Kind::Control => {
                    if self.control(inst, pcs, group, *steps)? {
                        return Ok(());
                    }
                    continue;
                }
            }
            group.pc += 1;
        }
        send(pcs, group.mask, group.pc);
        Ok(())
    }

    /// Records that the line of an instruction was executed or skipped.
    #[inline(never)]
    fn note(&mut self, inst: &Inst, pc: usize, mask: u32) {
        let active = self.active(inst, mask);
        let line = self.kernel.lines[pc].0 as usize;
        let Some(lines) = &mut self.watch.lines else { return };
        if lines.len() <= line {
            lines.resize(line + 1, 0);
        }
        lines[line] |= if active == 0 { 0 } else { Watch::RAN };
        lines[line] |= if active == mask { 0 } else { Watch::PASSED };
    }

    /// The lanes of `mask` whose guard holds.
    #[inline(always)]
    fn active(&self, inst: &Inst, mask: u32) -> u32 {
        if inst.guard == NONE {
            return mask;
        }
        let guard = self.registers.bits(inst.guard);
        mask & if inst.negate { !guard } else { guard }
    }

    #[inline(always)]
    fn alu<const FAST: bool>(&mut self, inst: &Inst, mask: u32) {
        let active = self.active(inst, mask);
        if FAST && active == u32::MAX {
            Writer::<true> { registers: &mut self.registers, mask: u32::MAX }.alu(self.kernel, inst);
        } else if active != 0 {
            self.alu_masked(inst, active);
        }
    }

    /// Executes a register operation for some lanes. Out of line, which keeps the fast path small.
    #[inline(never)]
    fn alu_masked(&mut self, inst: &Inst, active: u32) {
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2 {
            // SAFETY: the processor has both features.
            return unsafe { masked_avx2(&mut self.registers, self.kernel, inst, active) };
        }
        masked(&mut self.registers, self.kernel, inst, active);
    }

    /// Executes an instruction of control flow. Returns true if the group's lanes no longer share a program counter; `pcs` then holds them.
    fn control(
        &mut self,
        inst: &Inst,
        pcs: &mut [u32; WARP],
        group: &mut Group,
        steps: u64,
    ) -> Result<bool, Fault> {
        let (pc, mask) = (group.pc, group.mask);
        let active = self.active(inst, mask);
        let fault = |lanes: u32, status, text: &str| {
            let failure = Failure::new(status, text);
            Err(Fault { pc: pc as usize, lane: lanes.trailing_zeros() as usize, failure })
        };
        let target = match inst.code {
            _ if steps > self.watch.limit => {
                let text = format!("the warp has run {} instructions", self.watch.limit);
                return fault(mask, Status::LaunchTimeout, &text);
            }
            Code::Trap if active != 0 => return fault(active, Status::LaunchFailed, "trap"),
            Code::UniformBranch if active != 0 && active != mask => {
                return fault(mask & !active, Status::LaunchFailed, "bra.uni where lanes disagree");
            }
            Code::Return => DONE,
            Code::Barrier | Code::WarpBarrier => WAITING | pc,
            _ => inst.imm,
        };
        if active == mask && target < WAITING {
            group.pc = target;
            return Ok(false);
        }
        if active == 0 {
            group.pc += 1;
            return Ok(false);
        }
        send(pcs, mask & !active, pc + 1);
        send(pcs, active, target);
        if inst.code == Code::WarpBarrier {
            self.meet(inst, pcs, pc, active)?;
        }
        Ok(true)
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn masked_avx2(registers: &mut Registers, kernel: &Kernel, inst: &Inst, active: u32) {
    masked(registers, kernel, inst, active);
}

#[inline(always)]
fn masked(registers: &mut Registers, kernel: &Kernel, inst: &Inst, active: u32) {
    Writer::<false> { registers, mask: active }.alu(kernel, inst);
}
