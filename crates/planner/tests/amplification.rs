//! Random allocation and truncated batches against brute force, and the table of docs/amplification.md that compares allocation with Poisson
//! sampling. `CORRNOISE_AMPLIFICATION=all` checks every row, prints the table anew and draws more samples.

use corrnoise_core::Sampling;
use corrnoise_planner::account::{Redrawn, Subsampled};
use corrnoise_planner::{
    Adjacency, Factorization, Goal, Method, PrivacyUnit, Schedule, Strategy, Terms, Workload, calibrate,
    verify,
};

fn all() -> bool {
    std::env::var_os("CORRNOISE_AMPLIFICATION").is_some()
}

/// Numbers in [0, 1) by SplitMix64.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Two independent standard normals, by Box and Muller.
    fn normals(&mut self) -> [f64; 2] {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * self.unit()).sin_cos();
        [radius * cos, radius * sin]
    }
}

fn upper(x: f64) -> f64 {
    0.5 * libm::erfc(x * std::f64::consts::FRAC_1_SQRT_2)
}

fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt()
}

/// `E(Y − strike)₊` of a lognormal of mean 1, and `E(strike − Y)₊`.
fn options(strike: f64, deviation: f64) -> (f64, f64) {
    if strike <= 0.0 {
        return (1.0 - strike, 0.0);
    }
    let d = -strike.ln() / deviation;
    let (near, far) = (d + 0.5 * deviation, d - 0.5 * deviation);
    (upper(-near) - strike * upper(-far), strike * upper(far) - upper(near))
}

/// Lognormals of mean 1 at equal steps of a normal, and the probabilities that belong to them.
fn nodes(deviation: f64, step: f64) -> Vec<(f64, f64)> {
    let count = ((18.0 + deviation) / step).ceil() as usize;
    let at = (0..count).map(|i| -9.0 + i as f64 * step);
    at.map(|z| ((deviation * z - 0.5 * deviation * deviation).exp(), step * density(z))).collect()
}

/// `E(W − x)₊` and `E(y − W)₊` of the mean W of two or three lognormals, by the trapezoidal rule over all but one, which has a closed form.
fn prices(bins: usize, deviation: f64, [x, y]: [f64; 2]) -> [f64; 2] {
    let nodes = nodes(deviation, 0.02);
    let n = bins as f64;
    let mut sums = [0.0; 2];
    let mut add = |known: f64, weight: f64| {
        sums[0] += weight * options(n * x - known, deviation).0 / n;
        sums[1] += weight * options(n * y - known, deviation).1 / n;
    };
    for (i, (first, weight)) in nodes.iter().enumerate() {
        if bins == 2 {
            add(*first, *weight);
            continue;
        }
        for (j, (second, other)) in nodes.iter().enumerate().skip(i) {
            add(first + second, weight * other * if j > i { 2.0 } else { 1.0 });
        }
    }
    sums
}

/// Both hockey sticks of one or two epochs of redrawn allocation.
fn quadrature(bins: usize, epochs: usize, sigma: f64, epsilon: f64) -> [f64; 2] {
    let (deviation, bound) = (1.0 / sigma, epsilon.exp());
    let after = |before: f64| {
        let [add, rem] = prices(bins, deviation, [bound / before, 1.0 / (bound * before)]);
        [before * add, bound * before * rem]
    };
    if epochs == 1 {
        return after(1.0);
    }
    // What is left after one epoch is smooth, and needs no more than a few points.
    let nodes = nodes(deviation, 0.25);
    let mut sums = [0.0; 2];
    for (i, (first, weight)) in nodes.iter().enumerate() {
        for (j, (second, other)) in nodes.iter().enumerate().skip(i) {
            let weight = weight * other * if j > i { 2.0 } else { 1.0 };
            let found = after(0.5 * (first + second));
            sums.iter_mut().zip(found).for_each(|(sum, found)| *sum += weight * found);
        }
    }
    sums
}

#[test]
fn allocation_is_never_below_quadrature() {
    let mut random = Random(3);
    for case in 0..if all() { 200 } else { 24 } {
        let (bins, epochs) = [(2, 1), (3, 1), (2, 2)][case % 3];
        let (sigma, epsilon) = (random.between(0.45, 2.5), random.between(0.02, 2.5));
        let truth = quadrature(bins, epochs, sigma, epsilon).into_iter().fold(0.0, f64::max);
        let found = Redrawn::new(sigma, bins as u64, epochs as u64).unwrap().delta(epsilon).unwrap();
        let what = format!("{bins} {epochs} {sigma} {epsilon}: {found:e} {truth:e}");
        assert!(found >= truth * (1.0 - 1e-5) - 1e-15, "{what}");
        assert!(found <= truth * 1.004 + 1e-13, "{what}");
    }
}

