//! Sensitivity: how far one privacy unit can move `CG`, over all steps it may take part in.
//!
//! Squared, and with unit clip norm, it is the largest `Σ_{s,t∈π} (CᵀC)[s,t]·⟨u_s, u_t⟩` over patterns π and unit vectors `u`.
//! Where no allowed pair has a negative entry, all `u` are equal and the sum over the best pattern is exact. With negative ones
//! the value depends on the dimension (Grothendieck), and the sum of absolute values is an upper bound.

use crate::error::{Error, Result};
use crate::factorization::Factorization;
use crate::gram::Gram;
use crate::participation::Participation;
use crate::rows::QUADRATIC_LIMIT;
use crate::strategy::Strategy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Neighbouring datasets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Adjacency {
    /// One unit's gradients become zero.
    #[default]
    ZeroOut,
    /// One unit is replaced by another: twice as far.
    ReplaceOne,
}

/// Whether a sensitivity is the true one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The true value.
    Exact,
    /// No less than the true value.
    UpperBound,
}

/// A sensitivity for clip norm 1, and how it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sensitivity {
    /// The value.
    pub value: f64,
    /// Exact or an upper bound.
    pub kind: Kind,
    /// Why.
    pub reason: &'static str,
}

/// Entries this close to zero, relative to the columns' norms, are rounding.
const ROUNDING: f64 = 1e-13;
/// Most patterns that are tried one by one.
const MAX_PATTERNS: f64 = 2e6;
/// Most pairs of participations in the closed form of a BLT; beyond, its coefficients are written out.
const MAX_CLOSED_PARTICIPATIONS: usize = 2000;

impl Factorization {
    /// The sensitivity under a participation schema.
    pub fn sensitivity(&self, participation: &Participation, adjacency: Adjacency) -> Result<Sensitivity> {
        participation.check(self.num_steps())?;
        let (squared, kind, reason) = self.sensitivity_squared(participation)?;
        let factor = match adjacency {
            Adjacency::ZeroOut => 1.0,
            Adjacency::ReplaceOne => 2.0,
        };
        Ok(Sensitivity { value: factor * squared.sqrt(), kind, reason })
    }

    fn sensitivity_squared(&self, participation: &Participation) -> Result<(f64, Kind, &'static str)> {
        let n = self.num_steps();
        let (separation, participations) = match participation {
            Participation::Single => {
                return Ok((self.max_column_norm_squared()?, Kind::Exact, "largest column norm"));
            }
            Participation::Full => (1, n),
            Participation::Cyclic { separation, max_participations } => (*separation, *max_participations),
            Participation::MinSep { min_sep, max_participations } => (*min_sep, *max_participations),
            Participation::Patterns(patterns) => return self.over_patterns(patterns),
        };
        if participations == 1 && matches!(participation, Participation::MinSep { .. }) {
            return Ok((self.max_column_norm_squared()?, Kind::Exact, "largest column norm"));
        }
        if self.num_bands() <= separation {
            let norms = self.column_norms_squared()?;
            let squared = match participation {
                Participation::MinSep { .. } => best_separated_sum(&norms, separation, participations),
                _ => best_cyclic_sum(&norms, separation, participations),
            };
            return Ok((squared, Kind::Exact, "no more bands than the separation: columns are orthogonal"));
        }
        if let Some(squared) = self.early_and_often(separation, participations)? {
            return Ok((
                squared,
                Kind::Exact,
                "non-negative, non-increasing Toeplitz: early and often is worst",
            ));
        }
        match participation {
            Participation::MinSep { .. } => self.min_sep(separation, participations),
            _ => self.cyclic(separation, participations),
        }
    }

    fn max_column_norm_squared(&self) -> Result<f64> {
        match self.strategy() {
            Strategy::Blt(blt) if self.is_plain() => Ok(blt.column_norm_squared(self.num_steps() as u64)),
            _ => Ok(self.column_norms_squared()?.into_iter().fold(0.0, f64::max)),
        }
    }

