//! Status codes, the message of the last failure, and the boundary at which panics become errors.

use corrnoise::Error;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The outcome of a call. Unless its description says otherwise, a call that fails changes nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The call did what was asked for.
    Ok = 0,
    /// A pointer was NULL, so nothing was done.
    NullPointer = 1,
    /// A number, a length, a text or an address was refused; nothing was done.
    InvalidArgument = 2,
    /// The plan was refused; nothing was done.
    Plan = 3,
    /// The key was refused; nothing was done.
    Key = 4,
    /// A checkpoint was refused; nothing was done.
    Checkpoint = 5,
    /// A file could not be read or written; nothing was done.
    Io = 6,
    /// The plan has no further step; nothing was done.
    PastEnd = 7,
    /// An earlier step failed half-way, so nothing was done. Resume from a checkpoint.
    Poisoned = 8,
    /// The step is complete, but a gradient left the range of its number type and is infinite now. The next call makes the next step.
    Overflow = 9,
    /// Another thread is using this mechanism; nothing was done.
    Busy = 10,
    /// The state does not fit into memory; nothing was done.
    OutOfMemory = 11,
    /// A device or a thread failed. If it was during a step, the mechanism is poisoned.
    Device = 12,
    /// This library has a mistake. If it showed during a step, the mechanism is poisoned.
    Internal = 13,
    /// The plan draws batches, and nobody vouches for that of this step, or it is of another step, plan or run; nothing was done.
    Batch = 14,
    /// Noise would be made that was made before, so nothing was done. The message names the steps and the ways out.
    Repeated = 15,
    /// The mechanism belongs to the process that this one was forked from; nothing was done.
    Forked = 16,
}

/// The reason why a call did not do what was asked for.
pub(crate) enum Failure {
    /// The named pointer is null.
    Null(&'static str),
    /// Another thread is using the mechanism.
    Busy,
    /// The engine returned this error.
    Engine(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Engine(error)
    }
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    fn status(&self) -> Status {
        match self {
            Failure::Null(_) => Status::NullPointer,
            Failure::Busy => Status::Busy,
            Failure::Engine(error) => match error {
                Error::Parameter { .. } | Error::Length { .. } => Status::InvalidArgument,
                Error::Plan(_) => Status::Plan,
                Error::Key(_) => Status::Key,
                Error::Checkpoint { .. } => Status::Checkpoint,
                Error::Io { .. } => Status::Io,
                Error::PastEnd { .. } => Status::PastEnd,
                Error::Poisoned { .. } => Status::Poisoned,
                Error::Overflow { .. } => Status::Overflow,
                Error::OutOfMemory { .. } => Status::OutOfMemory,
                Error::NoBatch { .. } | Error::BatchStep { .. } | Error::Batch(_) => Status::Batch,
                Error::Repeated(_) => Status::Repeated,
                Error::Forked => Status::Forked,
                Error::Replaying { .. } | Error::Worker { .. } | Error::Device(_) => Status::Device,
                _ => Status::Internal,
            },
        }
    }

    fn message(&self) -> String {
        match self {
            Failure::Null(name) => format!("{name} is NULL: expected a pointer"),
            Failure::Busy => "another thread is using this mechanism: it serves one call at a time".into(),
            // The engine's text names Rust functions, so C gets a text of its own.
            Failure::Engine(Error::NoBatch { step }) => format!(
                "step {step} has no batch, and the plan's claim holds for the batches it draws: expected a call of \
                 corrnoise_mechanism_for_batch() before, or of corrnoise_mechanism_unchecked_batch() if the gradients are those of \
                 the plan's batch of step {step}"
            ),
            Failure::Engine(error) => error.to_string(),
        }
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Runs an entry's body; what it returns or throws becomes a status and a message.
pub(crate) fn entry(body: impl FnOnce() -> Outcome) -> Status {
    // A body that panics leaves no handle in a bad state: a mechanism is poisoned, the others are never written to.
    let (status, message) = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(failure)) => (failure.status(), failure.message()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            (Status::Internal, format!("a mistake in corrnoise, please report it: {text}"))
        }
    };
    let text = CString::new(message.replace('\0', "\\0")).unwrap_or_default();
    // While a thread ends, its local storage is gone, and nobody is left to read the message.
    let _ = MESSAGE.try_with(|slot| slot.replace(text));
    status
}

/// The message of the last call of this thread that failed: what it met and what it expected, in one line; empty if none failed.
/// The text is valid until the next call of this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn corrnoise_last_error_message() -> *const c_char {
    MESSAGE.try_with(|slot| slot.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn message() -> String {
        // SAFETY: a string that stays until this thread's next failure.
        unsafe { CStr::from_ptr(corrnoise_last_error_message()) }.to_str().unwrap().into()
    }

    #[test]
    fn nothing_unwinds() {
        assert_eq!(entry(|| panic!("of {}", 5)), Status::Internal);
        assert_eq!(message(), "a mistake in corrnoise, please report it: of 5");
        assert_eq!(entry(|| Err(Error::Plan("a\0b".into()).into())), Status::Plan);
        assert_eq!(message(), "plan refused: a\\0b");
        assert_eq!(entry(|| Ok(())), Status::Ok);
        assert_eq!(message(), "plan refused: a\\0b", "a success keeps the message");
        assert_eq!(std::thread::spawn(message).join().unwrap(), "", "a message belongs to its thread");
    }
}
