//! Gradients beside which the last bit of the noise shows: in 16 bits, and on the output grid.

use corrnoise::Element;

/// The noise of a step at one coordinate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noise {
    /// The noise as an f32, without its dither.
    pub(super) value: f32,
    /// The unit of the grid.
    pub(super) unit: f32,
    /// On a grid, the integer of `Grid::noise`, 3 less than that nearest to the noise.
    pub(super) integer: f32,
    /// On a grid, 3 more than the distance of the noise, its dither included, from the nearest integer in units.
    pub(super) fraction: Option<f32>,
}

/// Numbers of grid units at which rounding turns, and how f32 represents them.
pub(super) fn in_units(place: usize) -> f32 {
    const UNITS: [f32; 23] = [
        0.0,
        0.5,
        -0.5,
        1.5,
        -1.5,
        2.5,
        0.25,
        -0.0,
        1e6,
        -1e6,
        1_000_000.5,
        4_194_303.5,
        -4_194_304.5,
        8_388_607.5,
        8_388_609.0,
        -16_777_215.0,
        16_777_218.0,
        33_554_436.0,
        -33_554_432.0,
        1e-37,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    // Each number comes with both of its neighbours.
    let units = UNITS[place % UNITS.len()];
    match place / UNITS.len() % 3 {
        0 => units,
        1 => units.next_up(),
        _ => units.next_down(),
    }
}

/// A value that noise is added to so that the sum is rounded otherwise if the noise were the next f32: the next larger one in
/// magnitude if `above`, else the next smaller one. If there is none, the one four further; then the noise's negative, as for f32.
///
/// Two numbers of 8 significant bits leave no such value to most noise in bf16: 13 in 14 have none for the next f32, and 4 in 5
/// none for the fourth. In f16 one in eight has none for the next.
pub(super) fn edge<E: Element>(noise: f32, above: bool) -> f32 {
    let dropped = dropped_bits::<E>();
    if dropped == 0 {
        return -noise;
    }
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
pub(super) fn rounded<E: Element>(value: f32) -> f32 {
    E::from_f32(value).to_f32()
}

/// The number of low bits of an f32 that a type does not keep: 1 and the bit after them is the next value after 1.
fn dropped_bits<E: Element>() -> i32 {
    let kept = |bit: &i32| {
        let next = f32::from_bits(1_f32.to_bits() | 1 << bit);
        rounded::<E>(next) == next
    };
    (0..23).find(kept).unwrap_or(23)
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    /// The share, in 1,000, of numbers that an edge tells from the number `count` further.
    fn share<E: Element>(count: u32, above: bool) -> usize {
        let numbers =
            (0..20_000_u32).map(|i| f32::from_bits(0x3d80_0000 + i.wrapping_mul(0x9e37_79b1) % 0x0340_0000));
        let shows = |number: &f32| {
            let value = rounded::<E>(edge::<E>(*number, above));
            rounded::<E>(number + value) != rounded::<E>(further(*number, count, above) + value)
        };
        numbers.filter(shows).count() / 20
    }

    #[test]
    fn bits_are_dropped_as_the_formats_say() {
        assert_eq!((dropped_bits::<f32>(), dropped_bits::<bf16>(), dropped_bits::<f16>()), (0, 16, 13));
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
