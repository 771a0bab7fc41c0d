//! Survivors among the sources' mutants that no case can kill.

use super::tokens::Change;

/// A class: part of the line, what was changed, what it became, and the reason; an empty text stands for any.
type Class = (&'static str, &'static str, &'static str, &'static str);

const CLASSES: &[Class] = &[
    ("__launch_bounds__", "4", "", "how many blocks share a multiprocessor is a matter of speed"),
    (
        "? (u16)(bits >> 16 | 0x40)",
        "",
        "",
        "a NaN that arithmetic makes is 0x7fffffff, and which NaN it becomes is not promised",
    ),
    (
        "(extension | 1)",
        "1",
        "",
        "the lowest bits of a tail's extension are rounded off, unless the radius word is nearly 0",
    ),
    (
        "#define ENDED",
        "",
        "",
        "any number stands for \"ended\" that is no index, and that counting does not bring to 0",
    ),
    ("float y[16];", "16", "", "a larger array"),
    ("float z[16];", "16", "", "a larger array"),
    ("float sum[16]", "16", "", "a larger array"),
    ("u32 tail[16];", "16", "", "a larger array"),
    ("u32 words[16];", "16", "", "a larger array"),
    ("float u[8];", "8", "", "a larger array"),
    ("upper = u < 0.0f", "<", "<=", "a uniform is not 0"),
    ("work.step.count : 0)", "0", "", "past the end the gradient becomes NaN, whatever was read before"),
    (
        "work.step.count : 0)",
        "work.live",
        "true",
        "past the end the gradient becomes NaN, whatever was read before",
    ),
    ("const bool whole = aligned", "", "", "one by one the bits are the same as by fours"),
    ("sizeof(typename G::Quad) == 0", "", "", "one by one the bits are the same as by fours"),
    ("__uint_as_float(0x7fc00000)", "0x7fc00000", "", "which NaN does not matter"),
    ("(g & 0x7fff) == 0x7c00", "0x7fff", "", "a conversion to f16 makes one NaN, 0x7fff"),
    ("segment.length;", "(i64)", "(int)", "a segment of 2^31 values needs more memory than a test has"),
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

/// Why a surviving change is as good as the original, if it belongs to a known class.
pub(super) fn excuse(change: &Change) -> Option<&'static str> {
    let is_of = |(line, from, to, _): &&Class| {
        change.whole.contains(line)
            && (from.is_empty() || change.from.trim() == *from)
            && (to.is_empty() || change.to.trim() == *to)
    };
    if same_rotation(change) {
        return Some("a rotation takes its amount modulo 32");
    }
    CLASSES.iter().find(is_of).map(|class| class.3)
}
