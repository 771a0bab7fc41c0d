//! Ranges of coordinates, with ends at the edges of tensors, next to them, and at the ends of the number range.

use crate::{Random, cases, named};
use corrnoise_core::Layout;
use std::ops::Range;

fn layout(random: &mut Random) -> Layout {
    let tensors: Vec<(String, u64)> = (0..1 + random.below(6))
        .map(|i| (format!("t{i}"), 1 + *random.pick(&[0, 1, 510, 511, 512, 700, 1 << 40])))
        .collect();
    Layout::new(tensors).unwrap()
}

/// An end of a range at which something could go wrong.
fn end(random: &mut Random, layout: &Layout) -> u64 {
    let tensor = &random.pick(layout.tensors()).coords;
    let edge = *random.pick(&[0, tensor.start, tensor.end, layout.dim(), 1 << 48, u64::MAX]);
    match random.below(4) {
        0 => edge.wrapping_add(1),
        1 => edge.wrapping_sub(1),
        2 => edge.wrapping_add(random.word() % 600),
        _ => edge,
    }
}

/// Coordinates that two lists of ranges have in common, pair by pair.
fn common(one: &[Range<u64>], two: &[Range<u64>]) -> Vec<Range<u64>> {
    let pairs = one.iter().flat_map(|a| two.iter().map(move |b| a.start.max(b.start)..a.end.min(b.end)));
    pairs.filter(|range| range.start < range.end).collect()
}

fn check(random: &mut Random) -> bool {
    let whole = layout(random);
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for _ in 0..random.below(7) {
        ranges.push(end(random, &whole)..end(random, &whole));
    }
    let mut ends: Vec<u64> = ranges.iter().flat_map(|range| [range.start, range.end]).collect();
    if random.below(2) == 0 {
        ends.sort_unstable();
        ranges = ends.chunks(2).map(|pair| pair[0]..pair[1]).collect();
    }
    let whole = whole.whole();
    let expected = common(&ranges, whole.segments());
    match whole.select(&ranges) {
        Ok(part) => {
            assert!(ends.is_sorted(), "{ranges:?} was accepted");
            assert_eq!(part.segments(), expected, "{ranges:?}");
            assert_eq!(part.num_coords(), expected.iter().map(|range| range.end - range.start).sum::<u64>());
            true
        }
        Err(error) => {
            assert!(!ends.is_sorted() || expected.is_empty(), "{ranges:?} was refused: {error}");
            assert!(error.to_string().len() < 400, "{error}");
            false
        }
    }
}

#[test]
fn ranges_are_refused_or_cut_exactly() {
    let cases = cases(20_000);
    let mut accepted = 0;
    for case in cases.clone() {
        accepted += u64::from(named(case, || check(&mut Random::new(case))));
    }
    println!("{cases:?}: {accepted} accepted");
}
