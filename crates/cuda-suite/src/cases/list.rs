//! The list of cases: small shapes that reach every instruction, and one large shape for differences that show once in millions.

use super::case::{Action, Case, Lowered, Onto};
use super::incarnations::{
    incarnations, long_list, many_keys, rows_of_incarnations, scheduled, scheduled_incarnations,
};
use super::runs::Runs;
use super::shared::{
    TILE, TWO_TILES, edges, ended, far, infinities, on_the_grid, one_by_one, replay_in_parts,
};
use super::{ahead, rare, tiny};
use corrnoise::cuda::CudaOptions;
use corrnoise::{Family, Plan, Result, Rounds, Row};
use std::ops::Range;

/// Steps of a plan whose rows belong to `incarnation(step)` and have bits set in both words of their names.
fn steps(plan: &Plan, range: Range<u64>, incarnation: impl Fn(u64) -> u16) -> Result<Vec<Lowered>> {
    range
        .map(|t| {
            let family = if t % 2 == 0 { Family::Step } else { Family::TreeNode };
            Lowered::of(plan, t)?.with_row(Row::new(family, incarnation(t), (t % 64) << 33 | t)?)
        })
        .collect()
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
        far(runs, 2, |plan, range| steps(plan, range, |_| 0))?,
        replayed(runs)?,
        past_the_end(runs)?,
        ended(runs, |plan, range| steps(plan, range, |t| t as u16 % 3))?,
        on_the_grid(runs, |plan, range| steps(plan, range, |t| t as u16 % 2))?,
        scales(runs)?,
    ];
    if f16 {
        cases.push(overflows(runs)?);
    }
    match runs {
        Runs::Blt(buffers) => {
            cases.push(scheduled_incarnations(runs)?);
            if buffers > 1 {
                cases.push(tiny::huge_scales(buffers, CudaOptions::default())?);
            }
        }
        Runs::Ring { .. } => {
            cases.extend([one_band(runs)?, many_slots(runs)?, scheduled_incarnations(runs)?])
        }
        Runs::Regenerate => cases.extend([incarnations(runs)?, long_list(runs)?, tiny::no_terms(runs)?]),
    }
    Ok(cases)
}

fn at_the_edges(runs: Runs) -> Result<Case> {
    let form = runs.form(5)?.with_restarts(3)?;
    let plan = Plan::new(7, form, 0.7313)?.with_finest_grid()?;
    let steps = steps(&plan, 0..5, |t| t as u16 % 3)?;
    let onto = |i| [Onto::Values, Onto::Cancelled, Onto::Special, Onto::Halfway, Onto::Zero][i];
    Ok(Case::new("edges", plan, edges(), one_by_one(steps, onto)))
}

fn whole(runs: Runs) -> Result<Case> {
    let plan = Plan::new(14, runs.form(5)?, 0.7313)?.with_finest_grid()?;
    let steps = steps(&plan, 0..14, |_| 2)?;
    let onto = |i| if i % 2 == 0 { Onto::Zero } else { Onto::Values };
    Ok(Case::new("whole", plan, [(0..1_100, 0)], one_by_one(steps, onto)))
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
    Ok(Case::new("scales", plan, [(1..700, 0), (1_024..1_600, 2)], actions))
}

/// Three steps by value, six from two schedules on the device, then three by value again; the form restarts within.
fn replayed(runs: Runs) -> Result<Case> {
    let plan = Plan::new(12, runs.form(4)?.with_restarts(5)?, 0.7313)?.with_finest_grid()?;
    let mut all = steps(&plan, 0..12, |t| if t < 3 { 0 } else { 1 })?;
    // Step numbers have more than 32 bits: the overflow flag reports them.
    all.iter_mut().for_each(|step| step.number += 1 << 40);
    let segments = [(3..520, 0), (1_024..1_100, 1), (2_049..3_000, 0)];
    Ok(Case::new("replayed", plan, segments, replay_in_parts(all, [3, 7, 9])))
}

