//! Classes of equivalent mutants in bounds, branches and launches.

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
            (change.operator == Operator::Drop && past && fours) || (is_unguarded(change) && of_ones(change))
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

/// Whether the change takes a guard away.
fn is_unguarded(change: &Change<'_>) -> bool {
    change.operator == Operator::Guard && change.new.as_ref().is_some_and(|new| new.guard.is_empty())
}

/// Whether a branch leads to the ones: it is guarded by what was -1 before the test for fours, or skips that test.
fn of_ones(change: &Change<'_>) -> bool {
    let by_default = |predicate: &str| {
        let is = |mov: &Instruction| mov.operands == [predicate, "-1"] && mov.opcode == "mov.pred";
        change.kernel.instructions.iter().any(is)
    };
    let mut next = change.kernel.instructions.iter().skip_while(|other| other.line <= change.old.line);
    let mut next =
        || next.next().map_or(("", ""), |one| (&*one.opcode, one.operands.first().map_or("", |o| o)));
    let guard = change.old.guard.trim_start_matches('@');
    let ends = |operands: &[String]| operands.get(2).is_some_and(|end| end == "387");
    let tests_end = |predicate: &str| {
        let test = change.kernel.instructions.iter().find(|one| {
            one.opcode == "setp.ge.s64" && one.operands.first().is_some_and(|result| result == predicate)
        });
        let index = test.and_then(|test| {
            change.kernel.instructions.iter().rfind(|one| {
                one.line < test.line && one.operands.first().is_some_and(|result| *result == test.operands[1])
            })
        });
        index.is_some_and(|add| add.opcode == "add.s64" && ends(&add.operands))
    };
    if by_default(guard) {
        return tests_end(guard) && next().0 == "bra.uni";
    }
    let (add, test) = (next(), next());
    add.0 == "add.s64" && test.0 == "setp.ge.s64" && by_default(test.1) && tests_end(test.1)
}

/// The test whether a thread computes a tail block: each pair tests its own word once more.
pub(super) fn needless_tail(change: &Change<'_>) -> bool {
    let is_test = |setp: &Instruction| {
        setp.opcode == "setp.lt.u32"
            && setp.operands[2] == "65536"
            && change.definition(&setp.operands[1]).is_some_and(|d| d.opcode == "min.u32")
    };
    // Numbers that the host keeps small: with one of them in the minimum, every thread makes a tail.
    let is_small = |register: &String| {
        change.definition(register).is_some_and(|load| {
            load.opcode == "ld.param.u32"
                && ["+156]", "+164]", "+296]"].iter().any(|place| load.operands[1].ends_with(place))
        })
    };
    let small = |new: &Instruction| {
        let mut pairs = change.old.operands.iter().zip(&new.operands).filter(|(old, new)| old != new);
        pairs.all(|(_, new)| is_small(new)) && new.operands[0] == change.old.operands[0]
    };
    let redirected = || change.operator == Operator::Redirect && change.new.as_ref().is_some_and(small);
    match change.old.opcode.as_str() {
        "min.u32" => redirected(),
        "bra" => {
            is_unguarded(change)
                && change
                    .old
                    .guard
                    .strip_prefix('@')
                    .is_some_and(|p| change.definition(p).is_some_and(is_test))
        }
        "setp.lt.u32" if is_test(change.old) => {
            ["setp.lt.s32", "setp.le.u32"].contains(&change.new_opcode())
                || change.new_integer(2).is_some_and(|limit| limit as u32 > 65536)
                || redirected()
        }
        _ => false,
    }
}

/// A pair's own limit, raised: it is tested only where another word of the block is small.
pub(super) fn second_word(change: &Change<'_>) -> bool {
    let raised = change.new_integer(2) == Some(65_536);
    change.is("setp.gt.u32", &[(2, "65535")]) && change.operator == Operator::Immediate && raised
}

/// The test that skips the search if there is one segment, which the search would find as well.
pub(super) fn one_segment(change: &Change<'_>) -> bool {
    let is_test = |setp: &Instruction| {
        let from_host = || {
            let count = change.definition(&setp.operands[1]);
            count.is_some_and(|d| d.opcode == "ld.param.u32" && d.operands[1].ends_with("+152]"))
        };
        setp.opcode == "setp.gt.u32" && setp.operands[2] == "1" && from_host()
    };
    // The search never compares two numbers that these two comparisons tell apart.
    if change.is("setp.gt.u32", &[(2, "1")]) && change.new_opcode() == "setp.ne.u32" {
        let ends = |sub: &Instruction| {
            let chosen = |end: &String| change.definition(end).is_some_and(|d| d.opcode == "selp.b32");
            sub.opcode == "sub.s32" && sub.operands[1..].iter().all(chosen)
        };
        return is_test(change.old) || change.definition(&change.old.operands[1]).is_some_and(ends);
    }
    if is_test(change.old) {
        return ["setp.ge.u32", "setp.ne.u32"].contains(&change.new_opcode())
            || change.new_integer(2) == Some(0);
    }
    let unguarded = change.new.as_ref().is_some_and(|new| new.guard.is_empty());
    let guard = change.old.guard.trim_start_matches(['@', '!']);
    change.operator == Operator::Guard && unguarded && change.definition(guard).is_some_and(is_test)
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
    // The same address is tested where a step is read from the schedule.
    let after = change.kernel.instructions.iter().skip_while(|other| other.line <= change.old.line);
    let of_key = |load: &Instruction| load.opcode == "ld.param.u64" && load.operands[1].ends_with("+24]");
    after.take(6).any(of_key)
        && change.is("setp.eq.s64", &[(2, "0")])
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
