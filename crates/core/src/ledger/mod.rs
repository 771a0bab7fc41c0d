//! The ledger: which steps of which coordinates the runs of a key made, so that no row of noise is made twice.
//!
//! It is a folder beside the key's file, with one file per claim. A claim belongs to one process: it names the run, the
//! incarnation and the coordinates, and counts the steps. The process holds a lock of the kernel on its file and counts in
//! memory that is mapped to it, so a step costs one store and nothing waits.
//!
//! ```text
//! noise.key
//! noise.key.ledger/
//!     lock                                     held while claims are compared and made
//!     <run>-<incarnation>-<random>.claim       one per process and start; see `claim`
//! ```
//! Two claims share rows if they are of one run and one incarnation, and their coordinates overlap. A start compares itself with
//! those: it is refused if one of them counts a step that it would make, or if its process is alive. A new incarnation has keys
//! of its own, so there is nothing to compare.

mod claim;
mod file;
mod lock;

pub(crate) use claim::Claim;
pub(crate) use file::Rows;

use crate::error::{Error, Result};
use crate::layout::Shard;
use crate::warning;
use file::ClaimFile;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The environment variable that names the folder for keys whose own folder cannot be written to.
const VARIABLE: &str = "CORRNOISE_LEDGER";

/// Where runs of a key are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere: a key made in memory.
    Nowhere,
    /// Beside the key's file, or where the environment says.
    Beside(PathBuf),
    /// Where the caller says.
    Folder(PathBuf),
}

impl Place {
    /// The folder beside a key file. Symbolic links are followed; a hard link, a copy or a new name is another file with a ledger of its own.
    pub(crate) fn beside(key_file: &Path) -> Place {
        let path = key_file.canonicalize().or_else(|_| std::path::absolute(key_file));
        let mut name = path.unwrap_or_else(|_| key_file.to_owned()).into_os_string();
        name.push(".ledger");
        Place::Beside(name.into())
    }

