//! The options of `verify`.

use clap::Args;
use std::path::PathBuf;

/// Checks that this build makes the noise it should, on this machine
///
/// Known answers, moments, tails and distribution of the normals, covariance of every form against C⁻¹C⁻ᵀ, scalar against SIMD, one
/// thread against many, shards, resuming, CUDA against CPU; of a plan, that its claim is the one its numbers have. One line per check; what could not be checked is said to be skipped. The
/// samples are drawn with a fixed key, so that a run that passed passes again.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  corrnoise verify --quick
  corrnoise verify plan.json")]
pub(crate) struct VerifyArgs {
    /// A plan to check too
    #[arg(value_name = "PLAN")]
    pub plan: Option<PathBuf>,
    /// A tenth of the samples
    #[arg(long)]
    pub quick: bool,
}
