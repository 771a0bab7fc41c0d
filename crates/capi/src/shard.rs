//! Shards: the model as one coordinate space, and the part of it that one process owns.

use crate::argument::{Out, OutHandle, borrow, free, list, text};
use crate::status::{Outcome, Status, entry};
use corrnoise::{Error, Layout, Shard};
use std::ffi::c_char;

/// The coordinates of a model that one process makes noise for: a gradient is expected for each of its segments, in order.
pub struct ShardHandle(pub(crate) Shard);

/// A range of coordinates from `start` to `end`, the latter excluded.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The first coordinate of the range.
    pub start: u64,
    /// One past the last coordinate of the range.
    pub end: u64,
}

/// The shard of a model given as one flat vector of `dim` values: it has one segment.
///
/// A process that holds a part of a model takes that part of the whole with corrnoise_shard_select(). Two processes that each
/// call this for their own part would add the same noise to different coordinates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_shard_flat(dim: u64, out: *mut *mut ShardHandle) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let out = unsafe { OutHandle::new(out) }?;
        out.put(ShardHandle(Shard::whole(dim)?));
        Ok(())
    })
}

/// The shard of a model of `count` tensors with different names, one segment each. Names, lengths and order are part of what a checkpoint
/// is bound to. Each tensor starts at a multiple of 512 coordinates.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_shard_tensors(
    names: *const *const c_char,
    lengths: *const u64,
    count: usize,
    out: *mut *mut ShardHandle,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (out, lengths) = unsafe { (OutHandle::new(out)?, list(lengths, count, "lengths")?) };
        // SAFETY: the crate's contract.
        let names = unsafe { list(names, count, "names") }?;
        // SAFETY: the crate's contract holds for each name.
        let names = names.iter().map(|name| unsafe { text(*name, "name") }).collect::<Outcome<Vec<_>>>()?;
        out.put(ShardHandle(Layout::new(names.into_iter().zip(lengths.iter().copied()))?.whole()));
        Ok(())
    })
}

/// The part of a shard inside ascending, disjoint ranges: one range for a process that owns a range of the coordinates, many for one
/// that owns a piece of every tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_shard_select(
    shard: *const ShardHandle,
    ranges: *const Range,
    count: usize,
    out: *mut *mut ShardHandle,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (out, shard) = unsafe { (OutHandle::new(out)?, borrow(shard, "shard")?) };
        // SAFETY: the crate's contract.
        let ranges = unsafe { list(ranges, count, "ranges") }?;
        let ranges: Vec<_> = ranges.iter().map(|range| range.start..range.end).collect();
        out.put(ShardHandle(shard.0.select(&ranges)?));
        Ok(())
    })
}

/// The same coordinates, held by other processes too, which add the same noise to the same gradients (replicas). The ledger of a key lets
/// processes share coordinates only if all of them say so, and all start before the second step.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_shard_replica(
    shard: *const ShardHandle,
    out: *mut *mut ShardHandle,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (out, shard) = unsafe { (OutHandle::new(out)?, borrow(shard, "shard")?) };
        out.put(ShardHandle(shard.0.clone().replica()));
        Ok(())
    })
}

/// The number of segments, which is the number of gradients that a step expects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_shard_num_segments(
    shard: *const ShardHandle,
    count: *mut usize,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (shard, out) = unsafe { (borrow(shard, "shard")?, Out::new(count, "count")?) };
        out.put(shard.0.segments().len());
        Ok(())
    })
}

/// The coordinates of a segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_shard_segment(
    shard: *const ShardHandle,
    index: usize,
    segment: *mut Range,
) -> Status {
    entry(|| {
        // SAFETY: the crate's contract.
        let (shard, out) = unsafe { (borrow(shard, "shard")?, Out::new(segment, "segment")?) };
        let segments = shard.0.segments();
        let refuse = || Error::parameter("index", index, format!("less than {}", segments.len()));
        let segment = segments.get(index).ok_or_else(refuse)?;
        out.put(Range { start: segment.start, end: segment.end });
        Ok(())
    })
}

/// Frees a shard; NULL is accepted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_shard_free(shard: *mut ShardHandle) {
    // SAFETY: the crate's contract.
    unsafe { free(shard) }
}
