//! A device beside the CPU engine: steps bit for bit, captured graphs, checkpoints that change engines.

use super::cases::{Case, Options, Point};
use crate::failure::{Failure, Result};
use corrnoise::any::{AnyBackend, AnyGradients};
use corrnoise::backend::{Add, Backend, Step};
use corrnoise::examine::Examine;
use corrnoise::{
    AnyMechanism, Checkpoint, Cpu, CpuOptions, Dtype, Element, Gradients, Incarnations, Key, Mechanism,
    Place, Plan, Resume, RunKey, Shard, with_element,
};

/// A key that everyone may know.
const PUBLIC: [u8; 32] = *b"corrnoise verify: a public key!!";

fn key() -> Key {
    Key::from_bytes(PUBLIC, "gpu")
}

/// The first difference in words; none if there is none.
pub type Difference = Result<Option<String>>;

/// A gradient of which no two neighbours are alike.
fn gradient<E: Element>(len: u64) -> Vec<E> {
    (0..len).map(|i| E::from_f32((i * 7919 % 10_007) as f32 * 1e-3 - 5.0)).collect()
}

/// Names the first value that differs.
fn first_difference(step: u64, dtype: Dtype, cpu: &[u32], device: &[u32]) -> Option<String> {
    let differ = |(_, (cpu, device)): &(usize, (&u32, &u32))| cpu != device;
    let mut different = cpu.iter().zip(device).enumerate().filter(differ);
    let (at, (cpu_bits, device_bits)) = different.next()?;
    let (count, digits) = (1 + different.count(), 2 * dtype.bytes());
    Some(format!(
        "step {step}: {count} of {} values differ, the first at coordinate {at}: {cpu_bits:0digits$x} on the CPU, {device_bits:0digits$x} on the device",
        cpu.len()
    ))
}

fn bits<E: Element>(values: Vec<E>) -> Vec<u32> {
    values.into_iter().map(E::to_bits).collect()
}

/// Compares every step of a case.
pub fn parity(device: &dyn Examine, case: &Case, point: &Point, coords: u64) -> Difference {
    let plan = case.plan(point)?;
    let place = device.place(point.options.into());
    with_element!(point.gradient, E => steps::<E>(&place, point.options, &plan, coords))
}

/// Every other step adds noise to its own negative and without a grid, so that every bit of it is left; the others add it to values of
/// all sizes, as training does. Rows that are prepared are so before two of three steps: a step that finds none makes its own.
fn steps<E: Element>(place: &Place, options: Options, plan: &Plan, coords: u64) -> Difference {
    let (keys, shard) = ([RunKey::from_bytes(PUBLIC)], Shard::whole(coords)?);
    let cpu = || Cpu::new(plan, &keys, &shard, CpuOptions::default());
    let (mut cpu, mut unscaled) = (cpu()?, cpu()?);
    let mut device = AnyBackend::new(plan, &keys, &shard, place)?;
    let (mut terms, mut same_terms) = (Vec::new(), Vec::new());
    for number in 0..plan.num_steps() {
        let incarnations = Incarnations::first();
        let mut noise = vec![0.0_f32; coords as usize];
        let plain = Step::lower(plan, number, &incarnations, &mut same_terms)?;
        let plain = Step { add: Add::Plain(1.0), ..plain };
        unscaled.step(&plain, Gradients::new(&mut [&mut noise[..]]))?;
        let mut step = Step::lower(plan, number, &incarnations, &mut terms)?;
        let mut expected: Vec<E> = if number % 2 == 0 {
            let scale = plan.scale(number);
            step.add = Add::Plain(scale);
            noise.into_iter().map(|z| E::from_f32(-(scale * z))).collect()
        } else {
            gradient(coords)
        };
        let mut got = expected.clone();
        if options.prepare && number % 3 > 0 {
            device.prepare(&step)?;
        }
        cpu.step(&step, Gradients::new(&mut [&mut expected[..]]))?;
        device.step(&step, AnyGradients::Host(Gradients::new(&mut [&mut got[..]])))?;
        let difference = first_difference(number, E::DTYPE, &bits(expected), &bits(got));
        if difference.is_some() {
            return Ok(difference);
        }
    }
    Ok(None)
}

