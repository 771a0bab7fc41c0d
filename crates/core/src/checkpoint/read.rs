//! Reading a checkpoint, whole or in part; truncated, corrupted and foreign files are refused.

use super::source::Source;
use super::{ENTRY, Head, IN_MEMORY, Info, SECTION, VERSION, mac};
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::form::STATE_BYTES;
use crate::key::{Key, RunKey};
use crate::layout::Shard;
use crate::ledger::Place;
use crate::plan::Plan;
use safetensors::tensor::{Dtype as StoredType, Metadata, TensorInfo};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The longest header that is accepted; the library writes none of that size.
const MAX_HEADER: u64 = 100_000_000;

/// An open checkpoint. Opening checks its shape; content is checked against the key when it is read.
pub struct Checkpoint {
    /// The path for messages; [`IN_MEMORY`] if there is no file.
    path: PathBuf,
    source: Source,
    header: Vec<u8>,
    info: Info,
    shape: Shape,
}

/// The shapes of the tensors, after they were checked.
#[derive(Clone, Copy)]
struct Shape {
    slots: usize,
    coords: u64,
    has_key: bool,
}

/// A run of coordinates that a file and a shard have in common, numbered within each.
struct Run {
    from: u64,
    to: u64,
    len: u64,
}

/// The last section read, and which of the file's sections it is.
struct Section {
    bytes: Zeroizing<Vec<u8>>,
    at: Option<u64>,
}

