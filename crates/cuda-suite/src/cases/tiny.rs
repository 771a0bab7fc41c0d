//! Cases in which a number near 0 shows where 0 should be: a buffer that begins anew, a sum that begins.

use super::case::{Action, Case, Lowered, Onto, Work};
use super::runs::Runs;
use super::shared::{TILE, one_by_one};
use corrnoise::backend::Add;
use corrnoise::cuda::CudaOptions;
use corrnoise::{Form, Plan, Result};

/// The largest power of two in f32: multiplied with it, the smallest subnormal is 2⁻²².
const HUGE: f32 = f32::from_bits(0x7f00_0000);

/// The first step of a BLT whose scales are as large as f32 allows. Their sum is 0, and so are the decays: the inverse is stable. Fewer than all
/// neighbours never add up to 0: one register may be the 0 of several buffers.
pub(super) fn huge_scales(buffers: usize, options: CudaOptions) -> Result<Case> {
    let half = f64::from(HUGE) / 2.0;
    let (twos, last) = match buffers {
        2 => (1, &[-2.0][..]),
        _ if buffers % 2 == 1 => (buffers / 2, &[-1.0][..]),
        _ => (buffers / 2 - 1, &[-0.5, -0.5][..]),
    };
    // The sums from the first on go up by twos, come down on odd numbers, and end at 0.
    let odd = if buffers == 2 { vec![] } else { vec![-1.0] };
    let scale = [vec![2.0; twos], odd, vec![-2.0; twos - 1], last.to_vec()].concat();
    let scale: Vec<f64> = scale.into_iter().map(|scale| scale * half).collect();
    let plan = Plan::new(1, Form::blt(&scale, &vec![0.0; buffers])?, 1.0)?.with_finest_grid()?;
    let step = Lowered { add: Add::Plain(1.0), ..Lowered::of(&plan, 0)? };
    // Beside its negative in 16 bits only noise that happens to be small shows its last bits.
    let actions = vec![Action::Step(step, Onto::Cancelled)];
    Ok(Case::new("huge scales", plan, [(0..24 * TILE, 0)], actions).with_options(options))
}

/// A sum without terms: 0, whose sign shows beside a negative 0.
pub(super) fn no_terms(runs: Runs) -> Result<Case> {
    let plan = Plan::new(1, runs.form(2)?, 0.7313)?.with_finest_grid()?;
    let work = Work::Regenerate { terms: vec![] };
    let step = Lowered { add: Add::Plain(HUGE), work, ..Lowered::of(&plan, 0)? };
    let actions = vec![Action::Step(step, Onto::Special)];
    Ok(Case::new("no terms", plan, [(3..2 * TILE, 0)], actions))
}

/// Sums whose weights are the smallest numbers of f32.
pub(super) fn tiny_weights(options: CudaOptions) -> Result<Case> {
    let smallest = f64::from(f32::from_bits(1));
    let plan = Plan::new(8, Form::regenerate(&[smallest, smallest])?, 2_f64.powi(100))?.with_finest_grid()?;
    let steps = super::ahead::steps(&plan, 0..8)?.into_iter();
    let steps = steps.map(|step| Lowered { add: Add::Plain(HUGE), ..step }).collect();
    let actions = one_by_one(steps, |_| Onto::Zero);
    Ok(Case::new("tiny weights", plan, [(0..9 * TILE, 0)], actions).with_options(options))
}
