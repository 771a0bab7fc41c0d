//! Cases of the kernels that make rows ahead, and of the one that adds them. Rows of a turn follow each other by name, so all steps of a
//! case belong to one incarnation and to the plan.

#![allow(clippy::single_range_in_vec_init, reason = "a shard of one segment is a list of one range")]

use super::case::{Action, Case, Lowered, Onto};
use super::list::{edges, few_keys, one_by_one};
use super::rare;
use super::runs::Runs;
use corrnoise::backend::Add;
use corrnoise::cuda::CudaOptions;
use corrnoise::form::{Kernel, Ring};
use corrnoise::{Family, Plan, Result, Rounds, Row};
use std::ops::Range;

/// One row at a time, which runs the kernels of rows ahead only where it is prepared.
const ROW_BY_ROW: CudaOptions = CudaOptions { rows_ahead: Some(1), prepare: true, max_state_bytes: None };

/// The options of a module's kernels.
pub(super) fn options(rows: Option<usize>) -> CudaOptions {
    CudaOptions { rows_ahead: rows, ..CudaOptions::default() }
}

/// Steps of a plan, all of one incarnation.
pub(super) fn steps(plan: &Plan, range: Range<u64>) -> Result<Vec<Lowered>> {
    range
        .map(|t| {
            let mut step = Lowered::of(plan, t)?.with_row(Row::new(Family::Step, 2, t)?)?;
            if let super::case::Work::Regenerate { terms } = &mut step.work {
                for (back, (row, _)) in (0..).zip(terms) {
                    *row = Row::new(Family::Step, 2, t - back)?;
                }
            }
            Ok(step)
        })
        .collect()
}

/// The cases that every mutant of a module runs, cheapest first.
pub(super) fn fast(runs: Runs, rows: usize, f16: bool) -> Result<Vec<Case>> {
    let mut cases = vec![
        // These have one step, so that any number of rows ahead will do.
        rare::tails(runs, options(Some(rows)))?,
        rare::named_tails(runs, options(Some(rows)))?,
        few_rows(runs)?,
        turns(runs, rows)?,
        at_the_edges(runs, rows)?,
        far(runs, rows)?,
        replayed(runs, rows)?,
        past_the_end(runs, rows)?,
        ended(runs, rows)?,
        on_the_grid(runs, rows)?,
        long_table(runs, rows)?,
    ];
    if matches!(runs, Runs::Ring { .. }) {
        cases.push(varying(rows)?);
    }
    if f16 {
        cases.push(overflows(runs)?);
    }
    Ok(cases)
}

/// The large cases, for what shows once in thousands or in millions of values.
pub(super) fn deep(runs: Runs, rows: usize) -> Result<Vec<Case>> {
    let plan = Plan::new(2 * rows as u64 + 3, runs.form(rows + 3)?, 0.7313)?
        .with_finest_grid()?
        .with_rounds(Rounds::R8)?;
    let steps = steps(&plan, 0..plan.num_steps())?;
    let onto = |i| if i % 2 == 0 { Onto::Edge { above: i % 4 == 0 } } else { Onto::Cancelled };
    let actions = one_by_one(steps, onto);
    let segments = vec![0..1 << 17, (1 << 17) + 5 * 512 + 1..1 << 18];
    let options = options(Some(rows));
    let deep = Case { name: "deep", plan, keys: few_keys(), segments, shifts: vec![0, 1], options, actions };
    let mut cases = vec![
        rare::last_bits(runs, ROW_BY_ROW)?,
        rare::extensions(runs, ROW_BY_ROW)?,
        rare::many_tails(runs, ROW_BY_ROW)?,
        deep,
    ];
    cases.extend(rare::ends(runs, options)?);
    Ok(cases)
}

/// Turns of all phases, with rings that are filled, wrap and restart.
fn turns(runs: Runs, rows: usize) -> Result<Case> {
    let plan = Plan::new(48, runs.form(rows + 5)?.with_restarts(37)?, 0.7313)?.with_finest_grid()?;
    let actions = one_by_one(steps(&plan, 0..48)?, |i| [Onto::Cancelled, Onto::Values][i % 2]);
    let (segments, options) = (vec![100..19 * 512 + 7], options(Some(rows)));
    Ok(Case { name: "turns", plan, keys: few_keys(), segments, shifts: vec![0], options, actions })
}

