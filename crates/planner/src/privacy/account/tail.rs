//! The end of the noise's tail: what a claim about normal noise must add to δ because the engine's normals end.
//!
//! Normals are made in pairs inside a disc of radius R (`docs/noise-spec.md`, radii), where their density is the normal one divided by
//! the disc's mass (up to the resolution of the uniforms, below). After multiplication by C, a run releases `CG + Z` with independent pairs Z, and a unit shifts it by a matrix of norm at
//! most μ. Let `N` be the normal distribution and `B` the set of noise inside all discs, of mass c. For any set S of outputs
//!
//! ```text
//! P_D(S) − e^ε P_0(S) ≤ (1/c)·(N_D(S ∩ B_0) − e^ε N_0(S ∩ B_0)) + P_D(outside B_0) ≤ (1/c)·(δ_normal(ε) + T)
//! ```
//! with T the probability that shifted noise of some pair leaves its disc, where the other dataset makes no output at all. It holds for shifts
//! that depend on earlier outputs as well, since a pair's noise is independent of its shift, given all outputs before. Where more rows
//! of normals are summed than there are steps (trees), it holds for the rows: the shift of a row is decided when the row is first used.
//!
//! T is a sum over pairs of `p(d)`, d being the length of a pair's shift, and no shift of norm μ makes it larger than both of: a few pairs shifted
//! far, at most `μ²·max p(d)/d²`, and many shifted by little, at most `max p(d)/d` times the sum of their d, which is at most μ times
//! the root of the number of pairs. A union bound over all values would count noise that leaves its disc without a unit, and says
//! nothing about one.
//!
//! Two bounds of p(d). The outflow through the circle while a disc of normal density moves by d:
//! `p(d) ≤ e^{−R²/2}(e^{Rd} − 1)/π`. And `p(d) ≤ P(|z + d| > R) = ∫_R^∞ w e^{−(w² + d²)/2} I₀(dw) dw`, with `√(2πx)e^{−x}I₀(x) ≤ 1.18` and Jensen's
//! inequality for the root: `p(d) ≤ 1.18 √(E[w]/d) Φ(d − R)`, where `E[w] = d + 1/R(R − d)` is the mean of a normal around d beyond R.
//!
//! Radii are counted as continuous, which the claim states as an assumption. The uniforms below 2⁻³² are odd multiples of 2⁻⁹⁶, so a radius r
//! of the uniform u has its neighbours at a distance of `2⁻⁹⁵/(u·r)`: no more than f32 resolves up to r = 9.99, no more than the output
//! grid's 2⁻¹³ up to r = 10.9, and 0.1 at the end.

use super::normal::{mills, upper};
use std::f64::consts::{LN_2, PI};

/// Claims hold for models of up to this many parameters.
pub const MAX_PARAMETERS: u64 = 1 << 40;

/// Bits of a radius: the smallest uniform is 2⁻⁹⁶, so no radius exceeds `√(2·96·ln 2)`.
const RADIUS_BITS: f64 = 96.0;

/// The radius, and a little less, since radii are rounded to f32.
fn radius() -> f64 {
    (2.0 * RADIUS_BITS * LN_2).sqrt() * (1.0 - 1e-6)
}

/// The probability that a pair of normals, shifted by a length, leaves its disc, over that length: `p(d)/d`, which grows with d.
fn leaves(shift: f64) -> f64 {
    let radius = radius();
    if shift > radius {
        return 1.0 / shift;
    }
    let outflow = (-0.5 * radius * radius).exp() * ((radius * shift).exp_m1() / shift) / PI;
    let mean = shift + 1.0 / mills(radius - shift);
    let beyond = 1.18 * (mean / shift).sqrt() * (upper(radius - shift) / shift);
    outflow.min(beyond).min(1.0 / shift)
}

/// What a shift of norm `gdp_mu` over a number of pairs adds to δ, at most.
pub(crate) fn beyond(gdp_mu: f64, pairs: f64) -> f64 {
    if gdp_mu == 0.0 {
        return 0.0;
    }
    // Not a number: nothing is known.
    if gdp_mu.is_nan() || gdp_mu > radius() {
        return 1.0;
    }
    const RATIO: f64 = 1.01;
    let root = pairs.sqrt();
    // `far` is μ times the largest p(d)/d² above the border.
    let (mut far, mut least) = (0.0_f64, f64::INFINITY);
    let mut shift = gdp_mu;
    // Pairs shifted by at most `shift`, and the others; the border that gives the smallest sum.
    loop {
        let slope = leaves(shift);
        least = least.min(gdp_mu * (root * slope + far));
        if shift < 1e-3 * gdp_mu.min(1.0) {
            return least.min(1.0);
        }
        // No pair between this shift and the next has a larger ratio.
        far = far.max(slope * (gdp_mu / shift) * RATIO * RATIO);
        shift /= RATIO;
    }
}

