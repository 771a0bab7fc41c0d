//! Secrets: the user's key, and the run key derived from it.

use crate::error::{Error, Result};
use crate::ledger::Place;
use crate::plan::Fingerprint;
use crate::secret::{Secret, on_clean_stack};
use crate::{file, warning};
use std::io::Read;
use std::path::Path;

/// Bytes of stack that deriving a key may use: the hash's own state and what it spills.
const DERIVATION_STACK: usize = 1 << 15;

/// Bytes of stack that hashing a long text with a key may use: chunks are hashed side by side, and their halves recursively.
pub(crate) const MAC_STACK: usize = 1 << 16;

/// The most bytes that a key file may have: 64 digits, with room for blanks.
const MAX_FILE: usize = 4096;

/// 32 secret bytes, the public name of the run that uses them, and where the noise made from them is recorded.
///
/// # Guarantees
/// A key is kept on pages that core dumps leave out, and wiped when dropped. It is never printed nor logged, and only
/// [`Key::duplicate`] copies it.
/// Noise depends on the key, the plan and the run's name: one key serves two plans, or two runs of one plan *under different
/// names*, without ever repeating noise. A key from a file has a ledger beside the file, which refuses a run that would make
/// noise again; see [`Key::with_ledger`].
pub struct Key {
    bytes: Secret<u8>,
    run_id: String,
    ledger: Place,
}

impl Key {
    /// A fresh key from the operating system, for every run that need not be resumed.
    pub fn from_os() -> Result<Key> {
        Key::filled(String::new(), os_random)
    }

    /// A key whose bytes `fill` writes directly into their final memory.
    pub(crate) fn filled(run_id: String, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Key> {
        let mut bytes = Secret::zeroed(32);
        fill(&mut bytes)?;
        Ok(Key { bytes, run_id, ledger: Place::Nowhere })
    }

    /// A fresh key that is also written to a new file, readable by the owner alone, for a run that may have to be resumed. An
    /// existing file is never overwritten: of several processes that create one file, one succeeds.
    pub fn create_file(path: impl AsRef<Path>) -> Result<Key> {
        let (path, mut key) = (path.as_ref(), Key::from_os()?);
        let mut line = Secret::zeroed(65);
        write_hex(&key.bytes, &mut line[..64]);
        line[64] = b'\n';
        file::create_new(path, file::Access::Owner, &line).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                let path = path.display();
                Error::Key(format!("{path} exists: read it with from_file, or choose another name"))
            }
            _ => Error::io("write key", path)(error),
        })?;
        key.ledger = Place::beside(path);
        Ok(key)
    }

    /// A key from 32 bytes that the caller keeps secret and that come from a good generator. Every run of a plan under
    /// this key needs a `run_id` of its own: two runs with the same id make the same noise.
    pub fn from_bytes(bytes: [u8; 32], run_id: impl Into<String>) -> Key {
        Key { bytes: Secret::copy_of(&bytes), run_id: run_id.into(), ledger: Place::Nowhere }
    }

    /// A key from 64 hexadecimal digits, with the duties of [`Key::from_bytes`].
    pub fn from_hex(text: &str, run_id: impl Into<String>) -> Result<Key> {
        // The text is not repeated in the error: it may be a key with a typing mistake.
        let refuse = || Error::Key(format!("{} characters: expected 64 hexadecimal digits", text.len()));
        let bytes = read_hex(text.as_bytes()).ok_or_else(refuse)?;
        Ok(Key { bytes, run_id: run_id.into(), ledger: Place::Nowhere })
    }

    /// A key from a file of 32 raw bytes or 64 hexadecimal digits, with the duties of [`Key::from_bytes`]. A key made by [`Key::create_file`]
    /// belongs to one run, whose id is empty. Warns of a file that others than the owner may read.
    pub fn from_file(path: impl AsRef<Path>, run_id: impl Into<String>) -> Result<Key> {
        let (path, run_id) = (path.as_ref(), run_id.into());
        let fail = || Error::io("read key", path);
        let mut file = std::fs::File::open(path).map_err(fail())?;
        // The file is read into memory for secrets, so that no other copy exists.
        let mut content = Secret::<u8>::zeroed(MAX_FILE + 1);
        let mut len = 0;
        loop {
            match file.read(&mut content[len..]) {
                Ok(0) => break,
                Ok(read) => len += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(fail()(error)),
            }
        }
        let bytes = if len == 32 {
            Some(Secret::copy_of(&content[..32]))
        } else {
            read_hex(content[..len].trim_ascii_end()).filter(|_| len <= MAX_FILE)
        };
        let refuse = || {
            let size = if len > MAX_FILE { format!("more than {MAX_FILE}") } else { len.to_string() };
            let path = path.display();
            Error::Key(format!("{path} has {size} bytes: expected 32 raw bytes or 64 hexadecimal digits"))
        };
        let bytes = bytes.ok_or_else(refuse)?;
        // The warning is for key files alone: who may read any other file does not matter, and its error stays one line.
        warn_of_readers(&file, path);
        Ok(Key { bytes, run_id, ledger: Place::beside(path) })
    }

    /// This key with its ledger in `folder`, which is made if there is none.
    ///
    /// The ledger records which steps of which coordinates every run of the key made, so that a second start is refused. A key
    /// from a file has one in the folder `<file>.ledger`, or in that which the environment variable `CORRNOISE_LEDGER` names;
    /// a key made in memory has none unless it is given one.
    pub fn with_ledger(mut self, folder: impl AsRef<Path>) -> Key {
        self.ledger = Place::folder(folder.as_ref());
        self
    }

    /// This key without a ledger, for noise that is inspected and thrown away: nothing is compared and nothing recorded.
    pub fn without_ledger(mut self) -> Key {
        self.ledger = Place::Nowhere;
        self
    }

    /// A second copy, for whoever must keep a key in case making a mechanism fails. Two mechanisms with one key, plan and run
    /// make the *same* noise: only one of the copies may end in a mechanism, unless they own different coordinates.
    pub fn duplicate(&self) -> Key {
        Key { bytes: self.bytes.clone(), run_id: self.run_id.clone(), ledger: self.ledger.clone() }
    }

    /// The public name of the run.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// This key with its ledger in another place.
    pub(crate) fn with_place(mut self, ledger: Place) -> Key {
        self.ledger = ledger;
        self
    }

    /// The place where runs of this key are recorded.
    pub(crate) fn ledger(&self) -> &Place {
        &self.ledger
    }

    /// The secret bytes, for a checkpoint that was asked to hold them.
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        as_key(&self.bytes)
    }

    /// The ChaCha key of this run of this plan.
    pub fn run_key(&self, plan: Fingerprint) -> RunKey {
        RunKey(derive("corrnoise 2026 run key v1", &[&self.bytes, &plan.0, self.run_id.as_bytes()]))
    }
}

