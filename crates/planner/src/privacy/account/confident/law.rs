//! The likelihood ratio `W = Σ_π p_π Π_{i∈π} w_i` of a run with a unit and one without it, by elements of patterns.
//!
//! Under balls in bins a pattern is one bin, and its vector `m_j` the sum of the columns of all its steps. Under spaced Poisson sampling with no more
//! bands than the separation an element is a step, and the columns of a pattern's steps do not overlap. In both cases an element i has a vector v_i, a
//! pattern's vector is the sum of those of its elements, which are orthogonal to each other, and with `w_i = exp(⟨v_i, y⟩ − |v_i|²/2)` the sum over all
//! patterns is one mean, [`Law::mean`]: the mean of all w, or a recursion over the steps.

use super::source::Source;
use crate::error::{Error, Result};
use crate::factorization::{Factorization, LINEAR_LIMIT};
use crate::privacy::account::allocation::Bins;
use crate::privacy::account::allocation::entries::check_entries;
use crate::strategy::{Strategy, banded};
use corrnoise_numerics::{Cholesky, LANES, Lane, Matrix, Sparse};

/// Most bins whose covariance is factored.
const MOST_BINS: usize = 2048;
/// Most numbers that vectors are made of.
const MOST_ENTRIES: usize = 1 << 25;
/// Patterns are left out that are this rare, relative to δ.
const RARE: f64 = 2e-3;
/// What numbers are raised by, relative to the largest of their kind: more than their rounding.
const RAISED: f64 = 1e-9;

/// The elements of patterns for standard deviation and clip norm 1, and how patterns are drawn.
#[derive(Clone, Debug)]
pub(crate) struct Law {
    /// The vector of every element.
    pub(super) vectors: Sparse,
    /// The square of every vector's norm.
    pub(super) squares: Vec<f64>,
    /// The products of every element's vector with all others, but for zeros.
    pub(super) products: Sparse,
    /// The mean of patterns' vectors.
    pub(super) mean_vector: Vec<f64>,
    pub(super) patterns: Patterns,
    /// Patterns with more elements are left out where tuples are drawn, and the probability that a unit has one.
    pub(super) most_elements: usize,
    pub(super) left_out: f64,
}

/// How a unit's pattern is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Patterns {
    /// One element, each with the same probability.
    One,
    /// Elements that are at least so far apart: a unit joins with a probability where it may.
    Spaced { min_sep: u64, prob: f64 },
}

impl Law {
    /// The law of balls in bins. Its vectors are rows of a factor of a covariance that is nowhere below the bins' own.
    pub(crate) fn bins(bins: &Bins) -> Result<Law> {
        let b = bins.num_bins();
        if b > MOST_BINS {
            let expected = format!("2 to {MOST_BINS}, whose covariance is factored for a confident claim");
            return Err(Error::parameter("number of bins", b, expected));
        }
        let bounds = bins.circle(b);
        let most = (0..b).map(|j| bounds.at(j, j)).fold(0.0, f64::max);
        // A constant and white noise, both far above the factorisation's rounding, which is some b·2^−53 of the largest entry.
        let entry = |j: usize, l: usize| bounds.at(j, l) + RAISED * most * if j == l { 2.0 } else { 1.0 };
        let factor = Cholesky::new(Matrix::from_fn(b, b, entry)).ok_or_else(|| {
            Error::parameter("the bins' covariance", "one that is not positive definite", "a covariance")
        })?;
        let rows = (0..b).map(|j| (0..=j).map(|k| (k, factor.get(j, k))).collect());
        Ok(Law::new(rows, b, Patterns::One))
    }

