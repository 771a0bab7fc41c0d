//! Gradients of 16 bits beside which the last bit of an f32 shows.

use crate::compare::Both;
use corrnoise::Dtype;
use half::{bf16, f16};

/// A value that noise is added to so that the sum is rounded otherwise if the noise were the next f32: the next larger one in
/// magnitude if `above`, else the next smaller one. If there is none, the one four further; then the noise's negative, as for f32.
///
/// Two numbers of 8 significant bits leave no such value to most noise in bf16: 13 in 14 have none for the next f32, and 4 in 5
/// none for the fourth. In f16 one in eight has none for the next.
pub(super) fn edge<E: Both>(noise: f32, above: bool) -> f32 {
    let dropped = match E::DTYPE {
        Dtype::F32 => return -noise,
        Dtype::Bf16 => 16,
        Dtype::F16 => 13,
    };
    let below = f32::from_bits(noise.to_bits() >> dropped << dropped);
    let middle = f32::from_bits(below.to_bits() | 1 << (dropped - 1));
    let spacing = 2.0 * (middle - below);
    let tells = |next: f32| {
        // The sum is of the noise's size, near the middle between two values; or small, of all sizes.
        let near = [middle - noise, middle - next, middle + spacing - noise, middle - spacing - noise];
        let far = (0..24 - dropped).flat_map(|size| {
            let sum = spacing * 2_f32.powi(size - 1);
            [sum - noise, -sum - noise]
        });
        let differs = |value: &f32| rounded::<E>(noise + value) != rounded::<E>(next + value);
        near.into_iter().chain([-noise]).chain(far).map(rounded::<E>).find(differs)
    };
    tells(further(noise, 1, above)).or_else(|| tells(further(noise, 4, above))).unwrap_or(-noise)
}

/// The f32 that is `count` numbers further from zero if `above`, else nearer to it.
fn further(number: f32, count: u32, above: bool) -> f32 {
    let bits = number.to_bits();
    f32::from_bits(if above { bits.wrapping_add(count) } else { bits.wrapping_sub(count) })
}

/// The nearest value of a type, as f32.
pub(super) fn rounded<E: Both>(value: f32) -> f32 {
    match E::DTYPE {
        Dtype::F32 => value,
        Dtype::Bf16 => bf16::from_f32(value).to_f32(),
        Dtype::F16 => f16::from_f32(value).to_f32(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share, in 1,000, of numbers that an edge tells from the number `count` further.
    fn share<E: Both>(count: u32, above: bool) -> usize {
        let numbers =
            (0..20_000_u32).map(|i| f32::from_bits(0x3d80_0000 + i.wrapping_mul(0x9e37_79b1) % 0x0340_0000));
        let shows = |number: &f32| {
            let value = rounded::<E>(edge::<E>(*number, above));
            rounded::<E>(number + value) != rounded::<E>(further(*number, count, above) + value)
        };
        numbers.filter(shows).count() / 20
    }

    #[test]
    fn the_last_bit_shows_in_16_bits() {
        for above in [false, true] {
            let (of_bf16, of_f16, of_f32) =
                (share::<bf16>(1, above), share::<f16>(1, above), share::<f32>(1, above));
            assert!(of_bf16 >= 65 && of_f16 >= 850 && of_f32 == 1_000, "{of_bf16}, {of_f16}, {of_f32}");
            let fourth = share::<bf16>(4, above);
            assert!(fourth >= 190, "{fourth}");
        }
    }
}
