//! Remarks that a person should read although nothing failed: each kind once per process.

use std::collections::HashSet;
use std::sync::{Mutex, OnceLock, PoisonError};

static HANDLER: OnceLock<fn(&str)> = OnceLock::new();

/// Names who shows warnings, for languages with a channel of their own; standard error shows them otherwise. The first call counts.
pub fn set_handler(handler: fn(&str)) {
    let _ = HANDLER.set(handler);
}

/// Shows a text, unless the same text was shown before.
pub(crate) fn once(text: String) {
    static SHOWN: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if !shown.get_or_insert_default().insert(text.clone()) {
        return;
    }
    drop(shown);
    tracing::warn!("{text}");
    match HANDLER.get() {
        Some(handler) => handler(&text),
        None => eprintln!("corrnoise: warning: {text}"),
    }
}
