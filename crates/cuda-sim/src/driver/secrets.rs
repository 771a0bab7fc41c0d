//! Secrets that no memory may hold when it is freed, as a test names them.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex};

use super::boundary::lock;

/// The number of bytes of a secret, at a multiple of which it lies.
pub(super) const SECRET: usize = 16;

static SECRETS: LazyLock<Mutex<HashSet<[u8; SECRET]>>> = LazyLock::new(Mutex::default);

/// Adds secrets to those that are looked for.
pub(super) fn add(bytes: &[u8]) {
    lock(&SECRETS).extend(bytes.as_chunks::<SECRET>().0);
}

/// Says where memory that is freed now holds a secret, if it does.
pub(super) fn left_in(memory: &str, bytes: &[u8]) -> Option<String> {
    let secrets = lock(&SECRETS);
    if secrets.is_empty() {
        return None;
    }
    let at = bytes.as_chunks::<SECRET>().0.iter().position(|chunk| secrets.contains(chunk))?;
    Some(format!("{memory} of {} bytes is freed with a secret at +{}", bytes.len(), SECRET * at))
}
