//! How a run most likely comes to lose ε: the bins' log-likelihoods there, and how much each bin has to do with it.
//!
//! Among all outputs with `W = e^{±ε}` the most likely one moves the log-likelihoods by `λ·Kq`, where q are the bins' shares in W and λ is
//! as large as it must be. It is a guide for grids, kernels and guesses; no bound rests on it.

/// A most likely output.
#[derive(Clone, Debug)]
pub(crate) struct Tilt {
    /// How far it lies, λ; negative where W is small.
    pub(super) length: f64,
    /// The bins' shares in W.
    pub(super) shares: Vec<f64>,
}

/// The most likely output with `ln W = target`, for a covariance given by its product with a vector and its diagonal. `None` where no tilt
/// reaches the target.
pub(crate) fn tilt(times: impl Fn(&[f64]) -> Vec<f64>, diagonal: &[f64], target: f64) -> Option<Tilt> {
    let m = diagonal.len();
    let sign = if target > 0.0 { 1.0 } else { -1.0 };
    let mut shares = vec![1.0 / m as f64; m];
    if target > 0.0 {
        // Gains come from a few bins next to each other.
        shares.fill(0.0);
        shares[m / 2] = 1.0;
    }
    let mut length = 0.0;
    for turn in 0..80 {
        let product = times(&shares);
        let found = reach(&product, diagonal, target, sign)?;
        let next = softmax(&product, diagonal, found);
        let change: f64 = next.iter().zip(&shares).map(|(a, b)| (a - b).abs()).sum();
        // Half way, so that shares do not swing between bins.
        shares.iter_mut().zip(&next).for_each(|(share, next)| *share = 0.5 * (*share + next));
        length = found;
        if change < 1e-7 && turn > 3 {
            break;
        }
    }
    length.is_finite().then_some(Tilt { length, shares })
}

/// `ln W` at a multiple of the direction.
fn ln_mean(product: &[f64], diagonal: &[f64], length: f64) -> f64 {
    let exponent = |(k, d): (&f64, &f64)| length * k - 0.5 * d;
    let most = product.iter().zip(diagonal).map(exponent).fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = product.iter().zip(diagonal).map(|pair| (exponent(pair) - most).exp()).sum();
    most + (sum / product.len() as f64).ln()
}

fn softmax(product: &[f64], diagonal: &[f64], length: f64) -> Vec<f64> {
    let total = ln_mean(product, diagonal, length) + (product.len() as f64).ln();
    product.iter().zip(diagonal).map(|(k, d)| (length * k - 0.5 * d - total).exp()).collect()
}

/// The least λ of the target's sign with which `ln W` reaches the target: by Newton's method, which a convex function's values approach from one side.
fn reach(product: &[f64], diagonal: &[f64], target: f64, sign: f64) -> Option<f64> {
    let excess = |length: f64| sign * (ln_mean(product, diagonal, sign * length) - target);
    if excess(0.0) >= 0.0 {
        return Some(0.0);
    }
    let mut high = 1.0;
    while excess(high) < 0.0 {
        high *= 2.0;
        if high > 1e12 {
            return None;
        }
    }
    let (mut low, mut at) = (0.0, if sign > 0.0 { high } else { 0.0 });
    for _ in 0..60 {
        let value = excess(at);
        if value >= 0.0 {
            high = at
        } else {
            low = at
        }
        let slope: f64 =
            softmax(product, diagonal, sign * at).iter().zip(product).map(|(share, k)| share * k).sum();
        let next = at - value / slope;
        // Inside the bracket, whatever rounding says of the slope.
        let next = if next >= low && next <= high { next } else { 0.5 * (low + high) };
        let moved = (next - at).abs();
        at = next;
        if moved <= 1e-9 * high {
            break;
        }
    }
    Some(sign * at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_bin_is_a_normal_quantile() {
        // ln W = λ·K − K/2 = ε.
        let found = tilt(|q| vec![0.5 * q[0]], &[0.5], 1.0).unwrap();
        assert!((found.length - 2.5).abs() < 1e-6, "{found:?}");
        let found = tilt(|q| vec![0.5 * q[0]], &[0.5], -1.0).unwrap();
        assert!((found.length + 1.5).abs() < 1e-6, "{found:?}");
        assert!(tilt(|_| vec![0.0], &[0.0], 1.0).is_none());
    }

    #[test]
    fn independent_bins_gain_one_at_a_time() {
        let found = tilt(|q| q.to_vec(), &[1.0; 20], 2.0).unwrap();
        assert!(found.shares[10] > 0.9, "{found:?}");
        assert!((found.shares.iter().sum::<f64>() - 1.0).abs() < 1e-6);
    }
}
