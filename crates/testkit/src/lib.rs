//! Helpers that the tests, benches and examples of several crates share: forms by name, gradients of every number type, a private training
//! task on real data, the normal distribution, an allocator that counts, and the memory traffic that a machine can do. This crate is never published.

pub mod allocations;
pub mod batch_size;
pub mod cases;
pub mod digits;
pub mod gradients;
pub mod normal;
pub use corrnoise_cli::traffic;
