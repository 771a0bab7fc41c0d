//! The list of cases: small shapes that reach every instruction, and one large shape for differences that show once in millions.

#![allow(clippy::single_range_in_vec_init, reason = "a shard of one segment is a list of one range")]

use super::case::{Action, Case, Lowered, Onto};
use super::incarnations::{
    incarnations, long_list, many_keys, rows_of_incarnations, scheduled, scheduled_incarnations,
};
use super::runs::Runs;
use super::witnesses::key;
use super::{ahead, rare};
use corrnoise::backend::Add;
use corrnoise::cuda::CudaOptions;
use corrnoise::{Family, Plan, Result, Rounds, Row, RunKey};
use std::ops::Range;
use std::sync::Arc;

pub(super) const TILE: u64 = 512;

/// A few incarnations of a run, each with a key of its own.
pub(super) fn few_keys() -> Arc<Vec<RunKey>> {
    Arc::new((0..3).map(key).collect())
}

/// Steps of a plan whose rows belong to `incarnation(step)` and have bits set in both words of their names.
fn steps(plan: &Plan, range: Range<u64>, incarnation: impl Fn(u64) -> u16) -> Result<Vec<Lowered>> {
    range
        .map(|t| {
            let family = if t % 2 == 0 { Family::Step } else { Family::TreeNode };
            Lowered::of(plan, t)?.with_row(Row::new(family, incarnation(t), (t % 64) << 33 | t)?)
        })
        .collect()
}

pub(super) fn one_by_one(steps: Vec<Lowered>, onto: impl Fn(usize) -> Onto) -> Vec<Action> {
    steps.into_iter().enumerate().map(|(i, step)| Action::Step(step, onto(i))).collect()
}

/// 68 segments that begin and end at each of a thread's sixteen places, in memory that allows accesses of four values and in
/// memory that does not; some have fewer than four values.
pub(super) fn edges() -> (Vec<Range<u64>>, Vec<u64>) {
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
    let shifts = (0..segments.len() as u64).map(|i| if i < 32 { 1 + i % 3 } else { 0 }).collect();
    (segments, shifts)
}

/// The cases that every mutant of a module runs, cheapest first. `f16` adds those of gradients that can overflow.
pub fn fast(module: &str, f16: bool) -> Result<Vec<Case>> {
    let (runs, ahead) = Runs::of(module)?;
    if let Some(rows) = ahead {
        return ahead::fast(runs, rows, f16);
    }
    let mut cases = vec![
        at_the_edges(runs)?,
        rare::tails(runs, CudaOptions::default())?,
        rare::named_tails(runs, CudaOptions::default())?,
        whole(runs)?,
        far(runs)?,
        replayed(runs)?,
        past_the_end(runs)?,
        ended(runs)?,
        on_the_grid(runs)?,
        scales(runs)?,
    ];
    if f16 {
        cases.push(overflows(runs)?);
    }
    match runs {
        Runs::Blt(_) => cases.push(scheduled_incarnations(runs)?),
        Runs::Ring { .. } => {
            cases.extend([one_band(runs)?, many_slots(runs)?, scheduled_incarnations(runs)?])
        }
        Runs::Regenerate => cases.extend([incarnations(runs)?, long_list(runs)?]),
    }
    Ok(cases)
}

fn at_the_edges(runs: Runs) -> Result<Case> {
    let form = runs.form(5)?.with_restarts(3)?;
    let plan = Plan::new(7, form, 0.7313)?.with_finest_grid()?;
    let (segments, shifts) = edges();
    let steps = steps(&plan, 0..5, |t| t as u16 % 3)?;
    let onto = |i| [Onto::Values, Onto::Cancelled, Onto::Special, Onto::Halfway, Onto::Zero][i];
    Ok(Case {
        name: "edges",
        plan,
        keys: few_keys(),
        segments,
        shifts,
        options: CudaOptions::default(),
        actions: one_by_one(steps, onto),
    })
}