    /// The law of spaced Poisson sampling, for a strategy with no more bands than the separation and claims at this δ.
    pub(crate) fn spaced(running: &Factorization, min_sep: u64, prob: f64, delta: f64) -> Result<Law> {
        let (n, bands) = (running.num_steps(), running.num_bands());
        if bands as u64 > min_sep.min(n as u64) {
            let expected =
                format!("at most {min_sep}, the separation, where spaced Poisson sampling is to amplify");
            return Err(Error::parameter("number of bands", bands, expected));
        }
        check_entries(running)?;
        let what = "the columns, for a confident claim";
        running.check_size(what, LINEAR_LIMIT.min(MOST_ENTRIES / bands), "n·bands")?;
        let columns = match (running.strategy_coefs()?, running.strategy()) {
            (Some(coefs), _) => (0..n)
                .map(|s| {
                    let len = bands.min(running.segment(s).end - s);
                    coefs[..len].iter().map(|coef| coef / running.divisor(s)).collect()
                })
                .collect(),
            (None, Strategy::Banded(rows)) => banded::columns(running, rows),
            (None, _) => {
                let expected = "a Toeplitz or banded one, where spaced Poisson sampling is to amplify";
                return Err(Error::parameter("strategy", running.describe_matrix(), expected));
            }
        };
        let rows = columns.into_iter().enumerate().map(|(s, column): (usize, Vec<f64>)| {
            let raised = column.into_iter().map(|entry| entry * (1.0 + RAISED));
            raised.enumerate().map(|(age, entry)| (s + age, entry)).collect()
        });
        let mut law = Law::new(rows, n, Patterns::Spaced { min_sep, prob });
        (law.most_elements, law.left_out) = most_participations(n, min_sep, prob, RARE * delta);
        Ok(law)
    }

    fn new(rows: impl Iterator<Item = Vec<(usize, f64)>>, dimension: usize, patterns: Patterns) -> Law {
        let rows: Vec<Vec<(usize, f64)>> = rows.collect();
        let squares = rows.iter().map(|row| row.iter().map(|(_, entry)| entry * entry).sum()).collect();
        let products = (0..rows.len()).map(|i| {
            let near = match patterns {
                Patterns::One => 0..rows.len(),
                // Columns of a banded matrix, each from its own step on.
                Patterns::Spaced { .. } => {
                    let bands = rows[i].len().max(rows.iter().map(Vec::len).max().unwrap_or(1));
                    (i + 1).saturating_sub(bands)..(i + bands).min(rows.len())
                }
            };
            near.map(|l| (l, product(&rows[i], &rows[l]))).collect()
        });
        let products = sparse(products);
        let mut law = Law {
            vectors: sparse(rows.into_iter()),
            squares,
            products,
            mean_vector: vec![0.0; dimension],
            patterns,
            most_elements: 1,
            left_out: 0.0,
        };
        let share = law.participation();
        for (place, entry) in law.vectors.columns.iter().zip(&law.vectors.values) {
            law.mean_vector[*place as usize] += share * entry;
        }
        law
    }

    /// About the number of operations that a sample takes.
    pub(super) fn cost(&self) -> usize {
        self.vectors.values.len() + 60 * self.squares.len() + 20 * self.mean_vector.len()
    }

    /// The probability that an element is in a unit's pattern, the same for all of them.
    pub(super) fn participation(&self) -> f64 {
        match self.patterns {
            Patterns::One => 1.0 / self.squares.len() as f64,
            Patterns::Spaced { min_sep, prob } => 1.0 / period(min_sep, prob),
        }
    }

    /// The mean of patterns' squared norms.
    pub(super) fn mean_square(&self) -> f64 {
        self.participation() * self.squares.iter().sum::<f64>()
    }

    /// `Σ_π p_π Π_{i∈π} w_i`, in lanes. What is left in `weights` are the means of patterns from every element on.
    pub(super) fn mean(&self, weights: &mut [Lane]) -> Lane {
        let n = weights.len();
        match self.patterns {
            Patterns::One => {
                let mut sum = [0.0; LANES];
                weights.iter().for_each(|weight| (0..LANES).for_each(|i| sum[i] += weight[i]));
                sum.map(|sum| sum / n as f64)
            }
            Patterns::Spaced { min_sep, prob } => {
                let apart = usize::try_from(min_sep).unwrap_or(usize::MAX);
                let mut next = [1.0; LANES];
                for t in (0..n).rev() {
                    let after = t.checked_add(apart).filter(|after| *after < n);
                    let after = after.map_or([1.0; LANES], |after| weights[after]);
                    let joins: Lane = std::array::from_fn(|i| weights[t][i] * after[i]);
                    next = std::array::from_fn(|i| (1.0 - prob) * next[i] + prob * joins[i]);
                    weights[t] = next;
                }
                // Free at the first step, or later in the run, or only after its end.
                let mut sum = weights[0].map(|first| first / prob);
                let within = n.min(apart);
                weights[1..within].iter().for_each(|start| (0..LANES).for_each(|i| sum[i] += start[i]));
                let beyond = (min_sep - within as u64) as f64;
                sum.map(|sum| (sum + beyond) / period(min_sep, prob))
            }
        }
    }

