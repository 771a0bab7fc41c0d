//! Wide launches of the kernels that make rows ahead.

use super::Difference;
use super::device::{Args, Device, FAR, TILE_BYTES, late, many_segments, wide};
use corrnoise::backend::{Backend, Replay};
use corrnoise::cuda::{Cuda, DeviceGradient};
use corrnoise::{Dtype, RunKey, Shard};
use corrnoise_cuda_suite::cases::{self, Lowered};

/// The rows of a launch, and what belongs to them.
struct Rows<'d> {
    device: &'d Device,
    args: Args,
    /// As many tiles as rows at a time: one of each phase.
    tiles: u64,
    /// Slots of rows, and of buffers.
    slots: u64,
    buffers: u64,
    is_ring: bool,
    before: Memory,
    after: Memory,
}

/// The content of a launch's memory.
struct Memory {
    rows: Vec<u8>,
    buffers: Vec<u8>,
    due: Vec<u8>,
}

impl Memory {
    fn tile(bytes: &[u8], tiles: u64, slot: u64, tile: u64) -> &[u8] {
        let at = ((slot * tiles + tile) * TILE_BYTES) as usize;
        &bytes[at..at + TILE_BYTES as usize]
    }

    fn due(&self, tile: u64) -> [u8; 4] {
        std::array::from_fn(|i| self.due[4 * tile as usize + i])
    }
}

pub(super) fn differ(device: &Device, module: &str) -> Difference {
    let wrong = |error: corrnoise::Error| error.to_string();
    let tiles = if module.ends_with("16") { 16 } else { 8 };
    let (plan, options) = cases::plan(module, 40, 3, Some(tiles)).map_err(wrong)?;
    let shard = Shard::whole(512 * tiles).map_err(wrong)?;
    let keys = [RunKey::from_bytes(std::array::from_fn(|i| (i * 37 + 11) as u8))];
    let new = || Cuda::with_options(&plan, &keys, &shard, &device.stream, options);
    let gradient = device.memory(&vec![0; (tiles * TILE_BYTES) as usize])?;
    // SAFETY: the memory is as long, and outlives the launches.
    let list = || unsafe { DeviceGradient::from_raw(gradient, 512 * tiles, Dtype::F32) };
    let step = |t: u64| Lowered::of(&plan, t).map_err(wrong);

    let mut cuda = new().map_err(wrong)?;
    let mut made = None;
    for t in 0..=tiles {
        let before = match &made {
            Some(rows) => Rows::memory(rows)?,
            None => Memory { rows: vec![], buffers: vec![], due: vec![] },
        };
        cuda.step(&step(t)?.step(&plan), &[list()]).map_err(wrong)?;
        let rows = Rows::after(device, module, tiles, before)?;
        let difference = match t {
            0 => rows.first_turn()?,
            1 => rows.last_phase()?,
            _ if t == tiles => rows.late_turn()?,
            _ => None,
        };
        if difference.is_some() {
            return Ok(difference);
        }
        rows.write(&rows.after)?;
        made = Some(rows);
    }
    drop(cuda);

    let mut cuda = new().map_err(wrong)?;
    for t in 0..4 {
        cuda.schedule(&step(t)?.step(&plan)).map_err(wrong)?;
    }
    cuda.start().map_err(wrong)?;
    let before = Memory { rows: vec![], buffers: vec![], due: vec![] };
    Rows::after(device, module, tiles, before)?.scheduled()
}

