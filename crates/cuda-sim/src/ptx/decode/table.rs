//! The table of arithmetic instructions: from opcode to operation and operand types.

use crate::ptx::inst::Code::{self, *};
use crate::ptx::types::Ty::{self, *};

/// An operation and the types of its operands.
pub(super) struct Form {
    pub code: Code,
    pub destination: Ty,
    pub sources: Vec<Ty>,
    /// Whether the operation reads or writes the carry flag.
    pub carries: bool,
}

/// The form of `head.ty`, such as `mul.wide` and `u32`; none if the table does not list it.
pub(super) fn form(head: &str, ty: Ty) -> Option<Form> {
    if let Some(code) = unary(head, ty) {
        return Some(same(code, ty, 1));
    }
    if let Some(code) = count(head, ty) {
        return Some(Form { destination: U32, ..same(code, ty, 1) });
    }
    if let Some(code) = binary(head, ty) {
        return Some(same(code, ty, 2));
    }
    if let Some(code) = ternary(head, ty) {
        return Some(same(code, ty, 3));
    }
    mixed(head, ty).or_else(|| carry(head, ty))
}

/// The form whose destination and `count` sources all have type `ty`.
fn same(code: Code, ty: Ty, count: usize) -> Form {
    Form { code, destination: ty, sources: vec![ty; count], carries: false }
}

#[rustfmt::skip]
fn unary(head: &str, ty: Ty) -> Option<Code> {
    Some(match (head, ty) {
        ("not", Pred | B32) => Not32, ("not", B16) => Not16, ("not", B64) => Not64,
        ("neg", S16) => Neg16, ("neg", S32) => Neg32, ("neg", S64) => Neg64, ("neg", F32) => NegF32,
        ("abs", S16) => Abs16, ("abs", S32) => Abs32, ("abs", S64) => Abs64, ("abs", F32) => AbsF32,
        ("brev", B32) => Brev32, ("brev", B64) => Brev64,
        ("sqrt.rn", F32) => SqrtF32, ("rcp.rn", F32) => RcpF32, ("sqrt.rz", F32) => SqrtRzF32,
        ("rsqrt.approx.ftz", F32) => RsqrtApproxF32,
        _ => return None,
    })
}

/// Operations that count bits; their results are `.u32` whatever the source type.
fn count(head: &str, ty: Ty) -> Option<Code> {
    Some(match (head, ty) {
        ("clz", B32) => Clz32,
        ("clz", B64) => Clz64,
        ("popc", B32) => Popc32,
        ("popc", B64) => Popc64,
        _ => return None,
    })
}

/// Operations of two operands of one type. Unsigned and bitwise operations of 16 bits are those of 32 bits, since a 16-bit
/// value has zeros above it.
#[rustfmt::skip]
fn binary(head: &str, ty: Ty) -> Option<Code> {
    Some(match (head, ty) {
        ("add", U16 | S16) => Add16, ("add", U32 | S32) => Add32, ("add", U64 | S64) => Add64,
        ("sub", U16 | S16) => Sub16, ("sub", U32 | S32) => Sub32, ("sub", U64 | S64) => Sub64,
        ("mul.lo", U16 | S16) => MulLo16, ("mul.lo", U32 | S32) => MulLo32, ("mul.lo", U64 | S64) => MulLo64,
        ("mul.hi", U16) => MulHiU16, ("mul.hi", U32) => MulHiU32, ("mul.hi", U64) => MulHiU64,
        ("mul.hi", S16) => MulHiS16, ("mul.hi", S32) => MulHiS32, ("mul.hi", S64) => MulHiS64,
        ("div", U16 | U32) => DivU32, ("div", U64) => DivU64,
        ("div", S16) => DivS16, ("div", S32) => DivS32, ("div", S64) => DivS64,
        ("rem", U16 | U32) => RemU32, ("rem", U64) => RemU64,
        ("rem", S16) => RemS16, ("rem", S32) => RemS32, ("rem", S64) => RemS64,
        ("min", U16 | U32) => MinU32, ("min", U64) => MinU64,
        ("min", S16) => MinS16, ("min", S32) => MinS32, ("min", S64) => MinS64,
        ("max", U16 | U32) => MaxU32, ("max", U64) => MaxU64,
        ("max", S16) => MaxS16, ("max", S32) => MaxS32, ("max", S64) => MaxS64,
        ("and", Pred | B16 | B32) => And32, ("and", B64) => And64,
        ("or", Pred | B16 | B32) => Or32, ("or", B64) => Or64,
        ("xor", Pred | B16 | B32) => Xor32, ("xor", B64) => Xor64,
        ("add.rn", F32) => AddF32, ("sub.rn", F32) => SubF32, ("mul.rn", F32) => MulF32, ("div.rn", F32) => DivF32,
        ("add.rz", F32) => AddRzF32, ("sub.rz", F32) => SubRzF32, ("mul.rz", F32) => MulRzF32,
        ("min", F32) => MinF32, ("max", F32) => MaxF32, ("copysign", F32) => CopysignF32,
        _ => return None,
    })
}

