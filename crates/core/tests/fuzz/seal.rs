//! The checkpoint format as its documentation gives it, read and sealed without the library.

use corrnoise_core::RunKey;
use serde_json::Value;
use std::ops::Range;

const SECTION: usize = 1 << 16;

/// The header of a file and where its data begins.
pub(crate) fn header(bytes: &[u8]) -> Option<(Value, usize)> {
    let len = usize::try_from(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?)).ok()?;
    let end = len.checked_add(8)?;
    Some((serde_json::from_slice(bytes.get(8..end)?).ok()?, end))
}

/// The metadata of a checkpoint's header.
pub(crate) fn info(header: &Value) -> Option<Value> {
    serde_json::from_str(header["__metadata__"]["corrnoise"].as_str()?).ok()
}

/// The place of a tensor in a file.
pub(crate) fn place(bytes: &[u8], tensor: &str) -> Option<Range<usize>> {
    let (header, data) = header(bytes)?;
    let offsets = header.get(tensor)?.get("data_offsets")?.as_array()?;
    let at = |i: usize| data.checked_add(usize::try_from(offsets.get(i)?.as_u64()?).ok()?);
    let place = at(0)?..at(1)?;
    bytes.get(place.clone()).map(|_| place)
}

/// A file of this header and this data.
pub(crate) fn assemble(header: &[u8], data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header, data].concat()
}

/// Recomputes hashes and MAC as the owner of the key would for the file's content, as far as its shape allows.
pub(crate) fn seal(bytes: &mut [u8], key: &RunKey) -> Option<()> {
    let (header, data) = header(bytes)?;
    let (state, hashes) = (place(bytes, "state")?, place(bytes, "block_hashes")?);
    let value = if header["state"]["dtype"] == "BF16" { 2 } else { 4 };
    let coords = usize::try_from(header["state"]["shape"].get(1)?.as_u64()?).ok()?;
    let slot = coords.checked_mul(value).filter(|bytes| *bytes > 0)?;
    let made: Vec<u8> = bytes[state]
        .chunks(slot)
        .flat_map(|slot| slot.chunks(SECTION * value).flat_map(|section| *blake3::hash(section).as_bytes()))
        .collect();
    if made.len() == hashes.len() {
        bytes[hashes.clone()].copy_from_slice(&made);
    }
    let stored = place(bytes, "key").unwrap_or(0..0);
    let mut hasher =
        blake3::Hasher::new_keyed(&blake3::derive_key("corrnoise 2026 checkpoint key v1", key.bytes()));
    hasher
        .update(&(data as u64).to_le_bytes())
        .update(&bytes[..data])
        .update(&bytes[hashes])
        .update(&bytes[stored]);
    let mac = place(bytes, "mac").filter(|mac| mac.len() == 32)?;
    bytes[mac].copy_from_slice(hasher.finalize().as_bytes());
    Some(())
}
