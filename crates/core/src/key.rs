//! Secrets: the user's key, and the run key derived from it.

use crate::error::{Error, Result};
use crate::file::{Access, write_atomically};
use crate::plan::Fingerprint;
use std::path::Path;
use zeroize::Zeroizing;

/// 32 secret bytes and the public name of the run that uses them.
///
/// # Guarantees
/// Wiped when dropped; never printed nor logged, and copied by [`Key::duplicate`] alone. Noise depends on the key, the plan and the run's name: one key
/// serves two plans, or two runs of one plan *under different names*, without ever repeating noise.
pub struct Key {
    bytes: Zeroizing<[u8; 32]>,
    run_id: String,
}

impl Key {
    /// A fresh key from the operating system: what to use unless a run must be reproducible.
    pub fn from_os() -> Result<Key> {
        Ok(Key { bytes: Zeroizing::new(os_random()?), run_id: String::new() })
    }

    /// A fresh key that is also written to a new file, which only the owner may read: what to use for a run that may have
    /// to be resumed. Refuses to overwrite a file.
    pub fn create_file(path: impl AsRef<Path>) -> Result<Key> {
        let (path, key) = (path.as_ref(), Key::from_os()?);
        if path.exists() {
            return Err(Error::Key(format!(
                "{} exists: read it with from_file, or choose another name",
                path.display()
            )));
        }
        write_atomically(path, Access::Owner, |file| {
            let line = Zeroizing::new(format!("{}\n", *key.to_hex()));
            std::io::Write::write_all(file, line.as_bytes()).map_err(Error::io("write key", path))
        })?;
        Ok(key)
    }

    /// A key from 32 bytes that the caller keeps secret and that come from a good generator. Every run of a plan under
    /// this key needs a `run_id` of its own: two runs with the same id make the same noise.
    pub fn from_bytes(bytes: [u8; 32], run_id: impl Into<String>) -> Key {
        Key { bytes: Zeroizing::new(bytes), run_id: run_id.into() }
    }

    /// As [`Key::from_bytes`], from 64 hexadecimal digits.
    pub fn from_hex(text: &str, run_id: impl Into<String>) -> Result<Key> {
        // The text is not repeated in the error: it may be a key with a typing mistake.
        let refuse = || Error::Key(format!("{} characters: expected 64 hexadecimal digits", text.len()));
        if text.len() != 64 || !text.bytes().all(|c| c.is_ascii_hexdigit()) {
            return Err(refuse());
        }
        let mut bytes = Zeroizing::new([0; 32]);
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| refuse())?;
        }
        Ok(Key { bytes, run_id: run_id.into() })
    }

    /// As [`Key::from_bytes`], from a file of 32 raw bytes or 64 hexadecimal digits. A key made by [`Key::create_file`]
    /// belongs to one run, whose id is empty.
    pub fn from_file(path: impl AsRef<Path>, run_id: impl Into<String>) -> Result<Key> {
        let (path, run_id) = (path.as_ref(), run_id.into());
        let content = Zeroizing::new(std::fs::read(path).map_err(Error::io("read key", path))?);
        if let Ok(bytes) = content.as_slice().try_into() {
            return Ok(Key::from_bytes(bytes, run_id));
        }
        let refuse = || {
            let len = content.len();
            Error::Key(format!(
                "{} has {len} bytes: expected 32 raw bytes or 64 hexadecimal digits",
                path.display()
            ))
        };
        let text = std::str::from_utf8(&content).map_err(|_| refuse())?;
        Key::from_hex(text.trim_end(), run_id).map_err(|_| refuse())
    }

    /// A second copy, for whoever must keep a key in case making a mechanism fails. Two mechanisms with one key, plan and run
    /// make the *same* noise: only one of the copies may end in a mechanism, unless they own different coordinates.
    pub fn duplicate(&self) -> Key {
        Key { bytes: self.bytes.clone(), run_id: self.run_id.clone() }
    }

    /// The run's name.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The secret bytes.
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// The ChaCha key of this run of this plan.
    pub fn run_key(&self, plan: Fingerprint) -> RunKey {
        let mut hasher = blake3::Hasher::new_derive_key("corrnoise 2026 run key v1");
        hasher.update(&*self.bytes).update(&plan.0).update(self.run_id.as_bytes());
        RunKey(Zeroizing::new(hasher.finalize().into()))
    }

    /// The key as 64 hexadecimal digits, for a checkpoint that was asked to hold it.
    pub(crate) fn to_hex(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(64));
        for byte in *self.bytes {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(digit.into(), 16).expect("a nibble is a digit"));
            }
        }
        text
    }
}

