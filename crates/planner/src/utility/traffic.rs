//! The bytes that a step moves per parameter, on the critical path and beside it, for every way to run a form.
//!
//! | f32 gradient, h past outputs, d buffers | fused | rows ahead, K at a time | of it after `prepare` |
//! |---|---|---|---|
//! | independent | 8 | 16 | 12 |
//! | BLT | 8 + 8d | 20 + 8d/K | 12 |
//! | ring | 8 + 4(h + 1) | 16 + 4h/K | 12 |
//! | regenerated sum | 8 | 16 | 12 |
//!
//! A gradient of 16 bits moves 4 bytes less. Every engine counts by this table: `crates/cuda-sim` compares it with what kernels load and
//! store, `corrnoise bench` measures and predicts with it.

use corrnoise_core::form::Kernel;
use corrnoise_core::{Dtype, Form};

/// The way in which an engine runs the steps of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// The number type of the gradient.
    pub gradient: Dtype,
    /// The number of rows that are made at a time; with 1 and without `prepared`, a step is one fused pass.
    pub rows_ahead: usize,
    /// Whether rows are made before their step, while the trainer computes the gradient.
    pub prepared: bool,
}

impl Execution {
    /// One fused pass per step.
    pub fn fused(gradient: Dtype) -> Execution {
        Execution { gradient, rows_ahead: 1, prepared: false }
    }

    /// The number of rows that a GPU makes at a time by default, by form. Longer turns save less and less traffic and take one more row
    /// of memory each. A ring of up to 8 bands, a BLT of up to 2 buffers and a sum of up to 3 rows have little to save, and rows whose weights
    /// change from step to step nothing; at 48 bands, turns of 8 would still read more history than all else.
    pub fn rows_ahead_on_gpu(form: &Form) -> usize {
        match form.kernel() {
            Kernel::Ring(ring) => match ring.num_slots() + 1 {
                ..9 => 1,
                9..48 => 8,
                48.. => 16,
            },
            Kernel::Blt(blt) if blt.scale().len() >= 3 => 8,
            Kernel::Regenerate(sum) if sum.toeplitz_weights().is_some_and(|weights| weights.len() >= 4) => 8,
            Kernel::Blt(_) | Kernel::Regenerate(_) => 1,
        }
    }

    /// The number of rows that the CPU engine makes at a time, by form.
    pub fn rows_ahead_on_cpu(form: &Form) -> usize {
        // The rows that the engine holds beyond the form's own are those that it makes ahead of the step at hand.
        1 + (form.engine_bytes_per_param() - form.state_bytes_per_param()) as usize / 4
    }
}

/// The bytes that one step reads and writes per parameter, averaged over steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// The bytes between the gradient's being ready and its having noise.
    pub critical: f64,
    /// The bytes that are moved while the gradient is computed.
    pub background: f64,
}

impl Moved {
    /// Counts the bytes of a form's steps.
    pub fn of(form: &Form, execution: Execution) -> Moved {
        // The gradient is read and written.
        let gradient = 2.0 * execution.gradient.bytes() as f64;
        if execution.rows_ahead <= 1 && !execution.prepared {
            return Moved { critical: gradient + fused_state(form), background: 0.0 };
        }
        // The row is written when it is made, and read when it is added.
        let (make, add) = (4.0 + staged_state(form, execution.rows_ahead), gradient + 4.0);
        match execution.prepared {
            true => Moved { critical: add, background: make },
            false => Moved { critical: add + make, background: 0.0 },
        }
    }

    /// The bytes on the critical path and beside it.
    pub fn total(self) -> f64 {
        self.critical + self.background
    }
}

/// The bytes of state that a fused pass moves.
fn fused_state(form: &Form) -> f64 {
    let slots = form.num_slots() as f64;
    match form.kernel() {
        Kernel::Blt(_) => 8.0 * slots,
        // All past outputs are read, the oldest is overwritten.
        Kernel::Ring(_) if slots > 0.0 => 4.0 * (slots + 1.0),
        Kernel::Ring(_) | Kernel::Regenerate(_) => 0.0,
    }
}

/// The bytes of state per step of a pass that makes `rows` rows at once.
fn staged_state(form: &Form, rows: usize) -> f64 {
    let (slots, rows) = (form.num_slots() as f64, rows.max(1) as f64);
    match form.kernel() {
        // The rows of the last turn are folded into the buffers before new ones are made.
        Kernel::Blt(_) if slots > 0.0 => 4.0 + 8.0 * slots / rows,
        Kernel::Ring(_) => 4.0 * slots / rows,
        Kernel::Blt(_) | Kernel::Regenerate(_) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(form: &Form, rows_ahead: usize, prepared: bool) -> (f64, f64) {
        let moved = Moved::of(form, Execution { gradient: Dtype::F32, rows_ahead, prepared });
        (moved.critical, moved.total())
    }

    #[test]
    fn every_form_moves_what_the_table_says() {
        let blt = Form::blt(&[0.29, 0.13, 0.06, 0.015], &[0.22, 0.71, 0.944, 0.9957]).unwrap();
        let ring = |bands: usize| Form::banded_toeplitz(&vec![1.0; bands]).unwrap();
        let sum = Form::regenerate(&[1.0, 0.5, 0.2, 0.1]).unwrap();
        for (form, fused, rows, ahead) in [
            (Form::independent(), 8.0, 1, 16.0),
            (blt, 40.0, 8, 24.0),
            (ring(16), 72.0, 8, 23.5),
            (ring(64), 264.0, 16, 31.75),
            (sum, 8.0, 8, 16.0),
        ] {
            assert_eq!(Execution::rows_ahead_on_gpu(&form), rows);
            assert_eq!(of(&form, 1, false), (fused, fused));
            assert_eq!(of(&form, rows, true), (12.0, ahead));
            if rows > 1 {
                assert_eq!(of(&form, rows, false), (ahead, ahead));
            }
            // Two bytes less to read, two less to write, and nothing else changes.
            for gradient in [Dtype::Bf16, Dtype::F16] {
                let moved = Moved::of(&form, Execution { gradient, rows_ahead: rows, prepared: true });
                assert_eq!((moved.critical, moved.total()), (8.0, ahead - 4.0));
            }
        }
        assert_eq!(of(&ring(1), 1, false), (8.0, 8.0), "one band is independent noise");
        assert_eq!([8, 9, 47, 48].map(|bands| Execution::rows_ahead_on_gpu(&ring(bands))), [1, 8, 8, 16]);
        assert_eq!([8, 9, 64].map(|bands| Execution::rows_ahead_on_cpu(&ring(bands))), [1, 8, 8]);
    }
}
