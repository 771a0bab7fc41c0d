//! Classes of equivalent mutants in arithmetic: the result is exact, is cut off, or does not depend on the change.

use super::Change;
use crate::operators::Operator;
use crate::ptx::Instruction;

pub(super) fn exact(change: &Change<'_>) -> bool {
    let powers = ["0f2F800000", "0f1F800000"];
    change.operator == Operator::Rounding
        && match change.old.opcode.as_str() {
            "mul.rn.f32" => change.has_constant(&powers),
            "add.rn.f32" => change.has_constant(&["0fBF800000"]),
            // The conversion of an exponent is exact.
            "cvt.rn.f32.s32" => {
                let exponent = change.definition(&change.old.operands[1]);
                exponent.is_some_and(|add| add.opcode == "add.s32" && add.operands[2] == "-126")
            }
            _ => false,
        }
}

pub(super) fn nan_of_bf16(change: &Change<'_>) -> bool {
    let integer = change.new_integer(2);
    if change.is("and.b32", &[(2, "2147483647")]) && change.operator == Operator::Immediate {
        return integer
            .is_some_and(|mask| mask as u32 & 0xff80_0000 == 0x7f80_0000 && mask as u32 & 0x7f_ffff != 0);
    }
    if change.is("setp.gt.u32", &[(2, "2139095040")]) {
        let limit = integer.map(|limit| limit as u32);
        let between = limit.is_some_and(|limit| (0x7f80_0000..0x7fff_ffff).contains(&limit));
        return change.new_opcode() == "setp.gt.s32" || (change.operator == Operator::Immediate && between);
    }
    change.is("or.b16", &[(2, "64")])
        && (change.operator == Operator::Immediate || change.new_opcode() == "xor.b16")
}

pub(super) fn infinity_of_f16(change: &Change<'_>) -> bool {
    let kept = |mask: i64| mask & 0xfc00 == 0x7c00 && mask & 0x3ff != 0;
    change.is("and.b16", &[(2, "32767")])
        && change.operator == Operator::Immediate
        && change.new_integer(2).is_some_and(kept)
}

pub(super) fn half_turn(change: &Change<'_>) -> bool {
    change.new_opcode() == "shf.r.wrap.b32" && change.has_constant(&["16"])
}

pub(super) fn not_negative(change: &Change<'_>) -> bool {
    let to = change.new_opcode();
    match change.old.opcode.as_str() {
        "cvt.rn.f32.u64" => to == "cvt.rn.f32.s64",
        "cvt.u64.u32" => to == "cvt.s64.s32",
        "mul.wide.u32" => to == "mul.wide.s32",
        // The shifted values are exponents of positive numbers, upper halves of f32, thread numbers or middles of segments.
        "shr.u32" => to == "shr.s32" && ["1", "5", "16", "23"].contains(&change.old.operands[2].as_str()),
        "shr.u64" => to == "shr.s64",
        // The compared value is a remainder or an address.
        "setp.eq.s64" => to == "setp.le.s64" && change.old.operands[2] == "0",
        "setp.eq.s32" => to == "setp.le.s32" && change.old.operands[2] == "0",
        "setp.ne.s32" => to == "setp.gt.s32" && change.old.operands[2] == "0",
        "setp.lt.u32" | "setp.ge.u32" => to.ends_with(".s32") && to[..7] == change.old.opcode[..7],
        // The test of a keystream word against the tail limit is excluded.
        "setp.gt.u32" => to == "setp.gt.s32" && change.old.operands[2] == "1",
        "setp.lt.u64" | "setp.le.u64" | "setp.ge.u64" => {
            to.ends_with(".s64") && to[..7] == change.old.opcode[..7]
        }
        _ => false,
    }
}

pub(super) fn tiny(change: &Change<'_>) -> bool {
    let bits = change.new.as_ref().and_then(|new| new.operands.get(1)?.strip_prefix("0f"));
    let small = |bits: u32| bits & 0x7fff_ffff < 0x2180_0000;
    change.is("mov.f32", &[(1, "0f00000000")])
        && bits.and_then(|bits| u32::from_str_radix(bits, 16).ok()).is_some_and(small)
}