/// Hashes secrets into memory for secrets, and leaves nothing of them on the stack.
pub(crate) fn derive(context: &str, parts: &[&[u8]]) -> Secret<u8> {
    let mut out = Secret::zeroed(32);
    on_clean_stack::<DERIVATION_STACK, _>(|| {
        let mut hasher = blake3::Hasher::new_derive_key(context);
        parts.iter().for_each(|part| {
            hasher.update(part);
        });
        hasher.finalize_xof().fill(&mut out);
    });
    out
}

pub(crate) fn as_key(bytes: &[u8]) -> &[u8; 32] {
    bytes.try_into().expect("a key has 32 bytes")
}

fn write_hex(bytes: &[u8], out: &mut [u8]) {
    for (pair, byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [byte >> 4, byte & 15].map(|digit| if digit < 10 { b'0' + digit } else { b'a' + digit - 10 });
    }
}

/// The 32 bytes that 64 hexadecimal digits stand for; none for any other text.
fn read_hex(text: &[u8]) -> Option<Secret<u8>> {
    let (pairs, rest) = text.as_chunks::<2>();
    if pairs.len() != 32 || !rest.is_empty() {
        return None;
    }
    let mut bytes = Secret::zeroed(32);
    for (byte, pair) in bytes.iter_mut().zip(pairs) {
        for digit in pair {
            *byte = *byte << 4 | char::from(*digit).to_digit(16)? as u8;
        }
    }
    Some(bytes)
}

/// Warns, once, if others than the owner may read a key's file.
fn warn_of_readers(file: &std::fs::File, path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let Ok(found) = file.metadata() else { return };
        if found.is_file() && found.mode() & 0o077 != 0 {
            let (path, mode) = (path.display(), found.mode() & 0o777);
            warning::once(format!(
                "key file {path} has mode {mode:04o}, so others than its owner may use it: chmod 600 {path}"
            ));
        }
    }
    #[cfg(not(unix))]
    let _ = (file, path);
}

/// Fills memory with random bytes of the operating system.
pub(crate) fn os_random(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes)
        .map_err(|error| Error::Key(format!("the operating system gave no randomness: {error}")))
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("run_id", &self.run_id).finish_non_exhaustive()
    }
}

/// The key of one run: the ChaCha key of its noise.
pub struct RunKey(Secret<u8>);

impl RunKey {
    /// A run key from explicit bytes, for known-answer tests and other implementations of the specification.
    pub fn from_bytes(bytes: [u8; 32]) -> RunKey {
        RunKey(Secret::copy_of(&bytes))
    }

