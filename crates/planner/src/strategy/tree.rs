//! Tree aggregation: prefix sums from noisy sums over dyadic intervals (monograph, section "Tree Aggregation").
//!
//! A complete binary tree stands over the steps, padded to a power of two `n'`. Every node that is released carries one i.i.d.
//! normal: those with a real step below them, and for the causal estimators only those that are complete, since they read no
//! others. The strategy `C` has a row per node, with ones at the steps below it. Nodes are indexed in order, from left to
//! right: node `p` of level `h` is `(2p + 1)·2^h − 1`, whatever the number of steps. Three steps, [`Estimator::Full`]:
//!
//! ```text
//! level 2        3               step 0  1  2
//! level 1    1       5      node 0 [  1  .  .  ]
//! level 0  0   2   4   ·         1 [  1  1  .  ]
//! step     0   1   2             2 [  .  1  .  ]
//!                                3 [  1  1  1  ]
//!                                4 [  .  .  1  ]
//!                                5 [  .  .  1  ]
//! ```
//! `C` is not square, so an estimator chooses a decoder `B` with `B C = A`, `A` the prefix sums; step `t` adds row `t` of
//! `N = A⁻¹B` times the normals. Streaming: Honaker, "Efficient Use of Differentially Private Binary Trees" (2015). All
//! numbers follow from Sherman–Morrison up the tree: for `M = CᵀC` of a subtree, `M_node = blockdiag(M_left, M_right) + 11ᵀ`.

use crate::error::{Error, Result, check_steps};

/// Levels of the largest tree: node indices have 40 bits, as many as a row's name holds.
const MAX_LEVELS: usize = 40;
/// Most steps of which the dense strategy is written out: 2047 × 1024 numbers.
const DENSE_LIMIT: usize = 1024;

/// How prefix sums are read from the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimator {
    /// The nodes of the maximal dyadic partition of `[0, t]`, with weight 1. Rows of `N` have at most `log₂ n' + 1` terms.
    Plain,
    /// The best linear unbiased estimate from the nodes complete at step `t`. The row of a step that completes a subtree
    /// of `2^k` steps reads all `2^(k+1) − 1` nodes in it: at most `2n − 1` terms, on average `log₂ n + 1` (n a power of two).
    Streaming,
    /// Least squares over the whole tree, `B = A C⁺`: the smallest error that `C` admits.
    /// `C⁺` reads nodes that are not complete yet. That is allowed, as noise does not depend on data: `C⁺Z` has covariance
    /// `(CᵀC)⁻¹`, as has the inverse of the square lower-triangular factor with the same Gram matrix, so the guarantee for
    /// adaptively chosen gradients carries over (monograph, remark on lower-triangular factorisations). That inverse is
    /// what [`Tree::noising_row`] gives, `t + 1` terms in row `t`: each step brings one new normal, whereas row 0 of `C⁺`
    /// already reads every node, and a run resumed under a new key needs fresh noise at each step that it repeats.
    Full,
}

/// A tree over a number of steps, and how it is read. Steps at or after the last one have no nodes, rows or products.
///
/// ```
/// use corrnoise_planner::{Estimator, Tree};
/// let tree = Tree::new(Estimator::Plain, 3)?;
/// assert_eq!(tree.nodes_over(1), [1, 2]); // the root is never complete
/// // Step 1 completes [0, 1] (node 1), which replaces step 0 (node 0) in the prefix sum.
/// assert_eq!(tree.noising_row(1), [(0, -1.0), (1, 1.0)]);
/// # Ok::<(), corrnoise_planner::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    estimator: Estimator,
    num_steps: usize,
    /// `1ᵀM⁻¹1` of a complete subtree, by level: also the variance of Honaker's refined node, by the same recursion.
    complete: Vec<f64>,
    /// `1ᵀM⁻¹1` of the subtree that holds the last step, by level.
    last: Vec<f64>,
}

impl Tree {
    /// A tree over `num_steps` steps: at least one, and at most 2³⁹, for node indices of 40 bits.
    pub fn new(estimator: Estimator, num_steps: usize) -> Result<Tree> {
        check_steps(num_steps)?;
        if num_steps as u64 > 1 << (MAX_LEVELS - 1) {
            return Err(Error::parameter("number of steps", num_steps, "at most 2^39"));
        }
        let height = num_steps.next_power_of_two().ilog2() as usize;
        let (mut complete, mut last) = (vec![1.0], vec![1.0]);
        for h in 0..height {
            let left = if (num_steps - 1) >> h & 1 == 1 { complete[h] } else { 0.0 };
            last.push(with_node(left + last[h]));
            complete.push(with_node(2.0 * complete[h]));
        }
        Ok(Tree { estimator, num_steps, complete, last })
    }

