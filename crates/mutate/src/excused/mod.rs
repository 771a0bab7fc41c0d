//! Classes of survivors: each describes mutants that no case kills, and says why.
//!
//! A class is of one of three kinds. That a mutant is [`Kind::Equivalent`] must be a proof, for every launch that the host makes: such
//! mutants do not count when the share of killed ones is computed. The other kinds do count. A mutant's class is looked up before it is
//! judged; one that is killed although its class calls it equivalent is a fault of the class, which the report names.

mod flow;
mod grid;
mod loops;
mod numbers;
mod turns;
mod zeros;

use crate::draw::Mutant;
use crate::operators::Operator;
use crate::ptx::{Instruction, Kernel, Module};

/// A mutant in the form that the classes test.
struct Change<'k> {
    module: &'k str,
    kernel: &'k Kernel,
    operator: Operator,
    old: &'k Instruction,
    /// The new instruction, or none if the new text is not one instruction.
    new: Option<Instruction>,
    /// The text that the line has now.
    after: &'k str,
}

/// The kinds of reasons why a mutant survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Every launch that the host makes has the same results.
    Equivalent,
    /// A difference needs more memory or launches than a test has.
    OutOfReach,
    /// A difference shows in too few values for a case to meet one.
    TooRare,
}

impl Kind {
    /// All kinds, in the order of the report.
    pub const ALL: [Kind; 3] = [Kind::Equivalent, Kind::OutOfReach, Kind::TooRare];

    /// The kind in words.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Equivalent => "equivalent",
            Kind::OutOfReach => "out of reach",
            Kind::TooRare => "too rare",
        }
    }
}

/// Why a mutant may survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Excuse {
    /// The kind of the reason.
    pub kind: Kind,
    /// The reason in words.
    pub reason: &'static str,
}

