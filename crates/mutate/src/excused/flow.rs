//! Classes of equivalent mutants in bounds, loops and launches.

use super::Change;
use crate::operators::Operator;
use crate::ptx::Instruction;

pub(super) fn bounds(change: &Change<'_>) -> bool {
    let of_a_bound =
        |register: &String| change.definition(register).is_some_and(|d| d.opcode.ends_with(".s64"));
    let one_bound = [("setp.ge.s64", "setp.ge.u64"), ("setp.le.s64", "setp.le.u64")];
    if one_bound.contains(&(change.old.opcode.as_str(), change.new_opcode())) {
        return true;
    }
    change.is("or.pred", &[])
        && change.new_opcode() == "xor.pred"
        && change.old.operands[1..].iter().all(of_a_bound)
}

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

/// The count of a sum's terms, and the numbers of slots and of past outputs of a ring whose rows are made ahead.
pub(super) fn counts(change: &Change<'_>) -> bool {
    let from = |place: &str| change.old.operands.get(1).is_some_and(|from| from.ends_with(place));
    let (ring, makes) = (change.module.starts_with("make_ring"), change.kernel.name == "make");
    change.operator == Operator::Width
        && match (change.old.opcode.as_str(), change.new_opcode()) {
            ("ld.param.u32", "ld.param.u16") => (ring && (from("+140]") || from("+160]"))) || from("+148]"),
            ("ld.global.u32", "ld.global.u16") => makes && !change.module.starts_with("make_blt"),
            ("ld.shared.u32", "ld.shared.u16") => ring,
            ("st.shared.u32", "st.shared.u16") => ring,
            _ => false,
        }
}

/// The upper half of a number that the host keeps small, by its place in the arguments or in a step's record.
pub(super) fn small_count(change: &Change<'_>) -> bool {
    let Some(new) = change.new.as_ref().filter(|_| change.operator == Operator::Width) else { return false };
    let from = |place: &str| change.old.operands.get(1).is_some_and(|from| from.ends_with(place));
    let (blt, makes) = (change.module.starts_with("blt"), change.kernel.name == "make");
    let ring = change.module.starts_with("make_ring");
    match (change.old.opcode.as_str(), new.opcode.as_str()) {
        // The rounds divided by four, and the 1 of `plus`; the rows of a turn; the words of a launch of `stage`.
        ("ld.param.u32", "ld.param.u16") => {
            from("+156]")
                || from("+164]")
                || (makes && from("+296]"))
                || (change.kernel.name == "stage" && change.old.operands[1] == "[stage_param_1]")
                || ((blt || (makes && !ring)) && from("+140]"))
        }
        // A BLT's flag, or the slot of a row where there are as many slots as rows at a time.
        ("ld.global.u32", "ld.global.u16") => (blt || (makes && !ring)) && from("+68]"),
        // The grid of a launch has at most 2³¹ − 1 blocks, of one tile each.
        ("ld.param.u64", "ld.param.u32") => ring && from("+64]"),
        _ => false,
    }
}

pub(super) fn one_block(change: &Change<'_>) -> bool {
    if change.kernel.name != "stage" {
        return false;
    }
    let old = change.old;
    match old.opcode.as_str() {
        // The index is 0 · threads + thread: neither the number of threads nor the half of the product matters.
        "mad.lo.s32" => {
            let others_kept = change.new.as_ref().is_some_and(|new| new.operands[3] == old.operands[3]);
            change.new_opcode() == "mad.hi.s32" || (others_kept && change.operator == Operator::Redirect)
        }
        "mov.u32" => old.operands[1] == "%ntid.x" && change.operator == Operator::Drop,
        "setp.ge.u32" => ["setp.gt.u32", "setp.eq.u32", "setp.ge.s32"].contains(&change.new_opcode()),
        "bra" | "ld.param.u32" if old.guard.is_empty() == (old.opcode != "bra") => {
            change.operator == Operator::Drop
        }
        _ => false,
    }
}

/// The test whether a thread adds four values at a time: where it is refused, the thread adds one at a time, to the same bits.
pub(super) fn by_ones(change: &Change<'_>) -> bool {
    let to = change.new_opcode();
    let (old, new) = (change.old.operands.get(2).and_then(|o| o.parse::<i64>().ok()), change.new_integer(2));
    let grows = matches!((old, new), (Some(old), Some(new)) if new > old);
    match change.old.opcode.as_str() {
        // This is the branch to the fours; without it, the next one leads past them.
        "bra" => {
            let mut next =
                change.kernel.instructions.iter().skip_while(|other| other.line <= change.old.line);
            let past = next.next().is_some_and(|bra| bra.opcode == "bra.uni");
            let fours = next.next().is_some_and(|load| load.opcode.starts_with("ld.global.v4."));
            change.operator == Operator::Drop && past && fours
        }
        "setp.le.s64" => ["setp.eq.s64", "setp.lt.s64"].contains(&to),
        "setp.gt.s64" => to == "setp.gt.u64" || (change.operator == Operator::Immediate && grows),
        "add.s64" => {
            let is_end = old.is_some_and(|old| [4, 132, 260, 388].contains(&old));
            is_end
                && (change.operator == Operator::Redirect
                    || (change.operator == Operator::Immediate && grows))
        }
        // The address then never counts as aligned.
        "setp.eq.s64" => {
            let remainder = change.definition(&change.old.operands[1]);
            let of_alignment = |and: &Instruction| {
                and.opcode == "and.b64" && ["7", "15"].contains(&and.operands[2].as_str())
            };
            remainder.is_some_and(of_alignment)
                && (to == "setp.lt.s64" || matches!((old, new), (Some(0), Some(new)) if new != 0))
        }
        "and.b64" => {
            let is_alignment = old.is_some_and(|old| [7, 15].contains(&old));
            let superset = matches!((old, new), (Some(old), Some(new)) if new & old == old);
            is_alignment && (change.operator == Operator::Drop || superset)
        }
        _ => false,
    }
}

