//! Mutation operators: the changes that can be made to an instruction.
//!
//! Each operator lists every variant of an instruction that it knows, as the text that replaces it. A variant that the stand-in
//! refuses to load (a register of the wrong type, say) is not a mutant; another one is drawn instead.

use crate::ptx::{Instruction, Kernel};

/// An operator: a kind of change to an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "`name` explains each")]
pub enum Operator {
    Opcode,
    Rounding,
    Comparison,
    Sign,
    Immediate,
    Swap,
    Guard,
    Drop,
    Offset,
    Width,
    Redirect,
}

impl Operator {
    /// All operators, in the order of the table.
    pub const ALL: [Operator; 11] = [
        Operator::Opcode,
        Operator::Rounding,
        Operator::Comparison,
        Operator::Sign,
        Operator::Immediate,
        Operator::Swap,
        Operator::Guard,
        Operator::Drop,
        Operator::Offset,
        Operator::Width,
        Operator::Redirect,
    ];

    /// The operator's name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Operator::Opcode => "opcode",
            Operator::Rounding => "rounding",
            Operator::Comparison => "comparison",
            Operator::Sign => "sign",
            Operator::Immediate => "immediate",
            Operator::Swap => "swap",
            Operator::Guard => "guard",
            Operator::Drop => "drop",
            Operator::Offset => "offset",
            Operator::Width => "width",
            Operator::Redirect => "redirect",
        }
    }

    /// Every variant of an instruction of `kernel`.
    pub fn variants(self, kernel: &Kernel, instruction: &Instruction) -> Vec<String> {
        match self {
            Operator::Opcode => replaced(instruction, opcodes(&instruction.opcode)),
            Operator::Rounding => replaced(instruction, rounding(&instruction.opcode)),
            Operator::Comparison => replaced(instruction, comparisons(&instruction.opcode)),
            Operator::Sign => signs(instruction),
            Operator::Immediate => immediates(instruction),
            Operator::Swap => swaps(instruction),
            Operator::Guard => guards(instruction),
            // The instruction becomes an empty statement.
            Operator::Drop => vec![String::new()],
            Operator::Offset => offsets(instruction),
            Operator::Width => widths(kernel, instruction),
            Operator::Redirect => redirects(kernel, instruction),
        }
    }
}

fn replaced(instruction: &Instruction, opcodes: Vec<String>) -> Vec<String> {
    opcodes.into_iter().map(|opcode| Instruction { opcode, ..instruction.clone() }.text()).collect()
}

fn with_operand(instruction: &Instruction, at: usize, operand: String) -> String {
    let mut changed = instruction.clone();
    changed.operands[at] = operand;
    changed.text()
}

/// Groups of opcodes with the same operands: each can become any other of its group.
const ALIKE: &[&[&str]] = &[
    &["add.s32", "sub.s32", "xor.b32"],
    &["add.s64", "sub.s64", "or.b64"],
    &["and.b16", "or.b16", "xor.b16"],
    &["and.b32", "or.b32", "xor.b32"],
    &["and.b64", "or.b64", "xor.b64"],
    &["and.pred", "or.pred", "xor.pred"],
    &["shl.b32", "shr.u32", "shr.s32"],
    &["shl.b64", "shr.u64", "shr.s64"],
    &["shf.l.wrap.b32", "shf.r.wrap.b32"],
    &["mul.lo.s64", "mul.hi.s64", "mul.hi.u64", "add.s64"],
    &["mul.wide.u32", "mul.wide.s32"],
    &["mad.lo.s32", "mad.hi.s32"],
    &["min.u32", "max.u32", "min.s32"],
    &["add.rn.f32", "sub.rn.f32", "mul.rn.f32"],
    &["neg.f32", "abs.f32", "mov.f32"],
    &["sqrt.rn.f32", "neg.f32"],
    &["cvt.rn.f32.s32", "cvt.rn.f32.u32"],
    &["cvt.rn.f32.u64", "cvt.rn.f32.s64"],
    &["cvt.u64.u32", "cvt.s64.s32"],
    &["cvt.u32.u16", "cvt.s32.s16"],
    &[
        "atom.global.min.u64",
        "atom.global.max.u64",
        "atom.global.min.s64",
        "atom.global.add.u64",
        "atom.global.exch.b64",
    ],
];

