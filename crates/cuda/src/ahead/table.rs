//! What a turn needs to know of its rows, as the `make` kernels read it. Device twins: `kernels/make_*.cu`.

use corrnoise_core::form::{Form, Kernel, Regenerate, Ring};
use corrnoise_core::{Family, Plan, Result, Row};

/// The most rows of a turn, by which the tables of a kernel are laid out.
pub(crate) const SUM_PITCH: usize = 8;

/// The number of words before the entries of a regenerated sum, and per entry: the row's name in a quad, and a weight per row of the turn.
const SUM_HEAD: usize = 4;
const SUM_ENTRY: usize = 4 + SUM_PITCH;

/// The pitch of a ring's table: the most rows of the kernel that makes `rows` at a time.
pub(crate) fn ring_pitch(rows: usize) -> usize {
    if rows <= 8 { 8 } else { 16 }
}

/// The most words that a turn's table takes.
pub(crate) fn max_words(form: &Form, rows: usize) -> usize {
    match form.kernel() {
        Kernel::Blt(_) => 0,
        Kernel::Ring(ring) => ring_pitch(rows) * (1 + ring.num_slots() + ring_pitch(rows)),
        Kernel::Regenerate(sum) => SUM_HEAD + SUM_ENTRY * (sum.max_terms() + rows - 1),
    }
}

/// The steps of a turn: the first, and how many the plan has from there on, at most as many as a tile makes at a time.
#[derive(Clone, Copy)]
pub(crate) struct TurnSteps {
    pub(crate) first: u64,
    pub(crate) count: usize,
    /// The number of rows that a tile makes at a time.
    pub(crate) rows: usize,
}

impl TurnSteps {
    pub(crate) fn new(plan: &Plan, first: u64, rows: usize) -> TurnSteps {
        let left = plan.num_steps().saturating_sub(first);
        TurnSteps { first, count: usize::try_from(left).map_or(rows, |left| left.min(rows)), rows }
    }
}

/// A BLT's rows that begin with zero buffers, as a mask: bit `rows + k` for the turn's row `k`, the bits before it for the last turn's.
pub(crate) fn fresh_rows(form: &Form, steps: TurnSteps) -> u32 {
    (0..2 * steps.rows as u64).fold(0, |mask, bit| {
        let step = (steps.first + bit).checked_sub(steps.rows as u64);
        let fresh = step.is_some_and(|step| form.age(step) == 0);
        mask | u32::from(fresh) << bit
    })
}

/// Writes a ring's table of [`max_words`] words, which are zero before: for every row of the turn the number of past outputs that it uses; their coefficients, negated, by the age that
/// they have at the turn's first step; and those of the turn's own rows.
pub(crate) fn ring_words(form: &Form, ring: &Ring, steps: TurnSteps, words: &mut [u32]) {
    let pitch = ring_pitch(steps.rows);
    let (counts, coefs) = words.split_at_mut(pitch);
    let (old, own) = coefs.split_at_mut(pitch * ring.num_slots());
    for (k, count) in counts[..steps.count].iter_mut().enumerate() {
        let step = steps.first + k as u64;
        let coefs = ring.coefs(step);
        let coefs = &coefs[..usize::try_from(form.age(step)).map_or(coefs.len(), |age| age.min(coefs.len()))];
        *count = coefs.len() as u32;
        for (coef, age) in coefs.iter().zip(1..) {
            let word = (-coef).to_bits();
            match age > k {
                true => old[pitch * (age - k - 1) + k] = word,
                false => own[pitch * (k - age) + k] = word,
            }
        }
    }
}

/// The number of words of a regenerated sum's table, whose first step has `terms` terms.
pub(crate) fn num_sum_words(steps: TurnSteps, terms: usize) -> usize {
    SUM_HEAD + SUM_ENTRY * (steps.count.saturating_sub(1) + terms)
}

/// Writes a regenerated sum's table of [`num_sum_words`] words, which are zero before: the rows from the youngest on, each with its weight in every sum of the turn, 0 where it has none.
/// `terms` are those of the turn's first step. The weights of a turn of several rows are the same at every step, so the first step has all
/// older rows of the others.
pub(crate) fn sum_words(
    form: &Form,
    sum: &Regenerate,
    steps: TurnSteps,
    terms: &[(Row, f32)],
    words: &mut [u32],
) -> Result<()> {
    let younger = steps.count.saturating_sub(1);
    let (head, entries) = words.split_at_mut(SUM_HEAD);
    head[0] = (younger + terms.len()) as u32;
    let mut entries = entries.chunks_exact_mut(SUM_ENTRY);
    let mut entry = |row: Row, weights: [f32; SUM_PITCH]| {
        let Some(to) = entries.next() else { return };
        let name = row.stream();
        (to[0], to[1]) = (name as u32, (name >> 32) as u32);
        to[4..].copy_from_slice(&weights.map(f32::to_bits));
    };
    // The weight, in the sum of the turn's row `k`, of a row that is `back` steps older than the turn's first (younger: negative).
    let by_age = sum.toeplitz_weights().unwrap_or_default();
    let weight = |k: usize, back: i64| {
        let age = usize::try_from(k as i64 + back).ok()?;
        let exists = age as u64 <= form.age(steps.first + k as u64);
        by_age.get(age).copied().filter(|_| exists && k < steps.count)
    };
    let weights = |back: i64| std::array::from_fn(|k| weight(k, back).unwrap_or(0.0));
    let incarnation = terms.first().map_or(0, |(row, _)| row.incarnation());
    for k in (1..=younger).rev() {
        entry(Row::new(Family::Step, incarnation, steps.first + k as u64)?, weights(-(k as i64)));
    }
    for (back, (row, own)) in (0..).zip(terms) {
        let mut weights = weights(back);
        weights[0] = *own;
        entry(*row, weights);
    }
    Ok(())
}