/// Turns of three rows, on fewer tiles than rows and on more, and restarts within a turn.
fn few_rows(runs: Runs) -> Result<Case> {
    let plan = Plan::new(14, runs.form(4)?.with_restarts(5)?, 0.7313)?.with_finest_grid()?;
    let mut all = steps(&plan, 0..14)?;
    all[3].add = Add::Plain(0.3);
    let actions = one_by_one(all, |i| [Onto::Values, Onto::Cancelled][i % 2]);
    let segments = vec![3..700, 1_024..1_030, 2_048..3_999];
    let options = options(Some(3));
    Ok(Case { name: "few rows", plan, keys: few_keys(), segments, shifts: vec![0, 1, 2], options, actions })
}

fn at_the_edges(runs: Runs, rows: usize) -> Result<Case> {
    let plan = Plan::new(12, runs.form(5)?.with_restarts(7)?, 0.7313)?.with_finest_grid()?;
    let (segments, shifts) = edges();
    let onto = |i| [Onto::Values, Onto::Cancelled, Onto::Special, Onto::Halfway, Onto::Zero][i % 5];
    let actions = one_by_one(steps(&plan, 0..11)?, onto);
    let options = options(Some(rows));
    Ok(Case { name: "edges", plan, keys: few_keys(), segments, shifts, options, actions })
}

/// Coordinates where the low word of the block counter overflows, and coordinates beyond 2⁴⁷.
fn far(runs: Runs, rows: usize) -> Result<Case> {
    let plan = Plan::new(4, runs.form(1)?, 0.7313)?.with_finest_grid()?.with_rounds(Rounds::R20)?;
    let segments =
        vec![(1 << 36) - 700..(1 << 36) + 613, (1 << 47) + 131..(1 << 47) + 700, (1 << 48) - 5..1 << 48];
    let actions = one_by_one(steps(&plan, 0..4)?, |_| Onto::Zero);
    let options = options(Some(rows));
    Ok(Case { name: "far", plan, keys: few_keys(), segments, shifts: vec![0, 2, 0], options, actions })
}

/// Steps by value, then from two schedules on the device, then by value again; the form restarts within. The first schedule begins in the middle of a
/// turn.
fn replayed(runs: Runs, rows: usize) -> Result<Case> {
    let plan = Plan::new(40, runs.form(6)?.with_restarts(11)?, 0.7313)?.with_finest_grid()?;
    let mut all = steps(&plan, 0..40)?;
    let last = all.split_off(36);
    let second = all.split_off(22);
    let first = all.split_off(3);
    let mut actions = one_by_one(all, |_| Onto::Values);
    actions.push(Action::Replay { launches: first.len(), steps: first, onto: Onto::Values });
    actions.push(Action::Replay { launches: second.len(), steps: second, onto: Onto::Special });
    actions.extend(one_by_one(last, |_| Onto::Zero));
    let segments = vec![3..520, 1_024..1_100, 2_049..9_000];
    let options = options(Some(rows));
    Ok(Case { name: "replayed", plan, keys: few_keys(), segments, shifts: vec![0, 1, 0], options, actions })
}

/// A schedule that begins with the run and is launched too often.
fn past_the_end(runs: Runs, rows: usize) -> Result<Case> {
    let plan = Plan::new(8, runs.form(3)?, 0.7313)?.with_finest_grid()?;
    let scheduled = steps(&plan, 0..2)?;
    let actions = vec![Action::Replay { launches: 4, steps: scheduled, onto: Onto::Values }];
    let (segments, options) = (vec![5..1_031, 2_048..2_600], options(Some(rows)));
    Ok(Case { name: "past the end", plan, keys: few_keys(), segments, shifts: vec![0, 1], options, actions })
}

/// Two graphs, each launched again after its replay ended, with steps left over in both schedules.
fn ended(runs: Runs, rows: usize) -> Result<Case> {
    let plan = Plan::new(12, runs.form(3)?.with_restarts(7)?, 0.7313)?.with_finest_grid()?;
    let all = steps(&plan, 0..10)?;
    let mut actions = one_by_one(all[..1].to_vec(), |_| Onto::Zero);
    actions.push(Action::Graph { steps: all[1..7].to_vec(), launches: 3, after: 2, onto: Onto::Values });
    actions.push(Action::Graph { steps: all[4..9].to_vec(), launches: 4, after: 1, onto: Onto::Special });
    actions.extend(one_by_one(all[8..].to_vec(), |_| Onto::Values));
    let (segments, options) = (vec![2..530, 1_025..1_111], options(Some(rows)));
    Ok(Case { name: "ended", plan, keys: few_keys(), segments, shifts: vec![0, 1], options, actions })
}

