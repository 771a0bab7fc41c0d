//! Balls in bins for every strategy `C ≥ 0`: a deterministic upper bound on the privacy loss.
//!
//! Every unit falls into one of b bins and takes part whenever its bin's turn comes. For `C ≥ 0` the pair
//! `P = (1/b) Σ_j N(m_j, σ²)`, `Q = N(0, σ²)` with `m_j = Σ_i C e_{j+ib}` dominates the run, and only `K_jl = ⟨m_j, m_l⟩` matters (`gram.rs`).
//! Kahane's inequality allows to replace K by any covariance that is nowhere smaller, and joint convexity to keep some of the bins: a kernel
//! (`kernel.rs`) whose likelihood ratio a backward programme bounds (`programme.rs`). Which kernel is a matter of taste (`choose.rs`): any
//! that passes the entrywise comparison gives a true claim.

mod choose;
pub(super) mod entries;
pub(crate) mod gram;
pub(super) mod grid;
mod guess;
mod hats;
mod kernel;
mod programme;
pub(crate) mod search;
#[cfg(test)]
mod tests;
mod tilt;
mod turn;

pub(crate) use gram::Bins;
pub use kernel::{Chain, Kernel};
pub(crate) use search::{Judged, about_stddev, least_epsilon, least_stddev};

use crate::error::{Error, Result};

/// Refuses a kernel that does not bound these bins.
pub(crate) fn check(kernel: &Kernel, bins: &Bins) -> Result<()> {
    kernel.check()?;
    let (kept, all) = (kernel.num_bins(), bins.num_bins());
    if kept > all {
        return Err(Error::parameter("number of kept bins", kept, format!("at most {all}, all bins")));
    }
    let dominates = if kernel.is_circle() {
        let bounds = bins.circle(kept);
        kernel.dominates(|i, l| bounds.at(i, l))
    } else {
        let bounds = bins.line(kept, choose::apart(all));
        kept * choose::apart(all) <= all && kernel.dominates(|i, l| bounds[i - l])
    };
    match dominates {
        true => Ok(()),
        false => Err(Error::parameter(
            "kernel",
            format!("one of {kept} bins with an entry below the bins' own"),
            "one that is nowhere below them",
        )),
    }
}

/// An upper bound on δ at an ε, of a kernel that was checked.
pub(crate) fn delta(kernel: &Kernel, stddev: f64, epsilon: f64, scale: f64) -> Result<Option<f64>> {
    search::delta(kernel, stddev, epsilon, scale)
}
