//! Files that appear whole or not at all.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Who may read a new file.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Access {
    /// Whoever the user's settings allow.
    Usual,
    /// The owner alone (mode 0600).
    Owner,
}

/// Writes through a temporary file in the same folder, syncs it, then renames it over `path` and syncs the folder: after a
/// crash the old file or the new one is there, never a part.
pub(crate) fn write_atomically(
    path: &Path,
    access: Access,
    write: impl FnOnce(&mut BufWriter<&mut File>) -> Result<()>,
) -> Result<()> {
    let fail = || Error::io("write", path);
    // A rename would put a file in the place of a device or a pipe.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(fail()(std::io::Error::other("not a file: expected a new name or a file to replace")));
    }
    let folder = folder(path);
    let mut builder = tempfile::Builder::new();
    if access == Access::Usual {
        widen_access(&mut builder);
    }
    let mut temporary = builder.tempfile_in(folder).map_err(fail())?;
    let mut writer = BufWriter::with_capacity(1 << 20, temporary.as_file_mut());
    write(&mut writer)?;
    writer.flush().map_err(fail())?;
    drop(writer);
    temporary.as_file().sync_all().map_err(fail())?;
    temporary.persist(path).map_err(|error| fail()(error.error))?;
    sync_folder(folder).map_err(fail())
}

/// Temporary files belong to the owner alone unless said otherwise; the user's umask still applies.
#[cfg(unix)]
fn widen_access(builder: &mut tempfile::Builder<'_, '_>) {
    use std::os::unix::fs::PermissionsExt;
    builder.permissions(std::fs::Permissions::from_mode(0o666));
}

#[cfg(not(unix))]
fn widen_access(_: &mut tempfile::Builder<'_, '_>) {}

/// The folder a file lies in.
pub(crate) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes a rename or a new name in `folder` durable, where the system offers that.
pub(crate) fn sync_folder(folder: &Path) -> std::io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Creates a file of its own with these bytes, which nothing else holds a copy of.
pub(crate) fn create_new(path: &Path, access: Access, bytes: &[u8]) -> Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if access == Access::Owner {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    let mut file = options.open(path).map_err(Error::io("write", path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(Error::io("write", path))?;
    sync_folder(folder(path)).map_err(Error::io("write", path))
}