impl Checkpoint {
    /// Opens a file and checks that it is a whole checkpoint of a version this library reads.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        let path = path.as_ref();
        let file = File::open(path).map_err(Error::io("open checkpoint", path))?;
        Checkpoint::parse(path, Source::File(file))
    }

    /// Opens the bytes that [`crate::Mechanism::state`] gave, or those of a file. They are wiped when this is dropped.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Checkpoint> {
        Checkpoint::parse(Path::new(IN_MEMORY), Source::Memory(Zeroizing::new(bytes)))
    }

    fn parse(path: &Path, source: Source) -> Result<Checkpoint> {
        let refuse = |reason: String| Error::Checkpoint { path: path.to_owned(), reason };
        let foreign = || refuse("not a safetensors file of this library".into());
        let size = source.len().map_err(Error::io("read checkpoint", path))?;
        let mut length = [0; 8];
        source.read_at(0, &mut length).map_err(|_| foreign())?;
        let json_len = u64::from_le_bytes(length);
        if json_len > MAX_HEADER {
            return Err(foreign());
        }
        if json_len + 8 > size {
            return Err(refuse(format!("truncated: {size} bytes, the header alone has {}", json_len + 8)));
        }
        let mut header = vec![0; 8 + json_len as usize];
        source.read_at(0, &mut header).map_err(Error::io("read checkpoint", path))?;
        let metadata: Metadata = serde_json::from_slice(&header[8..]).map_err(|_| foreign())?;
        let entry = metadata.metadata().as_ref().and_then(|map| map.get(ENTRY)).ok_or_else(foreign)?;
        // The version comes first: another one may have other entries.
        match serde_json::from_str(entry) {
            Ok(Head { version }) if version < VERSION => {
                return Err(refuse(format!(
                    "it was written by version {version}, whose noise this library (version {VERSION}) does not make: \
                     begin the run anew, with a plan of `corrnoise plan`"
                )));
            }
            Ok(Head { version }) if version > VERSION => {
                return Err(refuse(format!("format version {version}: this library reads {VERSION}")));
            }
            _ => {}
        }
        let info: Info =
            serde_json::from_str(entry).map_err(|error| refuse(format!("its metadata: {error}")))?;
        let expected = header.len() as u64 + metadata.data_len() as u64;
        if size != expected {
            let verdict = if size < expected { "truncated" } else { "followed by foreign bytes" };
            return Err(refuse(format!("{verdict}: {size} bytes, expected {expected}")));
        }
        if let Some(state) = metadata.info("state").filter(|state| state.dtype != StoredType::F32) {
            return Err(refuse(format!("its state is {:?}: expected F32", state.dtype)));
        }
        let shape =
            shape(&metadata, &info).ok_or_else(|| refuse("its tensors have the wrong shape".into()))?;
        Ok(Checkpoint { path: path.to_owned(), source, header, info, shape })
    }

    /// The number of the step that comes next.
    pub fn next_step(&self) -> u64 {
        self.info.next_step
    }

    /// The fingerprint of the plan that the checkpoint belongs to, in hexadecimal.
    pub fn plan_fingerprint(&self) -> &str {
        &self.info.plan
    }

    /// The name of the run.
    pub fn run_id(&self) -> &str {
        &self.info.run_id
    }

    /// The coordinates that the checkpoint holds.
    pub fn segments(&self) -> impl Iterator<Item = Range<u64>> {
        self.info.segments.iter().map(|(start, end)| *start..*end)
    }

    /// The key, if the file was asked to hold it. Resuming checks whether it is the key that the file was made under.
    pub fn key(&self) -> Result<Option<Key>> {
        if !self.shape.has_key {
            return Ok(None);
        }
        let at = self.shape.hashes_at() + self.shape.sections() * 32;
        let key = Key::filled(self.info.run_id.clone(), |bytes| self.read_at(at, bytes))?;
        let place = match &self.info.ledger {
            Some(folder) => Place::Beside(folder.clone()),
            None if self.path == Path::new(IN_MEMORY) => Place::Nowhere,
            None => Place::beside(&self.path),
        };
        Ok(Some(key.with_place(place)))
    }

    pub(crate) fn info(&self) -> &Info {
        &self.info
    }

    pub(crate) fn refuse(&self, reason: impl Into<String>) -> Error {
        Error::Checkpoint { path: self.path.clone(), reason: reason.into() }
    }

    /// Refuses a checkpoint of another plan, key, space or form.
    pub(crate) fn check(&self, plan: &Plan, key: &RunKey, shard: &Shard) -> Result<()> {
        if self.info.plan != plan.fingerprint().to_string() {
            return Err(self.refuse(format!(
                "it belongs to plan {}, not to {}",
                self.info.plan,
                plan.fingerprint()
            )));
        }
        if self.info.key_commitment != key.commitment().to_string() {
            return Err(self.refuse(format!(
                "it was made under another key or run id (its run id is {:?})",
                self.info.run_id
            )));
        }
        if self.info.space != shard.space().to_string() {
            return Err(self.refuse(format!("its layout is {}, not {}", self.info.space, shard.space())));
        }
        if self.shape.slots != plan.form().num_slots() {
            return Err(self.refuse("its state does not have the plan's shape"));
        }
        if self.info.next_step > plan.num_steps() {
            return Err(self.refuse(format!("its step {} is past the plan's end", self.info.next_step)));
        }
        Ok(())
    }

    /// The authenticated section hashes.
    pub(crate) fn section_hashes(&self, key: &RunKey) -> Result<Vec<u8>> {
        // Hashes, the key if there is one, and the MAC follow one another.
        let hashes = self.shape.sections() as usize * 32;
        let key_end = hashes + if self.shape.has_key { 32 } else { 0 };
        let mut bytes = Zeroizing::new(vec![0; key_end + 32]);
        self.read_at(self.shape.hashes_at(), &mut bytes)?;
        let stored: [u8; 32] = bytes[key_end..].try_into().expect("32 bytes");
        let expected = mac(key, &self.header, &bytes[..hashes], &bytes[hashes..key_end]);
        match expected == blake3::Hash::from_bytes(stored) {
            true => Ok(bytes[..hashes].to_vec()),
            false => {
                Err(self.refuse("corrupted: its header, hashes or key were changed after it was written"))
            }
        }
    }

    /// Copies what this file holds of `shard` into the backend; returns the coordinates that it gave, numbered within the shard.
    pub(crate) fn restore(
        &self,
        section_hashes: &[u8],
        shard: &Shard,
        backend: &mut impl Backend,
    ) -> Result<Vec<Range<u64>>> {
        let runs = self.runs(shard);
        let len = SECTION.min(self.shape.coords) as usize * STATE_BYTES;
        let mut section = Section { bytes: Zeroizing::new(vec![0; len]), at: None };
        for slot in 0..self.shape.slots {
            for run in &runs {
                self.copy(&mut section, section_hashes, slot, run, backend)?;
            }
        }
        Ok(runs.iter().map(|run| run.to..run.to + run.len).collect())
    }

    /// The runs of coordinates that file and shard have in common, ascending. Both ascend, so that one pass over the two is enough.
    fn runs(&self, shard: &Shard) -> Vec<Run> {
        let mut runs = Vec::new();
        let (mut held, mut wanted) = (self.segments().peekable(), shard.segments().iter().peekable());
        let (mut from, mut to) = (0, 0);
        while let (Some(own), Some(theirs)) = (held.peek(), wanted.peek()) {
            let common = own.start.max(theirs.start)..own.end.min(theirs.end);
            if common.start < common.end {
                runs.push(Run {
                    from: from + common.start - own.start,
                    to: to + common.start - theirs.start,
                    len: common.end - common.start,
                });
            }
            if own.end <= theirs.end {
                from += own.end - own.start;
                held.next();
            } else {
                to += theirs.end - theirs.start;
                wanted.next();
            }
        }
        runs
    }

    /// Copies a run of one slot, section by section, each checked before it is used. Runs ascend, so that a section is read once
    /// however many small tensors it holds.
    fn copy(
        &self,
        section: &mut Section,
        hashes: &[u8],
        slot: usize,
        run: &Run,
        backend: &mut impl Backend,
    ) -> Result<()> {
        let (coords, size) = (self.shape.coords, STATE_BYTES as u64);
        for number in run.from / SECTION..(run.from + run.len).div_ceil(SECTION) {
            let held = number * SECTION..((number + 1) * SECTION).min(coords);
            let index = slot as u64 * coords.div_ceil(SECTION) + number;
            if section.at != Some(index) {
                let bytes = &mut section.bytes[..((held.end - held.start) * size) as usize];
                self.read_at((slot as u64 * coords + held.start) * size, bytes)?;
                if blake3::hash(bytes).as_bytes() != &hashes[index as usize * 32..index as usize * 32 + 32] {
                    return Err(
                        self.refuse(format!("corrupted: slot {slot}, coordinates {held:?} of the file"))
                    );
                }
                section.at = Some(index);
            }
            let used = held.start.max(run.from)..held.end.min(run.from + run.len);
            let part = ((used.start - held.start) * size) as usize..((used.end - held.start) * size) as usize;
            backend.write_state(slot, run.to + used.start - run.from, &section.bytes[part])?;
        }
        Ok(())
    }

    /// Reads bytes from `offset`, counted from the end of the header.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let read = self.source.read_at(self.header.len() as u64 + offset, bytes);
        read.map_err(Error::io("read checkpoint", &self.path))
    }
}

