//! Claims against attacks: the optimal test on the engine's own output finds as much as the claim allows, and no more.
//!
//! Every coordinate of the model is an independent run of the mechanism on scalar gradients, so a million coordinates are a million runs.
//! Two adjacent sequences of gradients: all zero, and one unit's contributions of norm `clip_norm` in the steps it takes part in. By
//! Neyman and Pearson, thresholds of the likelihood ratio are the best tests; at the threshold e^ε, `δ = P₁ − e^ε P₀`.

use corrnoise::planner::account::{Budget, Subsampled, delta_of_epsilon, epsilon_of_delta};
use corrnoise::planner::optimize::{Objective, Problem, blt, unobserved};
use corrnoise::planner::{
    Adjacency, Blt, Factorization, Goal, Method, Participation, PrivacyUnit, Schedule, Strategy, Terms,
    Workload, calibrate, verify,
};
use corrnoise::{Key, Mechanism, Plan, Sampler, Sampling, Shard};

const RUNS: usize = 4_000_000;
const CLIP_NORM: f64 = 0.5;

/// Noisy gradients of all runs, step by step, for contributions chosen by `contribution(step, run)`.
fn release(plan: &Plan, key: u8, contribution: impl Fn(usize, usize) -> bool) -> Vec<Vec<f32>> {
    let key = Key::from_bytes([key; 32], "audit");
    let mut noise = Mechanism::cpu(plan, key, Shard::whole(RUNS as u64).unwrap()).unwrap();
    (0..plan.num_steps() as usize)
        .map(|step| {
            let mut gradient: Vec<f32> =
                (0..RUNS).map(|run| if contribution(step, run) { CLIP_NORM as f32 } else { 0.0 }).collect();
            // Every coordinate is a run with batches of its own.
            noise.unchecked_batch().unwrap().add_to(&mut gradient).unwrap();
            gradient
        })
        .collect()
}

/// The projection `Σ_t direction[t]·y_t / stddev` of every run.
fn project(released: &[Vec<f32>], direction: &[f64], stddev: f64) -> Vec<f64> {
    let mut sums = vec![0.0; RUNS];
    for (row, weight) in released.iter().zip(direction) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += weight / stddev * f64::from(*value));
    }
    sums
}

/// The ε of the test "log likelihood ratio above `threshold`" at δ: its estimate, and bounds 5 standard errors below and above.
fn audited_epsilon(with: &[f64], without: &[f64], threshold: f64, delta: f64) -> (f64, f64, f64) {
    let count = |ratios: &[f64]| ratios.iter().filter(|ratio| **ratio > threshold).count() as f64;
    let (hit, false_alarm) = (count(with), count(without));
    let n = RUNS as f64;
    let epsilon = |hit: f64, false_alarm: f64| ((hit / n - delta) / (false_alarm / n)).ln();
    let (up, down) = (|count: f64| count + 5.0 * count.sqrt(), |count: f64| count - 5.0 * count.sqrt());
    (epsilon(hit, false_alarm), epsilon(down(hit), up(false_alarm)), epsilon(up(hit), down(false_alarm)))
}

fn terms(schedule: Schedule) -> Terms {
    Terms { schedule, adjacency: Adjacency::ZeroOut, unit: PrivacyUnit::Example, clip_norm: CLIP_NORM }
}

/// The product `CᵀC u` for the whitened likelihood ratio: `⟨C y, C g⟩ = ⟨y, CᵀC g⟩`.
fn gram_times(strategy: &Factorization, pattern: &[f64]) -> (Vec<f64>, f64) {
    let matrix = strategy.matrix().unwrap();
    let n = pattern.len();
    let image: Vec<f64> = (0..n).map(|t| (0..=t).map(|s| matrix.get(t, s) * pattern[s]).sum()).collect();
    let back = (0..n).map(|s| (s..n).map(|t| matrix.get(t, s) * image[t]).sum()).collect();
    (back, image.iter().map(|value| value * value).sum::<f64>().sqrt())
}

