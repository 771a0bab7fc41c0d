//! Gradients for tests that compare bits.

use corrnoise::Element;
use half::{bf16, f16};

/// A gradient no two values of which are alike, so that a swapped coordinate shows.
pub fn gradient<E>(len: u64, from_f32: impl Fn(f32) -> E) -> Vec<E> {
    (0..len).map(|i| from_f32(((i * 7919) % 10_007) as f32 * 1e-3 - 5.0)).collect()
}

/// A gradient type whose bits can be compared.
pub trait Bits: Element + PartialEq + std::fmt::Debug {
    /// The value nearest to an f32.
    fn from_f32(value: f32) -> Self;
    /// The bits of the value, zero-extended.
    fn bits(self) -> u32;
}
impl Bits for f32 {
    fn from_f32(value: f32) -> f32 {
        value
    }
    fn bits(self) -> u32 {
        self.to_bits()
    }
}
impl Bits for bf16 {
    fn from_f32(value: f32) -> bf16 {
        bf16::from_f32(value)
    }
    fn bits(self) -> u32 {
        self.to_bits().into()
    }
}
impl Bits for f16 {
    fn from_f32(value: f32) -> f16 {
        f16::from_f32(value)
    }
    fn bits(self) -> u32 {
        self.to_bits().into()
    }
}

/// Asserts that two gradients have equal bits; the message names the first coordinate that differs.
pub fn assert_same<E: Bits>(left: &[E], right: &[E], what: &str) {
    assert_eq!(left.len(), right.len(), "{what}");
    if let Some(at) = (0..left.len()).find(|&i| left[i].bits() != right[i].bits()) {
        panic!("{what}: coordinate {at}: {:?} and {:?}", left[at], right[at]);
    }
}
