//! Tails of the normal distribution that keep their relative digits wherever they are evaluated.
//!
//! The Mills ratio `R(x) = Φ(−x)/φ(x)` is what is left of a tail when its exponent is taken out: it changes slowly, never underflows, and
//! differences of tails become differences of Mills ratios.

use libm::erfc;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// The logarithm of the normal density's constant, `ln √(2π)`.
pub(crate) const LN_SQRT_TAU: f64 = 0.918_938_533_204_672_8;

/// From here on the continued fraction converges in [`DEPTH`] terms; below, `erfc` and `exp` are exact enough as they are.
const FRACTION_FROM: f64 = 2.0;
/// The fraction's error falls like `e^{−2x√(2k)}`: at x = 2 this many terms leave e^{−62}.
const DEPTH: u32 = 120;

/// `Φ(−x)/φ(x)` for x ≥ −1, to a few units in the last place.
pub(crate) fn mills(x: f64) -> f64 {
    if x < FRACTION_FROM {
        return (0.5 * PI).sqrt() * (0.5 * x * x).exp() * erfc(x * FRAC_1_SQRT_2);
    }
    // 1/(x + 1/(x + 2/(x + 3/(x + …)))): all terms are positive, so nothing cancels.
    1.0 / (1..=DEPTH).rev().fold(x, |rest, k| x + f64::from(k) / rest)
}

/// The log of the upper tail, `ln Φ(−x)`.
pub(crate) fn ln_upper(x: f64) -> f64 {
    if x >= 0.0 { -0.5 * x * x - LN_SQRT_TAU + mills(x).ln() } else { (-upper(-x)).ln_1p() }
}

/// The upper tail, `Φ(−x)`.
pub(crate) fn upper(x: f64) -> f64 {
    0.5 * erfc(x * FRAC_1_SQRT_2)
}

/// An x with `Φ(−x)` at most `e^{ln_tail}`, at most half a unit larger than needed; `ln_tail` below ln ½.
pub(crate) fn quantile_above(ln_tail: f64) -> f64 {
    // Φ(−x) ≤ e^{−x²/2}/2.
    (-2.0 * (ln_tail + std::f64::consts::LN_2)).max(0.0).sqrt()
}

/// The density of the standard normal, `φ(x)`.
pub(crate) fn density(x: f64) -> f64 {
    (-0.5 * x * x - LN_SQRT_TAU).exp()
}
