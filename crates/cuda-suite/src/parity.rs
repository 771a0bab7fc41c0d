//! The device gives the same bits as the CPU engine, which `tests/` compares with the reference.

use crate::compare::{
    Onto, every_number_of_rounds, every_way, key, on_device, same_bits, same_step, same_step_of_segments,
    same_steps,
};
use crate::values::DeviceValues;
use corrnoise::cuda::cudarc::driver::CudaStream;
use corrnoise::cuda::{DeviceGradient, OnCuda};
use corrnoise::form::{Kernel, Regenerate, Ring};
use corrnoise::{CpuOptions, Dtype, Element, Form, Layout, Mechanism, Plan, Resume, Shard, with_element};
use corrnoise_testkit::cases::{every_form, inverse_square_root_coefs, square_root_coefs};
use corrnoise_testkit::gradients::assert_same;
use half::{bf16, f16};
use std::sync::Arc;

/// Enough steps that every slot of every state is read and written.
const STEPS: u64 = 8;

/// One form per module of `crates/cuda/ptx/`.
fn kernels() -> Vec<(String, Form)> {
    let blts = every_form(STEPS).into_iter().take(9);
    let ring = Ring::toeplitz(&square_root_coefs(6)[1..]).unwrap();
    blts.chain([
        ("ring".into(), Kernel::Ring(ring).into()),
        ("regenerate".into(), Form::regenerate(&inverse_square_root_coefs(4)).unwrap()),
    ])
    .collect()
}

/// Compares 126,003 coordinates × 8 steps of every form.
pub(crate) fn a_million_values<E: Element>(stream: &Arc<CudaStream>) {
    let shard = Shard::whole(126_003).unwrap();
    for (name, form) in kernels() {
        let plan = Plan::new(STEPS, form, 0.7313).unwrap().with_finest_grid().unwrap();
        same_bits::<E>(stream, &plan, &shard, true, &name);
    }
}

pub(crate) fn every_kernel_type_and_number_of_rounds(stream: &Arc<CudaStream>) {
    fn all<E: Element>(stream: &Arc<CudaStream>, plan: &Plan, what: &str) {
        for len in [1, 3, 18, 511, 513, 1_030] {
            let shard = Shard::whole(len).unwrap();
            same_steps::<E>(stream, plan, &shard, Onto::Values, &format!("{what}, {len} coordinates"));
        }
    }
    for (name, form) in every_form(STEPS) {
        for (rounds, plan) in every_number_of_rounds(STEPS, &form) {
            for dtype in Dtype::ALL {
                let what = format!("{name}, {rounds:?}, {dtype}");
                with_element!(dtype, E => all::<E>(stream, &plan, &what));
            }
        }
    }
}

/// Segments in the middle of a tile, beyond 2³² coordinates, and where the low word of the block counter overflows (coordinate 2³⁶).
pub(crate) fn any_place_in_the_coordinate_space(stream: &Arc<CudaStream>) {
    let starts = [5, 100, 509, (1 << 32) - 7, (1 << 33) + 131, (1 << 36) - 700, (1 << 36) - 3, 1 << 47];
    for (name, form) in kernels() {
        let plan = Plan::new(3, form, 0.75).unwrap().with_finest_grid().unwrap();
        for first in starts {
            for len in [2, 509, 1_413] {
                let range: std::ops::Range<u64> = first..first + len;
                let shard = Shard::whole(range.end + 9).unwrap().within(range.clone()).unwrap();
                same_steps::<f32>(stream, &plan, &shard, Onto::Zero, &format!("{name}, {range:?}"));
            }
        }
    }
}

