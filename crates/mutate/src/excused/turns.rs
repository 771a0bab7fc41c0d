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

/// The choice between a division in 64 bits and one in 32, by a test of the number's upper half.
///
/// In 64 bits every quotient is right, so a test may send there whatever it likes; numbers are below 2⁴⁰, as a step's number is, or 16 times a
/// number of tiles, of which there are at most 2³³. Within the division in 64 bits the compiler repeats the test, whose outcome is known by
/// then: the block of its own division in 32 bits is never reached, or, from the block before it, computes the same quotient once more.
pub(super) fn division(change: &Change<'_>) -> bool {
    if change.kernel.name != "make" {
        return false;
    }
    let old = change.old;
    let is = |count: usize, opcode: &str| change.before(count).is_some_and(|one| one.opcode == opcode);
    let tells_width = |one: &Instruction| change.tells_width(one.guard.trim_start_matches(['@', '!']));
    let number = change.new_integer(2).filter(|_| change.operator == Operator::Immediate);
    match old.opcode.as_str() {
        "bra" if tells_width(old) => {
            let repeats = change.before(1).is_some_and(|one| one.opcode == "bra" && one.guard == old.guard);
            let unguarded = change.operator == Operator::Guard
                && change.new.as_ref().is_some_and(|new| new.guard.is_empty());
            change.operator == Operator::Drop || (repeats && unguarded)
        }
        "setp.eq.s64" => {
            let of_mask = |and: &Instruction| {
                and.opcode == "and.b64" && and.operands.get(2).is_some_and(|m| m == UPPER_HALF)
            };
            // The other comparisons are true of numbers whose upper half is not 0.
            let never = number.is_some_and(|number| number as u32 != 0 || number as u64 >= 1 << 40);
            change.definition(&old.operands[1]).is_some_and(of_mask)
                && (never || ["setp.lt.s64", "setp.le.s64"].contains(&change.new_opcode()))
        }
        "and.b64" => {
            let upper = u64::MAX << 32;
            let covers = |mask: i64| mask as u64 | u64::MAX << 40 | !upper == u64::MAX;
            old.operands[2] == UPPER_HALF
                && (number.is_some_and(covers) || ["or.b64", "xor.b64"].contains(&change.new_opcode()))
        }
        // From the block of the division in 32 bits to behind the next one, which computes the same.
        "bra.uni" => {
            let again = || {
                let after = change.kernel.instructions.iter().skip_while(|other| other.line <= old.line);
                let next: Vec<_> = after.take(3).map(|one| one.opcode.as_str()).collect();
                next == ["cvt.u32.u64", "cvt.u32.u64", "div.u32"]
            };
            change.operator == Operator::Drop && is(1, "cvt.u64.u32") && is(2, "div.u32") && again()
        }
        // The block that is never reached stands behind that of the division in 32 bits.
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

/// The next approximations of a root and of its reciprocal's half, corrected the wrong way: the product is negated, and the addend kept.
/// `tests/roots.rs` finds three of 2²⁴ arguments whose root shows it, with some approximation.
pub(super) fn backwards(change: &Change<'_>) -> bool {
    let is_root = |count| change.before(count).is_some_and(|one| one.opcode == "rsqrt.approx.ftz.f32");
    let addend = change.after.lines().last().and_then(|fma| Instruction::parse(0, fma)?.operands.pop());
    change.operator == Operator::Sign
        && change.old.opcode == "fma.rn.f32"
        && (is_root(LAST_OF_ROOT - 4) || is_root(LAST_OF_ROOT - 3))
        && change.after.contains("neg.f32")
        && addend.as_ref() == change.old.operands.last()
}

/// The one half of a root, off by less than 2⁻¹⁹.
pub(super) fn half_of_root(change: &Change<'_>) -> bool {
    let near = |new: &Instruction| {
        let bits = new.operands[1].strip_prefix("0f").and_then(|bits| u32::from_str_radix(bits, 16).ok());
        bits.is_some_and(|bits| (f32::from_bits(bits) - 0.5).abs() < 2_f32.powi(-19))
    };
    let after_root = || change.before(2).is_some_and(|one| one.opcode == "rsqrt.approx.ftz.f32");
    change.is("mov.f32", &[(1, "0f3F000000")])
        && change.operator == Operator::Immediate
        && after_root()
        && change.new.as_ref().is_some_and(near)
}

/// The place of a root's last sum behind its approximation.
const LAST_OF_ROOT: usize = 10;

/// An operation of a root rounded otherwise, or not fused, which the next step of the iteration corrects. `tests/roots.rs` tries every mantissa with
/// every approximation that the instruction may return: the root is the same but where the residue, the last but one, is not fused,
/// and where the last sum itself is rounded otherwise.
pub(super) fn root(change: &Change<'_>) -> bool {
    let is_root =
        |count: &usize| change.before(*count).is_some_and(|one| one.opcode == "rsqrt.approx.ftz.f32");
    let Some(count) = (1..=LAST_OF_ROOT).find(is_root) else { return false };
    let in_two_steps = change.operator == Operator::Sign && change.after.contains("add.rn.f32");
    match change.old.opcode.as_str() {
        "mul.rn.f32" => change.operator == Operator::Rounding,
        "fma.rn.f32" if count == LAST_OF_ROOT => in_two_steps,
        "fma.rn.f32" if count == LAST_OF_ROOT - 1 => change.operator == Operator::Rounding,
        "fma.rn.f32" => change.operator == Operator::Rounding || in_two_steps,
        _ => false,
    }
}
