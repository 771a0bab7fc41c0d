//! A device of the stand-in with a module, its memory by address, and the arguments of its launches.

use corrnoise::cuda::cudarc::driver::{
    CudaModule, CudaStream, DeviceRepr, DriverError, LaunchConfig, PushKernelArg, result,
};
use corrnoise::cuda::cudarc::nvrtc::Ptx;
use cuda::control;
use std::sync::Arc;

/// Bytes of a tile of f32.
pub(super) const TILE_BYTES: u64 = 4 * 512;

/// The arguments of a kernel, as `Args` of kernels/launch.cuh.
#[derive(Clone, Copy)]
pub(super) struct Args([u32; 76]);

// SAFETY: plain numbers in C layout.
unsafe impl DeviceRepr for Args {}

/// Where `Args` has its numbers of 64 bits.
pub(super) mod wide {
    pub const SEGMENTS: usize = 0;
    pub const STATE: usize = 8;
    pub const LIST: usize = 16;
    pub const SCHEDULE: usize = 32;
    pub const COUNTER: usize = 40;
    pub const NUM_SCHEDULED: usize = 48;
    pub const NUM_TILES: usize = 64;
    pub const NUMBER: usize = 72;
    pub const DUE: usize = 272;
    pub const BASE: usize = 280;
    pub const ROWS: usize = 288;
}

/// Where `Args` has its numbers of 32 bits.
pub(super) mod narrow {
    pub const HEAD: usize = 140;
    pub const FIRST: usize = 144;
    pub const COUNT: usize = 148;
    pub const NUM_SEGMENTS: usize = 152;
    pub const NUM_SLOTS: usize = 160;
}

impl Args {
    pub(super) fn narrow(&self, at: usize) -> u32 {
        self.0[at / 4]
    }

    pub(super) fn wide(&self, at: usize) -> u64 {
        u64::from(self.0[at / 4]) | u64::from(self.0[at / 4 + 1]) << 32
    }

    pub(super) fn with(mut self, at: usize, number: u64) -> Args {
        (self.0[at / 4], self.0[at / 4 + 1]) = (number as u32, (number >> 32) as u32);
        self
    }

    pub(super) fn with_narrow(mut self, at: usize, number: u32) -> Args {
        self.0[at / 4] = number;
        self
    }

    /// The same arguments with a wide number moved.
    pub(super) fn moved(self, at: usize, by: u64) -> Args {
        self.with(at, self.wide(at).wrapping_add(by))
    }
}

/// A device, the mutated module on it, and a stream.
pub(super) struct Device {
    pub(super) index: usize,
    pub(super) stream: Arc<CudaStream>,
    module: Arc<CudaModule>,
}

fn failed(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Device {
    pub(super) fn new(index: usize, text: &str) -> Result<Device, String> {
        let stream = corrnoise::cuda::stream(index).map_err(failed)?;
        let module = stream.context().load_module(Ptx::from_src(text)).map_err(failed)?;
        control::watch_launches(index, true);
        Ok(Device { index, stream, module })
    }

    /// The arguments of a kernel's last launch.
    pub(super) fn launched(&self, kernel: &str) -> Result<Args, String> {
        let mut bytes = [0; 304];
        if !control::launched(self.index, kernel, &mut bytes) {
            return Err(format!("{kernel} was not launched"));
        }
        let words = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
        Ok(Args(words.collect::<Vec<_>>().try_into().map_err(|_| "arguments of another length")?))
    }

    /// Launches the mutated module's kernel, of whose blocks the first ones are left out, and waits.
    pub(super) fn launch(&self, kernel: &str, args: &Args, blocks: u32, first: u32) -> Result<(), String> {
        let function = self.module.load_function(kernel).map_err(failed)?;
        let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (128, 1, 1), shared_mem_bytes: 0 };
        let mut launch = self.stream.launch_builder(&function);
        launch.arg(args);
        control::first_block(self.index, u64::from(first));
        // SAFETY: the stand-in checks every address.
        let launched = unsafe { launch.launch(config) }.map(|_| ());
        let ended = launched.and_then(|()| self.stream.synchronize());
        control::first_block(self.index, 0);
        ended.map_err(failed)
    }

    pub(super) fn read(&self, address: u64, len: u64) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; len as usize];
        // SAFETY: the stand-in checks the range.
        unsafe { result::memcpy_dtoh_sync(&mut bytes, address) }.map_err(failed)?;
        Ok(bytes)
    }

    pub(super) fn read_wide(&self, address: u64) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.read(address, 8)?.try_into().unwrap_or_default()))
    }

    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), String> {
        // SAFETY: the stand-in checks the range.
        unsafe { result::memcpy_htod_sync(address, bytes) }.map_err(failed)
    }

    pub(super) fn write_wide(&self, address: u64, number: u64) -> Result<(), String> {
        self.write(address, &number.to_le_bytes())
    }

    pub(super) fn zero(&self, address: u64, len: u64) -> Result<(), String> {
        self.write(address, &vec![0; len as usize])
    }

    /// New memory with this content.
    pub(super) fn memory(&self, bytes: &[u8]) -> Result<u64, String> {
        self.stream.context().bind_to_thread().map_err(failed)?;
        // SAFETY: the memory is written before it is used.
        let address: Result<u64, DriverError> = unsafe { result::malloc_sync(bytes.len()) };
        let address = address.map_err(failed)?;
        self.write(address, bytes)?;
        Ok(address)
    }

    /// New memory with this content at an address that nothing else has.
    pub(super) fn memory_at(&self, address: u64, bytes: &[u8]) -> Result<(), String> {
        control::place_next(self.index, address);
        self.memory(bytes).map(|_| ())
    }
}

/// Where memory can be placed.
pub(super) const FAR: u64 = 1 << 57;

/// The number of segments of [`many_segments`].
const MANY: u32 = 65_537;

/// The arguments with a table of more than 2¹⁶ segments: one for each of the `tiles` tiles of the launch's only segment, and others behind tile 2³².
pub(super) fn many_segments(device: &Device, args: Args, tiles: u64, element: u64) -> Result<Args, String> {
    let gradient = device.read_wide(args.wide(wide::SEGMENTS))?;
    let mut table = Vec::new();
    for i in 0..u64::from(MANY) {
        let is_one = i < tiles;
        let gradient = if is_one { gradient.wrapping_add(512 * element * i) } else { 0 };
        let first_tile = if is_one { i } else { 1 << 32 };
        for number in [gradient, 512 * i, 512, first_tile] {
            table.extend(number.to_le_bytes());
        }
    }
    let table = device.memory(&table)?;
    Ok(args.with(wide::SEGMENTS, table).with_narrow(narrow::NUM_SEGMENTS, MANY))
}

/// A schedule whose counter and length have more than 32 bits; that of the length are 0.
pub(super) fn late(device: &Device, args: Args) -> Result<Args, String> {
    device.write_wide(args.wide(wide::COUNTER), 1 << 32)?;
    let before = (80_u64 << 32).wrapping_neg();
    Ok(args.moved(wide::SCHEDULE, before).with(wide::NUM_SCHEDULED, 1 << 33))
}