#[test]
fn a_correlated_run_leaks_what_it_claims() {
    let cyclic = Participation::Cyclic { separation: 4, max_participations: 3 };
    let problem = Problem {
        num_steps: 12,
        workload: Workload::Prefix,
        participation: cyclic.clone(),
        objective: Objective::Max,
    };
    let delta = 1e-3;
    let blt = blt::optimize(&problem, 2, &mut unobserved()).unwrap().factorization;
    let banded = Factorization::new(Strategy::banded_square_root(4).unwrap(), 12).unwrap();
    for (strategy, key) in [(blt, 1), (banded, 2)] {
        let goal = Goal::Budget(Budget { epsilon: 2.5, delta });
        let terms = terms(Schedule::Participation(cyclic.clone()));
        let plan = calibrate(&strategy, &terms, &Workload::Prefix, &goal).unwrap();
        let claim = verify(&plan).unwrap().claim;
        // The worst pattern takes part early and often.
        let pattern: Vec<f64> = (0..12).map(|t| f64::from(u8::from(t % 4 == 0))).collect();
        let (direction, norm) = gram_times(&strategy, &pattern);
        let mu = CLIP_NORM * norm / plan.stddev();
        assert!((mu / claim.gdp_mu - 1.0).abs() < 1e-6, "{mu} {}", claim.gdp_mu);
        let ratios = |key: u8, takes_part: bool| {
            let released = release(&plan, key, |step, _| takes_part && step % 4 == 0);
            let mut sums = project(&released, &direction, plan.stddev());
            sums.iter_mut().for_each(|sum| *sum = *sum * CLIP_NORM / plan.stddev() - 0.5 * mu * mu);
            sums
        };
        let (with, without) = (ratios(key, true), ratios(key + 10, false));
        let (epsilon, low, high) = audited_epsilon(&with, &without, claim.epsilon, delta);
        println!(
            "{}: claim {:.4}, audited {epsilon:.4} ({low:.4} to {high:.4})",
            strategy.describe(),
            claim.epsilon
        );
        assert!(low <= claim.epsilon, "the claim is refuted: {low} > {}", claim.epsilon);
        assert!(epsilon >= 0.9 * claim.epsilon, "the claim is loose: {epsilon} of {}", claim.epsilon);
        // The whole trade-off curve is compared, not only one point of it.
        for at in [0.0, 0.5, 1.0, 2.0, 3.0] {
            let share = |ratios: &[f64]| ratios.iter().filter(|r| **r > at).count() as f64 / RUNS as f64;
            let (hit, alarm) = (share(&with), share(&without));
            let error = 5.0 * ((hit + f64::exp(2.0 * at) * alarm) / RUNS as f64).sqrt();
            let (found, claimed) = (hit - at.exp() * alarm, delta_of_epsilon(claim.gdp_mu, at).unwrap());
            assert!(found <= claimed + error && found >= 0.9 * claimed - error, "{at}: {found} {claimed}");
        }
        // This check can fail: a claim of an eighth less would be refuted.
        let bold = epsilon_of_delta(0.88 * claim.gdp_mu, delta).unwrap();
        let (_, low, _) = audited_epsilon(&with, &without, bold, delta);
        assert!(low > bold, "{low} {bold}");
    }
}

