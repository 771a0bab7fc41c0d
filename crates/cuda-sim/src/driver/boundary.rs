//! The boundary between C and Rust: out-pointers, the guard around every function body, and the texts of failures.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, Mutex, PoisonError};

use super::{count, spoil};
use crate::status::{Failure, Status};

/// A pointer through which a function returns a value; the same as `T *` in C.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Safety
    ///
    /// `pointer` is null, or valid for writing a `T` until this value is dropped.
    pub unsafe fn new(pointer: *mut T) -> Self {
        Self(pointer)
    }

    pub(super) fn set(&self, value: T) -> Result<(), Failure> {
        if self.0.is_null() {
            return Err(Failure::invalid_value("a result has nowhere to go: null pointer"));
        }
        // SAFETY: not null, so valid for a write, by the contract of `new` and of the driver's interface.
        unsafe { self.0.write(value) };
        Ok(())
    }

    pub(super) fn as_ptr(&self) -> *mut T {
        self.0
    }
}

/// Counts a call, runs its body and returns the body's status.
pub(super) fn call(name: &'static str, body: impl FnOnce() -> Result<(), Failure>) -> Status {
    count::add(name);
    let outcome = match spoil::outcome(name) {
        Some(outcome) => Ok(outcome),
        None => catch_unwind(AssertUnwindSafe(body)),
    };
    let failure = match outcome {
        Ok(Ok(())) => return Status::Success,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            Failure::new(Status::Unknown, format!("the stand-in panicked: {}", panic_text(&*panic)))
        }
    };
    let text = intern(&format!("{name}: {}", failure.text));
    // A thread that is being torn down has no texts of its own any more; the process-wide one is kept all the same.
    let _ = TEXTS.try_with(|texts| texts.borrow_mut().insert(failure.status, text));
    lock(&LAST).insert(failure.status, text);
    failure.status
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Locks a mutex; a panic elsewhere does not poison it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The latest text of each status on this thread.
    static TEXTS: RefCell<HashMap<Status, &'static CStr>> = RefCell::new(HashMap::new());
}

/// The latest text of each status on any thread, for statuses that travelled to another thread.
static LAST: LazyLock<Mutex<HashMap<Status, &'static CStr>>> = LazyLock::new(Mutex::default);

/// Texts that were handed out. C callers keep the pointers, so a text is never freed; each distinct text is stored once.
static INTERNED: LazyLock<Mutex<HashSet<&'static CStr>>> = LazyLock::new(Mutex::default);

fn intern(text: &str) -> &'static CStr {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    let mut interned = lock(&INTERNED);
    if let Some(known) = interned.get(text.as_c_str()) {
        return known;
    }
    let leaked: &'static CStr = Box::leak(text.into_boxed_c_str());
    interned.insert(leaked);
    leaked
}

fn status(code: u32) -> Result<Status, Failure> {
    let known = Status::ALL.into_iter().find(|status| *status as u32 == code);
    known.ok_or_else(|| Failure::invalid_value(format!("status {code} is not one of ours")))
}

/// Returns the name of a status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: u32, name: Out<*const c_char>) -> Status {
    call("cuGetErrorName", || name.set(status(code)?.name_and_text().0.as_ptr()))
}

/// Returns the text of the latest failure with this status, preferably of one on this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: u32, text: Out<*const c_char>) -> Status {
    call("cuGetErrorString", || {
        let status = status(code)?;
        let own = TEXTS.try_with(|texts| texts.borrow().get(&status).copied()).ok().flatten();
        let known = own.or_else(|| lock(&LAST).get(&status).copied());
        text.set(known.unwrap_or(status.name_and_text().1).as_ptr())
    })
}
