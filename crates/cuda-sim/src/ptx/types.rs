//! The fundamental types of PTX.

/// A type, as instructions and declarations name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ty {
    Pred,
    B8,
    B16,
    B32,
    B64,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F32,
    F64,
}

impl Ty {
    /// Parses a type from its name without the dot.
    pub(crate) fn parse(name: &str) -> Option<Ty> {
        Some(match name {
            "pred" => Ty::Pred,
            "b8" => Ty::B8,
            "b16" => Ty::B16,
            "b32" => Ty::B32,
            "b64" => Ty::B64,
            "u8" => Ty::U8,
            "u16" => Ty::U16,
            "u32" => Ty::U32,
            "u64" => Ty::U64,
            "s8" => Ty::S8,
            "s16" => Ty::S16,
            "s32" => Ty::S32,
            "s64" => Ty::S64,
            "f16" => Ty::F16,
            "f32" => Ty::F32,
            "f64" => Ty::F64,
            _ => return None,
        })
    }

    /// The bits of a value in memory; a predicate has none.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Ty::Pred => 1,
            Ty::B8 | Ty::U8 | Ty::S8 => 8,
            Ty::B16 | Ty::U16 | Ty::S16 | Ty::F16 => 16,
            Ty::B32 | Ty::U32 | Ty::S32 | Ty::F32 => 32,
            Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64 => 64,
        }
    }

    pub(crate) fn bytes(self) -> usize {
        self.bits() as usize / 8
    }

    /// Whether a register of this type is in the file of 64-bit registers.
    pub(crate) fn is_wide(self) -> bool {
        self.bits() == 64
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Ty::F16 | Ty::F32 | Ty::F64)
    }

    pub(crate) fn is_untyped(self) -> bool {
        matches!(self, Ty::B8 | Ty::B16 | Ty::B32 | Ty::B64)
    }

    /// Whether this is a signed or unsigned integer type, not an untyped one.
    pub(crate) fn is_integer(self) -> bool {
        !(self == Ty::Pred || self.is_float() || self.is_untyped())
    }

    /// Whether a register declared as `declared` may be an operand of this type: PTX asks for the same width, and keeps floats
    /// and integers apart unless one side is untyped. Halves have no registers of their own and are kept in `.b16`.
    pub(crate) fn accepts(self, declared: Ty) -> bool {
        self.bits() == declared.bits() && self.same_family(declared)
    }

    /// Does what [`Ty::accepts`] does, for `ld`, `st` and `cvt`, whose registers may be wider than the type.
    pub(crate) fn accepts_wider(self, declared: Ty) -> bool {
        let widens = self.bits() < declared.bits() && !self.is_float() && !declared.is_float();
        self.accepts(declared) || (widens && self != Ty::Pred)
    }

    fn same_family(self, declared: Ty) -> bool {
        if self == Ty::Pred || declared == Ty::Pred {
            return self == declared;
        }
        self.is_untyped() || declared.is_untyped() || self.is_float() == declared.is_float()
    }
}