fn opcodes(opcode: &str) -> Vec<String> {
    // `mov.f32` is only a replacement for others; the sign of a constant is changed by `Immediate`.
    let groups = ALIKE.iter().filter(|group| group.contains(&opcode) && opcode != "mov.f32");
    groups
        .flat_map(|group| group.iter())
        .filter(|other| **other != opcode)
        .map(|other| other.to_string())
        .collect()
}

fn rounding(opcode: &str) -> Vec<String> {
    if opcode.contains(".rn.") { vec![opcode.replacen(".rn.", ".rz.", 1)] } else { vec![] }
}

/// The other comparisons, and the same comparison with the other signedness.
fn comparisons(opcode: &str) -> Vec<String> {
    let Some((comparison, ty)) = opcode.strip_prefix("setp.").and_then(|rest| rest.split_once('.')) else {
        return vec![];
    };
    let others = ["eq", "ne", "lt", "le", "gt", "ge"].into_iter().filter(|other| *other != comparison);
    let mut out: Vec<String> = others.map(|other| format!("setp.{other}.{ty}")).collect();
    let resigned = match ty.split_at(1) {
        ("s", bits) => format!("u{bits}"),
        ("u", bits) => format!("s{bits}"),
        _ => ty.to_owned(),
    };
    if ty != resigned && !["eq", "ne"].contains(&comparison) {
        out.push(format!("setp.{comparison}.{resigned}"));
    }
    out
}

/// Negates one operand of an fma or product; and splits an fma into two roundings.
fn signs(instruction: &Instruction) -> Vec<String> {
    let is_fma = instruction.opcode == "fma.rn.f32";
    if !(is_fma || instruction.opcode == "mul.rn.f32") || !instruction.guard.is_empty() {
        return vec![];
    }
    let (d, sources) = (&instruction.operands[0], &instruction.operands[1..]);
    let mut out = Vec::new();
    for (i, source) in sources.iter().enumerate() {
        // The destination serves as the temporary register.
        let free = sources.iter().enumerate().all(|(k, other)| k == i || other != d);
        if free && source.starts_with('%') {
            let negated = with_operand(instruction, i + 1, d.clone());
            out.push(format!("\tneg.f32 \t{d}, {source};\n{negated}"));
        }
    }
    if let [a, b, c] = sources
        && d != c
    {
        out.push(format!("\tmul.rn.f32 \t{d}, {a}, {b};\n\tadd.rn.f32 \t{d}, {d}, {c};"));
    }
    out
}

/// The number of bits in the last part of an opcode.
fn bits(opcode: &str) -> u32 {
    let ty = opcode.rsplit('.').next().unwrap_or_default();
    ty.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse().unwrap_or(0)
}

/// An immediate plus one, minus one, zero, and with each bit flipped.
fn immediates(instruction: &Instruction) -> Vec<String> {
    let mut out = Vec::new();
    for (at, operand) in instruction.operands.iter().enumerate() {
        let values = match operand.strip_prefix("0f") {
            Some(hex) => {
                let value = u32::from_str_radix(hex, 16).unwrap_or(0);
                let flipped = (0..32).map(|bit| value ^ 1 << bit);
                let changed = [value.wrapping_add(1), value.wrapping_sub(1), 0].into_iter().chain(flipped);
                changed.map(|value| format!("0f{value:08X}")).collect::<Vec<_>>()
            }
            None => integers(operand, &instruction.opcode),
        };
        out.extend(
            values
                .into_iter()
                .filter(|value| value != operand)
                .map(|value| with_operand(instruction, at, value)),
        );
    }
    out
}

