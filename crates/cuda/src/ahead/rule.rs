//! The rule that chooses how many rows are made ahead, and the memory that they take.

use crate::options::CudaOptions;
use crate::state::VALUE_BYTES;
use corrnoise_core::form::{Form, Kernel};
use corrnoise_core::{Error, Result};

/// Models with fewer coordinates are bound by latency: too few tiles take their turn in a step to fill a device.
const LEAST_COORDS: u64 = 2 << 20;

/// Rows made ahead may take this part of the memory that is free on the device.
const PART_OF_FREE: u64 = 8;

/// The rule makes no fewer rows at a time than this, unless it makes one: a turn that is shorter saves little.
const LEAST_ROWS: usize = 4;

impl CudaOptions {
    /// The number of rows that a mechanism makes at a time with these options, on a device with `free` bytes of free memory.
    ///
    /// Without a number of its own, that is 8, and 16 for rings of 48 bands and more, where it saves traffic or sampling: rings of 9 bands
    /// and more, BLTs of 3 buffers and more, and regenerated sums of 4 rows and more whose weights are the same at every step; in all cases for
    /// 2²¹ coordinates and more, and if the rows take at most an eighth of the free memory. Where [`CudaOptions::max_state_bytes`] leaves less
    /// room, it is a half or a quarter of that, but at least 4. Elsewhere it is 1.
    pub fn rows_ahead_of(&self, form: &Form, coords: u64, free: u64) -> Result<usize> {
        let rows = match self.rows_ahead {
            Some(rows) if rows == 1 || (1..=most_rows(form)).contains(&rows) => rows,
            Some(rows) => {
                let expected = format!("1 to {}, the most for this form", most_rows(form));
                return Err(Error::parameter("rows_ahead", rows, expected));
            }
            None => self.rule(form, coords, free),
        };
        let bytes = self.bytes_per_param(form, rows);
        match self.max_state_bytes {
            Some(most) if bytes > most => {
                let rows = bytes - form.state_bytes_per_param();
                let rows = if rows == 0 { String::new() } else { format!(" and {rows} of rows made ahead") };
                let state = form.state_bytes_per_param();
                let expected =
                    format!("at least {bytes}: per parameter, {state} bytes of this form's state{rows}");
                Err(Error::parameter("max_state_bytes", most, expected))
            }
            _ => Ok(rows),
        }
    }

    /// The bytes per parameter that a mechanism holds if it makes `rows` rows at a time: the form's state, and the rows. A device holds whole
    /// tiles of 512 coordinates, so that a shard of many short tensors takes more.
    pub fn bytes_per_param(&self, form: &Form, rows: usize) -> u64 {
        let held = if self.is_staged(form, rows) { rows } else { 0 };
        form.state_bytes_per_param() + (held * VALUE_BYTES) as u64
    }

    /// True if rows are made by one kernel and added by another. Independent noise never is.
    pub(crate) fn is_staged(&self, form: &Form, rows: usize) -> bool {
        let is_independent = form.num_slots() == 0 && matches!(form.kernel(), Kernel::Blt(_));
        (rows > 1 || self.prepare) && !is_independent
    }

    /// The number of rows where the options do not give it.
    fn rule(&self, form: &Form, coords: u64, free: u64) -> usize {
        let rows: usize = match form.kernel() {
            Kernel::Ring(ring) if ring.num_slots() >= 47 => 16,
            Kernel::Ring(ring) if ring.num_slots() >= 8 => 8,
            Kernel::Blt(blt) if blt.scale().len() >= 3 => 8,
            Kernel::Regenerate(sum) if sum.toeplitz_weights().is_some_and(|weights| weights.len() >= 4) => 8,
            _ => 1,
        };
        let bytes = u128::from(coords) * (VALUE_BYTES * rows) as u128;
        if coords < LEAST_COORDS || bytes > u128::from(free / PART_OF_FREE) {
            return 1;
        }
        let most = self.max_state_bytes.unwrap_or(u64::MAX);
        let mut turns = [rows, rows / 2, rows / 4].into_iter().filter(|rows| *rows >= LEAST_ROWS);
        turns.find(|rows| self.bytes_per_param(form, *rows) <= most).unwrap_or(1)
    }
}

