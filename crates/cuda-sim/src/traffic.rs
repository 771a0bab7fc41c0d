//! Counts of what kernels did to global memory.

/// Global memory accesses of kernels on one device since its counts were reset; one access is one thread's instruction.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of launches, those of graphs included.
    pub launches: u64,
    /// The number of PTX instructions executed, summed over threads; an instruction whose guard is false counts.
    pub instructions: u64,
    /// The number of `ld` accesses to global memory.
    pub loads: u64,
    /// The number of `st` accesses to global memory.
    pub stores: u64,
    /// The number of `atom` and `red` accesses, which count neither as loads nor as stores.
    pub atomics: u64,
    /// The number of bytes that `loads` moved.
    pub loaded_bytes: u64,
    /// The number of bytes that `stores` moved.
    pub stored_bytes: u64,
    /// The loads by width: entry `i` counts those of 2^i bytes.
    pub loads_by_width: [u64; 5],
    /// The stores by width: entry `i` counts those of 2^i bytes.
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
