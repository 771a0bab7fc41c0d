//! Decoding: from opcode and operands to instructions.
//!
//! An opcode is matched as a whole, in two halves: everything before the last dot against fixed strings, the last part as a
//! type. A modifier that no table lists therefore matches nothing and is refused.

mod compare;
mod convert;
mod memory;
mod table;

use super::build::Builder;
use super::inst::{Code, Inst};
use super::operand::Operand;
use super::types::Ty;

type Result<T> = std::result::Result<T, String>;

/// The instructions, mostly one, that an opcode with its operands decodes to.
pub(crate) fn decode(builder: &mut Builder, opcode: &str, operands: &[Operand]) -> Result<Vec<Inst>> {
    if let Some(inst) = control(builder, opcode, operands)? {
        return Ok(vec![inst]);
    }
    let unknown = || format!("unknown instruction {opcode:?}");
    let (head, ty) = opcode.rsplit_once('.').ok_or_else(unknown)?;
    let ty = Ty::parse(ty).ok_or_else(unknown)?;
    let family = head.split('.').next().unwrap_or_default();
    match family {
        "ld" | "st" | "atom" | "red" => memory::decode(builder, head, ty, operands).map(|inst| vec![inst]),
        "setp" => compare::decode(builder, head, ty, operands),
        "cvt" | "cvta" => convert::decode(builder, head, ty, operands).map(|inst| vec![inst]),
        "mov" => mov(builder, head, ty, operands).map(|inst| vec![inst]),
        _ => arithmetic(builder, head, ty, operands).map(|inst| vec![inst]),
    }
    .map_err(|text| format!("{opcode}: {text}"))
}

fn control(builder: &mut Builder, opcode: &str, operands: &[Operand]) -> Result<Option<Inst>> {
    let code = match opcode {
        "bra" => Code::Branch,
        "bra.uni" => Code::UniformBranch,
        "ret" | "exit" => Code::Return,
        "trap" => Code::Trap,
        "bar.sync" | "barrier.sync" | "barrier.sync.aligned" => Code::Barrier,
        "bar.warp.sync" => Code::WarpBarrier,
        _ => return Ok(None),
    };
    match (code, operands) {
        (Code::Branch | Code::UniformBranch, [Operand::Plain { text, negative: false }]) => {
            builder.branch_to(text)
        }
        (Code::Return | Code::Trap, []) => {}
        (Code::Barrier, [barrier]) if immediate(barrier, Ty::U32)? == 0 => {}
        (Code::Barrier, _) => return Err(format!("{opcode}: only barrier 0, of all threads of the block")),
        (Code::WarpBarrier, [mask]) => {
            return Ok(Some(Inst::new(code, 0, &[builder.src(mask, Ty::B32)?])));
        }
        _ => return Err(format!("{opcode}: wrong operands")),
    }
    Ok(Some(Inst::new(code, 0, &[])))
}

/// Decodes an instruction that computes `d` from sources whose types follow from the opcode.
fn arithmetic(builder: &mut Builder, head: &str, ty: Ty, operands: &[Operand]) -> Result<Inst> {
    let form = table::form(head, ty).ok_or("unknown instruction, modifier or type")?;
    let [d, sources @ ..] = operands else { return Err("no operands".to_string()) };
    let expected = form.sources.len() + usize::from(form.code == Code::Lop3);
    if sources.len() != expected {
        return Err(format!("{} operands instead of {}", operands.len(), expected + 1));
    }
    let d = builder.dst(d, form.destination)?;
    let mut registers = Vec::with_capacity(4);
    for (operand, ty) in sources.iter().zip(&form.sources) {
        registers.push(builder.src(operand, *ty)?);
    }
    if form.carries {
        // The carry flag is read and written through `c` and `e`.
        let carry = builder.carry()?;
        registers.extend([carry, carry]);
    }
    let mut inst = Inst::new(form.code, d, &registers);
    if form.code == Code::Lop3 {
        inst.imm = immediate(&sources[3], Ty::U8)? as u32;
    }
    Ok(inst)
}

fn immediate(operand: &Operand, ty: Ty) -> Result<u64> {
    match operand {
        Operand::Plain { text, negative } => super::operand::literal(text, *negative, ty),
        _ => Err("expected an immediate".to_string()),
    }
}

/// Decodes `mov`: copies, addresses of symbols, packing and unpacking.
fn mov(builder: &mut Builder, head: &str, ty: Ty, operands: &[Operand]) -> Result<Inst> {
    if head != "mov" || matches!(ty.bits(), 8) || ty == Ty::F16 {
        return Err("unknown instruction, modifier or type".to_string());
    }
    let code = if ty.is_wide() { Code::Mov64 } else { Code::Mov32 };
    match operands {
        [d, Operand::Vector(elements)] => pack(builder, ty, d, elements),
        [Operand::Vector(elements), a] => unpack(builder, ty, elements, a),
        [d, Operand::Plain { text, negative: false }] if text.starts_with(is_symbol_start) => {
            if !matches!(ty, Ty::U64 | Ty::S64 | Ty::B64) {
                return Err("an address needs 64 bits".to_string());
            }
            let d = builder.dst(d, ty)?;
            Ok(Inst::new(code, d, &[builder.symbol(text, 0)?]))
        }
        [d, a] => {
            let d = builder.dst(d, ty)?;
            Ok(Inst::new(code, d, &[builder.src(a, ty)?]))
        }
        _ => Err("wrong operands".to_string()),
    }
}

fn is_symbol_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || c == '$'
}

/// The type of each part when `ty` is split into `parts`.
fn part(ty: Ty, parts: usize) -> Result<Ty> {
    match (ty, parts) {
        (Ty::B32, 2) | (Ty::B64, 4) => Ok(Ty::B16),
        (Ty::B64, 2) => Ok(Ty::B32),
        _ => Err(format!("{parts} parts of a {ty:?}")),
    }
}

fn pack(builder: &mut Builder, ty: Ty, d: &Operand, elements: &[Operand]) -> Result<Inst> {
    let part = part(ty, elements.len())?;
    let d = builder.dst(d, ty)?;
    let sources: Vec<u16> = elements.iter().map(|e| builder.src(e, part)).collect::<Result<_>>()?;
    let code = match (ty, part) {
        (Ty::B32, _) => Code::Pack16x2,
        (_, Ty::B32) => Code::Pack32x2,
        _ => Code::Pack16x4,
    };
    Ok(Inst::new(code, d, &sources))
}

fn unpack(builder: &mut Builder, ty: Ty, elements: &[Operand], a: &Operand) -> Result<Inst> {
    let part = part(ty, elements.len())?;
    let a = builder.src(a, ty)?;
    let to: Vec<u16> = elements.iter().map(|e| builder.dst(e, part)).collect::<Result<_>>()?;
    let code = match (ty, part) {
        (Ty::B32, _) => Code::Unpack16x2,
        (_, Ty::B32) => Code::Unpack32x2,
        _ => Code::Unpack16x4,
    };
    let mut sources = vec![a];
    sources.extend(&to[1..]);
    Ok(Inst::new(code, to[0], &sources))
}
