//! Decodes the memory instructions `ld`, `st`, `atom` and `red`.

use super::Result;
use crate::memory::{AtomicOp, Space};
use crate::ptx::build::Builder;
use crate::ptx::inst::{Access, Code, Inst, NONE};
use crate::ptx::operand::Operand;
use crate::ptx::types::Ty::{self, *};

pub(super) fn decode(builder: &mut Builder, head: &str, ty: Ty, operands: &[Operand]) -> Result<Inst> {
    let parts: Vec<&str> = head.split('.').collect();
    match (&parts[..], operands) {
        (["ld", modifiers @ ..], [d, Operand::Address { base, offset }]) => {
            load(builder, modifiers, ty, d, base, *offset)
        }
        (["st", modifiers @ ..], [Operand::Address { base, offset }, a]) => {
            store(builder, modifiers, ty, base, *offset, a)
        }
        (["atom", "global", op], [d, Operand::Address { base, offset }, values @ ..]) => {
            let d = builder.dst(d, ty)?;
            atomic(builder, op, ty, d, (base, *offset), values)
        }
        (["red", "global", op], [Operand::Address { base, offset }, values @ ..])
            if *op != "cas" && *op != "exch" =>
        {
            atomic(builder, op, ty, NONE, (base, *offset), values)
        }
        _ => Err("unknown modifier or wrong operands".to_string()),
    }
}

/// The modifiers between `ld` or `st` and the type.
struct Modifiers {
    /// The state space; none for parameters.
    space: Option<Space>,
    count: u8,
    read_only: bool,
}

/// Parses the modifiers, in PTX's order. Caching hints change no value and are dropped; `.nc` is a promise that is kept and checked.
fn modifiers(parts: &[&str], hints: &[&str]) -> Result<Modifiers> {
    let mut out = Modifiers { space: Some(Space::Generic), count: 1, read_only: false };
    let mut rest = parts;
    if let [space @ ("global" | "const" | "param" | "shared"), tail @ ..] = rest {
        rest = tail;
        out.space = match *space {
            "global" => Some(Space::Global),
            "const" => Some(Space::Const),
            "shared" => Some(Space::Shared),
            _ => None,
        };
    }
    let global = out.space == Some(Space::Global);
    if let [hint, tail @ ..] = rest
        && global
        && hints.contains(hint)
    {
        rest = tail;
    }
    if let ["nc", tail @ ..] = rest
        && global
        && hints.contains(&"ca")
    {
        (rest, out.read_only) = (tail, true);
    }
    for level in
        [["L1::no_allocate", "L1::evict_first", "L1::evict_last"], ["L2::64B", "L2::128B", "L2::256B"]]
    {
        if let [hint, tail @ ..] = rest
            && global
            && level.contains(hint)
        {
            rest = tail;
        }
    }
    if let [vector @ ("v2" | "v4"), tail @ ..] = rest {
        (rest, out.count) = (tail, if *vector == "v2" { 2 } else { 4 });
    }
    match rest {
        [] => Ok(out),
        [unknown, ..] => Err(format!("unknown modifier {unknown:?}")),
    }
}

/// The elements of an operand that must have `count` of them.
fn elements<'o, 't>(operand: &'o Operand<'t>, count: u8) -> Result<&'o [Operand<'t>]> {
    match operand {
        Operand::Vector(elements) if count > 1 && elements.len() == usize::from(count) => Ok(elements),
        plain @ Operand::Plain { .. } if count == 1 => Ok(std::slice::from_ref(plain)),
        _ => Err(format!("expected {count} registers")),
    }
}

fn access(modifiers: &Modifiers, ty: Ty, offset: i64, register_bits: u32) -> Result<Access> {
    let access = Access {
        space: modifiers.space.unwrap_or(Space::Generic),
        offset,
        bytes: ty.bytes() as u8,
        count: modifiers.count,
        register_bits: register_bits as u8,
        signed: ty.is_signed(),
        read_only: modifiers.read_only,
        atomic: None,
    };
    if ty == Pred || access.len() > 16 {
        return Err(format!("{} times {ty:?} cannot be accessed", modifiers.count));
    }
    Ok(access)
}

fn load(builder: &mut Builder, parts: &[&str], ty: Ty, d: &Operand, base: &str, offset: i64) -> Result<Inst> {
    let modifiers = modifiers(parts, &["ca", "cg", "cs", "lu"])?;
    let mut to = Vec::with_capacity(4);
    let mut bits = 0;
    for element in elements(d, modifiers.count)? {
        let (register, declared) = builder.dst_any(element)?;
        if !ty.accepts_wider(declared) || (bits != 0 && bits != declared.bits()) {
            return Err(format!("a {declared:?} register for a {ty:?}"));
        }
        bits = declared.bits();
        to.push(register);
    }
    let mut access = access(&modifiers, ty, offset, bits)?;
    let mut sources = vec![NONE];
    sources.extend(&to[1..]);
    let code = match (modifiers.space, base.starts_with('%')) {
        (Some(_), _) => {
            (sources[0], access.offset) = address(builder, base, offset)?;
            Code::Load
        }
        (None, true) => {
            (sources[0], access.offset) = address(builder, base, offset)?;
            Code::LoadParamAt
        }
        (None, false) => {
            access.offset = param_offset(builder, base, offset, access.len())?;
            Code::LoadParam
        }
    };
    let index = builder.access(access);
    Ok(Inst::new(code, to[0], &sources).with_imm(index))
}

