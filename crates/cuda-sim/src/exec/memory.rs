//! Instructions that touch memory, lane by lane.

use super::{Fault, Machine};
use crate::memory::{self, Shared, Space, Touch, lanes};
use crate::ptx::{Access, Code, Inst, NONE, PARAM_BASE, SHARED_WINDOW};
use crate::status::{Failure, Status};

/// One to eight bytes as a number. It is a match over lengths, because copying a variable number of bytes would be most of an
/// access's cost.
#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    match *bytes {
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
        [a, b] => u16::from_le_bytes([a, b]).into(),
        [a] => a.into(),
        _ => 0,
    }
}

/// One execution of a memory instruction by some lanes of a warp.
#[derive(Clone, Copy)]
struct Operation<'k> {
    inst: &'k Inst,
    access: Access,
    touch: Touch,
    active: u32,
}

impl Machine<'_> {
    /// Executes a memory instruction for the lanes of `active`.
    pub(super) fn memory(&mut self, inst: &Inst, pc: usize, active: u32) -> Result<(), Fault> {
        let access = self.kernel.accesses[inst.imm as usize];
        let bytes = access.len();
        let touch = Touch { site: pc, space: access.space, bytes, read_only: access.read_only };
        let shared = self.shared_lanes(inst, &access, active);
        if shared != 0 {
            let operation = Operation { inst, access, touch, active: shared };
            match bytes {
                16 => self.shared::<16>(operation),
                8 => self.shared::<8>(operation),
                4 => self.shared::<4>(operation),
                2 => self.shared::<2>(operation),
                _ => self.shared::<1>(operation),
            }?;
        }
        let active = active & !shared;
        let operation = Operation { inst, access, touch, active };
        let count = u64::from(active.count_ones());
        match inst.code {
            Code::Load => {
                if access.space != Space::Const {
                    self.traffic.add_loads(count, bytes as u32);
                }
                match bytes {
                    16 => self.load::<16, 8>(operation),
                    8 => self.load::<8, 4>(operation),
                    4 => self.load::<4, 2>(operation),
                    2 => self.load::<2, 1>(operation),
                    _ => self.load::<1, 1>(operation),
                }
            }
            Code::Store => {
                self.traffic.add_stores(count, bytes as u32);
                match bytes {
                    16 => self.store::<16, 8>(operation),
                    8 => self.store::<8, 4>(operation),
                    4 => self.store::<4, 2>(operation),
                    _ => self.store::<2, 1>(operation),
                }
            }
            Code::Atomic => {
                self.traffic.atomics += count;
                match bytes {
                    8 => self.atomic::<8, 4>(operation),
                    _ => self.atomic::<4, 2>(operation),
                }
            }
            Code::LoadParam => {
                let value = self.param(access.offset as usize, bytes);
                lanes(active).for_each(|lane| self.put(inst, access, lane, value));
                Ok(())
            }
            _ => self.load_param_at(inst, pc, access, active),
        }
    }

    /// The lanes of a memory instruction that access shared memory: all, none, or those whose generic address is in its window.
    #[inline(always)]
    fn shared_lanes(&self, inst: &Inst, access: &Access, active: u32) -> u32 {
        match (inst.code, access.space) {
            (Code::Load | Code::Store, Space::Shared) => active,
            (Code::Load | Code::Store, Space::Generic) => {
                let addresses = &self.registers.y[usize::from(inst.a)].0;
                let address = |lane: usize| addresses[lane].wrapping_add_signed(access.offset);
                lanes(active)
                    .filter(|lane| Shared::in_window(address(*lane)))
                    .fold(0, |mask, lane| mask | 1 << lane)
            }
            _ => 0,
        }
    }

    /// Loads or stores `N` bytes of shared memory per lane.
    #[inline(never)]
    fn shared<const N: usize>(&mut self, operation: Operation) -> Result<(), Fault> {
        let Operation { inst, access, touch, .. } = operation;
        let window = if access.space == Space::Generic { SHARED_WINDOW } else { 0 };
        self.each_lane(operation, |machine, lane, address, _| {
            let address = address.wrapping_sub(window);
            let by = memory::Access { lane, pc: touch.site };
            if inst.code == Code::Load {
                let value = machine.shared.load::<N>(&machine.memory.order, by, address)?;
                machine.put(inst, access, lane, value);
                return Ok(());
            }
            let value = machine.get::<N>(inst, access, lane);
            machine.shared.store::<N>(&machine.memory.order, by, address, value)
        })
    }

    /// Calls `act(machine, lane, address, thread)` for every active lane, and blames a failure on its lane.
    #[inline(always)]
    fn each_lane(
        &mut self,
        Operation { inst, access, touch, active }: Operation,
        mut act: impl FnMut(&mut Self, usize, u64, u32) -> Result<(), Failure>,
    ) -> Result<(), Fault> {
        let addresses = self.registers.y[usize::from(inst.a)];
        for lane in lanes(active) {
            let address = addresses.0[lane].wrapping_add_signed(access.offset);
            let thread = self.first_thread.wrapping_add(lane as u32);
            act(self, lane, address, thread).map_err(|failure| Fault { pc: touch.site, lane, failure })?;
        }
        Ok(())
    }

    /// Loads `N` bytes per lane, which `CELLS` cells of the shadow record.
    fn load<const N: usize, const CELLS: usize>(&mut self, operation: Operation) -> Result<(), Fault> {
        let Operation { inst, access, touch, .. } = operation;
        self.each_lane(operation, |machine, lane, address, thread| {
            let value = machine.memory.load::<N, CELLS>(touch, address, thread)?;
            machine.put(inst, access, lane, value);
            Ok(())
        })
    }

    /// Stores `N` bytes per lane, which `CELLS` cells of the shadow record.
    fn store<const N: usize, const CELLS: usize>(&mut self, operation: Operation) -> Result<(), Fault> {
        let Operation { inst, access, touch, .. } = operation;
        self.each_lane(operation, |machine, lane, address, thread| {
            let value = machine.get::<N>(inst, access, lane);
            machine.memory.store::<N, CELLS>(touch, address, value, thread)
        })
    }

    /// Updates `N` bytes per lane atomically, which `CELLS` cells of the shadow record.
    fn atomic<const N: usize, const CELLS: usize>(&mut self, operation: Operation) -> Result<(), Fault> {
        let Operation { inst, access, touch, .. } = operation;
        let Some(op) = access.atomic else { return Ok(()) };
        self.each_lane(operation, |machine, lane, address, thread| {
            let operands = [inst.b, inst.c].map(|register| match register {
                NONE => 0,
                register if N == 8 => machine.registers.y[usize::from(register)].0[lane],
                register => machine.registers.x[usize::from(register)].0[lane].into(),
            });
            let old = machine.memory.atomic::<N, CELLS>(touch, op, address, operands, thread)?;
            if inst.d != NONE {
                machine.put(inst, access, lane, old);
            }
            Ok(())
        })
    }

    /// Loads a parameter whose address is in a register.
    fn load_param_at(&mut self, inst: &Inst, pc: usize, access: Access, active: u32) -> Result<(), Fault> {
        let addresses = self.registers.y[usize::from(inst.a)];
        let len = access.len() as u64;
        let mut last = None;
        for lane in lanes(active) {
            let offset = addresses.0[lane].wrapping_add_signed(access.offset).wrapping_sub(PARAM_BASE);
            // Most lanes read the same parameter as the lane before them, so the last value is kept.
            let value = match last {
                Some((at, value)) if at == offset => value,
                _ => {
                    if !offset.is_multiple_of(len) || !self.kernel.in_one_param(offset, len) {
                        let text = format!(
                            "reads {len} bytes at +{offset} of the parameters, not inside one, or misaligned"
                        );
                        let failure = Failure::new(Status::IllegalAddress, text);
                        return Err(Fault { pc, lane, failure });
                    }
                    self.param(offset as usize, access.len())
                }
            };
            last = Some((offset, value));
            self.put(inst, access, lane, value);
        }
        Ok(())
    }

    /// Reads a parameter: the first `len` bytes of the result are its bytes.
    fn param(&self, offset: usize, len: usize) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..len].copy_from_slice(&self.launch.params[offset..offset + len]);
        bytes
    }

    /// Writes the loaded elements to the registers of one lane.
    #[inline(always)]
    fn put<const N: usize>(&mut self, inst: &Inst, access: Access, lane: usize, value: [u8; N]) {
        let registers = [inst.d, inst.b, inst.c, inst.e].map(usize::from);
        let registers = &registers[..usize::from(access.count)];
        if access.bytes == 4 && access.register_bits == 32 {
            // Nearly all accesses are of 4-byte elements into 32-bit registers.
            for (element, &register) in value.as_chunks().0.iter().zip(registers) {
                self.registers.x[register].0[lane] = u32::from_le_bytes(*element);
            }
            return;
        }
        let shift = 64 - 8 * u32::from(access.bytes);
        for (element, &register) in value.chunks_exact(access.bytes.into()).zip(registers) {
            let raw = word(element);
            let value = if access.signed { ((raw << shift) as i64 >> shift) as u64 } else { raw };
            match access.register_bits {
                64 => self.registers.y[register].0[lane] = value,
                32 => self.registers.x[register].0[lane] = value as u32,
                _ => self.registers.x[register].0[lane] = u32::from(value as u16),
            }
        }
    }

    /// Reads the elements to store from the registers of one lane.
    #[inline(always)]
    fn get<const N: usize>(&self, inst: &Inst, access: Access, lane: usize) -> [u8; N] {
        let mut value = [0; N];
        let registers = [inst.d, inst.b, inst.c, inst.e].map(usize::from);
        if access.bytes == 4 && access.register_bits == 32 {
            for (element, register) in value.as_chunks_mut().0.iter_mut().zip(registers) {
                *element = self.registers.x[register].0[lane].to_le_bytes();
            }
            return value;
        }
        for (element, register) in value.chunks_exact_mut(access.bytes.into()).zip(registers) {
            let raw = match access.register_bits {
                64 => self.registers.y[register].0[lane],
                _ => self.registers.x[register].0[lane].into(),
            };
            element.copy_from_slice(&raw.to_le_bytes()[..element.len()]);
        }
        value
    }
}
