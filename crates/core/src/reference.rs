//! The noising forms in code, one coordinate at a time: every engine is compared with them.

use crate::chacha::ChaCha;
use crate::error::Result;
use crate::form::{Form, Kernel};
use crate::noise::normal;
use crate::row::{Family, Incarnations, Row};

/// The noise `z̃` of one coordinate at steps `0..num_steps`, before scale and standard deviation. `ciphers` are those of the run's
/// incarnations, by number.
///
/// # Panics
/// If the form has tables of fewer steps, or there are fewer ciphers than incarnations.
pub fn trajectory(
    ciphers: &[ChaCha],
    form: &Form,
    incarnations: &Incarnations,
    coord: u64,
    num_steps: u64,
) -> Result<Vec<f32>> {
    let mut outputs: Vec<f32> = Vec::new();
    let mut buffers = vec![0.0; form.num_slots()];
    for step in 0..num_steps {
        let age = form.age(step);
        let z_of = |row: Row| normal(&ciphers[usize::from(row.incarnation())], row, coord);
        let z = z_of(Row::new(Family::Step, incarnations.at(step), step)?);
        let output = match form.kernel() {
            Kernel::Blt(blt) => {
                if age == 0 {
                    buffers.fill(0.0);
                }
                let mut sum = z;
                for (scale, m) in blt.scale().iter().zip(&buffers) {
                    sum = (-scale).mul_add(*m, sum);
                }
                for (decay, m) in blt.decay().iter().zip(&mut buffers) {
                    *m = decay.mul_add(*m, sum);
                }
                sum
            }
            Kernel::Ring(ring) => {
                let mut sum = z;
                // The oldest output comes first.
                let by_age = ring.coefs(step).iter().take(age as usize).zip(outputs.iter().rev());
                for (coef, past) in by_age.collect::<Vec<_>>().into_iter().rev() {
                    sum = (-coef).mul_add(*past, sum);
                }
                sum
            }
            Kernel::Regenerate(regenerate) => {
                let mut terms = Vec::new();
                regenerate.terms(step, age, |step| incarnations.at(step), &mut terms)?;
                terms.iter().fold(0.0_f32, |sum, (row, weight)| weight.mul_add(z_of(*row), sum))
            }
        };
        outputs.push(output);
    }
    Ok(outputs)
}
