//! Telling a process from its forks.
//!
//! A forked child has its parent's mechanisms, and would make its parent's noise. It has none of its threads, so that waiting for
//! one never ends. Process ids cannot tell the two apart: a new namespace counts from 1 again. On Linux a page that the kernel
//! clears in every child (`MADV_WIPEONFORK`) can, for the price of one load.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The process that made something; forks of it are others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u64);

/// Numbers given so far: a child goes on from its parent's, so that a number is new in the whole line of descent.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

impl Process {
    /// The process that calls this.
    pub(crate) fn current() -> Process {
        let Some(cell) = cell() else { return Process(std::process::id().into()) };
        let number = cell.load(Ordering::Acquire);
        if number != 0 {
            return Process(number);
        }
        let fresh = NUMBERS.fetch_add(1, Ordering::Relaxed) + 1;
        match cell.compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Process(fresh),
            Err(other) => Process(other),
        }
    }

    /// Whether this is the process that runs now, not one that it was forked from.
    pub(crate) fn is_current(self) -> bool {
        match cell() {
            Some(cell) => cell.load(Ordering::Acquire) == self.0,
            None => self.0 == u64::from(std::process::id()),
        }
    }
}

/// The number of this process, 0 in a child that has none yet; nothing where the system has no such memory.
fn cell() -> Option<&'static AtomicU64> {
    static CELL: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
    let mut cell = CELL.load(Ordering::Acquire);
    if cell.is_null() {
        // No lock: a fork while another thread held one would leave it locked in the child.
        let made = wiped_on_fork()?;
        match CELL.compare_exchange(cell, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => cell = made,
            // Another thread was first; its page serves all, and this one stays unused.
            Err(other) => cell = other,
        }
    }
    // SAFETY: the page is zeros at first, which is a number, and is never unmapped.
    Some(unsafe { &*cell })
}

#[cfg(target_os = "linux")]
fn wiped_on_fork() -> Option<*mut AtomicU64> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
    let (read_write, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), size_of::<AtomicU64>(), read_write, private) };
    let page = page.ok()?;
    // SAFETY: the advice is about the mapping that was just made.
    unsafe { madvise(page, size_of::<AtomicU64>(), Advice::LinuxWipeOnFork) }.ok()?;
    Some(page.cast())
}

#[cfg(not(target_os = "linux"))]
fn wiped_on_fork() -> Option<*mut AtomicU64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself() {
        let this = Process::current();
        assert!(this.is_current());
        assert_eq!(this, Process::current());
        assert!(!Process(this.0 + 1).is_current());
    }
}
