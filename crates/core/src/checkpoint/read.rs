//! Reading a checkpoint, whole or in part, and refusing what is truncated, corrupted or foreign.

use super::{BLOCK, ENTRY, Info, VERSION, mac};
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::form::STATE_BYTES;
use crate::key::{Key, RunKey};
use crate::layout::Shard;
use crate::plan::Plan;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// A header of more than this is not one of ours.
const MAX_HEADER: u64 = 100_000_000;

/// An open checkpoint. Opening checks the file's shape; content is checked against the key when it is read.
pub struct Checkpoint {
    path: PathBuf,
    file: File,
    header: Zeroizing<Vec<u8>>,
    info: Info,
    slots: usize,
    coords: u64,
}

/// Coordinates that a file (numbered within it) and a shard (likewise) have in common.
struct Run {
    from: u64,
    to: u64,
    len: u64,
}

/// The last block read, and which of the file's blocks it is.
struct Block {
    bytes: Vec<u8>,
    at: Option<u64>,
}

impl Checkpoint {
    /// Opens a file and checks that it is a whole checkpoint of a version this library reads.
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        let path = path.as_ref().to_owned();
        let refuse = |reason: String| Error::Checkpoint { path: path.clone(), reason };
        let mut file = File::open(&path).map_err(Error::io("open checkpoint", &path))?;
        let size = file.metadata().map_err(Error::io("read checkpoint", &path))?.len();
        let mut length = [0; 8];
        let foreign = || refuse("not a safetensors file of this library".into());
        file.read_exact(&mut length).map_err(|_| foreign())?;
        let json_len = u64::from_le_bytes(length);
        if json_len > MAX_HEADER {
            return Err(foreign());
        }
        if json_len + 8 > size {
            return Err(refuse(format!("truncated: {size} bytes, the header alone has {}", json_len + 8)));
        }
        let mut header = Zeroizing::new(length.to_vec());
        header.resize(8 + json_len as usize, 0);
        file.read_exact(&mut header[8..]).map_err(Error::io("read checkpoint", &path))?;
        let metadata: Metadata = serde_json::from_slice(&header[8..]).map_err(|_| foreign())?;
        let entry = metadata.metadata().as_ref().and_then(|map| map.get(ENTRY)).ok_or_else(foreign)?;
        let info: Info =
            serde_json::from_str(entry).map_err(|error| refuse(format!("its metadata: {error}")))?;
        if info.version != VERSION {
            return Err(refuse(format!("format version {}: this library reads {VERSION}", info.version)));
        }
        let expected = header.len() as u64 + metadata.data_len() as u64;
        if size != expected {
            let verdict = if size < expected { "truncated" } else { "followed by foreign bytes" };
            return Err(refuse(format!("{verdict}: {size} bytes, expected {expected}")));
        }
        if let Some(state) = metadata.info("state").filter(|state| state.dtype != Dtype::F32) {
            return Err(refuse(format!("its state is {:?}: expected F32", state.dtype)));
        }
        let (slots, coords) =
            shape(&metadata, &info).ok_or_else(|| refuse("its tensors have the wrong shape".into()))?;
        Ok(Checkpoint { path: path.clone(), file, header, info, slots, coords })
    }

    /// The step that comes next.
    pub fn next_step(&self) -> u64 {
        self.info.next_step
    }

    /// Fingerprint of the plan it belongs to, in hexadecimal.
    pub fn plan_fingerprint(&self) -> &str {
        &self.info.plan
    }

    /// The name of the run.
    pub fn run_id(&self) -> &str {
        &self.info.run_id
    }

    /// The coordinates it holds.
    pub fn segments(&self) -> impl Iterator<Item = Range<u64>> {
        self.info.segments.iter().map(|(start, end)| *start..*end)
    }

    /// The key, if the file was asked to hold it.
    pub fn key(&self) -> Result<Option<Key>> {
        self.info.key.as_ref().map(|hex| Key::from_hex(hex, self.info.run_id.clone())).transpose()
    }

    pub(crate) fn info(&self) -> &Info {
        &self.info
    }

    pub(crate) fn refuse(&self, reason: impl Into<String>) -> Error {
        Error::Checkpoint { path: self.path.clone(), reason: reason.into() }
    }

    /// Refuses a file of another plan, key, space or form.
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
        if self.slots != plan.form().num_slots() {
            return Err(self.refuse("its state does not have the plan's shape"));
        }
        if self.info.next_step > plan.num_steps() {
            return Err(self.refuse(format!("its step {} is past the plan's end", self.info.next_step)));
        }
        Ok(())
    }

    /// The authenticated block hashes.
    pub(crate) fn block_hashes(&mut self, key: &RunKey) -> Result<Vec<u8>> {
        let blocks = self.slots as u64 * self.coords.div_ceil(BLOCK);
        let mut bytes = vec![0; (blocks * 32 + 32) as usize];
        let state_bytes = self.slots as u64 * self.coords * STATE_BYTES as u64;
        self.read_at(state_bytes, &mut bytes)?;
        let stored: [u8; 32] = bytes[bytes.len() - 32..].try_into().expect("32 bytes");
        bytes.truncate(bytes.len() - 32);
        match mac(&key.checkpoint_key(), &self.header, &bytes) == blake3::Hash::from_bytes(stored) {
            true => Ok(bytes),
            false => Err(self.refuse("corrupted: its header or hashes were changed after it was written")),
        }
    }

    /// Copies what this file holds of `shard` into the backend; returns the coordinates (numbered within the shard) it gave.
    pub(crate) fn restore(
        &mut self,
        block_hashes: &[u8],
        shard: &Shard,
        backend: &mut impl Backend,
    ) -> Result<Vec<Range<u64>>> {
        let runs = self.runs(shard);
        let mut block = Block { bytes: vec![0; BLOCK.min(self.coords) as usize * STATE_BYTES], at: None };
        for slot in 0..self.slots {
            for run in &runs {
                self.copy(&mut block, block_hashes, slot, run, backend)?;
            }
        }
        Ok(runs.iter().map(|run| run.to..run.to + run.len).collect())
    }

    /// What file and shard have in common, in the file's order.
    fn runs(&self, shard: &Shard) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut from = 0;
        for held in self.segments() {
            let mut to = 0;
            for wanted in shard.segments() {
                let common = wanted.start.max(held.start)..wanted.end.min(held.end);
                if common.start < common.end {
                    runs.push(Run {
                        from: from + common.start - held.start,
                        to: to + common.start - wanted.start,
                        len: common.end - common.start,
                    });
                }
                to += wanted.end - wanted.start;
            }
            from += held.end - held.start;
        }
        runs
    }

    /// Copies a run of one slot, block by block, each checked before it is used. Runs ascend, so that a block is read once
    /// however many small tensors it holds.
    fn copy(
        &mut self,
        block: &mut Block,
        hashes: &[u8],
        slot: usize,
        run: &Run,
        backend: &mut impl Backend,
    ) -> Result<()> {
        let size = STATE_BYTES as u64;
        for number in run.from / BLOCK..(run.from + run.len).div_ceil(BLOCK) {
            let held = number * BLOCK..((number + 1) * BLOCK).min(self.coords);
            let index = slot as u64 * self.coords.div_ceil(BLOCK) + number;
            if block.at != Some(index) {
                let bytes = &mut block.bytes[..((held.end - held.start) * size) as usize];
                self.read_at((slot as u64 * self.coords + held.start) * size, bytes)?;
                if blake3::hash(bytes).as_bytes() != &hashes[index as usize * 32..index as usize * 32 + 32] {
                    return Err(
                        self.refuse(format!("corrupted: slot {slot}, coordinates {held:?} of the file"))
                    );
                }
                block.at = Some(index);
            }
            let used = held.start.max(run.from)..held.end.min(run.from + run.len);
            let part = ((used.start - held.start) * size) as usize..((used.end - held.start) * size) as usize;
            backend.write_state(slot, run.to + used.start - run.from, &block.bytes[part])?;
        }
        Ok(())
    }

    fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let start = SeekFrom::Start(self.header.len() as u64 + offset);
        let read = self.file.seek(start).and_then(|_| self.file.read_exact(bytes));
        read.map_err(Error::io("read checkpoint", &self.path))
    }
}

/// Slots and coordinates, if the tensors are those that [`super::write`] makes for `info`.
fn shape(metadata: &Metadata, info: &Info) -> Option<(usize, u64)> {
    let state = metadata.info("state")?;
    let [slots, coords] = state.shape[..] else { return None };
    let ascending = info.segments.windows(2).all(|pair| pair[0].1 <= pair[1].0);
    let blocks = slots.checked_mul((coords as u64).div_ceil(BLOCK) as usize)?;
    let mut end = state.data_offsets.1;
    let mut follows = |name: &str, shape: &[usize]| {
        let fits = |tensor: &TensorInfo| {
            tensor.dtype == Dtype::U8 && tensor.shape == shape && tensor.data_offsets.0 == end
        };
        let tensor = metadata.info(name).filter(|tensor| fits(tensor))?;
        end = tensor.data_offsets.1;
        Some(())
    };
    follows("block_hashes", &[blocks, 32])?;
    follows("mac", &[32])?;
    let fits = info.num_coords()? == coords as u64 && coords > 0 && ascending && state.data_offsets.0 == 0;
    fits.then_some((slots, coords as u64))
}