fn integers(operand: &str, opcode: &str) -> Vec<String> {
    let Ok(value) = operand.parse::<i64>() else { return vec![] };
    if opcode == "mov.pred" {
        return vec![(-1 - value).to_string()];
    }
    // A shift's distance has 32 bits, of which only the lowest matter; likewise a position in `bfi`.
    let width = if opcode.starts_with("sh") { 6 } else { bits(opcode) };
    let flipped = (0..width).map(|bit| value ^ 1_i64.wrapping_shl(bit));
    let all = [value.wrapping_add(1), value.wrapping_sub(1), 0].into_iter().chain(flipped);
    // The text of a 32-bit immediate may not exceed 32 bits.
    let wrap = |value: i64| if width == 32 { i64::from(value as i32) } else { value };
    all.map(|value| if width == 16 { value & 0xffff } else { wrap(value) }.to_string()).collect()
}

/// Swaps the sources of operations that do not commute, and neighbours in a vector.
fn swaps(instruction: &Instruction) -> Vec<String> {
    let mut out = Vec::new();
    let head = instruction.opcode.split('.').next().unwrap_or_default();
    let pairs: &[(usize, usize)] = match head {
        "setp" if ["setp.eq", "setp.ne"].iter().any(|same| instruction.opcode.starts_with(same)) => &[],
        "sub" | "selp" | "setp" | "shl" | "shr" => &[(1, 2)],
        "bfi" => &[(1, 2), (3, 4)],
        "fma" | "mad" => &[(1, 3), (2, 3)],
        _ => &[],
    };
    for &(a, b) in pairs {
        let mut changed = instruction.clone();
        changed.operands.swap(a, b);
        out.push(changed.text());
    }
    for (at, operand) in instruction.operands.iter().enumerate() {
        let Some(list) = operand.strip_prefix('{').and_then(|list| list.strip_suffix('}')) else { continue };
        let names: Vec<&str> = list.split(", ").collect();
        for i in 1..names.len() {
            let mut names = names.clone();
            names.swap(i - 1, i);
            out.push(with_operand(instruction, at, format!("{{{}}}", names.join(", "))));
        }
    }
    out.retain(|text| *text != instruction.text());
    out
}

fn guards(instruction: &Instruction) -> Vec<String> {
    let guard = &instruction.guard;
    let Some(name) = guard.strip_prefix('@') else { return vec![] };
    let negated = match name.strip_prefix('!') {
        Some(name) => format!("@{name}"),
        None => format!("@!{name}"),
    };
    [negated, String::new()].map(|guard| Instruction { guard, ..instruction.clone() }.text()).to_vec()
}

/// Moves an address by one element, or by one unit of 8 or 16 bytes, in both directions.
fn offsets(instruction: &Instruction) -> Vec<String> {
    let mut out = Vec::new();
    for (at, operand) in instruction.operands.iter().enumerate() {
        let Some(inside) = operand.strip_prefix('[').and_then(|o| o.strip_suffix(']')) else { continue };
        let (base, offset) = inside.split_once('+').unwrap_or((inside, "0"));
        let Ok(offset) = offset.parse::<i64>() else { continue };
        for change in [-16, -8, -4, -2, 2, 4, 8, 16, 512] {
            out.push(with_operand(instruction, at, format!("[{base}+{}]", offset + change)));
        }
    }
    out
}

/// Halves the width of a load or store; and adds the promise `.nc` where somebody writes.
fn widths(kernel: &Kernel, instruction: &Instruction) -> Vec<String> {
    let opcode = &instruction.opcode;
    let mut out = Vec::new();
    let is_access = opcode.starts_with("ld.") || opcode.starts_with("st.");
    if is_access && !opcode.contains(".v") {
        for (from, to) in [(".u64", ".u32"), (".u32", ".u16")] {
            if let Some(head) = opcode.strip_suffix(from) {
                out.push(format!("{head}{to}"));
            }
        }
    }
    if let Some(rest) = opcode.strip_prefix("ld.global.") {
        let address = instruction.operands.last();
        let stored =
            |other: &Instruction| other.opcode.starts_with("st.") && other.operands.first() == address;
        if kernel.instructions.iter().any(stored) {
            out.push(format!("ld.global.nc.{rest}"));
        }
    }
    replaced(instruction, out)
}

