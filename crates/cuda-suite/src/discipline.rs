//! Invalid input is refused and changes nothing; an overflow on the device, which no call can see at once, is reported later.

use crate::compare::{Onto, key, same_step};
use corrnoise::backend::{Add, Replay, Step};
use corrnoise::cuda::cudarc::driver::{CudaStream, DevicePtrMut};
use corrnoise::cuda::{Cuda, DeviceGradient, OnCuda};
use corrnoise::grid::Grid;
use corrnoise::{Dtype, Error, Form, Incarnations, Mechanism, Plan, RunKey, Shard};
use half::{bf16, f16};
use std::sync::Arc;

pub(crate) fn bad_gradients_are_refused(stream: &Arc<CudaStream>) {
    let plan = Plan::new(2, Form::blt(&[0.3], &[0.9]).unwrap(), 0.75).unwrap();
    let shard = Shard::whole(1_000).unwrap().select(&[0..10, 600..700]).unwrap();
    let mut noise = Mechanism::cuda(&plan, key(), shard, stream).unwrap();
    let mut short = stream.alloc_zeros::<f32>(10).unwrap();
    let mut long = stream.alloc_zeros::<f32>(100).unwrap();
    let mut other = stream.alloc_zeros::<bf16>(100).unwrap();
    let address = long.device_ptr_mut(stream).0;
    let mut refused = |gradients: &[DeviceGradient<'_>], part: &str| {
        let message = noise.run_step(gradients).unwrap_err().to_string();
        assert!(message.contains(part), "{message} does not say {part:?}");
    };
    refused(&[DeviceGradient::from_slice(&mut short, stream)], "list of gradients has length 1: expected 2");
    let pair =
        [DeviceGradient::from_slice(&mut long, stream), DeviceGradient::from_slice(&mut short, stream)];
    refused(&pair, "gradient 0 has length 100: expected 10");
    drop(pair);
    let mixed =
        [DeviceGradient::from_slice(&mut short, stream), DeviceGradient::from_slice(&mut other, stream)];
    refused(&mixed, "type of gradient 1 is Bf16: expected F32");
    drop(mixed);
    for (pointer, part) in [(address + 2, "multiple of 4"), (0, "address of gradient 1 is 0x0")] {
        // SAFETY: refused before anything is enqueued.
        let raw = unsafe { DeviceGradient::from_raw(pointer, 100, Dtype::F32) };
        refused(&[DeviceGradient::from_slice(&mut short, stream), raw], part);
    }
    // The refusals above changed nothing. A raw address serves as well as a slice.
    for _ in 0..2 {
        // SAFETY: `long` outlives the step and nothing else uses it.
        let raw = unsafe { DeviceGradient::from_raw(address, 100, Dtype::F32) };
        noise.run_step(&[DeviceGradient::from_slice(&mut short, stream), raw]).unwrap();
    }
    // SAFETY: as above.
    let raw = unsafe { DeviceGradient::from_raw(address, 100, Dtype::F32) };
    let past = noise.run_step(&[DeviceGradient::from_slice(&mut short, stream), raw]);
    assert!(matches!(past, Err(Error::PastEnd { step: 2, num_steps: 2 })));
    // Now and then noise is less than half a unit of the output grid.
    assert!(stream.clone_dtoh(&long).unwrap().iter().filter(|g| **g == 0.0).count() < 10);
}

pub(crate) fn an_overflow_is_found(stream: &Arc<CudaStream>) {
    let plan = Plan::new(4, Form::independent(), 1.0).unwrap();
    let mut noise = Mechanism::cuda(&plan, key(), Shard::whole(777).unwrap(), stream).unwrap();
    let mut gradient = vec![f16::from_f32(1.0); 777];
    let mut device = stream.clone_htod(&gradient).unwrap();
    noise.add_to(&mut device).unwrap();
    assert_eq!(noise.backend().first_overflow().unwrap(), None);
    for at in [300, 301, 776] {
        gradient[at] = f16::INFINITY;
    }
    for _ in 1..3 {
        let mut device = stream.clone_htod(&gradient).unwrap();
        noise.add_to(&mut device).unwrap();
    }
    assert_eq!(noise.backend().first_overflow().unwrap(), Some(1));
    // The state advanced in spite of the overflow.
    let mut cpu = Mechanism::cpu(&plan, key(), Shard::whole(777).unwrap()).unwrap();
    (0..3).for_each(|_| cpu.add_to(&mut vec![0.0_f32; 777]).unwrap());
    same_step::<f32>(&mut cpu, &mut noise, Onto::Zero, "after the overflow");
}

/// Launches of a graph share one grid: a step with another one, or with none, would be added wrongly.
pub(crate) fn a_schedule_has_the_plans_grid(stream: &Arc<CudaStream>) {
    let plan = Plan::new(4, Form::independent(), 0.75).unwrap();
    let keys = [RunKey::from_bytes([5; 32])];
    let mut cuda = Cuda::new(&plan, &keys, &Shard::whole(700).unwrap(), stream).unwrap();
    let with = |add: Option<Add>| {
        let mut terms = Vec::new();
        let step = Step::lower(&plan, 1, &Incarnations::first(), &mut terms).unwrap();
        cuda.schedule(&Step { add: add.unwrap_or(step.add), ..step })
    };
    let exponent = plan.grid_exponent();
    let others = [Add::Plain(0.75), Add::OnGrid(Grid::new(exponent + 1, 0.75))];
    let [plain, other, own] = [Some(others[0]), Some(others[1]), None].map(with);
    for refused in [plain, other] {
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("step 1 cannot be scheduled"), "{message}");
    }
    own.unwrap();
}
