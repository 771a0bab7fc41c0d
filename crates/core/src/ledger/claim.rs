//! A claim that this process holds: the rows that it makes and a count of its steps.

use super::file::{self, COUNT, Rows};
use super::lock::{OwnFile, open_options};
use crate::error::{Error, Result};
use crate::key::os_random;
use memmap2::{MmapOptions, MmapRaw};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The rows that this process makes, with a count of its steps in a file that other processes can read.
pub(crate) struct Claim {
    path: PathBuf,
    memory: MmapRaw,
    /// The file, locked as long as the claim exists. It is the last field, because fields are dropped in their order.
    _file: OwnFile,
}

impl Claim {
    /// Makes a claim's file and locks it. The caller holds the folder's lock and has compared the rows with other claims.
    pub(super) fn create(folder: &Path, rows: &Rows) -> Result<Claim> {
        let mut random = [0; 8];
        os_random(&mut random)?;
        let name = format!("{}{:016x}", rows.prefix(), u64::from_le_bytes(random));
        let half_made = folder.join(&name).with_extension(file::HALF_MADE);
        let path = folder.join(&name).with_extension(file::CLAIM);
        let made = Claim::make(&half_made, &path, rows);
        if made.is_err() {
            let _ = std::fs::remove_file(&half_made);
        }
        made
    }

    /// Creates the file under a temporary name; it gets its final name when it is whole, locked and mapped.
    fn make(half_made: &Path, path: &Path, rows: &Rows) -> Result<Claim> {
        let fail = || Error::io("write the claim", path);
        let file = OwnFile::open(open_options().create_new(true), half_made).map_err(fail())?;
        let bytes = file::bytes(rows);
        // A store to mapped memory cannot report that the disk is full, so the space is reserved before.
        reserve(file.file(), bytes.len() as u64).map_err(fail())?;
        file.file().write_all(&bytes).map_err(fail())?;
        let memory = MmapOptions::new().len(4096).map_raw(file.file()).map_err(fail())?;
        // A mapping keeps the open file and its lock, and a forked child must have neither. The child never reads the count.
        #[cfg(target_os = "linux")]
        memory.advise(memmap2::Advice::DontFork).map_err(fail())?;
        if !file.try_lock(half_made)? {
            return Err(fail()(std::io::Error::other("another process locked it")));
        }
        std::fs::rename(half_made, path).map_err(fail())?;
        Ok(Claim { path: path.to_owned(), memory, _file: file })
    }

    fn count(&self) -> &AtomicU64 {
        // SAFETY: the mapping is of one page, its offset 64 is aligned, and it lives as long as `self`. Other processes only read.
        unsafe { AtomicU64::from_ptr(self.memory.as_mut_ptr().add(COUNT).cast()) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Counts all steps before `next_step` as made. To be called before the first of them is released.
    pub(crate) fn advance(&self, next_step: u64) {
        self.count().store(file::encode(next_step).to_le(), Ordering::Release);
    }

    /// The step after the last one counted; 0 if there is none.
    pub(crate) fn next_step(&self) -> u64 {
        // Only this process writes the word, so it decodes.
        file::decode(u64::from_le(self.count().load(Ordering::Acquire))).unwrap_or(u64::MAX)
    }
}

impl Drop for Claim {
    /// Removes the claim of a start that made no step. The lock is still held, so nobody takes the file for a dead process's meanwhile.
    fn drop(&mut self) {
        if self.next_step() == 0 {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(target_os = "linux")]
fn reserve(file: &std::fs::File, bytes: u64) -> std::io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // File systems without this call allocate when the bytes are written.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(_: &std::fs::File, _: u64) -> std::io::Result<()> {
    Ok(())
}
