//! What a turn of rows made ahead reads, worked out step by step from the plan's own rows: the mask and the tables of `kernels/turn.cuh`
//! and `kernels/make_*.cu`. The engine's, in `crates/cuda/src/ahead/table.rs`, come from the form's coefficients instead.

use crate::launch::Record;
use corrnoise::backend::{Step, StepKernel};
use corrnoise::form::Kernel;
use corrnoise::{Form, Incarnations, Plan};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// What the row of one step is made of.
#[derive(Clone, Debug, Default)]
pub struct Recipe {
    /// The name of the step's own row; 0 for a regenerated sum.
    pub row: u64,
    /// The incarnation that makes that row.
    pub incarnation: u16,
    /// Whether a BLT's buffers are zero before the step.
    pub fresh: bool,
    /// The coefficients of a ring, by age.
    pub coefs: Vec<f32>,
    /// The rows of a regenerated sum by name, each with its weight.
    pub terms: Vec<(u64, f32)>,
}

impl Recipe {
    /// The recipes of all steps of a plan.
    pub fn all(plan: &Plan, incarnations: &Incarnations) -> Vec<Recipe> {
        let mut terms = Vec::new();
        let mut recipe = |number| {
            let step = Step::lower(plan, number, incarnations, &mut terms).expect("a step of the plan");
            let mut recipe = Recipe::default();
            match step.kernel {
                StepKernel::Blt { row, fresh, .. } => {
                    (recipe.row, recipe.incarnation, recipe.fresh) = (row.stream(), row.incarnation(), fresh);
                }
                StepKernel::Ring { row, coefs } => {
                    (recipe.row, recipe.incarnation) = (row.stream(), row.incarnation());
                    recipe.coefs = coefs.to_vec();
                }
                StepKernel::Regenerate { terms } => {
                    recipe.terms = terms.iter().map(|(row, weight)| (row.stream(), *weight)).collect();
                }
            }
            recipe
        };
        (0..plan.num_steps()).map(&mut recipe).collect()
    }
}

/// The record of step `number` for the kernel that makes rows `rows_ahead` at a time into `slots` slots, since step `base`.
pub fn record(recipes: &[Recipe], number: u64, base: u64, rows_ahead: usize, slots: usize) -> Record {
    let k = rows_ahead as u64;
    let is_fresh = |bit: &u64| {
        let recipe = (number + bit).checked_sub(k).and_then(|at| recipes.get(at as usize));
        recipe.is_some_and(|recipe| recipe.fresh)
    };
    Record {
        number,
        row: recipes[number as usize].row,
        head: ((number - base) % slots as u64) as u32,
        // Zero for every form but a BLT, whose steps alone are fresh.
        list: (0..2 * k).filter(is_fresh).map(|bit| 1 << bit).sum(),
        count: (recipes.len() as u64 - number).min(k) as u32,
        ..Record::default()
    }
}

/// The table of a turn of these rows, for a kernel that makes at most `max_rows`; NaN where nothing may be read.
pub fn table(form: &Form, max_rows: usize, turn: &[Recipe]) -> Vec<u32> {
    let mut words = Vec::new();
    match form.kernel() {
        Kernel::Blt(_) => {}
        Kernel::Ring(ring) => {
            let h = ring.num_slots();
            words.resize(max_rows * (1 + h + max_rows), f32::NAN.to_bits());
            for (k, recipe) in turn.iter().enumerate() {
                words[k] = recipe.coefs.len() as u32;
                for (coef, age) in recipe.coefs.iter().zip(1..) {
                    let row = if age > k { age - k - 1 } else { h + k - age };
                    words[max_rows * (1 + row) + k] = (-coef).to_bits();
                }
            }
        }
        Kernel::Regenerate(_) => {
            let rows: BTreeSet<u64> = turn.iter().flat_map(|r| r.terms.iter().map(|term| term.0)).collect();
            words.extend([rows.len() as u32, 0, 0, 0]);
            // The index counts: an older incarnation's name may be the smaller one.
            let mut rows: Vec<u64> = rows.into_iter().collect();
            rows.sort_by_key(|row| Reverse(row & 0xff_ffff_ffff));
            for row in rows {
                words.extend([row as u32, (row >> 32) as u32, 0, 0]);
                words.extend((0..max_rows).map(|k| {
                    let term = turn.get(k).and_then(|r| r.terms.iter().find(|term| term.0 == row));
                    term.map_or(0.0, |term| term.1).to_bits()
                }));
            }
        }
    }
    words
}