/// Random bytes of the operating system.
pub(crate) fn os_random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::Key(format!("the operating system gave no randomness: {error}")))?;
    Ok(bytes)
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("run_id", &self.run_id).finish_non_exhaustive()
    }
}

/// The key of one run: the ChaCha key of its noise.
pub struct RunKey(Zeroizing<[u8; 32]>);

impl RunKey {
    /// A run key from explicit bytes, for known-answer tests and other implementations of the specification.
    pub fn from_bytes(bytes: [u8; 32]) -> RunKey {
        RunKey(Zeroizing::new(bytes))
    }

    /// The secret bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key of one life of the run; the first one, whose nonce is empty, uses the run key itself.
    pub(crate) fn life(&self, nonce: &[u8]) -> RunKey {
        if nonce.is_empty() {
            return RunKey(self.0.clone());
        }
        let mut hasher = blake3::Hasher::new_derive_key("corrnoise 2026 incarnation key v1");
        hasher.update(&*self.0).update(nonce);
        RunKey(Zeroizing::new(hasher.finalize().into()))
    }

    /// A public value that only this key has.
    pub fn commitment(&self) -> Fingerprint {
        Fingerprint(blake3::derive_key("corrnoise 2026 key commitment v1", &*self.0))
    }

    /// The key that authenticates this run's checkpoints.
    pub(crate) fn checkpoint_key(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(blake3::derive_key("corrnoise 2026 checkpoint key v1", &*self.0))
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
            base().run_key(PLAN).life(&[1; 16]),
            base().run_key(PLAN).life(&[2; 16]),
        ];
        for (i, first) in keys.iter().enumerate() {
            for second in &keys[..i] {
                assert_ne!(first.bytes(), second.bytes());
                assert_ne!(first.commitment(), second.commitment());
            }
        }
        assert_eq!(base().run_key(PLAN).bytes(), keys[0].bytes());
        assert_eq!(base().run_key(PLAN).life(&[]).bytes(), keys[0].bytes());
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
        let key = Key::from_bytes(bytes, "");
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(*Key::from_file(&path, "r").unwrap().bytes, bytes);
        std::fs::write(&path, format!("{}\n", *key.to_hex())).unwrap();
        assert_eq!(*Key::from_file(&path, "r").unwrap().bytes, bytes);
        std::fs::write(&path, b"secret but short").unwrap();
        let message = Key::from_file(&path, "r").unwrap_err().to_string();
        assert!(message.contains("16 bytes") && !message.contains("secret but"), "{message}");
        assert!(Key::from_hex(&"é".repeat(32), "r").is_err());
        assert!(Key::create_file(&path).unwrap_err().to_string().contains("exists"));
        let fresh = folder.path().join("fresh");
        let made = Key::create_file(&fresh).unwrap();
        assert_eq!(*Key::from_file(&fresh, "").unwrap().bytes, *made.bytes);
    }

    /// Runs are bound to these derivations: a change here changes all noise. Values from the Python package `blake3`.
    #[test]
    fn derivations_are_pinned() {
        let run_key = Key::from_bytes([1; 32], "run").run_key(PLAN);
        let hex = |key: &RunKey| Fingerprint(*key.bytes()).to_string();
        assert_eq!(hex(&run_key), "f82f14932f3c9a29984502fe7b2b1b6fc1b2575eda10b87aee07e1331cfa09f4");
        assert_eq!(
            hex(&run_key.life(&[5; 16])),
            "28b19f2240f1ed3167fd13f32a9fb8930d01eee5812158af47e297bf565d7071"
        );
        assert_eq!(
            run_key.commitment().to_string(),
            "17d53e390f7607e5637fb8dce1802aba5bcd193cb77650160d6976b8af264d1b"
        );
    }
}