    /// The 32 secret bytes of the run key.
    pub fn bytes(&self) -> &[u8; 32] {
        as_key(&self.0)
    }

    /// The key of one incarnation of the run; the first one, whose nonce is empty, uses the run key itself.
    pub(crate) fn incarnation(&self, nonce: &[u8]) -> RunKey {
        if nonce.is_empty() {
            return RunKey(self.0.clone());
        }
        RunKey(derive("corrnoise 2026 incarnation key v1", &[&self.0, nonce]))
    }

    /// A public value that identifies this key and reveals nothing of it.
    pub fn commitment(&self) -> Fingerprint {
        Fingerprint(*as_key(&derive("corrnoise 2026 key commitment v1", &[&self.0])))
    }

    /// The authentication code of a run's checkpoint: a keyed hash of `parts`.
    pub(crate) fn checkpoint_mac(&self, parts: &[&[u8]]) -> blake3::Hash {
        let key = derive("corrnoise 2026 checkpoint key v1", &[&self.0]);
        let mut mac = [0; 32];
        on_clean_stack::<MAC_STACK, _>(|| {
            let mut hasher = blake3::Hasher::new_keyed(as_key(&key));
            parts.iter().for_each(|part| {
                hasher.update(part);
            });
            hasher.finalize_xof().fill(&mut mac);
        });
        mac.into()
    }
}

impl std::fmt::Debug for RunKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Fingerprint = Fingerprint([9; 32]);

    #[test]
    fn key_plan_and_run_each_change_the_run_key() {
        let base = || Key::from_bytes([1; 32], "a");
        let keys = [
            base().run_key(PLAN),
            Key::from_bytes([1; 32], "b").run_key(PLAN),
            base().run_key(Fingerprint([8; 32])),
            Key::from_bytes([2; 32], "a").run_key(PLAN),
            base().run_key(PLAN).incarnation(&[1; 16]),
            base().run_key(PLAN).incarnation(&[2; 16]),
        ];
        for (i, first) in keys.iter().enumerate() {
            for second in &keys[..i] {
                assert_ne!(first.bytes(), second.bytes());
                assert_ne!(first.commitment(), second.commitment());
            }
        }
        assert_eq!(base().run_key(PLAN).bytes(), keys[0].bytes());
        assert_eq!(base().run_key(PLAN).incarnation(&[]).bytes(), keys[0].bytes());
        assert_ne!(
            Key::from_os().unwrap().run_key(PLAN).bytes(),
            Key::from_os().unwrap().run_key(PLAN).bytes()
        );
    }

    #[test]
    fn nothing_prints_a_key() {
        let key = Key::from_bytes([0xab; 32], "r");
        let shown = format!("{key:?} {:?}", key.run_key(PLAN));
        assert!(!shown.contains("171") && !shown.to_lowercase().contains("abab"), "{shown}");
    }

    #[test]
    fn key_files_hold_raw_bytes_or_hex() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let bytes: [u8; 32] = std::array::from_fn(|i| (i * 7) as u8);
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(*Key::from_file(&path, "r").unwrap().bytes(), bytes);
        std::fs::write(&path, format!("{}\n", Fingerprint(bytes))).unwrap();
        assert_eq!(*Key::from_file(&path, "r").unwrap().bytes(), bytes);
        std::fs::write(&path, b"secret but short").unwrap();
        let message = Key::from_file(&path, "r").unwrap_err().to_string();
        assert!(message.contains("16 bytes") && !message.contains("secret but"), "{message}");
        assert!(Key::from_hex(&"é".repeat(32), "r").is_err());
        assert!(Key::create_file(&path).unwrap_err().to_string().contains("exists"));
        let fresh = folder.path().join("fresh");
        let made = Key::create_file(&fresh).unwrap();
        assert_eq!(Key::from_file(&fresh, "").unwrap().bytes(), made.bytes());
    }

    /// Runs are bound to these derivations: a change here changes all noise. The values come from the Python package `blake3`.
    #[test]
    fn derivations_are_pinned() {
        let run_key = Key::from_bytes([1; 32], "run").run_key(PLAN);
        let hex = |key: &RunKey| Fingerprint(*key.bytes()).to_string();
        assert_eq!(hex(&run_key), "f82f14932f3c9a29984502fe7b2b1b6fc1b2575eda10b87aee07e1331cfa09f4");
        assert_eq!(
            hex(&run_key.incarnation(&[5; 16])),
            "28b19f2240f1ed3167fd13f32a9fb8930d01eee5812158af47e297bf565d7071"
        );
        assert_eq!(
            run_key.commitment().to_string(),
            "17d53e390f7607e5637fb8dce1802aba5bcd193cb77650160d6976b8af264d1b"
        );
    }
}