    /// A folder of the caller's choice.
    pub(crate) fn folder(folder: &Path) -> Place {
        Place::Folder(std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()))
    }

    /// The folder, for a checkpoint that holds the key.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        match self {
            Place::Nowhere => None,
            Place::Beside(folder) | Place::Folder(folder) => Some(folder.clone()),
        }
    }

    /// The folder, and whether a person chose it.
    fn located(&self) -> Result<Option<(PathBuf, bool)>> {
        Ok(match self {
            Place::Nowhere => None,
            Place::Folder(folder) => Some((folder.clone(), true)),
            Place::Beside(folder) => match std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) {
                // It would be another folder wherever the program is started, or goes.
                Some(name) if !Path::new(&name).is_absolute() => {
                    return Err(Error::parameter(VARIABLE, Path::new(&name).display(), "an absolute path"));
                }
                Some(name) => Some((name.into(), true)),
                None => Some((folder.clone(), false)),
            },
        })
    }

    /// Compares rows from `first_step` on with the claims of others, for a mechanism that keeps its own.
    pub(crate) fn check_again(&self, rows: &Rows, first_step: u64, own: &Claim) -> Result<()> {
        let Some((folder, _)) = self.located()? else { return Ok(()) };
        let ledger = Ledger { folder };
        let _lock = ledger.open()?;
        ledger.check(rows, first_step, Start::Exact, true, Some(own.path()))
    }

    /// Claims rows from `first_step` on for this process; nothing where the key has no ledger.
    pub(crate) fn claim(
        &self,
        rows: impl FnOnce() -> Rows,
        first_step: u64,
        start: Start,
    ) -> Result<Option<Claim>> {
        let Some((folder, chosen)) = self.located()? else { return Ok(None) };
        let (ledger, rows) = (Ledger { folder }, rows());
        match ledger.open() {
            Ok(lock) => {
                ledger.check(&rows, first_step, start, true, None)?;
                let claim = Claim::create(&ledger.folder, &rows)?;
                drop(lock);
                Ok(Some(claim))
            }
            Err(Error::Io { source, .. }) if !chosen && has_no_place(&source) => {
                // What is recorded still counts, if it can be read.
                ledger.check(&rows, first_step, start, false, None)?;
                warning::once(format!(
                    "no ledger: {} cannot be written to ({source}), so a second start with this key and run id would repeat its \
                     noise unnoticed: name a folder with the ledger option or {VARIABLE}",
                    ledger.folder.display()
                ));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// How a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// From step 0, with the run's own key.
    First,
    /// From a checkpoint, under the checkpoint's keys.
    Exact,
    /// From a checkpoint, with a nonce that several processes share.
    Shared,
    /// From a checkpoint, with a nonce drawn here: it has no rows in common with any claim.
    Fresh,
}

fn has_no_place(error: &std::io::Error) -> bool {
    // A key that comes through a pipe or a descriptor lies in no folder.
    let kinds = [ErrorKind::ReadOnlyFilesystem, ErrorKind::PermissionDenied, ErrorKind::NotFound];
    kinds.contains(&error.kind())
}

/// The rows of a mechanism.
pub(crate) fn rows_of(run: String, nonce: &[u8], shard: &Shard) -> Rows {
    let incarnation = match nonce {
        [] => file::FIRST.to_owned(),
        nonce => nonce.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    let segments = shard.segments().iter().map(|segment| (segment.start, segment.end)).collect();
    Rows { run, incarnation, segments, replica: shard.is_replica() }
}

/// Steps as a person would say them.
pub(crate) fn in_words(steps: &Range<u64>) -> String {
    match steps.end - steps.start {
        1 => format!("step {}", steps.start),
        _ => format!("steps {} to {}", steps.start, steps.end - 1),
    }
}

/// A ledger in one folder.
struct Ledger {
    folder: PathBuf,
}

impl Ledger {
    /// Makes the folder if there is none, and locks it.
    fn open(&self) -> Result<lock::OwnFile> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&self.folder).map_err(Error::io("make the ledger", &self.folder))?;
        lock::lock_folder(&self.folder)
    }

    /// Refuses a start that would make rows again, whatever the claim `own` says. With the lock at hand, also removes what starts
    /// without a step left behind.
    fn check(
        &self,
        rows: &Rows,
        first_step: u64,
        start: Start,
        locked: bool,
        own: Option<&Path>,
    ) -> Result<()> {
        if start == Start::Fresh {
            return Ok(());
        }
        for path in self.claims(rows, locked)?.into_iter().filter(|path| own != Some(path)) {
            let (claim, alive) = match ClaimFile::open(&path) {
                // Removed since it was listed, by a process that made no step.
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => continue,
                other => other?,
            };
            let made = claim.next_step();
            if made == 0 && !alive && locked {
                // Nothing depends on it: if it cannot be removed, it is skipped again next time.
                let _ = std::fs::remove_file(&path);
                continue;
            }
            let Some(common) = rows.overlap(&claim.rows) else { continue };
            if alive && rows.is_replica_of(&claim.rows) && made <= first_step + 1 {
                // A replica starts while the others are at its first step: they add the same row to the same gradient.
                continue;
            }
            if made > first_step {
                return Err(self.refuse(start, first_step..made, &common));
            }
            if alive {
                return Err(self.refuse_alive(&common));
            }
        }
        Ok(())
    }

    /// Claims of the same run and incarnation. Half-made files of dead processes are removed: whoever makes one holds the lock.
    fn claims(&self, rows: &Rows, locked: bool) -> Result<Vec<PathBuf>> {
        let fail = || Error::io("read the ledger", &self.folder);
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if !locked && error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(fail())?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(fail())?.path();
            if locked && path.extension() == Some(OsStr::new(file::HALF_MADE)) {
                let _ = std::fs::remove_file(&path);
            } else if rows.is_named_by(&path) {
                found.push(path);
            }
        }
        Ok(found)
    }

    fn refuse(&self, start: Start, steps: Range<u64>, coords: &Range<u64>) -> Error {
        let ledger = self.folder.display();
        let made = format!("{} of coordinates {} to {}", in_words(&steps), coords.start, coords.end - 1);
        Error::Repeated(match start {
            Start::Exact => format!(
                "the ledger {ledger} knows of {made}, made after this checkpoint: resume with a new incarnation, or from a later \
                 checkpoint"
            ),
            Start::Shared | Start::Fresh => format!(
                "the ledger {ledger} knows of {made}, made with the nonce of this incarnation: expected 16 bytes that were never used"
            ),
            Start::First => format!(
                "the ledger {ledger} knows of {made}, made with this key, plan and run id: resume from a checkpoint, or use another \
                 run id, or another key"
            ),
        })
    }

    fn refuse_alive(&self, coords: &Range<u64>) -> Error {
        Error::Repeated(format!(
            "a mechanism with this key, plan and run id is alive and owns coordinates {} to {} (ledger {}): end it first, or resume \
             with a new incarnation, or use another run id, or another key; replicas that add the same noise to the same gradient \
             must all say so",
            coords.start,
            coords.end - 1,
            self.folder.display()
        ))
    }
}

#[cfg(test)]
mod tests;
