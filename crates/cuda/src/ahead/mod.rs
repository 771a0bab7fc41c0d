//! Rows made ahead of their steps.
//!
//! Noise does not depend on gradients: once a tile's state is read, several future rows can be made of it. So each tile makes `rows_ahead`
//! rows at a time (`make`), tiles take turns ([`turns`]), and every step adds one row to the gradient (`add`). Per parameter and step a ring
//! of 16 bands moves 23.5 bytes in place of 72, a BLT of 4 buffers 24 in place of 40, and a regenerated sum of 32 rows samples 5 rows in place of 32.
//!
//! The row of local time `u` (steps since the backend was made or restored) lies in slot `u mod R`. A ring holds its rows ahead itself: `R` is its history
//! and one turn, so that the plain state before a step is still there when the step's rows are made. Other forms have a turn of rows beside their
//! state. A BLT's buffers are those at the tile's last turn; the next turn folds the rows in between into them, with the
//! operations that the fused kernel would have made, and so does whoever reads the state ([`plain`]).
//!
//! With [`crate::CudaOptions::prepare`], `make` runs on a stream of its own ([`prepare_stream`]). Rows made ahead are noise that nobody has released, as secret
//! as the key: they are in no file, and are cleared before their memory is freed.

mod plain;
mod prepare_stream;
mod rule;
pub(crate) mod table;
mod turns;

pub(crate) use prepare_stream::PrepareStream;
pub(crate) use turns::Turns;

use crate::launch::Segment;
use crate::memory::Memory;
use crate::state::Tiles;
use corrnoise_core::Result;
use corrnoise_core::form::{Form, Kernel};
use cudarc::driver::CudaStream;
use std::sync::Arc;

/// The device memory of rows made ahead, and the stream that they are made on.
pub(crate) struct Ahead {
    pub(crate) turns: Turns,
    /// The number of rows that memory holds.
    pub(crate) slots: usize,
    /// The rows, unless they are a ring's state.
    pub(crate) rows: Option<Memory<u8>>,
    /// The local time of the first row that a tile has not made, one word per tile.
    pub(crate) due: Memory<u32>,
    /// The table of segments without gradients: `make` may read it while the one with gradients changes.
    pub(crate) segments: Memory<u32>,
    /// The stream that rows are made on, if it is not the caller's.
    pub(crate) own: Option<PrepareStream>,
}

/// The number of rows that are held for a form, `rows` of which are made at a time; those of a ring are its state.
pub(crate) fn slots(form: &Form, rows: usize) -> usize {
    match form.kernel() {
        Kernel::Ring(ring) => ring.num_slots() + rows,
        _ => rows,
    }
}

impl Ahead {
    /// Memory for `rows` rows at a time, in the order of `stream`.
    pub(crate) fn new(
        stream: &Arc<CudaStream>,
        form: &Form,
        tiles: &Tiles,
        rows: usize,
        prepare: bool,
    ) -> Result<Ahead> {
        let slots = slots(form, rows);
        let is_ring = matches!(form.kernel(), Kernel::Ring(_));
        let table: &[u32] = bytemuck::cast_slice::<Segment, u32>(&tiles.segments);
        let table = if table.is_empty() { &[0][..] } else { table };
        Ok(Ahead {
            turns: Turns { rows: rows as u64, tiles: tiles.count },
            slots,
            rows: match is_ring {
                true => None,
                false => Some(Memory::zeros(stream, tiles.state_bytes(slots)?)?),
            },
            due: Memory::zeros(stream, tiles.count as usize)?,
            segments: Memory::copy(stream, table)?,
            own: if prepare { Some(PrepareStream::beside(stream)?) } else { None },
        })
    }

    /// The slot of the row of a local time.
    pub(crate) fn slot(&self, time: u64) -> usize {
        (time % self.slots as u64) as usize
    }

    /// The slot of a ring's output by its age at a local time; outputs of before time 0 lie where the time wraps around.
    pub(crate) fn slot_of_age(&self, time: u64, age: usize) -> usize {
        (self.slot(time) + self.slots - age) % self.slots
    }

    /// Ends the work of the own stream, if there is one, and clears the rows, both in the order of `stream`, whose context is current.
    pub(crate) fn end(&self, stream: &CudaStream) {
        if let Some(own) = &self.own {
            own.end_before(stream);
        }
        if let Some(rows) = &self.rows {
            rows.clear(stream.cu_stream());
        }
    }
}
