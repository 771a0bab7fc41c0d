//! The flat coordinate space of a model, and the part of it that one process owns.

use crate::error::{Error, Result};
use crate::noise::TILE;
use crate::plan::Fingerprint;
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
    /// Its name.
    pub name: String,
    /// Its coordinates.
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
            if layout.tensors.iter().any(|tensor| tensor.name == name) {
                return Err(Error::parameter("tensor name", format!("{name:?}"), "different names"));
            }
            layout.tensors.push(Tensor { name, coords: first..end });
            layout.dim = end;
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
        Shard { space: self.fingerprint(), dim: self.dim, segments, replica: false }
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

/// The coordinates that one process makes noise for: ascending, disjoint ranges of a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    space: Fingerprint,
    dim: u64,
    segments: Vec<Range<u64>>,
    replica: bool,
}

impl Shard {
    /// Largest coordinate space: 2⁴⁸, beyond any model and small enough that no byte count overflows.
    pub const MAX_DIM: u64 = 1 << 48;

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
    pub fn select(&self, ranges: &[Range<u64>]) -> Result<Shard> {
        if let Some(pair) = ranges.windows(2).find(|pair| pair[0].end > pair[1].start) {
            return Err(Error::parameter("coordinate ranges", format!("{pair:?}"), "ascending and disjoint"));
        }
        let mut segments = Vec::new();
        for range in ranges {
            let cut = |own: &Range<u64>| own.start.max(range.start)..own.end.min(range.end);
            segments.extend(self.segments.iter().map(cut).filter(|part| part.start < part.end));
        }
        match segments.is_empty() {
            true => Err(Error::parameter(
                "coordinate ranges",
                format!("{ranges:?}"),
                format!("some of this shard's coordinates, which lie in 0..{}", self.dim),
            )),
            false => Ok(Shard { segments, ..self.clone() }),
        }
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
        self.segments.iter().map(|segment| segment.end - segment.start).sum()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_start_at_tiles() {
        let layout = Layout::new([("w", 1000), ("b", 10), ("v", 512)]).unwrap();
        let coords: Vec<_> = layout.tensors().iter().map(|t| t.coords.clone()).collect();
        assert_eq!(coords, [0..1000, 1024..1034, 1536..2048]);
        assert_eq!(layout.dim(), 2048);
        assert_eq!(layout.whole().num_coords(), 1522);
        let part = layout.whole().within(900..1030).unwrap();
        assert_eq!(part.segments(), [900..1000, 1024..1030]);
        assert_eq!(part.space(), layout.fingerprint());
        assert!(layout.whole().within(1000..1024).is_err(), "a gap holds no coordinate");
        let halves = layout.whole().select(&[500..1000, 1029..1034, 1792..2048]).unwrap();
        assert_eq!(halves.segments(), [500..1000, 1029..1034, 1792..2048]);
        assert!(layout.whole().select(&[5..9, 8..10]).unwrap_err().to_string().contains("disjoint"));
    }

    #[test]
    fn bad_layouts_are_named() {
        let error = |tensors: Vec<(&str, u64)>| Layout::new(tensors).unwrap_err().to_string();
        assert!(error(vec![]).contains("list of tensors"));
        assert!(error(vec![("w", 0)]).contains("\"w\""));
        assert!(error(vec![("w", 1), ("w", 2)]).contains("different names"));
        assert!(error(vec![("w", u64::MAX)]).contains("18446744073709551615"));
        assert!(error(vec![("w", 1 << 48), ("b", 1)]).contains("2^48"));
        assert!(Shard::whole(0).is_err());
        assert!(Shard::whole(1 << 48).is_ok());
    }

    #[test]
    fn order_and_names_are_part_of_the_fingerprint() {
        let print = |tensors: [(&str, u64); 2]| Layout::new(tensors).unwrap().fingerprint();
        assert_ne!(print([("w", 5), ("b", 5)]), print([("b", 5), ("w", 5)]));
        assert_ne!(print([("w", 5), ("b", 5)]), print([("w", 5), ("b", 6)]));
    }
}
