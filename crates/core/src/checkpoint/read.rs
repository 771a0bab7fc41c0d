//! Reading a checkpoint, whole or in part, and refusing what is truncated, corrupted or foreign.

use super::{BLOCK, ENTRY, Info, VERSION, mac};
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::file::{folder, sync_folder};
use crate::form::{Form, History};
use crate::key::{Key, RunKey};
use crate::layout::Shard;
use crate::plan::Plan;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A header of more than this is not one of ours.
const MAX_HEADER: u64 = 100_000_000;

/// An open checkpoint. Opening checks the file's shape; content is checked against the key when it is read.
pub struct Checkpoint {
    path: PathBuf,
    file: File,
    header: Vec<u8>,
    info: Info,
    slots: usize,
    history: History,
    coords: u64,
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
        let mut header = length.to_vec();
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
        let (slots, history, coords) =
            shape(&metadata, &info).ok_or_else(|| refuse("its tensors have the wrong shape".into()))?;
        Ok(Checkpoint { path: path.clone(), file, header, info, slots, history, coords })
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
        let named = |key: Key| key.with_run_id(self.info.run_id.clone());
        self.info.key.as_deref().map(|hex| Key::from_hex(hex).map(named)).transpose()
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
        let form: &Form = plan.form();
        if (self.slots, self.history) != (form.num_slots(), form.history()) {
            return Err(self.refuse("its state does not have the plan's shape"));
        }
        if self.info.next_step > plan.num_steps() || !self.info.incarnations.is_valid() {
            return Err(self.refuse("its step or incarnations are impossible"));
        }
        Ok(())
    }

    /// The authenticated block hashes.
    pub(crate) fn block_hashes(&mut self, key: &RunKey) -> Result<Vec<u8>> {
        let blocks = self.slots as u64 * self.coords.div_ceil(BLOCK);
        let mut bytes = vec![0; (blocks * 32 + 32) as usize];
        let state_bytes = self.slots as u64 * self.coords * self.history.bytes() as u64;
        self.read_at(state_bytes, &mut bytes)?;
        let stored: [u8; 32] = bytes[bytes.len() - 32..].try_into().expect("32 bytes");
        bytes.truncate(bytes.len() - 32);
        match mac(&key.checkpoint_key(), &self.header, &bytes).0 == stored {
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
        let mut given = Vec::new();
        let mut target = 0;
        for wanted in shard.segments() {
            let mut source = 0;
            for (start, end) in self.info.segments.clone() {
                let common = wanted.start.max(start)..wanted.end.min(end);
                if common.start < common.end {
                    let to = target + common.start - wanted.start;
                    let len = common.end - common.start;
                    self.copy(block_hashes, source + common.start - start, to, len, backend)?;
                    given.push(to..to + len);
                }
                source += end - start;
            }
            target += wanted.end - wanted.start;
        }
        Ok(given)
    }

    /// Copies `len` coordinates of every slot, block by block, each checked before it is used.
    fn copy(
        &mut self,
        hashes: &[u8],
        from: u64,
        to: u64,
        len: u64,
        backend: &mut impl Backend,
    ) -> Result<()> {
        let size = self.history.bytes() as u64;
        let mut buffer = vec![0; (BLOCK.min(self.coords) * size) as usize];
        for slot in 0..self.slots {
            for block in from / BLOCK..(from + len).div_ceil(BLOCK) {
                let held = block * BLOCK..((block + 1) * BLOCK).min(self.coords);
                let bytes = &mut buffer[..((held.end - held.start) * size) as usize];
                self.read_at((slot as u64 * self.coords + held.start) * size, bytes)?;
                let index = (slot as u64 * self.coords.div_ceil(BLOCK) + block) as usize * 32;
                if blake3::hash(bytes).as_bytes() != &hashes[index..index + 32] {
                    return Err(
                        self.refuse(format!("corrupted: slot {slot}, coordinates {held:?} of the file"))
                    );
                }
                let used = held.start.max(from)..held.end.min(from + len);
                let part =
                    ((used.start - held.start) * size) as usize..((used.end - held.start) * size) as usize;
                backend.write_state(slot, to + used.start - from, &bytes[part])?;
            }
        }
        Ok(())
    }

    fn read_at(&mut self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let start = SeekFrom::Start(self.header.len() as u64 + offset);
        let read = self.file.seek(start).and_then(|_| self.file.read_exact(bytes));
        read.map_err(Error::io("read checkpoint", &self.path))
    }

    /// Tries to claim an incarnation by a marker file beside the checkpoint; false if it was claimed before.
    ///
    /// The claim is what keeps two resumes of one checkpoint from making the same rows: creating a file that must not
    /// exist is atomic, and survives the crash that a second resume presupposes.
    pub(crate) fn claim(&self, incarnation: u16) -> Result<bool> {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".incarnation-{incarnation}"));
        let marker = PathBuf::from(name);
        match OpenOptions::new().write(true).create_new(true).open(&marker) {
            Ok(_) => sync_folder(folder(&marker)).map(|()| true).map_err(Error::io("create", &marker)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(Error::io("create", &marker)(error)),
        }
    }
}

/// Slots, state type and coordinates, if the tensors are those that [`super::write`] makes for `info`.
fn shape(metadata: &Metadata, info: &Info) -> Option<(usize, History, u64)> {
    let state = metadata.info("state")?;
    let history = match state.dtype {
        Dtype::F32 => History::F32,
        Dtype::BF16 => History::Bf16,
        _ => return None,
    };
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
    fits.then_some((slots, history, coords as u64))
}