pub(super) fn extension(change: &Change<'_>) -> bool {
    let near = |other: &&Instruction| (change.old.line..change.old.line + 4).contains(&other.line);
    let feeds_tail = change.kernel.instructions.iter().filter(near).any(|other| other.opcode == "bfi.b64");
    let low = |number: i64| number as u32 & !1 < 1 << 20;
    if change.new_opcode() == "cvt.rz.f32.u64" {
        return has_no_f32_state(change);
    }
    // At the limit, the tail changes the radius by 2^-20 of itself.
    if change.is("setp.gt.u32", &[(2, "65535")]) {
        let nearly = change.new_integer(2).is_some_and(|limit| (65_533..65_538).contains(&limit));
        return has_no_f32_state(change) && (change.new_opcode() == "setp.ge.u32" || nearly);
    }
    // A constant of the cipher is added to an extension.
    let constant = change.old.operands.get(2).and_then(|constant| constant.parse::<i64>().ok());
    if change.old.opcode == "add.s32"
        && change.operator == Operator::Immediate
        && constant.is_some_and(|constant| [1_634_760_805, 2_036_477_234].contains(&constant))
    {
        let near = |new: i64| constant.is_some_and(|old| (old ^ new) < 1 << 20);
        return change.new_integer(2).is_some_and(near);
    }
    change.is("or.b32", &[(2, "1")])
        && feeds_tail
        && (change.new_opcode() == "xor.b32" || change.new_integer(2).is_some_and(low))
}

pub(super) fn first_horner(change: &Change<'_>) -> bool {
    let is_first = change.has_constant(&["0fBB96DEC9", "0f3A6B4255"])
        || (change.operator == Operator::Immediate
            && ["0fBB96DEC9", "0f3A6B4255"].contains(&change.old.operands[1].as_str()));
    // With a state in f32, only changes of a single rounding are excused.
    let slight = [Operator::Sign, Operator::Rounding].contains(&change.operator);
    is_first && (slight || has_no_f32_state(change))
}

/// Whether neither the gradient nor the state keeps the noise in f32, so that its lowest bits hardly show.
fn has_no_f32_state(change: &Change<'_>) -> bool {
    ["blt0", "regenerate", "ring_bf16"].contains(&change.module) && change.kernel.name != "noise_f32"
}

/// Masks whose other bits meet zeros: a shift by 16 leaves 16 bits, and a name's family is 0, 1 or 2.
pub(super) fn masked_zeros(change: &Change<'_>) -> bool {
    let new = change.new_integer(2).filter(|_| change.operator == Operator::Immediate);
    // A block has 128 threads; and the exponent's bits overwrite some bits of the mantissa's mask.
    let of_thread = new.is_some_and(|mask| mask & 0x7f == 31) && change.is("and.b32", &[(2, "31")]);
    let of_mantissa = new.is_some_and(|mask| mask & !0x3f00_0000 == 0x7f_ffff);
    // After a shift to the left, the lowest bit is zero.
    let of_sign =
        new.is_some_and(|mask| mask as u32 == 0x8000_0001) && change.is("and.b32", &[(2, "-2147483648")]);
    of_thread
        || of_sign
        || (of_mantissa && change.is("and.b32", &[(2, "8388607")]))
        || (change.is("and.b32", &[(2, "1")]) && new.is_some_and(|mask| mask & 0xffff == 1))
        || (change.is("and.b64", &[(2, "2097120")]) && new.is_some_and(|mask| mask & 0x7f_ffff == 0x1f_ffe0))
}

pub(super) fn any_nan(change: &Change<'_>) -> bool {
    let bits = change.new.as_ref().and_then(|new| new.operands.get(1)?.strip_prefix("0f"));
    let is_nan = |bits: u32| bits & 0x7fff_ffff > 0x7f80_0000;
    change.is("mov.f32", &[(1, "0f7FC00000")])
        && bits.and_then(|bits| u32::from_str_radix(bits, 16).ok()).is_some_and(is_nan)
}

pub(super) fn small_coefficient(change: &Change<'_>) -> bool {
    let bits = change.new.as_ref().and_then(|new| new.operands.get(1)?.strip_prefix("0f"));
    let near = |bits: u32| bits ^ 0xb33b_bd2e < 1 << 10;
    change.is("mov.f32", &[(1, "0fB33BBD2E")])
        && bits.and_then(|bits| u32::from_str_radix(bits, 16).ok()).is_some_and(near)
}

