//! Rows made ahead of their steps, and on a stream of their own: the same bits, at every step and after every interruption.

use crate::compare::{
    Onto, every_number_of_rounds, every_way, key, same_bits_with, same_step, same_step_of_segments,
    same_steps_with,
};
use crate::replay::{LEN, fork};
use corrnoise::cuda::cudarc::driver::CudaStream;
use corrnoise::cuda::{Cuda, CudaOptions, DeviceGradient, OnCuda};
use corrnoise::form::{Kernel, Ring};
use corrnoise::{Dtype, Element, Error, Form, Layout, Mechanism, Plan, Resume, Shard, with_element};
use corrnoise_testkit::cases::{every_form, inverse_square_root_coefs, square_root_coefs};
use corrnoise_testkit::gradients::assert_same;
use std::sync::Arc;

/// Enough steps that rings of the kernels below reach the state in which all coefficients are used, and turns begin again.
const STEPS: u64 = 30;

/// One form per module of `crates/cuda/ptx/make_*`, with the rows that it makes at a time.
fn kernels() -> Vec<(String, Form, usize)> {
    let blts = every_form(STEPS).into_iter().take(9).skip(1).map(|(name, form)| (name, form, 8));
    let ring = |bands| Form::from(Kernel::Ring(Ring::toeplitz(&square_root_coefs(bands)[1..]).unwrap()));
    blts.chain([
        ("ring 16".into(), ring(16), 8),
        ("ring 20".into(), ring(20), 16),
        ("regenerate".into(), Form::regenerate(&inverse_square_root_coefs(6)).unwrap(), 8),
    ])
    .collect()
}

/// Compares 34,003 coordinates × 30 steps of every kernel that makes rows.
pub(crate) fn a_million_values<E: Element>(stream: &Arc<CudaStream>) {
    let shard = Shard::whole(34_003).unwrap();
    for (name, form, rows) in kernels() {
        let plan = Plan::new(STEPS, form, 0.7313).unwrap().with_finest_grid().unwrap();
        let options = CudaOptions { rows_ahead: Some(rows), ..CudaOptions::default() };
        same_bits_with::<E>(stream, &plan, &shard, options, true, &name);
    }
}

/// Compares all steps of every form in every way, for few tiles and for more than a turn has rows, in the middle of the coordinate space.
pub(crate) fn every_way_of_every_form(stream: &Arc<CudaStream>) {
    for (name, form, options) in every_way(STEPS) {
        let plan = Plan::new(STEPS, form, 0.75).unwrap().with_finest_grid().unwrap();
        for range in [0..3, 77..1_301, (1 << 36) - 700..(1 << 36) + 9_100] {
            let range: std::ops::Range<u64> = range;
            let shard = Shard::whole(range.end + 9).unwrap().within(range.clone()).unwrap();
            let mut cpu = Mechanism::cpu(&plan, key(), shard.clone()).unwrap();
            let mut cuda = Mechanism::cuda_with(&plan, key(), shard, stream, options).unwrap();
            for step in 0..STEPS {
                if step % 3 > 0 {
                    cuda.prepare().unwrap();
                }
                let what = format!("{name}, {range:?}, step {step}");
                same_step::<f32>(&mut cpu, &mut cuda, Onto::Values, &what);
            }
            cuda.prepare().unwrap();
        }
    }
}

/// Every way of every form with every type of gradients and every number of rounds.
pub(crate) fn every_way_type_and_number_of_rounds(stream: &Arc<CudaStream>) {
    let shard = Shard::whole(1_030).unwrap();
    for (name, form, options) in every_way(5) {
        for (rounds, plan) in every_number_of_rounds(5, &form) {
            for dtype in Dtype::ALL {
                let what = format!("{name}, {rounds:?}, {dtype}");
                with_element!(dtype, E => {
                    same_steps_with::<E>(stream, &plan, &shard, options, Onto::Values, &what);
                });
            }
        }
    }
}

/// Rings longer than what a kernel holds of its table at a time, with and without restarts, and long sums.
pub(crate) fn long_tables(stream: &Arc<CudaStream>) {
    let steps = 190;
    let ring = || Form::banded_toeplitz(&square_root_coefs(150)).unwrap();
    let varying: Vec<Vec<f64>> = (0..steps)
        .map(|t| (0..=t.min(100 - t / 3)).map(|a| 1.5 / (1.0 + a as f64 + 0.1 * t as f64)).collect())
        .collect();
    let sum = Form::regenerate(&inverse_square_root_coefs(120)).unwrap();
    let cases = [
        ("ring", ring(), 8),
        ("ring", ring(), 16),
        ("restarted ring", ring().with_restarts(83).unwrap(), 16),
        ("varying ring", Form::banded(&varying).unwrap(), 8),
        ("varying ring", Form::banded(&varying).unwrap(), 5),
        ("sum", sum.clone(), 8),
        ("restarted sum", sum.with_restarts(67).unwrap(), 7),
    ];
    for (name, form, rows) in cases {
        let plan = Plan::new(steps as u64, form, 0.75).unwrap().with_finest_grid().unwrap();
        let shard = Shard::whole(1_537).unwrap();
        let options = CudaOptions { rows_ahead: Some(rows), ..CudaOptions::default() };
        same_steps_with::<f32>(stream, &plan, &shard, options, Onto::Zero, &format!("{name}, {rows} rows"));
    }
}