/// A class: its test, and the reason why its mutants survive.
type Class = (fn(&Change<'_>) -> bool, &'static str);

/// Mutants with the same results as the original.
const EQUIVALENT: &[Class] = &[
    (
        numbers::exact,
        "the operation is exact: a product with a power of two, or 1 less than a number in [1/2, 1); no rounding happens",
    ),
    (
        numbers::nan_of_bf16,
        "a NaN that arithmetic makes is 0x7fffffff: other bits of the NaN test of bf16, and which NaN it is, do not matter",
    ),
    (
        numbers::infinity_of_f16,
        "a conversion to f16 makes one NaN, 0x7fff: other bits of the test for infinity do not matter",
    ),
    (
        flow::bounds,
        "no coordinate lies before its segment and past its end: exclusive or is or, and where the other bound is broken, this one does not matter",
    ),
    (numbers::half_turn, "a rotation by 16 is the same both ways"),
    (
        numbers::not_negative,
        "the operand is below 2^31 (or 2^63), or what differs is cut off: signed and unsigned agree",
    ),
    (numbers::multiple, "twice or four times an index has its sign"),
    (loops::rounds, "the number of rounds is 8, 12 or 20, never 0: the loop always runs"),
    (flow::one_block, "`stage` runs as one block of exactly as many threads as there are words"),
    (
        numbers::masked_zeros,
        "the mask's other bits meet zeros, or are set afterwards: a shift by 16 leaves 16 bits, families are 0, 1 and 2, a block has 128 threads",
    ),
    (numbers::disjoint, "the bits are disjoint, after a shift or a mask: exclusive or is or"),
    (numbers::uniform, "a uniform is not 0, and not below 2^-64 in magnitude"),
    (numbers::shifted_out, "only the upper half of the number is read"),
    (numbers::same_address, "a generic address of global memory is its global address"),
    (numbers::same_constant, "both registers hold the same constant"),
    (numbers::amount, "`shf.wrap` takes its amount modulo 32"),
    (numbers::field, "`bfi` takes 8 bits of position and length, and a field ends with its register"),
    (numbers::set_flag, "a flag is read through a mask of 8 bits and compared with 0"),
    (numbers::flag, "a flag is looked at as a whole: any number with its lowest bit set will do"),
    (
        loops::loop_end,
        "a counter that goes up by one meets its limit: less is unequal, and not less is equal",
    ),
    (loops::minimum, "the smaller of two equal numbers is either"),
    (loops::rows, "a turn has at least one row and at most 16"),
    (flow::one_segment, "the search finds a single segment as well as its absence does"),
    (
        loops::skipped_loop,
        "the value is for a loop over rounds that never runs, and is written again in the one that does",
    ),
    (
        flow::ended,
        "any number stands for \"ended\" that is no index into a schedule (2^32 steps would take 128 GiB) and that counting launches does not bring to 0",
    ),
    (
        flow::past_the_tiles,
        "a thread past the last tile has no coordinate, and without a state it writes nothing",
    ),
    (
        flow::launch_key,
        "a step by value finds its key in the launch and in memory, the same one; no step of a schedule that ended is by value",
    ),
    (
        flow::just_past,
        "just past the last step of a schedule that has not ended, the keys are still there, the scale is NaN, and there is no state",
    ),
    (flow::last_return, "falling off a kernel's end returns"),
    (flow::history, "noise is never NaN: a ring's history is rounded on the other branch"),
    (numbers::any_nan, "past the end the scale is NaN: which NaN does not matter"),
    (loops::repeated, "the register holds the same value already"),
    (flow::by_ones, "it decides whether a thread adds by fours; one by one the bits are the same"),
    (
        grid::exact,
        "the result on the grid is exact: a product with a power of two, or a number less the nearest integer",
    ),
    (grid::no_coordinate, "the value of a coordinate outside of its segment is stored nowhere"),
    (grid::no_grid, "the reciprocal of a grid's unit is positive, or 0 where there is no grid"),
    (turns::at_once, "it decides how many past outputs are read at a time; one by one the bits are the same"),
    (
        turns::division,
        "in 64 bits every quotient is right, and within that division the compiler's second test has a known outcome",
    ),
    (
        turns::root,
        "the next step of the iteration corrects it, at every mantissa and with every approximation that is allowed: tests/roots.rs",
    ),
    (
        zeros::exponent,
        "the exponent is 0 or below 2^-60 in magnitude beside a product of 2^-31 or more, in which it is lost",
    ),
    (
        zeros::fresh_buffer,
        "a buffer of -0, or of less than 2^-90 that is multiplied with less than 2 before it is added to a normal, of 2^-46 or more, is lost there",
    ),
    (zeros::no_row, "the value of a row that the turn does not make is stored nowhere"),
    (zeros::sum, "a sum of rows has a term that is not 0: whether it begins at 0 or at -0 does not show"),
    (
        flow::small_count,
        "what the upper half counts is small: 20 rounds, 16 rows at a time, 960 words of `stage`, 2^31 tiles of a ring whose rows are made ahead, or it is a flag or 1",
    ),
    (turns::sum_by_one, "x * 1 + y is y * 1 + x"),
    (
        flow::needless_tail,
        "it decides whether a thread makes a tail block; without a small word, no pair uses it",
    ),
];

/// Mutants whose difference needs more than a test has.
const OUT_OF_REACH: &[Class] = &[(
    flow::counts,
    "the upper half counts 2^16 terms of a sum, or slots of a ring whose rows are made ahead: more than a test's time has",
)];

/// Mutants whose difference shows in too few values.
const TOO_RARE: &[Class] = &[
    (
        zeros::tiny,
        "2^-63 in the place of a buffer that is 0 shows beside a normal below 2^-38, which is once in 2^38",
    ),
    (
        numbers::extension,
        "the lowest bits of a tail's extension are rounded off, unless the radius word is nearly 0: once in 2^32 or less",
    ),
    (
        flow::second_word,
        "a pair looks at its limit only where another word of the block is small: the limit itself beside one is once in 2^45",
    ),
    (
        numbers::signed_tail,
        "a tail's words have their highest bit only where the radius word is 0, and then one time in two: once in 2^33 words",
    ),
    (
        turns::backwards,
        "the last step of a root corrects what the one before it moved the wrong way: but for at most three arguments in 2^24, tests/roots.rs",
    ),
    (turns::half_of_root, "a half that is off by 2^-19 moves a root by 2^-40: once in 2^17 normals or less"),
    (
        grid::second_tail_word,
        "a tail's second word shows only where the radius word is 0 and the first is below 2^24: once in 2^40 words; tests/twin.rs calls the function with such words",
    ),
];

/// The class of a mutant, if it belongs to one: why it may survive.
pub fn excuse(module: &Module, kernel: &Kernel, mutant: &Mutant) -> Option<Excuse> {
    let old = kernel.instructions.iter().find(|instruction| instruction.line == mutant.line)?;
    let single = !mutant.after.contains('\n');
    let new = Instruction::parse(mutant.line, &mutant.after).filter(|_| single);
    let change =
        Change { module: &module.name, kernel, operator: mutant.operator, old, new, after: &mutant.after };
    let lists = Kind::ALL.into_iter().zip([EQUIVALENT, OUT_OF_REACH, TOO_RARE]);
    let mut classes = lists.flat_map(|(kind, list)| list.iter().map(move |class| (kind, class)));
    let found = classes.find(|(_, (is_of, _))| is_of(&change));
    found.map(|(kind, (_, reason))| Excuse { kind, reason })
}

impl Change<'_> {
    fn new_opcode(&self) -> &str {
        self.new.as_ref().map_or("", |new| &new.opcode)
    }

    /// The integer that replaced operand `at`.
    fn new_integer(&self, at: usize) -> Option<i64> {
        self.new.as_ref()?.operands.get(at)?.parse().ok()
    }

    /// The instruction that last wrote a register before this one.
    fn definition(&self, register: &str) -> Option<&Instruction> {
        let before = self.kernel.instructions.iter().take_while(|other| other.line < self.old.line);
        before.filter(|other| other.operands.first().is_some_and(|d| d == register)).last()
    }

    /// Whether one of the sources holds one of these constants, set by an earlier `mov`.
    fn has_constant(&self, constants: &[&str]) -> bool {
        let is = |text: &str| constants.contains(&text);
        let sources = self.old.operands.iter().skip(1);
        let mut values = sources.map(|s| match self.definition(s) {
            Some(mov) if mov.opcode.starts_with("mov.") => mov.operands[1].as_str(),
            _ => s.as_str(),
        });
        values.any(is)
    }

    fn is(&self, opcode: &str, operands: &[(usize, &str)]) -> bool {
        let has =
            |(at, text): &(usize, &str)| self.old.operands.get(*at).is_some_and(|operand| operand == text);
        self.old.opcode == opcode && operands.iter().all(has)
    }
}
