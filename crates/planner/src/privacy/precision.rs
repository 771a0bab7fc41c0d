//! What finite precision leaves: how far one unit's privacy loss may differ from that of exact normals.
//!
//! `docs/privacy.md`, "What the digits still tell", has the derivation. In short: a release is a multiple of Γ. Normals are made in pairs,
//! and both of a pair are released, so what counts is the probability of a pair's cell, Γ wide and Γ high: that of exact normals times
//! `1 + e`. Rounding moves mass by about a unit in the last place, so it matters only at the edges of the cell, which the dither makes an eighth
//! of Γ wide. There it is a mean over the thousand or so radii that pass through an edge, and not over the ten million that reach a value of
//! one coordinate alone. A unit's loss changes by `Σ e(y) − e(y − g)` over the pairs of all steps. The sum of independent terms grows as the root of their number.

use corrnoise_core::Plan;

/// The number of parameters for which [`loss_change`] is shown to people; it grows as the root of that number.
pub const SHOWN_PARAMETERS: u64 = 1_000_000;

/// The root mean square of `e(y) − e(y − g)` of one pair of values, where noise has the standard deviation `largest` in units of the
/// grid, as a bound on what was measured by adding up all words that reach a cell, for cells where normals fall (`tests/pairs.rs`): 7.9e-4 at 2¹⁶ units, 3.3e-4 at
/// 2¹⁵, 1.1e-4 at 2¹⁴, 4.9e-5 at 2¹³, 5.1e-6 at 2¹², 3.5e-6 at 2¹¹, 8.8e-7 at 2¹⁰ and 2.0e-7 at 2⁹. A radius that is off by a unit in the
/// last place moves as much of its arc out of the cell, whence a power of 3/2; products that are off move less of it the wider the edge, whence
/// a power of 2. Below 2⁹ units, where plans of fewer than four thousand steps are, it is extrapolated.
pub fn pair_change(largest: f64) -> f64 {
    1.2e-11 * largest.powf(1.7)
}

/// The root mean square of the change of one unit's privacy loss, over a whole run of a model of so many parameters, that is due to
/// finite precision: as if one more Gaussian mechanism of this μ were released. It is an estimate, is no part of the claim, and assumes
/// that dither words are not known.
pub fn loss_change(plan: &Plan, parameters: u64) -> f64 {
    // All rows count as the largest ones do, whose last places are the widest, and as if the noise of the steps before were known.
    let pairs = plan.num_steps() as f64 * parameters as f64 / 2.0;
    pair_change(plan.largest_noise()) * pairs.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use corrnoise_core::Form;

    #[test]
    fn it_grows_as_the_root_of_steps_and_parameters() {
        let plan = |steps| Plan::new(steps, Form::independent(), 1.0).unwrap();
        let one = loss_change(&plan(1), 1);
        assert!((9.9e-9..1e-8).contains(&one), "Γ is 2⁻⁶ of the noise: {one}");
        assert!((loss_change(&plan(100), 10_000) / (1000.0 * one) - 1.0).abs() < 1e-12);
        // More steps have a finer grid: 2⁻⁸ of the noise, and 2⁻¹².
        assert!((0.0032..0.0035).contains(&loss_change(&plan(1000), SHOWN_PARAMETERS)));
        assert!((11.6..11.9).contains(&loss_change(&plan(1_000_000), SHOWN_PARAMETERS)));
        // The same noise written with other weights.
        for weight in [1024.0, 1.0 / 1024.0] {
            let form = Form::regenerate(&[weight]).unwrap().with_output_scale(vec![1.0 / weight]).unwrap();
            assert_eq!(loss_change(&Plan::new(1, form, 1.0).unwrap(), 1), one);
        }
    }
}
