//! Cases of the kernels that make rows ahead, and of the one that adds them. Rows of a turn follow each other by name, so all steps of a
//! case belong to one incarnation and to the plan.

use super::case::{Action, Case, Lowered, Onto};
use super::runs::Runs;
use super::shared::{
    TILE, TWO_TILES, edges, ended, far, infinities, on_the_grid, one_by_one, replay_in_parts,
};
use super::{rare, tiny};
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
    let options = options(Some(rows));
    let mut cases = vec![
        // These have one step, so that any number of rows ahead will do.
        rare::tails(runs, options)?,
        rare::named_tails(runs, options)?,
        few_rows(runs)?,
        turns(runs, rows)?.with_options(options),
        at_the_edges(runs)?.with_options(options),
        far(runs, 4, steps)?.with_options(options),
        replayed(runs)?.with_options(options),
        past_the_end(runs)?.with_options(options),
        ended(runs, steps)?.with_options(options),
        on_the_grid(runs, steps)?.with_options(options),
        long_table(runs)?.with_options(options),
    ];
    match runs {
        Runs::Ring { .. } => {
            cases.push(varying(rows)?.with_options(options));
            for slots in [rows - 3, rows - 2] {
                cases.push(short(runs, rows, slots)?.with_options(options));
            }
        }
        Runs::Blt(buffers) => {
            cases.push(long_turns(runs)?);
            if buffers > 1 {
                cases.push(tiny::huge_scales(buffers, options)?);
            }
        }
        Runs::Regenerate => cases.push(tiny::tiny_weights(options)?),
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
    let segments = [(0..1 << 17, 0), ((1 << 17) + 5 * TILE + 1..1 << 18, 1)];
    let options = options(Some(rows));
    let mut cases = vec![
        rare::last_bits(runs, ROW_BY_ROW)?,
        rare::extensions(runs, ROW_BY_ROW)?,
        rare::many_tails(runs, ROW_BY_ROW)?,
        rare::fine_edges(runs, ROW_BY_ROW)?,
        rare::beyond(runs, ROW_BY_ROW)?,
        rare::few_units(runs, ROW_BY_ROW)?,
        rare::many_units(runs, ROW_BY_ROW)?,
        Case::new("deep", plan, segments, one_by_one(steps, onto)).with_options(options),
    ];
    cases.extend(rare::ends(runs, options)?);
    Ok(cases)
}

/// Turns of all phases, with rings that are filled, wrap and restart.
fn turns(runs: Runs, rows: usize) -> Result<Case> {
    let plan = Plan::new(48, runs.form(rows + 5)?.with_restarts(37)?, 0.7313)?.with_finest_grid()?;
    let actions = one_by_one(steps(&plan, 0..48)?, |i| [Onto::Cancelled, Onto::Values][i % 2]);
    Ok(Case::new("turns", plan, [(100..19 * TILE + 7, 0)], actions))
}

/// Turns of sixteen rows, the most that a BLT makes: which of them begin anew takes all bits of a word.
fn long_turns(runs: Runs) -> Result<Case> {
    let plan = Plan::new(40, runs.form(0)?.with_restarts(7)?, 0.7313)?.with_finest_grid()?;
    let actions = one_by_one(steps(&plan, 0..40)?, |i| [Onto::Cancelled, Onto::Values][i % 2]);
    Ok(Case::new("long turns", plan, [(9..3 * TILE + 7, 0)], actions).with_options(self::options(Some(16))))
}

/// Turns of three rows, on fewer tiles than rows and on more, and restarts within a turn.
fn few_rows(runs: Runs) -> Result<Case> {
    let plan = Plan::new(14, runs.form(4)?.with_restarts(5)?, 0.7313)?.with_finest_grid()?;
    let mut all = steps(&plan, 0..14)?;
    all[3].add = Add::Plain(0.3);
    let actions = one_by_one(all, |i| [Onto::Values, Onto::Cancelled][i % 2]);
    let segments = [(3..700, 0), (1_024..1_030, 1), (2_048..3_999, 2)];
    Ok(Case::new("few rows", plan, segments, actions).with_options(options(Some(3))))
}

fn at_the_edges(runs: Runs) -> Result<Case> {
    let plan = Plan::new(12, runs.form(5)?.with_restarts(7)?, 0.7313)?.with_finest_grid()?;
    let onto = |i| [Onto::Values, Onto::Cancelled, Onto::Special, Onto::Halfway, Onto::Zero][i % 5];
    let actions = one_by_one(steps(&plan, 0..11)?, onto);
    Ok(Case::new("edges", plan, edges(), actions))
}

/// Steps by value, then from two schedules on the device, then by value again; the form restarts within. The first schedule begins in the middle of a
/// turn.
fn replayed(runs: Runs) -> Result<Case> {
    let plan = Plan::new(40, runs.form(6)?.with_restarts(11)?, 0.7313)?.with_finest_grid()?;
    let actions = replay_in_parts(steps(&plan, 0..40)?, [3, 22, 36]);
    Ok(Case::new("replayed", plan, [(3..520, 0), (1_024..1_100, 1), (2_049..9_000, 0)], actions))
}

/// A schedule that begins with the run and is launched too often.
fn past_the_end(runs: Runs) -> Result<Case> {
    let plan = Plan::new(8, runs.form(3)?, 0.7313)?.with_finest_grid()?;
    let scheduled = steps(&plan, 0..2)?;
    let actions = vec![Action::Replay { launches: 4, steps: scheduled, onto: Onto::Values }];
    Ok(Case::new("past the end", plan, [(5..1_031, 0), (2_048..2_600, 1)], actions))
}

/// More past outputs or rows than a kernel holds of its table at a time, or than one launch of `stage` carries.
fn long_table(runs: Runs) -> Result<Case> {
    let plan = Plan::new(170, runs.form(140)?.with_restarts(151)?, 0.7313)?.with_finest_grid()?;
    let actions = one_by_one(steps(&plan, 0..165)?, |_| Onto::Zero);
    Ok(Case::new("long table", plan, [(510..1_100, 0)], actions))
}

/// Turns whose rows all use as many past outputs as there are, of which there are fewer than a full turn takes together.
fn short(runs: Runs, rows: usize, slots: usize) -> Result<Case> {
    let num_steps = 4 * rows as u64;
    let plan = Plan::new(num_steps, runs.form(slots)?, 0.7313)?.with_finest_grid()?;
    let actions = one_by_one(steps(&plan, 0..num_steps)?, |_| Onto::Cancelled);
    Ok(Case::new("short", plan, [(5..TILE + 3, 0)], actions))
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
    Ok(Case::new("varying", plan, [(7..5 * TILE + 3, 0)], actions))
}

/// Infinities at each place of a thread. Step numbers descend, so that each step must lower the overflow flag.
fn overflows(runs: Runs) -> Result<Case> {
    let plan = Plan::new(200, runs.form(1)?, 1e-3)?.with_finest_grid()?;
    let mut gradients = vec![(Onto::Zero, 1.0)];
    gradients.extend(infinities(&[]).into_iter().chain([Onto::Special]).map(|onto| (onto, 1e-3)));
    assert!(gradients.len() < 200, "more steps than gradients");
    let action = |(number, (onto, scale))| {
        Ok(Action::Step(Lowered::of(&plan, number)?.with_scale(&plan, scale), onto))
    };
    let actions = (0..200).rev().zip(gradients).map(action).collect::<Result<_>>()?;
    Ok(Case::new("overflows", plan, TWO_TILES, actions).with_options(ROW_BY_ROW))
}