/// More tensors than a turn has rows, none of a round size, whose addresses change at every step.
pub(crate) fn several_tensors(stream: &Arc<CudaStream>) {
    let layout = Layout::new((0..40_u64).map(|i| (format!("t{i}"), 1 + i * i * 7 % 1_201))).unwrap();
    for (name, form, rows) in kernels() {
        for prepare in [false, true] {
            let plan = Plan::new(11, form.clone(), 0.75).unwrap().with_finest_grid().unwrap();
            let options = CudaOptions { rows_ahead: Some(rows), prepare, ..CudaOptions::default() };
            let mut cpu = Mechanism::cpu(&plan, key(), layout.whole()).unwrap();
            let mut cuda = Mechanism::cuda_with(&plan, key(), layout.whole(), stream, options).unwrap();
            for step in 0..11 {
                cuda.prepare().unwrap();
                let what = format!("{name}, step {step}");
                same_step_of_segments::<f32>(&mut cpu, stream, |list| cuda.run_step(list), &what);
            }
        }
    }
}

/// Between `prepare` and the step: a second `prepare`, gradients that are refused, a checkpoint, a resumed run, a replay, a drop.
pub(crate) fn interruptions_between_prepare_and_step(stream: &Arc<CudaStream>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("noise");
    let shard = || Shard::whole(LEN as u64).unwrap();
    for (name, form, options) in every_way(12).into_iter().filter(|(_, _, options)| options.prepare) {
        let own = fork(stream);
        let plan = Plan::new(12, form, 0.75).unwrap().with_finest_grid().unwrap();
        let mut cpu = Mechanism::cpu(&plan, key(), shard()).unwrap();
        let mut cuda = Mechanism::cuda_with(&plan, key(), shard(), &own, options).unwrap();
        for step in 0..5 {
            (0..=step % 3).for_each(|_| cuda.prepare().unwrap());
            let mut short = own.alloc_zeros::<f32>(LEN - 1).unwrap();
            assert!(matches!(cuda.add_to(&mut short), Err(Error::Length { .. })), "{name}");
            cuda.save(&file).unwrap();
            same_step::<f32>(&mut cpu, &mut cuda, Onto::Values, &format!("{name}, step {step}"));
        }
        // The file is from before step 4: a run from there makes that row again, under a key of its own.
        let resume = Resume::SharedIncarnation([9; 16]);
        let (same_plan, at) = (&plan, &[&file]);
        let mut again =
            Mechanism::<Cuda>::resume_cuda_with(same_plan, key(), shard(), at, resume, &own, options)
                .unwrap();
        let mut other = Mechanism::resume_cpu(&plan, key(), shard(), at, resume, Default::default()).unwrap();
        again.prepare().unwrap();
        same_step::<f32>(&mut other, &mut again, Onto::Zero, &format!("{name}, resumed"));
        drop(again);
        // A prepared row is the replay's first, and one that the replay leaves is the next step's.
        cuda.prepare().unwrap();
        cuda.begin_replay(3).unwrap();
        for step in 5..7 {
            let mut expected = vec![0.0_f32; LEN];
            cpu.add_to(&mut expected).unwrap();
            let mut gradient = own.alloc_zeros::<f32>(LEN).unwrap();
            cuda.prepare().unwrap();
            cuda.enqueue(&[DeviceGradient::from_slice(&mut gradient, &own)]).unwrap();
            assert_same(&expected, &own.clone_dtoh(&gradient).unwrap(), &format!("{name}, step {step}"));
        }
        cuda.prepare().unwrap();
        assert_eq!(cuda.end_replay().unwrap(), 2, "{name}");
        cpu.save(&file).unwrap();
        let expected = std::fs::read(&file).unwrap();
        cuda.save(&file).unwrap();
        assert!(std::fs::read(&file).unwrap() == expected, "{name}: the files differ after a replay");
        for step in 7..12 {
            same_step::<f32>(&mut cpu, &mut cuda, Onto::Values, &format!("{name}, step {step}"));
        }
        cuda.prepare().unwrap();
        let mut gradient = own.alloc_zeros::<f32>(LEN).unwrap();
        let past = cuda.add_to(&mut gradient);
        assert!(matches!(past, Err(Error::PastEnd { step: 12, num_steps: 12 })), "{name}: {past:?}");
    }
}