impl Shape {
    /// How many section hashes there are.
    fn sections(&self) -> u64 {
        self.slots as u64 * self.coords.div_ceil(SECTION)
    }

    /// The offset of the section hashes, counted from the end of the header.
    fn hashes_at(&self) -> u64 {
        self.slots as u64 * self.coords * STATE_BYTES as u64
    }
}

/// The shape of the tensors, if they are exactly those that [`super::write()`] makes for `info`.
fn shape(metadata: &Metadata, info: &Info) -> Option<Shape> {
    let tensors = metadata.tensors();
    let state = tensors.get("state")?;
    let [slots, coords] = state.shape[..] else { return None };
    let sections = slots.checked_mul((coords as u64).div_ceil(SECTION) as usize)?;
    let mut end = state.data_offsets.1;
    let mut follows = |name: &str, shape: &[usize]| {
        let fits = |tensor: &TensorInfo| {
            tensor.dtype == StoredType::U8 && tensor.shape == shape && tensor.data_offsets.0 == end
        };
        let tensor = tensors.get(name).filter(|tensor| fits(tensor))?;
        end = tensor.data_offsets.1;
        Some(())
    };
    let has_key = tensors.contains_key("key");
    follows("block_hashes", &[sections, 32])?;
    if has_key {
        follows("key", &[32])?;
    }
    follows("mac", &[32])?;
    let fits = tensors.len() == 3 + usize::from(has_key)
        && info.num_coords()? == coords as u64
        && state.data_offsets.0 == 0;
    fits.then_some(Shape { slots, coords: coords as u64, has_key })
}
