//! The output grid: what is released is a multiple of a power of two, formed from the exact sum of gradient and noise.
//!
//! A floating-point sum betrays its terms: the last digits of `g + x` lie on a lattice that depends on `g`. Here every result is
//! `Γ·⌊(g + x)/Γ + ½⌋`, rounded once to f32: whatever `g` was, it lies on one lattice, and it is post-processing of the exact sum.
//! The noise `x` itself is an f32, `z̃`, times a scale, and a sum of rows that cancels lies on the lattice of its largest term: a secret dither,
//! an eighth to a quarter of the grid wide, fills whatever lattice it has.
//! `docs/noise-spec.md`, section 6, says the same in words, `docs/privacy.md` what remains.

use crate::chacha::ChaCha;
use crate::noise::TILE;
use crate::row::Row;

/// The exponents of grids that f32 arithmetic can work with: gradients up to 2³² divided by Γ are in its range.
pub const EXPONENTS: std::ops::RangeInclusive<i32> = -96..=96;

/// 1.5·2²³: an f32 next to it is an integer, so adding it rounds to the nearest one.
pub(crate) const TO_INTEGER: f32 = 12_582_912.0;

/// The noise's fraction is kept as 3 + fraction in [2, 4), where an f32 is a multiple of 2⁻²².
pub(crate) const OFFSET: f32 = 3.0;

/// The digits of an f32 without its sign and its power of two.
const DIGITS: u32 = 0x007f_ffff;

/// The power of two of what a dither word counts: 2³² words are then an eighth to a quarter of the grid.
const POWER_OF_DITHER: u32 = (127 - 35) << 23;

/// The numbers with which a step's noise is added to a gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grid {
    /// The grid Γ, a power of two.
    pub unit: f32,
    /// The reciprocal of Γ, which is exact.
    pub per_unit: f32,
    /// The scale of the step's noise in units of the grid.
    pub scale: f32,
    /// What a dither word counts, in units of the grid: the scale times a power of two. All dither words together are then a whole number of
    /// the steps in which the noise comes, whatever power of two these are in unit scale.
    pub dither: f32,
}

impl Grid {
    /// The grid 2^`exponent` for noise of that scale.
    pub fn new(exponent: i32, scale: f32) -> Grid {
        debug_assert!((-126..=126).contains(&exponent));
        let power = |exponent: i32| f32::from_bits(((exponent + 127) as u32) << 23);
        let (unit, per_unit) = (power(exponent), power(-exponent));
        let scale = scale * per_unit;
        let dither = f32::from_bits(scale.to_bits() & DIGITS | POWER_OF_DITHER);
        Grid { unit, per_unit, scale, dither }
    }

    /// The gradient value `g` with the noise `z` in unit scale added, on the grid; `word` is the coordinate's dither word.
    #[inline(always)]
    pub fn add(&self, g: f32, z: f32, word: u32) -> f32 {
        let whole = g * self.per_unit;
        let nearest = whole.round_ties_even();
        let rest = whole - nearest;
        let (integer, fraction) = self.noise(z, word);
        // Both thresholds are exact, and so are the comparisons: ⌊rest + fraction + ½⌋ is −1, 0 or 1.
        let carry = f32::from(rest >= 0.5 + OFFSET - fraction) - f32::from(rest < OFFSET - 0.5 - fraction);
        (nearest + (integer + (carry + OFFSET))) * self.unit
    }

    /// The noise in units of the grid, as an integer less 3 and a fraction plus 3: their sum is the noise, exactly.
    #[inline(always)]
    pub fn noise(&self, z: f32, word: u32) -> (f32, f32) {
        let integer = self.scale.mul_add(z, TO_INTEGER) - (TO_INTEGER + OFFSET);
        let fraction = self.scale.mul_add(z, -integer);
        (integer, (word as i32 as f32).mul_add(self.dither, fraction))
    }
}

/// The secret words of one step, from which every coordinate's dither word follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DitherKey(pub [u32; 4]);

/// The number of steps whose words one ChaCha block holds.
pub const STEPS_PER_BLOCK: u64 = 4;

/// A row of the dither's family: the words of [`STEPS_PER_BLOCK`] steps.
#[derive(Clone, Debug)]
pub struct DitherBlock {
    row: Row,
    words: [u32; 16],
}

impl DitherBlock {
    /// The words of a row of the dither's family.
    pub fn new(cipher: &ChaCha, row: Row) -> DitherBlock {
        DitherBlock { row, words: cipher.block(row.stream(), 0) }
    }

    /// The row that these words belong to.
    pub fn row(&self) -> Row {
        self.row
    }

    /// The words of one of the row's steps.
    pub fn key(&self, step: u64) -> DitherKey {
        let first = 4 * (step % STEPS_PER_BLOCK) as usize;
        DitherKey(std::array::from_fn(|i| self.words[first + i]))
    }
}

impl DitherKey {
    /// The words of a tile.
    pub fn of_tile(self, tile: u64) -> TileDither {
        let [s0, s1, s2, s3] = self.0;
        let x = mix((mix(tile as u32 ^ s0) ^ (tile >> 32) as u32).wrapping_add(s1));
        TileDither { first: x.wrapping_add(s3), stride: mix(x.wrapping_add(s2)) | 1 }
    }

    /// The dither word of a coordinate.
    pub fn word(self, coord: u64) -> u32 {
        self.of_tile(coord / TILE as u64).word((coord % TILE as u64) as u32)
    }
}

/// The dither words of a tile: an arithmetic progression whose start and odd stride are secret, so that any two words of a tile are
/// nearly independent of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileDither {
    /// The word of the tile's first coordinate.
    pub first: u32,
    /// The difference between the words of neighbours.
    pub stride: u32,
}

impl TileDither {
    /// The word of the coordinate `place` of the tile.
    pub fn word(self, place: u32) -> u32 {
        self.first.wrapping_add(self.stride.wrapping_mul(place))
    }
}

/// A bijection of words in which every bit of the result depends on all bits of the argument. The multipliers are those that Wellons
/// found for little bias ("lowbias32", 2018).
fn mix(mut x: u32) -> u32 {
    x = (x ^ x >> 16).wrapping_mul(0x7feb_352d);
    x = (x ^ x >> 15).wrapping_mul(0x846c_a68b);
    x ^ x >> 16
}

#[cfg(test)]
pub(crate) mod tests;
