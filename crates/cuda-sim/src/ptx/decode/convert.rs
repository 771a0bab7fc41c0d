//! Decodes the conversions `cvt` and `cvta`.

use super::Result;
use crate::ptx::SHARED_WINDOW;
use crate::ptx::build::Builder;
use crate::ptx::inst::Code::{self, *};
use crate::ptx::inst::{Convert, Inst, Round};
use crate::ptx::operand::{Operand, Special};
use crate::ptx::types::Ty::{self, *};

pub(super) fn decode(builder: &mut Builder, head: &str, from: Ty, operands: &[Operand]) -> Result<Inst> {
    if head == "cvt.rn.bf16x2" && from == F32 {
        return pack_bf16(builder, operands);
    }
    let [d, a] = operands else { return Err("wrong operands".to_string()) };
    let parts: Vec<&str> = head.split('.').collect();
    match (&parts[..], from) {
        // One address space: a state space's addresses are generic addresses.
        (["cvta", "global" | "const"] | ["cvta", "to", "global" | "const"], U64) => {
            let d = builder.dst(d, from)?;
            Ok(Inst::new(Mov64, d, &[builder.src(a, from)?]))
        }
        // Shared memory has addresses of its own; its window holds them among the generic ones.
        (["cvta", "shared"], U64) => shift(builder, Add64, d, a),
        (["cvta", "to", "shared"], U64) => shift(builder, Sub64, d, a),
        (["cvt", to], _) => convert(builder, None, ty(to)?, from, d, a),
        (["cvt", round, to], _) => convert(builder, Some(round), ty(to)?, from, d, a),
        _ => Err("unknown modifier".to_string()),
    }
}

fn shift(builder: &mut Builder, code: Code, d: &Operand, a: &Operand) -> Result<Inst> {
    let (d, a) = (builder.dst(d, U64)?, builder.src(a, U64)?);
    Ok(Inst::new(code, d, &[a, builder.constant(SHARED_WINDOW, true)?]))
}

/// Decodes `cvt.rn.bf16x2.f32`, whose first source becomes the upper half.
fn pack_bf16(builder: &mut Builder, operands: &[Operand]) -> Result<Inst> {
    let [d, high, low] = operands else { return Err("wrong operands".to_string()) };
    builder.needs(80)?;
    let d = builder.dst(d, B32)?;
    Ok(Inst::new(Bf16x2FromF32, d, &[builder.src(high, F32)?, builder.src(low, F32)?]))
}

fn ty(name: &str) -> Result<Ty> {
    Ty::parse(name).ok_or_else(|| format!("unknown type or modifier {name:?}"))
}

fn convert(
    builder: &mut Builder,
    round: Option<&str>,
    to: Ty,
    from: Ty,
    d: &Operand,
    a: &Operand,
) -> Result<Inst> {
    let round = rounding(round, to, from).ok_or("unknown rounding for these types")?;
    let (d, destination) = builder.dst_any(d)?;
    let (a, source) = match a {
        Operand::Plain { text, negative: false } if Special::parse(text).is_some() => {
            (builder.src(a, from)?, U32)
        }
        Operand::Plain { text, negative: false } => builder.register(text)?,
        _ => return Err("the source is not a register".to_string()),
    };
    if !to.accepts_wider(destination) || !from.accepts_wider(source) {
        return Err(format!("{source:?} and {destination:?} registers for {from:?} to {to:?}"));
    }
    let exact = destination.bits() == to.bits() && source.bits() == from.bits();
    let code = match (to, from) {
        (U64 | S64, U32) if exact => U64FromU32,
        (U64 | S64, S32) if exact => S64FromS32,
        (U32 | S32, U64 | S64) if exact => Low32,
        (U16 | S16, U32 | S32) if exact => Low16,
        (U32 | S32, U32 | S32 | U16) if exact => Mov32,
        (U64 | S64, U64 | S64) => Mov64,
        (U32 | S32, S16) if exact => S32FromS16,
        (F32, S32) if exact && round == Round::Nearest => F32FromS32,
        (F32, U32) if exact && round == Round::Nearest => F32FromU32,
        (F32, U64) if exact && round == Round::Nearest => F32FromU64,
        (F32, F16) => F32FromF16,
        (F16, F32) if round == Round::Nearest => F16FromF32,
        (F32, F32) if round == Round::Nearest => NearestF32,
        _ => {
            let (from_wide, register_bits) = (source.is_wide(), destination.bits() as u8);
            let index = builder.convert(Convert { from, to, round, from_wide, register_bits });
            return Ok(Inst::new(Convert, d, &[a]).with_imm(index));
        }
    };
    Ok(Inst::new(code, d, &[a]))
}

/// The rounding of a supported conversion. PTX demands a modifier exactly where a conversion can round.
fn rounding(round: Option<&str>, to: Ty, from: Ty) -> Option<Round> {
    match (round, to, from) {
        (None, to, from) if to.is_integer() && from.is_integer() => Some(Round::Zero),
        (None, F32, F16) => Some(Round::Nearest),
        (Some("rn"), F16, F32) => Some(Round::Nearest),
        (Some("rz"), F16, F32) => Some(Round::Zero),
        (Some(round), F32, from) if from.is_integer() => match round {
            "rn" => Some(Round::Nearest),
            "rz" => Some(Round::Zero),
            "rm" => Some(Round::Down),
            "rp" => Some(Round::Up),
            _ => None,
        },
        (Some(round), to, F32) if to.is_integer() || to == F32 => match round {
            "rni" => Some(Round::Nearest),
            "rzi" => Some(Round::Zero),
            "rmi" => Some(Round::Down),
            "rpi" => Some(Round::Up),
            _ => None,
        },
        _ => None,
    }
}
