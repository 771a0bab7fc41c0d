//! Runs one case on a device and compares every launch with the results of the CPU engine.

use super::case::{Action, Case, Lowered};
use super::expected::Seen;
use crate::values::DeviceValues;
use corrnoise::backend::{Backend, Replay};
use corrnoise::cuda::cudarc::driver::{CudaGraph, CudaStream, sys};
use corrnoise::cuda::{Cuda, DeviceGradient};
use corrnoise::{Element, Error};
use std::sync::Arc;

/// The first difference in words, if there is one.
type Difference = corrnoise::Result<Option<String>>;

/// A backend in the middle of a case.
pub(super) struct Run<'c, E> {
    case: &'c Case,
    cuda: Cuda,
    expected: std::slice::Iter<'c, Seen<E>>,
    /// The last graph and its gradients, which outlive the backend.
    last: Option<(CudaGraph, DeviceValues<E>)>,
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Device(format!("{error}"))
}

impl<'c, E: Element> Run<'c, E> {
    /// A new backend for a case. A case with graphs has a stream of its own: the default one cannot be captured.
    pub(super) fn new(
        case: &'c Case,
        expected: &'c [Seen<E>],
        stream: &Arc<CudaStream>,
    ) -> corrnoise::Result<Run<'c, E>> {
        let captures = case.actions.iter().any(|action| matches!(action, Action::Graph { .. }));
        let own = if captures { stream.context().new_stream().map_err(failed)? } else { stream.clone() };
        let cuda = Cuda::with_options(&case.plan, &case.keys, &case.shard()?, &own, case.options)?;
        Ok(Run { case, cuda, expected: expected.iter(), last: None })
    }

    /// The CUDA backend that runs the case.
    pub(super) fn cuda(&self) -> &Cuda {
        &self.cuda
    }

    /// Performs an action; a launch counts as `stride` steps.
    pub(super) fn act(&mut self, action: &Action, stride: u64) -> Difference {
        match action {
            Action::Step(step, _) => self.launch(Some(step)),
            Action::Replay { steps, launches, .. } => {
                self.schedule(steps)?;
                for _ in 0..*launches {
                    if let Some(difference) = self.launch(None)? {
                        return Ok(Some(difference));
                    }
                }
                self.stop(*launches as u64 * stride)
            }
            Action::Graph { steps, launches, after, .. } => {
                self.schedule(steps)?;
                self.graph(*launches, *after, stride)
            }
        }
    }

    fn schedule(&mut self, steps: &[Lowered]) -> corrnoise::Result<()> {
        steps.iter().try_for_each(|step| self.cuda.schedule(&step.step(&self.case.plan)))?;
        self.cuda.start()
    }

    /// Ends the replay, which must have counted `expected` steps.
    fn stop(&mut self, expected: u64) -> Difference {
        let made = self.cuda.stop()?;
        Ok((made != expected).then(|| format!("{made} steps counted, not {expected}")))
    }

    /// Launches a step by value, or the next one of the schedule.
    fn launch(&mut self, step: Option<&Lowered>) -> Difference {
        let seen = self.expected.next().expect("one per launch");
        let mut device = DeviceValues::new(self.cuda.stream(), &seen.before).map_err(failed)?;
        let list = self.gradients(&mut device);
        match step {
            Some(step) => self.cuda.step(&step.step(&self.case.plan), &list)?,
            None => self.cuda.enqueue(&list)?,
        }
        self.compare(&device, seen)
    }

    /// Captures one step, launches it, ends the replay, and launches it again.
    fn graph(&mut self, launches: usize, after: usize, stride: u64) -> Difference {
        let stream = self.cuda.stream().clone();
        let len = self.case.places().1;
        let mut device = DeviceValues::new(&stream, &vec![E::from_f32(0.0); len]).map_err(failed)?;
        let graph = self.capture(&mut device)?;
        for launch in 0..launches + after {
            if launch == launches
                && let Some(difference) = self.stop(launches as u64 * stride)?
            {
                return Ok(Some(difference));
            }
            let seen = self.expected.next().expect("one per launch");
            device.set(&seen.before).map_err(failed)?;
            graph.launch().map_err(failed)?;
            if let Some(difference) = self.compare(&device, seen)? {
                let ended = if launch < launches { "" } else { ", after the replay ended" };
                return Ok(Some(format!("launch {launch} of a graph{ended}: {difference}")));
            }
        }
        self.last = Some((graph, device));
        Ok(None)
    }

    /// Launches the last graph once more, after its backend is gone: keys, state and schedule are freed, and a launch that
    /// reads them faults.
    pub(super) fn outlive(self) -> Difference {
        let Run { cuda, mut expected, last: Some((graph, mut device)), .. } = self else { return Ok(None) };
        drop(cuda);
        let seen = expected.next().expect("one more than launches");
        device.set(&seen.before).map_err(failed)?;
        graph.launch().map_err(failed)?;
        let difference = seen.difference(&device.get().map_err(failed)?);
        Ok(difference.map(|difference| format!("without its mechanism: {difference}")))
    }

    fn capture(&mut self, device: &mut DeviceValues<E>) -> corrnoise::Result<CudaGraph> {
        let stream = self.cuda.stream().clone();
        let list = self.gradients(device);
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).map_err(failed)?;
        let enqueued = self.cuda.enqueue(&list);
        let graph = stream.end_capture(sys::CUgraphInstantiate_flags(0)).map_err(failed)?;
        enqueued?;
        graph.ok_or_else(|| failed("nothing was captured"))
    }

    /// The segments of a buffer on the device.
    fn gradients(&self, device: &mut DeviceValues<E>) -> Vec<DeviceGradient<'static>> {
        let base = device.address();
        let raw = |place: std::ops::Range<usize>| {
            let address = base + (place.start * size_of::<E>()) as u64;
            // SAFETY: the buffer outlives its steps and its graph, and its places are disjoint.
            unsafe { DeviceGradient::from_raw(address, place.len() as u64, E::DTYPE) }
        };
        self.case.places().0.into_iter().map(raw).collect()
    }

    fn compare(&self, device: &DeviceValues<E>, seen: &Seen<E>) -> Difference {
        let difference = seen.difference(&device.get().map_err(failed)?);
        if difference.is_some() {
            return Ok(difference);
        }
        let overflow = self.cuda.first_overflow()?;
        Ok((overflow != seen.overflow).then(|| format!("overflow at {overflow:?}, not {:?}", seen.overflow)))
    }
}
