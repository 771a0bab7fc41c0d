//! Files that appear whole or not at all.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes through a temporary file in the same folder (mode 0600), syncs it, then renames it over `path` and syncs the
/// folder: after a crash the old file or the new one is there, never a part.
pub(crate) fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&mut File>) -> Result<()>,
) -> Result<()> {
    let fail = || Error::io("write", path);
    let folder = folder(path);
    let mut temporary = tempfile::NamedTempFile::new_in(folder).map_err(fail())?;
    let mut writer = BufWriter::with_capacity(1 << 20, temporary.as_file_mut());
    write(&mut writer)?;
    writer.flush().map_err(fail())?;
    drop(writer);
    temporary.as_file().sync_all().map_err(fail())?;
    temporary.persist(path).map_err(|error| fail()(error.error))?;
    sync_folder(folder).map_err(fail())
}

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
