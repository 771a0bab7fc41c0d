//! Instructions that touch memory, lane by lane.

use super::{Fault, Machine};
use crate::memory::{Space, Touch};
use crate::ptx::{Access, Code, Inst, NONE, PARAM_BASE};
use crate::status::{Failure, Status};

/// The lanes of `mask`.
fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

impl Machine<'_> {
    /// Executes a memory instruction for the lanes of `active`.
    pub(super) fn memory(&mut self, inst: &Inst, pc: usize, active: u32) -> Result<(), Fault> {
        let access = self.kernel.accesses[inst.imm as usize];
        let bytes = access.len();
        let touch = Touch { site: pc, space: access.space, bytes, read_only: access.read_only };
        let count = u64::from(active.count_ones());
        match inst.code {
            Code::Load => {
                if access.space != Space::Const {
                    self.traffic.add_loads(count, bytes as u32);
                }
                self.load(inst, touch, access, active)
            }
            Code::Store => {
                self.traffic.add_stores(count, bytes as u32);
                self.store(inst, touch, access, active)
            }
            Code::Atomic => {
                self.traffic.atomics += count;
                self.atomic(inst, touch, access, active)
            }
            Code::LoadParam => {
                let value = self.param(access.offset as usize, bytes);
                lanes(active).for_each(|lane| self.put(inst, access, lane, value));
                Ok(())
            }
            _ => self.load_param_at(inst, pc, access, active),
        }
    }

    fn load(&mut self, inst: &Inst, touch: Touch, access: Access, active: u32) -> Result<(), Fault> {
        let addresses = self.registers.y[usize::from(inst.a)];
        for lane in lanes(active) {
            let address = addresses.0[lane].wrapping_add_signed(access.offset);
            let thread = self.first_thread.wrapping_add(lane as u32);
            let loaded = self.memory.load(touch, address, thread);
            let value = loaded.map_err(|failure| Fault { pc: touch.site, lane, failure })?;
            self.put(inst, access, lane, value);
        }
        Ok(())
    }

    fn store(&mut self, inst: &Inst, touch: Touch, access: Access, active: u32) -> Result<(), Fault> {
        let addresses = self.registers.y[usize::from(inst.a)];
        for lane in lanes(active) {
            let address = addresses.0[lane].wrapping_add_signed(access.offset);
            let value = self.get(inst, access, lane);
            let thread = self.first_thread.wrapping_add(lane as u32);
            let stored = self.memory.store(touch, address, value, thread);
            stored.map_err(|failure| Fault { pc: touch.site, lane, failure })?;
        }
        Ok(())
    }

    fn atomic(&mut self, inst: &Inst, touch: Touch, access: Access, active: u32) -> Result<(), Fault> {
        let Some(op) = access.atomic else { return Ok(()) };
        let addresses = self.registers.y[usize::from(inst.a)];
        for lane in lanes(active) {
            let address = addresses.0[lane].wrapping_add_signed(access.offset);
            let operands = [inst.b, inst.c].map(|register| match (register, access.register_bits) {
                (NONE, _) => 0,
                (register, 64) => self.registers.y[usize::from(register)].0[lane],
                (register, _) => self.registers.x[usize::from(register)].0[lane].into(),
            });
            let updated = self.memory.atomic(touch, op, address, operands);
            let old = updated.map_err(|failure| Fault { pc: touch.site, lane, failure })?;
            if inst.d != NONE {
                self.put(inst, access, lane, old.into());
            }
        }
        Ok(())
    }

    /// A parameter at an address that is in a register.
    fn load_param_at(&mut self, inst: &Inst, pc: usize, access: Access, active: u32) -> Result<(), Fault> {
        let addresses = self.registers.y[usize::from(inst.a)];
        let len = access.len() as u64;
        let mut last = None;
        for lane in lanes(active) {
            let offset = addresses.0[lane].wrapping_add_signed(access.offset).wrapping_sub(PARAM_BASE);
            // Most lanes ask for what the lane before asked for.
            let value = match last {
                Some((at, value)) if at == offset => value,
                _ => {
                    if offset % len != 0 || !self.kernel.in_one_param(offset, len) {
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

    fn param(&self, offset: usize, len: usize) -> u128 {
        let mut bytes = [0; 16];
        bytes[..len].copy_from_slice(&self.launch.params[offset..offset + len]);
        u128::from_le_bytes(bytes)
    }

    /// Writes the loaded elements to the registers of one lane.
    #[inline(always)]
    fn put(&mut self, inst: &Inst, access: Access, lane: usize, value: u128) {
        let bits = 8 * u32::from(access.bytes);
        let registers = [inst.d, inst.b, inst.c, inst.e];
        for (element, register) in registers.into_iter().take(access.count.into()).enumerate() {
            let shift = 64 - bits;
            let raw = (value >> (bits * element as u32)) as u64;
            let value =
                if access.signed { ((raw << shift) as i64 >> shift) as u64 } else { raw << shift >> shift };
            let register = usize::from(register);
            match access.register_bits {
                64 => self.registers.y[register].0[lane] = value,
                32 => self.registers.x[register].0[lane] = value as u32,
                _ => self.registers.x[register].0[lane] = u32::from(value as u16),
            }
        }
    }

    /// Reads the elements to store from the registers of one lane.
    #[inline(always)]
    fn get(&self, inst: &Inst, access: Access, lane: usize) -> u128 {
        let bits = 8 * u32::from(access.bytes);
        let registers = [inst.d, inst.b, inst.c, inst.e];
        let mut value = 0;
        for (element, register) in registers.into_iter().take(access.count.into()).enumerate() {
            let raw = match access.register_bits {
                64 => self.registers.y[usize::from(register)].0[lane],
                _ => self.registers.x[usize::from(register)].0[lane].into(),
            };
            value |= (u128::from(raw) & ((1 << bits) - 1)) << (bits * element as u32);
        }
        value
    }
}
