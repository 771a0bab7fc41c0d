//! Patterns that can be listed: cycles from every step on, and sets of steps as given.

use super::sums::Windows;
use super::{Exactness, ROUNDING, Squared, worst};
use crate::error::{Error, Result};
use crate::factorization::Factorization;
use crate::factorization::gram::Gram;
use crate::factorization::rows::QUADRATIC_LIMIT;
use std::collections::BTreeMap;

/// Most pairs of steps in listed patterns: they are held by their distance.
const MAX_PAIRS: usize = 10_000_000;

impl Factorization {
    /// Cycles of one residue each, from every step on, diagonal by diagonal.
    pub(super) fn cyclic(&self, separation: usize, participations: usize) -> Result<Squared> {
        let n = self.num_steps();
        if separation == 1 && participations == n {
            self.check_size("full-batch sensitivity", QUADRATIC_LIMIT, "n²")?;
        }
        // Columns further apart than the bands do not overlap.
        let lags = (participations - 1).min((self.num_bands() - 1) / separation);
        // One cycle has all of a residue: nothing that begins later is worse.
        let whole = separation.saturating_mul(participations) >= n;
        // Windows cost some eight times as much as a sum.
        self.check_diagonals("cyclic sensitivity", if whole { lags + 1 } else { 8 * (lags + 1) })?;
        let gram = Gram::new(self)?;
        let norms = gram.diagonal(0)?;
        let mut windows = Windows::default();
        let mut add = |sums: &mut [f64], values: &[f64], width: usize| match (whole, separation) {
            (true, 1) => sums[0] += values.iter().sum::<f64>(),
            (true, _) => {
                for row in values.chunks(sums.len()) {
                    sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
                }
            }
            (false, _) => {
                let windows = windows.sum(values, separation, width);
                sums.iter_mut().zip(windows).for_each(|(sum, window)| *sum += window);
            }
        };
        let starts = if whole { separation.min(n) } else { n };
        let (mut sums, mut negative) = (vec![0.0; starts], vec![0.0; starts]);
        add(&mut sums, &norms, participations);
        let mut entries = Vec::new();
        for lag in 1..=lags {
            let width = participations - lag;
            let lag = lag * separation;
            gram.diagonal_into(lag, &mut entries)?;
            let below = |(s, entry): (usize, &f64)| {
                *entry < 0.0 && *entry < -ROUNDING * (norms[s] * norms[s + lag]).sqrt()
            };
            if entries.iter().enumerate().any(below) {
                let marks: Vec<f64> =
                    entries.iter().enumerate().map(|at| f64::from(u8::from(below(at)))).collect();
                add(&mut negative, &marks, width);
            }
            entries.iter_mut().for_each(|entry| *entry = 2.0 * entry.abs());
            add(&mut sums, &entries, width);
        }
        let sums = sums.into_iter().zip(negative).map(|(sum, negative)| (sum, negative > 0.0));
        Ok(worst(sums, "every cyclic pattern tried"))
    }

    /// Every pattern of a list.
    pub(super) fn over_patterns(&self, patterns: &[Vec<usize>]) -> Result<Squared> {
        let reason = "every pattern tried";
        if let Some([coef]) = self.few_coefs()?.as_deref() {
            let longest = patterns.iter().map(Vec::len).max().unwrap_or(0);
            return Ok((longest as f64 * coef * coef, Exactness::Exact, reason));
        }
        let pairs = patterns.iter().map(|pattern| pattern.len() * (pattern.len() - 1) / 2).sum::<usize>();
        if pairs > MAX_PAIRS {
            let expected = format!("at most {MAX_PAIRS}, of which sensitivities are made");
            return Err(Error::parameter(
                "number of pairs of steps in participation patterns",
                pairs,
                expected,
            ));
        }
        let bands = self.num_bands();
        let mut by_lag: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
        for (i, pattern) in patterns.iter().enumerate() {
            for (at, s) in pattern.iter().enumerate() {
                let near = pattern[at + 1..].iter().take_while(|t| **t - s < bands);
                near.for_each(|t| by_lag.entry(t - s).or_default().push((i, *s)));
            }
        }
        self.check_diagonals("the sensitivity to listed patterns", by_lag.len() + 1)?;
        let gram = Gram::new(self)?;
        let norms = gram.diagonal(0)?;
        let mut sums: Vec<(f64, bool)> =
            patterns.iter().map(|pattern| (pattern.iter().map(|t| norms[*t]).sum(), false)).collect();
        let mut diagonal = Vec::new();
        for (lag, pairs) in by_lag {
            gram.diagonal_into(lag, &mut diagonal)?;
            for (i, s) in pairs {
                sums[i].0 += 2.0 * diagonal[s].abs();
                sums[i].1 |= diagonal[s] < -ROUNDING * (norms[s] * norms[s + lag]).sqrt();
            }
        }
        Ok(worst(sums, reason))
    }
}
