//! Operations of one lane that need more than one expression.

/// The NaN that NVIDIA hardware returns from arithmetic.
const NAN: u32 = 0x7fff_ffff;

/// The bits of an arithmetic result, with every NaN as `NAN`.
#[inline(always)]
pub(super) fn canonical(value: f32) -> u32 {
    if value.is_nan() { NAN } else { value.to_bits() }
}

/// Lifts a unary f32 operation to bits.
#[inline(always)]
pub(super) fn f1(f: impl Fn(f32) -> f32) -> impl Fn(u32) -> u32 {
    move |a| canonical(f(f32::from_bits(a)))
}

/// Lifts a binary f32 operation to bits.
#[inline(always)]
pub(super) fn f2(f: impl Fn(f32, f32) -> f32) -> impl Fn(u32, u32) -> u32 {
    move |a, b| canonical(f(f32::from_bits(a), f32::from_bits(b)))
}

/// Lifts an f32 comparison to bits: all ones if true.
#[inline(always)]
pub(super) fn fp(f: impl Fn(f32, f32) -> bool) -> impl Fn(u32, u32) -> u32 {
    move |a, b| all(f(f32::from_bits(a), f32::from_bits(b)))
}

/// A predicate as a register: all ones or all zeros.
#[inline(always)]
pub(super) fn all(value: bool) -> u32 {
    u32::from(value).wrapping_neg()
}

/// Sign-extends the low 16 bits of a register.
#[inline(always)]
pub(super) fn s16(a: u32) -> i32 {
    i32::from(a as u16 as i16)
}

/// The smaller of two floats; a number wins over NaN, and -0 is below +0.
#[inline(always)]
pub(super) fn min(a: f32, b: f32) -> f32 {
    let ordered = if a < b || (a == b && a.is_sign_negative()) { a } else { b };
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        ordered
    }
}

/// The larger of two floats; a number wins over NaN, and +0 is above -0.
#[inline(always)]
pub(super) fn max(a: f32, b: f32) -> f32 {
    -min(-a, -b)
}

/// The high half of an unsigned 64-bit product.
#[inline(always)]
pub(super) fn mul_hi_u32(a: u32, b: u32) -> u32 {
    ((u64::from(a) * u64::from(b)) >> 32) as u32
}

/// The high half of a signed 64-bit product.
#[inline(always)]
pub(super) fn mul_hi_s32(a: u32, b: u32) -> u32 {
    ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32
}

/// The quotient of a signed division. PTX leaves division by zero unspecified; here it gives all ones.
#[inline(always)]
pub(super) fn div_s64(a: i64, b: i64) -> i64 {
    if b == 0 { -1 } else { a.wrapping_div(b) }
}

/// The remainder of a signed division; division by zero gives all ones.
#[inline(always)]
pub(super) fn rem_s64(a: i64, b: i64) -> i64 {
    if b == 0 { -1 } else { a.wrapping_rem(b) }
}

/// The high word of `[b, a] << n` for `n` in 0..32.
#[inline(always)]
pub(super) fn funnel_left(a: u32, b: u32, n: u32) -> u32 {
    b << n | a >> 1 >> (31 - n)
}

/// The low word of `[b, a] >> n` for `n` in 0..32.
#[inline(always)]
pub(super) fn funnel_right(a: u32, b: u32, n: u32) -> u32 {
    b << 1 << (31 - n) | a >> n
}

/// Picks four of the eight bytes of `[b, a]` by the nibbles of `c`; bit 3 of a nibble replicates the byte's sign.
#[inline(always)]
pub(super) fn permute(a: u32, b: u32, c: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    let mut out = 0;
    for i in 0..4 {
        let selector = c >> (4 * i) & 15;
        let byte = (bytes >> (8 * (selector & 7))) as u8;
        let byte = if selector & 8 == 0 { byte } else { ((byte as i8) >> 7) as u8 };
        out |= u32::from(byte) << (8 * i);
    }
    out
}

/// The bit field of `a` that starts at `position` and has `length` bits, where `a` has `width` bits. Bits past the top are
/// copies of the sign if `signed`, else zeros.
#[inline(always)]
pub(super) fn extract(a: u64, position: u32, length: u32, width: u32, signed: bool) -> u64 {
    let (position, length) = (position & 255, length & 255);
    if length == 0 {
        return 0;
    }
    let top = (position + length - 1).min(width - 1);
    let sign = if signed && a >> top & 1 == 1 { u64::MAX } else { 0 };
    let shifted = if position < width { a >> position } else { 0 };
    // The number of bits that come from `a`; the rest lie past its top.
    let taken = length.min(width.saturating_sub(position));
    let mask = low_bits(taken);
    shifted & mask | sign & !mask
}

/// The value `b` with its bits from `position` on replaced by the `length` lowest bits of `a`.
#[inline(always)]
pub(super) fn insert(a: u64, b: u64, position: u32, length: u32, width: u32) -> u64 {
    let (position, length) = (position & 255, length & 255);
    if position >= width {
        return b;
    }
    let mask = low_bits(length.min(width - position)) << position;
    a << position & mask | b & !mask
}

/// A mask of the `n` lowest bits, for `n` up to 64.
#[inline(always)]
fn low_bits(n: u32) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// The bitwise function whose truth table is `table`, with `a` as the highest bit of its index.
#[inline(always)]
pub(super) fn lookup(a: u32, b: u32, c: u32, table: u32) -> u32 {
    let mut out = 0;
    for row in 0..8 {
        let term = |value: u32, bit: u32| if row >> bit & 1 == 1 { value } else { !value };
        out |= term(a, 2) & term(b, 1) & term(c, 0) & (table >> row & 1).wrapping_neg();
    }
    out
}
