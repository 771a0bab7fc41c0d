//! Helpers that the tests, benches and examples of several crates share: forms by name, gradients of every number type, a private training
//! task on real data, the normal distribution, an allocator that counts, the launch parameters of the kernels, and the memory traffic that a machine can do. This crate is never published.

pub mod allocations;
pub mod batch_size;
pub mod cases;
pub mod digits;
pub mod gradients;
pub mod launch;
pub mod normal;
pub mod turn;
pub use corrnoise_cli::traffic;
