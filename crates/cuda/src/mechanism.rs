//! The methods of a mechanism on CUDA: how to make it, resume it and make a step.

use crate::backend::Cuda;
use crate::gradient::DeviceGradient;
use corrnoise_core::{Element, Key, Mechanism, Plan, Result, Resume, Shard};
use cudarc::driver::{CudaStream, DevicePtrMut};
use std::path::Path;
use std::sync::Arc;

/// The methods of a [`Mechanism`] on CUDA besides those of every mechanism.
pub trait OnCuda: Sized {
    /// Begins a run on the device of `stream`; all its work is enqueued on that stream.
    fn cuda(plan: &Plan, key: Key, shard: Shard, stream: &Arc<CudaStream>) -> Result<Self>;

    /// Resumes a run from checkpoints, whichever engine wrote them; see [`Mechanism::resume_with`].
    fn resume_cuda(
        plan: &Plan,
        key: Key,
        shard: Shard,
        files: &[impl AsRef<Path>],
        resume: Resume,
        stream: &Arc<CudaStream>,
    ) -> Result<Self>;

    /// Enqueues the noise of the next step for a shard of one segment.
    fn add_to<T: Element>(&mut self, gradient: &mut impl DevicePtrMut<T>) -> Result<()>;
}

impl OnCuda for Mechanism<Cuda> {
    fn cuda(plan: &Plan, key: Key, shard: Shard, stream: &Arc<CudaStream>) -> Result<Self> {
        Mechanism::with_backend(plan, key, shard, |keys, shard| Cuda::new(plan, keys, shard, stream))
    }

    fn resume_cuda(
        plan: &Plan,
        key: Key,
        shard: Shard,
        files: &[impl AsRef<Path>],
        resume: Resume,
        stream: &Arc<CudaStream>,
    ) -> Result<Self> {
        Mechanism::resume_with(plan, key, shard, files, resume, |keys, shard| {
            Cuda::new(plan, keys, shard, stream)
        })
    }

    fn add_to<T: Element>(&mut self, gradient: &mut impl DevicePtrMut<T>) -> Result<()> {
        // This check comes before the slice's events are waited for, which would spoil a capture.
        self.check_usable()?;
        let stream = self.backend().stream().clone();
        let gradient = DeviceGradient::from_slice(gradient, &stream);
        self.run_step(&[gradient])
    }
}