/// Gradients at which the sum's rounding to the grid turns, by fours and one by one; then two steps without a grid.
fn on_the_grid(runs: Runs, rows: usize) -> Result<Case> {
    let plan = Plan::new(8, runs.form(2)?, 0.7313)?.with_finest_grid()?;
    let mut steps = steps(&plan, 0..8)?;
    steps[6].add = Add::Plain(0.3);
    steps[7].add = Add::Plain(-1.25);
    let (exactly, below) = (Onto::Edge { above: true }, Onto::Edge { above: false });
    let onto = |i| [Onto::Units, exactly, below, Onto::Units, exactly, below, Onto::Special, Onto::Values][i];
    let (segments, shifts) = (vec![3..1_100, 1_536..2_600], vec![0, 1]);
    let (actions, options) = (one_by_one(steps, onto), options(Some(rows)));
    Ok(Case { name: "grid", plan, keys: few_keys(), segments, shifts, options, actions })
}

/// More past outputs or rows than a kernel holds of its table at a time, or than one launch of `stage` carries.
fn long_table(runs: Runs, rows: usize) -> Result<Case> {
    let plan = Plan::new(170, runs.form(140)?.with_restarts(151)?, 0.7313)?.with_finest_grid()?;
    let actions = one_by_one(steps(&plan, 0..165)?, |_| Onto::Zero);
    let (segments, options) = (vec![510..1_100], options(Some(rows)));
    Ok(Case { name: "long table", plan, keys: few_keys(), segments, shifts: vec![0], options, actions })
}

/// A ring whose rows use more past outputs and fewer from step to step, so that in a turn the first, the last or others reach furthest back.
fn varying(rows: usize) -> Result<Case> {
    let slots = rows + 5;
    let counts = [slots, 2, slots - 1, 0, 7, 1, slots, slots, 3, slots - 2, slots];
    // From step 60 on, one row in 17 uses fewer than the others: it takes every place in turns of some tiles.
    let count =
        |t: usize| if t < 60 { counts[t % counts.len()] } else { slots - usize::from(t.is_multiple_of(17)) };
    let coefs = |t: usize| (0..count(t).min(t)).map(|i| 0.3 / (1.7 + i as f64)).collect();
    let coefs: Vec<Vec<f64>> = (0..130).map(coefs).collect();
    let plan = Plan::new(130, Kernel::Ring(Ring::varying(&coefs)?).into(), 0.7313)?.with_finest_grid()?;
    let actions = one_by_one(steps(&plan, 0..130)?, |_| Onto::Cancelled);
    let (segments, options) = (vec![7..5 * 512 + 3], options(Some(rows)));
    Ok(Case { name: "varying", plan, keys: few_keys(), segments, shifts: vec![0], options, actions })
}

/// One infinity of each sign at each place of a thread. Step numbers descend, so that each step must lower the overflow flag.
fn overflows(runs: Runs) -> Result<Case> {
    let plan = Plan::new(200, runs.form(1)?, 1e-3)?.with_finest_grid()?;
    let mut actions = Vec::new();
    let mut numbers = (0..200).rev();
    let mut push = |onto, scale| -> Result<()> {
        let number = numbers.next().expect("more steps than infinities");
        let step = Lowered::of(&plan, number)?;
        actions.push(Action::Step(step.with_scale(&plan, scale), onto));
        Ok(())
    };
    push(Onto::Zero, 1.0)?;
    for segment in 0..2 {
        for place in 0..16 {
            let at = |place: usize| 128 * (place / 4) + 4 * 11 + place % 4;
            push(Onto::Infinity { segment, at: [at(place); 2], negative: false }, 1e-3)?;
            push(Onto::Infinity { segment, at: [at(place); 2], negative: true }, 1e-3)?;
            // With two infinities at a time, one must not hide the other.
            for other in [0, place / 4 * 4] {
                push(Onto::Infinity { segment, at: [at(place), at(other)], negative: false }, 1e-3)?;
            }
        }
    }
    push(Onto::Special, 1e-3)?;
    let (segments, shifts) = (vec![0..512, 1_024..1_536], vec![0, 1]);
    Ok(Case { name: "overflows", plan, keys: few_keys(), segments, shifts, options: ROW_BY_ROW, actions })
}
