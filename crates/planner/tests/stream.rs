//! From mathematics to noise: `C·C⁻¹ = I`, and the engine's stream is dense `C⁻¹Z`, for every strategy, normalised or not,
//! restarted or not.

use corrnoise_core::backend::{Add, Backend, Step};
use corrnoise_core::chacha::ChaCha;
use corrnoise_core::{
    Cpu, CpuOptions, Family, Gradients, Incarnations, Plan, Rounds, Row, RunKey, Shard, noise,
};
use corrnoise_planner::{Blt, Estimator, Factorization, LowerTriangular, Strategy, Tree, Workload};

const KEY: [u8; 32] = [42; 32];
const COORDS: u64 = 40;

fn strategies(n: usize) -> Vec<Strategy> {
    let momentum = Workload::momentum(0.9, 0.01).unwrap();
    let rates = |t: usize| 1.0 / (1.0 + 0.1 * t as f64);
    let rows: Vec<Vec<f64>> = (0..n)
        .map(|t| (0..=t.min(4)).map(|a| (2.0 + 0.01 * t as f64) / (1.0 + 1.7 * a as f64)).collect())
        .collect();
    let entry =
        |t: usize, s: usize| if s > t { 0.0 } else { 1.3 / (1.0 + (t - s) as f64) - 0.002 * s as f64 };
    let dense: Vec<Vec<f64>> = (0..n).map(|t| (0..n).map(|s| entry(t, s)).collect()).collect();
    vec![
        Strategy::Identity,
        Strategy::Output(Workload::Prefix),
        Strategy::Output(momentum.clone()),
        Strategy::Output(Workload::nesterov(0.7).unwrap()),
        Strategy::Output(Workload::Prefix.with_learning_rates((0..n).map(rates).collect()).unwrap()),
        Strategy::one_parameter(0.8).unwrap(),
        Strategy::square_root(Workload::Prefix).unwrap(),
        Strategy::square_root(momentum).unwrap(),
        Strategy::square_root(Workload::nesterov(0.7).unwrap()).unwrap(),
        Strategy::damped(0.05).unwrap(),
        Strategy::banded_square_root(9).unwrap(),
        Strategy::toeplitz(vec![2.0, 1.0, -0.3, 0.2]).unwrap(),
        Strategy::banded(rows).unwrap(),
        Strategy::Blt(Blt::new(&[0.3, 0.2, 0.05], &[0.3, 0.8, 0.99]).unwrap()),
        Strategy::Blt(Blt::rational(4, n as u64).unwrap()),
        Strategy::Dense(LowerTriangular::new(&dense).unwrap()),
        Strategy::Tree(Estimator::Plain),
        Strategy::Tree(Estimator::Streaming),
        Strategy::Tree(Estimator::Full),
        Strategy::banded_inverse_square_root(8).unwrap(),
        Strategy::banded_inverse(vec![1.5, -0.4, -0.2, 0.1]).unwrap(),
    ]
}

fn variants(n: usize) -> Vec<Factorization> {
    let mut all = Vec::new();
    for strategy in strategies(n) {
        for every in [n, 24] {
            let plain = Factorization::new(strategy.clone(), n).unwrap().restarted(every).unwrap();
            all.push(plain.clone());
            all.push(plain.column_normalized().unwrap());
        }
    }
    all
}

fn is_causal_tree(strategy: &Strategy) -> bool {
    matches!(strategy, Strategy::Tree(Estimator::Plain | Estimator::Streaming))
}

