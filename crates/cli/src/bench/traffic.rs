//! The memory traffic of a form with a multiply and an add per value: what a fused step is measured against, in the same run.

use corrnoise::Form;
use corrnoise::form::Kernel;
use corrnoise::huge_pages;

/// Coordinates that one thread takes through all rows before it goes on: half of a small L1.
const RUN: usize = 2048;

/// Arrays of the size of a gradient and a form's state, `[run][row][coordinate]`.
pub struct Traffic {
    gradient: Vec<f32>,
    state: Vec<f32>,
    rows: usize,
    /// Rows that are written: all buffers of a BLT, one of a ring.
    written: usize,
}

impl Traffic {
    /// Room for `dim` coordinates of `form`.
    pub fn new(form: &Form, dim: usize) -> Traffic {
        let rows = form.num_slots();
        let written = if matches!(form.kernel(), Kernel::Ring(_)) { rows.min(1) } else { rows };
        // Pages as the engine's state has them: without, large forms would seem to beat the memory they go through.
        let ones = |len: usize| {
            let mut values = vec![0.0; len];
            huge_pages(&mut values);
            values.fill(1.0);
            values
        };
        Traffic { gradient: ones(dim), state: ones(dim * rows), rows, written }
    }

    /// Bytes that one step moves.
    pub fn bytes(&self) -> u64 {
        4 * self.gradient.len() as u64 * (2 + self.rows + self.written) as u64
    }

    /// Reads every row once; writes the gradient and the rows that the form writes.
    pub fn step(&mut self, threads: usize) {
        let (rows, written) = (self.rows, self.written);
        let share = self.gradient.len().div_ceil(threads).next_multiple_of(RUN);
        let mut rest = self.state.as_mut_slice();
        std::thread::scope(|scope| {
            for gradient in self.gradient.chunks_mut(share) {
                let (state, tail) = std::mem::take(&mut rest).split_at_mut(gradient.len() * rows);
                rest = tail;
                scope.spawn(move || touch(gradient, state, rows, written));
            }
        });
    }
}

/// Each row passes through once, while the run's gradient stays in L1.
fn touch(gradient: &mut [f32], state: &mut [f32], rows: usize, written: usize) {
    let mut rest = state;
    for run in gradient.chunks_mut(RUN) {
        let (own, tail) = std::mem::take(&mut rest).split_at_mut(run.len() * rows);
        rest = tail;
        for (row, values) in own.chunks_exact_mut(run.len()).enumerate() {
            if row < written {
                for (g, m) in run.iter_mut().zip(values) {
                    *g += 0.5 * *m;
                    *m = 0.25 * *m + 1.0;
                }
            } else {
                for (g, m) in run.iter_mut().zip(values) {
                    *g += 0.5 * *m;
                }
            }
        }
        if rows == 0 {
            run.iter_mut().for_each(|g| *g = 0.5 * *g + 1.0);
        }
    }
}
