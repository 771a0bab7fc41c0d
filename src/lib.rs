//! What the workspace's tests, benches and examples share. Not published.

pub mod cases;
pub mod traffic;
pub mod vectors;