    /// `‖Σ_j C[:, jb]‖²`, if the strategy is a plain Toeplitz one whose coefficients are non-negative and never increase.
    fn early_and_often(&self, separation: usize, participations: usize) -> Result<Option<f64>> {
        if !self.is_plain() {
            return Ok(None);
        }
        if let Strategy::Blt(blt) = self.strategy()
            && participations <= MAX_CLOSED_PARTICIPATIONS
        {
            let [n, b, k] = [self.num_steps(), separation, participations].map(|number| number as u64);
            return Ok(blt.is_non_increasing().then(|| blt.min_sep_sensitivity_squared(n, b, k)));
        }
        let Some(coefs) = self.strategy_coefs()? else { return Ok(None) };
        let monotone =
            coefs.windows(2).all(|pair| pair[0] >= pair[1]) && coefs.last().is_some_and(|c| *c >= 0.0);
        Ok(monotone.then(|| early_and_often_squared(&coefs, separation, participations)))
    }

    /// Patterns of one residue each, diagonal by diagonal.
    fn cyclic(&self, separation: usize, participations: usize) -> Result<(f64, Kind, &'static str)> {
        let n = self.num_steps();
        if separation == 1 {
            self.check_size("full-batch sensitivity", QUADRATIC_LIMIT, "n²")?;
        }
        let gram = Gram::new(self)?;
        let norms = gram.diagonal(0)?;
        let member = |t: usize| t / separation < participations;
        let mut sums = vec![(0.0, false); separation.min(n)];
        for (t, norm) in norms.iter().enumerate().filter(|(t, _)| member(*t)) {
            sums[t % separation].0 += norm;
        }
        for lag in (1..participations).map(|i| i * separation).take_while(|lag| *lag < n) {
            for (s, entry) in gram.diagonal(lag)?.into_iter().enumerate().filter(|(s, _)| member(s + lag)) {
                let sum = &mut sums[s % separation];
                sum.0 += 2.0 * entry.abs();
                sum.1 |= entry < -ROUNDING * (norms[s] * norms[s + lag]).sqrt();
            }
        }
        Ok(worst(sums, "every cyclic pattern tried"))
    }

    fn over_patterns(&self, patterns: &[Vec<usize>]) -> Result<(f64, Kind, &'static str)> {
        let gram = Gram::new(self)?;
        let norms = gram.diagonal(0)?;
        let mut sums: Vec<(f64, bool)> =
            patterns.iter().map(|pattern| (pattern.iter().map(|t| norms[*t]).sum(), false)).collect();
        let mut by_lag: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
        for (i, pattern) in patterns.iter().enumerate() {
            for (at, s) in pattern.iter().enumerate() {
                pattern[at + 1..].iter().for_each(|t| by_lag.entry(t - s).or_default().push((i, *s)));
            }
        }
        for (lag, pairs) in by_lag {
            let diagonal = gram.diagonal(lag)?;
            for (i, s) in pairs {
                sums[i].0 += 2.0 * diagonal[s].abs();
                sums[i].1 |= diagonal[s] < -ROUNDING * (norms[s] * norms[s + lag]).sqrt();
            }
        }
        Ok(worst(sums, "every pattern tried"))
    }

    fn min_sep(&self, separation: usize, participations: usize) -> Result<(f64, Kind, &'static str)> {
        let n = self.num_steps();
        if count_patterns(n, separation, participations) <= MAX_PATTERNS && n <= 64 {
            return self.enumerated(separation, participations);
        }
        if let (true, Some(coefs)) = (self.is_plain(), self.strategy_coefs()?) {
            let envelope = non_increasing_envelope(&coefs);
            let squared = early_and_often_squared(&envelope, separation, participations);
            return Ok((
                squared,
                Kind::UpperBound,
                "non-increasing envelope of a Toeplitz strategy that increases",
            ));
        }
        self.check_size("min-sep sensitivity", QUADRATIC_LIMIT / 4, "n²")?;
        self.window_bound(separation, participations)
    }