fn whole(runs: Runs) -> Result<Case> {
    let plan = Plan::new(14, runs.form(5)?, 0.7313)?.with_finest_grid()?;
    let steps = steps(&plan, 0..14, |_| 2)?;
    let onto = |i| if i % 2 == 0 { Onto::Zero } else { Onto::Values };
    let (segments, shifts) = (vec![0..1_100], vec![0]);
    Ok(Case {
        name: "whole",
        plan,
        keys: few_keys(),
        segments,
        shifts,
        options: CudaOptions::default(),
        actions: one_by_one(steps, onto),
    })
}

/// Gradients at which the sum's rounding to the grid turns, by fours and one by one; then two steps without a grid.
fn on_the_grid(runs: Runs) -> Result<Case> {
    let plan = Plan::new(8, runs.form(2)?, 0.7313)?.with_finest_grid()?;
    let mut steps = steps(&plan, 0..8, |t| t as u16 % 2)?;
    steps[6].add = Add::Plain(0.3);
    steps[7].add = Add::Plain(-1.25);
    let (exactly, below) = (Onto::Edge { above: true }, Onto::Edge { above: false });
    let onto = |i| [Onto::Units, exactly, below, Onto::Units, exactly, below, Onto::Special, Onto::Values][i];
    let (segments, shifts) = (vec![3..1_100, 1_536..2_600], vec![0, 1]);
    Ok(Case {
        name: "grid",
        plan,
        keys: few_keys(),
        segments,
        shifts,
        options: CudaOptions::default(),
        actions: one_by_one(steps, onto),
    })
}

/// Scales from step to step, by value and in a schedule, with restarts between; one of them is negative. On the smallest the noise has few
/// units, on the largest it has so many that its last place is a whole unit, or leaves the range in which the sum is exact.
fn scales(runs: Runs) -> Result<Case> {
    let scales = [1.0, 0.37, -2.5, 1.9, 0.8, 0.011, 1.3, 5.7];
    let form = runs.form(3)?.with_restarts(3)?.with_output_scale(scales.to_vec())?;
    let plan = Plan::new(8, form, 0.02)?.with_finest_grid()?;
    let mut steps = steps(&plan, 0..8, |t| (t / 3) as u16)?;
    steps.push(steps[7].clone().with_scale(&plan, 500.0));
    steps.push(steps[7].clone().with_scale(&plan, 1e6));
    let by_value = steps.split_off(5);
    let exactly = Onto::Edge { above: true };
    let mut actions = vec![Action::Replay { launches: steps.len(), steps, onto: exactly }];
    actions.extend(one_by_one(by_value, |i| [exactly, Onto::Units][i % 2]));
    let (segments, shifts) = (vec![1..700, 1_024..1_600], vec![0, 2]);
    Ok(Case {
        name: "scales",
        plan,
        keys: few_keys(),
        segments,
        shifts,
        options: CudaOptions::default(),
        actions,
    })
}

/// Coordinates where the low word of the block counter overflows, and coordinates beyond 2⁴⁷.
fn far(runs: Runs) -> Result<Case> {
    let plan = Plan::new(2, runs.form(1)?, 0.7313)?.with_finest_grid()?.with_rounds(Rounds::R20)?;
    let segments =
        vec![(1 << 36) - 700..(1 << 36) + 613, (1 << 47) + 131..(1 << 47) + 700, (1 << 48) - 5..1 << 48];
    let steps = steps(&plan, 0..2, |_| 0)?;
    let onto = |_| Onto::Zero;
    Ok(Case {
        name: "far",
        plan,
        keys: few_keys(),
        segments,
        shifts: vec![0, 2, 0],
        options: CudaOptions::default(),
        actions: one_by_one(steps, onto),
    })
}