#[test]
fn allocation_is_never_below_samples() {
    let mut random = Random(5);
    let (cases, samples) = if all() { (60, 4_000_000) } else { (6, 60_000) };
    for case in 0..cases {
        let bins = [4, 8, 5, 16, 12, 7][case % 6];
        let epochs = 1 + case % 4;
        let (sigma, epsilon) = (random.between(0.5, 1.5), random.between(0.2, 1.5));
        let found = Redrawn::new(sigma, bins, epochs as u64).unwrap().delta(epsilon).unwrap();
        let (mut sums, mut squares) = ([0.0; 2], [0.0; 2]);
        let mut spare = Vec::new();
        for _ in 0..samples {
            let mut ratio = 1.0;
            for _ in 0..epochs {
                let mut sum = 0.0;
                for _ in 0..bins {
                    if spare.is_empty() {
                        spare.extend(random.normals());
                    }
                    sum += (spare.pop().unwrap() / sigma - 0.5 / (sigma * sigma)).exp();
                }
                ratio *= sum / bins as f64;
            }
            for (i, lost) in [ratio - epsilon.exp(), 1.0 - epsilon.exp() * ratio].into_iter().enumerate() {
                sums[i] += lost.max(0.0);
                squares[i] += lost.max(0.0).powi(2);
            }
        }
        let n = f64::from(samples);
        let (mean, error) = (0..2)
            .map(|i| (sums[i] / n, ((squares[i] / n - (sums[i] / n).powi(2)) / n).sqrt()))
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .unwrap();
        let what = format!("{bins} {epochs} {sigma} {epsilon}: {found:e}, {mean:e} ± {error:e}");
        assert!(mean - 4.5 * error <= found && found <= 1.002 * mean + 4.5 * error, "{what}");
    }
}

/// Probabilities of everything that one truncated step shows of the others, and in each case that this unit is in the batch. The others
/// contribute so much, and so differently, that everybody sees which of them are in it.
fn revealed(units: usize, prob: f64, limit: usize) -> Vec<(f64, f64)> {
    let mut cases = std::collections::BTreeMap::<usize, (f64, f64)>::new();
    for drawn in 0..1_usize << units {
        let count = drawn.count_ones() as usize;
        let weight = prob.powi(count as i32) * (1.0 - prob).powi((units - count) as i32);
        let kept: Vec<usize> = (0..1 << units)
            .filter(|kept| kept & !drawn == 0 && kept.count_ones() as usize == count.min(limit))
            .collect();
        for set in &kept {
            let case = cases.entry(set >> 1).or_default();
            let share = weight / kept.len() as f64;
            case.0 += share;
            case.1 += if set & 1 == 1 { share } else { 0.0 };
        }
    }
    cases.into_values().map(|(all, with)| (all, with / all)).collect()
}

fn binomial(trials: usize, count: usize, prob: f64) -> f64 {
    let sets: f64 = (0..count).map(|i| (trials - i) as f64 / (i + 1) as f64).product();
    sets * prob.powi(count as i32) * (1.0 - prob).powi((trials - count) as i32)
}

/// Both hockey sticks of one or two truncated steps of noise of deviation σ, by sums over a grid.
fn truncated(cases: &[(f64, f64)], steps: usize, sigma: f64, epsilon: f64) -> [f64; 2] {
    let (step, reach) = (sigma / 14.0, 7.0 * sigma);
    let outputs: Vec<f64> =
        (0..((1.0 + 2.0 * reach) / step) as usize).map(|i| -reach + (i as f64 + 0.5) * step).collect();
    let weight = |y: f64| density(y / sigma) / sigma * step;
    // Mass without the unit, and the ratio with it.
    let one: Vec<(f64, f64)> = cases
        .iter()
        .flat_map(|(all, with)| {
            outputs.iter().map(move |y| {
                let ratio = ((y - 0.5) / (sigma * sigma)).exp();
                (all * weight(*y), 1.0 - with + with * ratio)
            })
        })
        .filter(|(mass, ratio)| mass * ratio.max(1.0) > 1e-9)
        .collect();
    let lost = |mass: f64, ratio: f64| {
        [mass * (ratio - epsilon.exp()).max(0.0), mass * (1.0 - epsilon.exp() * ratio).max(0.0)]
    };
    let mut sums = [0.0; 2];
    for (mass, ratio) in &one {
        match steps {
            1 => sums.iter_mut().zip(lost(*mass, *ratio)).for_each(|(sum, lost)| *sum += lost),
            _ => {
                for (other, times) in &one {
                    let lost = lost(mass * other, ratio * times);
                    sums.iter_mut().zip(lost).for_each(|(sum, lost)| *sum += lost);
                }
            }
        }
    }
    sums
}

