//! Lower-triangular Toeplitz matrices as the power series of their first column, truncated to `n` terms.
//!
//! Products and inverses of short series are recurrences, which keep every coefficient's own digits; long ones go through FFTs,
//! which keep digits relative to the largest coefficient. That is enough for norms, and for nothing else.

use crate::error::{Error, Result, check_finite};
use corrnoise_numerics::convolve;

/// Up to this many multiplications the recurrence is used.
const RECURRENCE_WORK: usize = 1 << 26;
/// And for so few coefficients, however long the other series: a transform is longer than both, in complex numbers.
const FEW: usize = 256;
/// Longest series that goes through transforms, which hold some 100 bytes per coefficient.
const TRANSFORM_LIMIT: usize = 1 << 22;

fn is_long(short: usize, long: usize) -> bool {
    short > FEW && short.saturating_mul(long) > RECURRENCE_WORK
}

/// Refuses a product or quotient with so many coefficients on one side and `n` on the other that memory would not hold its transforms.
pub(crate) fn check_product(coefs: usize, n: usize) -> Result<()> {
    if n <= TRANSFORM_LIMIT || !is_long(coefs.min(n), n) {
        return Ok(());
    }
    let what = format!("a series of {coefs} coefficients times another");
    Err(Error::TooLarge { what, cost: "n log n", n, limit: TRANSFORM_LIMIT })
}

/// Refuses an empty series, one that is not finite, or one that starts with zero.
pub(crate) fn check(coefs: &[f64], name: &str) -> Result<()> {
    let Some(first) = coefs.first() else {
        return Err(Error::parameter(format!("number of {name}s"), 0, "at least 1"));
    };
    for (t, coef) in coefs.iter().enumerate() {
        check_finite(&format!("{name} {t}"), *coef)?;
    }
    if *first == 0.0 {
        return Err(Error::parameter(format!("{name} 0"), 0, "not 0"));
    }
    Ok(())
}

/// The binomial series of `(1 − x)^power`: `w_t = w_{t−1}·(t − 1 − power)/t`.
pub fn binomial(power: f64, n: usize) -> Vec<f64> {
    let mut coefs = Vec::with_capacity(n);
    let mut coef = 1.0;
    for t in 0..n {
        coefs.push(coef);
        coef *= (t as f64 - power) / (t + 1) as f64;
    }
    coefs
}

/// The first `n` coefficients of a product.
pub fn multiply(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
    let (a, b) = (&a[..a.len().min(n)], &b[..b.len().min(n)]);
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    if is_long(short.len(), long.len()) {
        let mut out = convolve(a, b);
        out.resize(n, 0.0);
        return out;
    }
    let mut out = vec![0.0; n];
    for (shift, weight) in short.iter().enumerate() {
        out[shift..].iter_mut().zip(long).for_each(|(out, value)| *out += weight * value);
    }
    out
}

/// The first `n` coefficients of `1/a`; `a` must not start with zero.
pub fn inverse(a: &[f64], n: usize) -> Vec<f64> {
    let a = &a[..a.len().min(n)];
    if !is_long(a.len(), n) {
        return divide_by_recurrence(&[1.0], a, n);
    }
    // Newton: each turn doubles the number of right coefficients.
    let mut known = RECURRENCE_WORK.isqrt().min(n);
    let mut out = divide_by_recurrence(&[1.0], &a[..a.len().min(known)], known);
    while known < n {
        known = (2 * known).min(n);
        let mut rest = multiply(a, &out, known);
        rest.iter_mut().for_each(|value| *value = -*value);
        rest[0] += 2.0;
        out = multiply(&out, &rest, known);
    }
    out
}

/// The first `n` coefficients of `numerator/a`. A recurrence for as long as it is cheaper than two FFTs.
pub fn divide(numerator: &[f64], a: &[f64], n: usize) -> Vec<f64> {
    const FFT_WORK: usize = 2000;
    if a.len().min(n) > FFT_WORK && n.saturating_mul(a.len()) > RECURRENCE_WORK {
        return multiply(numerator, &inverse(a, n), n);
    }
    divide_by_recurrence(numerator, &a[..a.len().min(n)], n)
}

/// `x_t = (numerator_t − Σ_{s≥1} a_s x_{t−s}) / a_0`: the coefficients of `a` in one run, so that the dot product vectorises.
fn divide_by_recurrence(numerator: &[f64], a: &[f64], n: usize) -> Vec<f64> {
    let reversed: Vec<f64> = a[1..].iter().rev().copied().collect();
    let bands = reversed.len();
    let mut out = vec![0.0; n + bands];
    for t in 0..n {
        let sum = dot(&out[t..t + bands], &reversed);
        out[t + bands] = (numerator.get(t).copied().unwrap_or(0.0) - sum) / a[0];
    }
    out.drain(..bands);
    out
}

/// `Σ_t left_t right_{t−lag}` for lags below `count`.
pub fn correlate(left: &[f64], right: &[f64], count: usize) -> Vec<f64> {
    let n = left.len().min(right.len());
    if count > 2000 && n.saturating_mul(count) > RECURRENCE_WORK {
        let reversed: Vec<f64> = left[..n].iter().rev().copied().collect();
        let product = multiply(&reversed, &right[..n], n);
        return (0..count).map(|lag| product[n - 1 - lag]).collect();
    }
    (0..count).map(|lag| dot(&left[lag..n], &right[..n - lag])).collect()
}

/// A dot product in eight sums, the order of which is fixed: fast, and the same everywhere.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (chunks_a, rest_a) = a.as_chunks::<8>();
    let (chunks_b, rest_b) = b.as_chunks::<8>();
    for (a, b) in chunks_a.iter().zip(chunks_b) {
        (0..8).for_each(|i| sums[i] += a[i] * b[i]);
    }
    sums.iter().sum::<f64>() + rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum::<f64>()
}

/// The first `n` coefficients of the square root with a positive start; `a` starts with a positive number. Costs n²/2.
pub fn square_root(a: &[f64], n: usize) -> Vec<f64> {
    let mut root: Vec<f64> = Vec::with_capacity(n);
    for t in 0..n {
        let target = a.get(t).copied().unwrap_or(0.0);
        let next = if t == 0 {
            target.sqrt()
        } else {
            let sum: f64 = root[1..].iter().zip(root[1..].iter().rev()).map(|(x, y)| x * y).sum();
            (target - sum) / (2.0 * root[0])
        };
        root.push(next);
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binomial_series_are_powers() {
        let (root, inverse_root) = (binomial(-0.5, 50), binomial(0.5, 50));
        assert_eq!((root[0], root[1], root[2], inverse_root[2]), (1.0, 0.5, 0.375, -0.125));
        assert!(multiply(&root, &root, 50).iter().all(|c| (c - 1.0).abs() < 1e-13));
        let unit = multiply(&root, &inverse_root, 50);
        assert!((unit[0] - 1.0).abs() < 1e-15 && unit[1..].iter().all(|c| c.abs() < 1e-14));
        assert!(inverse(&root, 50).iter().zip(&inverse_root).all(|(a, b)| (a - b).abs() < 1e-14));
        assert!(square_root(&vec![1.0; 50], 50).iter().zip(&root).all(|(a, b)| (a - b).abs() < 1e-13));
    }

    #[test]
    fn long_series_agree_with_recurrences() {
        let n = 20_000;
        let root = binomial(-0.5, n);
        let long = inverse(&root, n);
        let exact = binomial(0.5, n);
        assert!(n * n > RECURRENCE_WORK, "this goes through FFTs");
        let worst = long.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 1e-13, "{worst}");
    }
}
