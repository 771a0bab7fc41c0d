//! The covariance that stands for a run's: a common part, a Markov chain around the circle of bins, and white noise.
//!
//! ```text
//! X_i = √common·Z + x_i + √white·ξ_i
//! x_0 ~ N(0, v_0),  x_i = previous_i·x_{i−1} + first_i·x_0 + N(0, v_i),  i = 1, …, m − 1
//! ```
//! The part of `x_0` in every bin closes the circle: the last bin of an epoch is next to the first one of the following. Whatever the
//! numbers are, the covariance is positive semidefinite, so Kahane's inequality asks no more than that none of its entries is
//! below the true one.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// A covariance of the bins' log-likelihoods for standard deviation and clip norm 1, of which the privacy loss can be bounded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// The variance of what all bins have in common.
    pub common: f64,
    /// The variance of what every bin has for itself.
    pub white: f64,
    /// What neighbouring bins have in common.
    pub chain: Chain,
}

/// A Gaussian Markov chain over the bins that are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Chain {
    /// Bins around a circle, with numbers of their own.
    Circle {
        /// The variance of every bin, given the ones before; the first entry is that of the first bin.
        variance: Vec<f64>,
        /// The weight of the previous bin in every bin after the first.
        previous: Vec<f64>,
        /// The weight of the first bin in every bin after it.
        first: Vec<f64>,
    },
    /// Bins along a line: covariance `variance · correlation^distance`.
    Line {
        /// The number of bins.
        num_bins: usize,
        /// The variance of every bin.
        variance: f64,
        /// The correlation of neighbours.
        correlation: f64,
    },
}

/// Most bins that are kept: a programme takes as many turns.
pub(super) const MOST_BINS: usize = 4096;

impl Chain {
    /// The covariance `variance·(ρ^h + ρ^{m−h})/(1 + ρ^m)` around a circle of m bins, h apart.
    pub(super) fn circle(num_bins: usize, variance: f64, correlation: f64) -> Chain {
        let (m, rho) = (num_bins as i32, correlation);
        // Given its first and last bin, the circle is a bridge: the next bin's precision is that of one step and that of the way back.
        let step = variance * (1.0 - rho * rho) * (1.0 - rho.powi(m)) / (1.0 + rho.powi(m));
        let (mut variances, mut previous, mut first) = (vec![variance], Vec::new(), Vec::new());
        for i in 1..m {
            let back = m - i;
            let way = step * (1.0 - rho.powi(2 * back)) / (1.0 - rho * rho);
            let own = 1.0 / (1.0 / step + rho.powi(2 * back) / way);
            variances.push(own);
            previous.push((own * rho / step).min(1.0));
            first.push(own * rho.powi(back) / way);
        }
        Chain::Circle { variance: variances, previous, first }
    }

    fn num_bins(&self) -> usize {
        match self {
            Chain::Circle { variance, .. } => variance.len(),
            Chain::Line { num_bins, .. } => *num_bins,
        }
    }
}

impl Kernel {
    /// Number of bins that are kept.
    pub fn num_bins(&self) -> usize {
        self.chain.num_bins()
    }

    /// Whether the chain goes around a circle.
    pub fn is_circle(&self) -> bool {
        matches!(self.chain, Chain::Circle { .. })
    }

    /// Refuses numbers that make no such covariance, or one whose programme would not bound anything: weights above 1 break the
    /// convexity that interpolation from above rests on.
    pub fn check(&self) -> Result<()> {
        let m = self.num_bins();
        if !(2..=MOST_BINS).contains(&m) {
            return Err(Error::parameter("number of kept bins", m, format!("2 to {MOST_BINS}")));
        }
        let within = |name: &str, value: f64, most: f64| {
            // Written so that what is no number does not fit.
            let fits = (0.0..=most).contains(&value);
            if fits { Ok(()) } else { Err(Error::parameter(name, value, format!("0 to {most}"))) }
        };
        within("kernel's common variance", self.common, MOST)?;
        within("kernel's white variance", self.white, MOST)?;
        match &self.chain {
            Chain::Circle { variance, previous, first } => {
                for (name, got) in [("previous", previous.len()), ("first", first.len())] {
                    if got != m - 1 {
                        let expected = format!("{}, one per bin after the first", m - 1);
                        return Err(Error::parameter(
                            format!("number of the kernel's weights {name}"),
                            got,
                            expected,
                        ));
                    }
                }
                variance.iter().try_for_each(|v| within("kernel's variance of a bin", *v, MOST))?;
                previous.iter().chain(first).try_for_each(|w| within("kernel's weight of a bin", *w, 1.0))?;
                if variance.iter().any(|v| *v < LEAST) {
                    return Err(Error::parameter(
                        "kernel's variance of a bin",
                        0,
                        format!("at least {LEAST:e}"),
                    ));
                }
            }
            Chain::Line { variance, correlation, .. } => {
                within("kernel's variance of a bin", *variance, MOST)?;
                within("kernel's correlation", *correlation, 1.0 - 1e-9)?;
                if *variance < LEAST {
                    return Err(Error::parameter(
                        "kernel's variance of a bin",
                        variance,
                        format!("at least {LEAST:e}"),
                    ));
                }
            }
        }
        // Loadings of the first bin, which must not exceed 1.
        let turns = self.turns(1.0);
        let most = turns.root[1..].iter().fold(0.0_f64, |most, c| most.max(*c));
        if most > turns.variance[0] * (1.0 - 1e-12) {
            return Err(Error::parameter(
                "kernel's covariance with the first bin",
                most,
                "below the first bin's variance",
            ));
        }
        Ok(())
    }