/// A claim for truncated batches holds where everybody sees which others were kept; that of Poisson sampling without truncation does not always.
#[test]
fn truncated_claims_hold_by_brute_force() {
    let mut random = Random(11);
    let (mut amplified, mut refuted) = (0, 0);
    for case in 0..if all() { 300 } else { 60 } {
        let units = 2 + case % 4;
        let limit = 1 + (random.unit() * (units - 1) as f64) as usize;
        let steps = 1 + case % 2;
        let (prob, sigma) = (random.between(0.02, 0.5), random.between(0.15, 1.0));
        // A few times the charge, which is the chance to be drawn beside a full batch.
        let full: f64 = (limit..units).map(|count| binomial(units - 1, count, prob)).sum();
        let delta = (random.between(1.05, 3.0) * steps as f64 * prob * full).min(0.5);
        let terms = Terms {
            schedule: Schedule::Sampling(Sampling::TruncatedPoisson {
                dataset_size: units as u64,
                num_blocks: 1,
                sampling_prob: prob,
                max_batch_size: limit as u64,
            }),
            adjacency: Adjacency::ZeroOut,
            unit: PrivacyUnit::Example,
            clip_norm: 1.0,
        };
        let goal = Goal::NoiseMultiplier { noise_multiplier: sigma, delta };
        let plain = Factorization::new(Strategy::Identity, steps).unwrap();
        let plan = calibrate(&plain, &terms, &Workload::Prefix, &goal).unwrap();
        let claim = verify(&plan).unwrap().claim;
        amplified += usize::from(claim.method == Method::Amplified);
        let seen = revealed(units, prob, limit);
        let lost = |epsilon: f64| truncated(&seen, steps, sigma, epsilon).into_iter().fold(0.0, f64::max);
        let truth = lost(claim.epsilon);
        assert!(truth <= delta * (1.0 + 1e-3), "case {case}: {truth} above {delta}, {claim:?}");
        let bold = Subsampled::new(sigma, prob, steps as u64).unwrap().epsilon(delta).unwrap();
        refuted += usize::from(lost(bold) > delta * (1.0 + 1e-2));
    }
    println!("{amplified} amplified claims; {refuted} would be false without the charge");
    assert!(amplified > 20 && refuted > 1, "{amplified} {refuted}");
}

/// The rows of the table that docs/amplification.md has under this heading.
const HEADING: &str =
    "| σ | steps per epoch | epochs | δ | ε, random allocation | ε, Poisson sampling | ratio |";

#[test]
fn allocation_and_poisson_sampling_are_as_the_page_says() {
    let page = include_str!("../../../docs/amplification.md");
    let rows = page.lines().skip_while(|line| line.trim() != HEADING).skip(2);
    let rows: Vec<Vec<f64>> = rows
        .take_while(|line| line.trim_start().starts_with('|'))
        .map(|line| {
            line.trim().trim_matches('|').split('|').map(|word| word.trim().parse().unwrap()).collect()
        })
        .collect();
    assert!(rows.len() >= 20, "{} rows", rows.len());
    let larger: Vec<_> = rows.iter().filter(|row| row[6] > 1.0).collect();
    assert!(larger.len() == 1, "the page says where Poisson sampling is better: {larger:?}");
    println!("{HEADING}\n|---|---|---|---|---|---|---|");
    for row in
        rows.iter().skip(2).step_by(if all() { 1 } else { 6 }).chain(rows[..2].iter().filter(|_| all()))
    {
        let [sigma, bins, epochs, delta, stated, poisson, ratio] = row[..] else { panic!("{row:?}") };
        let (b, k) = (bins as u64, epochs as u64);
        let found = Redrawn::new(sigma, b, k).unwrap().epsilon(delta).unwrap();
        let sampled = Subsampled::new(sigma, 1.0 / bins, b * k).unwrap().epsilon(delta).unwrap();
        println!("| {sigma} | {b} | {k} | {delta:e} | {found:.4} | {sampled:.4} | {:.3} |", found / sampled);
        let close = |stated: f64, found: f64| (stated / found - 1.0).abs() < 2e-3;
        assert!(
            close(stated, found) && close(poisson, sampled) && close(ratio, found / sampled),
            "{row:?}: {found} {sampled}"
        );
    }
}
