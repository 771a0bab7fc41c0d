//! Warnings that a person should read although nothing failed: each text is shown once per process.

use std::collections::HashSet;
use std::sync::{Mutex, OnceLock, PoisonError};

static HANDLER: OnceLock<fn(&str)> = OnceLock::new();

/// Sets the function that shows warnings, for languages with a channel of their own; the default is standard error. The first call counts.
pub fn set_handler(handler: fn(&str)) {
    let _ = HANDLER.set(handler);
}

/// Shows a warning, unless the same text was shown before.
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
