//! Graphs, which a CUDA device replays: every other backend refuses them.

use super::{AnyBackend, AnyGradients};
use corrnoise_core::backend::{Backend, Replay, Step};
use corrnoise_core::{Error, Result};

/// The refusal of a graph by a backend that has none.
fn no_graphs() -> Error {
    Error::Device("noise that the CPU makes is part of no graph: make the steps one by one".into())
}

/// The refusal of gradients that a device cannot reach when it replays a step.
fn in_host_memory() -> Error {
    Error::parameter("gradients", "in host memory", "memory of the device that replays")
}

impl Replay for AnyBackend {
    fn reserve(&mut self, num_steps: u64) -> Result<()> {
        match self {
            AnyBackend::Cuda(cuda) => cuda.reserve(num_steps),
            _ => Err(no_graphs()),
        }
    }

    fn schedule(&mut self, step: &Step<'_>) -> Result<()> {
        match self {
            AnyBackend::Cuda(cuda) => cuda.schedule(step),
            _ => Err(no_graphs()),
        }
    }

    fn start(&mut self) -> Result<()> {
        match self {
            AnyBackend::Cuda(cuda) => cuda.start(),
            _ => Err(no_graphs()),
        }
    }

    fn check_enqueued(&self, gradients: &AnyGradients<'_, '_>) -> Result<()> {
        match gradients {
            AnyGradients::Host(_) => Err(in_host_memory()),
            AnyGradients::Cuda(_) => self.check(gradients),
        }
    }

    fn enqueue(&mut self, gradients: AnyGradients<'_, '_>) -> Result<()> {
        match (self, gradients) {
            (AnyBackend::Cuda(cuda), AnyGradients::Cuda(gradients)) => cuda.enqueue(gradients),
            (AnyBackend::Cuda(_), AnyGradients::Host(_)) => Err(in_host_memory()),
            _ => Err(no_graphs()),
        }
    }

    fn stop(&mut self) -> Result<u64> {
        match self {
            AnyBackend::Cuda(cuda) => cuda.stop(),
            _ => Ok(0),
        }
    }
}
