//! Statistical tests that batches are as random as the plan says. Keys are fixed, so every test gives one answer; a right
//! sampler exceeds each limit with probability 1e-6 on either side.
//!
//! `CORRNOISE_SAMPLER_DRAWS` is the number of draws (of a unit at a step, or in an epoch) that each test makes at least; with 10,000,000 they
//! take some ten minutes.

use corrnoise::{Form, Key, Plan, Sampler, Sampling};
use std::collections::HashMap;

/// The point that a standard normal exceeds with probability 1e-6.
const Z: f64 = 4.753_424;

/// The repetitions of so many draws each that a test makes: `usual` ones, or as many as were asked for.
fn repetitions(usual: u64, draws_each: u64) -> u64 {
    let asked =
        std::env::var("CORRNOISE_SAMPLER_DRAWS").map_or(0, |text| text.parse().expect("a number of draws"));
    usual.max(u64::div_ceil(asked, draws_each))
}

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
        let steps = repetitions(steps, size);
        check_flips(&sampler(sampling, steps, 1), prob, 1, &format!("Poisson {prob:.4}"));
    }
}

#[test]
fn block_poisson_joins_with_its_probability() {
    for (prob, steps) in [(0.25, 3500), (0.02, 14_000)] {
        let sampling = Sampling::BlockPoisson { dataset_size: 700, num_blocks: 7, sampling_prob: prob };
        let steps = repetitions(steps, 100).next_multiple_of(7);
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
        let steps = repetitions(2000, SIZE as u64).next_multiple_of(2);
        let sampler = sampler(sampling, steps, 4);
        let flips: Vec<Vec<bool>> = (0..steps)
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
    for seed in 0..repetitions(24_000, 4) {
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
    for seed in 0..repetitions(2000, 60) {
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
    for seed in 0..repetitions(13_500, 3) {
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

/// The steps of every unit, in order.
fn steps_of_units(sampler: &Sampler) -> Vec<Vec<u64>> {
    let mut steps = vec![Vec::new(); sampler.sampling().dataset_size().unwrap() as usize];
    for step in 0..sampler.num_steps() {
        let batch = sampler.batch(step).unwrap();
        batch.indices().iter().for_each(|unit| steps[*unit as usize].push(step));
    }
    steps
}

/// Every two units' sequences of symbols, of which each is as likely as the others: they agree as often as by chance, and none are tied.
///
/// Whether two units agree tells nothing of whether another pair does, also one with a unit in common, so that variances add up.
fn check_pairs(what: &str, sequences: &[Vec<u64>], symbols: f64) {
    let len = sequences.iter().map(Vec::len).min().unwrap();
    let (prob, trials) = (1.0 / symbols, len as f64);
    let variance = trials * prob * (1.0 - prob);
    let (mut sum, mut pairs, mut largest) = (0.0, 0.0, 0.0_f64);
    for (i, one) in sequences.iter().enumerate() {
        for other in &sequences[..i] {
            let same = one[..len].iter().zip(&other[..len]).filter(|(a, b)| a == b).count() as f64;
            let z = (same - trials * prob) / variance.sqrt();
            (sum, pairs, largest) = (sum + z * z, pairs + 1.0, largest.max(z.abs()));
        }
    }
    let excess = (1.0 - 6.0 * prob * (1.0 - prob)) / variance;
    check_dispersion(&format!("{what}, pairs of units"), sum, pairs, excess);
    println!("{what}: of {pairs} pairs the farthest is {largest:.1} standard deviations from chance");
    // 5,000 pairs exceed this together with probability 1e-8, and a tied pair by far.
    assert!(largest < 7.0 && trials.sqrt() > 20.0, "{what}: {largest}");
}

/// A unit's bin is uniform, and tells nothing of its bin in the next epoch or of another unit's.
#[test]
fn allocations_are_uniform_and_independent() {
    const BINS: usize = 8;
    let epochs = repetitions(2000, 100).next_multiple_of(2);
    let sampling = Sampling::RandomAllocation { dataset_size: 100, num_bins: BINS as u64 };
    let steps = steps_of_units(&sampler(sampling, epochs * BINS as u64, 6));
    let bins: Vec<Vec<u64>> =
        steps.into_iter().map(|steps| steps.into_iter().map(|step| step % BINS as u64).collect()).collect();
    assert!(bins.iter().all(|bins| bins.len() as u64 == epochs), "once in every epoch");
    let mut uniform = 0.0;
    let mut joint = vec![0.0; BINS * BINS];
    for bins in &bins {
        let mut counts = [0.0; BINS];
        bins.iter().for_each(|bin| counts[*bin as usize] += 1.0);
        uniform += goodness(&counts, &[1.0 / BINS as f64; BINS]);
        bins.as_chunks::<2>().0.iter().for_each(|[a, b]| joint[*a as usize * BINS + *b as usize] += 1.0);
    }
    check_chi_squared("bins of units", uniform, 100.0 * (BINS - 1) as f64);
    let cells = [1.0 / (BINS * BINS) as f64; BINS * BINS];
    check_chi_squared("bins of neighbouring epochs", goodness(&joint, &cells), (BINS * BINS - 1) as f64);
    check_pairs("allocations", &bins, BINS as f64);
}

/// The probabilities of a geometric number 0, 1, … of failures, the last of which stands for all that are not less.
fn geometric(prob: f64, cells: usize) -> Vec<f64> {
    let mut probabilities: Vec<f64> = (0..cells).map(|k| prob * (1.0 - prob).powi(k as i32)).collect();
    probabilities[cells - 1] /= prob;
    probabilities
}

/// Gaps are the separation and a geometric number more, first steps and sizes those of a run that has been going on for ever.
#[test]
fn spaced_units_come_by_their_law() {
    for (min_sep, prob, cells) in
        [(1_u64, 0.3, 12_usize), (5, 0.25, 16), (40, 0.05, 60), (70, 0.5, 8), (3, 0.004, 500)]
    {
        let what = format!("spaced by {min_sep}, p = {prob}");
        let units = repetitions(4000, 600);
        let sampling = Sampling::SpacedPoisson { dataset_size: units, min_sep, sampling_prob: prob };
        let sampler = sampler(sampling, 600, 7);
        let steps = steps_of_units(&sampler);
        let rate = prob / (1.0 + prob * (min_sep - 1) as f64);
        assert!((sampler.expected_batch_size() / (rate * units as f64) - 1.0).abs() < 1e-12);
        // A participation counts if the run is long enough after it for any gap that has a cell of its own.
        let last = 600_u64.checked_sub(min_sep + cells as u64).unwrap();
        let (mut gaps, mut pairs) = (vec![0.0; cells], [0.0; 4]);
        for steps in &steps {
            assert!(steps.windows(2).all(|pair| pair[1] - pair[0] >= min_sep));
            let gap = |i: usize| steps.get(i + 1).map_or(600, |next| next - steps[i] - min_sep);
            for i in (0..steps.len()).filter(|i| steps[*i] < last) {
                gaps[(gap(i) as usize).min(cells - 1)] += 1.0;
            }
            // One of the two shortest gaps, and whether the gap after it is the shortest: both are seen wherever they begin early enough.
            for i in (0..steps.len()).step_by(2).filter(|i| steps[*i] + min_sep + 1 < last && gap(*i) < 2) {
                pairs[2 * gap(i) as usize + usize::from(gap(i + 1) == 0)] += 1.0;
            }
        }
        check_chi_squared(
            &format!("{what}, gaps"),
            goodness(&gaps, &geometric(prob, cells)),
            cells as f64 - 1.0,
        );
        let pair =
            [1.0 - prob, prob, (1.0 - prob).powi(2), prob * (1.0 - prob)].map(|cell| cell / (2.0 - prob));
        if prob > 0.01 {
            check_chi_squared(&format!("{what}, pairs of gaps"), goodness(&pairs, &pair), 3.0);
        }
        // The chance to begin at step t is that of being at step t the first time, which a gap of more than t steps before it leaves.
        let starts = min_sep as usize + 20;
        let longer = |t: usize| (1.0 - prob).powi((t as i32 - min_sep as i32 + 1).max(0));
        let mut law: Vec<f64> = (0..starts).map(|t| rate * longer(t)).collect();
        law.push(1.0 - law.iter().sum::<f64>());
        let mut firsts = vec![0.0; starts + 1];
        steps.iter().for_each(|steps| {
            firsts[steps.first().map_or(starts, |step| (*step as usize).min(starts))] += 1.0
        });
        check_chi_squared(&format!("{what}, first steps"), goodness(&firsts, &law), starts as f64);
        let mut sizes = vec![0.0; 600];
        steps.iter().flatten().for_each(|step| sizes[*step as usize] += 1.0);
        let mean = rate * units as f64;
        let farthest =
            sizes.iter().map(|size| (size - mean).abs() / (mean * (1.0 - rate)).sqrt()).fold(0.0, f64::max);
        println!("{what}: the farthest of 600 sizes is {farthest:.1} standard deviations from the mean");
        assert!(farthest < 6.5, "{what}: {farthest}");
    }
}

/// Whether a gap is the shortest is a fair coin at p = 1/2, and so is every unit's sequence of them.
#[test]
fn spaced_units_are_independent() {
    let steps = repetitions(4000, 100) + 4000;
    let sampling = Sampling::SpacedPoisson { dataset_size: 100, min_sep: 2, sampling_prob: 0.5 };
    let gaps: Vec<Vec<u64>> = steps_of_units(&sampler(sampling, steps, 8))
        .iter()
        .map(|steps| steps.windows(2).map(|pair| u64::from(pair[1] - pair[0] == 2)).collect())
        .collect();
    check_pairs("spaced", &gaps, 2.0);
    // In time, too: as often as by chance both units come at one step, each of which has a rate of one in three.
    let sampler = sampler(sampling, steps, 8);
    let mut together = vec![0.0_f64; 50];
    for step in 0..steps {
        let batch = sampler.batch(step).unwrap();
        let pairs = batch.indices().windows(2).filter(|pair| pair[0] % 2 == 0 && pair[1] == pair[0] + 1);
        pairs.for_each(|pair| together[pair[0] as usize / 2] += 1.0);
    }
    let share = together.iter().sum::<f64>() / (50.0 * steps as f64);
    assert!((share - 1.0 / 9.0).abs() < 0.005, "{share}");
    assert!(together.iter().all(|count| (count / steps as f64 - 1.0 / 9.0).abs() < 0.05), "{together:?}");
}

/// All batches are full here, so each is a uniform subset of its size.
#[test]
fn truncated_batches_are_uniform() {
    const SIZE: u64 = 500;
    const KEPT: f64 = 150.0;
    let sampling = Sampling::TruncatedPoisson {
        dataset_size: SIZE,
        num_blocks: 1,
        sampling_prob: 0.5,
        max_batch_size: KEPT as u64,
    };
    let steps = repetitions(4000, SIZE);
    let sampler = sampler(sampling, steps, 9);
    let units = SIZE as f64;
    let (mut counts, mut pairs) = (vec![0.0_f64; SIZE as usize], [[0.0; 4]; 3]);
    for step in 0..steps {
        let mut joined = vec![false; SIZE as usize];
        let batch = sampler.batch(step).unwrap();
        assert_eq!(batch.len() as f64, KEPT);
        batch.indices().iter().for_each(|unit| joined[*unit as usize] = true);
        counts.iter_mut().zip(&joined).for_each(|(count, joined)| *count += f64::from(u8::from(*joined)));
        for (cells, (a, b)) in pairs.iter_mut().zip([(0, 1), (63, 64), (2, 499)]) {
            cells[2 * usize::from(joined[a]) + usize::from(joined[b])] += 1.0;
        }
    }
    let rate = KEPT / units;
    let variance = steps as f64 * rate * (1.0 - rate);
    let statistic: f64 = counts.iter().map(|count| (count - steps as f64 * rate).powi(2) / variance).sum();
    // Sizes are fixed, so the counts are bound together: a degree less, as for blocks.
    check_chi_squared("truncated, units", statistic * (units - 1.0) / units, units - 1.0);
    let both = rate * (KEPT - 1.0) / (units - 1.0);
    let cells = [1.0 - 2.0 * rate + both, rate - both, rate - both, both];
    pairs.iter().for_each(|pairs| check_chi_squared("truncated, two units", goodness(pairs, &cells), 3.0));
}
