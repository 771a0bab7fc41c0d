//! What a mechanism costs in privacy: who takes part when, how far one unit can move the output, and the claim that follows.

pub mod account;
pub mod certificate;
pub mod claim;
pub mod participation;
pub mod precision;
pub mod sampling;
pub mod schedule;
pub mod sensitivity;
mod spent;
mod verify;
mod warning;

pub use account::allocation::{Chain, Kernel};
pub use account::confident::Wager;
pub use certificate::{Certificate, Utility, certificate};
pub use claim::{Allocated, Amplified, Claim, Claims, Confident, Method, PrivacyUnit, Reallocated, Terms};
pub use participation::{Participation, max_feasible_participations};
pub use sampling::{SamplingSpec, block_poisson};
pub use schedule::Schedule;
pub use sensitivity::{Adjacency, Exactness, Sensitivity};
pub use spent::spent;
pub use verify::{verified, verify};
pub use warning::large_delta;
