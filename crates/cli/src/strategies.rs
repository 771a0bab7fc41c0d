//! From a strategy's name to its factorisation, and the first columns of its matrices.

use crate::failure::Result;
use crate::parse::StrategySpec;
use crate::progress::Progress;
use corrnoise::planner::optimize::{self, Problem};
use corrnoise::planner::{Estimator, Factorization, LowerTriangular, Strategy, Tree};
use std::ops::ControlFlow;

/// Entries of a column that are printed.
pub const NUM_COEFS: usize = 16;

/// A strategy at a number of steps.
pub fn build(spec: &StrategySpec, problem: &Problem) -> Result<Factorization> {
    let mut progress = Progress::new(1, "optimising");
    Ok(spec.build(problem, &mut observer(&mut progress))?)
}

/// Shows an optimiser's iterations on a bar.
pub fn observer(progress: &mut Progress) -> impl FnMut(optimize::Iteration) -> ControlFlow<()> {
    |report| {
        progress.bar_of(report.number as u64, report.limit as u64);
        ControlFlow::Continue(())
    }
}

/// The first columns of `C` and `C⁻¹`.
#[derive(Debug, PartialEq)]
pub struct Columns {
    pub strategy: Vec<f64>,
    pub noising: Vec<f64>,
}

/// The first [`NUM_COEFS`] entries of the first columns; `norms` are those that the columns of `base` are to be divided by, if any.
///
/// The leading part of a triangular matrix' inverse is the inverse of its leading part: nothing of the size of the whole is made.
pub fn first_columns(base: &Factorization, norms: Option<&[f64]>) -> Result<Columns> {
    let count = base.num_steps().min(NUM_COEFS);
    let norm = |t: usize| norms.map_or(1.0, |norms| norms[t]);
    let (mut strategy, mut noising) = match base.strategy() {
        Strategy::Tree(Estimator::Full) => {
            let tree = Tree::new(Estimator::Full, base.num_steps())?;
            let rows: Vec<_> = (0..count).map(|t| tree.noising_row(t)).collect();
            let inverse = leading_part(count, |t, s| {
                // Columns are named by the leaves of their steps.
                rows[t].iter().find(|(leaf, _)| *leaf == 2 * s as u64).map_or(0.0, |(_, weight)| *weight)
            })?;
            (first_column(&inverse.inverse()), first_column(&inverse))
        }
        Strategy::Tree(estimator) => {
            let tree = Tree::new(*estimator, base.num_steps())?;
            tree_columns(&tree, count)?
        }
        Strategy::Banded(rows) => {
            let entry = |t: usize, s: usize| rows[t].get(t - s).copied().unwrap_or(0.0);
            let part = leading_part(count, entry)?;
            (first_column(&part), first_column(&part.inverse()))
        }
        Strategy::Dense(matrix) => {
            let part = leading_part(count, |t, s| matrix.get(t, s))?;
            (first_column(&part), first_column(&part.inverse()))
        }
        toeplitz => {
            let part = Factorization::new(toeplitz.clone(), count)?;
            (part.strategy_coefs()?.unwrap_or_default(), part.noising_coefs()?.unwrap_or_default())
        }
    };
    strategy.iter_mut().for_each(|value| *value /= norm(0));
    noising.iter_mut().enumerate().for_each(|(t, value)| *value *= norm(t));
    Ok(Columns { strategy, noising })
}

/// Step 0 by node, and node 0 (the leaf of step 0) by step.
fn tree_columns(tree: &Tree, count: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let over = tree.nodes_over(0);
    // From 16 steps on, the first 16 nodes in order are all complete; below, the matrix is small.
    let nodes: Vec<u64> = match tree.num_steps() < NUM_COEFS {
        true => tree.strategy_matrix()?.0,
        false => (0..NUM_COEFS as u64).collect(),
    };
    let strategy =
        nodes.iter().take(NUM_COEFS).map(|node| f64::from(u8::from(over.contains(node)))).collect();
    let weight =
        |t: usize| tree.noising_row(t).iter().find(|(node, _)| *node == 0).map_or(0.0, |(_, weight)| *weight);
    Ok((strategy, (0..count).map(weight).collect()))
}

fn leading_part(count: usize, entry: impl Fn(usize, usize) -> f64) -> Result<LowerTriangular> {
    let rows: Vec<Vec<f64>> =
        (0..count).map(|t| (0..count).map(|s| if s <= t { entry(t, s) } else { 0.0 }).collect()).collect();
    Ok(LowerTriangular::new(&rows)?)
}

/// Column 0 of the matrix.
pub fn first_column(matrix: &LowerTriangular) -> Vec<f64> {
    (0..matrix.len()).map(|t| matrix.get(t, 0)).collect()
}
