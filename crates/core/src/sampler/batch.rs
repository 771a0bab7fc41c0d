//! The batch of one step, which knows its step, plan and run.

use super::scheme::room;
use crate::error::{Error, Result};
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

    /// The batch at `len` places, so that every step has the same shape: the indices and then `padding`, and for each place whether a unit is
    /// there. The gradients of padded places are multiplied by 0 before the sum. A batch of more than `len` units is refused.
    ///
    /// With 0 as padding every place is an index that exists; with the dataset's size, one that no array has, so that a mask that was
    /// forgotten is noticed. [`Sampler::max_batch_size`](crate::Sampler::max_batch_size) is a length that always suffices.
    ///
    /// ```
    /// use corrnoise_core::{Form, Key, Plan, Sampler, Sampling};
    ///
    /// let sampling = Sampling::BallsInBins { dataset_size: 5000, num_bins: 100 };
    /// let plan = Plan::new(300, Form::blt(&[0.3], &[0.9])?, 0.8)?.with_sampling(sampling)?;
    /// let sampler = Sampler::new(&plan, &Key::from_os()?)?;
    /// // 50 units on average, more than 128 with probability 1e-20.
    /// let (indices, mask) = sampler.batch(7)?.padded(128, 5000)?;
    /// assert!(indices.len() == 128 && indices.iter().zip(mask).all(|(unit, there)| (*unit < 5000) == there));
    /// # Ok::<(), corrnoise_core::Error>(())
    /// ```
    pub fn padded(&self, len: usize, padding: u64) -> Result<(Vec<u64>, Vec<bool>)> {
        if len == 0 {
            return Err(Error::length("padded batch", 0_usize, "at least 1"));
        }
        if self.len() > len {
            let name = format!("size of the batch of step {}", self.step);
            let expected = format!(
                "at most {len}, the length that it is padded to: pad to more, or draw batches by truncated-poisson"
            );
            return Err(Error::parameter(name, self.len(), expected));
        }
        let (mut indices, mut mask) = (room(len as u64)?, room(len as u64)?);
        indices.extend_from_slice(&self.indices);
        indices.resize(len, padding);
        mask.resize(self.len(), true);
        mask.resize(len, false);
        Ok((indices, mask))
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
