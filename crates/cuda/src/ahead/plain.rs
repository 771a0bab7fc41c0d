//! The plain state of a BLT whose rows are made ahead: its buffers with the rows of the steps since the tile's last turn folded in.

use crate::backend::Cuda;
use crate::device::device_error;
use crate::launch::TILE;
use crate::state::VALUE_BYTES;
use corrnoise_core::Result;
use corrnoise_core::form::Kernel;

impl Cuda {
    /// Brings buffer `slot` of some coordinates, as it lies in memory, to the time of the next step. `at` is the place of the first of them in
    /// a slot.
    pub(crate) fn fold(&self, slot: usize, at: u64, bytes: &mut [u8]) -> Result<()> {
        let (Some(ahead), Kernel::Blt(blt)) = (&self.owned.ahead, self.plan.form().kernel()) else {
            return Ok(());
        };
        let stream = &self.owned.stream;
        let (size, decay) = (VALUE_BYTES as u64, blt.decay()[slot]);
        let end = at + bytes.len() as u64 / size;
        let mut done = at;
        while done < end {
            // Tiles of one phase had their last turn at the same time.
            let tile = done / TILE;
            let until = (ahead.turns.same_phase(tile).end * TILE).min(end);
            let mut due = [0];
            let view = ahead.due.slice.slice(tile as usize..tile as usize + 1);
            stream.memcpy_dtoh(&view, &mut due).map_err(device_error("read the turns"))?;
            stream.synchronize().map_err(device_error("wait for the stream"))?;
            // The word has the low bits of a time that is at most a turn from now.
            let distance = i64::from(due[0].wrapping_sub(self.time as u32) as i32);
            let made_until = self.time.saturating_add_signed(distance);
            let Some(rows) = &ahead.rows else { return Ok(()) };
            let range = (done - at) * size..(until - at) * size;
            let values = bytes[range.start as usize..range.end as usize].as_chunks_mut::<VALUE_BYTES>().0;
            let mut row = vec![0_u8; VALUE_BYTES * values.len()];
            for time in ahead.turns.last_turn(tile, made_until).unwrap_or(self.time)..self.time {
                let fresh = self.plan.form().age(self.base.wrapping_add(time)) == 0;
                let from = (ahead.slot(time) as u64 * self.tiles.slot_len() + done) * size;
                let view = rows.slice.slice(from as usize..from as usize + row.len());
                stream.memcpy_dtoh(&view, &mut row).map_err(device_error("read rows made ahead"))?;
                stream.synchronize().map_err(device_error("wait for the stream"))?;
                for (value, z) in values.iter_mut().zip(row.as_chunks::<VALUE_BYTES>().0) {
                    let before = if fresh { 0.0 } else { f32::from_le_bytes(*value) };
                    *value = decay.mul_add(before, f32::from_le_bytes(*z)).to_le_bytes();
                }
            }
            done = until;
        }
        Ok(())
    }
}
