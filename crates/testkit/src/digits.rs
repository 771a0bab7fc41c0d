//! Private softmax regression on the UCI handwritten digits, which `examples/digits.rs` measures and `tests/digits.rs` asserts.
//!
//! Two runs that are compared differ in their noise alone: split, model, clipping, batches per epoch and epochs are the same.

use corrnoise::planner::account::Budget;
use corrnoise::planner::optimize::{Objective, Problem, blt, toeplitz, unobserved};
use corrnoise::planner::{
    Adjacency, Factorization, Goal, PrivacyUnit, Schedule, Strategy, Terms, Workload, calibrate, verify,
};
use corrnoise::{CpuOptions, Key, Mechanism, Plan, Sampler, Sampling, Shard};
use std::sync::Mutex;

/// A result with any error, for programs that only print it.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const PIXELS: usize = 64;
/// The number of features: the pixels and a constant.
const FEATURES: usize = PIXELS + 1;
const CLASSES: usize = 10;
/// The number of parameters of the model, which is laid out as `[feature][class]`.
pub const DIM: usize = FEATURES * CLASSES;

/// An image with its label.
pub struct Example {
    features: [f32; FEATURES],
    label: usize,
}

/// The dataset, with a fixed split.
pub struct Digits {
    /// The 1,437 images for training.
    pub train: Vec<Example>,
    /// The 360 images for testing.
    pub test: Vec<Example>,
}

impl Digits {
    /// Parses the text of `examples/data/digits.csv`.
    pub fn parse(text: &str) -> Outcome<Digits> {
        let mut examples = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let values =
                line.split(',').map(|value| value.trim().parse::<u8>()).collect::<Result<Vec<_>, _>>()?;
            match values.split_last() {
                Some((label, pixels)) if pixels.len() == PIXELS && usize::from(*label) < CLASSES => {
                    examples.push(Example { features: features(pixels), label: usize::from(*label) });
                }
                _ => return Err(format!("expected {PIXELS} pixels and a label, got {line:?}").into()),
            }
        }
        // Neighbours in the file were written by one person, and their labels repeat: a hash scatters both.
        let size = examples.len();
        let mut order: Vec<usize> = (0..size).collect();
        order.sort_by_key(|index| hash(*index as u64));
        let mut is_test = vec![false; size];
        order[..size.div_ceil(5)].iter().for_each(|index| is_test[*index] = true);
        let (mut train, mut test) = (Vec::new(), Vec::new());
        for (example, is_test) in examples.into_iter().zip(is_test) {
            if is_test { test.push(example) } else { train.push(example) }
        }
        Ok(Digits { train, test })
    }
}

/// The finaliser of SplitMix64, as a hash.
fn hash(index: u64) -> u64 {
    let mut x = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The features of an image: its pixels centred and scaled to norm 1, then a constant. They depend on no other image, so they
/// cost no privacy.
fn features(pixels: &[u8]) -> [f32; FEATURES] {
    let mean = pixels.iter().map(|pixel| f32::from(*pixel)).sum::<f32>() / PIXELS as f32;
    let norm = pixels.iter().map(|pixel| (f32::from(*pixel) - mean).powi(2)).sum::<f32>().sqrt();
    let mut features = [CONSTANT; FEATURES];
    for (feature, pixel) in features.iter_mut().zip(pixels) {
        *feature = (f32::from(*pixel) - mean) / norm.max(f32::MIN_POSITIVE);
    }
    features
}

/// The constant feature. It is small beside an image of norm 1, so that the bias takes little of the clip norm.
const CONSTANT: f32 = 0.25;

/// The training setup that all mechanisms share.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The number of batches per epoch.
    pub num_batches: usize,
    /// The number of epochs of training.
    pub num_epochs: usize,
    /// The norm that per-example gradients are clipped to.
    pub clip_norm: f64,
    /// The momentum β of `v ← βv + g`.
    pub momentum: f64,
    /// The number of last epochs, at least 1, whose models are averaged.
    pub averaged_epochs: usize,
}

/// The setup of the table in the documentation: 1,024 steps with batches of 45.
pub const SETUP: Setup =
    Setup { num_batches: 32, num_epochs: 32, clip_norm: 0.2, momentum: 0.9, averaged_epochs: 16 };

