//! What the workspace's tests, benches and examples share. Not published.

pub mod cases;
pub mod digits;
pub mod gradients;
// The command line's: one bound for every bench.
#[path = "../crates/cli/src/bench/traffic.rs"]
pub mod traffic;
pub mod vectors;

/// The README's example is compiled with the doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