    /// The chain as a programme walks it, with everything divided by the square of a standard deviation.
    pub(super) fn turns(&self, stddev: f64) -> Turns {
        let m = self.num_bins();
        let scale = 1.0 / (stddev * stddev);
        let (variance, previous, first) = match &self.chain {
            Chain::Circle { variance, previous, first } => {
                let ahead = |weights: &[f64]| std::iter::once(0.0).chain(weights.iter().copied()).collect();
                (variance.iter().map(|v| v * scale).collect::<Vec<_>>(), ahead(previous), ahead(first))
            }
            Chain::Line { variance, correlation, .. } => {
                let (all, rho) = (variance * scale, *correlation);
                let mut own = vec![all * (1.0 - rho) * (1.0 + rho); m];
                own[0] = all;
                let mut previous: Vec<f64> = vec![rho; m];
                previous[0] = 0.0;
                (own, previous, vec![0.0; m])
            }
        };
        let (mut own, mut root) = (vec![variance[0]], vec![variance[0]]);
        for i in 1..m {
            let (a, b): (f64, f64) = (previous[i], first[i]);
            root.push(a * root[i - 1] + b * variance[0]);
            own.push(a * a * own[i - 1] + 2.0 * a * b * root[i - 1] + b * b * variance[0] + variance[i]);
        }
        Turns { common: self.common * scale, white: self.white * scale, variance, previous, first, own, root }
    }

    /// Calls `visit(i, row)` with the covariances of bin i and bins 0 to i.
    pub(super) fn for_each_row(&self, mut visit: impl FnMut(usize, &[f64])) {
        let turns = self.turns(1.0);
        let mut chain = vec![turns.variance[0]];
        let mut row = vec![turns.variance[0] + turns.common + turns.white];
        visit(0, &row);
        for i in 1..self.num_bins() {
            let (a, b) = (turns.previous[i], turns.first[i]);
            let with_first: Vec<f64> = (0..i).map(|l| a * chain[l] + b * turns.root[l]).collect();
            let own = a * with_first[i - 1] + b * with_first[0] + turns.variance[i];
            chain = with_first;
            chain.push(own);
            row.clear();
            row.extend(chain.iter().map(|c| c + turns.common));
            row[i] += turns.white;
            visit(i, &row);
        }
    }

    /// Whether no entry lies below the bound on the run's. `bound(i, l)` must hold the run's rounding already; that of the entries
    /// computed here, some 1e-12 of them, is far below what it is raised by.
    pub(super) fn dominates(&self, bound: impl Fn(usize, usize) -> f64) -> bool {
        let mut holds = true;
        self.for_each_row(|i, row| holds &= row.iter().enumerate().all(|(l, entry)| *entry >= bound(i, l)));
        holds
    }

    /// The smallest factor on all entries with which it dominates.
    pub(super) fn factor(&self, bound: impl Fn(usize, usize) -> f64) -> f64 {
        let mut most = 0.0_f64;
        self.for_each_row(|i, row| {
            row.iter().enumerate().for_each(|(l, entry)| most = most.max(bound(i, l) / entry));
        });
        most
    }

    /// The same kernel with all variances times a factor.
    pub(super) fn times(&self, factor: f64) -> Kernel {
        let chain = match &self.chain {
            Chain::Circle { variance, previous, first } => Chain::Circle {
                variance: variance.iter().map(|v| v * factor).collect(),
                previous: previous.clone(),
                first: first.clone(),
            },
            Chain::Line { num_bins, variance, correlation } => {
                Chain::Line { num_bins: *num_bins, variance: variance * factor, correlation: *correlation }
            }
        };
        Kernel { common: self.common * factor, white: self.white * factor, chain }
    }
}

/// Variances beyond this are no numbers that a programme could bound anything with.
const MOST: f64 = 1e100;
/// And below this they are none that weights keep their digits with.
const LEAST: f64 = 1e-100;

/// A chain as a programme walks it.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    pub(super) common: f64,
    pub(super) white: f64,
    /// The variance of every bin, given the ones before.
    pub(super) variance: Vec<f64>,
    /// The weights of the previous bin, 0 for the first.
    pub(super) previous: Vec<f64>,
    /// The weights of the first bin.
    pub(super) first: Vec<f64>,
    /// The variance of every bin.
    pub(super) own: Vec<f64>,
    /// The covariance of every bin with the first.
    pub(super) root: Vec<f64>,
}

