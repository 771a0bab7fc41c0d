//! The meaning of a ledger, read without the library.

use super::made::{Attempt, Runs};
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// An intact claim of the folder.
struct Found {
    made: u64,
    description: Value,
    segments: Vec<(u64, u64)>,
}

/// A count with its check bits, as the format has them.
pub(super) fn count(next_step: u64) -> u64 {
    let mixed = (next_step ^ 0x5eed_c1a1_u64 << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    next_step << 23 | mixed >> 41
}

/// The prefix of the names of a run's and incarnation's claims.
pub(super) fn prefix(run: &str, incarnation: &str) -> String {
    format!("{}-{incarnation}-", &run[..run.len().min(32)])
}

fn segments(value: &Value) -> Option<Vec<(u64, u64)>> {
    let pair = |pair: &Value| match pair.as_array()?.as_slice() {
        [start, end] => Some((start.as_u64()?, end.as_u64()?)),
        _ => None,
    };
    let segments: Vec<(u64, u64)> = value.as_array()?.iter().map(pair).collect::<Option<_>>()?;
    let ends: Vec<u64> = segments.iter().flat_map(|(start, end)| [*start, *end]).collect();
    (ends.is_sorted() && segments.iter().all(|(start, end)| start < end)).then_some(segments)
}

/// A claim, if its file is whole and its name is its own.
fn read(path: &Path) -> Option<Found> {
    if !std::fs::symlink_metadata(path).ok()?.is_file() {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let made = word(64)? >> 23;
    let end = 168_usize.checked_add(usize::try_from(word(128)?).ok()?)?;
    let json = bytes.get(168..end)?;
    let right = bytes.starts_with(b"corrnoise claim1")
        && word(64)? == count(made)
        && bytes[136..168] == *blake3::hash(json).as_bytes();
    let description: Value = serde_json::from_slice(json).ok()?;
    let object = description.as_object().filter(|object| right && object.len() == 4)?;
    object.get("replica")?.as_bool()?;
    let own = prefix(object.get("run")?.as_str()?, object.get("incarnation")?.as_str()?);
    if !path.file_name()?.as_bytes().starts_with(own.as_bytes()) {
        return None;
    }
    let segments = segments(object.get("segments")?)?;
    Some(Found { made, description, segments })
}

fn overlap(one: &[(u64, u64)], two: &[(u64, u64)]) -> bool {
    one.iter().any(|a| two.iter().any(|b| a.0.max(b.0) < a.1.min(b.1)))
}

/// Whether a start may be accepted; `alive` are the claims of processes that run.
pub(super) fn allows(runs: &Runs, folder: &Path, alive: &[OsString], attempt: &Attempt) -> bool {
    let Some((first, incarnation)) = runs.first(attempt) else { return true };
    let run = runs.run_of(attempt);
    let own: Vec<(u64, u64)> = attempt.shard.segments().iter().map(|part| (part.start, part.end)).collect();
    let rows = serde_json::json!({
        "run": run, "incarnation": incarnation, "segments": own, "replica": attempt.shard.is_replica()
    });
    let prefix = prefix(&run, &incarnation);
    let named = |name: &OsString| {
        name.as_bytes().starts_with(prefix.as_bytes()) && name.as_bytes().ends_with(b".claim")
    };
    super::names(folder).iter().filter(|name| named(name)).all(|name| {
        let Some(found) = read(&folder.join(name)) else { return false };
        let alive = alive.contains(name);
        let same = found.description["run"] == run.as_str()
            && found.description["incarnation"] == incarnation.as_str();
        let replicas =
            alive && attempt.shard.is_replica() && found.description == rows && found.made <= first + 1;
        !same || !overlap(&own, &found.segments) || replicas || (found.made <= first && !alive)
    })
}

/// Intact claims that count no step: a start may remove them.
pub(super) fn uncounted(folder: &Path) -> Vec<OsString> {
    let none_made = |name: &OsString| read(&folder.join(name)).is_some_and(|found| found.made == 0);
    super::names(folder).into_iter().filter(none_made).collect()
}
