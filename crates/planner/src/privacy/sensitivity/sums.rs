//! Sums over the steps of a pattern, largest first: by closed forms, by windows along a residue, or by a dynamic program.

/// For every step `s`: the sum of the values at `s, s + stride, …`, `width` of them or as many as there are.
///
/// Members of a residue are cut into chunks of `width`; a window is the end of one chunk and the beginning of the next, so that nothing
/// is subtracted and every sum keeps its digits. Two additions per value, whatever the width.
pub(super) fn window_sums(values: &[f64], stride: usize, width: usize) -> Vec<f64> {
    let mut windows = Windows::default();
    windows.sum(values, stride, width);
    windows.sums
}

/// The lists of [`window_sums`], to be used again.
#[derive(Default)]
pub(super) struct Windows {
    begun: Vec<f64>,
    sums: Vec<f64>,
}

impl Windows {
    pub(super) fn sum(&mut self, values: &[f64], stride: usize, width: usize) -> &[f64] {
        for list in [&mut self.begun, &mut self.sums] {
            list.clear();
            list.extend_from_slice(values);
        }
        fill(&mut self.begun, &mut self.sums, stride, width);
        &self.sums
    }
}

fn fill(begun: &mut [f64], sums: &mut [f64], stride: usize, width: usize) {
    let n = begun.len();
    let chunk = stride.saturating_mul(width);
    for start in (0..n).step_by(chunk) {
        let end = start.saturating_add(chunk).min(n);
        // From the beginning of the chunk to each step, and from each step to the end of the chunk.
        for s in start + stride.min(end - start)..end {
            begun[s] += begun[s - stride];
        }
        for s in (start..end.saturating_sub(stride)).rev() {
            sums[s] += sums[s + stride];
        }
    }
    let reach = (width - 1).saturating_mul(stride);
    for start in (0..n).step_by(chunk) {
        let next = start.saturating_add(chunk);
        // Windows that begin after the chunk does and end in the next one, whole or cut where the values end.
        let (from, to) = ((start + stride).min(next).min(n), next.min(n));
        let whole = n.saturating_sub(reach).clamp(from, to);
        for s in from..whole {
            sums[s] += begun[s + reach];
        }
        // The last member of a residue is one of the last steps, which take turns.
        let tail = n.saturating_sub(stride);
        let mut last = tail + (whole + stride - tail % stride) % stride;
        for sum in &mut sums[whole..to] {
            if last >= next {
                *sum += begun[last];
            }
            last = if last + 1 == n { tail } else { last + 1 };
        }
    }
}

/// The largest sum of at most `count` members of one residue that follow each other.
pub(super) fn best_cyclic_sum(values: &[f64], separation: usize, count: usize) -> f64 {
    if separation.saturating_mul(count) >= values.len() {
        // One cycle has all of a residue.
        let sum = |first: usize| values[first..].iter().step_by(separation).sum::<f64>();
        return (0..separation.min(values.len())).map(sum).fold(0.0, f64::max);
    }
    window_sums(values, separation, count).into_iter().fold(0.0, f64::max)
}

/// The largest sum of at most `count` values that are at least `separation` apart; values are non-negative.
pub(super) fn best_separated_sum(values: &[f64], separation: usize, count: usize) -> f64 {
    let n = values.len();
    // best[t]: of the steps from t on, with the participations counted so far.
    let mut best = vec![0.0; n + 1];
    for _ in 0..count {
        // In place and forward: what is read lies ahead of what is written, and is still that of one participation fewer.
        let last = n.saturating_sub(separation);
        for t in 0..last {
            best[t] = values[t] + best[t + separation];
        }
        best[last..n].copy_from_slice(&values[last..]);
        let mut later = 0.0;
        for value in best[..n].iter_mut().rev() {
            later = if *value > later { *value } else { later };
            *value = later;
        }
    }
    best[0]
}

/// The best sum of squared norms of columns of a Toeplitz matrix with no more coefficients than the separation: norms never increase
/// from column to column, so the earliest are the largest, and only the last of them can be cut at the end.
pub(super) fn orthogonal_sum(coefs: &[f64], n: usize, separation: usize, participations: usize) -> f64 {
    let norm = |len: usize| coefs.iter().take(len).map(|coef| coef * coef).sum::<f64>();
    (participations - 1) as f64 * norm(coefs.len()) + norm(n - (participations - 1) * separation)
}