/// More tensors than one staging launch carries, none of a round size, some with few coordinates in their last tile.
pub(crate) fn several_tensors_are_one_launch(stream: &Arc<CudaStream>) {
    let sizes = (0..150_u64).map(|i| (format!("t{i}"), 1 + i * i * 7 % 1_201));
    let layout = Layout::new(sizes).unwrap();
    for (name, form) in kernels() {
        let plan = Plan::new(3, form, 0.75).unwrap().with_finest_grid().unwrap();
        let mut cpu = Mechanism::cpu(&plan, key(), layout.whole()).unwrap();
        let mut cuda = Mechanism::cuda(&plan, key(), layout.whole(), stream).unwrap();
        for step in 0..3 {
            let what = format!("{name}, step {step}");
            same_step_of_segments::<f32>(&mut cpu, stream, |list| cuda.run_step(list), &what);
        }
    }
}

/// Gradients that begin one, two and three values after an aligned address, on both sides of tile boundaries.
pub(crate) fn unaligned_gradients(stream: &Arc<CudaStream>) {
    fn all<E: Element>(stream: &Arc<CudaStream>) {
        for (name, form) in kernels() {
            let plan = Plan::new(2, form, 0.75).unwrap().with_finest_grid().unwrap();
            for (shift, first, len) in [(1, 0, 1_100), (2, 6, 700), (3, 3, 1_000), (0, 4, 1_021), (5, 511, 2)]
            {
                let shard = Shard::whole(5_000).unwrap().within(first..first + len).unwrap();
                let mut cpu = Mechanism::cpu(&plan, key(), shard.clone()).unwrap();
                let mut cuda = Mechanism::cuda(&plan, key(), shard, stream).unwrap();
                for step in 0..2 {
                    let all = Onto::Values.gradient::<E>(shift + len + 3);
                    let mut device = DeviceValues::new(stream, &all).unwrap();
                    let (start, end) = (shift as usize, (shift + len) as usize);
                    let mut part = device.bytes.slice_mut(start * size_of::<E>()..end * size_of::<E>());
                    cuda.run_step(&[DeviceGradient::from_bytes(&mut part, E::DTYPE, stream)]).unwrap();
                    let mut expected = all.clone();
                    cpu.add_to(&mut expected[start..end]).unwrap();
                    let got = device.get().unwrap();
                    assert_same(
                        &expected,
                        &got,
                        &format!("{name}, shift {shift}, first {first}, step {step}"),
                    );
                }
            }
        }
    }
    for dtype in Dtype::ALL {
        with_element!(dtype, E => all::<E>(stream));
    }
}

/// Gradients of every 16-bit pattern, infinities and NaN included; which NaN results is not promised.
pub(crate) fn every_sixteen_bit_gradient(stream: &Arc<CudaStream>) {
    fn all<E: Element>(stream: &Arc<CudaStream>, from_bits: impl Fn(u16) -> E, is_nan: impl Fn(E) -> bool) {
        for stddev in [1e-6, 0.003, 20.0] {
            let plan = Plan::new(1, Form::independent(), stddev).unwrap().with_finest_grid().unwrap();
            let shard = Shard::whole(1 << 16).unwrap();
            let mut expected: Vec<E> = (0..=u16::MAX).map(&from_bits).collect();
            let mut cuda = Mechanism::cuda(&plan, key(), shard.clone(), stream).unwrap();
            let got = on_device(&mut cuda, &expected);
            // In f16 some sums are infinite, which is reported after the whole step is made.
            let _ = Mechanism::cpu(&plan, key(), shard).unwrap().add_to(&mut expected);
            for (pattern, (expected, got)) in expected.into_iter().zip(got).enumerate() {
                let same = expected.to_bits() == got.to_bits() || (is_nan(expected) && is_nan(got));
                assert!(same, "{pattern:#06x}, {stddev}: {expected:?} and {got:?}");
            }
        }
    }
    all(stream, bf16::from_bits, bf16::is_nan);
    all(stream, f16::from_bits, f16::is_nan);
}

