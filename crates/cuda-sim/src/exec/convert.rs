//! Conversions between the number types of PTX.

use super::scalar::canonical;
use crate::ptx::{Convert, Round, Ty};

/// The f32 of equal value as a half; a NaN becomes the NaN of f32 arithmetic.
#[inline(always)]
pub(super) fn f32_from_f16(half: u32) -> u32 {
    let (sign, exponent, mantissa) = (half >> 15 & 1, half >> 10 & 31, half & 0x3ff);
    match exponent {
        31 if mantissa != 0 => canonical(f32::NAN),
        31 => sign << 31 | 0x7f80_0000,
        // Subnormal: a multiple of 2^-24, exact in f32.
        0 => sign << 31 | (mantissa as f32 * 5.960_464_5e-8).to_bits(),
        _ => sign << 31 | (exponent + 112) << 23 | mantissa << 13,
    }
}

/// The half nearest to an f32, ties to even; a NaN becomes `0x7fff`.
#[inline(always)]
pub(super) fn f16_from_f32(bits: u32) -> u32 {
    let (sign, magnitude) = (bits >> 16 & 0x8000, bits & 0x7fff_ffff);
    if magnitude > 0x7f80_0000 {
        return 0x7fff;
    }
    if magnitude < 0x3880_0000 {
        // Below 2^-14 a half is a multiple of 2^-24, which is the spacing of f32 above one half: adding one half rounds.
        return sign | ((f32::from_bits(magnitude) + 0.5).to_bits() - 0x3f00_0000);
    }
    let rounded = (magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13;
    sign | rounded.saturating_sub(112 << 10).min(0x7c00)
}

/// The bfloat nearest to an f32, ties to even; a NaN becomes `0x7fff`.
pub(super) fn bf16_from_f32(bits: u32) -> u32 {
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        return 0x7fff;
    }
    (bits + 0x7fff + (bits >> 16 & 1)) >> 16
}

/// An f32 rounded to a half towards zero; a NaN becomes `0x7fff`.
fn f16_toward_zero(bits: u32) -> u32 {
    let (sign, magnitude) = (bits >> 16 & 0x8000, bits & 0x7fff_ffff);
    match magnitude {
        0x7f80_0001.. => 0x7fff,
        0x7f80_0000 => sign | 0x7c00,
        // Multiples of 2^-24 below 2^-14, as in `f16_from_f32`.
        ..0x3880_0000 => sign | (f32::from_bits(magnitude) * 16_777_216.0) as u32,
        _ => sign | ((magnitude >> 13) - (112 << 10)).min(0x7bff),
    }
}

/// Any conversion between integers and f32 that has no operation of its own. `bits` holds the source register, and the result
/// holds the destination register.
pub(super) fn convert(convert: &Convert, bits: u64) -> u64 {
    let value = match (convert.from, convert.to) {
        (Ty::F32, Ty::F32) => canonical(integral(f32::from_bits(bits as u32), convert.round)).into(),
        (Ty::F32, Ty::F16) => f16_toward_zero(bits as u32).into(),
        (Ty::F32, to) => saturate(integral(f32::from_bits(bits as u32), convert.round), to),
        (from, Ty::F32) => f32_from_integer(extend(bits, from), convert.round).to_bits().into(),
        (from, to) => extend(extend(bits, from) as u64, to) as u64,
    };
    if convert.register_bits == 64 { value } else { value & ((1 << convert.register_bits) - 1) }
}

/// The low bits of `bits` as an integer of type `ty`.
fn extend(bits: u64, ty: Ty) -> i128 {
    let shift = 64 - ty.bits();
    if ty.is_signed() {
        i128::from((bits << shift) as i64 >> shift)
    } else {
        i128::from(bits << shift >> shift)
    }
}

fn integral(value: f32, round: Round) -> f32 {
    match round {
        Round::Nearest => value.round_ties_even(),
        Round::Zero => value.trunc(),
        Round::Down => value.floor(),
        Round::Up => value.ceil(),
    }
}

/// An integral value as `ty`: a value out of range becomes the nearest one in range, NaN becomes 0.
fn saturate(value: f32, ty: Ty) -> u64 {
    let limit = 1i128 << (ty.bits() - u32::from(ty.is_signed()));
    let low = if ty.is_signed() { -limit } else { 0 };
    (value as i128).clamp(low, limit - 1) as u64
}

fn f32_from_integer(value: i128, round: Round) -> f32 {
    let nearest = value as f32;
    let error = nearest as i128 - value;
    let too_high = match round {
        Round::Nearest => return nearest,
        Round::Zero => {
            if value >= 0 {
                error > 0
            } else {
                false
            }
        }
        Round::Down => error > 0,
        Round::Up => false,
    };
    let too_low = match round {
        Round::Zero => value < 0 && error < 0,
        Round::Up => error < 0,
        _ => false,
    };
    match (too_low, too_high) {
        (true, _) => nearest.next_up(),
        (_, true) => nearest.next_down(),
        _ => nearest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directed_rounding_brackets_the_nearest() {
        for value in [
            0i128,
            1,
            -1,
            16_777_217,
            -16_777_217,
            16_777_219,
            u64::MAX.into(),
            i64::MIN.into(),
            i64::MAX.into(),
        ] {
            let [down, zero, up] =
                [Round::Down, Round::Zero, Round::Up].map(|round| f32_from_integer(value, round));
            let exact = |f: f32| f as i128;
            assert!(exact(down) <= value && value <= exact(up), "{value}");
            assert!(down == up || down.next_up() == up, "{value}");
            assert_eq!(zero, if value < 0 { up } else { down }, "{value}");
        }
    }

    #[test]
    fn floats_saturate_and_nan_is_zero() {
        assert_eq!(saturate(f32::NAN, Ty::S32), 0);
        assert_eq!(saturate(f32::INFINITY, Ty::S32), i32::MAX as u64);
        assert_eq!(saturate(-3e9, Ty::S32) as i64, i64::from(i32::MIN));
        assert_eq!(saturate(-1.0, Ty::U64), 0);
        assert_eq!(saturate(1e20, Ty::U64), u64::MAX);
        assert_eq!(saturate(300.0, Ty::U8), 255);
    }
}