/// `‖Σ_{j<k} C[:, jb]‖²` from the first column.
pub(super) fn early_and_often_squared(coefs: &[f64], separation: usize, participations: usize) -> f64 {
    let squares = |sums: &[f64]| sums.iter().map(|sum| sum * sum).sum();
    if separation.saturating_mul(participations) >= coefs.len() {
        // x_t = c_t + x_{t−b}: the columns that have begun, none of which ends.
        let mut sums = coefs.to_vec();
        for t in separation..sums.len() {
            sums[t] += sums[t - separation];
        }
        return squares(&sums);
    }
    // x_t = c_t + c_{t−b} + …, k terms: windows, seen from the end.
    let reversed: Vec<f64> = coefs.iter().rev().copied().collect();
    squares(&window_sums(&reversed, separation, participations))
}

/// The same of `n` steps where the first column has few coefficients and nothing after them, in time and memory of those few.
///
/// After the first `q = ⌈len/b⌉` columns, sums repeat from column to column, until the last one has begun.
pub(super) fn early_and_often_of_few(
    coefs: &[f64],
    n: usize,
    separation: usize,
    participations: usize,
) -> f64 {
    let (len, b, k) = (coefs.len(), separation, participations);
    let q = len.div_ceil(b);
    if k <= q + 1 {
        let mut padded = coefs.to_vec();
        padded.resize(n.min((k - 1) * b + len), 0.0);
        return early_and_often_squared(&padded, b, k);
    }
    let square = |value: &f64| value * value;
    let mut begun = coefs.to_vec();
    begun.resize(q * b, 0.0);
    // What a step sums when every column so far counts from its age on: c_a + c_{a+b} + …
    let mut full = begun.clone();
    for t in b..q * b {
        begun[t] += begun[t - b];
    }
    for age in (0..(q - 1) * b).rev() {
        full[age] += full[age + b];
    }
    let begins: f64 = begun.iter().map(square).sum();
    let period: f64 = full[..b].iter().map(square).sum();
    // Columns q to k − 2 begin and are followed by another one; after the last, nothing begins.
    let rest = n - (k - 1) * b;
    begins + (k - 1 - q) as f64 * period + full.iter().take(rest).map(square).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(n: usize, seed: u64) -> Vec<f64> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        (0..n).map(|_| next()).collect()
    }

    #[track_caller]
    fn near(got: f64, expected: f64) {
        assert!((got - expected).abs() <= 1e-13 * expected, "{got} {expected}");
    }

    #[test]
    fn windows_are_their_definition() {
        for n in 1..30 {
            let values = values(n, n as u64);
            for stride in 1..=n + 1 {
                for width in 1..=n + 1 {
                    let sums = window_sums(&values, stride, width);
                    for (s, got) in sums.iter().enumerate() {
                        near(*got, values[s..].iter().step_by(stride).take(width).sum());
                    }
                }
            }
        }
    }

    #[test]
    fn closed_forms_of_few_coefficients_are_the_sums_themselves() {
        for n in 1..26 {
            for len in 1..=n {
                let coefs = values(len, (31 * n + len) as u64);
                let mut padded = coefs.clone();
                padded.resize(n, 0.0);
                let norm = |t: usize| padded[..n - t].iter().map(|coef| coef * coef).sum::<f64>();
                for b in 1..=n {
                    for k in 1..=n.div_ceil(b) {
                        let met = |t: usize| (0..k).filter(|j| j * b <= t).map(|j| padded[t - j * b]).sum();
                        let expected: f64 = (0..n).map(|t| f64::powi(met(t), 2)).sum();
                        near(early_and_often_of_few(&coefs, n, b, k), expected);
                        near(early_and_often_squared(&padded, b, k), expected);
                        if len <= b {
                            let norms: Vec<f64> = (0..n).map(norm).collect();
                            near(orthogonal_sum(&coefs, n, b, k), best_separated_sum(&norms, b, k));
                            near(orthogonal_sum(&coefs, n, b, k), best_cyclic_sum(&norms, b, k));
                        }
                    }
                }
            }
        }
    }
}