/// Three steps by value, six from two schedules on the device, then three by value again; the form restarts within.
fn replayed(runs: Runs) -> Result<Case> {
    let plan = Plan::new(12, runs.form(4)?.with_restarts(5)?, 0.7313)?.with_finest_grid()?;
    let mut all = steps(&plan, 0..12, |t| if t < 3 { 0 } else { 1 })?;
    // Step numbers have more than 32 bits: the overflow flag reports them.
    all.iter_mut().for_each(|step| step.number += 1 << 40);
    let last = all.split_off(9);
    let second = all.split_off(7);
    let first = all.split_off(3);
    let mut actions = one_by_one(all, |_| Onto::Values);
    actions.push(Action::Replay { launches: first.len(), steps: first, onto: Onto::Values });
    actions.push(Action::Replay { launches: second.len(), steps: second, onto: Onto::Special });
    actions.extend(one_by_one(last, |_| Onto::Zero));
    let segments = vec![3..520, 1_024..1_100, 2_049..3_000];
    Ok(Case {
        name: "replayed",
        plan,
        keys: few_keys(),
        segments,
        shifts: vec![0, 1, 0],
        options: CudaOptions::default(),
        actions,
    })
}

fn past_the_end(runs: Runs) -> Result<Case> {
    let plan = Plan::new(8, runs.form(3)?, 0.7313)?.with_finest_grid()?;
    let mut all = steps(&plan, 0..5, |_| 1)?;
    let scheduled = all.split_off(3);
    let mut actions = one_by_one(all, |_| Onto::Zero);
    actions.push(Action::Replay { launches: 4, steps: scheduled, onto: Onto::Values });
    Ok(Case {
        name: "past the end",
        plan,
        keys: few_keys(),
        segments: vec![5..1_031, 2_048..2_600],
        shifts: vec![0, 1],
        options: CudaOptions::default(),
        actions,
    })
}

/// Two graphs, each launched again after its replay ended. Steps are left over in both schedules, so that a counter shows that
/// still points into them or is set back.
fn ended(runs: Runs) -> Result<Case> {
    let plan = Plan::new(12, runs.form(3)?.with_restarts(7)?, 0.7313)?.with_finest_grid()?;
    let all = steps(&plan, 0..10, |t| t as u16 % 3)?;
    // The steps made are 0, then 1 to 3 of a schedule of 1 to 6, then 4 to 7 of a schedule of 4 to 8, then 8 and 9.
    let mut actions = one_by_one(all[..1].to_vec(), |_| Onto::Zero);
    actions.push(Action::Graph { steps: all[1..7].to_vec(), launches: 3, after: 2, onto: Onto::Values });
    actions.push(Action::Graph { steps: all[4..9].to_vec(), launches: 4, after: 1, onto: Onto::Special });
    actions.extend(one_by_one(all[8..].to_vec(), |_| Onto::Values));
    let segments = vec![2..530, 1_025..1_111];
    Ok(Case {
        name: "ended",
        plan,
        keys: few_keys(),
        segments,
        shifts: vec![0, 1],
        options: CudaOptions::default(),
        actions,
    })
}

/// A case for kernels whose `advance` counts 2³² steps at a time: after the first launch the lower half of the counter is 0, as
/// at the start.
pub fn leaping(module: &str) -> Result<Case> {
    let (runs, ahead) = Runs::of(module)?;
    let plan = Plan::new(2, runs.form(1)?, 0.7313)?.with_finest_grid()?;
    let mut steps = if ahead.is_some() { ahead::steps(&plan, 0..2)? } else { steps(&plan, 0..2, |_| 1)? };
    let actions = vec![
        Action::Graph { steps: steps.drain(..1).collect(), launches: 3, after: 1, onto: Onto::Values },
        Action::Step(steps.remove(0), Onto::Zero),
    ];
    let options = ahead::options(ahead);
    Ok(Case {
        name: "leaping",
        plan,
        keys: few_keys(),
        segments: vec![4..261],
        shifts: vec![0],
        options,
        actions,
    })
}

