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
    let or = change.old.operands.get(2).is_some_and(|mask| mask == "64")
        && (change.is("or.b16", &[]) || change.is("or.b32", &[]));
    // 0x7fff is chosen, which stays a NaN with any other bits set, and with bit 6 flipped. In a pair's second value the upper half of the
    // register is shifted out, and in the first it must stay 0.
    let result = change.old.operands.first().map_or("", String::as_str);
    let fits = || {
        change.old.opcode == "or.b16"
            || integer.is_some_and(|number| number as u32 >> 16 == 0)
            || change.is_halved(result)
    };
    or && match change.operator {
        Operator::Immediate => fits(),
        Operator::Opcode => ["xor.b16", "xor.b32"].contains(&change.new_opcode()),
        _ => false,
    }
}

impl Change<'_> {
    /// Whether nothing but the lower 16 bits of a register is used, or its bits from 16 on are set anyway.
    fn is_halved(&self, register: &str) -> bool {
        let cuts = |reader: &Instruction| {
            let last = reader.operands.last().map_or("", String::as_str);
            match reader.opcode.as_str() {
                "and.b32" => last.parse::<i64>().is_ok_and(|mask| (0..1 << 16).contains(&mask)),
                "shl.b32" => last == "16",
                "or.b32" if last == "-65536" => true,
                "selp.b32" => self.is_halved(&reader.operands[0]),
                // A NaN's sign is not set.
                "or.b32" => last == "64" && self.is_halved(&reader.operands[0]),
                "cvt.u16.u32" | "st.global.u16" => true,
                _ => false,
            }
        };
        self.readers(register).count() > 0 && self.readers(register).all(cuts)
    }
}

pub(super) fn infinity_of_f16(change: &Change<'_>) -> bool {
    if change.operator != Operator::Immediate || change.kernel.element() != "f16" {
        return false;
    }
    // Of the word that begins a thread's values, all bits but 15 are set later.
    if change.is("mov.u32", &[(1, "-1")]) {
        return change.new_integer(1).is_some_and(|new| new & 0x8000 != 0) && change.is_range();
    }
    let Some(new) = change.new_integer(2).map(|new| new as u32) else { return false };
    let result = change.old.operands.first().map_or("", String::as_str);
    // One value, or the second of a pair alone, or both. From the first alone nothing may be carried into the second.
    let halves = |is: fn(u32) -> bool| match change.old.operands[2].as_str() {
        "32767" | "31744" => is(new & 0xffff),
        "2147450879" | "2080406528" if change.is_second(result) => is(new >> 16) && new & 0xffff < 0x8000,
        "2147450879" => is(new & 0xffff) && is(new >> 16),
        _ => false,
    };
    match change.old.opcode.as_str() {
        // The exponent's bits, and one of a NaN's others.
        "and.b32" => halves(|mask| mask & !0x3ff == 0x7c00 && mask & 0x3ff != 0),
        // Carries into bit 15 from 0x3ff on, the difference of NaN and infinity, and not from 0.
        "add.s32" => halves(|summand| (0x7c01..0x8000).contains(&summand)),
        "xor.b32" => halves(|infinity| infinity == 0x7c00),
        // Of one value only bit 15 is read.
        "or.b32" => change.old.operands[2] == "-65536" && new & 0x8000 == 0,
        _ => false,
    }
}

impl Change<'_> {
    /// Whether the upper half is all that is read of a register, or of what the test for infinity makes of it.
    fn is_second(&self, register: &str) -> bool {
        let halves = |reader: &Instruction| match reader.opcode.as_str() {
            "shr.u32" => reader.operands[2] == "16",
            "xor.b32" => reader.operands[2] == "2080406528" && self.is_second(&reader.operands[0]),
            "add.s32" => reader.operands[2] == "2147450879" && self.is_second(&reader.operands[0]),
            _ => false,
        };
        self.readers(register).count() > 0 && self.readers(register).all(halves)
    }

    /// Whether the register that this writes collects whether values of a thread are in range.
    fn is_range(&self) -> bool {
        let result = self.old.operands.first().map_or("", String::as_str);
        let joins = |reader: &Instruction| {
            reader.opcode == "and.b32" || (reader.opcode == "or.b32" && reader.operands[2] == "-2147483648")
        };
        self.readers(result).count() > 0 && self.readers(result).all(joins)
    }
}

