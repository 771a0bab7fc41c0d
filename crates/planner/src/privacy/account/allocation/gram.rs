//! Bounds on the entries of `K_jl = ⟨m_j, m_l⟩`, for the bins that are kept.
//!
//! Joint convexity: P is the mean over shifts t of mixtures over the bins `(p_i + t) mod b`, so its divergence is at most the mean of
//! theirs, and a covariance that is nowhere below any of theirs bounds it. For a Toeplitz strategy that is neither restarted nor scaled,
//! `m_j` is `m_0` moved by j and cut at n, and entries are not negative, so `K_{j,j+h}` falls as j grows.
//!
//! Every entry is a sum of products that are not negative. It is raised by more than its own rounding, so comparisons need no tolerance.

/// The entries of K for standard deviation and clip norm 1.
#[derive(Clone, Debug)]
pub(crate) struct Bins {
    num_bins: usize,
    entries: Entries,
    /// What entries are multiplied by, for their own rounding.
    raised: f64,
}

#[derive(Clone, Debug)]
enum Entries {
    /// `m_0` of a Toeplitz strategy.
    Moved(Vec<f64>),
    /// All entries, row by row.
    Written(Vec<f64>),
}

/// Bounds on the entries of the bins that are kept: `row(i)[l]` for l up to i.
#[derive(Clone, Debug)]
pub(in crate::privacy::account) struct Bounds {
    rows: Vec<Vec<f64>>,
}

impl Bounds {
    pub(super) fn num_bins(&self) -> usize {
        self.rows.len()
    }

    /// The bound for two bins in any order.
    pub(in crate::privacy::account) fn at(&self, i: usize, l: usize) -> f64 {
        if i >= l { self.rows[i][l] } else { self.rows[l][i] }
    }

    /// The largest bound at every distance around the circle, up to half of it.
    pub(super) fn by_distance(&self) -> Vec<f64> {
        let m = self.num_bins();
        let mut out = vec![0.0_f64; m / 2 + 1];
        for (i, row) in self.rows.iter().enumerate() {
            for (l, entry) in row.iter().enumerate() {
                let distance = (i - l).min(m - (i - l));
                out[distance] = out[distance].max(*entry);
            }
        }
        out
    }
}

impl Bins {
    /// The bins of a Toeplitz strategy with these coefficients, one per step, none of them negative; `lost` is what they may have lost to
    /// rounding, relative to themselves.
    pub(in crate::privacy::account) fn moved(coefs: &[f64], num_bins: usize, lost: f64) -> Bins {
        let mut first = coefs.to_vec();
        for t in num_bins..first.len() {
            first[t] += first[t - num_bins];
        }
        let raised = 1.0 + 1e-9 + 2.0 * lost + 8.0 * f64::EPSILON * coefs.len() as f64;
        Bins { num_bins, entries: Entries::Moved(first), raised }
    }

    /// The bins of any other strategy, by all entries of K, row by row.
    pub(in crate::privacy::account) fn written(entries: Vec<f64>, num_bins: usize, num_steps: usize) -> Bins {
        let raised = 1.0 + 1e-9 + 16.0 * f64::EPSILON * num_steps as f64;
        Bins { num_bins, entries: Entries::Written(entries), raised }
    }

    /// The number of bins that units fall into.
    pub(crate) fn num_bins(&self) -> usize {
        self.num_bins
    }

    /// The largest entry of two bins so far apart, `max_t K_{t, (t + h) mod b}`.
    fn cyclic(&self, h: usize) -> f64 {
        let b = self.num_bins;
        match &self.entries {
            Entries::Moved(first) => {
                let at = |lag: usize| -> f64 {
                    first.get(lag..).map_or(0.0, |moved| moved.iter().zip(first).map(|(a, b)| a * b).sum())
                };
                if h == 0 { at(0) } else { at(h).max(at(b - h)) }
            }
            Entries::Written(entries) => (0..b).map(|t| entries[t * b + (t + h) % b]).fold(0.0, f64::max),
        }
    }

    /// Bounds for `kept` bins spread evenly over the circle.
    pub(in crate::privacy::account) fn circle(&self, kept: usize) -> Bounds {
        let b = self.num_bins;
        let rows = match &self.entries {
            Entries::Moved(first) if b.is_multiple_of(kept) => moved_rows(first, kept, b / kept),
            Entries::Written(entries) if b.is_multiple_of(kept) => {
                let apart = b / kept;
                let most = |i: usize, l: usize| {
                    let entry = |t: usize| entries[(t + i * apart) * b + t + l * apart];
                    (0..apart).map(entry).fold(0.0, f64::max)
                };
                (0..kept).map(|i| (0..=i).map(|l| most(i, l)).collect()).collect()
            }
            _ => {
                let place = |i: usize| i * b / kept;
                let mut known = vec![None; b];
                let mut by_distance = |h: usize| *known[h].get_or_insert_with(|| self.cyclic(h));
                (0..kept).map(|i| (0..=i).map(|l| by_distance(place(i) - place(l))).collect()).collect()
            }
        };
        self.raise(rows)
    }

