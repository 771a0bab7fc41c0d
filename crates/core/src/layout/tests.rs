//! Layouts and shards, the latter against sets of small integers.

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

#[test]
fn inverted_and_overlapping_ranges_are_named() {
    let error = |ends: &[(u64, u64)]| {
        let ranges: Vec<Range<u64>> = ends.iter().map(|(start, end)| *start..*end).collect();
        Shard::whole(10_000).unwrap().select(&ranges).unwrap_err().to_string()
    };
    // Each range begins at or after the end of the one before it, because the second one is inverted; yet the first and the last overlap.
    let folded = error(&[(0, 6000), (9000, 10), (3000, 10_000)]);
    assert!(folded.contains("[9000..10]") && folded.contains("ends before it starts"), "{folded}");
    let overlap = error(&[(0, 1), (1, 6000), (5999, 10_000)]);
    assert!(overlap.contains("[1..6000, 5999..10000]") && overlap.contains("disjoint"), "{overlap}");
    assert!(error(&[(5, 9), (0, 5)]).contains("[5..9, 0..5]"));
    assert!(error(&[(u64::MAX, 0)]).contains("[18446744073709551615..0]"));
    // Empty ranges contain no coordinate, and must ascend all the same.
    assert!(error(&[(5, 5)]).contains("some of this shard's"));
    assert!(error(&[(0, 9), (5, 5)]).contains("disjoint"));
    assert!(error(&[]).contains("some of this shard's"));
    assert!(error(&[(7, 7); 1000]).len() < 200);
    let part = Shard::whole(100).unwrap().select(&[0..0, 3..5, 5..5, 5..9]).unwrap();
    assert_eq!(part.segments(), [3..5, 5..9]);
}

/// A pseudo-random stream, the same on every machine.
fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// For any ranges, the outcome is that of sets: refused if one is inverted, if one begins before the end of the one before it
/// or if nothing is left, else the coordinates in both, each once, in order.
#[test]
fn selections_are_intersections_of_sets() {
    let mut accepted = 0;
    for seed in 0..20_000 {
        let mut next = random(seed);
        let dim = 1 + next(30);
        let mut shard = Shard::whole(dim).unwrap();
        let mut set: Vec<u64> = (0..dim).collect();
        // A selection is made of a selection, up to three deep.
        for _ in 0..1 + next(3) {
            let ranges: Vec<Range<u64>> = match next(3) {
                0 => (0..next(5)).map(|_| next(34)..next(34)).collect(),
                _ => {
                    let mut ends: Vec<u64> = (0..2 * next(5)).map(|_| next(34)).collect();
                    ends.sort_unstable();
                    ends.chunks(2).map(|pair| pair[0]..pair[1]).collect()
                }
            };
            let ends: Vec<u64> = ranges.iter().flat_map(|range| [range.start, range.end]).collect();
            let kept: Vec<u64> =
                set.iter().copied().filter(|at| ranges.iter().any(|range| range.contains(at))).collect();
            let Ok(part) = shard.select(&ranges) else {
                assert!(!ends.is_sorted() || kept.is_empty(), "seed {seed}: {ranges:?} was refused");
                break;
            };
            assert!(ends.is_sorted(), "seed {seed}: {ranges:?} was accepted");
            assert_eq!(part.segments().iter().cloned().flatten().collect::<Vec<_>>(), kept, "seed {seed}");
            assert!(part.segments().iter().all(|segment| !segment.is_empty()));
            assert_eq!(part.num_coords(), kept.len() as u64);
            for first in 0..part.num_coords() {
                let (before, segment) = part.segments_from(first).next().unwrap();
                assert!(segment.contains(&(segment.start + first - before)), "seed {seed}, number {first}");
                assert_eq!(kept[first as usize], segment.start + first - before);
            }
            (shard, set) = (part, kept);
            accepted += 1;
        }
    }
    assert!(accepted > 10_000, "{accepted}");
}