impl<'d> Rows<'d> {
    fn after(device: &'d Device, module: &str, tiles: u64, before: Memory) -> Result<Rows<'d>, String> {
        let args = device.launched("make")?;
        let buffers = module.strip_prefix("make_blt").and_then(|count| count.parse().ok()).unwrap_or(0);
        let slots = u64::from(args.narrow(super::device::narrow::NUM_SLOTS));
        let is_ring = module.starts_with("make_ring");
        let after = Memory { rows: vec![], buffers: vec![], due: vec![] };
        let mut rows = Rows { device, args, tiles, slots, buffers, is_ring, before, after };
        rows.after = rows.memory()?;
        Ok(rows)
    }

    fn memory(&self) -> Result<Memory, String> {
        let slot = self.tiles * TILE_BYTES;
        let buffers = match self.buffers {
            0 => vec![],
            count => self.device.read(self.args.wide(wide::STATE), count * slot)?,
        };
        Ok(Memory {
            rows: self.device.read(self.args.wide(wide::ROWS), self.slots * slot)?,
            buffers,
            due: self.device.read(self.args.wide(wide::DUE), 4 * self.tiles)?,
        })
    }

    /// Writes the memory as it was before or after the host's launch.
    fn write(&self, memory: &Memory) -> Result<(), String> {
        self.device.write(self.args.wide(wide::ROWS), &memory.rows)?;
        if self.buffers > 0 {
            self.device.write(self.args.wide(wide::STATE), &memory.buffers)?;
        }
        self.device.write(self.args.wide(wide::DUE), &memory.due)
    }

    fn launch(&self, args: &Args, index: u64) -> Result<(), String> {
        let block = (if self.is_ring { index } else { index / 4 }) as u32;
        self.device.launch("make", args, block + 1, block)
    }

    /// Launches for all tiles where nothing is made yet; rows and turns must be what they were.
    fn all_tiles(&self, what: &str, args: &Args) -> Difference {
        self.device.zero(self.args.wide(wide::ROWS), self.after.rows.len() as u64)?;
        self.device.zero(self.args.wide(wide::DUE), 4 * self.tiles)?;
        let blocks = if self.is_ring { self.tiles } else { self.tiles / 4 };
        self.device.launch("make", args, blocks as u32, 0)?;
        let now = self.memory()?;
        let same = now.rows == self.after.rows && now.due == self.after.due;
        Ok((!same).then(|| format!("{what}: the rows")))
    }

    /// The step's number, and that of time 0, with more than 32 bits.
    fn far_step(args: Args) -> Args {
        args.moved(wide::BASE, 1 << 39)
    }

    fn first_turn(&self) -> Difference {
        let far = Self::far_step(self.args.moved(wide::NUMBER, 1 << 39));
        let many = many_segments(self.device, self.args, self.tiles, 0)?;
        let first = self.all_tiles("a run that begins at step 2^39", &far)?;
        let first = if first.is_some() { first } else { self.all_tiles("2^16 segments", &many)? };
        if first.is_some() { Ok(first) } else { self.middle_tile() }
    }

    /// A number of tiles beyond 2³², or the largest below 2³¹ for a ring, of which a block makes one; each phase has the same number.
    fn many_tiles(&self) -> u64 {
        if self.is_ring { (1 << 31) / self.tiles - 1 } else { (1 << 33) / self.tiles - 1 }
    }

    /// Places the memory of four tiles from `first` on, whose first is that of the host's tile `tile`, as far apart as so many tiles take.
    fn place(&self, first: u64, tile: u64, content: Option<&Memory>) -> Result<Args, String> {
        let per_phase = self.many_tiles();
        let stride = per_phase * self.tiles * TILE_BYTES;
        let (rows, buffers) = (FAR + (tile << 52), FAR + (tile << 52) + (1 << 51));
        for slot in 0..self.slots {
            let mut bytes = vec![0; 4 * TILE_BYTES as usize];
            if let Some(memory) = content {
                bytes[..TILE_BYTES as usize].copy_from_slice(Memory::tile(
                    &memory.rows,
                    self.tiles,
                    slot,
                    tile,
                ));
            }
            self.device.memory_at(rows + slot * stride, &bytes)?;
        }
        for buffer in 0..self.buffers {
            let mut bytes = vec![0; 4 * TILE_BYTES as usize];
            if let Some(memory) = content {
                let of_tile = Memory::tile(&memory.buffers, self.tiles, buffer, tile);
                bytes[..TILE_BYTES as usize].copy_from_slice(of_tile);
            }
            self.device.memory_at(buffers + buffer * stride, &bytes)?;
        }
        // Only the first of the four has its turn, or all of them at time 0.
        let mut due = [0xff; 16];
        match content {
            Some(memory) => due[..4].copy_from_slice(&memory.due(tile)),
            None => due = [0; 16],
        }
        let due = self.device.memory(&due)?;
        self.device.write_wide(self.args.wide(wide::SEGMENTS) + 24, first - tile)?;
        let back = (first * TILE_BYTES).wrapping_neg();
        let args = self.args.with(wide::NUM_TILES, per_phase * self.tiles);
        let args =
            args.with(wide::ROWS, rows.wrapping_add(back)).with(wide::DUE, due.wrapping_sub(4 * first));
        Ok(args.with(wide::STATE, if self.buffers > 0 { buffers } else { rows }.wrapping_add(back)))
    }

    /// Whether a placed tile has what the host's launch made of its twin.
    fn placed(&self, what: &str, args: &Args, first: u64, tile: u64, buffers: u64) -> Difference {
        self.device.write_wide(self.args.wide(wide::SEGMENTS) + 24, 0)?;
        let stride = args.wide(wide::NUM_TILES) * TILE_BYTES;
        let at = |base: usize, slot: u64| {
            let address = args.wide(base).wrapping_add(first * TILE_BYTES).wrapping_add(slot * stride);
            self.device.read(address, TILE_BYTES)
        };
        for slot in 0..self.slots {
            if at(wide::ROWS, slot)? != Memory::tile(&self.after.rows, self.tiles, slot, tile) {
                return Ok(Some(format!("{what}: slot {slot}")));
            }
        }
        for buffer in 0..buffers {
            if at(wide::STATE, buffer)? != Memory::tile(&self.after.buffers, self.tiles, buffer, tile) {
                return Ok(Some(format!("{what}: buffer {buffer}")));
            }
        }
        let due = self.device.read(args.wide(wide::DUE).wrapping_add(4 * first), 4)?;
        Ok((due != self.after.due(tile)).then(|| format!("{what}: the turn")))
    }

    /// At time 0, a tile in the middle of so many.
    fn middle_tile(&self) -> Difference {
        let first = 4 * self.many_tiles();
        let args = self.place(first, 4, None)?;
        self.launch(&args, first)?;
        // Buffers are not read where the run begins, and stay what they were.
        self.placed("a tile among 2^32 at time 0", &args, first, 4, 0)
    }

    /// At time 1 the tiles of the last phase have their turn, which so many tiles make a number of more than 32 bits.
    fn last_phase(&self) -> Difference {
        let tile = self.tiles - 1;
        let first = tile * self.many_tiles();
        let args = self.place(first, tile, Some(&self.before))?;
        self.launch(&args, 0)?;
        self.placed("the last phase of 2^32 tiles", &args, first, tile, self.buffers)
    }

    /// Turns at times with each bit from 32 to 39 alone, the upper bits that a step's number can have.
    fn late_turn(&self) -> Difference {
        for bit in 32..40 {
            // The turn ends where the word's upper half changes.
            let shift = (1 << bit) + (1 << 20) - 2 * self.tiles;
            let later = |due: [u8; 4]| u32::from_le_bytes(due).wrapping_add(shift as u32).to_le_bytes();
            self.write(&self.before)?;
            self.device.write(self.args.wide(wide::DUE), &later(self.before.due(0)))?;
            self.device.launch("make", &self.args.moved(wide::NUMBER, shift), 1, 0)?;
            let now = self.memory()?;
            let same = now.rows == self.after.rows
                && now.buffers == self.after.buffers
                && now.due(0) == later(self.after.due(0));
            if !same {
                return Ok(Some(format!("a turn after 2^{bit} steps")));
            }
        }
        Ok(None)
    }

    fn scheduled(&self) -> Difference {
        let record = self.args.wide(wide::SCHEDULE);
        // An address whose lower half is 0.
        self.device.memory_at(2 * FAR, &self.device.read(record, 80)?)?;
        self.device.write_wide(self.args.wide(wide::COUNTER), 0)?;
        let placed = self.args.with(wide::SCHEDULE, 2 * FAR);
        if let Some(difference) = self.all_tiles("a schedule at a multiple of 2^32", &placed)? {
            return Ok(Some(difference));
        }
        let number = self.device.read_wide(record)?;
        self.device.write_wide(record, number + (1 << 39))?;
        let args = late(self.device, Self::far_step(self.args))?;
        self.all_tiles("2^32 scheduled steps", &args)
    }
}
