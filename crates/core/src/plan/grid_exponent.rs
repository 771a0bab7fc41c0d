//! How fine a plan's output grid is: the exponent of Γ, from the sizes of its rows of noise and the number of steps.

use super::scale;
use crate::error::{Error, Result};
use crate::form::Form;
use crate::grid;
use std::ops::RangeInclusive;

/// A plan's grid is at most this many powers of two finer than the smallest row's scale,
const FINEST: i32 = 12;

/// and at least this many.
const COARSEST: i32 = 2;

/// A new plan's grid is at least this many finer, unless a larger row needs it coarser.
const FINER_IF_NEW: i32 = 6;

/// And a grid is at most this many powers of two finer than the largest standard deviation of a row or of a sum on the way to it: a value of 64 standard deviations is then
/// below 2²² units, where f32 can still tell quarters of a unit apart.
const FINER_THAN_LARGEST: i32 = 15;

/// The exponent of the output grid that a plan is made with, and all that suit these rows of noise.
pub(super) fn choose(num_steps: u64, form: &Form, stddev: f64) -> Result<(i32, RangeInclusive<i32>)> {
    let (smallest, largest) = scales(num_steps, form, stddev)?;
    let exponents = exponents(smallest);
    let exponent = least_exponent(largest).max(*exponents.start());
    if !largest.is_finite() || exponent > *exponents.end() {
        return Err(Error::parameter(
            "noise",
            format!("{largest:.3e} at its largest and {smallest:.3e} at its smallest"),
            "rows, and sums on the way to them, that differ by less than a factor of 8192",
        ));
    }
    if !grid::EXPONENTS.contains(&exponent) {
        let expected = "noise whose 4096th part is between 2^-96 and 2^96";
        return Err(Error::parameter("stddev", stddev, expected));
    }
    let coarsest = *exponents.end().min(grid::EXPONENTS.end());
    let preferred = preferred_exponent(num_steps, smallest).clamp(exponent, coarsest);
    Ok((preferred, exponent..=coarsest))
}

/// The scales of the noise: the smallest of a row, and about the largest standard deviation of one or of a sum on the way to it. Refuses a scale that overflows, vanishes or
/// loses digits: it would void the claim.
pub(super) fn scales(num_steps: u64, form: &Form, stddev: f64) -> Result<(f64, f64)> {
    let (mut smallest, mut largest) = (f64::INFINITY, 0.0_f64);
    for step in 0..form.num_output_scales().min(num_steps) {
        let scale = scale(form, stddev, step).abs();
        if !scale.is_finite() || scale < f32::MIN_POSITIVE {
            return Err(Error::parameter(
                format!("stddev times output scale {step}"),
                stddev * form.output_scale(step),
                "within the range of normal f32 numbers",
            ));
        }
        (smallest, largest) = (smallest.min(scale.into()), largest.max(scale.into()));
    }
    Ok((smallest * form.smallest_row(), largest * form.largest_row(num_steps)))
}

/// The exponents of grids for rows whose smallest scale is this.
pub(crate) fn exponents(smallest: f64) -> RangeInclusive<i32> {
    floor_log2(smallest) - FINEST..=floor_log2(smallest) - COARSEST
}

/// The exponent that a new plan of so many steps prefers.
///
/// A finer grid shows more of the normals' digits, and a coarser one adds more by its rounding: Γ²/12 to the variance of a release, and n·Γ²/12 to
/// that of a prefix sum over n steps. Correlated noise leaves in a prefix sum hardly more than one row's own variance a². With the exponent
/// ⌊log₂ a⌋ − b, Γ is more than 2^−(b+1)·a and at most 2^−b·a; so 4^b ≥ 17·n makes n·Γ²/12 at most a²/204. The least such b is taken.
fn preferred_exponent(num_steps: u64, smallest: f64) -> i32 {
    let suffices = |finer: &i32| 1 << (2 * finer) >= 17 * u128::from(num_steps);
    floor_log2(smallest) - (FINER_IF_NEW..FINEST).find(suffices).unwrap_or(FINEST)
}

/// The least exponent that suits rows of this standard deviation.
fn least_exponent(largest: f64) -> i32 {
    floor_log2(largest) - FINER_THAN_LARGEST
}

/// ⌊log₂ x⌋ of a positive normal number: its exponent field.
fn floor_log2(x: f64) -> i32 {
    (x.to_bits() >> 52) as i32 - 1023
}