    /// All patterns of a small number of steps.
    fn enumerated(&self, separation: usize, participations: usize) -> Result<(f64, Kind, &'static str)> {
        let n = self.num_steps();
        let gram = Gram::new(self)?;
        let diagonals = (0..n).map(|lag| gram.diagonal(lag)).collect::<Result<Vec<_>>>()?;
        let mut best = vec![(0.0, false)];
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
            best.push((sum, negative));
            if best.len() > 4096 {
                best = vec![largest(&best)];
            }
            if pattern.len() < participations {
                stack.extend((t + separation..n).map(|next| (pattern.len(), next, sum, negative)));
            }
        }
        Ok(worst(best, "every pattern tried"))
    }

    /// In every window of `separation` steps there is at most one participation, so a step's row of the Gram matrix counts at most its
    /// largest entry per window; then the best separated steps are chosen by these row sums.
    fn window_bound(&self, separation: usize, participations: usize) -> Result<(f64, Kind, &'static str)> {
        let n = self.num_steps();
        let gram = Gram::new(self)?;
        let windows = n.div_ceil(separation);
        // largest[t][side·windows + w]: the largest |entry| at a distance in [w·b, (w + 1)·b).
        let mut largest = vec![vec![0.0_f64; 2 * windows]; n];
        for lag in separation..n {
            for (s, entry) in gram.diagonal(lag)?.into_iter().enumerate() {
                let window = lag / separation;
                let right = &mut largest[s][window];
                *right = right.max(entry.abs());
                let left = &mut largest[s + lag][windows + window];
                *left = left.max(entry.abs());
            }
        }
        let mut rows = gram.diagonal(0)?;
        for (row, largest) in rows.iter_mut().zip(&mut largest) {
            largest.sort_by(|a, b| b.total_cmp(a));
            *row += largest.iter().take(participations - 1).sum::<f64>();
        }
        let squared = best_separated_sum(&rows, separation, participations);
        Ok((squared, Kind::UpperBound, "largest entry of the Gram matrix per window of one participation"))
    }
}

/// The largest of sums that are exact (false) or bounds (true); exact only if no bound exceeds it.
fn worst(sums: Vec<(f64, bool)>, reason: &'static str) -> (f64, Kind, &'static str) {
    match largest(&sums) {
        (value, false) => (value, Kind::Exact, reason),
        (value, true) => (value, Kind::UpperBound, "the Gram matrix has negative entries on allowed pairs"),
    }
}

fn largest(sums: &[(f64, bool)]) -> (f64, bool) {
    sums.iter().copied().fold((0.0, false), |best, sum| if sum.0 > best.0 { sum } else { best })
}

/// `‖Σ_{j<k} C[:, jb]‖²` from the first column.
fn early_and_often_squared(coefs: &[f64], separation: usize, participations: usize) -> f64 {
    // x_t = c_t + x_{t−b}: the columns that have begun. None ends before the last step as long as they are no more than k.
    let mut sums = coefs.to_vec();
    for t in separation..coefs.len() {
        sums[t] = if t / separation < participations {
            coefs[t] + sums[t - separation]
        } else {
            (0..participations).map(|j| coefs[t - j * separation]).sum()
        };
    }
    sums.iter().map(|sum| sum * sum).sum()
}

fn non_increasing_envelope(coefs: &[f64]) -> Vec<f64> {
    let mut envelope: Vec<f64> = coefs.iter().map(|coef| coef.abs()).collect();
    for t in (1..envelope.len()).rev() {
        envelope[t - 1] = envelope[t - 1].max(envelope[t]);
    }
    envelope
}

/// The largest sum of at most `count` values that are at least `separation` apart; values are non-negative.
fn best_separated_sum(values: &[f64], separation: usize, count: usize) -> f64 {
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

/// The largest sum over one residue, of its first `count` members.
fn best_cyclic_sum(values: &[f64], separation: usize, count: usize) -> f64 {
    let sum = |first: usize| values[first..].iter().step_by(separation).take(count).sum::<f64>();
    (0..separation.min(values.len())).map(sum).fold(0.0, f64::max)
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

impl Sensitivity {
    /// The value, or an error if it is only an upper bound.
    pub fn exact(&self) -> Result<f64> {
        match self.kind {
            Kind::Exact => Ok(self.value),
            Kind::UpperBound => Err(Error::parameter(
                "sensitivity",
                self.value,
                format!("an exact one, not a bound: {}", self.reason),
            )),
        }
    }
}
