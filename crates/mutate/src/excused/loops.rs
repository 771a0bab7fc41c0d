//! Classes of equivalent mutants in loops: their ends, the tests before them, and what the compiler copies into them.

use super::Change;
use crate::operators::Operator;
use crate::ptx::Instruction;

/// The test before the loop over rounds, recognised by the cipher's first constant close after it.
pub(super) fn rounds(change: &Change<'_>) -> bool {
    let is_test = |setp: &Instruction| {
        let near = |other: &&Instruction| (setp.line..setp.line + 16).contains(&other.line);
        let first_constant = |other: &Instruction| other.operands.get(1).is_some_and(|c| c == "1634760805");
        setp.opcode == "setp.eq.s32"
            && setp.operands[2] == "0"
            && change.kernel.instructions.iter().filter(near).any(first_constant)
    };
    if is_test(change.old) {
        return match change.operator {
            Operator::Comparison => ["setp.lt.s32", "setp.le.s32"].contains(&change.new_opcode()),
            Operator::Immediate => change.new_integer(2).is_some_and(|number| ![2, 3, 5].contains(&number)),
            Operator::Redirect => true,
            _ => false,
        };
    }
    let guard = change.old.guard.trim_start_matches(['@', '!']);
    change.old.opcode == "bra"
        && change.operator == Operator::Drop
        && change.definition(guard).is_some_and(is_test)
}

/// The end of a loop whose counter goes up by one until it equals its limit.
pub(super) fn loop_end(change: &Change<'_>) -> bool {
    let counts = |add: &Instruction| add.opcode == "add.s32" && add.operands[2] == "1";
    if !change.old.operands.get(1).and_then(|d| change.definition(d)).is_some_and(counts) {
        return false;
    }
    // A slot that is set back to the first as soon as it is the last but one.
    let turns = |selp: &Instruction| {
        selp.opcode == "selp.b32"
            && selp.operands[1..] == ["0", &change.old.operands[1], &change.old.operands[0]]
    };
    match change.old.opcode.as_str() {
        "setp.lt.u32" => change.new_opcode() == "setp.ne.u32",
        "setp.eq.s32" => {
            change.new_opcode() == "setp.ge.s32" && change.readers(&change.old.operands[0]).any(turns)
        }
        _ => false,
    }
}

/// The smaller one of two numbers, which are the same where they are equal.
pub(super) fn minimum(change: &Change<'_>) -> bool {
    let lower = |register: &str| {
        let cvt = change.definition(register).filter(|cvt| cvt.opcode == "cvt.u64.u32");
        cvt.map(|cvt| cvt.operands[1].as_str())
    };
    let chooses = |selp: &Instruction| {
        selp.opcode == "selp.b32"
            && selp.operands[3] == change.old.operands[0]
            && lower(&change.old.operands[2]) == Some(&selp.operands[2])
            && change
                .definition(&selp.operands[1])
                .is_some_and(|cvt| cvt.opcode == "cvt.u32.u64" && cvt.operands[1] == change.old.operands[1])
    };
    change.old.opcode == "setp.lt.u64"
        && change.new_opcode() == "setp.le.u64"
        && change.readers(&change.old.operands[0]).all(chooses)
}

/// The test before a loop over the rows of a turn, or over those that the turn before made and folds.
pub(super) fn rows(change: &Change<'_>) -> bool {
    let is_test = |setp: &Instruction| {
        setp.opcode == "setp.eq.s32"
            && setp.operands[2] == "0"
            && change
                .definition(&setp.operands[1])
                .is_some_and(|min| min.opcode == "min.u32" && min.operands[0] == min.operands[1])
    };
    if change.kernel.name != "make" {
        return false;
    }
    if is_test(change.old) {
        return ["setp.lt.s32", "setp.le.s32"].contains(&change.new_opcode())
            || change.new_integer(2).is_some_and(|number| !(1..=16).contains(&number));
    }
    let guard = change.old.guard.trim_start_matches(['@', '!']);
    change.old.opcode == "bra"
        && change.operator == Operator::Drop
        && change.definition(guard).is_some_and(is_test)
}

/// Initial values for the path on which the loop over rounds does not run: the path that runs it writes them again.
pub(super) fn skipped_loop(change: &Change<'_>) -> bool {
    let after =
        || change.kernel.instructions.iter().skip_while(|other| other.line <= change.old.line).take(40);
    let copies = |one: &Instruction| ["mov.u32", "cvt.u32.u64"].contains(&one.opcode.as_str());
    let result = change.old.operands.first();
    let writes =
        |other: &&Instruction| copies(other) && other.guard.is_empty() && other.operands.first() == result;
    let Some(again) = after().find(writes) else { return false };
    let between = |line: &usize| (change.old.line + 1..again.line).contains(line);
    // Only the test for rounds leads elsewhere, and nobody reads the value.
    let harmless = |one: &Instruction| {
        let jumps = one.opcode.starts_with("bra") && !rounds(&Change { old: one, ..change.dropped() });
        !jumps && !one.operands.iter().skip(1).any(|source| Some(source) == result)
    };
    copies(change.old)
        && !again.operands.iter().skip(1).any(|source| Some(source) == result)
        && !change.kernel.labels.iter().any(between)
        && after().filter(|one| between(&one.line)).all(harmless)
}

impl<'k> Change<'k> {
    /// The same place, with nothing there.
    fn dropped(&self) -> Change<'k> {
        Change { operator: Operator::Drop, new: None, after: "", ..*self }
    }
}

/// The compiler makes a uniform again where a tail may follow, and copies keys and names again into the loop over rounds. A copy is
/// needless if the same one stands before it, nothing jumps to between the two, and nothing there writes what is copied.
pub(super) fn repeated(change: &Change<'_>) -> bool {
    let old = change.old;
    let same = |before: &Instruction| {
        let writes = |other: &Instruction| other.operands.first() == old.operands.get(1);
        match old.opcode.as_str() {
            "mov.u32" | "cvt.u32.u64" => {
                // The same copy, or a copy of a register that holds the same.
                let first = match before.operands.get(1).and_then(|source| change.definition(source)) {
                    Some(first) if before.opcode == "mov.u32" && old.opcode != "mov.u32" => first,
                    _ => before,
                };
                let between = |line: &usize| (first.line..old.line).contains(line);
                let mut lines = change.kernel.instructions.iter().filter(|other| between(&other.line));
                (&first.opcode, &first.operands[1..]) == (&old.opcode, &old.operands[1..])
                    && first.guard.is_empty()
                    && before.guard.is_empty()
                    && first.line <= before.line
                    && !change.kernel.labels.iter().any(between)
                    && !lines.any(writes)
            }
            "mul.rn.f32" => before.opcode == "mul.rn.f32" && change.has_constant(&["0f2F800000"]),
            _ => false,
        }
    };
    let onto_itself = |new: &Instruction| {
        change.operator == Operator::Redirect && old.opcode == "mov.u32" && new.operands[0] == new.operands[1]
    };
    let is_dropped = change.operator == Operator::Drop || change.new.as_ref().is_some_and(onto_itself);
    is_dropped && old.operands.first().and_then(|d| change.definition(d)).is_some_and(same)
}
