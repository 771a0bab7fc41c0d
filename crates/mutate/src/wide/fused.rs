//! Wide launches of the kernels that add noise to gradients.

use super::Difference;
use super::device::{Args, Device, FAR, TILE_BYTES, late, many_segments, narrow, wide};
use corrnoise::Element;
use corrnoise::backend::{Backend, Replay};
use corrnoise::cuda::{Cuda, DeviceGradient};
use corrnoise::{Plan, RunKey, Shard};
use corrnoise_cuda_suite::cases::{self, Lowered};

/// The number of tiles of a launch: one block has as many.
const TILES: u64 = 4;
/// The number of slots that a ring has in wide launches, none of whose bits in the lower half is that of another number there.
const SLOTS: u32 = 65_546;

/// A launch with its results.
struct Launch<'d> {
    device: &'d Device,
    kernel: String,
    args: Args,
    gradient: u64,
    before: Vec<u8>,
    after: Vec<u8>,
    /// The slots of the state after the launch.
    slots: Vec<Vec<u8>>,
    adds: bool,
}

pub(super) fn differ<E: Element>(device: &Device, module: &str) -> Difference {
    let wrong = |error: corrnoise::Error| error.to_string();
    let (plan, options) = cases::plan(module, 4, 2, None).map_err(wrong)?;
    let adds = module.starts_with("add");
    let shard = Shard::whole(512 * TILES).map_err(wrong)?;
    let keys = [RunKey::from_bytes(std::array::from_fn(|i| (i * 37 + 11) as u8))];
    let new = || Cuda::with_options(&plan, &keys, &shard, &device.stream, options);
    let values: Vec<E> =
        (0..512 * TILES).map(|i| E::from_f32((i * 7919 % 10_007) as f32 * 1e-3 - 5.0)).collect();
    // SAFETY: numbers without padding.
    let before =
        unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(&values[..])) }.to_vec();
    let gradient = device.memory(&before)?;
    // SAFETY: the memory is as long, and outlives the launches.
    let list = || unsafe { DeviceGradient::from_raw(gradient, 512 * TILES, E::DTYPE) };
    let steps: Result<Vec<_>, _> = (0..2).map(|t| Lowered::of(&plan, t)).collect();
    let steps = steps.map_err(wrong)?;
    let kernel = format!("noise_{}", E::DTYPE.name());

    let mut cuda = new().map_err(wrong)?;
    // A row that is added lies in a slot other than the first.
    for step in &steps[..1 + usize::from(adds)] {
        device.write(gradient, &before)?;
        cuda.step(&step.step(&plan), &[list()]).map_err(wrong)?;
    }
    let launch = Launch::after(device, &kernel, gradient, &before, adds)?;
    if let Some(difference) = launch.by_value(module)? {
        return Ok(Some(difference));
    }
    drop(cuda);

    let mut cuda = new().map_err(wrong)?;
    steps.iter().try_for_each(|step| schedule(&mut cuda, step, &plan)).map_err(wrong)?;
    cuda.start().map_err(wrong)?;
    device.write(gradient, &before)?;
    cuda.enqueue(&[list()]).map_err(wrong)?;
    Launch::after(device, &kernel, gradient, &before, adds)?.scheduled(module)
}

fn schedule(cuda: &mut Cuda, step: &Lowered, plan: &Plan) -> corrnoise::Result<()> {
    cuda.schedule(&step.step(plan))
}

