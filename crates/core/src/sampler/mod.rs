//! Batches: who takes part in which step, drawn from the run's own key, in integer arithmetic only.
//!
//! A privacy claim that rests on sampling holds for batches that are drawn in this way: independently, with exactly the plan's
//! probability or less, from randomness nobody can guess. A shuffled data loader does not do that. `docs/noise-spec.md`
//! (section "Sampler") says which keystream words decide what.

mod batch;
mod guard;
mod scheme;
mod words;

pub use batch::Batch;
pub use guard::{Admission, Guard};
pub use scheme::Sampling;

use crate::chacha::ChaCha;
use crate::error::{Error, Result};
use crate::key::Key;
use crate::plan::{Fingerprint, Plan};
use crate::secret::on_clean_stack;
use scheme::Drawn;
use std::ops::Range;

/// The number of bytes of stack that drawing uses: a few blocks of the cipher, and their initial states.
const DRAW_STACK: usize = 1 << 13;

/// Draws the batches of a plan, for every [`Sampling`] but `MinSep`, whose participants come by themselves: see [`Guard`].
///
/// # Guarantees
/// - The batch of a step is a function of key, run id, plan and step: the same on every machine, in any order of calls, and
///   after a resume, whichever incarnation the noise is in.
/// - A unit joins with probability `⌊p·2^64⌋/2^64`: never more often than the plan says. Parts and bins are uniform without bias.
/// - No keystream word serves two purposes: batches and noise are independent of each other.
///
/// The cost of a batch depends on the scheme; [`Sampling`] has it.
///
/// ```
/// use corrnoise_core::{Form, Key, Mechanism, Plan, Sampler, Sampling, Shard};
///
/// let sampling = Sampling::BlockPoisson { dataset_size: 50_000, num_blocks: 10, sampling_prob: 0.05 };
/// let plan = Plan::new(100, Form::banded_toeplitz(&[1.0, 0.5])?, 0.8)?.with_sampling(sampling)?;
/// let key = Key::from_os()?;
/// let sampler = Sampler::new(&plan, &key)?;
/// let mut noise = Mechanism::cpu(&plan, key, Shard::whole(1000)?)?;
///
/// let mut batch = sampler.batch(0)?;
/// for step in noise.next_step()..3 {
///     sampler.fill(step, &mut batch)?;
///     let mut gradient = vec![0.0_f32; 1000]; // yours: the clipped sum over batch.indices()
///     noise.for_batch(&batch)?.add_to(&mut gradient)?; // refuses a batch of another step, plan or run
///     let _mean = gradient.iter().map(|g| g / sampler.expected_batch_size() as f32);
/// }
/// # Ok::<(), corrnoise_core::Error>(())
/// ```
pub struct Sampler {
    num_steps: u64,
    sampling: Sampling,
    plan: Fingerprint,
    run: Fingerprint,
    cipher: ChaCha,
    drawn: Drawn,
}

impl Sampler {
    /// A sampler for a plan that says how batches are chosen, and the key of the run.
    pub fn new(plan: &Plan, key: &Key) -> Result<Sampler> {
        let Some(sampling) = plan.sampling() else {
            let reason = "it does not say how batches are chosen: give it one by with_sampling";
            return Err(Error::Plan(reason.into()));
        };
        let run_key = key.run_key(plan.fingerprint());
        let cipher = ChaCha::new(run_key.bytes(), plan.rounds());
        let drawn = on_clean_stack::<DRAW_STACK, _>(|| Drawn::new(sampling, plan.num_steps(), &cipher))?;
        let (num_steps, plan) = (plan.num_steps(), plan.fingerprint());
        Ok(Sampler { num_steps, sampling, plan, run: run_key.commitment(), cipher, drawn })
    }

    /// Draws the batch of a step.
    pub fn batch(&self, step: u64) -> Result<Batch> {
        let mut batch = Batch { step, plan: self.plan, run: self.run, indices: Vec::new() };
        self.fill(step, &mut batch)?;
        Ok(batch)
    }

    /// Draws the batch of a step into the memory of an earlier one, which an error leaves as it was.
    pub fn fill(&self, step: u64, batch: &mut Batch) -> Result<()> {
        self.check_step(step)?;
        let mut indices = std::mem::take(&mut batch.indices);
        indices.clear();
        on_clean_stack::<DRAW_STACK, _>(|| self.drawn.batch(&self.cipher, step, &mut indices));
        *batch = Batch { step, plan: self.plan, run: self.run, indices };
        Ok(())
    }

    /// The batches of a range of steps for other programs, as compressed rows `(offsets, indices)`: batch `i` of the range is
    /// `indices[offsets[i]..offsets[i + 1]]`.
    pub fn export(&self, steps: Range<u64>) -> Result<(Vec<u64>, Vec<u64>)> {
        if steps.start > steps.end {
            return Err(Error::parameter("first step", steps.start, format!("at most {}", steps.end)));
        }
        if !steps.is_empty() {
            self.check_step(steps.end - 1)?;
        }
        let (mut offsets, mut indices) = (vec![0], Vec::new());
        on_clean_stack::<DRAW_STACK, _>(|| {
            for step in steps {
                self.drawn.batch(&self.cipher, step, &mut indices);
                offsets.push(indices.len() as u64);
            }
        });
        Ok((offsets, indices))
    }

    fn check_step(&self, step: u64) -> Result<()> {
        if step < self.num_steps {
            return Ok(());
        }
        Err(Error::PastEnd { step, num_steps: self.num_steps })
    }

    /// The number of steps of the plan.
    pub fn num_steps(&self) -> u64 {
        self.num_steps
    }

    /// The scheme by which batches are chosen.
    pub fn sampling(&self) -> Sampling {
        self.sampling
    }

    /// The mean size of a batch, by which a sum over a batch is divided.
    pub fn expected_batch_size(&self) -> f64 {
        self.sampling
            .expected_batch_size()
            .expect("new refuses schemes whose participants come by themselves")
    }

    /// The size that no batch exceeds: a length to which every batch can be [padded](Batch::padded).
    pub fn max_batch_size(&self) -> u64 {
        self.sampling.max_batch_size().expect("new refuses schemes whose participants come by themselves")
    }
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler")
            .field("sampling", &self.sampling)
            .field("num_steps", &self.num_steps)
            .finish_non_exhaustive()
    }
}
