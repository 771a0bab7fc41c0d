//! The options of `bench`.

use crate::parse::{self, Device, Picture};
use clap::{Args, ValueEnum};

/// Models whose step costs are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    Resnet50,
    VitB,
    Gpt2,
    #[value(name = "llama-7b")]
    Llama7b,
    Dlrm,
}

/// What noise costs: throughput of every form, and its share of a training step
///
/// Measures this machine: noise of every form, memory traffic of the same shape, a matrix multiply. Then the share of a step's time that
/// noise takes for a model of M parameters and B examples of S tokens, whose gradient costs 6·M·B·S operations: here by
/// measurement, on an A100 and an H100 from the kernels' budget (kernels/BUDGET.md) and the makers' peak rates; not measured there.
/// Last, the same by counting operations only, as the literature does.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  corrnoise bench
  corrnoise bench --preset llama-7b --batch 1024 --plot overhead.svg
  corrnoise bench --params 1e8 --seq 1 --batch 4096 --quick --json")]
pub(crate) struct BenchArgs {
    /// Parameters of the model
    #[arg(long, value_name = "M", value_parser = parse::count, allow_negative_numbers = true, conflicts_with = "preset")]
    pub params: Option<u64>,
    /// A model whose step costs are known
    #[arg(long, value_name = "NAME")]
    pub preset: Option<Preset>,
    /// Examples in a step
    #[arg(long, value_name = "B", default_value = "1000", value_parser = parse::count, allow_negative_numbers = true)]
    pub batch: u64,
    /// Tokens per example; the preset's own by default, else 1
    #[arg(long, value_name = "S", value_parser = parse::count, allow_negative_numbers = true)]
    pub seq: Option<u64>,
    /// Timed steps of every form; the median counts
    #[arg(long, value_name = "K", value_parser = parse::count, allow_negative_numbers = true)]
    pub steps: Option<u64>,
    /// Operations of a step with per-example clipping over those without: 1 to about 2, by method
    #[arg(long, value_name = "FACTOR", default_value = "1.0", value_parser = parse::number, allow_negative_numbers = true)]
    pub clipping_factor: f64,
    /// Share of a GPU's peak that training reaches, between 0 and 1
    #[arg(long, value_name = "SHARE", default_value = "0.45", value_parser = parse::number, allow_negative_numbers = true)]
    pub mfu: f64,
    /// Where to measure: cpu (all cores, SIMD), scalar (plain Rust on one thread), cuda or cuda:N (a GPU)
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = parse::device)]
    pub device: Device,
    /// Fewer parameters and fewer timed steps: seconds, and rougher numbers
    #[arg(long)]
    pub quick: bool,
    /// Draw the share of a step that every form takes: FILE.svg or FILE.png
    #[arg(long, value_name = "FILE", value_parser = parse::picture)]
    pub plot: Option<Picture>,
}
