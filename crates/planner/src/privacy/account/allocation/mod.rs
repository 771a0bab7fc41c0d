//! Balls in bins for every strategy `C ≥ 0`: a deterministic upper bound on the privacy loss.
//!
//! Every unit falls into one of b bins and takes part whenever its bin's turn comes. For `C ≥ 0` the pair
//! `P = (1/b) Σ_j N(m_j, σ²)`, `Q = N(0, σ²)` with `m_j = Σ_i C e_{j+ib}` dominates the run, and only `K_jl = ⟨m_j, m_l⟩` matters (`gram.rs`).
//! Kahane's inequality allows to replace K by any covariance that is nowhere smaller, and joint convexity to keep some of the bins: a kernel
//! (`kernel.rs`) whose likelihood ratio a backward programme bounds (`programme.rs`). Which kernel is a matter of taste (`choose.rs`): any
//! that passes the entrywise comparison gives a true claim.

mod choose;
pub(crate) mod gram;
mod grid;
mod hats;
mod kernel;
mod programme;
pub(crate) mod search;
#[cfg(test)]
mod tests;
mod tilt;
mod turn;

pub use kernel::{Chain, Kernel};