/// The same for steps of the subsampled mechanism, in each of which a unit takes part with probability p. Removing a unit, p is the
/// chance to leave a disc in a step. Adding one, outputs inside their discs lack the sampled part where that would have left its own: an
/// output's ratio grows by at most `p/(1 − p)` of the missing part's, and a run's δ, convex in `e^ε` and at most 1, by as much of the probability to leave.
/// Never more than that of certain participation.
pub(crate) fn beyond_sampled(gdp_mu: f64, pairs: f64, sampling_prob: f64, num_steps: u64) -> f64 {
    let share = if sampling_prob < 0.5 { sampling_prob / (1.0 - sampling_prob) } else { 1.0 };
    (share * num_steps as f64 * beyond(gdp_mu, pairs)).min(1.0)
}

/// The part of δ that the end of the tail takes, `δ·(1 − c) + beyond`, with c the probability that no pair of normals leaves its disc. The
/// rest is for normal noise that never ends; nothing is left where the part is no less than δ. It is not computed as a difference from
/// δ, beside which it may have no digit.
pub(crate) fn delta_taken(delta: f64, pairs: f64, beyond: f64) -> f64 {
    let inside = pairs * (-(-RADIUS_BITS * LN_2).exp()).ln_1p();
    beyond - delta * inside.exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `P(|z + d| > R, |z| ≤ R)` by summing over a fine grid in polar coordinates.
    fn brute_force(shift: f64) -> f64 {
        let (radius, count) = (radius(), 4000);
        let mut sum = 0.0;
        for i in 0..count {
            let r = radius * (f64::from(i) + 0.5) / f64::from(count);
            for k in 0..720 {
                let angle = PI * (f64::from(k) + 0.5) / 720.0;
                if r * r + shift * shift + 2.0 * r * shift * angle.cos() > radius * radius {
                    sum += r * (-0.5 * r * r).exp();
                }
            }
        }
        sum * radius / f64::from(count) / 720.0
    }

    #[test]
    fn a_pair_leaves_its_disc_as_often_as_counted() {
        for shift in [0.3, 1.0, 2.0, 3.0, 5.0, 7.0, 8.5, 10.5] {
            let (bound, exact) = (shift * leaves(shift), brute_force(shift));
            assert!(bound >= exact && bound < 3.0 * exact, "{shift}: {bound:e} {exact:e}");
        }
        // Small shifts: the length of the boundary's shadow.
        let radius = radius();
        let slope = radius * (-0.5 * radius * radius).exp() / PI;
        assert!((leaves(1e-6) / slope - 1.0).abs() < 1e-4);
    }

    /// Shifts of all shapes: k pairs shifted far, the rest evenly.
    #[test]
    fn no_shift_does_more() {
        for mu in [1e-3, 0.1, 0.5, 1.0, 3.0, 5.0, 8.0, 10.0] {
            for pairs in [1.0, 5e5, 5e14] {
                let most = beyond(mu, pairs);
                let mut worst = 0.0_f64;
                for far in [0.0, 1.0, 2.0, 5.0, 100.0, 1e4, 1e8].into_iter().filter(|far| *far <= pairs) {
                    for share in [0.0, 0.1, 0.5, 0.9, 0.99, 1.0] {
                        let each = |part: f64, count: f64| {
                            let shift = mu * (part / count).sqrt();
                            if count * part == 0.0 { 0.0 } else { count * shift * leaves(shift) }
                        };
                        worst = worst.max(each(share, far) + each(1.0 - share, pairs - far));
                    }
                }
                assert!(
                    most >= worst * (1.0 - 1e-12) && most < 4.0 * worst,
                    "{mu}, {pairs}: {most:e} {worst:e}"
                );
            }
        }
    }

    #[test]
    fn the_ends_of_claims_are_noticed() {
        // A unit along one coordinate is told apart with certainty beyond the end: P(z > R − μ).
        assert!(beyond(5.0, 1.0) > 3.15e-11 && beyond(0.5, 1.0) > 1.277e-28);
        let taken = |delta: f64, mu: f64, pairs: f64| delta_taken(delta, pairs, beyond(mu, pairs));
        assert!(taken(1e-6, 7.0, 1e15) > 1e-6 && taken(1e-6, 6.0, 1e15) < 1e-7);
        assert!(taken(1e-28, 0.5, 1.0) > 1e-28 && taken(1e-20, 1.0, 1e15) < 1e-20);
        // Many pairs shifted by little, and the discs' missing mass, which is far below the last digit of δ.
        let pairs = 1e3 * MAX_PARAMETERS as f64;
        let (expected, found) = (1.537e-21 + 1e-6 * pairs * 2_f64.powi(-96), taken(1e-6, 1.0, pairs));
        assert!((found / expected - 1.0).abs() < 0.01, "{found:e} {expected:e}");
        assert_eq!((beyond(1e9, 1.0), beyond(f64::NAN, 1.0), beyond(0.0, 1.0)), (1.0, 1.0, 0.0));
        assert!(beyond(1e-300, 1e15) > 0.0);
    }
}
