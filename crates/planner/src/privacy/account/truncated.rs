//! Truncated batches: of more than so many units some are left out, by a rule that knows names and coins and no data.
//!
//! Fix the coins of all other units and those of the rule. A step is *full* if at least `limit` others were drawn for it: in all other steps
//! nobody is left out, whatever one unit does. Let R be the event that this unit is drawn in a full step; it is as likely with the
//! unit's contributions as with zeros in their place. Given that R does not happen, the unit's coins in the other steps are what they were,
//! and those of the others do not depend on them: the run is the one without truncation, with contributions of zero in full steps, which its
//! claim covers. So `δ_truncated(ε) ≤ δ(ε) + P(R)`, and P(R) is at most the mean number of full steps in which the unit is drawn,
//! `rounds · p · P(Bin(part − 1, p) ≥ limit)`.
//!
//! The binomial tail is bounded from above in closed form. Stirling's inequalities give
//! `P(Bin(n, p) = k) ≤ √(n/2πk(n − k))·e^{−n·D(k/n ‖ p)}`, D being the relative entropy, and the following terms fall at least as fast as a geometric
//! series of ratio `(n − k)p/(k + 1)(1 − p)`.

use std::f64::consts::TAU;

/// What truncation adds to δ at most: for a part of the dataset of so many units, of which every one is drawn with a probability in every
/// round, and batches of at most `limit`.
pub(crate) fn truncation_delta(part: u64, sampling_prob: f64, num_rounds: u64, limit: u64) -> f64 {
    let full = at_least(part.saturating_sub(1), sampling_prob, limit);
    (num_rounds as f64 * sampling_prob * full * ROUNDED_UP).min(1.0)
}

/// Above the rounding of a bound: where it is no 0, its exponent is off by a few 1e-16 of `k − np`, and that is below 1e8.
const ROUNDED_UP: f64 = 1.0 + 1e-6;

/// The probability that so many of `trials` succeed, or more, from above.
fn at_least(trials: u64, prob: f64, count: u64) -> f64 {
    if count == 0 {
        return 1.0;
    }
    if count > trials {
        return 0.0;
    }
    let (n, k) = (trials as f64, count as f64);
    if count == trials {
        return prob.powf(n);
    }
    let ratio = (n - k) * prob / ((k + 1.0) * (1.0 - prob));
    // Not above 1 for p = 1 either, where it is infinite.
    if !(ratio < 1.0 && k > n * prob) {
        return 1.0;
    }
    let entropy = n * prob * excess((k - n * prob) / (n * prob))
        + n * (1.0 - prob) * excess((n * prob - k) / (n * (1.0 - prob)));
    let most_likely = (n / (TAU * k * (n - k))).sqrt() * (-entropy).exp();
    (most_likely / (1.0 - ratio)).min(1.0)
}

/// `(1 + u)ln(1 + u) − u`, by its series where it would cancel.
fn excess(u: f64) -> f64 {
    if u.abs() > 0.01 {
        return (1.0 + u) * u.ln_1p() - u;
    }
    // Σ_{m≥2} (−u)^m/(m(m − 1)).
    let mut power = -u;
    let mut sum = 0.0;
    for m in 2..12_u32 {
        power *= -u;
        sum += power / f64::from(m * (m - 1));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Terms one after another, each from the one before it, from the most likely one down and up.
    fn brute_force(trials: u64, prob: f64, count: u64) -> f64 {
        let (mut terms, mut term) = (vec![1.0_f64], 1.0_f64);
        for k in 0..trials {
            term *= (trials - k) as f64 / (k + 1) as f64 * prob / (1.0 - prob);
            terms.push(term);
            if term > 1e200 {
                terms.iter_mut().for_each(|other| *other *= 1e-200);
                term *= 1e-200;
            }
        }
        terms[count as usize..].iter().rev().sum::<f64>() / terms.iter().rev().sum::<f64>()
    }

    #[test]
    fn the_tail_is_bounded_hardly_above_its_sum() {
        let mut count = 0;
        for (trials, prob) in
            [(1, 0.3), (2, 0.5), (5, 0.01), (40, 0.9), (100, 0.1), (3000, 0.02), (20_000, 0.5)]
        {
            let mean = trials as f64 * prob;
            let deviation = (mean * (1.0 - prob)).sqrt();
            for far in [-2.0, 0.0, 0.5, 1.0, 2.0, 4.0, 7.0, 11.0] {
                let at = (mean + far * deviation).clamp(0.0, trials as f64) as u64;
                let (bound, exact) = (at_least(trials, prob, at), brute_force(trials, prob, at));
                assert!(bound >= exact * (1.0 - 1e-9), "{trials} {prob} {at}: {bound:e} {exact:e}");
                if far >= 2.0 {
                    assert!(bound <= 1.3 * exact, "{trials} {prob} {at}: {bound:e} {exact:e}");
                    count += 1;
                }
            }
        }
        assert_eq!(count, 28);
    }

    #[test]
    fn ends_and_sizes_beyond_any_sum() {
        assert_eq!((at_least(10, 0.5, 0), at_least(10, 0.5, 11), at_least(0, 0.5, 1)), (1.0, 0.0, 0.0));
        assert_eq!((at_least(10, 1.0, 10), at_least(10, 1.0, 9)), (1.0, 1.0));
        assert_eq!(at_least(2, 0.5, 2), 0.25);
        // Seven standard deviations of a count that is almost normal: Φ(−7) = 1.28e-12, and a little more by its skewness.
        let (trials, prob) = (1_u64 << 40, 0.001);
        let mean = trials as f64 * prob;
        let bound = at_least(trials, prob, (mean + 7.0 * (mean * 0.999).sqrt()) as u64);
        assert!(bound > 1.28e-12 && bound < 1.35e-12, "{bound:e}");
        for u in [0.009_99_f64, 0.010_01, -0.009_99, -0.010_01] {
            let (direct, found) = ((1.0 + u) * u.ln_1p() - u, excess(u));
            assert!((found / direct - 1.0).abs() < 1e-9, "{u}");
        }
        // A part as large as the limit is never cut; whoever is alone never loses the place to anybody.
        assert_eq!((truncation_delta(8, 0.9, 100, 8), truncation_delta(1, 1.0, 100, 1)), (0.0, 0.0));
        assert_eq!(truncation_delta(100, 0.5, 1000, 10), 1.0);
    }
}