impl Turns {
    pub(super) fn num_bins(&self) -> usize {
        self.variance.len()
    }

    /// The whole covariance times a vector.
    pub(super) fn times(&self, q: &[f64]) -> Vec<f64> {
        let total: f64 = q.iter().sum();
        let chain = self.chain_times(q).into_iter();
        chain.zip(q).map(|(c, q)| c + self.common * total + self.white * q).collect()
    }

    /// The whole covariance's diagonal.
    pub(super) fn diagonal(&self) -> Vec<f64> {
        self.own.iter().map(|own| own + self.common + self.white).collect()
    }

    /// `(chain covariance)·q` in linear time and without a matrix, common and white parts left out: the transpose of the recursion
    /// that makes the chain from independent normals, and then the recursion.
    pub(super) fn chain_times(&self, q: &[f64]) -> Vec<f64> {
        let m = self.num_bins();
        let (mut ahead, mut at_root) = (q.to_vec(), 0.0);
        for i in (1..m).rev() {
            let value = ahead[i];
            ahead[i - 1] += self.previous[i] * value;
            at_root += self.first[i] * value;
        }
        ahead[0] += at_root;
        let mut out = vec![self.variance[0] * ahead[0]];
        for i in 1..m {
            let next = self.previous[i] * out[i - 1] + self.first[i] * out[0] + self.variance[i] * ahead[i];
            out.push(next);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_circle_has_the_covariance_of_its_formula() {
        let (m, a, rho) = (9, 0.7, 0.8_f64);
        let kernel = Kernel { common: 0.1, white: 0.2, chain: Chain::circle(m, a, rho) };
        kernel.check().unwrap();
        kernel.for_each_row(|i, row| {
            for (l, entry) in row.iter().enumerate() {
                let h = (i - l) as i32;
                let chain = a * (rho.powi(h) + rho.powi(m as i32 - h)) / (1.0 + rho.powi(m as i32));
                let exact = chain + 0.1 + if h == 0 { 0.2 } else { 0.0 };
                assert!((entry - exact).abs() < 1e-13, "{i} {l}: {entry} {exact}");
            }
        });
        let turns = kernel.turns(2.0);
        let q: Vec<f64> = (0..m).map(|i| 1.0 / (1.0 + i as f64)).collect();
        let product = turns.chain_times(&q);
        let mut rows = Vec::new();
        kernel.for_each_row(|_, row| rows.push(row.to_vec()));
        for i in 0..m {
            let entry = |l: usize| rows[i.max(l)][i.min(l)] - 0.1 - if l == i { 0.2 } else { 0.0 };
            let exact: f64 = (0..m).map(|l| entry(l) * q[l] / 4.0).sum();
            assert!((product[i] - exact).abs() < 1e-13, "{i}: {} {exact}", product[i]);
        }
    }

    #[test]
    fn one_entry_too_low_is_noticed() {
        let chain = Chain::Line { num_bins: 5, variance: 1.0, correlation: 0.5 };
        let kernel = Kernel { common: 0.25, white: 0.5, chain };
        let mut rows = Vec::new();
        kernel.for_each_row(|_, row| rows.push(row.to_vec()));
        assert!(kernel.dominates(|i, l| rows[i][l]));
        for i in 0..5 {
            for l in 0..=i {
                let raised =
                    |a: usize, b: usize| rows[a][b] * if (a, b) == (i, l) { 1.0 + 1e-15 } else { 1.0 };
                assert!(!kernel.dominates(raised) && kernel.factor(raised) > 1.0);
                assert!(kernel.times(1.0 + 1e-12).dominates(raised));
            }
        }
    }

    #[test]
    fn numbers_that_break_the_proof_are_refused() {
        let circle = |variance: Vec<f64>, previous: Vec<f64>, first: Vec<f64>| {
            Kernel { common: 0.1, white: 0.1, chain: Chain::Circle { variance, previous, first } }.check()
        };
        assert!(circle(vec![1.0; 3], vec![0.5; 2], vec![0.1; 2]).is_ok());
        assert!(circle(vec![1.0; 3], vec![1.5, 0.1], vec![0.0; 2]).is_err());
        assert!(
            circle(vec![1.0; 3], vec![0.9; 2], vec![0.2; 2]).is_err(),
            "more of the first bin than it has"
        );
        assert!(circle(vec![1.0; 3], vec![0.5; 2], vec![-0.1; 2]).is_err());
        assert!(circle(vec![1.0; 3], vec![0.5; 3], vec![0.1; 2]).is_err());
        assert!(circle(vec![1.0, 0.0], vec![0.5], vec![0.1]).is_err());
        assert!(circle(vec![1.0, f64::NAN], vec![0.5], vec![0.1]).is_err());
        assert!(circle(vec![1.0], vec![], vec![]).is_err());
    }
}
