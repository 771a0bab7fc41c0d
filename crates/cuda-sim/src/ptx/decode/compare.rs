//! Decodes `setp`: comparisons, optionally combined with another predicate.

use super::Result;
use crate::ptx::build::Builder;
use crate::ptx::inst::Code::{self, *};
use crate::ptx::inst::Inst;
use crate::ptx::operand::Operand;
use crate::ptx::types::Ty::{self, *};

pub(super) fn decode(builder: &mut Builder, head: &str, ty: Ty, operands: &[Operand]) -> Result<Vec<Inst>> {
    let parts: Vec<&str> = head.split('.').collect();
    let (comparison, combination) = match parts[..] {
        ["setp", comparison] => (comparison, None),
        ["setp", comparison, combination] => (comparison, Some(combination)),
        _ => return Err("unknown modifier".to_string()),
    };
    let (code, swapped) = code(comparison, ty).ok_or("unknown comparison or type")?;
    match (operands, combination) {
        ([p, a, b], None) => {
            let p = builder.dst(p, Pred)?;
            Ok(vec![compare(builder, code, swapped, p, [a, b], ty)?])
        }
        ([p, a, b, c], Some(combination)) => {
            let p = builder.dst(p, Pred)?;
            let compared = builder.temporary()?;
            let first = compare(builder, code, swapped, compared, [a, b], ty)?;
            let mut out = vec![first];
            let other = match c {
                Operand::Not(name) => {
                    let (register, declared) = builder.register(name)?;
                    let inverted = builder.temporary()?;
                    out.push(Inst { weight: 0, ..Inst::new(Not32, inverted, &[register]) });
                    Some(inverted).filter(|_| declared == Pred).ok_or("not a predicate")?
                }
                c => builder.src(c, Pred)?,
            };
            let combine = match combination {
                "and" => And32,
                "or" => Or32,
                "xor" => Xor32,
                _ => return Err(format!("unknown combination {combination:?}")),
            };
            out.push(Inst { weight: 0, ..Inst::new(combine, p, &[compared, other]) });
            Ok(out)
        }
        _ => Err("wrong operands".to_string()),
    }
}

fn compare(
    builder: &mut Builder,
    code: Code,
    swapped: bool,
    p: u16,
    [a, b]: [&Operand; 2],
    ty: Ty,
) -> Result<Inst> {
    let (a, b) = (builder.src(a, ty)?, builder.src(b, ty)?);
    Ok(Inst::new(code, p, &if swapped { [b, a] } else { [a, b] }))
}

/// The operation of a comparison, and whether its operands are swapped: `a > b` runs as `b < a`.
fn code(comparison: &str, ty: Ty) -> Option<(Code, bool)> {
    if ty == F32 {
        return float(comparison);
    }
    let wide = ty.is_wide();
    let code = match (comparison, ty) {
        (_, Pred | B8 | U8 | S8 | F16 | F32 | F64) => return None,
        ("eq", _) => return Some((if wide { Eq64 } else { Eq32 }, false)),
        ("ne", _) => return Some((if wide { Ne64 } else { Ne32 }, false)),
        ("lt" | "gt" | "lo" | "hi", U16 | U32) => LtU32,
        ("le" | "ge" | "ls" | "hs", U16 | U32) => LeU32,
        ("lt" | "gt" | "lo" | "hi", U64) => LtU64,
        ("le" | "ge" | "ls" | "hs", U64) => LeU64,
        ("lt" | "gt", S16) => LtS16,
        ("le" | "ge", S16) => LeS16,
        ("lt" | "gt", S32) => LtS32,
        ("le" | "ge", S32) => LeS32,
        ("lt" | "gt", S64) => LtS64,
        ("le" | "ge", S64) => LeS64,
        _ => return None,
    };
    Some((code, matches!(comparison, "gt" | "ge" | "hi" | "hs")))
}

fn float(comparison: &str) -> Option<(Code, bool)> {
    Some(match comparison {
        "eq" => (EqF32, false),
        "ne" => (NeF32, false),
        "lt" => (LtF32, false),
        "le" => (LeF32, false),
        "gt" => (LtF32, true),
        "ge" => (LeF32, true),
        "equ" => (EquF32, false),
        "neu" => (NeuF32, false),
        "ltu" => (LtuF32, false),
        "leu" => (LeuF32, false),
        "gtu" => (LtuF32, true),
        "geu" => (LeuF32, true),
        "num" => (NumF32, false),
        "nan" => (NanF32, false),
        _ => return None,
    })
}