pub(super) fn half_turn(change: &Change<'_>) -> bool {
    change.new_opcode() == "shf.r.wrap.b32" && change.has_constant(&["16"])
}

pub(super) fn not_negative(change: &Change<'_>) -> bool {
    let to = change.new_opcode();
    match change.old.opcode.as_str() {
        "cvt.u64.u32" => to == "cvt.s64.s32",
        "mul.wide.u32" => to == "mul.wide.s32",
        // The shifted values are exponents of positive numbers, thread numbers or middles of segments; of f32, half is kept.
        "shr.u32" if change.old.operands[2] == "16" => {
            to == "shr.s32" && change.is_halved(&change.old.operands[0])
        }
        "shr.u32" => to == "shr.s32" && ["1", "5", "23"].contains(&change.old.operands[2].as_str()),
        "shr.u64" => to == "shr.s64",
        // The compared value is a remainder or an address.
        "setp.eq.s64" => to == "setp.le.s64" && change.old.operands[2] == "0",
        "setp.eq.s32" => to == "setp.le.s32" && change.old.operands[2] == "0",
        "setp.ne.s32" => to == "setp.gt.s32" && change.old.operands[2] == "0",
        // The compared value is a flag of 0 or 1, or several of them joined by `or`.
        "setp.eq.s16" => to == "setp.le.s16" && change.old.operands[2] == "0",
        // A bf16 becomes the upper half of an f32: copies of its sign are shifted out.
        "cvt.u32.u16" => {
            let reads =
                |other: &&Instruction| other.operands.iter().skip(1).any(|o| *o == change.old.operands[0]);
            let shifts = |other: &Instruction| other.opcode == "shl.b32" && other.operands[2] == "16";
            to == "cvt.s32.s16" && change.kernel.instructions.iter().filter(reads).all(shifts)
        }
        "setp.lt.u32" | "setp.ge.u32" => to.ends_with(".s32") && to[..7] == change.old.opcode[..7],
        // The test of a keystream word against the tail limit is excluded.
        "setp.gt.u32" => to == "setp.gt.s32" && change.old.operands[2] == "1",
        "setp.lt.u64" | "setp.le.u64" | "setp.ge.u64" => {
            to.ends_with(".s64") && to[..7] == change.old.opcode[..7]
        }
        _ => false,
    }
}

/// An index in a gradient, compared with 0 or −1 by way of its double or its quadruple: an address's offset in bytes. An index has
/// 48 bits, so none of them is shifted out, and the sign stays.
pub(super) fn multiple(change: &Change<'_>) -> bool {
    let Some(new) = change.new.as_ref().filter(|_| change.operator == Operator::Redirect) else {
        return false;
    };
    let is_multiple = |shl: &Instruction| {
        shl.opcode == "shl.b64"
            && shl.operands[1] == change.old.operands[1]
            && ["1", "2"].contains(&shl.operands[2].as_str())
    };
    let of_sign = change.is("setp.gt.s64", &[(2, "-1")]) || change.is("setp.lt.s64", &[(2, "0")]);
    of_sign
        && new.operands[2] == change.old.operands[2]
        && change.definition(&new.operands[1]).is_some_and(is_multiple)
}

