//! The warps of one block: who runs next, and where they wait for each other.

use super::lanes::{Registers, WARP};
use super::warp::Warp;
use super::{Fault, Machine, unravel};
use crate::status::{Failure, Status};

/// The warps of the block that runs. Each runs until it returns or reaches a barrier; then comes the next one's turn.
pub(super) struct Crew {
    threads: u64,
    block: u64,
    warps: Vec<Warp>,
    /// The registers of the warps that do not run, if they wait for each other; else one set of registers serves all.
    files: Vec<Registers>,
    /// The warp whose registers the machine has, if each has its own.
    inside: Option<usize>,
    next: usize,
    /// Whether the warps run for the first time in this block.
    begins: bool,
}

impl Crew {
    pub(super) fn new(machine: &Machine, threads: u64) -> Self {
        let count = threads.div_ceil(WARP as u64) as usize;
        let files = if machine.kernel.has_barriers { count } else { 0 };
        Self {
            threads,
            block: 0,
            warps: vec![Warp::default(); count],
            files: vec![machine.registers.clone(); files],
            inside: None,
            next: 0,
            begins: true,
        }
    }

    /// Puts all warps at the kernel's first instruction.
    #[inline(always)]
    pub(super) fn enter_block(&mut self, machine: &mut Machine, block: u64) {
        (self.block, self.next, self.begins) = (block, 0, true);
        machine.memory.order.enter_block();
        for (index, warp) in self.warps.iter_mut().enumerate() {
            let live = (self.threads - (WARP * index) as u64).min(WARP as u64);
            *warp = Warp::new(if live == WARP as u64 { u32::MAX } else { (1 << live) - 1 });
        }
    }

    /// The next warp to run, with its registers in the machine; none if all have returned.
    #[inline(always)]
    pub(super) fn next(&mut self, machine: &mut Machine) -> Result<Option<&mut Warp>, Fault> {
        if self.next == self.warps.len() {
            if !self.meet(machine)? {
                return Ok(None);
            }
            (self.next, self.begins) = (0, false);
        }
        let index = self.next;
        self.next += 1;
        if !self.files.is_empty() {
            self.swap(machine, index);
        }
        let (grid, first) = (machine.launch.grid, (WARP * index) as u64);
        machine.place_warp(first, self.block * self.threads + first);
        if self.begins {
            if index == 0 || !self.files.is_empty() {
                machine.enter_block(unravel(self.block, grid));
            }
            machine.enter_warp();
        }
        Ok(Some(&mut self.warps[index]))
    }

    /// Gives the machine the registers of a warp, and takes back those of the warp before it.
    fn swap(&mut self, machine: &mut Machine, index: usize) {
        if let Some(before) = self.inside.replace(index) {
            std::mem::swap(&mut machine.registers, &mut self.files[before]);
        }
        std::mem::swap(&mut machine.registers, &mut self.files[index]);
    }

    /// Lets the warps pass the barrier at which all of them wait. Returns false if all have returned.
    #[inline(always)]
    fn meet(&mut self, machine: &mut Machine) -> Result<bool, Fault> {
        let waits = self.warps.iter().position(|warp| warp.waits().is_some());
        match waits {
            None => Ok(false),
            Some(warp) => self.pass(machine, warp).map(|()| true),
        }
    }

    #[inline(never)]
    fn pass(&mut self, machine: &mut Machine, waiting: usize) -> Result<(), Fault> {
        let pc = self.warps[waiting].waits().unwrap_or_default() as usize;
        for (index, warp) in self.warps.iter().enumerate() {
            let text = match warp.waits() {
                Some(other) if other as usize == pc => continue,
                Some(other) => {
                    let (line, source) = &machine.kernel.lines[other as usize];
                    format!("warp {waiting} waits here, warp {index} at line {line} `{source}`")
                }
                None => format!("warp {waiting} waits, but warp {index} has returned"),
            };
            machine.place_warp((WARP * waiting) as u64, 0);
            return Err(Fault { pc, lane: 0, failure: Failure::new(Status::LaunchFailed, text) });
        }
        machine.memory.order.barrier();
        self.warps.iter_mut().for_each(Warp::release);
        Ok(())
    }
}
