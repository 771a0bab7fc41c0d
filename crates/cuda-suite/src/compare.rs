//! One plan on both engines, step by step.

use crate::values::DeviceValues;
use corrnoise::any::{AnyBackend, AnyGradients};
use corrnoise::backend::{Add, Backend, Step};
use corrnoise::chacha::ChaCha;
use corrnoise::cuda::cudarc::driver::CudaStream;
use corrnoise::cuda::{Cuda, CudaOptions, DeviceGradient, OnCuda};
use corrnoise::grid::DitherBlock;
use corrnoise::{
    Cpu, CpuOptions, Element, Form, Gradients, Incarnations, Key, Mechanism, Place, Plan, Result, Rounds,
    RunKey, Shard,
};
use corrnoise_testkit::cases::every_form;
use corrnoise_testkit::gradients::{assert_same, gradient, grid_edge};
use std::sync::Arc;

/// A fixed key for comparisons.
pub fn key() -> Key {
    Key::from_bytes(std::array::from_fn(|i| (i * 31 + 5) as u8), "cuda")
}

/// The gradient that a step's noise is added to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Onto {
    /// A gradient of zeros: the noise shows as the grid has it.
    Zero,
    /// Values of all sizes: rounding shows.
    Values,
}

impl Onto {
    /// A gradient of `len` values of this kind.
    pub fn gradient<E: Element>(self, len: u64) -> Vec<E> {
        match self {
            Onto::Zero => vec![E::from_f32(0.0); len as usize],
            Onto::Values => gradient(len, E::from_f32),
        }
    }
}

/// Every form of [`every_form`], each in every way that the engine makes it: at once, several rows at a time, and prepared on another stream.
pub fn every_way(num_steps: u64) -> Vec<(String, Form, CudaOptions)> {
    every_form(num_steps)
        .into_iter()
        .flat_map(|(name, form)| {
            ways(&form).into_iter().map(move |options| {
                let CudaOptions { rows_ahead, prepare, .. } = options;
                let rows = rows_ahead.unwrap_or(1);
                let how = if prepare { "prepared" } else { "at a time" };
                (format!("{name}, {rows} rows {how}"), form.clone(), options)
            })
        })
        .collect()
}

/// The ways in which a form can be made.
pub fn ways(form: &Form) -> Vec<CudaOptions> {
    let all = [(1, false), (3, false), (8, false), (16, false), (1, true), (8, true)];
    let options =
        all.map(|(rows, prepare)| CudaOptions { rows_ahead: Some(rows), prepare, ..CudaOptions::default() });
    options.into_iter().filter(|options| options.rows_ahead_of(form, 1, 0).is_ok()).collect()
}

/// A plan of a form for every number of rounds, on the finest grid.
pub fn every_number_of_rounds(num_steps: u64, form: &Form) -> [(Rounds, Plan); 3] {
    let plan = Plan::new(num_steps, form.clone(), 0.75).expect("a plan").with_finest_grid().expect("a grid");
    [Rounds::R8, Rounds::R12, Rounds::R20]
        .map(|rounds| (rounds, plan.clone().with_rounds(rounds).expect("a number of rounds")))
}

/// Runs a plan on both engines on a shard of one segment and compares every step.
pub fn same_steps<E: Element>(stream: &Arc<CudaStream>, plan: &Plan, shard: &Shard, onto: Onto, what: &str) {
    same_steps_with::<E>(stream, plan, shard, CudaOptions::default(), onto, what);
}

/// Does what [`same_steps`] does, with options of the CUDA engine.
pub fn same_steps_with<E: Element>(
    stream: &Arc<CudaStream>,
    plan: &Plan,
    shard: &Shard,
    options: CudaOptions,
    onto: Onto,
    what: &str,
) {
    let mut cpu = Mechanism::cpu(plan, key(), shard.clone()).expect("a CPU run");
    let mut cuda = Mechanism::cuda_with(plan, key(), shard.clone(), stream, options).expect("a CUDA run");
    for step in 0..plan.num_steps() {
        same_step::<E>(&mut cpu, &mut cuda, onto, &format!("{what}, step {step}"));
    }
}

