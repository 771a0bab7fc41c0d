//! Decoded instructions, as the executor runs them.
//!
//! Every operand is an index into one of two files of registers: one for 64-bit values, one for all narrower ones. Immediates
//! and special registers such as `%tid.x` are registers that are filled before the kernel starts, so an operation has one form.
//! A predicate is all ones or all zeros; a 16-bit value has zeros above it.

use super::types::Ty;
use crate::memory::{AtomicOp, Space};

/// The register number that means "no register".
pub(crate) const NONE: u16 = u16::MAX;

/// The operation of a decoded instruction. The suffix is the width and, where it matters, the signedness of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum Code {
    Mov32, Not32, Not16, Neg32, Neg16, Abs32, Abs16, Clz32, Brev32, Popc32,
    Add32, Add16, Sub32, Sub16, MulLo32, MulLo16, MulHiU32, MulHiS32, MulHiU16, MulHiS16, MulWideU16, MulWideS16,
    And32, Or32, Xor32, Shl32, Shl16, ShrU32, ShrS32, ShrS16,
    MinU32, MaxU32, MinS32, MaxS32, MinS16, MaxS16, DivU32, DivS32, DivS16, RemU32, RemS32, RemS16,
    MadLo32, MadLo16, MadHiU32, MadHiS32, ShfLWrap, ShfRWrap, ShfLClamp, ShfRClamp,
    Prmt, BfeU32, BfeS32, Bfi32, Lop3, Selp32, Slct32,
    AddCc, Addc, AddcCc, SubCc, Subc, SubcCc,
    Eq32, Ne32, LtU32, LeU32, LtS32, LeS32, LtS16, LeS16,
    Eq64, Ne64, LtU64, LeU64, LtS64, LeS64,
    EqF32, NeF32, LtF32, LeF32, EquF32, NeuF32, LtuF32, LeuF32, NumF32, NanF32,
    Mov64, Not64, Neg64, Abs64, Clz64, Brev64, Popc64,
    Add64, Sub64, MulLo64, MulHiU64, MulHiS64, And64, Or64, Xor64, Shl64, ShrU64, ShrS64,
    MinU64, MaxU64, MinS64, MaxS64, DivU64, DivS64, RemU64, RemS64,
    MadLo64, MulWideU32, MulWideS32, MadWideU32, MadWideS32, BfeU64, BfeS64, Bfi64, Selp64, Slct64,
    AddF32, SubF32, MulF32, DivF32, FmaF32, NegF32, AbsF32, MinF32, MaxF32, SqrtF32, RcpF32, CopysignF32,
    RsqrtApproxF32, AddRzF32, SubRzF32, MulRzF32, FmaRzF32, SqrtRzF32,
    U64FromU32, S64FromS32, Low32, Low16, S32FromS16, F32FromS32, F32FromU32, F32FromU64, F32FromF16, F16FromF32, Bf16x2FromF32, NearestF32, Convert,
    Pack16x2, Unpack16x2, Pack32x2, Unpack32x2, Pack16x4, Unpack16x4,
    Load, Store, LoadParam, LoadParamAt, Atomic,
    Branch, UniformBranch, Return, Trap, Barrier, WarpBarrier,
}

/// The part of the executor that an instruction belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An operation from registers to registers, which cannot fail.
    Alu,
    Memory,
    Control,
}

/// One operation of up to five registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inst {
    pub code: Code,
    pub kind: Kind,
    /// How many PTX instructions this counts as: 1, or 0 for the second of two operations that stand for one PTX instruction.
    pub weight: u8,
    /// Whether the instruction acts where the guard is false.
    pub negate: bool,
    /// The predicate that guards the instruction, or [`NONE`].
    pub guard: u16,
    /// The destination register; of a store, the first value.
    pub d: u16,
    /// The first source register; of a memory access, the address.
    pub a: u16,
    pub b: u16,
    pub c: u16,
    pub e: u16,
    /// The branch target, the truth table of `lop3`, or an index into the kernel's accesses or conversions.
    pub imm: u32,
}

impl Inst {
    /// An unguarded instruction that computes `d ← code(sources)`.
    pub(crate) fn new(code: Code, d: u16, sources: &[u16]) -> Self {
        let at = |i: usize| sources.get(i).copied().unwrap_or(NONE);
        let kind = match code {
            Code::Load | Code::Store | Code::LoadParam | Code::LoadParamAt | Code::Atomic => Kind::Memory,
            Code::Branch | Code::UniformBranch | Code::Return | Code::Trap => Kind::Control,
            Code::Barrier | Code::WarpBarrier => Kind::Control,
            _ => Kind::Alu,
        };
        let (a, b, c, e) = (at(0), at(1), at(2), at(3));
        Self { code, kind, weight: 1, negate: false, guard: NONE, d, a, b, c, e, imm: 0 }
    }

    pub(crate) fn with_imm(self, imm: u32) -> Self {
        Self { imm, ..self }
    }
}

/// How an instruction accesses memory: `count` elements of `bytes` each, at the address in a register plus `offset`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub space: Space,
    pub offset: i64,
    pub bytes: u8,
    pub count: u8,
    /// The number of bits to which a load extends an element, with its sign if `signed`.
    pub register_bits: u8,
    pub signed: bool,
    /// Whether the load has the modifier `.nc`.
    pub read_only: bool,
    pub atomic: Option<AtomicOp>,
}

impl Access {
    /// The number of bytes that one thread accesses.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.bytes) * usize::from(self.count)
    }
}

/// The rounding of a conversion: to the nearest, towards zero, down, or up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    Nearest,
    Zero,
    Down,
    Up,
}

/// A conversion that has no operation of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Convert {
    pub from: Ty,
    pub to: Ty,
    pub round: Round,
    /// Whether the source is in the file of 64-bit registers.
    pub from_wide: bool,
    /// The number of bits of the destination register.
    pub register_bits: u8,
}