/// The test whether a thread computes a tail block: each pair tests its own word once more.
pub(super) fn needless_tail(change: &Change<'_>) -> bool {
    let of_minimum =
        |setp: &Instruction| change.definition(&setp.operands[1]).is_some_and(|d| d.opcode == "min.u32");
    match change.old.opcode.as_str() {
        "min.u32" => change.operator == Operator::Redirect || change.new_opcode() == "min.s32",
        "setp.lt.u32" if change.old.operands[2] == "65536" && of_minimum(change.old) => {
            ["setp.lt.s32", "setp.le.u32"].contains(&change.new_opcode())
                || change.new_integer(2).is_some_and(|limit| limit > 65536)
        }
        _ => false,
    }
}

/// A pair's own limit, raised: it is tested only where another word of the block is small.
pub(super) fn second_word(change: &Change<'_>) -> bool {
    let raised = change.new_integer(2) == Some(65_536);
    change.is("setp.gt.u32", &[(2, "65535")]) && change.operator == Operator::Immediate && raised
}

/// The end of a loop whose counter goes up by one until it equals its limit.
pub(super) fn loop_end(change: &Change<'_>) -> bool {
    change.old.opcode == "setp.lt.u32" && change.new_opcode() == "setp.ne.u32"
}

/// The test that skips the search if there is one segment, which the search would find as well.
pub(super) fn one_segment(change: &Change<'_>) -> bool {
    let is_test = |setp: &Instruction| {
        let from_host = || change.definition(&setp.operands[1]).is_some_and(|d| d.opcode == "ld.param.u32");
        setp.opcode == "setp.gt.u32" && setp.operands[2] == "1" && from_host()
    };
    // The search never compares two numbers that these two comparisons tell apart.
    if change.is("setp.gt.u32", &[(2, "1")]) && change.new_opcode() == "setp.ne.u32" {
        return true;
    }
    if is_test(change.old) {
        return ["setp.ge.u32", "setp.ne.u32"].contains(&change.new_opcode())
            || change.new_integer(2) == Some(0);
    }
    let unguarded = change.new.as_ref().is_some_and(|new| new.guard.is_empty());
    let guard = change.old.guard.trim_start_matches(['@', '!']);
    change.operator == Operator::Guard && unguarded && change.definition(guard).is_some_and(is_test)
}

/// Initial values for the path on which the loop over rounds does not run: the path that runs it writes them again.
pub(super) fn skipped_loop(change: &Change<'_>) -> bool {
    let mut after =
        change.kernel.instructions.iter().skip_while(|other| other.line <= change.old.line).take(40);
    let copies = |one: &Instruction| ["mov.u32", "cvt.u32.u64"].contains(&one.opcode.as_str());
    let again = |other: &Instruction| copies(other) && other.operands[0] == change.old.operands[0];
    copies(change.old) && after.any(again)
}