impl Setup {
    /// The number of steps of a run.
    pub fn num_steps(&self) -> usize {
        self.num_batches * self.num_epochs
    }

    fn sampling(&self, dataset_size: usize) -> Sampling {
        Sampling::Cyclic { dataset_size: dataset_size as u64, num_batches: self.num_batches as u64 }
    }

    fn workload(&self) -> Workload {
        Workload::Momentum { beta: self.momentum, weight_decay: 0.0 }
    }
}

const BUFFERS: usize = 4;
const INVERSE_BANDS: usize = 8;

/// The mechanisms that the experiment compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    /// Independent noise, as in DP-SGD.
    Independent,
    /// The best number of bands up to an epoch, optimised for the cyclic participation.
    Banded,
    /// A BLT of at most four buffers, optimised for the cyclic participation too.
    Blt,
    /// The best strategy with eight bands in `C⁻¹`: BISR's shape with optimised coefficients.
    BandedInverse,
}

impl Noise {
    /// All mechanisms that are compared.
    pub const ALL: [Noise; 4] = [Noise::Independent, Noise::Banded, Noise::Blt, Noise::BandedInverse];

    /// The mechanism's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Noise::Independent => "independent",
            Noise::Banded => "banded",
            Noise::Blt => "BLT",
            Noise::BandedInverse => "banded inverse",
        }
    }

    /// The optimised strategy for a setup.
    pub fn strategy(self, setup: &Setup, dataset_size: usize) -> Outcome<Factorization> {
        let num_steps = setup.num_steps();
        let participation = Schedule::Sampling(setup.sampling(dataset_size)).participation(num_steps)?;
        let problem =
            Problem { num_steps, workload: setup.workload(), participation, objective: Objective::Rms };
        Ok(match self {
            Noise::Independent => Factorization::new(Strategy::Identity, num_steps)?,
            Noise::Banded => {
                toeplitz::best_bands(&problem, setup.num_batches, &mut unobserved())?.1.factorization
            }
            Noise::Blt => blt::optimize(&problem, BUFFERS, &mut unobserved())?.factorization,
            Noise::BandedInverse => {
                toeplitz::banded_inverse(&problem, INVERSE_BANDS, &mut unobserved())?.factorization
            }
        })
    }

    /// A verified plan that spends the whole budget.
    pub fn plan(self, setup: &Setup, dataset_size: usize, budget: Budget) -> Outcome<Plan> {
        let terms = Terms {
            schedule: Schedule::Sampling(setup.sampling(dataset_size)),
            adjacency: Adjacency::ZeroOut,
            unit: PrivacyUnit::Example,
            clip_norm: setup.clip_norm,
        };
        let strategy = self.strategy(setup, dataset_size)?;
        let plan = calibrate(&strategy, &terms, &setup.workload(), &Goal::Budget(budget))?;
        let claim = verify(&plan)?.claim;
        if claim.epsilon > budget.epsilon || claim.delta > budget.delta {
            return Err(format!("{} claims {claim:?}, above {budget:?}", self.name()).into());
        }
        Ok(plan)
    }
}

/// The test error after one private run.
pub fn train(digits: &Digits, setup: &Setup, plan: &Plan, seed: u64, learning_rate: f64) -> Outcome<f64> {
    let (sampler, mut noise) = start(plan, seed)?;
    let rate = (learning_rate / sampler.expected_batch_size()) as f32;
    let mut weights = vec![0.0_f32; DIM];
    let mut velocity = vec![0.0_f32; DIM];
    // The sum serves as the average: labels do not depend on the model's scale.
    let mut average = vec![0.0_f32; DIM];
    let from = setup.num_epochs.saturating_sub(setup.averaged_epochs) * setup.num_batches;
    let mut gradient = vec![0.0_f32; DIM];
    let mut batch = sampler.batch(0)?;
    for step in 0..plan.num_steps() {
        sampler.fill(step, &mut batch)?;
        gradient.fill(0.0);
        for index in batch.indices() {
            add_clipped(&weights, &digits.train[*index as usize], setup.clip_norm as f32, &mut gradient);
        }
        noise.for_batch(&batch)?.add_to(&mut gradient)?;
        for ((weight, speed), slope) in weights.iter_mut().zip(&mut velocity).zip(&gradient) {
            *speed = setup.momentum as f32 * *speed + slope;
            *weight -= rate * *speed;
        }
        if step as usize >= from {
            average.iter_mut().zip(&weights).for_each(|(sum, weight)| *sum += weight);
        }
    }
    Ok(error(&average, &digits.test))
}

