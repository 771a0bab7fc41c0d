//! Classes of equivalent mutants in the sum on the output grid, and in tails of two words.

use super::Change;
use crate::operators::Operator;
use crate::ptx::Instruction;

impl Change<'_> {
    /// The instructions that read a register.
    pub(super) fn readers<'a>(&'a self, register: &'a str) -> impl Iterator<Item = &'a Instruction> {
        let reads = move |other: &&Instruction| other.operands.iter().skip(1).any(|o| o == register);
        self.kernel.instructions.iter().filter(reads)
    }

    /// Whether one of the sources is written by an instruction with a property.
    fn has_source(&self, is: impl Fn(&Instruction) -> bool) -> bool {
        self.old.operands.iter().skip(1).filter_map(|source| self.definition(source)).any(is)
    }
}

fn is_nearest(instruction: &Instruction) -> bool {
    instruction.opcode == "cvt.rni.f32.f32"
}

/// Operations on the grid whose results f32 represents: products with powers of two, and a gradient's distance from an integer. Only a gradient
/// in f16 has room for the product with the grid's reciprocal, and only below 2²⁴ units are sums of integers exact.
pub(super) fn exact(change: &Change<'_>) -> bool {
    let is_power = |mov: &Instruction| {
        let bits = change.definition(&mov.operands[1]);
        // The factor of a tail.
        let power = |from: &Instruction| from.opcode == "selp.b32" && from.operands[1] == "260046848";
        mov.opcode == "mov.b32" && bits.is_some_and(power)
    };
    let of_nearest = |neg: &Instruction| {
        neg.opcode == "neg.f32" && change.definition(&neg.operands[1]).is_some_and(is_nearest)
    };
    let is_sum = |add: &Instruction| {
        let first = || change.definition(&add.operands[1]);
        add.opcode == "add.rn.f32" && first().is_some_and(is_nearest)
    };
    change.operator == Operator::Rounding
        && match change.old.opcode.as_str() {
            "add.rn.f32" => {
                change.has_constant(&["0f40600000", "0f40200000"]) || change.has_source(of_nearest)
            }
            "mul.rn.f32" => {
                change.has_source(is_power)
                    // The gradient in units, and the sum in units.
                    || (change.kernel.element() == "f16"
                        && change.readers(&change.old.operands[0]).any(is_nearest))
                    || change.has_source(is_sum)
            }
            _ => false,
        }
}

/// The choice between one and two more words for a radius word of 0, and the second of them.
pub(super) fn second_tail_word(change: &Change<'_>) -> bool {
    let old = change.old;
    let result = old.operands.first().map_or("", String::as_str);
    let is_low = |selp: &Instruction| {
        let low = |or: &Instruction| or.opcode == "or.b32" && or.operands[2] == "1";
        selp.opcode == "selp.b32" && change.readers(&selp.operands[0]).any(low)
    };
    let only = |register: &str, is: &dyn Fn(&Instruction) -> bool| {
        change.readers(register).count() > 0 && change.readers(register).all(is)
    };
    // The sum is a tail's second word, which is used where the radius word is 0.
    let is_second = |add: &Instruction| {
        let sum = add.operands.first().map_or("", String::as_str);
        add.opcode == "add.s32" && only(sum, &|selp: &Instruction| is_low(selp) && selp.operands[1] == sum)
    };
    match old.opcode.as_str() {
        "setp.eq.s32" => {
            let chooses = |selp: &Instruction| selp.opcode == "selp.b32" && selp.operands[1] == "260046848";
            change.readers(result).any(chooses)
        }
        "selp.b32" => {
            let others_kept = |new: &Instruction| {
                new.opcode == old.opcode
                    && (&new.operands[0], &new.operands[2..]) == (&old.operands[0], &old.operands[2..])
            };
            is_low(old) && change.new.as_ref().is_some_and(others_kept)
        }
        "add.s32" => is_second(old),
        // What is added there is half of the block's number or of the row's.
        "cvt.u32.u64" => only(result, &is_second),
        "shr.u64" => only(result, &|cvt: &Instruction| {
            cvt.opcode == "cvt.u32.u64" && only(&cvt.operands[0], &is_second)
        }),
        _ => false,
    }
}

/// The value of a coordinate that does not exist, before the guarded load that would overwrite it.
pub(super) fn no_coordinate(change: &Change<'_>) -> bool {
    let is_zero = |mov: &Instruction| {
        let of = |opcode: &str, number: &str| mov.opcode == opcode && mov.operands[1] == number;
        of("mov.u16", "0") || of("mov.f32", "0f00000000")
    };
    // The same zero for the next value, which is loaded later.
    let copies = change.is("mov.u16", &[]) || change.is("mov.f32", &[]);
    let zero = is_zero(change.old) || (copies && change.has_source(is_zero));
    let loads = |load: &Instruction| {
        ["ld.global.u16", "ld.global.f32"].contains(&load.opcode.as_str())
            && load.operands.first() == change.old.operands.first()
    };
    zero && [Operator::Immediate, Operator::Drop].contains(&change.operator)
        && change.kernel.instructions.iter().any(loads)
}

/// The test whether there is a grid.
pub(super) fn no_grid(change: &Change<'_>) -> bool {
    change.is("setp.eq.f32", &[(2, "0f00000000")]) && change.new_opcode() == "setp.le.f32"
}