    /// How prefix sums are read.
    pub fn estimator(&self) -> Estimator {
        self.estimator
    }

    /// The number of steps.
    pub fn num_steps(&self) -> usize {
        self.num_steps
    }

    /// The number of nodes that are released: rows of `C`.
    pub fn num_nodes(&self) -> usize {
        let padding = |h: usize| if self.estimator == Estimator::Full { (1 << h) - 1 } else { 0 };
        (0..=self.height()).map(|h| (self.num_steps + padding(h)) >> h).sum()
    }

    /// Squared norm of a column of `C`: the number of nodes over a step, at most `log₂ n' + 1`.
    pub fn column_norm_squared(&self, step: usize) -> f64 {
        self.gram(step, step)
    }

    /// The nodes that contain a step, sorted: where its column of `C` is 1.
    pub fn nodes_over(&self, step: usize) -> Vec<u64> {
        let mut nodes: Vec<u64> = (0..self.levels_over(step)).map(|h| node_index(h, step >> h)).collect();
        nodes.sort_unstable();
        nodes
    }

    /// `(CᵀC)[s, t]`: the number of nodes that contain both steps.
    pub fn gram(&self, s: usize, t: usize) -> f64 {
        Tree::shared_nodes([s, t], [self.levels_over(s), self.levels_over(t)])
    }

    /// The same, from how many nodes contain each.
    pub(crate) fn shared_nodes([s, t]: [usize; 2], levels: [usize; 2]) -> f64 {
        levels[0].min(levels[1]).saturating_sub(meeting_level(s, t)) as f64
    }

    /// How many nodes contain a step. Where one is incomplete, so are all above it.
    pub(crate) fn levels_over(&self, step: usize) -> usize {
        match self.estimator {
            _ if step >= self.num_steps => 0,
            Estimator::Full => self.height() + 1,
            _ => (0..=self.height()).take_while(|h| ((step >> h) + 1) << h <= self.num_steps).count(),
        }
    }

    /// `diag(B Bᵀ)`: the variance of each prefix sum for nodes of variance 1. Takes `n log n` operations.
    pub fn per_query_error_squared(&self) -> Vec<f64> {
        let query = |t: usize| match self.estimator {
            Estimator::Full => self.full_error_squared(t),
            _ => (0..=self.height()).filter(|h| (t + 1) >> h & 1 == 1).map(|h| self.own_weight(h)).sum(),
        };
        (0..self.num_steps).map(query).collect()
    }

    /// Row `step` of `N` as (node index, weight), without zeros, sorted by node: the noise of one step.
    ///
    /// # Guarantees
    /// `N Nᵀ` is the covariance of the estimator's noise. Row `t` names no node that reaches beyond step `t`, and at least
    /// one that no earlier row names. For `Plain` and `Streaming`, `N C = I`; for `Full`, `N` is lower-triangular over the
    /// leaves' normals with `N Nᵀ = (CᵀC)⁻¹`, so `C⁺ = N NᵀCᵀ`. Time is linear in the terms, times `log₂ n` for `Full`.
    pub fn noising_row(&self, step: usize) -> Vec<(u64, f64)> {
        let mut row = match self.estimator {
            _ if step >= self.num_steps => Vec::new(),
            Estimator::Full => self.triangular_row(step),
            _ => self.causal_row(step),
        };
        row.retain(|term| term.1 != 0.0);
        row.sort_unstable_by_key(|term| term.0);
        row
    }

    /// The node indices in order and the rows of `C`: dense, for pictures and tests, at most 1024 steps.
    pub fn strategy_matrix(&self) -> Result<(Vec<u64>, Vec<Vec<f64>>)> {
        let n = self.num_steps;
        if n > DENSE_LIMIT {
            let what = "the dense strategy of a tree".into();
            return Err(Error::TooLarge { what, cost: "2n²", n, limit: DENSE_LIMIT });
        }
        let columns: Vec<Vec<u64>> = (0..n).map(|t| self.nodes_over(t)).collect();
        let mut nodes = columns.concat();
        nodes.sort_unstable();
        nodes.dedup();
        let row = |v| columns.iter().map(|column| f64::from(column.contains(v))).collect();
        Ok((nodes.clone(), nodes.iter().map(row).collect()))
    }

    fn height(&self) -> usize {
        self.complete.len() - 1
    }

    /// `1ᵀM⁻¹1` of the subtree of a node that exists.
    fn sum_variance(&self, h: usize, p: usize) -> f64 {
        if p == (self.num_steps - 1) >> h { self.last[h] } else { self.complete[h] }
    }