/// The root mean square, over the coordinates, of the noise in every prefix sum of one run.
pub fn prefix_noise(plan: &Plan, seed: u64) -> Outcome<Vec<f64>> {
    let (sampler, mut noise) = start(plan, seed)?;
    // Gradients of zeros that are never cleared: they accumulate the noise, so they hold its prefix sums.
    let mut sums = vec![0.0_f32; DIM];
    (0..plan.num_steps())
        .map(|step| {
            noise.for_batch(&sampler.batch(step)?)?.add_to(&mut sums)?;
            Ok((sums.iter().map(|sum| f64::from(*sum).powi(2)).sum::<f64>() / DIM as f64).sqrt())
        })
        .collect()
}

/// The batches and the noise of a run. The key is public, so that the table can be reproduced: a real run takes one from [`Key::from_os`].
fn start(plan: &Plan, seed: u64) -> Outcome<(Sampler, Mechanism)> {
    let key = Key::from_bytes(*b"published, for this example only", format!("digits {seed}"));
    let sampler = Sampler::new(plan, &key)?;
    // One thread is enough for 650 coordinates, and the runs share the cores.
    let options = CpuOptions { threads: 1, ..CpuOptions::default() };
    Ok((sampler, Mechanism::cpu_with(plan, key, Shard::whole(DIM as u64)?, options)?))
}

fn logits(weights: &[f32], features: &[f32; FEATURES]) -> [f32; CLASSES] {
    let mut logits = [0.0; CLASSES];
    for (row, feature) in weights.chunks_exact(CLASSES).zip(features) {
        logits.iter_mut().zip(row).for_each(|(logit, weight)| *logit += feature * weight);
    }
    logits
}

/// Adds one example's gradient of the cross-entropy, scaled down to the clip norm. The gradient is an outer product, (softmax −
/// label) ⊗ features, so its norm is the product of the two factors' norms.
fn add_clipped(weights: &[f32], example: &Example, clip_norm: f32, gradient: &mut [f32]) {
    let logits = logits(weights, &example.features);
    let largest = logits.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
    let mut residual = logits.map(|logit| (logit - largest).exp());
    let total: f32 = residual.iter().sum();
    residual.iter_mut().for_each(|value| *value /= total);
    residual[example.label] -= 1.0;
    let norm = length(&residual) * length(&example.features);
    let scale = if norm > clip_norm { clip_norm / norm } else { 1.0 };
    for (row, feature) in gradient.chunks_exact_mut(CLASSES).zip(&example.features) {
        row.iter_mut().zip(&residual).for_each(|(sum, value)| *sum += scale * feature * value);
    }
}

fn length(values: &[f32]) -> f32 {
    values.iter().map(|value| value * value).sum::<f32>().sqrt()
}

/// The fraction of images that get another label than their own.
fn error(weights: &[f32], examples: &[Example]) -> f64 {
    let wrong = examples.iter().filter(|example| {
        let logits = logits(weights, &example.features);
        (0..CLASSES).any(|class| class != example.label && logits[class] >= logits[example.label])
    });
    wrong.count() as f64 / examples.len() as f64
}

/// A mean and its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean over all runs.
    pub mean: f64,
    /// The standard deviation divided by the square root of the number of runs.
    pub standard_error: f64,
}

impl Mean {
    /// The mean of at least two values.
    pub fn of(values: &[f64]) -> Mean {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        Mean { mean, standard_error: (squares / (count - 1.0) / count).sqrt() }
    }
}

/// Computes `job(0), job(1), …` in parallel on all cores.
pub fn in_parallel<T: Send>(count: usize, job: impl Fn(usize) -> Outcome<T> + Sync) -> Outcome<Vec<T>> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(count));
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let result = job(index);
                    done.lock().expect("no job panics while it holds this").push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no job panics while it holds this");
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}
