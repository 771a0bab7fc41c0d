//! Changes of a ledger's folder.

use super::made::{NONCES, Runs, hex};
use super::truth::{count, prefix};
use crate::Random;
use crate::edit::{change as change_json, damaged, flipped};
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// An entry of the folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Entry {
    File(Vec<u8>),
    Folder,
    Fifo,
    Link(PathBuf),
}

impl Entry {
    pub(super) fn make(&self, path: &Path) {
        use rustix::fs::{CWD, FileType, mknodat};
        match self {
            Entry::File(bytes) => std::fs::write(path, bytes).unwrap(),
            Entry::Folder => std::fs::create_dir(path).unwrap(),
            Entry::Fifo => mknodat(CWD, path, FileType::Fifo, 0o600.into(), 0).unwrap(),
            Entry::Link(target) => std::os::unix::fs::symlink(target, path).unwrap(),
        }
    }
}

type Entries = Vec<(OsString, Entry)>;

/// Changes one thing in the folder.
pub(super) fn change(random: &mut Random, runs: &Runs, entries: &mut Entries) {
    let at = random.below(entries.len().max(1));
    let name = name(random, runs);
    let others: Vec<Vec<u8>> = entries.iter().filter_map(|(_, entry)| bytes(entry)).collect();
    match random.below(12) {
        0 => add(random, entries, name, random_entry),
        1 => lock(random, entries),
        _ if entries.is_empty() => {}
        2 => drop(entries.remove(at)),
        3 => {
            let (_, entry) = entries.remove(at);
            add(random, entries, name, |_, _| entry);
        }
        4 => {
            let entry = entries[at].1.clone();
            add(random, entries, name, |_, _| entry);
        }
        5 if entries[at].0 != "lock" => entries[at].1 = random_entry(random, entries),
        _ => {
            if let Entry::File(bytes) = &mut entries[at].1 {
                *bytes = edited(random, std::mem::take(bytes), &others);
            }
        }
    }
}

fn bytes(entry: &Entry) -> Option<Vec<u8>> {
    match entry {
        Entry::File(bytes) => Some(bytes.clone()),
        _ => None,
    }
}

/// Adds an entry, unless its name is taken.
fn add(
    random: &mut Random,
    entries: &mut Entries,
    name: OsString,
    entry: impl FnOnce(&mut Random, &Entries) -> Entry,
) {
    let entry = entry(random, entries);
    if entries.iter().all(|(taken, _)| *taken != name) {
        entries.push((name, entry));
    }
}

/// Changes the folder's lock: any file that can be opened serves as one.
fn lock(random: &mut Random, entries: &mut Entries) {
    entries.retain(|(name, _)| name != "lock");
    let choices = [Entry::Folder, Entry::Fifo, Entry::File(b"junk".to_vec()), Entry::Link("lock".into())];
    if random.below(3) > 0 {
        entries.push(("lock".into(), random.pick(&choices).clone()));
    }
}

/// A name of a claim of some run and incarnation, or nearly one, or none at all.
fn name(random: &mut Random, runs: &Runs) -> OsString {
    let incarnations = ["first".to_owned(), hex(&NONCES[0]), hex(&NONCES[1]), hex(&NONCES[2]), "".into()];
    let prefix = prefix(&runs.commitment(random.below(2)), random.pick::<String>(&incarnations));
    let foreign = ["notes.txt", ".claim", "claim", "x.claim", ".DS_Store", "x.half-made"];
    match random.below(12) {
        0 => random.pick(&foreign).into(),
        1 => format!("{prefix}{:016x}.half-made", random.below(9)).into(),
        2 => format!("{prefix}{:016x}", random.below(9)).into(),
        3 => format!("{}x.claim", prefix.to_uppercase()).into(),
        4 => format!("{}.claim", &prefix[..prefix.len() - 1 - random.below(9)]).into(),
        5 => format!("{prefix}.claim").into(),
        6 => OsString::from_vec([prefix.as_bytes(), b"\xff\xfe.claim"].concat()),
        7 => format!("{prefix}copy of é (1).claim").into(),
        _ => format!("{prefix}{:016x}.claim", 1000 + random.below(9)).into(),
    }
}

/// An entry that is not a claim, or leads to one.
fn random_entry(random: &mut Random, entries: &Entries) -> Entry {
    let target = |random: &mut Random| random.pick(entries).0.clone().into();
    match random.below(8) {
        0 => Entry::File(Vec::new()),
        1 => Entry::Folder,
        2 => Entry::Fifo,
        3 => Entry::Link("nothing/there".into()),
        4 => Entry::Link("/dev/zero".into()),
        5 => Entry::Link("/dev/null".into()),
        6 if !entries.is_empty() => Entry::Link(target(random)),
        _ => Entry::File((0..random.below(9000)).map(|_| random.word() as u8).collect()),
    }
}

/// Changes the bytes of a claim.
fn edited(random: &mut Random, mut bytes: Vec<u8>, others: &[Vec<u8>]) -> Vec<u8> {
    match random.below(8) {
        0 => damaged(random, bytes),
        1 => {
            let other = random.pick(others);
            let (from, to) = (random.below(200), random.below(200));
            let part: Vec<u8> = other.iter().skip(from).take(random.below(200)).copied().collect();
            bytes.resize(bytes.len().max(to + part.len()), 0);
            bytes[to..to + part.len()].copy_from_slice(&part);
            bytes
        }
        2 | 3 => {
            let near = bytes.get(64..72).map_or(0, |word| u64::from_le_bytes(word.try_into().unwrap()));
            let counts = [0, 1, 2, 3, 5, 6, 1 << 40, (1 << 41) - 1].map(count);
            let words =
                [0, u64::MAX, near ^ 1 << 23, near ^ 1, near.swap_bytes(), near.wrapping_add(1 << 23)];
            let word = if random.below(2) == 0 { *random.pick(&counts) } else { *random.pick(&words) };
            if let Some(place) = bytes.get_mut(64..72) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            bytes
        }
        _ => described_anew(random, &bytes).unwrap_or(bytes),
    }
}

/// Edits the description, with its BLAKE3 recomputed or left as it was.
fn described_anew(random: &mut Random, bytes: &[u8]) -> Option<Vec<u8>> {
    let len = usize::try_from(u64::from_le_bytes(bytes.get(128..136)?.try_into().ok()?)).ok()?;
    let mut json = bytes.get(168..168_usize.checked_add(len)?)?.to_vec();
    if random.below(4) == 0 {
        // There is no splice: it could repeat a field's name, of which `serde_json` keeps only one value.
        json = flipped(random, json);
    } else {
        let mut value: Value = serde_json::from_slice(&json).ok()?;
        change_json(random, &mut value);
        json = value.to_string().into_bytes();
    }
    let mut hash = bytes[136..168].to_vec();
    if random.below(2) == 0 {
        hash = blake3::hash(&json).as_bytes().to_vec();
    }
    let mut made = [&bytes[..128], &(json.len() as u64).to_le_bytes(), &hash, &json].concat();
    made.resize(made.len().next_multiple_of(4096), 0);
    Some(made)
}
