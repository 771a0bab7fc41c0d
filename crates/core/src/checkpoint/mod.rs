//! One safetensors file per process: everything needed to go on, on any backend and under any sharding.
//!
//! ```text
//! header       JSON: shapes, and under "__metadata__" → "corrnoise" the step, the incarnations, what the file belongs to
//! state        [slot][coordinate] f32: BLT buffers, or ring outputs by age, youngest first
//! block_hashes [slot × block][32] BLAKE3 of every 65,536 coordinates of a slot, so that a part can be read and trusted
//! mac          [32] keyed BLAKE3 of the header and the block hashes: nothing else needs to be trusted
//! ```
//! The state is past noise: whoever reads it can take noise off released gradients. The file is as secret as the key.

mod read;
mod write;

pub use read::Checkpoint;
pub(crate) use write::write;

use crate::row::Incarnations;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Coordinates per hashed block of a slot.
const BLOCK: u64 = 1 << 16;

/// Version of the file format.
pub(crate) const VERSION: u32 = 1;

/// The key of the metadata entry.
const ENTRY: &str = "corrnoise";

/// What a file says of itself.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Info {
    pub(crate) version: u32,
    /// Fingerprint of the plan.
    pub(crate) plan: String,
    /// Fingerprint of the coordinate space.
    pub(crate) space: String,
    pub(crate) segments: Vec<(u64, u64)>,
    pub(crate) key_commitment: String,
    pub(crate) run_id: String,
    pub(crate) next_step: u64,
    pub(crate) incarnations: Incarnations,
    /// Present only if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<Zeroizing<String>>,
}

impl Info {
    fn num_coords(&self) -> Option<u64> {
        self.segments.iter().try_fold(0u64, |sum, (start, end)| sum.checked_add(end.checked_sub(*start)?))
    }
}

/// The MAC of a header and its block hashes.
fn mac(key: &[u8; 32], header: &[u8], block_hashes: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&(header.len() as u64).to_le_bytes()).update(header).update(block_hashes);
    hasher.finalize()
}
