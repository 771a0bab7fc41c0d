//! Gradients for tests that compare bits.

use corrnoise::Element;

/// A gradient no two values of which are alike, so that a swapped coordinate shows.
pub fn gradient<E>(len: u64, from_f32: impl Fn(f32) -> E) -> Vec<E> {
    (0..len).map(|i| from_f32(((i * 7919) % 10_007) as f32 * 1e-3 - 5.0)).collect()
}

/// Fails with the first coordinate that differs.
pub fn assert_same<E: Element>(left: &[E], right: &[E], what: &str) {
    assert_eq!(left.len(), right.len(), "{what}");
    if let Some(at) = (0..left.len()).find(|&i| left[i].to_bits() != right[i].to_bits()) {
        panic!("{what}: coordinate {at}: {:?} and {:?}", left[at], right[at]);
    }
}

/// The gradient at `place` that brings a sum exactly between two points of the output grid, where it is rounded up, or the next smaller
/// one, so that every bit of noise and dither shows. `fraction` is that of `Grid::noise`. The gradient is one of several, some units apart,
/// that f32 represents exactly.
pub fn grid_edge(fraction: f32, unit: f32, place: usize, exactly: bool) -> f32 {
    let units = 3.5 - fraction + (place % 5) as f32 - 2.0;
    unit * if exactly { units } else { units.next_down() }
}
