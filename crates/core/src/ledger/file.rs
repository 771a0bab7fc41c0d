//! A claim's file.
//!
//! ```text
//! offset 0     16 bytes that name the format
//!        64    the count, little-endian: the step after the last one made (0: none) · 2²³ + 23 check bits
//!       128    length of the JSON, 8 bytes; BLAKE3 of the JSON, 32 bytes; the JSON: whose rows these are
//! ```
//! padded to whole pages. The count is one word, so that it is whole whenever the process dies; its check bits tell a count from
//! damage. The rest is written once, under another name, before the file gets its own.

use super::lock::{OwnFile, open_options};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

pub(super) const MAGIC: &[u8; 16] = b"corrnoise claim1";
pub(super) const COUNT: usize = 64;
pub(super) const HEAD: usize = 128;
/// A description of more than this is not one of ours: a segment takes up to 31 characters.
const MAX_JSON: u64 = 1 << 30;
const CHECK_BITS: u32 = 23;

/// Extension of a claim.
pub(super) const CLAIM: &str = "claim";
/// Extension of a file that is being made.
pub(super) const HALF_MADE: &str = "half-made";
/// Stands for the nonce of the first incarnation, which has none.
pub(super) const FIRST: &str = "first";

/// Whose rows a claim is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rows {
    /// Commitment to the run key, which stands for key, plan and run id.
    pub(super) run: String,
    /// The nonce in hexadecimal, or [`FIRST`].
    pub(super) incarnation: String,
    /// The coordinates as ascending ranges.
    pub(super) segments: Vec<(u64, u64)>,
    /// Other processes add the same rows to the same gradients.
    pub(super) replica: bool,
}

impl Rows {
    /// How names of this run's and incarnation's claims begin. A name needs no more of the commitment than to be rare.
    pub(super) fn prefix(&self) -> String {
        let run = self.run.get(..32).unwrap_or(&self.run);
        format!("{run}-{}-", self.incarnation)
    }

    pub(super) fn is_named_by(&self, path: &Path) -> bool {
        // As bytes: a name that is no text after its prefix still says whose claim it is.
        let name = path.file_name().map(OsStr::as_encoded_bytes);
        path.extension() == Some(OsStr::new(CLAIM))
            && name.is_some_and(|name| name.starts_with(self.prefix().as_bytes()))
    }

    /// The first coordinates in common, if both are of one run and incarnation.
    pub(super) fn overlap(&self, other: &Rows) -> Option<Range<u64>> {
        if (&self.run, &self.incarnation) != (&other.run, &other.incarnation) {
            return None;
        }
        let (mut own, mut others) = (self.segments.iter().peekable(), other.segments.iter().peekable());
        while let (Some(a), Some(b)) = (own.peek(), others.peek()) {
            let common = a.0.max(b.0)..a.1.min(b.1);
            if common.start < common.end {
                return Some(common);
            }
            if a.1 <= b.1 {
                own.next()
            } else {
                others.next()
            };
        }
        None
    }

    pub(super) fn is_replica_of(&self, other: &Rows) -> bool {
        self.replica && self == other
    }
}

/// A claim as its file tells it.
#[derive(Debug)]
pub(super) struct ClaimFile {
    pub(super) rows: Rows,
    next_step: u64,
}

impl ClaimFile {
    /// Reads a claim; the second value says whether its process is alive.
    pub(super) fn open(path: &Path) -> Result<(ClaimFile, bool)> {
        let refuse = |reason: &str| {
            let path = path.display();
            Error::Repeated(format!(
                "the claim {path} is damaged ({reason}), so it is unknown which steps were made: resume with a new incarnation, or \
                 use another run id, or another key"
            ))
        };
        let fail = || Error::io("read the claim", path);
        // Reading a pipe would wait forever, and a link that leads nowhere would look like a claim that was removed.
        if !std::fs::symlink_metadata(path).map_err(fail())?.is_file() {
            return Err(refuse("it is no file"));
        }
        // Some file systems lock only what may be written.
        let file = OwnFile::open(&open_options(), path)
            .or_else(|_| OwnFile::open(OpenOptions::new().read(true), path))
            .map_err(fail())?;
        let alive = !file.try_lock(path)?;
        let claim = ClaimFile::read(&mut file.file()).map_err(&refuse)?;
        match claim.rows.is_named_by(path) {
            true => Ok((claim, alive)),
            false => Err(refuse("its name is another's")),
        }
    }

    /// Parses a file's bytes.
    pub(super) fn read(file: &mut impl Read) -> std::result::Result<ClaimFile, &'static str> {
        let mut head = [0; HEAD + 40];
        file.read_exact(&mut head).map_err(|_| "it is too short")?;
        if head[..16] != *MAGIC {
            return Err("it is no claim of this version");
        }
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        let next_step = decode(word(COUNT)).ok_or("its count")?;
        let length = word(HEAD);
        if length > MAX_JSON {
            return Err("the length of its description");
        }
        let mut json = Vec::new();
        file.take(length).read_to_end(&mut json).map_err(|_| "its description cannot be read")?;
        if json.len() as u64 != length || blake3::hash(&json).as_bytes() != &head[HEAD + 8..] {
            return Err("its description");
        }
        let rows: Rows = serde_json::from_slice(&json).map_err(|_| "its description")?;
        let ascending = rows.segments.iter().all(|(start, end)| start < end)
            && rows.segments.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        if ascending { Ok(ClaimFile { rows, next_step }) } else { Err("its coordinates") }
    }

    /// The step after the last one made; 0 if none was.
    pub(super) fn next_step(&self) -> u64 {
        self.next_step
    }
}

/// The bytes of a claim that has made no step.
pub(super) fn bytes(rows: &Rows) -> Vec<u8> {
    let json = serde_json::to_vec(rows).expect("strings and integers serialise");
    let mut bytes = vec![0; HEAD];
    bytes[..16].copy_from_slice(MAGIC);
    bytes[COUNT..COUNT + 8].copy_from_slice(&encode(0).to_le_bytes());
    bytes.extend_from_slice(&(json.len() as u64).to_le_bytes());
    bytes.extend_from_slice(blake3::hash(&json).as_bytes());
    bytes.extend_from_slice(&json);
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    bytes
}

/// A count with its check bits. A step is less than 2⁴⁰, so 41 bits hold the one after it.
pub(super) fn encode(next_step: u64) -> u64 {
    next_step << CHECK_BITS | check(next_step)
}

/// The count of a word, unless its check bits are others.
pub(super) fn decode(word: u64) -> Option<u64> {
    let next_step = word >> CHECK_BITS;
    (word == encode(next_step)).then_some(next_step)
}

/// The high bits of a product with an odd constant (Knuth's multiplicative hash, 2⁶⁴/φ); never those of a word of zeros.
fn check(next_step: u64) -> u64 {
    (next_step ^ 0x5eed_c1a1_u64 << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - CHECK_BITS)
}