#[test]
fn an_amplified_run_leaks_what_it_claims() {
    let (delta, sampling_prob) = (1e-3, 0.25);
    let strategy = Factorization::new(Strategy::banded_square_root(3).unwrap(), 12).unwrap();
    let sampling = Sampling::BlockPoisson { dataset_size: 300, num_blocks: 3, sampling_prob };
    let goal = Goal::Budget(Budget { epsilon: 2.0, delta });
    let plan = calibrate(&strategy, &terms(Schedule::Sampling(sampling)), &Workload::Prefix, &goal).unwrap();
    let claim = verify(&plan).unwrap().claim;
    assert_eq!(claim.method, Method::Amplified);
    // A coin per run and round, from a generator that has nothing to do with the noise.
    let joins = |step: usize, run: usize| {
        let mut hash = (run as u64 ^ (step as u64) << 40).wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((hash ^ hash >> 31) as f64) < sampling_prob * 18_446_744_073_709_551_616.0
    };
    let log_ratios = |key: u8, takes_part: bool| {
        let released = release(&plan, key, |step, run| takes_part && step % 3 == 0 && joins(step, run));
        let mut sums = vec![0.0; RUNS];
        for round in 0..4 {
            // Rounds of one block touch disjoint rows, so their ratios multiply.
            let pattern: Vec<f64> = (0..12).map(|t| f64::from(u8::from(t == 3 * round))).collect();
            let (direction, norm) = gram_times(&strategy, &pattern);
            let mean = CLIP_NORM * norm / plan.stddev();
            let projected = project(&released, &direction, plan.stddev());
            for (sum, value) in sums.iter_mut().zip(projected) {
                let ratio = (value * CLIP_NORM / plan.stddev() - 0.5 * mean * mean).exp();
                *sum += (1.0 - sampling_prob + sampling_prob * ratio).ln();
            }
        }
        sums
    };
    let (with, without) = (log_ratios(21, true), log_ratios(22, false));
    let (epsilon, low, high) = audited_epsilon(&with, &without, claim.epsilon, delta);
    println!("amplified: claim {:.4}, audited {epsilon:.4} ({low:.4} to {high:.4})", claim.epsilon);
    assert!(low <= claim.epsilon, "the claim is refuted: {low} > {}", claim.epsilon);
    assert!(epsilon >= 0.9 * claim.epsilon, "the claim is loose: {epsilon} of {}", claim.epsilon);
    // This check can fail: a claim for an eighth more noise would be refuted.
    let sigma = claim.amplified.unwrap().noise_multiplier;
    let bold = Subsampled::new(1.12 * sigma, sampling_prob, 4).unwrap().epsilon(delta).unwrap();
    let (_, low, _) = audited_epsilon(&with, &without, bold, delta);
    assert!(low > bold, "{low} {bold}");
}

/// Random allocation with the batches of the plan's own sampler: every run is another unit of its dataset.
#[test]
fn a_redrawn_run_leaks_what_it_claims() {
    let (delta, bins, epochs) = (1e-3, 4, 3);
    let steps = bins * epochs;
    let strategy = Factorization::new(Strategy::Identity, steps).unwrap();
    let sampling = Sampling::RandomAllocation { dataset_size: RUNS as u64, num_bins: bins as u64 };
    let goal = Goal::Budget(Budget { epsilon: 2.0, delta });
    let plan = calibrate(&strategy, &terms(Schedule::Sampling(sampling)), &Workload::Prefix, &goal).unwrap();
    let claim = verify(&plan).unwrap().claim;
    assert_eq!(claim.method, Method::Redrawn);
    let sampler = Sampler::new(&plan, &Key::from_bytes([33; 32], "audit")).unwrap();
    let mut joins = vec![false; steps * RUNS];
    for step in 0..steps {
        for unit in sampler.batch(step as u64).unwrap().indices() {
            joins[step * RUNS + *unit as usize] = true;
        }
    }
    let mean = CLIP_NORM / plan.stddev();
    let log_ratios = |key: u8, takes_part: bool| {
        let released = release(&plan, key, |step, run| takes_part && joins[step * RUNS + run]);
        let mut sums = vec![0.0_f64; RUNS];
        for epoch in released.chunks(bins) {
            for (run, sum) in sums.iter_mut().enumerate() {
                let ratio =
                    |row: &Vec<f32>| (f64::from(row[run]) / plan.stddev() * mean - 0.5 * mean * mean).exp();
                *sum += (epoch.iter().map(ratio).sum::<f64>() / bins as f64).ln();
            }
        }
        sums
    };
    let (with, without) = (log_ratios(31, true), log_ratios(32, false));
    // With against without, and the other way round, where small ratios tell.
    let turned = |ratios: &[f64]| ratios.iter().map(|ratio| -ratio).collect::<Vec<f64>>();
    let (other, others) = (turned(&without), turned(&with));
    let directions = [(&with, &without), (&other, &others)];
    let [found, back] = directions.map(|(a, b)| audited_epsilon(a, b, claim.epsilon, delta));
    println!("redrawn: claim {:.4}, audited {found:.4?}, turned {back:.4?}", claim.epsilon);
    for (_, low, _) in [found, back] {
        assert!(low <= claim.epsilon, "the claim is refuted: {low} > {}", claim.epsilon);
    }
    assert!(found.0 >= 0.9 * claim.epsilon, "the claim is loose: {} of {}", found.0, claim.epsilon);
    // This check can fail: less than the claim would be refuted.
    let bold = 0.85 * claim.epsilon;
    let (_, low, _) = audited_epsilon(&with, &without, bold, delta);
    assert!(low > bold, "{low} {bold}");
}

