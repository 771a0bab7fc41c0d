//! Files that appear whole or not at all, and leave nothing behind.
//!
//! ```text
//! open a temporary → write → fsync → give it a temporary name → rename it over the target → fsync the folder
//!                                    └──────────── only a kill here leaves a file ────────┘
//! ```
//! A temporary has no name while it is written, where the system offers that (`O_TMPFILE`): a killed process leaves nothing. If
//! the target does not exist, it gets the target's name at once.
//! Elsewhere it has a name from the start. Names follow one pattern per target, and a live writer holds a
//! kernel lock on its temporary, so that the next save can tell what a dead process left, and removes it.

mod leftovers;
mod names;
mod temporary;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use temporary::{Kind, Temporary};

/// The people who may read a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Whoever the user's settings allow (mode 0666, less the umask).
    Usual,
    /// The owner and nobody else (mode 0600).
    Owner,
}

/// Writes a file through a temporary one in the same folder: after a crash the old file or the new one is there, never a
/// part. At no time may more people read it than in the end. What killed processes left of the same target is removed.
///
/// Two processes that save to one target at the same time both succeed, and one of the two files stays.
pub fn write_atomically<T, E: From<Error>>(
    path: &Path,
    access: Access,
    write: impl FnOnce(&mut BufWriter<&File>) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    write_through(Kind::Unnamed, path, access, write)
}

/// Writes to a path that a person named: a file as [`write_atomically`] does, a pipe or a device directly, because a rename
/// would replace it.
pub fn write_anywhere<T, E: From<Error>>(
    path: &Path,
    access: Access,
    write: impl FnOnce(&mut dyn Write) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let fail = || Error::io("write", path);
    if !is_written_directly(path).map_err(fail())? {
        return write_atomically(path, access, |out| write(out));
    }
    let mut writer = BufWriter::new(File::options().write(true).open(path).map_err(fail())?);
    let value = write(&mut writer)?;
    writer.flush().map_err(fail())?;
    Ok(value)
}

/// True for a pipe or a device; a folder is refused.
fn is_written_directly(path: &Path) -> io::Result<bool> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::Error::other("it is a folder; name a file")),
        Ok(found) => Ok(!found.is_file()),
        Err(_) => Ok(false),
    }
}

/// Does what [`write_atomically`] does, through a temporary of a kind that tests choose.
fn write_through<T, E: From<Error>>(
    kind: Kind,
    path: &Path,
    access: Access,
    write: impl FnOnce(&mut BufWriter<&File>) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let fail = || Error::io("write", path);
    let temporary = begin(kind, path, access).map_err(fail())?;
    let mut writer = BufWriter::with_capacity(1 << 20, temporary.file());
    let value = write(&mut writer)?;
    writer.flush().map_err(fail())?;
    drop(writer);
    temporary.replace(path).map_err(fail())?;
    Ok(value)
}

/// Makes a new file with all of `bytes`; an existing one is an error of kind `AlreadyExists`. Of any number of processes
/// that create one file at the same time, exactly one succeeds, and nobody ever reads a part.
///
/// The bytes go from the caller's memory to the system without a copy: they may be a key.
pub fn create_new(path: &Path, access: Access, bytes: &[u8]) -> io::Result<()> {
    create_through(Kind::Unnamed, path, access, bytes)
}

fn create_through(kind: Kind, path: &Path, access: Access, bytes: &[u8]) -> io::Result<()> {
    let (folder, name) = cleared(path)?;
    // A dangling link is a name that is taken, too: linking does not follow it.
    if std::fs::symlink_metadata(path).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let temporary = Temporary::open(kind, folder, name, access)?;
    temporary.file().write_all(bytes)?;
    temporary.create(path)
}

/// Refuses a path that [`write_anywhere`] could not write to, before the work whose result it is for. Leaves no trace.
pub fn check_writable(path: &Path) -> Result<()> {
    let check = || match is_written_directly(path)? {
        true => Ok(()),
        false => begin(Kind::Unnamed, path, Access::Owner).map(drop),
    };
    check().map_err(Error::io("write", path))
}

/// Opens a temporary for a file to be written or replaced.
fn begin(kind: Kind, path: &Path, access: Access) -> io::Result<Temporary> {
    // A rename would put a file in the place of a device or a pipe.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("not a file: expected a new name or a file to replace"));
    }
    let (folder, name) = cleared(path)?;
    Temporary::open(kind, folder, name, access)
}

/// The folder and the name of a file, of which all is removed that dead processes left.
fn cleared(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no file name: expected one at the end"));
    };
    leftovers::clear(folder(path), name);
    Ok((folder(path), name))
}

/// The folder a file lies in.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