    /// A pattern of the lane, with probability in proportion to `p_π Π_{i∈π} w_i`: after [`Law::mean`] of the weights, of which `weights` is what was left and
    /// `mean` the result. Elements are visited in ascending order.
    pub(super) fn draw(
        &self,
        weights: &[Lane],
        mean: &Lane,
        lane: usize,
        source: &mut Source<'_>,
        mut visit: impl FnMut(usize),
    ) {
        let n = weights.len();
        match self.patterns {
            Patterns::One => {
                let mut at = source.uniform() * mean[lane] * n as f64;
                let found = weights.iter().position(|weight| {
                    at -= weight[lane];
                    at < 0.0
                });
                visit(found.unwrap_or(n - 1));
            }
            Patterns::Spaced { min_sep, prob } => {
                let apart = usize::try_from(min_sep).unwrap_or(usize::MAX);
                // Where the unit is free first: among the steps, or after the end.
                let mut at = source.uniform() * mean[lane] * period(min_sep, prob);
                let starts = (0..n.min(apart)).find(|start| {
                    at -= if *start == 0 { weights[0][lane] / prob } else { weights[*start][lane] };
                    at < 0.0
                });
                let mut free = starts.unwrap_or(n);
                while free < n {
                    // It stays away for as long as the weight of doing so is above a share of the whole.
                    let least = (1.0 - source.uniform()) * weights[free][lane];
                    let mut stays = 1.0;
                    while free < n {
                        stays *= 1.0 - prob;
                        if stays * weights.get(free + 1).map_or(1.0, |next| next[lane]) < least {
                            visit(free);
                            free = free.saturating_add(apart);
                            break;
                        }
                        free += 1;
                    }
                }
            }
        }
    }
}

/// The product of two vectors with ascending places.
fn product(left: &[(usize, f64)], right: &[(usize, f64)]) -> f64 {
    let (Some((from, _)), Some((other, _))) = (left.first(), right.first()) else { return 0.0 };
    // Places are consecutive.
    let start = *from.max(other);
    let [left, right] =
        [(left, from), (right, other)].map(|(row, from)| row.get(start - from..).unwrap_or(&[]));
    left.iter().zip(right).map(|((_, a), (_, b))| a * b).sum()
}

/// Rows of entries by place as a sparse matrix.
fn sparse(rows: impl Iterator<Item = Vec<(usize, f64)>>) -> Sparse {
    let mut out = Sparse { starts: vec![0], ..Sparse::default() };
    for row in rows {
        for (place, entry) in row {
            out.columns.push(place as u32);
            out.values.push(entry);
        }
        out.starts.push(out.columns.len() as u32);
    }
    out
}

/// The entries of a row of a sparse matrix, by place.
pub(super) fn row(matrix: &Sparse, row: usize) -> impl Iterator<Item = (usize, f64)> {
    let entries = matrix.starts[row] as usize..matrix.starts[row + 1] as usize;
    let places = matrix.columns[entries.clone()].iter().map(|place| *place as usize);
    places.zip(matrix.values[entries].iter().copied())
}

/// A number of participations that a unit exceeds with a probability of at most `rare`, and a bound on that probability.
fn most_participations(n: usize, min_sep: u64, prob: f64, rare: f64) -> (usize, f64) {
    let apart = usize::try_from(min_sep).unwrap_or(usize::MAX);
    let within = n.min(apart);
    // The probability of so many participations at least, from every step on that the unit is free at.
    let mut least = vec![1.0; n];
    let mut count = 0;
    loop {
        let mut next = 0.0;
        let mut more = vec![0.0; n];
        for t in (0..n).rev() {
            // After the end there are none.
            let after = match t.checked_add(apart).and_then(|after| least.get(after)) {
                Some(after) => *after,
                None if count == 0 => 1.0,
                None => 0.0,
            };
            next = (1.0 - prob) * next + prob * after;
            more[t] = next;
        }
        let sum = more[0] / prob + more[1..within].iter().sum::<f64>();
        let exceeded = sum / period(min_sep, prob) * (1.0 + RAISED);
        // The probability of count + 1 participations or more.
        if exceeded <= rare {
            return (count, exceeded);
        }
        count += 1;
        least = more;
    }
}

/// The mean number of steps from one participation to the next.
fn period(min_sep: u64, prob: f64) -> f64 {
    (min_sep - 1) as f64 + 1.0 / prob
}
