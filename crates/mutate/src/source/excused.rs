//! Classes of mutants of the sources that no case kills, with the reason.

use super::tokens::Change;
use crate::excused::{Excuse, Kind};

/// A class: the reason, and the changes that it excuses. A change is a part of its line, the token that was changed, and what it
/// became; an empty text stands for any.
type Class = (&'static str, &'static [(&'static str, &'static str, &'static str)]);

/// The reasons that are no proof of equivalence.
const OTHERS: [(&str, Kind); 3] =
    [(EXTENSION, Kind::TooRare), (SECOND_WORD, Kind::TooRare), (LONG_SEGMENT, Kind::OutOfReach)];
const EXTENSION: &str =
    "the lowest bits of a tail's extension are rounded off, unless the radius word is nearly 0";
const SECOND_WORD: &str =
    "a tail's second word shows only where the radius word is 0 and the first is small: once in 2^40 words";
const LONG_SEGMENT: &str = "a segment of 2^31 values needs more memory than a test has";

const CLASSES: &[Class] = &[
    (
        "how many blocks share a multiprocessor is a matter of speed",
        &[("ENTRIES(", "", ""), ("MAKE(", "", "")],
    ),
    (
        "a NaN that arithmetic makes is 0x7fffffff, and which NaN it becomes is not promised",
        &[("? (u16)(bits >> 16 | 0x40)", "", "")],
    ),
    (EXTENSION, &[("(low | 1)", "1", "")]),
    (SECOND_WORD, &[("low = word ? first : second", "", ""), ("tail[2 * pair + 1]", "1", "")]),
    (
        "which of the integers next to the noise is split off does not matter: what is left is kept as exactly",
        &[("__fmaf_rn(grid.scale, z, to_integer)", "_rn(", "")],
    ),
    (
        "the result on the grid is exact: a product with a power of two, or a sum of integers or of multiples of 2^-22",
        &[
            ("const float whole =", "_rn(", ""),
            ("const float rest =", "_rn(", ""),
            ("const float not_down =", "_rn(", ""),
            ("const float carry =", "_rn(", ""),
            ("return __fmul_rn(__fadd_rn(nearest", "_rn(", ""),
        ],
    ),
    (
        "any number stands for \"ended\" that is no index, and that counting does not bring to 0",
        &[("#define ENDED", "", "")],
    ),
    (
        "a larger array",
        &[
            ("float y[16];", "16", ""),
            ("float z[16];", "16", ""),
            ("float sum[16]", "16", ""),
            ("float sum[MAX_ROWS][16]", "16", ""),
            ("u32 tail[16];", "16", ""),
            ("u32 words[16];", "16", ""),
            ("float u[8];", "8", ""),
        ],
    ),
    ("a uniform is not 0", &[("upper = u < 0.0f", "<", "<=")]),
    (
        "past the end the gradient becomes NaN, whatever was read before",
        &[("work.count : 0", "0", ""), ("work.count : 0", "work.live", "true")],
    ),
    (
        "one by one the bits are the same as by fours",
        &[("const bool whole = aligned", "", ""), ("sizeof(typename G::Quad) == 0", "", "")],
    ),
    ("which NaN does not matter", &[("__uint_as_float(0x7fc00000)", "0x7fc00000", "")]),
    ("a conversion to f16 makes one NaN, 0x7fff", &[("(g & 0x7fff) == 0x7c00", "0x7fff", "")]),
    (LONG_SEGMENT, &[("segment.length;", "(i64)", "(int)")]),
];

/// Whether a rotation's amount became one that is the same modulo 32, which is how `__funnelshift_l` takes it.
fn same_rotation(change: &Change) -> bool {
    let number = |text: &str| match text.trim().strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.trim().parse().ok(),
    };
    let amounts = number(&change.from).zip(number(&change.to));
    change.whole.contains("rotate_left(") && amounts.is_some_and(|(from, to)| from % 32 == to % 32)
}

/// The class of a change, if it belongs to one: why it may survive.
pub(super) fn excuse(change: &Change) -> Option<Excuse> {
    let reason = reason(change)?;
    let other = OTHERS.iter().find(|(other, _)| *other == reason);
    Some(Excuse { kind: other.map_or(Kind::Equivalent, |(_, kind)| *kind), reason })
}

fn reason(change: &Change) -> Option<&'static str> {
    let is_excused = |(line, from, to): &(&str, &str, &str)| {
        change.whole.contains(line)
            && (from.is_empty() || change.from.trim() == *from)
            && (to.is_empty() || change.to.trim() == *to)
    };
    if same_rotation(change) {
        return Some("a rotation takes its amount modulo 32");
    }
    CLASSES.iter().find(|(_, changes)| changes.iter().any(is_excused)).map(|(reason, _)| *reason)
}
