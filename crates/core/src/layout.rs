//! The flat coordinate space of a model, and the part of it that one process owns.

use crate::error::{Error, Result};
use crate::noise::TILE;
use crate::plan::Fingerprint;
use std::collections::HashSet;
use std::ops::Range;

/// Named tensors in a stable order, each starting at a multiple of 512 coordinates.
///
/// # Guarantees
/// A tensor's noise depends on its first coordinate alone: it does not move when a tensor after it changes size, nor when
/// one before it changes within its last 512.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    tensors: Vec<Tensor>,
    dim: u64,
}

/// One tensor of a [`Layout`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The name of the tensor.
    pub name: String,
    /// The coordinates that the tensor's values have.
    pub coords: Range<u64>,
}

impl Layout {
    /// Lays out tensors of the given lengths one after another.
    pub fn new<N: Into<String>>(tensors: impl IntoIterator<Item = (N, u64)>) -> Result<Layout> {
        let mut layout = Layout { tensors: Vec::new(), dim: 0 };
        for (name, len) in tensors {
            let name = name.into();
            if len == 0 {
                return Err(Error::length(format!("tensor {name:?}"), 0, "at least 1"));
            }
            let first = layout.dim.checked_next_multiple_of(TILE as u64);
            let end = first.and_then(|first| first.checked_add(len)).filter(|end| *end <= Shard::MAX_DIM);
            let (Some(first), Some(end)) = (first, end) else {
                return Err(Error::parameter(
                    format!("length of tensor {name:?}"),
                    len,
                    "a model of at most 2^48 coordinates",
                ));
            };
            layout.tensors.push(Tensor { name, coords: first..end });
            layout.dim = end;
        }
        let mut names = HashSet::with_capacity(layout.tensors.len());
        if let Some(tensor) = layout.tensors.iter().find(|tensor| !names.insert(tensor.name.as_str())) {
            return Err(Error::parameter("tensor name", format!("{:?}", tensor.name), "different names"));
        }
        match layout.tensors.is_empty() {
            true => Err(Error::length("list of tensors", 0, "at least 1")),
            false => Ok(layout),
        }
    }

    /// The tensors in order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// One past the last coordinate, the gaps between tensors included.
    pub fn dim(&self) -> u64 {
        self.dim
    }

    /// All tensors as one shard; gradients are then given tensor by tensor.
    pub fn whole(&self) -> Shard {
        let segments = self.tensors.iter().map(|tensor| tensor.coords.clone()).collect();
        Shard::new(self.fingerprint(), self.dim, segments)
    }

    /// What names this layout: the names, lengths and order of its tensors.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut hasher = blake3::Hasher::new_derive_key("corrnoise 2026 layout fingerprint v1");
        for tensor in &self.tensors {
            hasher.update(&(tensor.name.len() as u64).to_le_bytes()).update(tensor.name.as_bytes());
            hasher.update(&tensor.coords.start.to_le_bytes()).update(&tensor.coords.end.to_le_bytes());
        }
        Fingerprint(hasher.finalize().into())
    }
}

/// The coordinates that one process makes noise for: ascending, disjoint ranges of a space, none of them empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    space: Fingerprint,
    dim: u64,
    segments: Vec<Range<u64>>,
    /// For every segment, how many of the shard's coordinates lie before it.
    before: Vec<u64>,
    num_coords: u64,
    replica: bool,
}

impl Shard {
    /// Largest coordinate space: 2⁴⁸, beyond any model and small enough that no byte count overflows.
    pub const MAX_DIM: u64 = 1 << 48;

    /// `segments` ascend, are disjoint and not empty.
    fn new(space: Fingerprint, dim: u64, segments: Vec<Range<u64>>) -> Shard {
        let mut num_coords = 0;
        let count = |segment: &Range<u64>| {
            num_coords += segment.end - segment.start;
            num_coords - (segment.end - segment.start)
        };
        let before = segments.iter().map(count).collect();
        Shard { space, dim, segments, before, num_coords, replica: false }
    }

