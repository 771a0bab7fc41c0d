//! Cases at coordinates with a property that one in thousands or in billions has: small radius words, words at a limit, and
//! normals whose last bit depends on the last bit of a coefficient.

use super::case::{Action, Case, ENDS, Lowered, Onto};
use super::runs::Runs;
use super::shared::TILE;
use super::{fine, witnesses};
use corrnoise::cuda::CudaOptions;
use corrnoise::{Plan, Result, Rounds, Row};

/// A case of first steps of a run, over whole tiles. A ring of one slot keeps the noise in f32, whatever the gradient's type.
fn over_tiles(
    name: &'static str,
    runs: Runs,
    options: CudaOptions,
    tiles: impl Iterator<Item = u64>,
    steps: impl IntoIterator<Item = (Row, f32, Onto)>,
) -> Result<Case> {
    let plan = Plan::new(1, runs.form(1)?, 1.0)?.with_finest_grid()?.with_rounds(Rounds::R8)?;
    let segments = tiles.map(|tile| (TILE * tile..TILE * (tile + 1), 0));
    let action = |(row, scale, onto)| Ok(Action::Step(Lowered::of_row(&plan, row, scale)?, onto));
    let actions = steps.into_iter().map(action).collect::<Result<_>>()?;
    Ok(Case::new(name, plan, segments, actions).with_options(options))
}

/// The gradients that show a last bit which is wrong in either direction.
const EDGES: [Onto; 2] = [Onto::Edge { above: true }, Onto::Edge { above: false }];

/// The scales of the steps: each is another chance that a last bit shows in bf16.
pub(super) const SCALES: [f32; 10] = [1.0, 1.17, 0.83, 1.37, 0.71, 1.91, 0.59, 1.53, 1.07, 0.93];

/// One row at every scale and edge, so that every last bit has its chances to show.
fn at_all_scales(row: Row) -> impl Iterator<Item = (Row, f32, Onto)> {
    SCALES.into_iter().flat_map(move |scale| EDGES.map(|onto| (row, scale, onto)))
}

/// A gradient that ends with its memory at each of a thread's sixteen places, beginning at a coordinate that is no multiple of four.
pub(super) fn ends(runs: Runs, options: CudaOptions) -> Result<Vec<Case>> {
    let plan = Plan::new(1, runs.form(1)?, 1.0)?.with_rounds(Rounds::R8)?;
    let of_place = |place: u64| {
        let end = 128 * (place / 4) + 4 * 11 + place % 4 + 1;
        let actions = vec![Action::Step(Lowered::of(&plan, 0)?, Onto::Values)];
        Ok(Case::new(ENDS, plan.clone(), [(1..end, 0)], actions).with_options(options))
    };
    (0..16).map(of_place).collect()
}

/// Blocks with small radius words in each of the eight pairs, and on both sides of the limit.
pub(super) fn tails(runs: Runs, options: CudaOptions) -> Result<Case> {
    over_tiles("tails", runs, options, witnesses::tiles(), [(Row::default(), 1.25, Onto::Cancelled)])
}

/// Very small radius words in each pair, far out, in a row whose name has bits in both words: a tail depends on all of them.
pub(super) fn named_tails(runs: Runs, options: CudaOptions) -> Result<Case> {
    let row = witnesses::named_row()?;
    over_tiles("named tails", runs, options, witnesses::named_tiles(), [(row, 1.25, Onto::Cancelled)])
}

/// Noise next to the limits between two points of the grid, where even gradients of 16 bits show its last bit and that of its dither.
pub(super) fn fine_edges(runs: Runs, options: CudaOptions) -> Result<Case> {
    // A unit of 1/2 or 1: f16 has a fraction of 2⁻²² of it.
    let onto = [Onto::Fine { exactly: true }, Onto::Fine { exactly: false }];
    on_the_grid("fine edges", runs, options, 77.0, (fine::EDGES, fine::EDGES_SCALE), &onto)
}