/// The compiler makes a uniform again where a tail may follow, and copies keys and names again into the loop over rounds. A copy is
/// needless if the same one stands before it, nothing jumps to between the two, and nothing there writes what is copied.
pub(super) fn repeated(change: &Change<'_>) -> bool {
    let old = change.old;
    let same = |before: &Instruction| {
        let between = |line: &usize| (before.line..old.line).contains(line);
        let writes = |other: &Instruction| other.operands.first() == old.operands.get(1);
        let mut lines = change.kernel.instructions.iter().filter(|other| between(&other.line));
        match old.opcode.as_str() {
            "mov.u32" | "cvt.u32.u64" => {
                (&before.opcode, &before.operands) == (&old.opcode, &old.operands)
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

pub(super) fn last_return(change: &Change<'_>) -> bool {
    let last = change.kernel.instructions.last().map(|last| last.line);
    change.old.opcode == "ret" && change.operator == Operator::Drop && last == Some(change.old.line)
}

/// The number that stands for "ended" in the step counter.
pub(super) fn ended(change: &Change<'_>) -> bool {
    if change.kernel.name != "finish" {
        return false;
    }
    let far = |number: i64| (1 << 32..u64::MAX - (1 << 32)).contains(&(number as u64));
    if change.is("mov.u64", &[(1, "-9223372036854775808")]) {
        return change.new_integer(1).is_some_and(far);
    }
    // The counter's own address is also a number that is no index.
    let address = |new: &Instruction| new.operands[0] == "[%rd2]" && new.operands[1] == "%rd2";
    change.is("st.global.u64", &[(0, "[%rd2]"), (1, "%rd4")]) && change.new.as_ref().is_some_and(address)
}

/// The test for threads past the last tile, in kernels that write no state.
pub(super) fn past_the_tiles(change: &Change<'_>) -> bool {
    let is_test = |setp: &Instruction| {
        let limit = setp.operands.get(2).and_then(|limit| change.definition(limit)?.operands.get(1));
        setp.opcode == "setp.ge.u64" && limit.is_some_and(|from| from.ends_with("_param_0+64]"))
    };
    if !["blt0", "regenerate"].contains(&change.module) {
        return false;
    }
    if is_test(change.old) {
        return ["setp.eq.u64", "setp.gt.u64"].contains(&change.new_opcode());
    }
    let guard = change.old.guard.trim_start_matches('@');
    change.operator == Operator::Drop && change.definition(guard).is_some_and(is_test)
}

/// The test whether a launch has a schedule, where only the source of its key depends on it.
///
/// The key comes from memory if the launch has a schedule and is live. The host puts `keys[incarnation of the row]` into a launch by value, and
/// the same keys are in memory, where the row's name finds them by the same incarnation: such a launch may read either, and it is always
/// live. It is never part of a captured graph, which could outlive the keys in memory: steps by value are refused on a stream that is
/// captured. So a test that takes every launch for a scheduled one changes nothing. One that takes a scheduled launch for a step by
/// value is noticed, since its key is zero; so is one that forgets whether the launch is live. For the same reason a step by value may
/// pass for one that is not live, where nothing else depends on that: without buffers there is no state to leave alone.
pub(super) fn launch_key(change: &Change<'_>) -> bool {
    if change.module == "blt0" && change.is("mov.u16", &[(1, "1")]) {
        return [Operator::Immediate, Operator::Drop].contains(&change.operator);
    }
    let is_live = |setp: &Instruction| setp.opcode == "setp.eq.s16";
    let of_flag = |register: &String| change.definition(register).is_some_and(is_live);
    if change.old.opcode == "or.pred" {
        let only_live = |new: &Instruction| new.operands[1..].iter().all(of_flag);
        return match change.operator {
            Operator::Opcode => {
                change.new_opcode() == "xor.pred" && change.old.operands[1..].iter().any(of_flag)
            }
            Operator::Redirect => change.new.as_ref().is_some_and(only_live),
            _ => false,
        };
    }
    let is_address = |load: &Instruction| load.opcode == "ld.param.u64" && load.operands[1].ends_with("+32]");
    // List, keys, counter and number of steps: none of them is zero in a replay.
    if is_address(change.old) {
        let reads =
            |other: &&Instruction| other.operands.iter().skip(1).any(|o| *o == change.old.operands[0]);
        let tests = |other: &Instruction| other.opcode == "setp.eq.s64" && other.operands[2] == "0";
        let others = ["+16]", "+24]", "+40]", "+48]"];
        let other = |new: &Instruction| others.iter().any(|offset| new.operands[1].ends_with(offset));
        return change.operator == Operator::Offset
            && change.new.as_ref().is_some_and(other)
            && change.kernel.instructions.iter().filter(reads).all(tests);
    }
    let schedule = change.old.operands.get(1).and_then(|register| change.definition(register));
    change.is("setp.eq.s64", &[(2, "0")])
        && schedule.is_some_and(is_address)
        && match change.operator {
            Operator::Comparison => change.new_opcode() == "setp.lt.s64",
            Operator::Immediate | Operator::Redirect => true,
            _ => false,
        }
}

/// The test whether a launch is live, just past the last step of a schedule, in kernels that write no state.
pub(super) fn just_past(change: &Change<'_>) -> bool {
    let mut next = change.kernel.instructions.iter().skip_while(|other| other.line <= change.old.line);
    let is_live = next
        .next()
        .is_some_and(|selp| selp.opcode == "selp.u16" && selp.operands.get(3) == change.old.operands.first());
    let without_state = ["blt0", "regenerate"].contains(&change.module);
    change.old.opcode == "setp.lt.u64" && is_live && without_state && change.new_opcode() == "setp.le.u64"
}

/// The value of a NaN in the rounding of a ring's history.
pub(super) fn history(change: &Change<'_>) -> bool {
    let others_kept = |new: &Instruction| new.operands[2..] == change.old.operands[2..];
    if change.module == "ring_bf16" && change.is("setp.gt.u32", &[(2, "2139095040")]) {
        return change.operator == Operator::Comparison;
    }
    let is_selection = change.module == "ring_bf16" && change.old.opcode == "selp.b16";
    is_selection && change.new.as_ref().is_some_and(others_kept)
}
