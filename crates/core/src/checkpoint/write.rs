//! Writing a checkpoint: state streams from the backend through one block of memory.

use super::{BLOCK, ENTRY, Info, mac};
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::file::{Access, write_atomically};
use crate::form::STATE_BYTES;
use crate::key::RunKey;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

/// Writes the state of `backend`: `slots` rows of the coordinates that `info` names.
pub(crate) fn write(
    path: &Path,
    info: &Info,
    key: &RunKey,
    slots: usize,
    backend: &impl Backend,
) -> Result<()> {
    let fail = || Error::io("write", path);
    let coords = info.num_coords().expect("a shard's segments ascend");
    let header = header(info, slots, coords);
    write_atomically(path, Access::Owner, |file| {
        file.write_all(&header).map_err(fail())?;
        let mut block_hashes = Vec::new();
        let mut buffer = vec![0; BLOCK.min(coords) as usize * STATE_BYTES];
        for slot in 0..slots {
            for first in (0..coords).step_by(BLOCK as usize) {
                let bytes = &mut buffer[..(coords - first).min(BLOCK) as usize * STATE_BYTES];
                backend.read_state(slot, first, bytes)?;
                file.write_all(bytes).map_err(fail())?;
                block_hashes.extend_from_slice(blake3::hash(bytes).as_bytes());
            }
        }
        file.write_all(&block_hashes).map_err(fail())?;
        file.write_all(mac(&key.checkpoint_key(), &header, &block_hashes).as_bytes()).map_err(fail())
    })
}

/// The length and the JSON that open a safetensors file.
fn header(info: &Info, slots: usize, coords: u64) -> Vec<u8> {
    let mut end = 0;
    let mut tensor = |name: &str, dtype: Dtype, shape: Vec<usize>| {
        let start = end;
        end += shape.iter().product::<usize>() * dtype.bitsize() / 8;
        (name.to_owned(), TensorInfo { dtype, shape, data_offsets: (start, end) })
    };
    let blocks = slots * coords.div_ceil(BLOCK) as usize;
    let tensors = vec![
        tensor("state", Dtype::F32, vec![slots, coords as usize]),
        tensor("block_hashes", Dtype::U8, vec![blocks, 32]),
        tensor("mac", Dtype::U8, vec![32]),
    ];
    let text = serde_json::to_string(info).expect("strings and integers serialise");
    let metadata = Metadata::new(Some(HashMap::from([(ENTRY.to_owned(), text)])), tensors)
        .expect("offsets follow one another by construction");
    let mut json = serde_json::to_vec(&metadata).expect("strings and integers serialise");
    // The format asks for 8-byte alignment of the data; blanks at the end are part of it.
    json.resize(json.len().next_multiple_of(8), b' ');
    [&(json.len() as u64).to_le_bytes()[..], &json].concat()
}