#[test]
fn the_inverse_inverts() {
    let mut checked = 0;
    for factorization in [64, 37].into_iter().flat_map(variants).filter(|f| !is_causal_tree(f.strategy())) {
        let product = factorization.matrix().unwrap().multiply(&factorization.inverse().unwrap());
        for t in 0..product.len() {
            for s in 0..=t {
                let expected = f64::from(u8::from(t == s));
                let difference = (product.get(t, s) - expected).abs();
                assert!(
                    difference < 1e-9,
                    "{}: ({t}, {s}) differs by {difference}",
                    factorization.describe()
                );
            }
        }
        let norms = factorization.column_norms_squared().unwrap();
        let matrix = factorization.matrix().unwrap();
        for (s, norm) in norms.iter().enumerate() {
            let sum: f64 = (s..matrix.len()).map(|t| matrix.get(t, s).powi(2)).sum();
            assert!((norm / sum - 1.0).abs() < 1e-9, "{}: column {s}", factorization.describe());
        }
        checked += 1;
    }
    assert!(checked > 100);
}

/// The rows of the engine's stream, one vector per step.
fn engine_stream(factorization: &Factorization) -> Vec<Vec<f32>> {
    let plan = Plan::new(factorization.num_steps() as u64, factorization.form().unwrap(), 1.0).unwrap();
    let shard = Shard::whole(COORDS).unwrap();
    let mut cpu = Cpu::new(&plan, &[RunKey::from_bytes(KEY)], &shard, CpuOptions::default()).unwrap();
    let (incarnations, mut terms) = (Incarnations::first(), Vec::new());
    (0..plan.num_steps())
        .map(|t| {
            let mut row = vec![0.0_f32; COORDS as usize];
            // Before the output grid, which is far coarser than the coefficients' digits.
            let add = Add::Plain(plan.scale(t));
            let step = Step { add, ..Step::lower(&plan, t, &incarnations, &mut terms).unwrap() };
            cpu.step(&step, Gradients::new(&mut [&mut row[..]])).unwrap();
            row
        })
        .collect()
}

/// The terms of every row by the mathematics: names of i.i.d. rows and their weights.
fn dense_terms(factorization: &Factorization) -> Vec<Vec<((Family, u64), f64)>> {
    let n = factorization.num_steps();
    let Strategy::Tree(estimator @ (Estimator::Plain | Estimator::Streaming)) = *factorization.strategy()
    else {
        let inverse = factorization.inverse().unwrap();
        let row = |t: usize| (0..=t).map(|s| ((Family::Step, s as u64), inverse.get(t, s))).collect();
        return (0..n).map(row).collect();
    };
    // Blocks number their nodes one after another.
    let (every, mut used, mut rows) = (factorization.restart_every(), 0, Vec::new());
    for start in (0..n).step_by(every) {
        let tree = Tree::new(estimator, every.min(n - start)).unwrap();
        let block: Vec<_> = (0..tree.num_steps()).map(|t| tree.noising_row(t)).collect();
        let end = block.iter().flatten().map(|(node, _)| node + 1).max().unwrap();
        for (t, row) in block.into_iter().enumerate() {
            let norm =
                if factorization.has_scaled_columns() { tree.column_norm_squared(t).sqrt() } else { 1.0 };
            rows.push(row.into_iter().map(|(node, w)| ((Family::TreeNode, used + node), norm * w)).collect());
        }
        used += end;
    }
    rows
}

#[test]
fn the_stream_is_the_dense_product() {
    let cipher = ChaCha::new(&KEY, Rounds::default());
    for factorization in [64, 37].into_iter().flat_map(variants) {
        let (mut worst, mut scale) = (0.0_f64, 0.0_f64);
        for (row, terms) in engine_stream(&factorization).iter().zip(dense_terms(&factorization)) {
            for (coord, got) in row.iter().enumerate() {
                let normal = |(family, index)| {
                    f64::from(noise::normal(&cipher, Row::new(family, 0, index).unwrap(), coord as u64))
                };
                let expected: f64 = terms.iter().map(|(name, weight)| weight * normal(*name)).sum();
                worst = worst.max((f64::from(*got) - expected).abs());
                scale = scale.max(expected.abs());
            }
        }
        assert!(worst < 1e-5 * scale, "{}: {worst} of {scale}", factorization.describe());
    }
}
