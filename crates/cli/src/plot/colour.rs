//! A colour map whose lightness only grows: ordered for the eye, for the colour-blind and in grey.
//!
//! Cividis (Nuñez, Anderton and Renslow 2018), at nine points, linear between them. Its middle is a neutral grey, so that it also serves
//! for signed values: dark blue below zero, grey around it, yellow above.

/// Red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rgb(pub u8, pub u8, pub u8);

const CIVIDIS: [Rgb; 9] = [
    Rgb(0x00, 0x22, 0x4e),
    Rgb(0x12, 0x35, 0x70),
    Rgb(0x3b, 0x49, 0x6c),
    Rgb(0x57, 0x5d, 0x6d),
    Rgb(0x7d, 0x7c, 0x78),
    Rgb(0x9a, 0x94, 0x76),
    Rgb(0xbc, 0xae, 0x6c),
    Rgb(0xdd, 0xca, 0x55),
    Rgb(0xfe, 0xe8, 0x38),
];

/// The colour at a place between 0 and 1.
pub fn map(place: f64) -> Rgb {
    let at = place.clamp(0.0, 1.0) * (CIVIDIS.len() - 1) as f64;
    let (low, share) = (at as usize, at.fract());
    let (from, to) = (CIVIDIS[low], CIVIDIS[(low + 1).min(CIVIDIS.len() - 1)]);
    let mix = |a: u8, b: u8| (f64::from(a) + share * (f64::from(b) - f64::from(a))).round() as u8;
    Rgb(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lightness_grows() {
        let grey = |colour: Rgb| {
            0.299 * f64::from(colour.0) + 0.587 * f64::from(colour.1) + 0.114 * f64::from(colour.2)
        };
        let steps: Vec<f64> = (0..=64).map(|i| grey(map(f64::from(i) / 64.0))).collect();
        assert!(steps.windows(2).all(|pair| pair[1] > pair[0]), "{steps:?}");
        assert!(steps[64] - steps[0] > 180.0);
    }
}
