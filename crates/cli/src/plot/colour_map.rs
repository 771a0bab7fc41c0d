//! A diverging colour map: white where an entry is nothing, darker the larger it is, blue below zero and orange above.
//!
//! Lightness falls on both sides, so that sizes are ordered for the eye and in grey; blue and orange are told apart by the
//! colour-blind too.

/// A colour as red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rgb(pub u8, pub u8, pub u8);

const WHITE: Rgb = Rgb(0xff, 0xff, 0xff);
/// From white on, at equal distances; the map is linear between them.
const BLUES: [Rgb; 5] =
    [WHITE, Rgb(0xc4, 0xd8, 0xee), Rgb(0x6f, 0xa3, 0xd6), Rgb(0x1f, 0x62, 0xa8), Rgb(0x04, 0x26, 0x5c)];
const ORANGES: [Rgb; 5] =
    [WHITE, Rgb(0xfb, 0xdd, 0xb6), Rgb(0xf0, 0xa4, 0x4c), Rgb(0xb8, 0x5e, 0x08), Rgb(0x5c, 0x26, 0x00)];

/// The colour of a place between −1 and 1.
pub fn map(place: f64) -> Rgb {
    let side = if place < 0.0 { &BLUES } else { &ORANGES };
    let at = place.abs().min(1.0) * (side.len() - 1) as f64;
    let (low, share) = (at as usize, at.fract());
    let (from, to) = (side[low], side[(low + 1).min(side.len() - 1)]);
    let mix = |a: u8, b: u8| (f64::from(a) + share * (f64::from(b) - f64::from(a))).round() as u8;
    Rgb(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lightness_falls_from_white_to_either_end() {
        let grey = |colour: Rgb| {
            0.299 * f64::from(colour.0) + 0.587 * f64::from(colour.1) + 0.114 * f64::from(colour.2)
        };
        assert_eq!(map(0.0), WHITE);
        for side in [-1.0, 1.0] {
            let steps: Vec<f64> = (0..=64).map(|i| grey(map(side * f64::from(i) / 64.0))).collect();
            assert!(steps.windows(2).all(|pair| pair[1] < pair[0]), "{steps:?}");
            assert!(steps[0] - steps[64] > 180.0);
        }
    }

    #[test]
    fn signs_are_told_apart() {
        for place in [0.1, 0.3, 0.6, 1.0] {
            let (below, above) = (map(-place), map(place));
            assert!(below.2 > below.0 && above.0 > above.2, "{place}: {below:?} {above:?}");
        }
    }
}
