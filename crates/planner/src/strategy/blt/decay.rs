//! Powers and geometric sums of a decay, with all their digits as it approaches 1.

/// A decay λ and its complement 1 − λ, each to full relative precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Decay {
    pub(crate) value: f64,
    pub(crate) complement: f64,
}

impl Decay {
    pub(crate) fn new(value: f64) -> Decay {
        Decay { value, complement: 1.0 - value }
    }

    /// `1 − λλ' = (1 − λ) + λ(1 − λ')`, or with both signs flipped where λ and λ' are negative: nothing cancels.
    pub(crate) fn times(self, other: Decay) -> Decay {
        let complement = if self.value < 0.0 && other.value < 0.0 {
            (1.0 + self.value) - self.value * (1.0 + other.value)
        } else {
            self.complement + self.value * other.complement
        };
        Decay { value: self.value * other.value, complement }
    }

    /// The logarithm of the decay's magnitude, `ln |λ|`.
    fn log(self) -> f64 {
        if self.value > 0.5 { (-self.complement).ln_1p() } else { self.value.abs().ln() }
    }

    /// `λᵗ`. Repeated multiplication would lose a digit per decade of t; the exponent loses none while `t(1 − λ)` is
    /// moderate, and beyond that the power vanishes.
    pub(crate) fn power(self, t: u64) -> f64 {
        if t == 0 {
            return 1.0;
        }
        let magnitude = (t as f64 * self.log()).exp();
        if self.value < 0.0 && t % 2 == 1 { -magnitude } else { magnitude }
    }

    /// `λᵗ` as a decay of its own.
    pub(super) fn pow(self, t: u64) -> Decay {
        let value = self.power(t);
        let complement = if value > 0.5 { -(t as f64 * self.log()).exp_m1() } else { 1.0 - value };
        Decay { value, complement }
    }

    /// The sum of powers below `n`, `γ_n(λ) = 1 + λ + … + λⁿ⁻¹`.
    pub(crate) fn sum(self, n: u64) -> f64 {
        let numerator =
            if self.value > 0.5 { -(n as f64 * self.log()).exp_m1() } else { 1.0 - self.power(n) };
        numerator / self.complement
    }

    /// The sum of geometric sums, `S_n(λ) = n + (n − 1)λ + … + λⁿ⁻¹ = (n − λγ_n(λ)) / (1 − λ)`.
    pub(crate) fn ramp_sum(self, n: u64) -> f64 {
        let (steps, mu) = (n as f64, self.complement);
        if steps * mu >= 1.0 {
            return (steps - self.value * self.sum(n)) / mu;
        }
        // The quotient is 0/0 as μ → 0. Its expansion Σ_k C(n+1, k+1) (−μ)^(k−1) has terms that shrink by nμ/(k + 2).
        let mut term = 0.5 * steps * (steps + 1.0);
        let (mut sum, mut k) = (term, 1.0);
        while term.abs() > f64::EPSILON * 0.01 * sum {
            term *= -mu * (steps - k) / (k + 2.0);
            sum += term;
            k += 1.0;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::Decay;
    use num_rational::BigRational;
    use num_traits::{One, ToPrimitive, Zero};

    /// `Σ_{t<n} λᵗ` and `Σ_{t<n} (n − t) λᵗ`, exactly.
    fn exact(decay: f64, n: u64) -> [f64; 2] {
        let decay = BigRational::from_float(decay).unwrap();
        let (mut power, mut sum, mut ramp) = (BigRational::one(), BigRational::zero(), BigRational::zero());
        for _ in 0..n {
            sum += &power;
            ramp += &sum;
            power *= &decay;
        }
        [sum.to_f64().unwrap(), ramp.to_f64().unwrap()]
    }

    #[test]
    fn geometric_sums_match_exact_ones() {
        // −0.9375² and the like reach the direct forms, n(1 − λ) on either side of 1 both forms of the ramp.
        for value in
            [-0.9375, -0.25, 1e-3, 0.3, 0.5, 0.51, 0.75, 0.97, 0.999, 1.0 - 1e-9, 1.0 - 1e-12, 1.0 - 1e-15]
        {
            for n in [1, 2, 3, 7, 30, 101] {
                let decay = Decay::new(value);
                for (got, expected) in [decay.sum(n), decay.ramp_sum(n)].into_iter().zip(exact(value, n)) {
                    assert!((got / expected - 1.0).abs() < 2e-15, "{value}, {n}: {got} for {expected}");
                }
                let power = decay.pow(n);
                assert!((power.value / value.powi(n as i32) - 1.0).abs() < 2e-13, "{value}^{n}: {power:?}");
                let product = (1..n).fold(decay, |product, _| product.times(decay));
                assert!(
                    (power.complement / product.complement - 1.0).abs() < 1e-13,
                    "{value}^{n}: {power:?}"
                );
            }
        }
    }
}
