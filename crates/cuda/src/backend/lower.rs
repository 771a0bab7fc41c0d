//! Steps as a kernel reads them, and the secret words of their dither.

use super::Cuda;
use crate::ahead::table::{self, TurnSteps};
use crate::launch::StepRecord;
use crate::state::ring_head;
use corrnoise_core::backend::{Add, Step, StepKernel};
use corrnoise_core::chacha::{ChaCha, first_columns};
use corrnoise_core::form::Kernel;
use corrnoise_core::grid::{DitherBlock, STEPS_PER_BLOCK};
use corrnoise_core::secret::Secret;
use corrnoise_core::{Error, Result, Rounds, Row};

/// A step as a kernel reads it; its list is in [`Cuda::words`].
pub(super) struct Lowered {
    pub(super) step: StepRecord,
    /// The key of the step's row; zero for a sum of several.
    pub(super) key: [u32; 8],
    pub(super) unit: f32,
    pub(super) per_unit: f32,
}

impl Cuda {
    /// Lowers a step to what the device reads; its list is left in `words`. Refuses a step of another plan. The result holds secrets:
    /// callers run on a stack that is wiped.
    pub(super) fn lower(&mut self, step: &Step<'_>, time: u64) -> Result<Lowered> {
        let refuse =
            || Error::Device(format!("step {} is not one of this backend's plan and run", step.number));
        let key = |row: Row| self.keys.get(usize::from(row.incarnation())).ok_or_else(refuse);
        let mut record = StepRecord { number: step.number, ..StepRecord::default() };
        let of_dither = key(step.dither)?;
        let (unit, per_unit) = lower_add(step, of_dither, &mut self.dither, &mut record);
        self.words.clear();
        if self.owned.ahead.is_some() {
            let key = self.lower_turn(step, time, &mut record)?;
            return Ok(Lowered { step: record, key, unit, per_unit });
        }
        let key = match &step.kernel {
            StepKernel::Blt { row, scale, decay, fresh } => {
                if self.is_ring || (scale.len(), decay.len()) != (self.slots, self.slots) {
                    return Err(refuse());
                }
                (record.row, record.head) = (row.stream(), u32::from(*fresh));
                let key = *key(*row)?;
                record.columns = first_columns(&key, record.row);
                key
            }
            StepKernel::Ring { row, coefs } => {
                if !self.is_ring || coefs.len() > self.slots {
                    return Err(refuse());
                }
                coefs.iter().try_for_each(|coef| self.words.push(coef.to_bits())).ok_or_else(refuse)?;
                (record.row, record.head) = (row.stream(), ring_head(time, self.slots) as u32);
                record.count = coefs.len() as u32;
                let key = *key(*row)?;
                record.columns = first_columns(&key, record.row);
                key
            }
            StepKernel::Regenerate { terms } => {
                for (row, weight) in *terms {
                    let name = row.stream();
                    let head = [name as u32, (name >> 32) as u32, weight.to_bits(), 0];
                    let columns = first_columns(key(*row)?, name);
                    let mut words = head.into_iter().chain(columns);
                    words.try_for_each(|word| self.words.push(word)).ok_or_else(refuse)?;
                }
                record.count = u32::try_from(terms.len()).map_err(|_| refuse())?;
                [0; 8]
            }
        };
        Ok(Lowered { step: record, key, unit, per_unit })
    }
}

impl Cuda {
    /// Lowers a step whose rows are made ahead: the record serves `make` and `add`. Returns the key of its row.
    fn lower_turn(&mut self, step: &Step<'_>, time: u64, record: &mut StepRecord) -> Result<[u32; 8]> {
        let refuse =
            || Error::Device(format!("step {} is not one of this backend's plan and run", step.number));
        let key = |row: Row| self.keys.get(usize::from(row.incarnation())).ok_or_else(refuse);
        let Some(ahead) = &self.owned.ahead else { return Err(refuse()) };
        if step.number >= self.plan.num_steps() {
            return Err(refuse());
        }
        let form = self.plan.form();
        let steps = TurnSteps::new(&self.plan, step.number, ahead.turns.rows as usize);
        record.head = ahead.slot(time) as u32;
        record.count = steps.count as u32;
        match (&step.kernel, form.kernel()) {
            (StepKernel::Blt { row, scale, decay, fresh }, Kernel::Blt(blt)) => {
                if (blt.scale(), blt.decay()) != (scale, decay) || *fresh != (form.age(step.number) == 0) {
                    return Err(refuse());
                }
                (record.row, record.list) = (row.stream(), table::fresh_rows(form, steps));
                Ok(*key(*row)?)
            }
            (StepKernel::Ring { row, coefs }, Kernel::Ring(ring)) => {
                let words = self.words.extend(table::max_words(form, steps.rows)).ok_or_else(refuse)?;
                table::ring_words(form, ring, steps, words);
                if self.words[0] as usize != coefs.len() {
                    return Err(refuse());
                }
                record.row = row.stream();
                Ok(*key(*row)?)
            }
            (StepKernel::Regenerate { terms }, Kernel::Regenerate(sum)) => {
                for (row, _) in *terms {
                    key(*row)?;
                }
                let len = table::num_sum_words(steps, terms.len());
                let words = self.words.extend(len).ok_or_else(refuse)?;
                table::sum_words(form, sum, steps, terms, words)?;
                Ok([0; 8])
            }
            _ => Err(refuse()),
        }
    }
}

/// Writes to a record how its step is added to gradients; returns the grid's unit and its reciprocal, both 0 where there is no grid. `key` is
/// that of the dither's row.
pub(crate) fn lower_add(
    step: &Step<'_>,
    key: &[u32; 8],
    dither: &mut DitherWords,
    record: &mut StepRecord,
) -> (f32, f32) {
    match step.add {
        Add::OnGrid(grid) => {
            record.scale = grid.scale;
            record.dither = dither.of(step.dither, step.number, key);
            (grid.unit, grid.per_unit)
        }
        Add::Plain(scale) => {
            record.scale = scale;
            (0.0, 0.0)
        }
    }
}

/// The words of the last row of dither that was asked for: a row serves several steps.
pub(crate) struct DitherWords {
    rounds: Rounds,
    row: Option<Row>,
    /// The four words of each of the row's steps.
    words: Secret<[u32; 4]>,
}

impl DitherWords {
    pub(crate) fn new(rounds: Rounds) -> DitherWords {
        DitherWords { rounds, row: None, words: Secret::zeroed(STEPS_PER_BLOCK as usize) }
    }

    /// The words of step `number`, which `row` holds, under the key of the row's incarnation.
    fn of(&mut self, row: Row, number: u64, key: &[u32; 8]) -> [u32; 4] {
        if self.row != Some(row) {
            let bytes = std::array::from_fn(|i| key[i / 4].to_le_bytes()[i % 4]);
            let block = DitherBlock::new(&ChaCha::new(&bytes, self.rounds), row);
            for (step, words) in (0..).zip(self.words.iter_mut()) {
                *words = block.key(step).0;
            }
            self.row = Some(row);
        }
        self.words[(number % STEPS_PER_BLOCK) as usize]
    }
}
