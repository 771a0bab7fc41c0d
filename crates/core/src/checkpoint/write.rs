//! Writing a checkpoint: state streams from the backend through one section of memory.

use super::{ENTRY, IN_MEMORY, Info, SECTION, mac};
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::file::{Access, write_atomically};
use crate::form::STATE_BYTES;
use crate::key::{Key, RunKey};
use safetensors::tensor::{Dtype as StoredType, Metadata, TensorInfo};
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use zeroize::Zeroizing;

/// The content of a checkpoint: `slots` rows of the coordinates that `info` names.
pub(crate) struct Content<'a, B> {
    pub(crate) info: &'a Info,
    pub(crate) run_key: &'a RunKey,
    /// The key, if the checkpoint is to hold it.
    pub(crate) key: Option<&'a Key>,
    pub(crate) slots: usize,
    pub(crate) backend: &'a B,
}

/// Writes a checkpoint to a file that appears whole or not at all.
pub(crate) fn write<B: Backend>(path: &Path, content: &Content<'_, B>) -> Result<()> {
    // The writes bypass the buffer, which nothing would wipe of state and key; single writes are large enough without it.
    write_atomically(path, Access::Owner, |file| content.write_to(&mut &**file.get_ref(), path))
}

/// A checkpoint as bytes, in memory that is allocated once and wiped on failure.
pub(crate) fn to_bytes<B: Backend>(content: &Content<'_, B>) -> Result<Vec<u8>> {
    let size = content.size();
    let mut bytes = Zeroizing::new(Vec::new());
    let fits = usize::try_from(size).is_ok_and(|size| bytes.try_reserve_exact(size).is_ok());
    if !fits {
        return Err(Error::OutOfMemory { bytes: size });
    }
    content.write_to(&mut *bytes, Path::new(IN_MEMORY))?;
    debug_assert_eq!(bytes.len() as u128, size);
    Ok(std::mem::take(&mut *bytes))
}

impl<B: Backend> Content<'_, B> {
    /// Writes the whole checkpoint; `place` is for messages.
    fn write_to(&self, writer: &mut impl Write, place: &Path) -> Result<()> {
        let fail = || Error::io("write", place);
        let (coords, value) = (self.coords(), STATE_BYTES);
        let header = self.header();
        writer.write_all(&header).map_err(fail())?;
        let mut section_hashes = Vec::with_capacity(32 * self.sections());
        let mut buffer = Zeroizing::new(vec![0; SECTION.min(coords) as usize * value]);
        for slot in 0..self.slots {
            for first in (0..coords).step_by(SECTION as usize) {
                let bytes = &mut buffer[..(coords - first).min(SECTION) as usize * value];
                self.backend.read_state(slot, first, bytes)?;
                writer.write_all(bytes).map_err(fail())?;
                section_hashes.extend_from_slice(blake3::hash(bytes).as_bytes());
            }
        }
        writer.write_all(&section_hashes).map_err(fail())?;
        let key: &[u8] = self.key.map_or(&[], |key| key.bytes());
        writer.write_all(key).map_err(fail())?;
        let mac = mac(self.run_key, &header, &section_hashes, key);
        writer.write_all(mac.as_bytes()).map_err(fail())
    }

    fn coords(&self) -> u64 {
        self.info.num_coords().expect("a shard's segments ascend")
    }

    fn sections(&self) -> usize {
        self.slots * self.coords().div_ceil(SECTION) as usize
    }

    /// The number of bytes of the whole checkpoint.
    fn size(&self) -> u128 {
        let state = self.slots as u128 * u128::from(self.coords()) * STATE_BYTES as u128;
        let rest = 32 * (self.sections() + usize::from(self.key.is_some()) + 1);
        self.header().len() as u128 + state + rest as u128
    }

    /// The header of a safetensors file: a length and JSON.
    fn header(&self) -> Vec<u8> {
        let mut end = 0;
        let mut tensor = |name: &str, dtype: StoredType, shape: Vec<usize>| {
            let start = end;
            end += shape.iter().product::<usize>() * dtype.bitsize() / 8;
            (name.to_owned(), TensorInfo { dtype, shape, data_offsets: (start, end) })
        };
        let mut tensors = vec![
            tensor("state", StoredType::F32, vec![self.slots, self.coords() as usize]),
            tensor("block_hashes", StoredType::U8, vec![self.sections(), 32]),
        ];
        if self.key.is_some() {
            tensors.push(tensor("key", StoredType::U8, vec![32]));
        }
        tensors.push(tensor("mac", StoredType::U8, vec![32]));
        let text = serde_json::to_string(self.info).expect("strings and integers serialise");
        let metadata = Metadata::new(Some(HashMap::from([(ENTRY.to_owned(), text)])), tensors)
            .expect("offsets follow one another by construction");
        let mut json = serde_json::to_vec(&metadata).expect("strings and integers serialise");
        // The format requires that the data is aligned to 8 bytes; blanks at the header's end count as part of it.
        json.resize(json.len().next_multiple_of(8), b' ');
        [&(json.len() as u64).to_le_bytes()[..], &json].concat()
    }
}