pub(super) fn extension(change: &Change<'_>) -> bool {
    let near = |other: &&Instruction| (change.old.line..change.old.line + 4).contains(&other.line);
    let feeds_tail = change.kernel.instructions.iter().filter(near).any(|other| other.opcode == "bfi.b64");
    let low = |number: i64| number as u32 & !1 < 1 << 20;
    // The operand is a constant of the cipher that is added to an extension.
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

/// A tail's word as a signed number.
pub(super) fn signed_tail(change: &Change<'_>) -> bool {
    change.old.opcode == "cvt.rn.f32.u64" && change.new_opcode() == "cvt.rn.f32.s64"
}

/// A shift by 16 leaves 16 bits, and a name's family is 0, 1 or 2: masks may have any bits above.
pub(super) fn masked_zeros(change: &Change<'_>) -> bool {
    let new = change.new_integer(2).filter(|_| change.operator == Operator::Immediate);
    // A block has 128 threads, so a thread's number has 7 bits, and four times it has 9.
    let of_thread = (new.is_some_and(|mask| mask & 0x7f == 31) && change.is("and.b32", &[(2, "31")]))
        || (new.is_some_and(|mask| mask & 0x1ff == 124) && change.is("and.b32", &[(2, "124")]));
    // Bits of a mantissa's mask that the exponent's bits are put over.
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
    // The sign is the highest bit: a carry out of it is lost, so that adding it flips it.
    let is_sign = |register: &String| {
        let and = change.definition(register).filter(|and| and.opcode == "and.b32");
        and.is_some_and(|and| and.operands[2] == "-2147483648")
    };
    if (from, to) == ("xor.b32", "add.s32") {
        return change.old.operands[1..].iter().any(is_sign);
    }
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

/// Bits that a shift takes away again: of a tail's name, the lower word is taken before its highest bit is set.
pub(super) fn shifted_out(change: &Change<'_>) -> bool {
    let reads = |other: &&Instruction| other.operands.iter().skip(1).any(|o| *o == change.old.operands[0]);
    let halves = |other: &Instruction| other.opcode == "shr.u64" && other.operands[2] == "32";
    let lower = |number: i64| number >> 32 == i64::MIN >> 32;
    change.is("or.b64", &[(2, "-9223372036854775808")])
        && change.operator == Operator::Immediate
        && change.new_integer(2).is_some_and(lower)
        && change.kernel.instructions.iter().filter(reads).all(halves)
}

/// The address of a gradient as it is in the table, and as one of global memory. PTX maps a generic address to the same address of
/// global memory, unless it lies in a window of another space; memory of the host's allocations does not.
pub(super) fn same_address(change: &Change<'_>) -> bool {
    let Some(new) = change.new.as_ref().filter(|_| change.operator == Operator::Redirect) else {
        return false;
    };
    let is_cast = |one: &String, other: &String| {
        let cast = change.definition(one).filter(|cast| cast.opcode == "cvta.to.global.u64");
        cast.is_some_and(|cast| cast.operands.get(1) == Some(other))
    };
    let mut pairs = change.old.operands.iter().zip(&new.operands).filter(|(old, new)| old != new);
    change.old.opcode == "add.s64" && pairs.all(|(old, new)| is_cast(old, new) || is_cast(new, old))
}

/// Copies of one and the same constant.
pub(super) fn same_constant(change: &Change<'_>) -> bool {
    let Some(new) = change.new.as_ref().filter(|_| change.operator == Operator::Redirect) else {
        return false;
    };
    // An address is no constant, and stands first in a store.
    if change.old.operands.first() != new.operands.first() {
        return false;
    }
    let writes = |register: &str| {
        let writes = |one: &&Instruction| one.operands.first().is_some_and(|d| d == register);
        change.kernel.instructions.iter().filter(writes).count()
    };
    let constant = |operand: &str| {
        let mut operand = operand.to_owned();
        for _ in 0..4 {
            let Some(mov) = change.definition(&operand) else { break };
            // Nothing else writes the register, or nothing jumps to between.
            let is_last = writes(&operand) == 1
                || !change.kernel.labels.iter().any(|label| (mov.line..change.old.line).contains(label));
            if !mov.opcode.starts_with("mov.") || !mov.guard.is_empty() || !is_last {
                break;
            }
            operand = mov.operands[1].clone();
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
    change.operator == Operator::Immediate
        && change.is("bfi.b64", &[(3, "32"), (4, "32")])
        && position & 0xff == 32
        && length & 0xff >= 32
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