impl<'d> Launch<'d> {
    fn after(
        device: &'d Device,
        kernel: &str,
        gradient: u64,
        before: &[u8],
        adds: bool,
    ) -> Result<Launch<'d>, String> {
        let args = device.launched(kernel)?;
        let after = device.read(gradient, before.len() as u64)?;
        let len = TILES * TILE_BYTES;
        let slot = |slot: u64| device.read(args.wide(wide::STATE) + slot * len, len);
        let slots = (0..u64::from(args.narrow(narrow::NUM_SLOTS))).map(slot).collect::<Result<_, _>>()?;
        Ok(Launch {
            device,
            kernel: kernel.into(),
            args,
            gradient,
            before: before.to_vec(),
            after,
            slots,
            adds,
        })
    }

    /// Launches with other arguments and compares the gradient.
    fn again(&self, what: &str, args: &Args, block: u32) -> Difference {
        self.device.write(self.gradient, &self.before)?;
        self.device.launch(&self.kernel, args, block + 1, block)?;
        let same = self.device.read(self.gradient, self.before.len() as u64)? == self.after;
        Ok((!same).then(|| format!("{what}: the gradient")))
    }

    fn by_value(&self, module: &str) -> Difference {
        let args = self.args;
        let segments = args.wide(wide::SEGMENTS);
        self.device.write_wide(segments + 16, 1 << 32)?;
        let long = self.again("a segment of 2^32 coordinates", &args, 0)?;
        self.device.write_wide(segments + 16, 512 * TILES)?;
        if long.is_some() {
            return Ok(long);
        }
        let many = many_segments(self.device, args, TILES, self.before.len() as u64 / (512 * TILES))?;
        if let Some(difference) = self.again("2^16 segments", &many, 0)? {
            return Ok(Some(difference));
        }
        if let Some(difference) = self.many_tiles()? {
            return Ok(Some(difference));
        }
        if self.adds {
            let head = 65_536 + args.narrow(narrow::HEAD);
            let moved = args
                .with_narrow(narrow::HEAD, head)
                .moved(wide::STATE, ((TILES * TILE_BYTES) << 16).wrapping_neg());
            return self.again("2^16 rows", &moved, 0);
        }
        if module.starts_with("ring") { self.many_slots() } else { Ok(None) }
    }

    /// Tiles from 2³² on, in the last block of the grid. Every slot lies as far from the one before it as that many tiles take.
    fn many_tiles(&self) -> Difference {
        let (first, len) = (1_u64 << 32, TILES * TILE_BYTES);
        let stride = (first + TILES) * TILE_BYTES;
        for (i, slot) in (0..).zip(&self.slots) {
            let content = if self.adds { slot.clone() } else { vec![0; slot.len()] };
            self.device.memory_at(FAR + i * stride, &content)?;
        }
        let segments = self.args.wide(wide::SEGMENTS);
        self.device.write_wide(segments + 24, first)?;
        let args = self.args.with(wide::NUM_TILES, first + TILES).with(wide::STATE, FAR - first * TILE_BYTES);
        let difference = self.again("2^32 tiles", &args, (first / TILES) as u32)?;
        self.device.write_wide(segments + 24, 0)?;
        for (i, slot) in (0..).zip(&self.slots) {
            if difference.is_none() && self.device.read(FAR + i * stride, len)? != *slot {
                return Ok(Some(format!("2^32 tiles: slot {i}")));
            }
        }
        Ok(difference)
    }

    /// A ring of more than 2¹⁶ slots: once with nothing before the row, once with two past outputs, which are 0, around the end of its memory.
    fn many_slots(&self) -> Difference {
        let len = TILES * TILE_BYTES;
        let zeros = vec![0; 2 * len as usize];
        let youngest = FAR + (1 << 50);
        self.device.memory_at(youngest, &zeros)?;
        let args = self.args.with_narrow(narrow::NUM_SLOTS, 65_536).with_narrow(narrow::HEAD, 0);
        let args = args.with(wide::STATE, youngest - 65_535 * len);
        if let Some(difference) = self.again("2^16 slots", &args, 0)?.or(self.row_at("2^16 slots", youngest)?)
        {
            return Ok(Some(difference));
        }
        // The row is written to the slot before those of its past outputs, of which the older one is in the first slot.
        self.device.write(youngest, &zeros)?;
        let state = youngest - u64::from(SLOTS - 2) * len;
        self.device.memory_at(state, &zeros[..len as usize])?;
        let coefs = self.device.memory(&[0.5_f32, 0.25].map(f32::to_le_bytes).concat())?;
        let args = args.with_narrow(narrow::NUM_SLOTS, SLOTS).with_narrow(narrow::HEAD, SLOTS - 1);
        let args = args.with(wide::STATE, state).with_narrow(narrow::COUNT, 2);
        let args = args.with(wide::LIST, coefs).with_narrow(narrow::FIRST, 0);
        Ok(self.again("2^16 slots around", &args, 0)?.or(self.row_at("2^16 slots around", youngest)?))
    }

    /// Whether the row that the launch wrote stands at an address.
    fn row_at(&self, what: &str, address: u64) -> Difference {
        let row = self.device.read(address, TILES * TILE_BYTES)?;
        let is_written = row.iter().any(|byte| *byte != 0) && self.slots.contains(&row);
        Ok((!is_written).then(|| format!("{what}: the row")))
    }

    fn scheduled(&self, module: &str) -> Difference {
        let mut args = late(self.device, self.args)?;
        if self.adds || module.starts_with("ring") {
            // The first record's slot.
            let head = self.args.wide(wide::SCHEDULE) + 68;
            let bytes = self.device.read(head, 4)?;
            let old = u32::from_le_bytes(bytes.try_into().unwrap_or_default());
            let new = old + 65_536;
            self.device.write(head, &new.to_le_bytes())?;
            let len = TILES * TILE_BYTES;
            // A ring's row goes to the slot before that.
            if !self.adds {
                args = args.with_narrow(narrow::NUM_SLOTS, SLOTS + 65_536);
                self.device.zero(args.wide(wide::STATE), 2 * len)?;
            }
            let first = if self.adds { old } else { old.wrapping_sub(1) % 2 };
            let now = if self.adds { new } else { new - 1 };
            args = args.moved(wide::STATE, (u64::from(now - first) * len).wrapping_neg());
        }
        self.again("2^32 scheduled steps", &args, 0)
    }
}
