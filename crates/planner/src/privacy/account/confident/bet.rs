//! A test by betting: values Y in [0, B] with mean δ, and the claim that δ is below a level m.
//!
//! Whoever bets a share λ ≤ 1/B of a capital of 1 at every sample has `Π (1 + λ(m − Y_i))` in the end, never below 0. If δ ≥ m its mean is
//! `(1 + λ(m − δ))^N ≤ 1`, so by Markov's inequality it reaches 1/α with probability at most α. The share is fixed before the first sample. The best one gains
//! `N(m − δ)²/2·Var Y` in the logarithm, as the central limit theorem has it, without knowing Var Y or relying on a limit.

/// Of the largest share that bounds allow.
const WITHIN: f64 = 1.0 - 1e-6;
/// Of it, for plans whose noise is still to be rounded.
const PLANNED: f64 = 0.999;
/// By how many standard deviations a future capital is expected to exceed its need.
const SAFETY: f64 = 2.5;

/// The logarithm of the capital after all values; not a number if a value exceeds its bound.
pub(super) fn capital(values: &[f64], share: f64, level: f64) -> f64 {
    values.iter().map(|value| libm::log1p(share * (level - value))).sum()
}

/// The largest share whose capital cannot fall below 0.
pub(super) fn largest_share(most: f64) -> f64 {
    WITHIN / most
}

/// What values let expect of as many new ones, times `times`: the best share, and the logarithm of the capital by which the need is exceeded then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) share: f64,
    pub(super) beyond: f64,
}

/// The best share at a level, for a capital of logarithm `need`.
pub(super) fn expected(values: &[f64], most: f64, level: f64, times: f64, need: f64) -> Expected {
    let share = best_share(values, PLANNED * largest_share(most), level);
    let (mut sum, mut squares) = (0.0, 0.0);
    for value in values {
        let gain = libm::log1p(share * (level - value));
        sum += gain;
        squares += gain * gain;
    }
    let spread = (times * (squares - sum * sum / values.len() as f64).max(0.0)).sqrt();
    Expected { share, beyond: times * sum - SAFETY * spread - need }
}

/// The share with the largest sum of `ln(1 + share·(level − value))`, which is concave in the share.
fn best_share(values: &[f64], largest: f64, level: f64) -> f64 {
    let slope = |share: f64| -> f64 {
        values.iter().map(|value| (level - value) / (1.0 + share * (level - value))).sum()
    };
    if slope(largest) >= 0.0 {
        return largest;
    }
    if slope(0.0) <= 0.0 {
        return 0.0;
    }
    let (mut low, mut high) = (0.5 * largest, largest);
    while slope(low) < 0.0 && low > 0.0 {
        (low, high) = (0.5 * low, low);
    }
    // The share need not be exact: the sum is flat at its top.
    for _ in 0..5 {
        let middle = 0.5 * (low + high);
        if slope(middle) > 0.0 { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// The least level that as many new values, times `times`, are expected to show.
pub(super) fn least_level(values: &[f64], most: f64, times: f64, need: f64) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    if !(mean.is_finite() && most.is_finite()) {
        return f64::INFINITY;
    }
    // Samples that are all 0 show what a bound of their own gives.
    let mut low = mean.max(1e-9 * most);
    let (mut high, mut factor) = (low, 1.05);
    while high < most && expected(values, most, high, times, need).beyond < 0.0 {
        low = high;
        high *= factor;
        factor *= factor;
    }
    high = high.min(most);
    while high > low * 1.003 {
        let middle = (low * high).sqrt();
        if expected(values, most, middle, times, need).beyond >= 0.0 { high = middle } else { low = middle }
    }
    high
}
