//! Statistical tests that batches are as random as the plan says. Keys are fixed, so every test gives one answer; a right
//! sampler exceeds each limit with probability 1e-6 on either side.

use corrnoise::{Form, Key, Plan, Sampler, Sampling};
use std::collections::HashMap;

/// The point that a standard normal exceeds with probability 1e-6.
const Z: f64 = 4.753_424;

fn sampler(sampling: Sampling, num_steps: u64, seed: u64) -> Sampler {
    let plan = Plan::new(num_steps, Form::independent(), 1.0).unwrap().with_sampling(sampling).unwrap();
    let mut bytes = [7; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    Sampler::new(&plan, &Key::from_bytes(bytes, "statistics")).unwrap()
}

/// Checks a χ² statistic by the cube root of Wilson and Hilferty, which is good to a percent this far out.
fn check_chi_squared(what: &str, statistic: f64, dof: f64) {
    let quantile = |z: f64| dof * (1.0 - 2.0 / (9.0 * dof) + z * (2.0 / (9.0 * dof)).sqrt()).max(0.0).powi(3);
    println!("{what}: χ² {statistic:.1} with {dof} degrees of freedom");
    assert!(statistic > quantile(-Z) && statistic < quantile(Z), "{what}: {statistic}, {dof}");
}

/// Does what `check_chi_squared` does, for a sum over binomials, whose fourth moment exceeds a normal's by `excess`: the χ² with that variance.
fn check_dispersion(what: &str, statistic: f64, terms: f64, excess: f64) {
    let share = 2.0 / (2.0 + excess);
    check_chi_squared(what, statistic * share, (terms * share).round());
}

/// The sum of (observed − expected)²/expected over the cells of one experiment.
fn goodness(observed: &[f64], probabilities: &[f64]) -> f64 {
    let total: f64 = observed.iter().sum();
    observed.iter().zip(probabilities).map(|(o, p)| (o - total * p).powi(2) / (total * p)).sum()
}

/// Every unit's count over the steps is binomial, every batch's size too: `Σ (count − mean)²/variance` is χ².
fn check_flips(sampler: &Sampler, prob: f64, turns: u64, what: &str) {
    let steps = sampler.num_steps();
    let (Sampling::Poisson { dataset_size, .. } | Sampling::BlockPoisson { dataset_size, .. }) =
        sampler.sampling()
    else {
        panic!("units do not join independently")
    };
    let mut counts = vec![0.0_f64; dataset_size as usize];
    let (mut sizes, mut total) = (0.0, 0.0);
    let mean_size = sampler.expected_batch_size();
    let mut batch = sampler.batch(0).unwrap();
    for step in 0..steps {
        sampler.fill(step, &mut batch).unwrap();
        batch.indices().iter().for_each(|unit| counts[*unit as usize] += 1.0);
        sizes += (batch.len() as f64 - mean_size).powi(2) / (mean_size * (1.0 - prob));
        total += batch.len() as f64;
    }
    let per_unit = steps as f64 / turns as f64;
    let (mean, variance) = (per_unit * prob, per_unit * prob * (1.0 - prob));
    assert!(variance > 15.0, "the statistic needs counts that are nearly normal");
    let units: f64 = counts.iter().map(|count| (count - mean).powi(2) / variance).sum();
    let excess = |variance: f64| (1.0 - 6.0 * prob * (1.0 - prob)) / variance;
    check_dispersion(&format!("{what}, units"), units, dataset_size as f64, excess(variance));
    let size_variance = mean_size * (1.0 - prob);
    check_dispersion(&format!("{what}, sizes"), sizes, steps as f64, excess(size_variance));
    let expected = steps as f64 * mean_size;
    let z = (total - expected) / (expected * (1.0 - prob)).sqrt();
    println!("{what}, total: z {z:.2}");
    assert!(z.abs() < Z, "{what}: {z}");
}

#[test]
fn poisson_joins_with_its_probability() {
    for (size, prob, steps) in [
        (1000, 0.5, 2000),
        (1000, 1.0 / 3.0, 2000),
        (777, 0.013, 6000),
        (192, 1e-4, 300_000),
        (500, 0.99, 4000),
    ] {
        let sampling = Sampling::Poisson { dataset_size: size, sampling_prob: prob };
        check_flips(&sampler(sampling, steps, 1), prob, 1, &format!("Poisson {prob:.4}"));
    }
}

#[test]
fn block_poisson_joins_with_its_probability() {
    for (prob, steps) in [(0.25, 3500), (0.02, 14_000)] {
        let sampling = Sampling::BlockPoisson { dataset_size: 700, num_blocks: 7, sampling_prob: prob };
        check_flips(&sampler(sampling, steps, 2), prob, 7, &format!("blocks {prob}"));
    }
}

#[test]
fn certain_and_almost_certain_units_join() {
    for prob in [1.0, 1.0 - 2.0_f64.powi(-53)] {
        let sampling = Sampling::Poisson { dataset_size: 1000, sampling_prob: prob };
        let sampler = sampler(sampling, 100, 3);
        assert!((0..100).all(|step| sampler.batch(step).unwrap().len() == 1000));
    }
}

/// Pairs that must be independent: a unit at two neighbouring steps, two neighbours in a group, and the same place in two groups.
#[test]
fn pairs_are_independent() {
    const SIZE: usize = 1280;
    for prob in [0.5, 0.3, 0.05] {
        let sampling = Sampling::Poisson { dataset_size: SIZE as u64, sampling_prob: prob };
        let sampler = sampler(sampling, 2000, 4);
        let flips: Vec<Vec<bool>> = (0..2000)
            .map(|step| {
                let mut joined = vec![false; SIZE];
                sampler.batch(step).unwrap().indices().iter().for_each(|unit| joined[*unit as usize] = true);
                joined
            })
            .collect();
        let cells = [(1.0 - prob).powi(2), prob * (1.0 - prob), prob * (1.0 - prob), prob * prob];
        let check = |what: &str, pairs: &mut dyn Iterator<Item = (bool, bool)>| {
            let mut counts = [0.0; 4];
            pairs.for_each(|(a, b)| counts[2 * usize::from(a) + usize::from(b)] += 1.0);
            check_chi_squared(&format!("{what}, p = {prob}"), goodness(&counts, &cells), 3.0);
        };
        // Pairs do not overlap, so they are independent of each other too.
        let steps = flips.as_chunks::<2>().0;
        check("steps", &mut steps.iter().flat_map(|[a, b]| a.iter().copied().zip(b.iter().copied())));
        check(
            "neighbours",
            &mut flips.iter().flat_map(|row| row.as_chunks::<2>().0.iter().map(|p| (p[0], p[1]))),
        );
        check(
            "groups",
            &mut flips.iter().flat_map(|row| {
                row.as_chunks::<128>().0.iter().flat_map(|two| (0..64).map(|i| (two[i], two[64 + i])))
            }),
        );
    }
}

/// With as many batches as units, a cycle *is* the permutation.
#[test]
fn permutations_are_uniform() {
    let mut counts: HashMap<Vec<u64>, f64> = HashMap::new();
    for seed in 0..24_000 {
        let sampler = sampler(Sampling::Cyclic { dataset_size: 4, num_batches: 4 }, 4, seed);
        *counts.entry(sampler.export(0..4).unwrap().1).or_default() += 1.0;
    }
    assert_eq!(counts.len(), 24);
    let observed: Vec<f64> = counts.into_values().collect();
    check_chi_squared("permutations of 4", goodness(&observed, &[1.0 / 24.0; 24]), 23.0);
}

/// A unit of a long permutation is equally likely in every block.
#[test]
fn blocks_are_uniform() {
    let mut counts = vec![[0.0; 5]; 60];
    for seed in 0..2000 {
        let sampler = sampler(Sampling::Cyclic { dataset_size: 60, num_batches: 5 }, 5, seed);
        for step in 0..5 {
            let batch = sampler.batch(step).unwrap();
            batch.indices().iter().for_each(|unit| counts[*unit as usize][step as usize] += 1.0);
        }
    }
    // Blocks have a fixed size, so the columns are bound as the rows are: (60 − 1)·(5 − 1) degrees, and a factor 59/60.
    let statistic: f64 = counts.iter().map(|row| goodness(row, &[0.2; 5])).sum();
    check_chi_squared("blocks", statistic * 59.0 / 60.0, 59.0 * 4.0);
}

/// Three units in three bins have 27 equally likely outcomes.
#[test]
fn bins_are_uniform_and_independent() {
    let mut counts = vec![0.0; 27];
    for seed in 0..13_500 {
        let sampler = sampler(Sampling::BallsInBins { dataset_size: 3, num_bins: 3 }, 3, seed);
        let mut outcome = 0;
        for bin in 0..3 {
            let batch = sampler.batch(bin).unwrap();
            batch.indices().iter().for_each(|unit| outcome += bin as usize * 3_usize.pow(*unit as u32));
        }
        counts[outcome] += 1.0;
    }
    check_chi_squared("bins", goodness(&counts, &[1.0 / 27.0; 27]), 26.0);
    let sampler = sampler(Sampling::BallsInBins { dataset_size: 100_000, num_bins: 97 }, 97, 5);
    let sizes: Vec<f64> = (0..97).map(|step| sampler.batch(step).unwrap().len() as f64).collect();
    check_chi_squared("sizes of bins", goodness(&sizes, &[1.0 / 97.0; 97]), 96.0);
}