fn store(
    builder: &mut Builder,
    parts: &[&str],
    ty: Ty,
    base: &str,
    offset: i64,
    a: &Operand,
) -> Result<Inst> {
    let modifiers = modifiers(parts, &["wb", "cg", "cs", "wt"])?;
    let least = match modifiers.space {
        Some(Space::Global | Space::Generic) => 2,
        Some(Space::Shared) => 4,
        _ => return Err("only global and shared memory can be written".to_string()),
    };
    if ty.bytes() < least {
        let text =
            format!("{}-bit stores are refused: races are looked for in units of {least} bytes", ty.bits());
        return Err(text);
    }
    let mut from = Vec::with_capacity(4);
    let mut bits = 0;
    for element in elements(a, modifiers.count)? {
        let (register, register_bits) = stored(builder, element, ty)?;
        if bits != 0 && bits != register_bits {
            return Err("registers of different widths".to_string());
        }
        bits = register_bits;
        from.push(register);
    }
    let (address, offset) = address(builder, base, offset)?;
    let index = builder.access(access(&modifiers, ty, offset, bits)?);
    let mut sources = vec![address];
    sources.extend(&from[1..]);
    Ok(Inst::new(Code::Store, from[0], &sources).with_imm(index))
}

/// The register of a value to store, and its bits. It may be wider than the type: then its low part is stored.
fn stored(builder: &mut Builder, operand: &Operand, ty: Ty) -> Result<(u16, u32)> {
    if let Ok((register, declared)) = builder.dst_any(operand)
        && ty.accepts_wider(declared)
    {
        return Ok((register, declared.bits()));
    }
    Ok((builder.src(operand, ty)?, ty.bits()))
}

/// A register that holds the base address, and the offset that is left to add.
fn address(builder: &mut Builder, base: &str, offset: i64) -> Result<(u16, i64)> {
    if !base.starts_with('%') {
        return Ok((builder.symbol(base, offset)?, 0));
    }
    let (register, declared) = builder.register(base)?;
    if U64.accepts(declared) {
        Ok((register, offset))
    } else {
        Err(format!("an address in a {declared:?} register"))
    }
}

/// An offset into the parameter block, checked against the named parameter's bounds and alignment.
fn param_offset(builder: &Builder, name: &str, offset: i64, len: usize) -> Result<i64> {
    let param = builder.find_param(name).ok_or_else(|| format!("unknown parameter {name}"))?;
    let inside = usize::try_from(offset).is_ok_and(|offset| offset + len <= param.size);
    let at = param.offset as i64 + offset;
    if inside && at % len as i64 == 0 {
        Ok(at)
    } else {
        Err(format!("{len} bytes at +{offset} of {name}, a parameter of {} bytes", param.size))
    }
}

fn atomic(
    builder: &mut Builder,
    op: &str,
    ty: Ty,
    d: u16,
    (base, offset): (&str, i64),
    values: &[Operand],
) -> Result<Inst> {
    let op = match (op, ty) {
        ("add", U32 | S32 | U64) => AtomicOp::Add,
        ("min", U32 | U64) => AtomicOp::MinUnsigned,
        ("max", U32 | U64) => AtomicOp::MaxUnsigned,
        ("min", S32 | S64) => AtomicOp::MinSigned,
        ("max", S32 | S64) => AtomicOp::MaxSigned,
        ("and", B32 | B64) => AtomicOp::And,
        ("or", B32 | B64) => AtomicOp::Or,
        ("xor", B32 | B64) => AtomicOp::Xor,
        ("exch", B32 | B64) => AtomicOp::Exchange,
        ("cas", B32 | B64) => AtomicOp::CompareAndSwap,
        _ => return Err("unknown atomic operation or type".to_string()),
    };
    if values.len() != if op == AtomicOp::CompareAndSwap { 2 } else { 1 } {
        return Err("wrong operands".to_string());
    }
    let (address, offset) = address(builder, base, offset)?;
    let mut sources = vec![address];
    for value in values {
        sources.push(builder.src(value, ty)?);
    }
    let modifiers = Modifiers { space: Some(Space::Global), count: 1, read_only: false };
    let access = Access { atomic: Some(op), ..access(&modifiers, ty, offset, ty.bits())? };
    let index = builder.access(access);
    Ok(Inst::new(Code::Atomic, d, &sources).with_imm(index))
}