/// The most rows that the kernels of a form make at a time.
fn most_rows(form: &Form) -> usize {
    match form.kernel() {
        Kernel::Ring(_) => 16,
        Kernel::Blt(blt) if blt.scale().is_empty() => 1,
        Kernel::Blt(_) => 16,
        Kernel::Regenerate(sum) if sum.toeplitz_weights().is_some() => 8,
        Kernel::Regenerate(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_looks_at_form_size_and_memory() {
        let auto = CudaOptions::default();
        let (large, plenty) = (1 << 24, 1 << 40);
        let ring = |bands: usize| Form::banded_toeplitz(&vec![1.0; bands]).unwrap();
        let blt = |buffers: usize| Form::blt(&vec![0.1; buffers], &vec![0.5; buffers]).unwrap();
        let rows = |form: &Form, coords, free| auto.rows_ahead_of(form, coords, free).unwrap();
        assert_eq!(
            [1, 8, 9, 47, 48, 64].map(|bands| rows(&ring(bands), large, plenty)),
            [1, 1, 8, 8, 16, 16]
        );
        assert_eq!([1, 2, 3, 8].map(|buffers| rows(&blt(buffers), large, plenty)), [1, 1, 8, 8]);
        let sum = |weights: usize| Form::regenerate(&vec![0.5; weights]).unwrap();
        assert_eq!([3, 4].map(|weights| rows(&sum(weights), large, plenty)), [1, 8]);
        assert_eq!(rows(&Form::independent(), large, plenty), 1);
        assert_eq!(rows(&ring(16), (2 << 20) - 1, plenty), 1);
        assert_eq!(rows(&ring(16), 2 << 20, 8 * 4 * 8 * (2 << 20)), 8);
        assert_eq!(rows(&ring(16), 2 << 20, 8 * 4 * 8 * (2 << 20) - 8), 1);
    }

    #[test]
    fn a_number_of_rows_is_kept_or_refused() {
        let some = |rows| CudaOptions { rows_ahead: Some(rows), ..CudaOptions::default() };
        let ring = Form::banded_toeplitz(&[1.0, 0.5]).unwrap();
        assert_eq!(some(16).rows_ahead_of(&ring, 1, 0).unwrap(), 16);
        for rows in [0, 17] {
            let message = some(rows).rows_ahead_of(&ring, 1, 0).unwrap_err().to_string();
            assert!(message.contains("1 to 16, the most for this form"), "{message}");
        }
        let sum = Form::regenerate(&[1.0, 0.5]).unwrap();
        assert!(some(9).rows_ahead_of(&sum, 1, 0).is_err());
        assert!(some(2).rows_ahead_of(&Form::independent(), 1, 0).is_err());
    }

    #[test]
    fn a_limit_of_memory_makes_turns_shorter() {
        let limit = |most| CudaOptions { max_state_bytes: Some(most), ..CudaOptions::default() };
        let rows = |form: &Form, most| limit(most).rows_ahead_of(form, 1 << 24, 1 << 40).unwrap();
        let ring = |bands: usize| Form::banded_toeplitz(&vec![1.0; bands]).unwrap();
        // 15 and 63 past outputs of 4 bytes, and then 4 bytes per row.
        let long = [252 + 64, 252 + 63, 252 + 32, 252 + 31, 252 + 16, 252 + 15, 252];
        assert_eq!(long.map(|most| rows(&ring(64), most)), [16, 8, 8, 4, 4, 1, 1]);
        assert_eq!([92, 91, 76, 75, 60].map(|most| rows(&ring(16), most)), [8, 4, 4, 1, 1]);
        let blt = Form::blt(&[0.1; 4], &[0.5; 4]).unwrap();
        assert_eq!([48, 47, 32, 31, 16].map(|most| rows(&blt, most)), [8, 4, 4, 1, 1]);
        let sum = Form::regenerate(&[0.5; 4]).unwrap();
        assert_eq!([32, 31, 16, 15, 0].map(|most| rows(&sum, most)), [8, 4, 4, 1, 1]);
        assert_eq!(rows(&Form::independent(), 0), 1);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let ring = Form::banded_toeplitz(&[1.0; 16]).unwrap();
        let refused = |options: CudaOptions| options.rows_ahead_of(&ring, 1, 0).unwrap_err().to_string();
        let limit = |most| CudaOptions { max_state_bytes: Some(most), ..CudaOptions::default() };
        let state = "60 bytes of this form's state";
        let message = refused(limit(59));
        assert!(message.contains("max_state_bytes is 59: expected at least 60"), "{message}");
        assert!(message.ends_with(state), "{message}");
        let message = refused(CudaOptions { rows_ahead: Some(5), ..limit(79) });
        assert!(message.contains("at least 80") && message.contains("20 of rows made ahead"), "{message}");
        // What is prepared lies in a row of its own.
        let message = refused(CudaOptions { prepare: true, ..limit(63) });
        assert!(message.contains("at least 64"), "{message}");
        for options in [
            limit(60),
            CudaOptions { rows_ahead: Some(5), ..limit(80) },
            CudaOptions { prepare: true, ..limit(64) },
        ] {
            assert_eq!(options.rows_ahead_of(&ring, 1, 0).unwrap(), options.rows_ahead.unwrap_or(1));
        }
        let prepared = CudaOptions { prepare: true, ..limit(0) };
        assert_eq!(prepared.rows_ahead_of(&Form::independent(), 1, 0).unwrap(), 1);
    }
}
