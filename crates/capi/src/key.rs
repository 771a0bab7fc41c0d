//! Keys: 32 secret bytes and the name of a run.

use crate::argument::{OutHandle, borrow, free, path, text};
use crate::status::{Failure, Outcome, Status, entry};
use corrnoise::secret::on_clean_stack;
use corrnoise::{Error, Key};
use std::ffi::c_char;
use std::sync::Mutex;

/// The bytes of stack that copying a caller's key may use.
const COPY_STACK: usize = 4 << 10;

/// 32 secret bytes and the public name of the run that uses them. They are wiped when the key is freed.
///
/// A key serves one mechanism: two of them with the same key, plan and run would make the same noise. Once a mechanism was made
/// with it the handle is empty, and has only to be freed; if making one fails, the key is still there.
pub struct KeyHandle(Mutex<Option<Key>>);

impl KeyHandle {
    fn new(key: Key) -> KeyHandle {
        KeyHandle(Mutex::new(Some(key)))
    }

    /// Shows the key to `look`, which makes no noise of it. Once a mechanism has the key, there is nothing to see.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Key) -> corrnoise::Result<T>) -> Outcome<T> {
        let Ok(slot) = self.0.try_lock() else { return Err(Failure::Busy) };
        let Some(key) = slot.as_ref() else {
            let reason = "a mechanism has it: make the sampler first, or load the key again";
            return Err(Error::Key(reason.into()).into());
        };
        Ok(look(key)?)
    }

    /// Hands a copy of the key to `make`, and empties this handle if that succeeds.
    pub(crate) fn spend<T>(&self, make: impl FnOnce(Key) -> corrnoise::Result<T>) -> Outcome<T> {
        let Ok(mut slot) = self.0.try_lock() else { return Err(Failure::Busy) };
        let Some(key) = slot.as_ref() else {
            return Err(Error::Key("it already serves a mechanism: load or make another".into()).into());
        };
        let made = make(key.duplicate())?;
        *slot = None;
        Ok(made)
    }
}

/// A fresh key from the operating system, kept nowhere else: a run with it cannot be resumed after this process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_key_from_os(out: *mut *mut KeyHandle) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let out = unsafe { OutHandle::new(out) }?;
        out.put(KeyHandle::new(Key::from_os()?));
        Ok(())
    })
}

/// A fresh key that is also written to a new file, which only the owner may read. Refuses to overwrite a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_key_create_file(file: *const c_char, out: *mut *mut KeyHandle) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (out, file) = unsafe { (OutHandle::new(out)?, path(file, "file")?) };
        out.put(KeyHandle::new(Key::create_file(file)?));
        Ok(())
    })
}

/// The key in a file of 32 raw bytes or 64 hexadecimal digits. For a file made by corrnoise_key_create_file() the run id is "".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_key_from_file(
    file: *const c_char,
    run_id: *const c_char,
    out: *mut *mut KeyHandle,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (out, file) = unsafe { (OutHandle::new(out)?, path(file, "file")?) };
        // SAFETY: the crate's contract.
        let run_id = unsafe { text(run_id, "run_id") }?;
        out.put(KeyHandle::new(Key::from_file(file, run_id)?));
        Ok(())
    })
}

/// A key from 32 bytes of a good generator, which are yours to keep secret and to wipe. Every run of a plan under one key needs
/// a run id of its own: two runs with the same id make the same noise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_key_from_bytes(
    bytes: *const u8,
    run_id: *const c_char,
    out: *mut *mut KeyHandle,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract; 32 bytes are what the function's text asks for.
        let (out, bytes) = unsafe { (OutHandle::new(out)?, borrow(bytes.cast::<[u8; 32]>(), "bytes")?) };
        // SAFETY: the crate's contract.
        let run_id = unsafe { text(run_id, "run_id") }?;
        // The bytes pass through the stack, which is wiped afterwards.
        let key = on_clean_stack::<COPY_STACK, _>(|| Key::from_bytes(*bytes, run_id));
        out.put(KeyHandle::new(key));
        Ok(())
    })
}

/// Puts the ledger of a key into `folder`, which is made if there is none. The ledger records which noise was made, so that a second
/// start is refused. A key from a file has one in the folder `<file>.ledger`, or in that which the environment variable CORRNOISE_LEDGER
/// names; a key made in memory has none without this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_key_set_ledger(key: *mut KeyHandle, folder: *const c_char) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (key, folder) = unsafe { (borrow(key, "key")?, path(folder, "folder")?) };
        let Ok(mut slot) = key.0.try_lock() else { return Err(Failure::Busy) };
        let Some(own) = slot.take() else {
            return Err(Error::Key("it already serves a mechanism: load or make another".into()).into());
        };
        *slot = Some(own.with_ledger(folder));
        Ok(())
    })
}

/// Wipes and frees a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_key_free(key: *mut KeyHandle) {
    // SAFETY: the crate's contract.
    unsafe { free(key) }
}
