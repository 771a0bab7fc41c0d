//! Logistic regression with differential privacy: on which side of a line is a point? `cargo run -p corrnoise-candle --example train`

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Result, Tensor, Var};
use corrnoise::planner::account::Budget;
use corrnoise::planner::{Adjacency, Factorization, Goal, PrivacyUnit, Schedule, Strategy, Terms};
use corrnoise::planner::{Workload, calibrate};
use corrnoise::{Key, Plan, Sampler, Sampling};
use corrnoise_candle::CorrelatedNoise;

type Outcome<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const EXAMPLES: u64 = 256;
const CLIP_NORM: f64 = 1.0;

/// ε = 8 for four epochs, without amplification: every example takes part once in 8 steps, and 8 bands correlate what lies between.
fn plan() -> Outcome<Plan> {
    let terms = Terms {
        schedule: Schedule::Sampling(Sampling::Cyclic { dataset_size: EXAMPLES, num_batches: 8 }),
        adjacency: Adjacency::ZeroOut,
        unit: PrivacyUnit::Example,
        clip_norm: CLIP_NORM,
    };
    let strategy = Factorization::new(Strategy::banded_square_root(8)?, 32)?;
    let goal = Goal::Budget(Budget { epsilon: 8.0, delta: 1e-5 });
    Ok(calibrate(&strategy, &terms, &Workload::Prefix, &goal)?)
}

/// +1 or −1 for points above and below a line, and the points, all over a square.
fn dataset() -> Result<(Tensor, Tensor)> {
    // The fractional parts of multiples of these two numbers fill the square evenly.
    let point = |i: u64| [0.754878, 0.56984].map(|step: f32| 2.0 * (step * i as f32).fract() - 1.0);
    let points = Tensor::from_iter((0..EXAMPLES).flat_map(point), &Device::Cpu)?.reshape(((), 2))?;
    let height = points.matmul(&Tensor::new(&[[0.6_f32], [0.8]], &Device::Cpu)?)?;
    Ok((height.gt(0.2)?.to_dtype(DType::F32)?.affine(2.0, -1.0)?, points))
}

struct Model(Vec<(&'static str, Var)>);

impl Model {
    fn new() -> Result<Model> {
        let zeros = |rows: usize| Var::zeros((rows, 1), DType::F32, &Device::Cpu);
        Ok(Model(vec![("weight", zeros(2)?), ("bias", zeros(1)?)]))
    }

    /// The logistic loss: the mean of `log(1 + exp(−label · output))`.
    fn loss(&self, labels: &Tensor, points: &Tensor) -> Result<Tensor> {
        let output = points.matmul(&self.0[0].1)?.broadcast_add(&self.0[1].1)?;
        ((output * labels)?.neg()?.exp()? + 1.0)?.log()?.mean_all()
    }

    /// Adds an example's gradient, cut to the clip norm, to the sums.
    fn add_clipped(&self, sums: &mut [Tensor], labels: &Tensor, points: &Tensor) -> Result<()> {
        let store = self.loss(labels, points)?.backward()?;
        let gradients: Vec<&Tensor> = self.0.iter().filter_map(|(_, var)| store.get(var)).collect();
        let squares = gradients.iter().map(|g| g.sqr()?.sum_all()?.to_scalar::<f32>());
        let norm = f64::from(squares.sum::<Result<f32>>()?.sqrt());
        for (sum, gradient) in sums.iter_mut().zip(gradients) {
            *sum = (&*sum + (gradient * (CLIP_NORM / norm.max(CLIP_NORM)))?)?;
        }
        Ok(())
    }
}

/// The loss before and after training.
pub fn train(key: Key) -> Outcome<[f32; 2]> {
    let (plan, model, (labels, points)) = (plan()?, Model::new()?, dataset()?);
    let loss = || model.loss(&labels, &points)?.to_scalar::<f32>();
    let zeros = || model.0.iter().map(|(_, var)| var.zeros_like()).collect::<Result<Vec<Tensor>>>();
    let sampler = Sampler::new(&plan, &key)?;
    let mut noise = CorrelatedNoise::new(model.0.clone(), &plan, key)?;
    let (mut momentum, before) = (zeros()?, loss()?);
    for step in 0..plan.num_steps() {
        let (batch, mut sums, mut gradients) = (sampler.batch(step)?, zeros()?, GradStore::default());
        for i in batch.indices().iter().map(|i| *i as usize) {
            model.add_clipped(&mut sums, &labels.narrow(0, i, 1)?, &points.narrow(0, i, 1)?)?;
        }
        for ((_, var), sum) in model.0.iter().zip(&sums) {
            gradients.insert(var, sum.clone());
        }
        noise.for_batch(&batch)?.add_noise(&gradients)?; // the sums are noisy now: a clone is the same memory
        for ((_, var), (momentum, sum)) in model.0.iter().zip(momentum.iter_mut().zip(&sums)) {
            *momentum = ((&*momentum * 0.9)? + (sum / sampler.expected_batch_size())?)?;
            var.set(&(var.as_tensor() - (&*momentum * 0.5)?)?)?;
        }
        println!("step {step:2}: loss {:.3}", loss()?);
    }
    Ok([before, loss()?])
}

fn main() -> Outcome<()> {
    train(Key::from_os()?).map(|_| ())
}
