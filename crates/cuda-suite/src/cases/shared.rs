//! Cases, and parts of them, that the fused kernels and those of rows ahead have in common. They differ in their steps, since rows of a turn
//! must follow each other by name.

use super::case::{Action, Case, Lowered, Onto};
use super::runs::Runs;
use corrnoise::backend::Add;
use corrnoise::{Plan, Result, Rounds};
use std::ops::Range;

pub(super) const TILE: u64 = 512;

/// Makes the steps of a plan in a range.
pub(super) type Steps = fn(&Plan, Range<u64>) -> Result<Vec<Lowered>>;

pub(super) fn one_by_one(steps: Vec<Lowered>, onto: impl Fn(usize) -> Onto) -> Vec<Action> {
    steps.into_iter().enumerate().map(|(i, step)| Action::Step(step, onto(i))).collect()
}

/// 68 segments that begin and end at each of a thread's sixteen places, in memory that allows accesses of four values and in
/// memory that does not; some have fewer than four values.
pub(super) fn edges() -> Vec<(Range<u64>, u64)> {
    let place = |i: u64, lane: u64| 128 * (i / 4 % 4) + 4 * (lane % 31) + i % 4;
    let mut segments: Vec<Range<u64>> = (0..64)
        .map(|i: u64| {
            let base = TILE * (3 * i + 1);
            // The ends run through all sixteen places too, at odd and at even distances from the starts.
            base + place(i, 5 * i + 1)
                ..base + TILE * (1 + i % 3 / 2) + place(7 * i + 5 + i / 16 % 2, 3 * i + 2)
        })
        .collect();
    let base = TILE * 220;
    segments.extend([
        base + 3..base + 4,
        base + 701..base + 703,
        base + 1_153..base + 1_156,
        base + 1_600..base + 1_616,
    ]);
    segments.into_iter().zip(0..).map(|(segment, i)| (segment, if i < 32 { 1 + i % 3 } else { 0 })).collect()
}

/// Gradients at which the sum's rounding to the grid turns, by fours and one by one; then two steps without a grid.
pub(super) fn on_the_grid(runs: Runs, steps: Steps) -> Result<Case> {
    let plan = Plan::new(8, runs.form(2)?, 0.7313)?.with_finest_grid()?;
    let mut steps = steps(&plan, 0..8)?;
    steps[6].add = Add::Plain(0.3);
    steps[7].add = Add::Plain(-1.25);
    let (exactly, below) = (Onto::Edge { above: true }, Onto::Edge { above: false });
    let onto = |i| [Onto::Units, exactly, below, Onto::Units, exactly, below, Onto::Special, Onto::Values][i];
    Ok(Case::new("grid", plan, [(3..1_100, 0), (1_536..2_600, 1)], one_by_one(steps, onto)))
}

/// Coordinates where the low word of the block counter overflows, and coordinates beyond 2⁴⁷.
pub(super) fn far(runs: Runs, num_steps: u64, steps: Steps) -> Result<Case> {
    let plan = Plan::new(num_steps, runs.form(1)?, 0.7313)?.with_finest_grid()?.with_rounds(Rounds::R20)?;
    let segments = [
        ((1 << 36) - 700..(1 << 36) + 613, 0),
        ((1 << 47) + 131..(1 << 47) + 700, 2),
        ((1 << 48) - 5..1 << 48, 0),
    ];
    let actions = one_by_one(steps(&plan, 0..num_steps)?, |_| Onto::Zero);
    Ok(Case::new("far", plan, segments, actions))
}

/// Steps by value, then two schedules on the device, then by value again: `ends` are where the first three parts end.
pub(super) fn replay_in_parts(mut all: Vec<Lowered>, ends: [usize; 3]) -> Vec<Action> {
    let last = all.split_off(ends[2]);
    let second = all.split_off(ends[1]);
    let first = all.split_off(ends[0]);
    let mut actions = one_by_one(all, |_| Onto::Values);
    actions.push(Action::Replay { launches: first.len(), steps: first, onto: Onto::Values });
    actions.push(Action::Replay { launches: second.len(), steps: second, onto: Onto::Special });
    actions.extend(one_by_one(last, |_| Onto::Zero));
    actions
}

/// Two graphs, each launched again after its replay ended. Steps are left over in both schedules, so that a counter shows that
/// still points into them or is set back.
pub(super) fn ended(runs: Runs, steps: Steps) -> Result<Case> {
    let plan = Plan::new(12, runs.form(3)?.with_restarts(7)?, 0.7313)?.with_finest_grid()?;
    let all = steps(&plan, 0..10)?;
    // The steps made are 0, then 1 to 3 of a schedule of 1 to 6, then 4 to 7 of a schedule of 4 to 8, then 8 and 9.
    let mut actions = one_by_one(all[..1].to_vec(), |_| Onto::Zero);
    actions.push(Action::Graph { steps: all[1..7].to_vec(), launches: 3, after: 2, onto: Onto::Values });
    actions.push(Action::Graph { steps: all[4..9].to_vec(), launches: 4, after: 1, onto: Onto::Special });
    actions.extend(one_by_one(all[8..].to_vec(), |_| Onto::Values));
    Ok(Case::new("ended", plan, [(2..530, 0), (1_025..1_111, 1)], actions))
}

/// The segments of [`infinities`]: a tile in memory that allows accesses of four values, and one in memory that does not.
pub(super) const TWO_TILES: [(Range<u64>, u64); 2] = [(0..TILE, 0), (1_024..1_024 + TILE, 1)];

/// One infinity of each sign at each place of a thread, then two at a time, in both of [`TWO_TILES`]; `between` stands behind each first one.
pub(super) fn infinities(between: &[Onto]) -> Vec<Onto> {
    let mut list = Vec::new();
    for segment in 0..2 {
        for place in 0..16 {
            let at = |place: usize| 128 * (place / 4) + 4 * 11 + place % 4;
            let infinity = |other, negative| Onto::Infinity { segment, at: [at(place), at(other)], negative };
            list.push(infinity(place, false));
            list.extend_from_slice(between);
            list.push(infinity(place, true));
            // With two infinities at a time, one must not hide the other.
            list.extend([infinity(0, false), infinity(place / 4 * 4, false)]);
        }
    }
    list
}
