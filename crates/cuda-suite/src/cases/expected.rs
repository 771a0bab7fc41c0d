//! Runs a case on the CPU once and on a device until the first difference.

use super::case::{Action, Case, Lowered, Onto};
use super::device::Run;
use super::edge::Noise;
use corrnoise::backend::{Add, Backend};
use corrnoise::chacha::ChaCha;
use corrnoise::cuda::cudarc::driver::CudaStream;
use corrnoise::grid::DitherBlock;
use corrnoise::{Cpu, CpuOptions, Element, Error, Gradients};
use std::sync::Arc;

/// The results of one launch on the CPU.
pub(super) struct Seen<E> {
    /// The buffer before the launch.
    pub(super) before: Vec<E>,
    /// The bits of the whole buffer after the launch, with every NaN as one.
    pub(super) gradients: Vec<u32>,
    /// The first step so far at which a gradient left its range.
    pub(super) overflow: Option<u64>,
}

/// A case and the results of the CPU engine.
pub struct Expected<E> {
    case: Case,
    steps: Vec<Seen<E>>,
    /// The final state, slot by slot.
    state: Vec<Vec<u8>>,
}

#[allow(clippy::eq_op, reason = "what differs from itself is NaN, whatever the type")]
fn bits<E: Element>(buffer: &[E]) -> Vec<u32> {
    // Only a NaN differs from itself. Which one it is, is not promised.
    buffer.iter().map(|&value| if value == value { value.to_bits() } else { u32::MAX }).collect()
}

impl<E: Element> Seen<E> {
    /// The first value of a buffer that is not as expected.
    pub(super) fn difference(&self, got: &[E]) -> Option<String> {
        let got = bits(got);
        let at = (0..got.len()).find(|&i| got[i] != self.gradients[i])?;
        Some(format!("value {at} of the buffer: {:#x}, not {:#x}", got[at], self.gradients[at]))
    }
}

impl<E: Element> Expected<E> {
    /// Runs the case on the CPU.
    pub fn new(case: Case) -> corrnoise::Result<Expected<E>> {
        let options = CpuOptions { threads: 1, compact: true, ..CpuOptions::default() };
        let new = || Cpu::new(&case.plan, &case.keys, &case.shard()?, options);
        let mut cpu = new()?;
        // This backend makes the noise that gradients depend on, if any do: a backend with all incarnations of a run is not cheap.
        let follows = case.actions.iter().any(|action| action.onto().follows_noise());
        let mut ahead = follows.then(new).transpose()?;
        let mut steps = Vec::new();
        let mut overflow = None;
        for action in &case.actions {
            let (list, launches) = match action {
                Action::Step(step, _) => (std::slice::from_ref(step), 1),
                Action::Replay { steps, launches, .. } => (steps.as_slice(), *launches),
                // After the end of the replay, nothing runs what is left of the schedule.
                Action::Graph { steps, launches, after, .. } => {
                    (&steps[..steps.len().min(*launches)], launches + after)
                }
            };
            for launch in 0..launches {
                let mut noise = Vec::new();
                if let (Some(step), Some(ahead)) = (list.get(launch), &mut ahead) {
                    noise = noise_of(&case, ahead, step)?;
                }
                let before = case.buffer::<E>(action.onto(), &noise);
                let mut buffer = before.clone();
                match list.get(launch) {
                    Some(step) => {
                        overflow =
                            on_cpu(&case, &mut cpu, step, &mut buffer)?.into_iter().chain(overflow).min()
                    }
                    None => fill_nan(&case, &mut buffer),
                }
                steps.push(Seen { before, gradients: bits(&buffer), overflow });
            }
        }
        // The last entry is for a graph that outlives the backend.
        let before = case.buffer::<E>(Onto::Values, &[]);
        let mut buffer = before.clone();
        fill_nan(&case, &mut buffer);
        steps.push(Seen { before, gradients: bits(&buffer), overflow });
        let state = state(&case, &cpu)?;
        Ok(Expected { case, steps, state })
    }

    /// The name of the case.
    pub fn name(&self) -> &'static str {
        self.case.name
    }

    /// Runs the case on the device of `stream` and returns the first difference, if there is one.
    pub fn difference(&self, stream: &Arc<CudaStream>) -> corrnoise::Result<Option<String>> {
        self.difference_counting(stream, 1)
    }

    /// Does what [`Expected::difference`] does, with kernels whose `advance` counts `stride` steps at a time: a few launches do what 2³² would.
    pub fn difference_counting(
        &self,
        stream: &Arc<CudaStream>,
        stride: u64,
    ) -> corrnoise::Result<Option<String>> {
        let mut run = Run::new(&self.case, &self.steps, stream)?;
        for action in &self.case.actions {
            if let Some(difference) = run.act(action, stride)? {
                return Ok(Some(difference));
            }
        }
        if state(&self.case, run.cuda())? != self.state {
            return Ok(Some("state".to_owned()));
        }
        run.outlive()
    }
}

/// Fills gradients with NaN, as a launch does that has no noise for them.
fn fill_nan<E: Element>(case: &Case, buffer: &mut [E]) {
    case.places().0.into_iter().for_each(|place| buffer[place].fill(E::from_f32(f32::NAN)));
}

/// The noise of a step in the buffer's layout.
fn noise_of(case: &Case, cpu: &mut Cpu, step: &Lowered) -> corrnoise::Result<Vec<Noise>> {
    let mut values = case.buffer::<f32>(Onto::Zero, &[]);
    on_cpu(case, cpu, &Lowered { add: Add::Plain(1.0), ..step.clone() }, &mut values)?;
    let cipher = ChaCha::new(case.keys[usize::from(step.dither.incarnation())].bytes(), case.plan.rounds());
    let dither = DitherBlock::new(&cipher, step.dither).key(step.number);
    let mut noise = vec![Noise::default(); values.len()];
    for (place, segment) in case.places().0.into_iter().zip(&case.segments) {
        for (at, coord) in place.zip(segment.clone()) {
            noise[at] = match step.add {
                Add::Plain(scale) => Noise { value: scale * values[at], ..Noise::default() },
                Add::OnGrid(grid) => {
                    let (integer, fraction) = grid.noise(values[at], dither.word(coord));
                    let value = grid.scale * values[at] * grid.unit;
                    Noise { value, unit: grid.unit, integer, fraction: Some(fraction) }
                }
            };
        }
    }
    Ok(noise)
}

/// Runs a step on the CPU; returns its number if a gradient overflowed.
fn on_cpu<E: Element>(
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
    match cpu.step(&step.step(&case.plan), Gradients::new(&mut slices)) {
        Err(Error::Overflow { step }) => Ok(Some(step)),
        other => other.map(|()| None),
    }
}

/// The content of every slot of a backend's state.
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
