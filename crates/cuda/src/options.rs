//! Options of the CUDA engine. `ahead/rule.rs` has the rule that chooses how many rows are made ahead.

/// Options of the CUDA engine, none of which changes the noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CudaOptions {
    /// The number of rows that are made at a time, that of the step at hand included: 1 makes none ahead, in the least memory. By default
    /// [`CudaOptions::rows_ahead_of`] decides.
    pub rows_ahead: Option<usize>,
    /// Lets [`corrnoise_core::Mechanism::prepare`] make the next row on a stream of its own, of the lowest priority, while the caller's stream computes
    /// gradients. Without it `prepare` does nothing. It pays where steps are short: a few thousand tokens or less per device. Independent
    /// noise is never prepared: adding a stored row moves more bytes than making it.
    pub prepare: bool,
    /// The most bytes per parameter that state and rows made ahead may take together. The rule then makes as many rows at a time as fit; a state that
    /// does not fit by itself, or with the rows that these options ask for, is refused. By default there is no limit.
    pub max_state_bytes: Option<u64>,
}
