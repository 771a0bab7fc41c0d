//! The batch of one step, which knows its step, plan and run.

use crate::plan::Fingerprint;

/// The units that take part in a step, made by a [`Sampler`](crate::Sampler).
///
/// A batch knows its step, its plan and its run, so that [`Mechanism::for_batch`](crate::Mechanism::for_batch) can refuse the
/// wrong one. Where the claim rests on sampling, who was in a batch is as secret as the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub(super) step: u64,
    pub(super) plan: Fingerprint,
    /// The run key's commitment: it reveals nothing of the key.
    pub(super) run: Fingerprint,
    pub(super) indices: Vec<u64>,
}

impl Batch {
    /// The step that the batch was drawn for.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The indices into the dataset, ascending, each at most once.
    pub fn indices(&self) -> &[u64] {
        &self.indices
    }

    /// The number of units that take part. Sums over a batch of random size are divided by the *expected* size, never by this.
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// Whether no unit takes part. Noise is added all the same.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// The plan that the batch was drawn for.
    pub(crate) fn plan(&self) -> Fingerprint {
        self.plan
    }

    /// The run that the batch was drawn for.
    pub(crate) fn run(&self) -> Fingerprint {
        self.run
    }
}
