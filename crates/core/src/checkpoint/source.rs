//! Where the bytes of a checkpoint lie.

use std::fs::File;
use std::io;
use zeroize::Zeroizing;

/// A file, or memory that is wiped when it is dropped: a checkpoint is as secret as the key.
pub(super) enum Source {
    File(File),
    Memory(Zeroizing<Vec<u8>>),
}

impl Source {
    /// The number of bytes in all.
    pub(super) fn len(&self) -> io::Result<u64> {
        match self {
            Source::File(file) => Ok(file.metadata()?.len()),
            Source::Memory(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// Fills `bytes` from `offset` on.
    pub(super) fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        match self {
            Source::File(file) => read_file_at(file, offset, bytes),
            Source::Memory(all) => {
                let start = usize::try_from(offset).ok();
                let end = start.and_then(|start| start.checked_add(bytes.len()));
                let part = start.zip(end).and_then(|(start, end)| all.get(start..end));
                bytes.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }
}

#[cfg(unix)]
fn read_file_at(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(not(unix))]
fn read_file_at(mut file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    use io::{Read, Seek, SeekFrom};
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(bytes)
}