/// Noise of about one unit beside gradients of less than one: a sum of 0 units shows a constant of the carry that is off by little.
pub(super) fn few_units(runs: Runs, options: CudaOptions) -> Result<Case> {
    on_the_grid("few units", runs, options, 77.0, (fine::EDGES, 1.1), &[Onto::Units])
}

/// Noise of so many units that f32 has no fractions of them, or no odd numbers, beside its negative: operations that are exact for fewer units
/// round, and a sum that is rounded twice is another integer.
pub(super) fn many_units(runs: Runs, options: CudaOptions) -> Result<Case> {
    let stddev = 77.0 * 2_f64.powi(-20);
    let plan = Plan::new(1, runs.form(1)?, stddev)?.with_rounds(Rounds::R8)?;
    let segments = fine::BEYOND.iter().map(|tile| (TILE * tile..TILE * (tile + 1), 0));
    let unit = 2_f32.powi(plan.grid_exponent());
    let step = |scale: f32| {
        let step = Lowered::of_row(&plan, Row::default(), 1.0)?.with_scale(&plan, scale * unit);
        Ok(Action::Step(step, Onto::Cancelled))
    };
    let scales = [22, 23, 24, 25].into_iter().flat_map(|power| [1.0, 1.37].map(|s| s * 2_f32.powi(power)));
    let actions = scales.map(step).collect::<Result<_>>()?;
    Ok(Case::new("many units", plan, segments, actions).with_options(options))
}

/// Sums beyond 2²⁴ units whose rounding a gradient of 16 bits shows.
pub(super) fn beyond(runs: Runs, options: CudaOptions) -> Result<Case> {
    // A unit of 2⁻²⁰ or less: such sums are in the range of f16.
    let stddev = 77.0 * 2_f64.powi(-20);
    on_the_grid("beyond", runs, options, stddev, (fine::BEYOND, fine::BEYOND_SCALE), &[Onto::Beyond])
}

/// The first row over whole tiles, with a scale in units of the grid.
fn on_the_grid(
    name: &'static str,
    runs: Runs,
    options: CudaOptions,
    stddev: f64,
    (tiles, scale): (&[u64], f32),
    onto: &[Onto],
) -> Result<Case> {
    let plan = Plan::new(1, runs.form(1)?, stddev)?.with_rounds(Rounds::R8)?;
    let segments = tiles.iter().map(|tile| (TILE * tile..TILE * (tile + 1), 0));
    let unit = 2_f32.powi(plan.grid_exponent());
    let step = Lowered::of_row(&plan, Row::default(), 1.0)?.with_scale(&plan, scale * unit);
    let actions = onto.iter().map(|onto| Action::Step(step.clone(), *onto)).collect();
    Ok(Case::new(name, plan, segments, actions).with_options(options))
}

/// The blocks of `named_tails`, beside gradients in which the last bit of a normal shows.
pub(super) fn extensions(runs: Runs, options: CudaOptions) -> Result<Case> {
    let row = witnesses::named_row()?;
    over_tiles("extensions", runs, options, witnesses::named_tiles(), at_all_scales(row))
}

/// Normals that are another number if one operation is rounded otherwise, if one coefficient is its neighbour, or if a limit is off by
/// one: each in every pair, beside gradients in which that shows.
pub(super) fn last_bits(runs: Runs, options: CudaOptions) -> Result<Case> {
    let mut tiles: Vec<u64> = witnesses::last_bits().chain(witnesses::tiles()).collect();
    tiles.sort_unstable();
    tiles.dedup();
    over_tiles("last bits", runs, options, tiles.into_iter(), at_all_scales(Row::default()))
}

/// Hundreds of small radius words in each pair, for the roundings behind them.
pub(super) fn many_tails(runs: Runs, options: CudaOptions) -> Result<Case> {
    over_tiles("many tails", runs, options, witnesses::many_tails(), [(Row::default(), 1.25, EDGES[0])])
}
