//! Any steps that are far enough apart: all patterns where they are few, else bounds.

use super::sums::{best_separated_sum, early_and_often_of_few, early_and_often_squared};
use super::{Exactness, ROUNDING, Squared, largest, worst};
use crate::error::Result;
use crate::factorization::Factorization;
use crate::factorization::gram::Gram;
use crate::factorization::rows::QUADRATIC_LIMIT;

/// Most patterns that are tried one by one, and most steps.
const MAX_PATTERNS: f64 = 2e6;
const MAX_PATTERN_STEPS: usize = 64;
/// Most entries that the bound by windows holds at a time.
const MAX_HELD: usize = 25_000_000;

impl Factorization {
    pub(super) fn min_sep(&self, separation: usize, participations: usize) -> Result<Squared> {
        let n = self.num_steps();
        if n <= MAX_PATTERN_STEPS && count_patterns(n, separation, participations) <= MAX_PATTERNS {
            return self.enumerated(separation, participations);
        }
        let reason = "non-increasing envelope of a Toeplitz strategy that increases";
        if let (true, Some(coefs)) = (self.is_plain(), self.few_coefs()?) {
            let envelope = non_increasing_envelope(&coefs);
            let squared = early_and_often_of_few(&envelope, n, separation, participations);
            return Ok((squared, Exactness::UpperBound, reason));
        }
        if let (true, Some(coefs)) = (self.is_plain(), self.strategy_coefs()?) {
            let envelope = non_increasing_envelope(&coefs);
            let squared = early_and_often_squared(&envelope, separation, participations);
            return Ok((squared, Exactness::UpperBound, reason));
        }
        self.check_size("min-sep sensitivity", QUADRATIC_LIMIT / 4, "n²")?;
        self.window_bound(separation, participations)
    }

    /// All patterns of a small number of steps.
    fn enumerated(&self, separation: usize, participations: usize) -> Result<Squared> {
        let n = self.num_steps();
        let gram = Gram::new(self)?;
        let diagonals = (0..n).map(|lag| gram.diagonal(lag)).collect::<Result<Vec<_>>>()?;
        let mut best = (0.0, false);
        let mut pattern: Vec<usize> = Vec::new();
        // Depth first; `sum` and `negative` are those of the pattern so far.
        let mut stack: Vec<(usize, usize, f64, bool)> = (0..n).map(|t| (0, t, 0.0, false)).collect();
        while let Some((depth, t, sum, negative)) = stack.pop() {
            pattern.truncate(depth);
            let mut sum = sum + diagonals[0][t];
            let mut negative = negative;
            for &s in &pattern {
                let entry = diagonals[t - s][s];
                sum += 2.0 * entry.abs();
                negative |= entry < -ROUNDING * (diagonals[0][s] * diagonals[0][t]).sqrt();
            }
            pattern.push(t);
            best = largest([best, (sum, negative)]);
            if pattern.len() < participations {
                stack.extend((t + separation..n).map(|next| (pattern.len(), next, sum, negative)));
            }
        }
        Ok(worst([best], "every pattern tried"))
    }

    /// In every window of `separation` steps there is at most one participation, so a step's row of the Gram matrix counts at most its
    /// largest entry per window; then the best separated steps are chosen by these row sums.
    fn window_bound(&self, separation: usize, participations: usize) -> Result<Squared> {
        let n = self.num_steps();
        self.check_separated(participations)?;
        let bands = self.num_bands();
        // Windows that hold anything but zeros, before a step and after it.
        let windows = bands.div_ceil(separation);
        let at_once = (MAX_HELD / (2 * windows)).max(1);
        self.check_diagonals("min-sep sensitivity", bands * n.div_ceil(at_once))?;
        let gram = Gram::new(self)?;
        let mut rows = gram.diagonal(0)?;
        let mut diagonal = Vec::new();
        for start in (0..n).step_by(at_once) {
            let held = start..(start + at_once).min(n);
            // largest[(t − start)·2·windows + side·windows + w]: the largest |entry| at a distance in [w·b, (w + 1)·b).
            let mut largest = vec![0.0_f64; held.len() * 2 * windows];
            for lag in separation..bands {
                let window = lag / separation;
                gram.diagonal_into(lag, &mut diagonal)?;
                let mut keep = |t: usize, side: usize, entry: f64| {
                    let place = &mut largest[(t - start) * 2 * windows + side * windows + window];
                    *place = place.max(entry.abs());
                };
                for (s, entry) in diagonal.iter().enumerate().take(held.end).skip(held.start) {
                    keep(s, 0, *entry);
                }
                for t in held.start.max(lag)..held.end.max(lag) {
                    keep(t, 1, diagonal[t - lag]);
                }
            }
            for (row, largest) in rows[held].iter_mut().zip(largest.chunks_mut(2 * windows)) {
                let others = (participations - 1).min(largest.len());
                if others < largest.len() {
                    largest.select_nth_unstable_by(others, |a, b| b.total_cmp(a));
                }
                *row += largest[..others].iter().sum::<f64>();
            }
        }
        let squared = best_separated_sum(&rows, separation, participations);
        Ok((
            squared,
            Exactness::UpperBound,
            "largest entry of the Gram matrix per window of one participation",
        ))
    }
}

fn non_increasing_envelope(coefs: &[f64]) -> Vec<f64> {
    let mut envelope: Vec<f64> = coefs.iter().map(|coef| coef.abs()).collect();
    for t in (1..envelope.len()).rev() {
        envelope[t - 1] = envelope[t - 1].max(envelope[t]);
    }
    envelope
}

/// How many patterns there are, the empty one included, up to a limit worth knowing.
fn count_patterns(n: usize, separation: usize, participations: usize) -> f64 {
    let mut after = vec![1.0_f64; n + 1];
    for _ in 0..participations.min(n) {
        let mut now = vec![1.0_f64; n + 1];
        for t in (0..n).rev() {
            now[t] = now[t + 1] + after[(t + separation).min(n)];
        }
        after = now;
        if after[0] > MAX_PATTERNS {
            break;
        }
    }
    after[0]
}