/// 300 terms take two staging launches; after a resume some of them belong to another incarnation with another key.
pub(crate) fn long_lists_and_several_incarnations(stream: &Arc<CudaStream>) {
    let steps = 302;
    let dense: Vec<Vec<f64>> = (0..steps).map(|t| inverse_square_root_coefs(t + 1)).collect();
    let dense = Kernel::Regenerate(Regenerate::varying(&dense).unwrap()).into();
    let ring = Form::banded_toeplitz(&square_root_coefs(20)).unwrap().with_restarts(7).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let shard = Shard::whole(700).unwrap();
    for (name, form) in [("dense", dense), ("restarted ring", ring)] {
        let plan = Plan::new(steps as u64, form, 0.75).unwrap().with_finest_grid().unwrap();
        let file = folder.path().join(name);
        let mut first = Mechanism::cpu(&plan, key(), shard.clone()).unwrap();
        (0..299).for_each(|_| first.add_to(&mut vec![0.0_f32; 700]).unwrap());
        first.save(&file).unwrap();
        let resume = Resume::SharedIncarnation([7; 16]);
        let options = CpuOptions::default();
        let mut cpu = Mechanism::resume_cpu(&plan, key(), shard.clone(), &[&file], resume, options).unwrap();
        let mut cuda = Mechanism::resume_cuda(&plan, key(), shard.clone(), &[&file], resume, stream).unwrap();
        for step in 299..302 {
            same_step::<f32>(&mut cpu, &mut cuda, Onto::Zero, &format!("{name}, step {step}"));
        }
    }
}

/// A run is stopped at every step: the CPU continues from what CUDA saved and the reverse, under another sharding, and the
/// files are equal.
pub(crate) fn checkpoints_continue_on_the_other_engine(stream: &Arc<CudaStream>) {
    let folder = tempfile::tempdir().unwrap();
    let (from_cpu, from_cuda) = (folder.path().join("cpu"), folder.path().join("cuda"));
    let space = Shard::whole(1_700).unwrap();
    for (name, form, options) in every_way(STEPS) {
        let plan = Plan::new(STEPS, form, 0.75).unwrap().with_finest_grid().unwrap();
        let mut cpu = Mechanism::cpu(&plan, key(), space.clone()).unwrap();
        let mut cuda = Mechanism::cuda_with(&plan, key(), space.clone(), stream, options).unwrap();
        for stop in 0..=STEPS {
            cpu.save(&from_cpu).unwrap();
            cuda.save(&from_cuda).unwrap();
            let same = std::fs::read(&from_cpu).unwrap() == std::fs::read(&from_cuda).unwrap();
            assert!(same, "{name}: the files differ at step {stop}");
            if stop % 2 == 0 {
                cuda.prepare().unwrap();
                cuda.save(&from_cuda).unwrap();
                let same = std::fs::read(&from_cpu).unwrap() == std::fs::read(&from_cuda).unwrap();
                assert!(same, "{name}: the files differ at step {stop}, prepared");
            }
            // Where several rows are made at a time, all stops have the same files: a few of them are gone on from.
            if options.rows_ahead == Some(1) || stop % 3 == 2 {
                let part = space.within(77..1_501).unwrap();
                let defaults = CpuOptions::default();
                let (from, exact) = (&[&from_cuda], Resume::Exact);
                let mut on_cpu =
                    Mechanism::resume_cpu(&plan, key(), part.clone(), from, exact, defaults).unwrap();
                let (from, exact) = (&[&from_cpu], Resume::Exact);
                let mut on_cuda =
                    Mechanism::resume_cuda_with(&plan, key(), part, from, exact, stream, options).unwrap();
                for step in stop..STEPS {
                    let what = format!("{name}, stopped at {stop}, step {step}");
                    same_step::<f32>(&mut on_cpu, &mut on_cuda, Onto::Zero, &what);
                }
            }
            if stop < STEPS {
                same_step::<f32>(&mut cpu, &mut cuda, Onto::Zero, &format!("{name}, step {stop}"));
            }
        }
    }
}