/// One infinity of each sign at each place of a thread, in memory that allows accesses of four values and in memory that does
/// not. Step numbers descend, so that each step must lower the overflow flag; in between, the largest values and NaN must not.
fn overflows(runs: Runs) -> Result<Case> {
    let plan = Plan::new(1, runs.form(1)?, 1e-3)?.with_finest_grid()?;
    let segments = vec![0..TILE, 1_024..1_024 + TILE];
    let mut actions = Vec::new();
    let mut number = 1 << 41;
    let mut push = |onto, scale| -> Result<()> {
        number -= 1;
        actions
            .push(Action::Step(Lowered { number, ..Lowered::of(&plan, 0)?.with_scale(&plan, scale) }, onto));
        Ok(())
    };
    push(Onto::Zero, 1.0)?;
    for segment in 0..2 {
        for place in 0..16 {
            let at = |place: usize| 128 * (place / 4) + 4 * 11 + place % 4;
            push(Onto::Infinity { segment, at: [at(place); 2], negative: false }, 1e-3)?;
            push(Onto::Values, 1e-3)?;
            push(Onto::Infinity { segment, at: [at(place); 2], negative: true }, 1e-3)?;
            // With two infinities at a time, one must not hide the other.
            for other in [0, place / 4 * 4] {
                push(Onto::Infinity { segment, at: [at(place), at(other)], negative: false }, 1e-3)?;
            }
        }
    }
    push(Onto::Zero, 1e6)?;
    push(Onto::Special, 1e-3)?;
    Ok(Case {
        name: "overflows",
        plan,
        keys: few_keys(),
        segments,
        shifts: vec![0, 1],
        options: CudaOptions::default(),
        actions,
    })
}

/// A ring of one band, which has no slots.
fn one_band(runs: Runs) -> Result<Case> {
    let plan = Plan::new(2, runs.form(0)?, 0.7313)?.with_finest_grid()?;
    let actions = one_by_one(steps(&plan, 0..2, |_| 0)?, |_| Onto::Zero);
    Ok(Case {
        name: "one band",
        plan,
        keys: few_keys(),
        segments: vec![7..600],
        shifts: vec![0],
        options: CudaOptions::default(),
        actions,
    })
}

/// A ring of 67 slots that is filled, wraps more than once, and restarts.
fn many_slots(runs: Runs) -> Result<Case> {
    let plan = Plan::new(150, runs.form(67)?.with_restarts(141)?, 0.7313)?.with_finest_grid()?;
    let actions = one_by_one(steps(&plan, 0..145, |t| t as u16 % 3)?, |_| Onto::Zero);
    Ok(Case {
        name: "many slots",
        plan,
        keys: few_keys(),
        segments: vec![510..1_000],
        shifts: vec![0],
        options: CudaOptions::default(),
        actions,
    })
}

/// Two steps of 2²⁰ values in memory that allows fours and 2²⁰ in memory that does not, for roundings that seldom show; before them,
/// places that show roundings which are rarer still.
pub fn deep(module: &str) -> Result<Vec<Case>> {
    let (runs, ahead) = Runs::of(module)?;
    if let Some(rows) = ahead {
        return ahead::deep(runs, rows);
    }
    let plan = Plan::new(3, runs.form(2)?, 0.7313)?.with_finest_grid()?.with_rounds(Rounds::R8)?;
    let steps = steps(&plan, 0..3, |_| 0)?.split_off(1);
    // The first is in the middle of a run, so that a ring has coefficients and a BLT its buffers.
    let onto = |i| if i == 0 { Onto::Edge { above: true } } else { Onto::Halfway };
    let segments = vec![0..1 << 20, (1 << 20) + 5 * TILE + 1..2 << 20];
    let actions = one_by_one(steps, onto);
    let deep = Case {
        name: "deep",
        plan,
        keys: few_keys(),
        segments,
        shifts: vec![0, 1],
        options: CudaOptions::default(),
        actions,
    };
    let mut cases = vec![
        rare::last_bits(runs, CudaOptions::default())?,
        rare::extensions(runs, CudaOptions::default())?,
        rare::many_tails(runs, CudaOptions::default())?,
        deep,
    ];
    cases.extend(rare::ends(runs, CudaOptions::default())?);
    // A regenerated sum has its incarnations among the small cases.
    if runs != Runs::Regenerate {
        cases.push(scheduled("all scheduled incarnations", runs, rows_of_incarnations()?, many_keys())?);
    }
    Ok(cases)
}
