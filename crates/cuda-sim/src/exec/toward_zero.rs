//! Float arithmetic that rounds towards zero: the nearest result, moved one step back where it lies beyond the exact one.
//!
//! A product of two f32 is exact in f64, and the error of a sum in f64 is itself a f64, so the exact result is known.

/// The fused sum `a · b + c` rounded towards zero; `nearest` is the same sum rounded to the nearest.
pub(super) fn fma(a: f32, b: f32, c: f32, nearest: f32) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    // The rounding error of the sum, by Knuth's two-sum.
    let part = sum - product;
    let lost = (product - (sum - part)) + (c - part);
    if nearest.is_infinite() && sum.is_finite() {
        return f32::MAX.copysign(nearest);
    }
    // `nearest` is within half a step of f32 of the sum, so the difference is exact, and larger than `lost` if it is not 0.
    let rest = (sum - f64::from(nearest)) + lost;
    let beyond = if nearest > 0.0 { rest < 0.0 } else { nearest < 0.0 && rest > 0.0 };
    if beyond { f32::from_bits(nearest.to_bits() - 1) } else { nearest }
}

/// The square root of `a`, rounded towards zero.
pub(super) fn sqrt(a: f32) -> f32 {
    let nearest = a.sqrt();
    let beyond = f64::from(nearest) * f64::from(nearest) > f64::from(a);
    if beyond { f32::from_bits(nearest.to_bits() - 1) } else { nearest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_never_beyond_the_exact_one_and_at_most_one_step_before_it() {
        let third = 1.0_f32 / 3.0;
        assert_eq!(fma(third, third, 0.0, third * third), 0.111_111_11);
        // 1 + 2⁻³⁰ and its mirror image, a sum exactly halfway, and one far below the last bit: the nearest is 1 in the first two.
        let small = f32::from_bits(0x3080_0000);
        assert_eq!(fma(1.0, 1.0, small, 1.0), 1.0);
        assert_eq!(fma(1.0, 1.0, -small, 1.0), f32::from_bits(0x3f7f_ffff));
        assert_eq!(fma(-1.0, 1.0, small, -1.0), f32::from_bits(0xbf7f_ffff));
        assert_eq!(fma(-1.0, 1.0, -small, -1.0), -1.0);
        assert_eq!(fma(1.0, 1.0, -1e-45, 1.0), f32::from_bits(0x3f7f_ffff));
        assert_eq!(fma(3e38, 2.0, 0.0, f32::INFINITY), f32::MAX);
        assert_eq!(fma(f32::INFINITY, 1.0, 0.0, f32::INFINITY), f32::INFINITY);
        assert_eq!(fma(0.0, -1.0, 0.0, -0.0).to_bits(), (-0.0_f32).to_bits());
        assert_eq!(sqrt(4.0), 2.0);
        assert_eq!(sqrt(5.0), f32::from_bits(5.0_f32.sqrt().to_bits() - 1));
        assert_eq!(sqrt(2.0), 2.0_f32.sqrt());
        assert!(sqrt(-1.0).is_nan());
    }
}
