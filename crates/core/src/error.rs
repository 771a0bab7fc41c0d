//! The one error type of the crate: every variant names the value it met and what was expected.

use std::fmt::Display;
use std::path::PathBuf;

/// An error between reading a plan and adding noise to a gradient.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A number lies outside its domain, such as a coefficient, a scale or a standard deviation.
    #[error("{name} is {value}: expected {expected}")]
    Parameter {
        /// The number's name, with its index where it has one.
        name: String,
        /// The number as it was given.
        value: String,
        /// The domain it has to lie in.
        expected: String,
    },
    /// Two lists that belong together differ in length, or a list has an impossible length.
    #[error("{name} has length {got}: expected {expected}")]
    Length {
        /// What the list is called.
        name: String,
        /// The length that was met.
        got: u64,
        /// The length it should have.
        expected: String,
    },
    /// A step was asked for after the plan's last one.
    #[error(
        "step {step} is past the end: the plan has {num_steps} steps, and noise beyond them has no privacy claim"
    )]
    PastEnd {
        /// The step asked for.
        step: u64,
        /// The number of steps of the plan.
        num_steps: u64,
    },
    /// An earlier step failed half-way, so the gradient and the state no longer match.
    #[error(
        "step {step} failed half-way and poisoned this mechanism: resume from a checkpoint made before it"
    )]
    Poisoned {
        /// The step that failed.
        step: u64,
    },
    /// The device counts the steps of a captured graph, so the host must not.
    #[error(
        "steps {first} to {last} are the device's to count while their graph is replayed: call end_replay first"
    )]
    Replaying {
        /// The first step handed over.
        first: u64,
        /// The last step handed over.
        last: u64,
    },
    /// A gradient left the range of its number type. The step counts as made: its noise is used up, and the next call makes the next step.
    #[error(
        "a gradient is infinite after step {step}: it left the range of its number type, of which f16 ends at 65504; scale the gradient down or use bf16 or f32"
    )]
    Overflow {
        /// The step at which it happened.
        step: u64,
    },
    /// A worker thread panicked.
    #[error("a worker thread panicked at step {step}")]
    Worker {
        /// The step at which it happened.
        step: u64,
    },
    /// A start was refused because it would make rows of noise which were made before.
    #[error("noise would be made twice: {0}")]
    Repeated(String),
    /// The mechanism was made before the process was forked: it is the parent's, which goes on with it.
    #[error(
        "this mechanism belongs to the process that this one was forked from: make one here, with its own key, run id or \
         coordinates"
    )]
    Forked,
    /// A batch was drawn for another step than the one to be made.
    #[error("the batch was drawn for step {batch}, the mechanism's next step is {next_step}")]
    BatchStep {
        /// The step that the batch was drawn for.
        batch: u64,
        /// The step that the mechanism makes next.
        next_step: u64,
    },
    /// A step was asked for without its batch, of a plan that draws batches.
    #[error(
        "step {step} has no batch, and the plan's claim holds for the batches it draws: call for_batch(&batch) with the batch \
         of step {step}, or unchecked_batch() if it was drawn elsewhere"
    )]
    NoBatch {
        /// The step to be made.
        step: u64,
    },
    /// A graph was to replay steps of a plan that draws batches, so nobody can check their batches.
    #[error(
        "the batches of step {step} and those after it cannot be seen while a graph is replayed, and the plan's claim holds \
         for the batches it draws: call unchecked_batch() before begin_replay if the graph takes those"
    )]
    NoBatchInReplay {
        /// The first step to be handed over.
        step: u64,
    },
    /// A batch belongs to another plan or to another run.
    #[error("batch refused: {0}")]
    Batch(String),
    /// The plan cannot be used; the text says why.
    #[error("plan refused: {0}")]
    Plan(String),
    /// The key material cannot be used; the text says why.
    #[error("key refused: {0}")]
    Key(String),
    /// The checkpoint cannot be used.
    #[error("checkpoint {} refused: {reason}", path.display())]
    Checkpoint {
        /// The file that holds the checkpoint.
        path: PathBuf,
        /// Why the checkpoint was refused.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, such as "read plan".
        action: &'static str,
        /// The file that it was tried on.
        path: PathBuf,
        /// The error that the system reported.
        source: std::io::Error,
    },
    /// The state does not fit into memory.
    #[error("state of {bytes} bytes cannot be allocated")]
    OutOfMemory {
        /// How many bytes were asked for.
        bytes: u128,
    },
    /// A device failed; the text is the backend's.
    #[error("device error: {0}")]
    Device(String),
}

/// A result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An [`Error::Parameter`], for a number outside its domain.
    pub fn parameter(name: impl Into<String>, value: impl Display, expected: impl Into<String>) -> Self {
        Error::Parameter { name: name.into(), value: value.to_string(), expected: expected.into() }
    }

    /// An [`Error::Length`], for a list of the wrong length.
    pub fn length(name: impl Into<String>, got: usize, expected: impl Into<String>) -> Self {
        Error::Length { name: name.into(), got: got as u64, expected: expected.into() }
    }

    pub(crate) fn io(action: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    }
}