/// Makes the next step on one gradient per segment and compares with the CPU engine. `step` makes it on the device.
pub fn same_step_of_segments<E: Element>(
    cpu: &mut Mechanism,
    stream: &Arc<CudaStream>,
    step: impl FnOnce(&[DeviceGradient<'_>]) -> Result<()>,
    what: &str,
) {
    let lens = cpu.shard().segments().iter().map(|segment| segment.end - segment.start);
    let mut expected: Vec<Vec<E>> = lens.map(|len| Onto::Values.gradient(len)).collect();
    let to_device = |gradient: &Vec<E>| DeviceValues::new(stream, gradient).expect("a copy to the device");
    let mut device: Vec<_> = expected.iter().map(to_device).collect();
    let list: Vec<_> = device.iter_mut().map(DeviceValues::gradient).collect();
    step(&list).expect("a CUDA step");
    drop(list);
    cpu.add_to_all(&mut expected.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).expect("a CPU step");
    for (i, (expected, device)) in expected.iter().zip(&device).enumerate() {
        let got = device.get().expect("a copy from the device");
        assert_same(expected, &got, &format!("{what}, segment {i}"));
    }
}

/// Makes the next step on both engines and compares the gradients.
pub fn same_step<E: Element>(cpu: &mut Mechanism, cuda: &mut Mechanism<Cuda>, onto: Onto, what: &str) {
    let mut expected = onto.gradient::<E>(cpu.shard().num_coords());
    let got = on_device(cuda, &expected);
    cpu.add_to(&mut expected).expect("a CPU step");
    assert_same(&expected, &got, what);
}

/// Makes the next step on a gradient that is copied to the device and back.
pub fn on_device<E: Element>(cuda: &mut Mechanism<Cuda>, gradient: &[E]) -> Vec<E> {
    let stream = cuda.backend().stream().clone();
    let mut device = DeviceValues::new(&stream, gradient).expect("a copy to the device");
    cuda.run_step(&[device.gradient()]).expect("a CUDA step");
    device.get().expect("a copy from the device")
}

/// Runs a plan on both engines on a shard of one segment so that every bit of the noise shows, and compares every step. Every other step
/// adds the noise to its own negative without a grid, the first one if `plain_first`; the others add it to gradients that bring the sum between two
/// points of the grid.
pub fn same_bits<E: Element>(
    stream: &Arc<CudaStream>,
    plan: &Plan,
    shard: &Shard,
    plain_first: bool,
    what: &str,
) {
    same_bits_with::<E>(stream, plan, shard, CudaOptions::default(), plain_first, what);
}

/// Does what [`same_bits`] does, with options of the CUDA engine.
pub fn same_bits_with<E: Element>(
    stream: &Arc<CudaStream>,
    plan: &Plan,
    shard: &Shard,
    options: CudaOptions,
    plain_first: bool,
    what: &str,
) {
    let place = Place::Cuda(stream.clone().into(), options);
    same_bits_at::<E>(stream, plan, shard, &place, plain_first, what);
}

/// Does what [`same_bits`] does, at a place on the device of `stream`. Where its options let it, every step but each third is prepared.
pub fn same_bits_at<E: Element>(
    stream: &Arc<CudaStream>,
    plan: &Plan,
    shard: &Shard,
    place: &Place,
    plain_first: bool,
    what: &str,
) {
    let keys = [RunKey::from_bytes(std::array::from_fn(|i| (i * 31 + 5) as u8))];
    let cipher = ChaCha::new(keys[0].bytes(), plan.rounds());
    let first = shard.segments()[0].start;
    let new = || Cpu::new(plan, &keys, shard, CpuOptions::default()).expect("a CPU backend");
    let (mut cpu, mut ahead) = (new(), new());
    let mut cuda = AnyBackend::new(plan, &keys, shard, place).expect("a CUDA backend");
    let (mut terms, mut same_terms) = (Vec::new(), Vec::new());
    for number in 0..plan.num_steps() {
        let incarnations = Incarnations::first();
        let mut step = Step::lower(plan, number, &incarnations, &mut terms).expect("a step");
        let mut noise = vec![0.0_f32; shard.num_coords() as usize];
        let unscaled = Step::lower(plan, number, &incarnations, &mut same_terms).expect("a step");
        let unscaled = Step { add: Add::Plain(1.0), ..unscaled };
        ahead.step(&unscaled, Gradients::new(&mut [&mut noise[..]])).expect("a CPU step");
        let mut expected = vec![E::from_f32(0.0); noise.len()];
        if (number % 2 == 0) == plain_first {
            let scale = plan.scale(number);
            step.add = Add::Plain(scale);
            expected.iter_mut().zip(noise).for_each(|(value, z)| *value = E::from_f32(-(scale * z)));
        } else {
            let (grid, dither) = (plan.grid(number), DitherBlock::new(&cipher, step.dither).key(number));
            for (i, (value, z)) in expected.iter_mut().zip(noise).enumerate() {
                let fraction = grid.noise(z, dither.word(first + i as u64)).1;
                *value = E::from_f32(grid_edge(
                    fraction,
                    grid.unit,
                    i,
                    (i / 3 + number as usize).is_multiple_of(2),
                ));
            }
        }
        let mut device = DeviceValues::new(stream, &expected).expect("a copy to the device");
        if number % 3 > 0 {
            cuda.prepare(&step).expect("rows");
        }
        let list = [device.gradient()];
        cuda.step(&step, AnyGradients::Cuda(&list)).expect("a CUDA step");
        drop(list);
        cpu.step(&step, Gradients::new(&mut [&mut expected[..]])).expect("a CPU step");
        let got = device.get().expect("a copy from the device");
        assert_same(&expected, &got, &format!("{what}, step {number}"));
    }
}
