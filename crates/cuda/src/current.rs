//! The CUDA context that is current on the calling thread belongs to the caller: every call restores it.
//!
//! cudarc makes its own context current wherever it needs it and leaves it so. A trainer that works with another one would then launch
//! and allocate on the wrong device.

use crate::device::is_driver_present;
use cudarc::driver::{result::ctx, sys::CUcontext};
use std::marker::PhantomData;

/// Remembers the current context, which may be none, and makes it current again when dropped.
pub struct KeepCurrent {
    context: CUcontext,
    /// A marker that keeps this value on its thread, because every thread has a current context of its own.
    thread: PhantomData<*const ()>,
}

impl KeepCurrent {
    /// Remembers the context that is current now. The driver must have been loaded.
    pub(crate) fn new() -> KeepCurrent {
        // Before cuInit the question fails, and no context is current.
        let context = ctx::get_current().ok().flatten().unwrap_or(std::ptr::null_mut());
        KeepCurrent { context, thread: PhantomData }
    }
}

impl Drop for KeepCurrent {
    fn drop(&mut self) {
        if ctx::get_current().ok().flatten().unwrap_or(std::ptr::null_mut()) != self.context {
            // SAFETY: null, or a context that was current on this thread. If its last owner released it meanwhile, the driver refuses it.
            let _ = unsafe { ctx::set_current(self.context) };
        }
    }
}

/// Keeps the calling thread's context current: for code around this crate that opens and closes contexts itself. `None` without a driver.
pub fn keep_current() -> Option<KeepCurrent> {
    is_driver_present().then(KeepCurrent::new)
}