#[rustfmt::skip]
fn ternary(head: &str, ty: Ty) -> Option<Code> {
    Some(match (head, ty) {
        ("mad.lo", U16 | S16) => MadLo16, ("mad.lo", U32 | S32) => MadLo32, ("mad.lo", U64 | S64) => MadLo64,
        ("mad.hi", U32) => MadHiU32, ("mad.hi", S32) => MadHiS32,
        ("shf.l.wrap", B32) => ShfLWrap, ("shf.r.wrap", B32) => ShfRWrap,
        ("shf.l.clamp", B32) => ShfLClamp, ("shf.r.clamp", B32) => ShfRClamp,
        ("prmt", B32) => Prmt, ("lop3", B32) => Lop3, ("fma.rn", F32) => FmaF32, ("fma.rz", F32) => FmaRzF32,
        _ => return None,
    })
}

/// Operations whose operand types differ: shift counts, widening products, bit fields, selections.
fn mixed(head: &str, ty: Ty) -> Option<Form> {
    let of = |code, destination, sources: &[Ty]| {
        Some(Form { code, destination, sources: sources.to_vec(), carries: false })
    };
    match (head, ty) {
        ("shl", B16) => of(Shl16, ty, &[ty, U32]),
        ("shl", B32) => of(Shl32, ty, &[ty, U32]),
        ("shl", B64) => of(Shl64, ty, &[ty, U32]),
        ("shr", B16 | U16 | B32 | U32) => of(ShrU32, ty, &[ty, U32]),
        ("shr", B64 | U64) => of(ShrU64, ty, &[ty, U32]),
        ("shr", S16) => of(ShrS16, ty, &[ty, U32]),
        ("shr", S32) => of(ShrS32, ty, &[ty, U32]),
        ("shr", S64) => of(ShrS64, ty, &[ty, U32]),
        ("mul.wide", U16) => of(MulWideU16, U32, &[ty, ty]),
        ("mul.wide", S16) => of(MulWideS16, S32, &[ty, ty]),
        ("mul.wide", U32) => of(MulWideU32, U64, &[ty, ty]),
        ("mul.wide", S32) => of(MulWideS32, S64, &[ty, ty]),
        ("mad.wide", U32) => of(MadWideU32, U64, &[ty, ty, U64]),
        ("mad.wide", S32) => of(MadWideS32, S64, &[ty, ty, S64]),
        ("bfe", U32) => of(BfeU32, ty, &[ty, U32, U32]),
        ("bfe", S32) => of(BfeS32, ty, &[ty, U32, U32]),
        ("bfe", U64) => of(BfeU64, ty, &[ty, U32, U32]),
        ("bfe", S64) => of(BfeS64, ty, &[ty, U32, U32]),
        ("bfi", B32) => of(Bfi32, ty, &[ty, ty, U32, U32]),
        ("bfi", B64) => of(Bfi64, ty, &[ty, ty, U32, U32]),
        ("selp", B16 | U16 | S16 | B32 | U32 | S32 | F32) => of(Selp32, ty, &[ty, ty, Pred]),
        ("selp", B64 | U64 | S64 | F64) => of(Selp64, ty, &[ty, ty, Pred]),
        // In `slct.u32.s32` the last type is that of the operand that decides.
        (_, S32) => match Ty::parse(head.strip_prefix("slct.")?)? {
            chosen @ (B32 | U32 | S32 | F32) => of(Slct32, chosen, &[chosen, chosen, S32]),
            chosen @ (B64 | U64 | S64 | F64) => of(Slct64, chosen, &[chosen, chosen, S32]),
            _ => None,
        },
        _ => None,
    }
}

fn carry(head: &str, ty: Ty) -> Option<Form> {
    if !matches!(ty, U32 | S32) {
        return None;
    }
    let code = match head {
        "add.cc" => AddCc,
        "addc" => Addc,
        "addc.cc" => AddcCc,
        "sub.cc" => SubCc,
        "subc" => Subc,
        "subc.cc" => SubcCc,
        _ => return None,
    };
    Some(Form { carries: true, ..same(code, ty, 2) })
}