/// Compares steps that a captured graph makes, and what a launch past its end leaves behind.
pub fn graph(device: &dyn Examine, case: &Case, point: &Point, coords: u64) -> Difference {
    let plan = case.plan(point)?;
    with_element!(point.gradient, E => graph_of::<E>(device, point.options, &plan, coords))
}

fn graph_of<E: Element>(device: &dyn Examine, options: Options, plan: &Plan, coords: u64) -> Difference {
    let before = gradient::<E>(coords);
    let replayed = device.replay(plan, key(), E::DTYPE, options.into(), &bits(before.clone()))?;
    let mut cpu = Mechanism::cpu(plan, key(), Shard::whole(coords)?)?;
    for (number, got) in replayed.steps.iter().enumerate() {
        let mut expected = before.clone();
        cpu.add_to(&mut expected)?;
        let difference = first_difference(number as u64, E::DTYPE, &bits(expected), got);
        if difference.is_some() {
            return Ok(difference);
        }
    }
    let between = plan.num_steps() - 2;
    if replayed.counted != between {
        return Ok(Some(format!("the device counted {} steps of {between}", replayed.counted)));
    }
    let is_nan = |bits: &&u32| E::from_bits(**bits).to_f32().is_nan();
    let bare = replayed.late.len() - replayed.late.iter().filter(is_nan).count();
    let late = || format!("a launch after the last step left {bare} values that are not NaN");
    Ok((bare > 0).then(late))
}

/// Runs a plan on the CPU, on the device and on the CPU again, with a checkpoint at each change, beside a run that never leaves the CPU.
/// What was prepared is no part of a state.
pub fn checkpoints(device: &dyn Examine, case: &Case, point: &Point, coords: u64) -> Difference {
    let plan = case.plan(point)?;
    let place = device.place(point.options.into());
    with_element!(point.gradient, E => crossed::<E>(&place, point.options, &plan, coords))
}

fn crossed<E: Element>(place: &Place, options: Options, plan: &Plan, coords: u64) -> Difference {
    let shard = || Shard::whole(coords);
    let resume = |state: Vec<u8>, place: &Place| {
        let saved = vec![Checkpoint::from_bytes(state)?];
        AnyMechanism::resume(plan, key(), shard()?, saved, Resume::Exact, place)
    };
    let own = Place::default();
    let mut whole = AnyMechanism::new(plan, key(), shard()?, &own)?;
    let mut moving = AnyMechanism::new(plan, key(), shard()?, &own)?;
    let own_device = moving.device();
    let changes = [(plan.num_steps() / 3, place, "the device"), (2 * plan.num_steps() / 3, &own, "the CPU")];
    for step in 0..plan.num_steps() {
        if options.prepare && moving.device() != own_device {
            moving.prepare()?;
        }
        if let Some((_, to, name)) = changes.iter().find(|(at, ..)| *at == step) {
            let state = moving.state()?;
            if state != whole.state()? {
                return Ok(Some(format!("step {step}: the state before the run moves to {name} differs")));
            }
            moving = resume(state.clone(), to)?;
            if moving.state()? != state {
                return Ok(Some(format!("step {step}: the state differs after the run moved to {name}")));
            }
        }
        let (mut expected, mut got) = (gradient::<E>(coords), gradient::<E>(coords));
        whole.add_to(&mut expected)?;
        moving.add_to(&mut got)?;
        let difference = first_difference(step, E::DTYPE, &bits(expected), &bits(got));
        if difference.is_some() {
            return Ok(difference);
        }
    }
    match moving.state()? == whole.state()? {
        true => Ok(None),
        false => Ok(Some("the state at the end differs".into())),
    }
}

/// The text of a failure that is not about the reader of the output.
pub fn in_words(failure: Failure) -> Result<String> {
    match failure {
        Failure::Input(message) => Ok(message),
        other => Err(other),
    }
}
