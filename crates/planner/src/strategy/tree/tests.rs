//! Trees against their definition.

use super::*;
use Estimator::{Full, Plain, Streaming};
use corrnoise_core::{Family, form};

fn trees(sizes: impl Iterator<Item = usize>) -> impl Iterator<Item = Tree> {
    sizes.flat_map(|n| [Plain, Streaming, Full].map(|estimator| Tree::new(estimator, n).unwrap()))
}

/// Dense over node indices: `N` if `keep` is 0, its running sums `B` if it is 1.
fn dense(tree: &Tree, keep: f64) -> Vec<Vec<f64>> {
    let mut sum = vec![0.0; 2 << tree.height()];
    let row = |t| {
        sum.iter_mut().for_each(|x| *x *= keep);
        tree.noising_row(t).iter().for_each(|&(node, weight)| sum[node as usize] += weight);
        sum.clone()
    };
    (0..tree.num_steps).map(row).collect()
}

/// The last step below a node: its in-order index is surrounded by 2^(h+1) − 1 indices of its subtree.
fn last_leaf(node: u64) -> u64 {
    (node + (1 << node.trailing_ones()) - 1) / 2
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[track_caller]
fn near(got: f64, expected: f64, tolerance: f64) {
    assert!((got - expected).abs() <= tolerance, "{got} is not {expected}");
}

/// `c (cᵀc)⁻¹ query` by elimination: the weights of the best linear unbiased estimate.
fn least_squares(c: &[Vec<f64>], query: &[f64]) -> Vec<f64> {
    let n = query.len();
    let gram = |s: usize, t: usize| c.iter().map(|row| row[s] * row[t]).sum();
    let equation = |s: usize| (0..n).map(|t| gram(s, t)).chain([query[s]]).collect();
    let mut m: Vec<Vec<f64>> = (0..n).map(equation).collect();
    for i in 0..n {
        let pivot: Vec<f64> = m[i].iter().map(|x| x / m[i][i]).collect();
        for row in &mut m {
            let factor = row[i];
            row.iter_mut().zip(&pivot).for_each(|(x, p)| *x -= factor * p);
        }
        m[i] = pivot;
    }
    c.iter().map(|row| (0..n).map(|s| row[s] * m[s][n]).sum()).collect()
}

#[test]
fn noise_undoes_the_strategy_and_its_sums_have_the_stated_error() {
    for tree in trees((1..=40).chain([64])) {
        let (n, noising) = (tree.num_steps, dense(&tree, 0.0));
        // Full is triangular: its C⁺C is N NᵀCᵀC.
        let product = |row: &Vec<f64>, s| match tree.estimator {
            Full => (0..n).map(|u| dot(row, &noising[u]) * tree.gram(u, s)).sum(),
            _ => tree.nodes_over(s).iter().map(|&node| row[node as usize]).sum(),
        };
        let mut decoded = vec![0.0; n];
        for (t, row) in noising.iter().enumerate() {
            for (s, sum) in decoded.iter_mut().enumerate() {
                *sum += product(row, s);
                near(product(row, s), f64::from(t == s), 1e-12);
                near(*sum, f64::from(t >= s), 1e-12);
            }
        }
        for (row, error) in dense(&tree, 1.0).iter().zip(tree.per_query_error_squared()) {
            near(dot(row, row), error, 1e-12);
        }
    }
}

#[test]
fn estimators_are_least_squares() {
    for n in 1..=33 {
        let (streaming, full) = (Tree::new(Streaming, n).unwrap(), Tree::new(Full, n).unwrap());
        let (nodes, c) = full.strategy_matrix().unwrap();
        assert_eq!((nodes.len(), nodes.is_sorted()), (full.num_nodes(), true));
        let (decoder, triangular) = (dense(&streaming, 1.0), dense(&full, 0.0));
        for t in 0..n {
            let (known, seen): (Vec<u64>, Vec<Vec<f64>>) =
                nodes.iter().zip(c.clone()).filter(|(node, _)| last_leaf(**node) <= t as u64).unzip();
            for (node, weight) in known.iter().zip(least_squares(&seen, &vec![1.0; t + 1])) {
                near(decoder[t][*node as usize], weight, 1e-12);
            }
            let unit: Vec<f64> = (0..n).map(|s| f64::from(s == t)).collect();
            for (row, weight) in c.iter().zip(least_squares(&c, &unit)) {
                near((0..n).map(|s| row[s] * dot(&triangular[t], &triangular[s])).sum(), weight, 1e-12);
            }
        }
    }
}

/// The tables at n = 8, 16, …, 8192. The max table's column "Full H2" is no property of one tree: it is the RMS error
/// of `Streaming` over 2n steps times the column norm of the tree over n.
#[test]
fn losses_are_the_monographs() {
    let streaming = [2.178, 2.663, 3.156, 3.652, 4.151, 4.65, 5.15, 5.65, 6.15, 6.65, 7.15];
    let full = [1.656, 1.938, 2.227, 2.518, 2.81, 3.102, 3.394, 3.686, 3.978, 4.269, 4.56];
    let max_full = [2.382, 2.881, 3.381, 3.883, 4.384, 4.886, 5.387, 5.888, 6.389, 6.89, 7.391];
    for (i, n) in (3..14).map(|k| 1 << k).enumerate() {
        let loss = |estimator, steps| {
            let errors = Tree::new(estimator, steps).unwrap().per_query_error_squared();
            let mean = errors.iter().sum::<f64>() / steps as f64;
            (mean * Tree::new(estimator, n).unwrap().column_norm_squared(0)).sqrt()
        };
        near(loss(Streaming, n), streaming[i], 5.0001e-4);
        near(loss(Full, n), full[i], 5.0001e-4);
        near(loss(Streaming, 2 * n), max_full[i], 5.0001e-4);
    }
}

#[test]
fn the_engine_takes_the_rows_and_none_reads_ahead() {
    for tree in trees([37, 64].into_iter()) {
        let term = |(index, weight)| form::Term { family: Family::TreeNode, index, weight };
        let row = |t| tree.noising_row(t).into_iter().map(term).collect();
        let rows: Vec<Vec<form::Term>> = (0..tree.num_steps).map(row).collect();
        form::Regenerate::listed(&rows).unwrap();
        for (t, row) in rows.iter().enumerate() {
            assert!(row.iter().all(|term| last_leaf(term.index) <= t as u64));
        }
    }
}

#[test]
fn limits_are_errors() {
    assert!(Tree::new(Plain, 0).is_err() && Tree::new(Plain, (1 << 39) + 1).is_err());
    let large = Tree::new(Streaming, 1 << 39).unwrap();
    assert_eq!(large.nodes_over((1 << 39) - 1).last(), Some(&((1 << 40) - 2)));
    assert!(matches!(large.strategy_matrix(), Err(Error::TooLarge { limit: 1024, .. })));
    assert!(large.noising_row(1 << 39).is_empty() && large.nodes_over(1 << 39).is_empty());
}