/// An `or` with bits that a shift or mask has just cleared.
pub(super) fn disjoint(change: &Change<'_>) -> bool {
    let cleared = |register: &String| {
        let opcode = change.definition(register).map_or("", |definition| &definition.opcode);
        ["shl.b32", "shl.b64", "and.b32"].contains(&opcode)
    };
    let (from, to) = (change.old.opcode.as_str(), change.new_opcode());
    // The cosine is positive before exclusive or sets its sign.
    let pairs = [("or.b32", "xor.b32"), ("or.b64", "xor.b64"), ("or.b64", "add.s64"), ("xor.b32", "or.b32")];
    let exclusive = pairs.contains(&(from, to));
    exclusive && change.old.operands[1..].iter().any(cleared)
}

/// Comparisons of a uniform with 0: a uniform is neither 0 nor below 2⁻⁶⁴ in magnitude.
pub(super) fn uniform(change: &Change<'_>) -> bool {
    let bits = change.new.as_ref().and_then(|new| new.operands.get(2)?.strip_prefix("0f"));
    let small = |bits: u32| bits & 0x7fff_ffff < 0x1f80_0000;
    change.is("setp.lt.f32", &[(2, "0f00000000")])
        && match change.operator {
            Operator::Comparison => change.new_opcode() == "setp.le.f32",
            Operator::Immediate => {
                bits.and_then(|bits| u32::from_str_radix(bits, 16).ok()).is_some_and(small)
            }
            _ => false,
        }
}

/// A register replaced by another one that holds the same constant.
pub(super) fn same_constant(change: &Change<'_>) -> bool {
    let Some(new) = change.new.as_ref().filter(|_| change.operator == Operator::Redirect) else {
        return false;
    };
    let constant = |operand: &str| {
        let mut operand = operand.to_owned();
        for _ in 0..4 {
            match change.definition(&operand) {
                Some(mov) if mov.opcode.starts_with("mov.") => operand = mov.operands[1].clone(),
                _ => break,
            }
        }
        Some(operand).filter(|operand| !operand.starts_with('%'))
    };
    let pairs = change.old.operands.iter().zip(&new.operands).skip(1);
    pairs
        .filter(|(old, new)| old != new)
        .all(|(old, new)| constant(old).is_some() && constant(old) == constant(new))
}

/// The distance of a funnel shift, held in a register.
pub(super) fn amount(change: &Change<'_>) -> bool {
    let old = change.old.operands.get(1).and_then(|operand| operand.parse::<i64>().ok());
    let (Some(old), Some(new)) = (old, change.new_integer(1)) else { return false };
    let rotates =
        |other: &Instruction| other.opcode.starts_with("shf.") && other.operands[3] == change.old.operands[0];
    change.old.opcode == "mov.u32" && (old - new) % 32 == 0 && change.kernel.instructions.iter().any(rotates)
}

/// The position and the length of a bit field that ends at the register's top.
pub(super) fn field(change: &Change<'_>) -> bool {
    let (Some(position), Some(length)) = (change.new_integer(3), change.new_integer(4)) else { return false };
    change.is("bfi.b64", &[(3, "32"), (4, "32")]) && position & 0xff == 32 && length & 0xff >= 32
}

/// A flag that is set where there is no schedule, and read through a mask of 8 bits.
pub(super) fn set_flag(change: &Change<'_>) -> bool {
    let flag = change.old.operands.first();
    let reads = |other: &&Instruction| other.operands.iter().skip(1).any(|operand| Some(operand) == flag);
    let masks = |reader: &Instruction| reader.opcode == "and.b16" && reader.operands[2] == "255";
    change.is("mov.u16", &[(1, "1")])
        && change.new_integer(1).is_some_and(|number| number & 0xff != 0)
        && change.kernel.instructions.iter().filter(reads).all(masks)
}

/// The value of a flag, of which only the lowest bit matters.
pub(super) fn flag(change: &Change<'_>) -> bool {
    let odd = |number: i64| number & 1 == 1;
    if change.is("and.b16", &[(2, "255")]) {
        return change.operator == Operator::Immediate && change.new_integer(2).is_some_and(odd);
    }
    change.is("selp.u16", &[(1, "1"), (2, "0")]) && change.new_integer(1).is_some_and(odd)
}
