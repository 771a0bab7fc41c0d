//! One safetensors file per process, or the same bytes in memory: everything needed to go on, on any backend and under any
//! sharding.
//!
//! ```text
//! header       JSON: shapes, and under "__metadata__" → "corrnoise" the step, the incarnations, what the file belongs to
//! state        [slot][coordinate] f32: BLT buffers, or ring outputs by age, youngest first
//! block_hashes [slot × section][32] BLAKE3 of every 65,536 coordinates of a slot, so that a part can be read and trusted
//! key          [32] the key, only if asked for
//! mac          [32] keyed BLAKE3 of the header, the section hashes and the key: nothing else needs to be trusted
//! ```
//! The state is past noise: whoever reads it can take noise off released gradients. The file is as secret as the key.

mod read;
mod source;
mod write;

pub use read::Checkpoint;
pub(crate) use write::{Content, to_bytes, write};

use crate::key::RunKey;
use crate::layout::Shard;
use crate::row::Incarnations;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Coordinates per hashed section of a slot.
const SECTION: u64 = 1 << 16;

/// The version of the file format. It is that of the noise: a state of version 1 belongs to noise that is no longer made.
pub(crate) const VERSION: u32 = 2;

/// The key of the metadata entry.
const ENTRY: &str = "corrnoise";

/// The path shown for a checkpoint that is not a file: errors say "checkpoint in memory".
const IN_MEMORY: &str = "in memory";

/// The entry of the metadata that every version has.
#[derive(Deserialize)]
struct Head {
    version: u32,
}

/// The metadata of a checkpoint.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Info {
    pub(crate) version: u32,
    /// The fingerprint of the plan.
    pub(crate) plan: String,
    /// The fingerprint of the coordinate space.
    pub(crate) space: String,
    pub(crate) segments: Vec<(u64, u64)>,
    pub(crate) key_commitment: String,
    pub(crate) run_id: String,
    pub(crate) next_step: u64,
    pub(crate) incarnations: Incarnations,
    /// The folder of the ledger, if the key is stored too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ledger: Option<PathBuf>,
}

impl Info {
    /// How many coordinates the segments hold, if they are those of a shard: ascending, disjoint, none of them empty.
    fn num_coords(&self) -> Option<u64> {
        let mut last = 0;
        let sum = self.segments.iter().try_fold(0_u64, |sum, (start, end)| {
            let valid = last <= *start && start < end && *end <= Shard::MAX_DIM;
            last = *end;
            valid.then(|| sum + (end - start))
        });
        sum.filter(|sum| *sum > 0)
    }
}

/// The MAC of a header, its section hashes and the key that is stored, if one is. The header says which of them there are.
fn mac(run_key: &RunKey, header: &[u8], section_hashes: &[u8], key: &[u8]) -> blake3::Hash {
    run_key.checkpoint_mac(&[&(header.len() as u64).to_le_bytes(), header, section_hashes, key])
}