    /// All `dim` coordinates of a model given as one flat vector.
    ///
    /// Processes that hold different parts of one model must each take their [`Shard::within`] of the whole: two processes
    /// that both call this for their own part would add the *same* noise to different coordinates.
    pub fn whole(dim: u64) -> Result<Shard> {
        Ok(Layout::new([("", dim)])?.whole())
    }

    /// The part of this shard inside `coords`, for processes that own a range each.
    pub fn within(&self, coords: Range<u64>) -> Result<Shard> {
        self.select(&[coords])
    }

    /// The part of this shard inside ascending, disjoint ranges, for processes that own a piece of every tensor.
    ///
    /// A range may be empty: a process that owns a piece of every tensor may own nothing of a small one. One that ends before
    /// it starts is refused, and so are ranges of which none holds a coordinate of this shard.
    pub fn select(&self, ranges: &[Range<u64>]) -> Result<Shard> {
        check_ascending("coordinate ranges", ranges)?;
        let mut segments = Vec::new();
        for range in ranges {
            let first = self.segments.partition_point(|own| own.end <= range.start);
            let reached = self.segments[first..].iter().take_while(|own| own.start < range.end);
            let cut = |own: &Range<u64>| own.start.max(range.start)..own.end.min(range.end);
            segments.extend(reached.map(cut).filter(|part| part.start < part.end));
        }
        if segments.is_empty() {
            let expected = format!("some of this shard's coordinates, which lie in 0..{}", self.dim);
            return Err(Error::parameter("coordinate ranges", shown(ranges), expected));
        }
        // Two gradients of one coordinate would get the same noise, which their difference is then without: worth a second look.
        check_ascending("segments", &segments)?;
        Ok(Shard { replica: self.replica, ..Shard::new(self.space, self.dim, segments) })
    }

    /// The same coordinates, held by other processes too, which add the same noise to the same gradients (replicas). The ledger
    /// of a key lets processes share coordinates only if all of them say so, and all start before the second step.
    pub fn replica(self) -> Shard {
        Shard { replica: true, ..self }
    }

    /// Whether other processes hold the same coordinates.
    pub fn is_replica(&self) -> bool {
        self.replica
    }

    /// The ranges, one per gradient slice that a step expects.
    pub fn segments(&self) -> &[Range<u64>] {
        &self.segments
    }

    /// How many coordinates this shard owns.
    pub fn num_coords(&self) -> u64 {
        self.num_coords
    }

    /// For every segment that holds the shard's coordinate number `first` or a later one, in order: how many of the shard's
    /// coordinates lie before it, and the segment.
    #[doc(hidden)]
    pub fn segments_from(&self, first: u64) -> impl Iterator<Item = (u64, &Range<u64>)> {
        let at = self.before.partition_point(|before| *before <= first).saturating_sub(1);
        self.before[at..].iter().copied().zip(&self.segments[at..])
    }

    /// Size of the whole space.
    pub fn dim(&self) -> u64 {
        self.dim
    }

    /// Names the space this is a part of.
    pub fn space(&self) -> Fingerprint {
        self.space
    }
}

/// Refuses ranges that end before they start, overlap, or do not ascend; names the first such range or pair.
fn check_ascending(name: &str, ranges: &[Range<u64>]) -> Result<()> {
    if let Some(range) = ranges.iter().find(|range| range.start > range.end) {
        return Err(Error::parameter(
            name,
            shown(std::slice::from_ref(range)),
            "no range that ends before it starts",
        ));
    }
    match ranges.windows(2).find(|pair| pair[0].end > pair[1].start) {
        Some(pair) => Err(Error::parameter(name, shown(pair), "ascending and disjoint")),
        None => Ok(()),
    }
}

/// Ranges for a message: the first and the last of many.
fn shown(ranges: &[Range<u64>]) -> String {
    match ranges {
        [first, _, .., last] => format!("[{first:?}, …, {last:?}], {} in all,", ranges.len()),
        few => format!("{few:?}"),
    }
}

#[cfg(test)]
mod tests;
