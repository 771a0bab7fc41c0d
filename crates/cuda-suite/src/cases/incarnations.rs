//! Cases with rows of many incarnations, each with a key of its own, and lists longer than one launch carries.

use super::case::{Action, Case, Lowered, Onto, Work};
use super::runs::Runs;
use super::shared::one_by_one;
use super::witnesses::key;
use corrnoise::{Family, Plan, Result, Row, RunKey};
use std::sync::{Arc, OnceLock};

/// The keys of as many incarnations as a run can have. Made once: each key has memory of its own, which the system must map and lock.
pub(super) fn many_keys() -> Arc<Vec<RunKey>> {
    static KEYS: OnceLock<Arc<Vec<RunKey>>> = OnceLock::new();
    KEYS.get_or_init(|| Arc::new((0..0xffff).map(key).collect())).clone()
}

/// Rows of incarnations from the first to the last that a run can have, and of every family.
pub(super) fn rows_of_incarnations() -> Result<Vec<Row>> {
    let rows = [
        (Family::Step, 0, 0),
        (Family::TreeNode, 1, 5),
        (Family::Sampler, 255, (1 << 40) - 1),
        (Family::Step, 256, 9),
        (Family::TreeNode, 0x7fff, 1 << 39),
        (Family::Step, 0x8000, 3),
        (Family::Sampler, 0xfffe, 77),
        (Family::Step, 0x1234, 1),
    ];
    rows.into_iter().map(|(family, incarnation, index)| Row::new(family, incarnation, index)).collect()
}

/// A schedule whose steps belong to the incarnations of these rows: the device finds each one's key.
pub(super) fn scheduled(
    name: &'static str,
    runs: Runs,
    rows: Vec<Row>,
    keys: Arc<Vec<RunKey>>,
) -> Result<Case> {
    let plan = Plan::new(8, runs.form(3)?, 0.7313)?.with_finest_grid()?;
    let named = |(t, row)| Lowered::of(&plan, t)?.with_row(row);
    let steps: Vec<_> = (0..).zip(rows).map(named).collect::<Result<_>>()?;
    let actions = vec![Action::Replay { launches: steps.len(), steps, onto: Onto::Zero }];
    Ok(Case::new(name, plan, [(1..400, 3)], actions).with_keys(keys))
}

/// Hundreds of incarnations: what a backend costs grows with their number.
pub(super) fn scheduled_incarnations(runs: Runs) -> Result<Case> {
    let incarnations = [0, 7, 8, 255, 256, 0x155, 0x1aa, 0x1ff];
    let rows = (5..).zip(incarnations).map(|(index, incarnation)| Row::new(Family::Step, incarnation, index));
    let keys = Arc::new((0..0x200).map(key).collect());
    scheduled("scheduled incarnations", runs, rows.collect::<Result<_>>()?, keys)
}

/// Terms of 65,535 incarnations and of every family.
pub(super) fn incarnations(runs: Runs) -> Result<Case> {
    let rows = rows_of_incarnations()?;
    let plan = Plan::new(3, runs.form(7)?, 0.7313)?.with_finest_grid()?;
    let number = |t: u64, terms: Vec<Row>| {
        let terms = terms.into_iter().enumerate().map(|(i, row)| (row, 0.7 - 0.2 * i as f32)).collect();
        Ok(Lowered { work: Work::Regenerate { terms }, ..Lowered::of(&plan, t)? })
    };
    let lists = [number(0, rows.clone()), number(1, vec![]), number(2, rows.into_iter().rev().collect())];
    let lists = lists.into_iter().collect::<Result<_>>()?;
    let actions = one_by_one(lists, |_| Onto::Zero);
    Ok(Case::new("incarnations", plan, [(1..513, 3)], actions).with_keys(many_keys()))
}

/// 260 terms, which are more words than one launch of `stage` carries.
pub(super) fn long_list(runs: Runs) -> Result<Case> {
    let plan = Plan::new(262, runs.form(260)?, 0.7313)?.with_finest_grid()?;
    let actions = vec![Action::Step(Lowered::of(&plan, 261)?, Onto::Zero)];
    Ok(Case::new("long list", plan, [(100..140, 0)], actions))
}
