//! Runs a case on the CPU once and on a device until the first difference.

use super::case::{Action, Case, Lowered, Onto};
use crate::compare::Both;
use corrnoise::backend::{Backend, Replay};
use corrnoise::cuda::cudarc::driver::{CudaStream, DevicePtrMut};
use corrnoise::cuda::{Cuda, DeviceGradient};
use corrnoise::{Cpu, CpuOptions, Error};
use std::sync::Arc;

/// What one step left behind.
struct Seen<E> {
    /// The buffer before it.
    before: Vec<E>,
    /// The whole buffer; every NaN as one.
    gradients: Vec<u32>,
    overflow: Option<u64>,
}

/// A case and what the CPU engine makes of it.
pub struct Expected<E> {
    case: Case,
    steps: Vec<Seen<E>>,
    /// Per slot, at the end.
    state: Vec<Vec<u8>>,
}

#[allow(clippy::eq_op, reason = "what differs from itself is NaN, whatever the type")]
fn bits<E: Both + Copy>(buffer: &[E]) -> Vec<u32> {
    // Only a NaN differs from itself. Which one it is, is not promised.
    buffer.iter().map(|&value| if value == value { value.bits() } else { u32::MAX }).collect()
}

impl<E: Both + Copy> Expected<E> {
    /// Runs the case on the CPU.
    pub fn new(case: Case) -> corrnoise::Result<Expected<E>> {
        let options = CpuOptions { threads: 1, compact: true, ..CpuOptions::default() };
        let new = || Cpu::new(&case.plan, &case.keys, &case.shard()?, options);
        // The second one makes the noise that gradients may follow.
        let (mut cpu, mut ahead) = (new()?, new()?);
        let follows = case.actions.iter().any(|action| action.onto().follows_noise());
        let mut steps = Vec::new();
        let mut overflow = None;
        for action in &case.actions {
            let (list, launches) = match action {
                Action::Step(step, _) => (std::slice::from_ref(step), 1),
                Action::Replay { steps, launches, .. } => (steps.as_slice(), *launches),
            };
            for launch in 0..launches {
                let mut noise = Vec::new();
                if let Some(step) = list.get(launch).filter(|_| follows) {
                    noise = case.buffer::<f32>(Onto::Zero, &[]);
                    on_cpu(&case, &mut ahead, step, &mut noise)?;
                }
                let before = case.buffer::<E>(action.onto(), &noise);
                let mut buffer = before.clone();
                match list.get(launch) {
                    Some(step) => {
                        overflow =
                            on_cpu(&case, &mut cpu, step, &mut buffer)?.into_iter().chain(overflow).min()
                    }
                    None => case.places().0.into_iter().for_each(|p| buffer[p].fill(E::from_f32(f32::NAN))),
                }
                steps.push(Seen { before, gradients: bits(&buffer), overflow });
            }
        }
        let state = state(&case, &cpu)?;
        Ok(Expected { case, steps, state })
    }

    /// The case's name.
    pub fn name(&self) -> &'static str {
        self.case.name
    }

    /// Runs the case on the device of `stream`: the first difference, if there is one.
    pub fn difference(&self, stream: &Arc<CudaStream>) -> corrnoise::Result<Option<String>> {
        let case = &self.case;
        let mut cuda = Cuda::new(&case.plan, &case.keys, &case.shard()?, stream)?;
        let mut expected = self.steps.iter();
        for action in &case.actions {
            let (scheduled, launches) = match action {
                Action::Step(..) => (0, 1),
                Action::Replay { steps, launches, .. } => {
                    steps.iter().try_for_each(|step| cuda.schedule(&step.step(&case.plan)))?;
                    cuda.start()?;
                    (steps.len(), *launches)
                }
            };
            for _ in 0..launches {
                let step = match action {
                    Action::Step(step, _) => Some(step),
                    Action::Replay { .. } => None,
                };
                let expected = expected.next().expect("one per launch");
                let got = on_device(case, &mut cuda, step, &expected.before)?;
                if let Some(at) = (0..got.len()).find(|&i| got[i] != expected.gradients[i]) {
                    return Ok(Some(format!(
                        "value {at} of the buffer: {:#x}, not {:#x}",
                        got[at], expected.gradients[at]
                    )));
                }
                let overflow = cuda.first_overflow()?;
                if overflow != expected.overflow {
                    return Ok(Some(format!("overflow at {overflow:?}, not {:?}", expected.overflow)));
                }
            }
            if scheduled > 0 {
                let made = cuda.stop()?;
                if made != launches as u64 {
                    return Ok(Some(format!("{made} steps counted, not {launches}")));
                }
            }
        }
        let differs = state(case, &cuda)? != self.state;
        Ok(differs.then(|| "state".to_owned()))
    }
}

/// A step on the CPU: its number if a gradient left its range.
fn on_cpu<E: Both>(
    case: &Case,
    cpu: &mut Cpu,
    step: &Lowered,
    buffer: &mut [E],
) -> corrnoise::Result<Option<u64>> {
    let mut slices = Vec::new();
    let (mut rest, mut before) = (buffer, 0);
    for place in case.places().0 {
        let (own, after) = rest[place.start - before..].split_at_mut(place.len());
        slices.push(own);
        (rest, before) = (after, place.end);
    }
    match cpu.step(&step.step(&case.plan), E::gradients(&mut slices)) {
        Err(Error::Overflow { step }) => Ok(Some(step)),
        other => other.map(|()| None),
    }
}

/// A step by value, or the next of the schedule.
fn on_device<E: Both + Copy>(
    case: &Case,
    cuda: &mut Cuda,
    step: Option<&Lowered>,
    before: &[E],
) -> corrnoise::Result<Vec<u32>> {
    let stream = cuda.stream().clone();
    let failed = |error| Error::Device(format!("{error}"));
    let mut device = stream.clone_htod(before).map_err(failed)?;
    let base = device.device_ptr_mut(&stream).0;
    let places = case.places().0;
    let raw = |place: &std::ops::Range<usize>| {
        let address = base + (place.start * size_of::<E>()) as u64;
        // SAFETY: the buffer outlives the step, which this function waits for, and its places are disjoint.
        unsafe { DeviceGradient::from_raw(address, place.len() as u64, E::TYPE) }
    };
    let list: Vec<_> = places.iter().map(raw).collect();
    match step {
        Some(step) => cuda.step(&step.step(&case.plan), &list)?,
        None => cuda.enqueue(&list)?,
    }
    Ok(bits(&stream.clone_dtoh(&device).map_err(failed)?))
}

/// All slots of a backend's state.
fn state(case: &Case, backend: &impl Backend) -> corrnoise::Result<Vec<Vec<u8>>> {
    let form = case.plan.form();
    let slots = form.num_slots();
    let bytes = form.state_bytes_per_param().checked_div(slots as u64).unwrap_or(0);
    let coords = case.segments.iter().map(|segment| segment.end - segment.start).sum::<u64>();
    (0..slots)
        .map(|slot| {
            let mut state = vec![0; (coords * bytes) as usize];
            backend.read_state(slot, 0, &mut state)?;
            Ok(state)
        })
        .collect()
}
