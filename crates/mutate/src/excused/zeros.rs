//! Classes of mutants with a number near 0 in the place of 0: an exponent, a buffer that begins anew, a sum that begins.

use super::Change;
use crate::operators::Operator;
use crate::ptx::Instruction;

impl Change<'_> {
    /// The number that replaced a 0 which is moved or selected, if nothing else changed.
    fn for_zero(&self) -> Option<f32> {
        let zero = self.is("mov.f32", &[(1, "0f00000000")]) || self.is("selp.f32", &[(1, "0f00000000")]);
        let new = self.new.as_ref().filter(|_| zero && self.operator == Operator::Immediate)?;
        let bits = u32::from_str_radix(new.operands.get(1)?.strip_prefix("0f")?, 16).ok()?;
        Some(f32::from_bits(bits))
    }

    /// Whether one of the next instructions writes the register that this one writes.
    fn again_by(&self, opcode: &str, within: usize) -> bool {
        let Some(result) = self.old.operands.first() else { return false };
        let writes = |other: &Instruction| {
            let to = other.operands.first().map_or("", String::as_str);
            other.opcode == opcode && to.split(['{', '}', ',', ' ']).any(|name| name == result)
        };
        let after = self.kernel.instructions.iter().skip_while(|other| other.line <= self.old.line);
        after.take(within).any(writes)
    }
}

/// The exponent of a uniform from one half on. It is multiplied with 1.39 and added to a product of polynomial and argument, which is positive:
/// 2⁻³¹ at least, as the uniform is 2⁻³² or more below 1.
pub(super) fn exponent(change: &Change<'_>) -> bool {
    change.again_by("cvt.rn.f32.s32", 8)
        && change.for_zero().is_some_and(|number| number.abs() < 2_f32.powi(-60))
}

/// Whether 0 is a buffer of a BLT that begins anew: selected, or what is not loaded.
fn of_buffer(change: &Change<'_>) -> bool {
    match change.old.opcode.as_str() {
        "selp.f32" => change.module.starts_with("make_blt"),
        _ => change.module.starts_with("blt") && change.again_by("ld.global.v4.f32", 12),
    }
}

/// A buffer that begins anew. The row's noise is a normal then, at least 2⁻⁴⁶ in magnitude, whose last bit is 2⁻⁷⁰ or more.
///
/// A single buffer has a scale of at most 2, or its inverse would not be stable. Where rows of the turn before are folded into buffers, which
/// stands before the sampling, the buffer is multiplied with its decay alone, which is less than 1.
pub(super) fn fresh_buffer(change: &Change<'_>) -> bool {
    let Some(number) = change.for_zero().filter(|_| of_buffer(change)) else { return false };
    let mut before = change.kernel.instructions.iter().take_while(|other| other.line < change.old.line);
    let is_folded = change.kernel.name == "make" && !before.any(|one| one.opcode.starts_with("rsqrt."));
    let is_single = ["blt1", "blt1_80", "make_blt1"].contains(&change.module);
    number == 0.0 || ((is_folded || is_single) && number.abs() < 2_f32.powi(-90))
}

/// 2⁻⁶³ in such a buffer.
pub(super) fn tiny(change: &Change<'_>) -> bool {
    of_buffer(change) && change.for_zero() == Some(2_f32.powi(-63))
}

/// The values of a row that the turn does not make, in the kernel that has sixteen or eight in any case. They are added to rows behind it
/// alone, which the turn does not make either.
pub(super) fn no_row(change: &Change<'_>) -> bool {
    change.module.starts_with("make_ring")
        && change.is("mov.f32", &[(1, "0f00000000")])
        && [Operator::Immediate, Operator::Drop].contains(&change.operator)
        && change.again_by("ld.shared.v4.f32", 24)
}

/// The beginning of a regenerated sum of a turn: every step has a row of its own, with a weight that is not 0, and normals are not 0.
pub(super) fn sum(change: &Change<'_>) -> bool {
    change.module == "make_regenerate"
        && change.for_zero() == Some(0.0)
        && !change.again_by("cvt.rn.f32.s32", 8)
}