    /// The entries of every `apart`-th bin, from the first on: a covariance, and no bound on the others'.
    pub(super) fn sample(&self, apart: usize) -> Bounds {
        let kept = self.num_bins / apart;
        Bounds {
            rows: match &self.entries {
                Entries::Moved(first) => moved_rows(first, kept, apart),
                Entries::Written(entries) => {
                    let row = |i: usize| &entries[i * apart * self.num_bins..];
                    (0..kept).map(|i| row(i).iter().step_by(apart).take(i + 1).copied().collect()).collect()
                }
            },
        }
    }

    /// Bounds by distance for bins `apart` from each other along a line, in all cyclic shifts of it: entry h is for bins h apart.
    pub(super) fn line(&self, kept: usize, apart: usize) -> Vec<f64> {
        (0..kept).map(|h| self.cyclic(h * apart) * self.raised).collect()
    }

    fn raise(&self, mut rows: Vec<Vec<f64>>) -> Bounds {
        rows.iter_mut().flatten().for_each(|entry| *entry *= self.raised);
        Bounds { rows }
    }
}

/// `K` at places 0, apart, 2·apart, …: sums of `m_0`'s products with itself moved, each to as many steps as are left.
fn moved_rows(first: &[f64], kept: usize, apart: usize) -> Vec<Vec<f64>> {
    let n = first.len();
    let mut rows: Vec<Vec<f64>> = (0..kept).map(|i| vec![0.0; i + 1]).collect();
    for h in 0..kept {
        let lag = h * apart;
        let (mut sum, mut t) = (0.0, lag);
        // The last bins have the fewest steps left.
        for l in (0..kept - h).rev() {
            let steps = n.saturating_sub(l * apart);
            while t < steps {
                sum += first[t] * first[t - lag];
                t += 1;
            }
            rows[l + h][l] = sum;
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K by its definition, from columns of C.
    fn plain(coefs: &[f64], b: usize) -> Vec<f64> {
        let n = coefs.len();
        let mut columns = vec![vec![0.0; n]; b];
        for (j, column) in columns.iter_mut().enumerate() {
            for start in (j..n).step_by(b) {
                (start..n).for_each(|t| column[t] += coefs[t - start]);
            }
        }
        let dot = |j: usize, l: usize| columns[j].iter().zip(&columns[l]).map(|(a, b)| a * b).sum();
        (0..b * b).map(|at| dot(at / b, at % b)).collect()
    }

    /// With partial epochs, bins that nobody's turn comes to, and numbers that do not divide.
    #[test]
    fn bounds_are_nowhere_below_any_shift() {
        let coefs: Vec<f64> = (0..23).map(|t| 1.0 / (1.0 + 0.7 * f64::from(t))).collect();
        for b in [1, 4, 6, 7, 12, 23, 30] {
            let exact = plain(&coefs, b);
            let (moved, written) = (Bins::moved(&coefs, b, 0.0), Bins::written(exact.clone(), b, 23));
            for kept in (1..=b).filter(|kept| *kept <= 12) {
                let divides = b.is_multiple_of(kept);
                for bins in [&moved, &written] {
                    let bounds = bins.circle(kept);
                    let mut met = vec![0.0_f64; kept * kept];
                    for t in 0..if divides { b / kept } else { b } {
                        for i in 0..kept {
                            for l in 0..=i {
                                let [p, q] = [i, l].map(|i| (i * b / kept + t) % b);
                                let entry = exact[p * b + q];
                                assert!(bounds.at(i, l) >= entry, "{b} {kept} {i} {l} {t}");
                                met[i * kept + l] = met[i * kept + l].max(entry);
                            }
                        }
                    }
                    if divides {
                        for i in 0..kept {
                            for l in 0..=i {
                                assert!(bounds.at(i, l) <= met[i * kept + l] * (1.0 + 3e-9), "{b} {kept}");
                            }
                        }
                    }
                }
                let line = moved.line(kept, 1);
                for (h, bound) in line.iter().enumerate() {
                    let most = (0..b).map(|t| exact[t * b + (t + h) % b]).fold(0.0, f64::max);
                    assert!(*bound >= most && *bound <= most * (1.0 + 3e-9), "{b} {h}");
                }
            }
        }
    }
}