fn past_the_end(runs: Runs) -> Result<Case> {
    let plan = Plan::new(8, runs.form(3)?, 0.7313)?.with_finest_grid()?;
    let mut all = steps(&plan, 0..5, |_| 1)?;
    let scheduled = all.split_off(3);
    let mut actions = one_by_one(all, |_| Onto::Zero);
    actions.push(Action::Replay { launches: 4, steps: scheduled, onto: Onto::Values });
    Ok(Case::new("past the end", plan, [(5..1_031, 0), (2_048..2_600, 1)], actions))
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
    Ok(Case::new("leaping", plan, [(4..261, 0)], actions).with_options(ahead::options(ahead)))
}

/// A plan that a module's kernels run, with as many slots or terms, and the options that choose these kernels.
pub fn plan(module: &str, num_steps: u64, slots: usize, restart: Option<u64>) -> Result<(Plan, CudaOptions)> {
    let (runs, ahead) = Runs::of(module)?;
    let form = runs.form(slots)?;
    let form = restart.map_or(Ok(form.clone()), |every| form.with_restarts(every))?;
    Ok((Plan::new(num_steps, form, 0.7313)?.with_finest_grid()?, ahead::options(ahead)))
}

/// Infinities in memory that allows accesses of four values and in memory that does not. Step numbers descend, so that each step must
/// lower the overflow flag; in between, the largest values and NaN must not.
fn overflows(runs: Runs) -> Result<Case> {
    let plan = Plan::new(1, runs.form(1)?, 1e-3)?.with_finest_grid()?;
    let mut gradients = vec![(Onto::Zero, 1.0)];
    gradients.extend(infinities(&[Onto::Values]).into_iter().map(|onto| (onto, 1e-3)));
    gradients.extend([(Onto::Zero, 1e6), (Onto::Special, 1e-3)]);
    let action = |(number, (onto, scale))| {
        Ok(Action::Step(Lowered { number, ..Lowered::of(&plan, 0)?.with_scale(&plan, scale) }, onto))
    };
    let actions = (0..1 << 41).rev().zip(gradients).map(action).collect::<Result<_>>()?;
    Ok(Case::new("overflows", plan, TWO_TILES, actions))
}

/// A ring of one band, which has no slots.
fn one_band(runs: Runs) -> Result<Case> {
    let plan = Plan::new(2, runs.form(0)?, 0.7313)?.with_finest_grid()?;
    let actions = one_by_one(steps(&plan, 0..2, |_| 0)?, |_| Onto::Zero);
    Ok(Case::new("one band", plan, [(7..600, 0)], actions))
}

/// A ring of 67 slots that is filled, wraps more than once, and restarts.
fn many_slots(runs: Runs) -> Result<Case> {
    let plan = Plan::new(150, runs.form(67)?.with_restarts(141)?, 0.7313)?.with_finest_grid()?;
    let actions = one_by_one(steps(&plan, 0..145, |t| t as u16 % 3)?, |_| Onto::Zero);
    Ok(Case::new("many slots", plan, [(510..1_000, 0)], actions))
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
    let segments = [(0..1 << 20, 0), ((1 << 20) + 5 * TILE + 1..2 << 20, 1)];
    let deep = Case::new("deep", plan, segments, one_by_one(steps, onto));
    let mut cases = vec![
        rare::last_bits(runs, CudaOptions::default())?,
        rare::extensions(runs, CudaOptions::default())?,
        rare::many_tails(runs, CudaOptions::default())?,
        rare::fine_edges(runs, CudaOptions::default())?,
        rare::beyond(runs, CudaOptions::default())?,
        rare::few_units(runs, CudaOptions::default())?,
        rare::many_units(runs, CudaOptions::default())?,
        deep,
    ];
    cases.extend(rare::ends(runs, CudaOptions::default())?);
    // A regenerated sum has its incarnations among the small cases.
    if runs != Runs::Regenerate {
        cases.push(scheduled("all scheduled incarnations", runs, rows_of_incarnations()?, many_keys())?);
    }
    Ok(cases)
}
