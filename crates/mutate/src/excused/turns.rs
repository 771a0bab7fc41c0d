//! Classes of equivalent mutants in kernels that make rows ahead, in sums on the pipe of multiply-adds, and in roots.

use super::Change;
use crate::operators::Operator;
use crate::ptx::Instruction;

/// The mask that tells whether a number has more than 32 bits.
const UPPER_HALF: &str = "-4294967296";

impl Change<'_> {
    /// Whether a predicate tells if a division needs 64 bits.
    fn tells_width(&self, predicate: &str) -> bool {
        let is_test = |setp: &Instruction| {
            let is_mask = |and: &Instruction| and.opcode == "and.b64" && and.operands[2] == UPPER_HALF;
            setp.opcode == "setp.eq.s64" && self.definition(&setp.operands[1]).is_some_and(is_mask)
        };
        self.definition(predicate).is_some_and(is_test)
    }

    /// Whether a register holds a number of the launch parameters among which `one` is.
    fn is_of_launch(&self, register: &str) -> bool {
        let names = |name: &str| name.trim_matches(['{', '}', ' ']) == register;
        self.kernel.instructions.iter().any(|load| {
            let offset = load.operands.get(1).map_or("", String::as_str);
            load.opcode.starts_with("ld.param.")
                && ["+152]", "+160]", "+164]"].iter().any(|end| offset.ends_with(end))
                && load.operands[0].split(',').any(names)
        })
    }

    /// The instruction that stands `count` places before this one.
    fn before(&self, count: usize) -> Option<&Instruction> {
        let at = self.kernel.instructions.iter().position(|one| one.line == self.old.line)?;
        self.kernel.instructions.get(at.checked_sub(count)?)
    }
}

/// The choice between a division in 64 bits and one in 32, and the ones that no test's numbers need.
pub(super) fn division(change: &Change<'_>) -> bool {
    if change.kernel.name != "make" {
        return false;
    }
    let old = change.old;
    let chooses = |guard: &str| change.tells_width(guard.trim_start_matches(['@', '!']));
    let is = |count: usize, opcode: &str| change.before(count).is_some_and(|one| one.opcode == opcode);
    match old.opcode.as_str() {
        "bra" if chooses(&old.guard) => true,
        // The test, and what it looks at.
        "setp.eq.s64" => {
            let of_mask = |and: &Instruction| {
                and.opcode == "and.b64" && and.operands.get(2).is_some_and(|m| m == UPPER_HALF)
            };
            change.definition(&old.operands[1]).is_some_and(of_mask)
        }
        "and.b64" => old.operands[2] == UPPER_HALF,
        "div.u64" => true,
        "bra.uni" if is(1, "div.u64") => true,
        // The compiler's own choice within a division in 64 bits: this block stands behind that of the division in 32.
        "cvt.u32.u64" | "div.u32" | "cvt.u64.u32" => (1..=4)
            .any(|place| is(place, "bra.uni") && is(place + 1, "cvt.u64.u32") && is(place + 2, "div.u32")),
        _ => false,
    }
}

/// The test whether enough past outputs of a ring are left to read several at a time: one at a time the bits are the same.
pub(super) fn at_once(change: &Change<'_>) -> bool {
    let left = |register: &String| {
        let sub = change.definition(register).filter(|sub| sub.opcode == "sub.s32");
        sub.and_then(|sub| change.definition(&sub.operands[1])).is_some_and(|max| max.opcode == "max.u32")
    };
    let old = change.old.operands.get(2).and_then(|limit| limit.parse::<i64>().ok());
    let grows = || old.zip(change.new_integer(2)).is_some_and(|(old, new)| new > old);
    let later = || change.new_opcode() == "setp.le.u32";
    match change.old.opcode.as_str() {
        "setp.lt.u32" if left(&change.old.operands[1]) => grows() || later(),
        "setp.gt.u32" => {
            change.module.starts_with("make_ring") && [Some(1), Some(3)].contains(&old) && grows()
        }
        _ => false,
    }
}

/// A sum `x * one + y`, whose `one` is 1: it comes from the launch parameters.
pub(super) fn sum_by_one(change: &Change<'_>) -> bool {
    let Some(new) = change.new.as_ref().filter(|new| new.operands.len() == 4) else { return false };
    // The one stands before the other factor or behind it.
    let [result, a, b, y] = &change.old.operands[..] else { return false };
    let (x, one) = if change.is_of_launch(b) { (a, b) } else { (b, a) };
    change.is("mad.lo.s32", &[])
        && new.opcode == "mad.lo.s32"
        && change.is_of_launch(one)
        && (&new.operands[0], &new.operands[3]) == (result, x)
        && [[one, y], [y, one]].contains(&[&new.operands[1], &new.operands[2]])
}

/// The last bit of the noise's fraction of a unit, in kernels for 16-bit gradients.
pub(super) fn last_of_fraction(change: &Change<'_>) -> bool {
    let is_sum = |add: &Instruction| add.opcode == "add.rz.f32";
    let is_fraction =
        |fma: &Instruction| fma.opcode == "fma.rn.f32" && change.readers(&fma.operands[0]).any(is_sum);
    change.operator == Operator::Rounding
        && change.kernel.element() != "f32"
        && change.old.opcode == "fma.rn.f32"
        && (is_fraction(change.old) || change.readers(&change.old.operands[0]).any(is_fraction))
}

/// The lowest bit of a dither's stride, which is set after the mixing, in kernels for 16-bit gradients.
pub(super) fn stride(change: &Change<'_>) -> bool {
    let mixed = change.old.operands.get(1).and_then(|word| change.definition(word));
    change.is("or.b32", &[(2, "1")])
        && change.kernel.element() != "f32"
        && mixed.is_some_and(|xor| xor.opcode == "xor.b32")
        && (change.new_opcode() == "xor.b32"
            || change.new_integer(2).is_some_and(|bits| (0..16).contains(&bits)))
}

/// An operation of a root before its last, rounded otherwise or not fused. What the approximation allows is more than one such rounding.
pub(super) fn root(change: &Change<'_>) -> bool {
    let is_root =
        |count: &usize| change.before(*count).is_some_and(|one| one.opcode == "rsqrt.approx.ftz.f32");
    let in_two_steps = change.operator == Operator::Sign && change.after.contains("add.rn.f32");
    // The tenth instruction is the last correction.
    ["mul.rn.f32", "fma.rn.f32"].contains(&change.old.opcode.as_str())
        && (change.operator == Operator::Rounding || in_two_steps)
        && (1..10).any(|count| is_root(&count))
}