/// Replaces each source register by another one that is live.
fn redirects(kernel: &Kernel, instruction: &Instruction) -> Vec<String> {
    let mut out = Vec::new();
    let is_store = instruction.opcode.starts_with("st.");
    for at in usize::from(!is_store)..instruction.operands.len() {
        let operand = &instruction.operands[at];
        let single =
            Instruction { guard: String::new(), operands: vec![operand.clone()], ..instruction.clone() };
        for register in single.registers() {
            for other in kernel.live(&register, instruction.line) {
                out.push(with_operand(instruction, at, rename(operand, &register, other)));
            }
        }
    }
    out
}

/// The operand with register `from` renamed to `to`; `%r10` is left alone where `from` is `%r1`.
fn rename(operand: &str, from: &str, to: &str) -> String {
    let ends = |at: usize| !operand[at..].starts_with(|c: char| c.is_ascii_digit());
    match operand.match_indices(from).find(|(at, _)| ends(at + from.len())) {
        Some((at, _)) => format!("{}{to}{}", &operand[..at], &operand[at + from.len()..]),
        None => operand.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::Module;

    fn variants(operator: Operator, line: &str) -> Vec<String> {
        let before = "\tmov.u32 \t%r1, 1;\n\tmov.u32 \t%r2, 2;\n\tmov.u32 \t%r10, 2;";
        let after = "\tadd.s32 \t%r5, %r1, %r2;\n\tadd.s32 \t%r5, %r10, %r2;";
        let text = format!(".visible .entry k(\n)\n{{\n{before}\n\t{line}\n{after}\n}}\n");
        let module = Module::new("m".into(), text);
        let kernel = &module.kernels[0];
        let plain = |text: String| text.replace('\t', "");
        operator.variants(kernel, &kernel.instructions[3]).into_iter().map(plain).collect()
    }

    #[test]
    fn each_operator_changes_what_it_names() {
        let has = |operator, line: &str, changed: &str| {
            let all = variants(operator, line);
            assert!(all.iter().any(|text| text == changed), "{line}: {changed} is not among {all:?}");
            assert!(all.iter().all(|text| text != &line.replace('\t', "")), "{line} itself");
        };
        has(Operator::Opcode, "shl.b32 %r3, %r1, 2;", "shr.u32 %r3, %r1, 2;");
        has(Operator::Rounding, "fma.rn.f32 %f1, %f2, %f3, %f4;", "fma.rz.f32 %f1, %f2, %f3, %f4;");
        has(Operator::Comparison, "setp.ge.s64 %p1, %rd1, %rd2;", "setp.gt.s64 %p1, %rd1, %rd2;");
        has(Operator::Comparison, "setp.ge.s64 %p1, %rd1, %rd2;", "setp.ge.u64 %p1, %rd1, %rd2;");
        has(Operator::Sign, "mul.rn.f32 %f1, %f2, %f3;", "neg.f32 %f1, %f3;\nmul.rn.f32 %f1, %f2, %f1;");
        has(Operator::Immediate, "and.b32 %r3, %r1, 31;", "and.b32 %r3, %r1, 63;");
        has(Operator::Immediate, "and.b16 %rs3, %rs1, 32767;", "and.b16 %rs3, %rs1, 65535;");
        has(Operator::Immediate, "mov.f32 %f1, 0f3F800000;", "mov.f32 %f1, 0fBF800000;");
        has(Operator::Swap, "sub.s32 %r3, %r1, %r2;", "sub.s32 %r3, %r2, %r1;");
        has(Operator::Swap, "ld.global.v2.u32 {%r3, %r4}, [%rd1];", "ld.global.v2.u32 {%r4, %r3}, [%rd1];");
        has(Operator::Guard, "@%p1 bra $L1;", "@!%p1 bra $L1;");
        has(Operator::Guard, "@%p1 bra $L1;", "bra $L1;");
        has(Operator::Offset, "ld.global.u64 %rd2, [%rd1];", "ld.global.u64 %rd2, [%rd1+8];");
        has(Operator::Width, "ld.global.u64 %rd2, [%rd1];", "ld.global.u32 %rd2, [%rd1];");
        has(Operator::Redirect, "add.s32 %r3, %r1, %r2;", "add.s32 %r3, %r10, %r2;");
        assert_eq!(variants(Operator::Redirect, "st.global.u32 [%rd1], %r10;").len(), 2);
    }
}
