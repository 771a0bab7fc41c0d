//! Temporaries of processes that died: recognised by their name and by a lock that nobody holds.

use super::names::Pattern;
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;

/// Removes this target's temporaries that no live process is writing. What cannot be read, locked or removed is left: it is
/// another user's, or the file system has no locks, and the save itself does not depend on it.
pub(super) fn clear(folder: &Path, target: &OsStr) {
    let pattern = Pattern::new(target);
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| pattern.matches(&entry.file_name())) {
        remove_if_dead(&entry.path());
    }
}

/// A name is never used twice, so what is removed is what was locked, or nothing: between the two its writer can at most have
/// renamed it.
#[cfg(unix)]
fn remove_if_dead(path: &Path) {
    use rustix::fs::{Mode, OFlags, open};
    // For writing, since some file systems lock nothing else; without waiting, should it be a pipe; following no link.
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
    let Ok(found) = open(path, flags, Mode::empty()) else { return };
    let found = File::from(found);
    if found.metadata().is_ok_and(|metadata| metadata.is_file()) && try_lock(&found) == Lock::Held {
        // Removed while the lock is held: a writer between creating and locking finds that it has lost the file.
        let _ = std::fs::remove_file(path);
    }
}

/// Without locks, nothing tells a live writer from a dead one.
#[cfg(not(unix))]
fn remove_if_dead(_: &Path) {}

/// What came of asking for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    /// This open file has it until it is closed, or its process ends.
    Held,
    /// Another open file has it.
    Taken,
    /// There are no locks here, for anybody.
    Unsupported,
}

#[cfg(unix)]
pub(super) fn try_lock(file: &File) -> Lock {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;
    loop {
        return match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Lock::Held,
            Err(Errno::INTR) => continue,
            Err(Errno::WOULDBLOCK) => Lock::Taken,
            Err(_) => Lock::Unsupported,
        };
    }
}

#[cfg(not(unix))]
pub(super) fn try_lock(_: &File) -> Lock {
    Lock::Unsupported
}
