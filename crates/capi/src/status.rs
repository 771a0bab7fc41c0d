//! Status codes, the message behind the last one, and the wall that no panic passes.

use corrnoise::Error;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a call did.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All that was asked for.
    Ok = 0,
    /// Nothing: a pointer was NULL.
    NullPointer = 1,
    /// Nothing: a number, a length, a text or an address was refused.
    InvalidArgument = 2,
    /// Nothing: the plan was refused.
    Plan = 3,
    /// Nothing: the key was refused.
    Key = 4,
    /// Nothing: a checkpoint was refused.
    Checkpoint = 5,
    /// Nothing: a file could not be read or written.
    Io = 6,
    /// Nothing: the plan has no further step.
    PastEnd = 7,
    /// Nothing: an earlier step failed half-way. Resume from a checkpoint.
    Poisoned = 8,
    /// A whole step, but an f16 gradient is infinite now. The next call makes the next step.
    Overflow = 9,
    /// Nothing: another thread is using this mechanism.
    Busy = 10,
    /// Nothing: the state does not fit into memory.
    OutOfMemory = 11,
    /// A device or a thread failed. If it was during a step, the mechanism is poisoned.
    Device = 12,
    /// A mistake in this library. If it was during a step, the mechanism is poisoned.
    Internal = 13,
    /// Nothing: the plan draws batches, and nobody vouches for the batch of this step.
    Batch = 14,
    /// Nothing: noise would be made that was made before. The message names the steps and the ways out.
    Repeated = 15,
    /// Nothing: the mechanism belongs to the process that this one was forked from.
    Forked = 16,
}

/// Why a call did not do what was asked for.
pub(crate) enum Failure {
    /// The named pointer is null.
    Null(&'static str),
    /// Another thread is in the mechanism.
    Busy,
    /// The engine's own reason.
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
                Error::NoBatch { .. } => Status::Batch,
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
            // The engine's text names its own functions.
            Failure::Engine(Error::NoBatch { step }) => format!(
                "step {step} has no batch, and the plan's claim holds for the batches it draws: expected a call of \
                 corrnoise_mechanism_unchecked_batch() before, if the gradients are those of the plan's batch of step {step}"
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
    // A body that panics leaves only handles behind that know it: a mechanism is poisoned, the others are never written to.
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
    // During a thread's last moments there is nobody left to read it.
    let _ = MESSAGE.try_with(|slot| slot.replace(text));
    status
}

/// What the last call of this thread that failed met and expected, in one line; empty if none failed. Valid until the next
/// call of this thread that fails.
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
