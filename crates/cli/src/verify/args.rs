//! The options of `verify`.

use crate::parse::{self, Device};
use clap::Args;
use std::path::PathBuf;

/// Checks that this build makes the noise it should, on this machine
///
/// Known answers, moments, tails and distribution of the normals, covariance of every form against C⁻¹C⁻ᵀ, scalar against SIMD, one
/// thread against many, shards, resuming, CUDA against CPU; of a plan, that its claim is the one its numbers have. One line per check; what could not be checked is said to be skipped. The
/// samples are drawn with a fixed key, so that a run that passed passes again.
///
/// With --device cuda:0 a GPU is verified instead: every kernel (form, number of buffers, number type, rounds, rows made ahead and
/// prepared) bit for bit against the CPU engine, checkpoints that move between both, captured graphs, and the throughput of every form beside a plain copy and beside the prediction.
/// --report writes it all to one file to send, which names the GPU and its driver but no machine and no person. A check that fails is named, and the others go on.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  corrnoise verify --quick
  corrnoise verify plan.json
  corrnoise verify --device cuda:0 --report gpu.json")]
pub(crate) struct VerifyArgs {
    /// A plan to check too
    #[arg(value_name = "PLAN")]
    pub plan: Option<PathBuf>,
    /// A tenth of the samples
    #[arg(long)]
    pub quick: bool,
    /// Verify this GPU (cuda or cuda:N) instead of the CPU engine; exit code 2 if there is none
    #[arg(long, value_name = "DEVICE", value_parser = parse::device, conflicts_with = "plan")]
    pub device: Option<Device>,
    /// Write what the GPU did to a file, as JSON with the keys that docs/cli.md lists
    #[arg(long, value_name = "FILE", requires = "device")]
    pub report: Option<PathBuf>,
    /// Values that a check of a GPU's kernel compares; 1e7 by default, 1e6 with --quick
    #[arg(long, value_name = "N", value_parser = parse::count, allow_negative_numbers = true, requires = "device")]
    pub values: Option<u64>,
}
