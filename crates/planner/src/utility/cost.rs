//! What a step of a form costs: bytes moved and normals made, per parameter.

use crate::factorization::to_form::MAX_RING_BANDS;
use crate::utility::traffic::{Execution, Moved};
use corrnoise_core::form::Kernel;
use corrnoise_core::{Dtype, Form};

/// What one step costs per parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Bytes read and written for an f32 gradient.
    pub bytes: f64,
    /// Rows of normals made, averaged over the run.
    pub rows: f64,
}

impl Cost {
    /// Of a form over a number of steps.
    pub fn of(form: &Form, num_steps: u64) -> Cost {
        let bytes = Moved::of(form, Execution::fused(Dtype::F32)).total();
        match form.kernel() {
            Kernel::Blt(_) | Kernel::Ring(_) => Cost { bytes, rows: 1.0 },
            Kernel::Regenerate(regenerate) => {
                let most = regenerate.max_terms() as u64;
                let terms = |step: u64| match regenerate.weights(step) {
                    Some(weights) => (weights.len() as u64).min(form.age(step) + 1),
                    None => regenerate.listed_terms(step).map_or(0, |terms| terms.len() as u64),
                };
                // Weights by age are all used once the run is older than they are.
                let young =
                    num_steps.min(if regenerate.toeplitz_weights().is_some() { most } else { num_steps });
                let young = if form.restart_every().is_some() { num_steps } else { young };
                let rows = (0..young).map(terms).sum::<u64>() + (num_steps - young) * most;
                Cost { bytes, rows: rows as f64 / num_steps as f64 }
            }
        }
    }
}

/// Most bands of a ring whose engine holds no more than so many bytes per parameter; one band needs none.
pub(crate) fn ring_bands_within(bytes: u64) -> usize {
    let fits = |bands: &usize| {
        Form::banded_toeplitz(&vec![1.0; *bands]).is_ok_and(|form| form.engine_bytes_per_param() <= bytes)
    };
    (1..=MAX_RING_BANDS).rev().find(fits).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_as_many_as_the_engine_has_memory_for() {
        // Up to 8 bands a ring keeps 4 bytes for each but one, from 9 on 28 more.
        let cases =
            [(0, 1), (3, 1), (4, 2), (28, 8), (36, 8), (40, 8), (59, 8), (60, 9), (64, 10), (u64::MAX, 1024)];
        for (bytes, bands) in cases {
            assert_eq!(ring_bands_within(bytes), bands, "{bytes} bytes");
        }
    }

    #[test]
    fn costs_are_counted() {
        let cost = |form: Form| Cost::of(&form, 10);
        assert_eq!(cost(Form::independent()), Cost { bytes: 8.0, rows: 1.0 });
        assert_eq!(cost(Form::blt(&[0.3, 0.1], &[0.5, 0.9]).unwrap()), Cost { bytes: 24.0, rows: 1.0 });
        assert_eq!(cost(Form::banded_toeplitz(&[1.0, 0.5, 0.2]).unwrap()), Cost { bytes: 20.0, rows: 1.0 });
        // 1 + 2 + 8·3 rows in 10 steps.
        assert_eq!(cost(Form::regenerate(&[1.0, 0.5, 0.2]).unwrap()), Cost { bytes: 8.0, rows: 2.7 });
    }
}
