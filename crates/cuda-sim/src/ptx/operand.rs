//! Operands as they are written, before their names are resolved.

use super::types::Ty;

/// One operand of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operand<'t> {
    /// A register, special register, symbol, label, or immediate.
    Plain { text: &'t str, negative: bool },
    /// A negated predicate, such as `!%p`.
    Not(&'t str),
    /// A vector of operands, such as `{a, b}`.
    Vector(Vec<Operand<'t>>),
    /// A memory operand, such as `[base + offset]`.
    Address { base: &'t str, offset: i64 },
}

/// A register that the hardware fills; axes 0, 1 and 2 are x, y and z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Thread(usize),
    Threads(usize),
    Block(usize),
    Blocks(usize),
    Lane,
}

impl Special {
    pub(crate) fn parse(text: &str) -> Option<Special> {
        if text == "%laneid" {
            return Some(Special::Lane);
        }
        let (name, axis) = text.rsplit_once('.')?;
        let axis = ["x", "y", "z"].iter().position(|a| *a == axis)?;
        match name {
            "%tid" => Some(Special::Thread(axis)),
            "%ntid" => Some(Special::Threads(axis)),
            "%ctaid" => Some(Special::Block(axis)),
            "%nctaid" => Some(Special::Blocks(axis)),
            _ => None,
        }
    }
}

/// The bits of an immediate of type `ty`, zero-extended.
pub(crate) fn literal(text: &str, negative: bool, ty: Ty) -> Result<u64, String> {
    let wrong = || format!("immediate {}{text} is not a {ty:?}", if negative { "-" } else { "" });
    for (prefix, digits, bits) in [("0f", 8, 32), ("0d", 16, 64)] {
        let hex = text.strip_prefix(prefix).or(text.strip_prefix(&prefix.to_uppercase()));
        if let Some(hex) = hex.filter(|hex| hex.len() == digits && !negative) {
            let fits = ty.bits() == bits && (ty.is_float() || ty.is_untyped());
            return u64::from_str_radix(hex, 16).ok().filter(|_| fits).ok_or_else(wrong);
        }
    }
    let magnitude = i128::from(magnitude(text).ok_or_else(wrong)?);
    let value = if negative { -magnitude } else { magnitude };
    match ty {
        Ty::Pred => Ok(if value == 0 { 0 } else { u64::from(u32::MAX) }),
        _ if ty.is_float() => Err(wrong()),
        _ => {
            let limit = 1i128 << ty.bits();
            let fits = (-limit / 2..limit).contains(&value);
            if fits { Ok((value & (limit - 1)) as u64) } else { Err(wrong()) }
        }
    }
}

/// Parses an unsigned decimal or hexadecimal number. Octal is refused: `010` is too easily read as ten.
pub(crate) fn magnitude(text: &str) -> Option<u64> {
    let text = text.strip_suffix('U').unwrap_or(text);
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => None,
        None if text.starts_with(|c: char| c.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_have_the_bits_that_ptx_gives_them() {
        assert_eq!(literal("0f3F800000", false, Ty::F32), Ok(0x3f80_0000));
        assert_eq!(literal("0dBFF0000000000000", false, Ty::F64), Ok(0xbff0_0000_0000_0000));
        assert_eq!(literal("2147483648", true, Ty::B32), Ok(0x8000_0000));
        assert_eq!(literal("1", true, Ty::S16), Ok(0xffff));
        assert_eq!(literal("1", true, Ty::U64), Ok(u64::MAX));
        assert_eq!(literal("0xFFFFFFFFFFFFFFFF", false, Ty::U64), Ok(u64::MAX));
        assert_eq!(literal("1", true, Ty::Pred), Ok(0xffff_ffff));
        assert_eq!(literal("0", false, Ty::Pred), Ok(0));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (text, negative, ty) in [
            ("4294967296", false, Ty::U32),
            ("2147483649", true, Ty::S32),
            ("65536", false, Ty::U16),
            ("1", false, Ty::F32),
            ("0f3F800000", false, Ty::S32),
            ("0f3F80000", false, Ty::F32),
            ("0f3F800000", true, Ty::F32),
            ("0d0000000000000000", false, Ty::F32),
            ("010", false, Ty::U32),
            ("1.5", false, Ty::F32),
        ] {
            assert!(literal(text, negative, ty).is_err(), "{text} {ty:?}");
        }
    }

    #[test]
    fn special_registers_are_known_by_their_exact_names() {
        assert_eq!(Special::parse("%ctaid.z"), Some(Special::Block(2)));
        assert_eq!(Special::parse("%tid"), None);
        assert_eq!(Special::parse("%tid.w"), None);
        assert_eq!(Special::parse("%warpid"), None);
    }
}
