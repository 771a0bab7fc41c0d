//! A file on its way: without a name where the system offers that, under a temporary one elsewhere.

use super::leftovers::{Lock, try_lock};
use super::{Access, names};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Whether a temporary has a name while it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It has none if the system can; otherwise it has one.
    Unnamed,
    /// It has one, whatever the system can.
    #[cfg_attr(not(test), allow(dead_code))]
    // every system has it: tests run it where the other is the usual one
    Named,
}

/// An open file that goes away when it is dropped, unless it was given its place before.
pub(super) struct Temporary {
    file: File,
    /// Its name while it has one.
    name: Option<PathBuf>,
    folder: PathBuf,
    target: OsString,
}

/// Names tried before giving up: each attempt fails only if another process happens to look at the file as it is made.
const ATTEMPTS: usize = 100;

impl Temporary {
    /// A temporary next to `target`, locked for as long as it is open.
    pub(super) fn open(kind: Kind, folder: &Path, target: &OsStr, access: Access) -> io::Result<Temporary> {
        let unnamed = if kind == Kind::Unnamed { unnamed(folder, access)? } else { None };
        let (folder, target) = (folder.to_owned(), target.to_owned());
        if let Some(file) = unnamed {
            // Before it has a name nobody else can ask for the lock.
            try_lock(&file);
            return Ok(Temporary { file, name: None, folder, target });
        }
        for _ in 0..ATTEMPTS {
            let name = folder.join(names::fresh(&target)?);
            let file = match exclusive(&name, access) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                outcome => outcome?,
            };
            let temporary =
                Temporary { file, name: Some(name), folder: folder.clone(), target: target.clone() };
            // Between creation and lock, another save may have taken it for a dead process's and removed it.
            if try_lock(&temporary.file) != Lock::Taken && temporary.name_is_own() {
                return Ok(temporary);
            }
        }
        Err(io::Error::other(format!("no temporary name was free in {ATTEMPTS} attempts")))
    }

    /// The open file, to write to.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Puts the file in the place of `path`, durably.
    pub(super) fn replace(mut self, path: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        if self.name.is_none() {
            // Where nothing has the name yet, as with checkpoints that are named by their step, no other is ever needed.
            match link(&self.file, path) {
                Ok(()) => return sync_folder(&self.folder),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    self.link_to_temporary_name()?
                }
                Err(error) => return Err(error),
            }
        }
        let name = self.name.as_ref().expect("it was given a name");
        std::fs::rename(name, path)?;
        self.name = None;
        sync_folder(&self.folder)
    }

    /// Gives the file the name `path`, durably, if nothing has that name.
    pub(super) fn create(mut self, path: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        match &self.name {
            None => link(&self.file, path)?,
            Some(name) => match std::fs::hard_link(name, path) {
                // The temporary name goes when this is dropped.
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
                // A file system without links.
                Err(error) => {
                    rename_to_new(name, path).map_err(|other| other.unwrap_or(error))?;
                    self.name = None;
                }
            },
        }
        sync_folder(&self.folder)
    }

    fn link_to_temporary_name(&mut self) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            let name = self.folder.join(names::fresh(&self.target)?);
            match link(&self.file, &name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                outcome => {
                    self.name = outcome.is_ok().then_some(name);
                    return outcome;
                }
            }
        }
        Err(io::Error::other(format!("no temporary name was free in {ATTEMPTS} attempts")))
    }

    /// The file still has a name.
    fn name_is_own(&self) -> bool {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            self.file.metadata().is_ok_and(|metadata| metadata.nlink() > 0)
        }
        #[cfg(not(unix))]
        true
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // If it cannot be removed now, the next save of the target does.
        if let Some(name) = self.name.take() {
            let _ = std::fs::remove_file(name);
        }
    }
}

/// Makes a rename or a new name in `folder` durable, where the system offers that.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// A new file under a name that nothing had. Its mode is the final one from the start.
fn exclusive(name: &Path, access: Access) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode(access));
    #[cfg(not(unix))]
    let _ = access;
    options.open(name)
}

/// What the umask is taken from.
#[cfg(unix)]
fn mode(access: Access) -> u32 {
    match access {
        Access::Usual => 0o666,
        Access::Owner => 0o600,
    }
}

/// A new file without a name, or none where the system or the file system has no such files.
#[cfg(target_os = "linux")]
fn unnamed(folder: &Path, access: Access) -> io::Result<Option<File>> {
    use rustix::fs::{Mode, OFlags, open};
    use rustix::io::Errno;
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = match open(folder, flags, Mode::from_raw_mode(mode(access))) {
        Ok(file) => File::from(file),
        // Kernels before 3.11 say that it is a folder; file systems, that they do not support it.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => return Ok(None),
        Err(Errno::NOENT) if folder.is_dir() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // Without /proc it could never be given a name.
    Ok(proc_entry(&file).try_exists().unwrap_or(false).then_some(file))
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_: &Path, _: Access) -> io::Result<Option<File>> {
    Ok(None)
}

/// The link through which an open file can be named without privileges.
#[cfg(target_os = "linux")]
fn proc_entry(file: &File) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Gives an unnamed file a name that nothing has.
#[cfg(target_os = "linux")]
fn link(file: &File, name: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    Ok(linkat(CWD, proc_entry(file), CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(not(target_os = "linux"))]
fn link(_: &File, _: &Path) -> io::Result<()> {
    unreachable!("only Linux has unnamed files")
}

/// Renames a file to a name that nothing has; an error of `None` means that the system cannot say so.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn rename_to_new(from: &Path, to: &Path) -> Result<(), Option<io::Error>> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE).map_err(|error| match error {
        Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP => None,
        other => Some(other.into()),
    })
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn rename_to_new(_: &Path, _: &Path) -> Result<(), Option<io::Error>> {
    Err(None)
}
