//! The methods of a mechanism on CUDA: how to make it, resume it and make a step.

use crate::backend::Cuda;
use crate::gradient::DeviceGradient;
use crate::options::CudaOptions;
use corrnoise_core::backend::Backend;
use corrnoise_core::{Element, Key, Mechanism, Plan, Result, Resume, Shard};
use cudarc::driver::{CudaStream, DevicePtrMut};
use std::path::Path;
use std::sync::Arc;

/// The methods of a [`Mechanism`] on CUDA besides those of every mechanism.
pub trait OnCuda {
    /// Begins a run on the device of `stream`; all its work is enqueued on that stream.
    fn cuda(plan: &Plan, key: Key, shard: Shard, stream: &Arc<CudaStream>) -> Result<Mechanism<Cuda>> {
        Self::cuda_with(plan, key, shard, stream, CudaOptions::default())
    }

    /// Begins a run on the device of `stream`, with options.
    fn cuda_with(
        plan: &Plan,
        key: Key,
        shard: Shard,
        stream: &Arc<CudaStream>,
        options: CudaOptions,
    ) -> Result<Mechanism<Cuda>> {
        Mechanism::with_backend(plan, key, shard, |keys, shard| {
            Cuda::with_options(plan, keys, shard, stream, options)
        })
    }

    /// Resumes a run from checkpoints, whichever engine wrote them; see [`Mechanism::resume_with`].
    fn resume_cuda(
        plan: &Plan,
        key: Key,
        shard: Shard,
        files: &[impl AsRef<Path>],
        resume: Resume,
        stream: &Arc<CudaStream>,
    ) -> Result<Mechanism<Cuda>> {
        Self::resume_cuda_with(plan, key, shard, files, resume, stream, CudaOptions::default())
    }

    /// Does what [`OnCuda::resume_cuda`] does, with options.
    fn resume_cuda_with(
        plan: &Plan,
        key: Key,
        shard: Shard,
        files: &[impl AsRef<Path>],
        resume: Resume,
        stream: &Arc<CudaStream>,
        options: CudaOptions,
    ) -> Result<Mechanism<Cuda>> {
        Mechanism::resume_with(plan, key, shard, files, resume, |keys, shard| {
            Cuda::with_options(plan, keys, shard, stream, options)
        })
    }

    /// Enqueues the noise of the next step for a shard of one segment.
    fn add_to<T: Element>(&mut self, gradient: &mut impl DevicePtrMut<T>) -> Result<()>;
}

impl OnCuda for Mechanism<Cuda> {
    fn add_to<T: Element>(&mut self, gradient: &mut impl DevicePtrMut<T>) -> Result<()> {
        let stream = self.backend().stream().clone();
        step_on_slice(self, &stream, gradient, |noise, list| noise.run_step(list))
    }
}

/// Runs a step of a mechanism on one slice.
pub(crate) fn step_on_slice<B: Backend, T: Element>(
    noise: &mut Mechanism<B>,
    stream: &CudaStream,
    gradient: &mut impl DevicePtrMut<T>,
    step: impl FnOnce(&mut Mechanism<B>, &[DeviceGradient<'_>]) -> Result<()>,
) -> Result<()> {
    // This check comes before the slice's events are waited for, which would spoil a capture.
    noise.check_usable()?;
    step(noise, &[DeviceGradient::from_slice(gradient, stream)])
}