    /// Entry `t` of `M⁻¹1`, for `M` of each subtree that contains `t`, by level. A node's own row divides what its subtrees
    /// give by `1 + x`, `x` their sum of `1ᵀM⁻¹1`; the node's own `1ᵀM⁻¹1` is `x/(1 + x)`, so that factor is 1 minus it.
    fn shares(&self, t: usize) -> [f64; MAX_LEVELS] {
        let mut share = [1.0; MAX_LEVELS];
        for h in 1..=self.height() {
            share[h] = share[h - 1] * (1.0 - self.sum_variance(h, t >> h));
        }
        share
    }

    /// `q = aᵀM⁻¹a` for `a` the prefix that ends with `t`, with `w = 1ᵀM⁻¹a`, from the leaf to the root.
    fn full_error_squared(&self, t: usize) -> f64 {
        let (mut q, mut w) = (1.0, 1.0);
        for h in 1..=self.height() {
            let left = if t >> (h - 1) & 1 == 1 { self.complete[h - 1] } else { 0.0 };
            let kept = 1.0 - self.sum_variance(h, t >> h);
            q += left - (w + left) * (w + left) * kept;
            w = (w + left) * kept;
        }
        q
    }

    /// Weight of a node's own value in its estimate from a complete subtree; also the variance of that estimate.
    fn own_weight(&self, h: usize) -> f64 {
        if self.estimator == Estimator::Plain { 1.0 } else { self.complete[h] }
    }

    /// Prefix `t` minus prefix `t − 1`: the subtree completed at `t` replaces the left siblings on its right edge.
    fn causal_row(&self, t: usize) -> Vec<(u64, f64)> {
        let (mut row, mut edge) = (Vec::new(), 1.0);
        for h in (0..=t.trailing_ones() as usize).rev() {
            row.push((node_index(h, t >> h), edge * self.own_weight(h)));
            edge *= 1.0 - self.own_weight(h);
            if h > 0 {
                self.estimate(h - 1, 2 * (t >> h), edge - 1.0, &mut row);
            }
        }
        row
    }

    /// Appends `factor` times the estimate of a complete subtree: `v·own + (1 − v)(left + right)`; leaves have `v = 1`.
    fn estimate(&self, h: usize, p: usize, factor: f64, row: &mut Vec<(u64, f64)>) {
        let own = self.own_weight(h);
        row.push((node_index(h, p), factor * own));
        if own < 1.0 {
            self.estimate(h - 1, 2 * p, factor * (1.0 - own), row);
            self.estimate(h - 1, 2 * p + 1, factor * (1.0 - own), row);
        }
    }

    /// Row `t` of the lower-triangular `L` with `L Lᵀ = M⁻¹`. Column `s` of `L` is the covariance with step `s`, given
    /// the steps before it, over its standard deviation; in `s`'s sibling subtree that holds `t` it is `−γ M⁻¹1`.
    fn triangular_row(&self, t: usize) -> Vec<(u64, f64)> {
        let share = self.shares(t);
        let entry = |s: usize| {
            let (gamma, variance) = self.tail(s);
            let h = meeting_level(s, t);
            let covariance = if h == 0 { variance } else { -gamma[h] * share[h - 1] };
            covariance / variance.sqrt()
        };
        (0..=t).map(|s| (node_index(0, s), entry(s))).collect()
    }

    /// `M⁻¹e_s` for the tree without the steps before `s` (conditioning removes their rows from the precision matrix
    /// `M`): the sum of the weights at and above `s`'s node of each level, and entry `s`, the variance given the past.
    fn tail(&self, s: usize) -> ([f64; MAX_LEVELS], f64) {
        let (mut sum, mut share) = ([1.0; MAX_LEVELS], [1.0; MAX_LEVELS]);
        for h in 1..=self.height() {
            let p = s >> (h - 1);
            let has_right = p & 1 == 0 && p < (self.num_steps - 1) >> (h - 1);
            let right = if has_right { self.sum_variance(h - 1, p + 1) } else { 0.0 };
            sum[h] = with_node(sum[h - 1] + right);
            share[h] = share[h - 1] * (1.0 - sum[h]);
        }
        let (mut gamma, mut total) = ([0.0; MAX_LEVELS], 0.0);
        for h in (1..=self.height()).rev() {
            total += share[h] - total * sum[h];
            gamma[h] = total;
        }
        (gamma, 1.0 - total)
    }
}

/// In-order index of node `p` of level `h`.
fn node_index(h: usize, p: usize) -> u64 {
    ((2 * p as u64 + 1) << h) - 1
}

/// Level of the lowest node that contains both steps.
fn meeting_level(s: usize, t: usize) -> usize {
    (usize::BITS - (s ^ t).leading_zeros()) as usize
}

/// `1ᵀM⁻¹1` after a row of ones is added to the strategy (Sherman–Morrison).
fn with_node(below: f64) -> f64 {
    below / (1.0 + below)
}

#[cfg(test)]
mod tests;
