//! What a mechanism costs otherwise: the error of what is released, how far from the least possible, and work and memory per step.

pub mod bounds;
pub mod cost;
pub mod loss;
pub mod traffic;
pub mod workload;

pub use cost::Cost;
pub use loss::{Errors, Loss};
pub use traffic::{Execution, Moved};
pub use workload::Workload;
