//! Kernel locks on open files, which end with the process however it ends, and which its forks do not keep.

use crate::error::{Error, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a start waits for other starts that compare their claims, which takes them milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// An open file, locked or not, that forks do not keep.
pub(super) struct OwnFile {
    file: File,
    slot: Option<usize>,
}

impl OwnFile {
    pub(super) fn open(options: &OpenOptions, path: &Path) -> std::io::Result<OwnFile> {
        let file = options.open(path)?;
        let slot = forks::register(&file);
        Ok(OwnFile { file, slot })
    }

    /// Locks the file until this is dropped, unless another process holds the lock; returns whether it did.
    pub(super) fn try_lock(&self, path: &Path) -> Result<bool> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => {
                let text = format!("{error}; name a ledger on a file system that has locks");
                Err(Error::io("lock", path)(std::io::Error::new(error.kind(), text)))
            }
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for OwnFile {
    /// Unlocks by name, because closing is not enough: a fork that was made before the file was noted or without the C library has
    /// it open too, and so has a process that another thread is just spawning, until it runs its program.
    fn drop(&mut self) {
        let _ = self.file.unlock();
        forks::forget(self.slot);
    }
}

/// Takes the lock of a ledger's folder; waits for it, but not forever.
pub(super) fn lock_folder(folder: &Path) -> Result<OwnFile> {
    let path = folder.join("lock");
    let fail = || Error::io("lock", &path);
    let file = OwnFile::open(open_options().create(true).truncate(false), &path).map_err(fail())?;
    let begin = Instant::now();
    while !file.try_lock(&path)? {
        if begin.elapsed() > PATIENCE {
            let text = format!("another process has held it for {} seconds", PATIENCE.as_secs());
            return Err(fail()(std::io::Error::new(std::io::ErrorKind::TimedOut, text)));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(file)
}

/// The options to open a file for reading and writing, for the owner alone.
pub(super) fn open_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Closes these files in forked children. A lock belongs to the open file, which a forked child has too: a data loader's worker
/// that outlives its parent would keep the parent's claim alive.
#[cfg(unix)]
mod forks {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::sync::Once;
    use std::sync::atomic::{AtomicI32, Ordering};

    const FREE: i32 = -1;

    /// The open files of this kind. A file that finds no room is locked all the same, but its forks then keep the lock too.
    static FILES: [AtomicI32; 4096] = [const { AtomicI32::new(FREE) }; 4096];

    pub(super) fn register(file: &File) -> Option<usize> {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: the handler only loads and stores atomics and calls `close`, which a child may do after a fork.
            unsafe { libc::pthread_atfork(None, None, Some(close_all)) };
        });
        let fd = file.as_raw_fd();
        FILES
            .iter()
            .position(|entry| entry.compare_exchange(FREE, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok())
    }

    pub(super) fn forget(slot: Option<usize>) {
        if let Some(slot) = slot {
            FILES[slot].store(FREE, Ordering::Release);
        }
    }

    /// Closes the files; it runs in the child. The objects that own these files are never dropped there: see `Mechanism`.
    extern "C" fn close_all() {
        for entry in &FILES {
            let fd = entry.swap(FREE, Ordering::AcqRel);
            if fd != FREE {
                // SAFETY: the file was open in the parent when it forked, so it is in the child, where nothing else uses it.
                unsafe { libc::close(fd) };
            }
        }
    }
}

#[cfg(not(unix))]
mod forks {
    pub(super) fn register(_: &std::fs::File) -> Option<usize> {
        None
    }

    pub(super) fn forget(_: Option<usize>) {}
}