/// Balls in bins, with the batches of the plan's own sampler: every coordinate is a unit of its dataset, and takes part when its bin does.
#[test]
fn a_run_by_balls_in_bins_leaks_what_it_claims() {
    const NUM_BINS: usize = 4;
    let delta = 1e-2;
    let blt = Strategy::Blt(Blt::new(&[0.3], &[0.8]).unwrap());
    let inverse = Strategy::BandedInverse(vec![1.0, -0.5, -0.125]);
    for (strategy, key) in [(blt, 41), (inverse, 42)] {
        let strategy = Factorization::new(strategy, 12).unwrap();
        let sampling = Sampling::BallsInBins { dataset_size: RUNS as u64, num_bins: NUM_BINS as u64 };
        let goal = Goal::Budget(Budget { epsilon: 1.0, delta });
        let terms = terms(Schedule::Sampling(sampling));
        let plan = calibrate(&strategy, &terms, &Workload::Prefix, &goal).unwrap();
        let claim = verify(&plan).unwrap().claim;
        assert_eq!((claim.method, claim.epsilon), (Method::Allocated, 1.0));
        let sampler = Sampler::new(&plan, &Key::from_bytes([key; 32], "bins")).unwrap();
        let mut bins = vec![usize::MAX; RUNS];
        for bin in 0..NUM_BINS {
            sampler.batch(bin as u64).unwrap().indices().iter().for_each(|unit| bins[*unit as usize] = bin);
        }
        assert!(bins.iter().all(|bin| *bin < NUM_BINS));
        let log_ratios = |key: u8, takes_part: bool| {
            let released = release(&plan, key, |step, run| takes_part && step % NUM_BINS == bins[run]);
            let mut sums = vec![0.0; RUNS];
            for bin in 0..NUM_BINS {
                let pattern: Vec<f64> = (0..12).map(|t| f64::from(u8::from(t % NUM_BINS == bin))).collect();
                let (direction, norm) = gram_times(&strategy, &pattern);
                let mean = CLIP_NORM * norm / plan.stddev();
                for (sum, value) in sums.iter_mut().zip(project(&released, &direction, plan.stddev())) {
                    let exponent = value * CLIP_NORM / plan.stddev() - 0.5 * mean * mean;
                    *sum += exponent.exp() / NUM_BINS as f64;
                }
            }
            sums.iter_mut().for_each(|sum| *sum = sum.ln());
            sums
        };
        let (with, without) = (log_ratios(key, true), log_ratios(key + 10, false));
        // A unit that leaves is told by small ratios.
        let turned = |ratios: &[f64]| -> Vec<f64> { ratios.iter().map(|ratio| -ratio).collect() };
        let (added, removed) = ((&with, &without), (&turned(&without), &turned(&with)));
        let mut largest = 0.0_f64;
        for (name, (hits, alarms)) in [("added", added), ("removed", removed)] {
            let (epsilon, low, high) = audited_epsilon(hits, alarms, claim.epsilon, delta);
            println!(
                "{}, {name}: claim {:.4}, audited {epsilon:.4} ({low:.4} to {high:.4})",
                strategy.describe(),
                claim.epsilon
            );
            assert!(low <= claim.epsilon, "the claim is refuted: {low} > {}", claim.epsilon);
            largest = largest.max(epsilon);
        }
        assert!(largest >= 0.9 * claim.epsilon, "the claim is loose: {largest} of {}", claim.epsilon);
        // This check can fail: a smaller claim would be refuted.
        let bold = 0.85 * claim.epsilon;
        let (_, low, _) = audited_epsilon(&with, &without, bold, delta);
        assert!(low > bold, "{low} {bold}");
    }
}
