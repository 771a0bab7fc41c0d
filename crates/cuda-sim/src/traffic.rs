//! What kernels did to global memory, as counts.

/// Global memory accesses of kernels on one device since its counts were reset; one access is one thread's instruction.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Launches, those of graphs included.
    pub launches: u64,
    /// PTX instructions executed, summed over threads; an instruction whose guard is false counts.
    pub instructions: u64,
    /// `ld` from global memory.
    pub loads: u64,
    /// `st` to global memory.
    pub stores: u64,
    /// `atom` and `red`, counted neither as loads nor as stores.
    pub atomics: u64,
    /// Bytes of `loads`.
    pub loaded_bytes: u64,
    /// Bytes of `stores`.
    pub stored_bytes: u64,
    /// `loads` by width: entry `i` counts those of 2^i bytes.
    pub loads_by_width: [u64; 5],
    /// `stores` by width: entry `i` counts those of 2^i bytes.
    pub stores_by_width: [u64; 5],
}

impl Traffic {
    /// How many loads were `bytes` wide: 1, 2, 4, 8 or 16, and 0 for any other width.
    pub fn loads_of(&self, bytes: usize) -> u64 {
        Self::of(&self.loads_by_width, bytes)
    }

    /// How many stores were `bytes` wide: 1, 2, 4, 8 or 16, and 0 for any other width.
    pub fn stores_of(&self, bytes: usize) -> u64 {
        Self::of(&self.stores_by_width, bytes)
    }

    fn of(histogram: &[u64; 5], bytes: usize) -> u64 {
        if bytes.is_power_of_two() { histogram.get(bytes.ilog2() as usize).copied().unwrap_or(0) } else { 0 }
    }

    pub(crate) fn add_loads(&mut self, count: u64, bytes: u32) {
        self.loads += count;
        self.loaded_bytes += count * u64::from(bytes);
        self.loads_by_width[bytes.ilog2() as usize] += count;
    }

    pub(crate) fn add_stores(&mut self, count: u64, bytes: u32) {
        self.stores += count;
        self.stored_bytes += count * u64::from(bytes);
        self.stores_by_width[bytes.ilog2() as usize] += count;
    }
}
