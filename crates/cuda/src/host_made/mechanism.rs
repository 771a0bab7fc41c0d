//! The methods of a mechanism whose noise the host makes: how to make it, resume it and make a step.

use super::{HostMade, HostMadeOptions};
use crate::mechanism::step_on_slice;
use corrnoise_core::{Element, Key, Mechanism, Plan, Result, Resume, Shard};
use cudarc::driver::{CudaStream, DevicePtrMut};
use std::path::Path;
use std::sync::Arc;

/// The methods of a [`Mechanism`] whose noise the host makes and a CUDA device adds, besides those of every mechanism.
pub trait MadeOnHost {
    /// Begins a run whose noise is added on the device of `stream`, in the order of that stream.
    fn host_made(
        plan: &Plan,
        key: Key,
        shard: Shard,
        stream: &Arc<CudaStream>,
        options: HostMadeOptions,
    ) -> Result<Mechanism<HostMade>> {
        Mechanism::with_backend(plan, key, shard, |keys, shard| {
            HostMade::new(plan, keys, shard, stream, options)
        })
    }

    /// Resumes a run from checkpoints, whichever engine wrote them; see [`Mechanism::resume_with`].
    fn resume_host_made(
        plan: &Plan,
        key: Key,
        shard: Shard,
        files: &[impl AsRef<Path>],
        resume: Resume,
        stream: &Arc<CudaStream>,
        options: HostMadeOptions,
    ) -> Result<Mechanism<HostMade>> {
        Mechanism::resume_with(plan, key, shard, files, resume, |keys, shard| {
            HostMade::new(plan, keys, shard, stream, options)
        })
    }

    /// Adds the noise of the next step to the gradient of a shard of one segment.
    fn add_to<T: Element>(&mut self, gradient: &mut impl DevicePtrMut<T>) -> Result<()>;
}

impl MadeOnHost for Mechanism<HostMade> {
    fn add_to<T: Element>(&mut self, gradient: &mut impl DevicePtrMut<T>) -> Result<()> {
        let stream = self.backend().stream().clone();
        step_on_slice(self, &stream, gradient, |noise, list| noise.run_step(list))
    }
}
