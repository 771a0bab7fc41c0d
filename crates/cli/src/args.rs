//! The command line itself: every flag, its help and its examples. `docs/cli.md` is made of this file.

use crate::parse::{self, Backend, Picture, SamplingSpec, StrategyChoice, StrategySpec};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use corrnoise::Rounds;
use corrnoise::planner::{Adjacency, Participation, Workload, optimize::Objective};
use std::ops::Range;
use std::path::PathBuf;

/// Correlated noise for differentially private training: plan a run, inspect strategies, account for privacy, generate noise, measure, verify.
#[derive(Parser, Debug)]
#[command(name = "corrnoise", version, about, propagate_version = true, disable_help_subcommand = true)]
#[command(
    after_help = "Exit codes: 0 as asked, 1 a check failed, 2 bad input (one line on stderr, no file left half-written)."
)]
pub struct Cli {
    /// Print JSON instead of text, with the keys that docs/cli.md lists
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Plan(PlanArgs),
    Inspect(InspectArgs),
    Account(AccountArgs),
    Generate(GenerateArgs),
    Bench(BenchArgs),
    Verify(VerifyArgs),
    Completions(CompletionsArgs),
}

const STRATEGIES: &str = "\
Strategy: one of
  identity            independent noise on every gradient
  workload            independent noise on every output (C = A)
  toeplitz            the square root of the workload, the best Toeplitz C for one participation and max loss
  toeplitz-damped:NU  square root of the prefix sums, coefficient t times (1 - NU)^t
  toeplitz-opt        the best Toeplitz C
  banded:B            the square root of the workload, cut to B diagonals
  banded-opt:B        the best banded Toeplitz C
  banded-full:B       the best banded C with free rows
  blt:D               the best buffered linear Toeplitz C with D buffers
  dense               the best lower-triangular C
  tree                binary tree, read by least squares over the nodes complete so far (streaming)
  tree-full           binary tree, least squares over the whole tree
  bisr:B              the inverse square root of the workload, cut to B diagonals
  bandinv-opt:B       the best Toeplitz C whose inverse has B diagonals";

/// Where training happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SettingName {
    Centralized,
    Federated,
    Streaming,
}

/// Whose privacy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Unit {
    Example,
    User,
}

/// A plan: which mechanism, how much noise, which batches, for the numbers that a trainer knows
///
/// Every class of mechanism is optimised, calibrated to one (ε, δ) and compared by the noise in what is released, memory and work per
/// step. The plan holds what training needs, and a certificate: the privacy claim, how it is known, and what it assumes. The claim is
/// computed again from the plan's own numbers before the file is written; an older file of that name is replaced.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("length").args(["steps", "epochs"]).required(true))]
#[command(group = ArgGroup::new("budget").args(["epsilon", "mu", "noise_multiplier"]).required(true))]
#[command(after_help = "Examples:
  corrnoise plan --dataset-size 50000 --batch-size 500 --epochs 10 --epsilon 2 --delta 1e-6 --out plan.json
  corrnoise plan --setting federated --min-sep 400 --max-participations 5 --steps 2000 --epsilon 8 --delta 1e-8
  corrnoise plan --participation minsep:400,5 --steps 2000 --mu 1 --strategy blt:4 --out plan.json
  corrnoise plan --dataset-size 50000 --batch-size 500 --steps 1000 --noise-multiplier 1.1 --strategy identity --sampling poisson")]
pub(crate) struct PlanArgs {
    /// Number of steps
    #[arg(long, short = 'n', value_name = "N", value_parser = parse::count, allow_negative_numbers = true)]
    pub steps: Option<u64>,
    /// Passes over the dataset, for ⌈E · dataset / batch⌉ steps; 2.5 is allowed
    #[arg(long, value_name = "E", value_parser = parse::number, allow_negative_numbers = true, requires_all = ["dataset_size", "batch_size"])]
    pub epochs: Option<f64>,
    /// Units in the dataset
    #[arg(long, value_name = "COUNT", value_parser = parse::count, allow_negative_numbers = true, requires = "batch_size")]
    pub dataset_size: Option<u64>,
    /// Units in a batch, exactly or on average
    #[arg(long, value_name = "COUNT", value_parser = parse::count, allow_negative_numbers = true, requires = "dataset_size")]
    pub batch_size: Option<u64>,
    /// Who takes part when, guaranteed by your own data pipeline: single, cyclic:B,K (one fixed step of each of K epochs of B steps, from any epoch on),
    /// minsep:B,K (at most K times, at least B steps apart), full (every step)
    #[arg(long, short = 'p', value_name = "P", value_parser = parse::participation, conflicts_with_all = ["setting", "sampling"])]
    pub participation: Option<Participation>,
    /// Where training happens: centralized (one dataset, whose batches the engine draws), federated (clients come by themselves, the
    /// engine admits them; see --min-sep), streaming (everyone takes part at most once). Default: centralized if a dataset is given,
    /// else streaming
    #[arg(long, value_name = "SETTING")]
    pub setting: Option<SettingName>,
    /// Federated: steps between two participations of one client, at least
    #[arg(long, value_name = "B", value_parser = parse::count, allow_negative_numbers = true, requires_all = ["setting", "max_participations"])]
    pub min_sep: Option<u64>,
    /// Federated: participations of one client, at most
    #[arg(long, value_name = "K", value_parser = parse::count, allow_negative_numbers = true, requires_all = ["setting", "min_sep"])]
    pub max_participations: Option<u64>,
    /// Privacy budget ε, with --delta
    #[arg(long, value_name = "EPSILON", value_parser = parse::number, allow_negative_numbers = true, requires = "delta")]
    pub epsilon: Option<f64>,
    /// δ of the claim; 1e-6 where the budget is given by --mu or --noise-multiplier
    #[arg(long, value_name = "DELTA", value_parser = parse::number, allow_negative_numbers = true)]
    pub delta: Option<f64>,
    /// Privacy budget as μ of Gaussian differential privacy, of the whole run and without amplification; where mechanisms are compared,
    /// the ε that μ has at δ, to which all of them are calibrated
    #[arg(long, value_name = "MU", value_parser = parse::number, allow_negative_numbers = true)]
    pub mu: Option<f64>,
    /// Noise as standard deviation over clip norm times sensitivity, which is 1/μ and means the same; for one strategy under Poisson
    /// sampling it is that of one round, as in DP-SGD
    #[arg(long, value_name = "SIGMA", value_parser = parse::number, allow_negative_numbers = true)]
    pub noise_multiplier: Option<f64>,
    /// Largest norm of what one unit contributes to a step
    #[arg(long, value_name = "NORM", default_value = "1", value_parser = parse::number, allow_negative_numbers = true)]
    pub clip_norm: f64,
    /// Neighbouring datasets: zero-out (one unit's gradients become zero), replace-one (twice as far)
    #[arg(long, value_name = "A", default_value = "zero-out", value_parser = parse::adjacency)]
    pub adjacency: Adjacency,
    /// Whose privacy: what is clipped, and whose participations count
    #[arg(long, value_name = "UNIT", default_value = "example")]
    pub unit: Unit,
    /// What is released: prefix (plain SGD), momentum:BETA, momentum:BETA,DECAY (with weight decay), nesterov:BETA
    #[arg(long, short = 'w', value_name = "W", default_value = "prefix", value_parser = parse::workload)]
    pub workload: Workload,
    /// Which error counts: max (the worst released value) or rms
    #[arg(long, value_name = "ERROR", default_value = "max", value_parser = parse::objective)]
    pub objective: Objective,
    /// Memory for noise, in bytes per parameter, at most: of what the CPU engine holds, rows made ahead included
    #[arg(long, value_name = "BYTES", value_parser = parse::size, allow_negative_numbers = true)]
    pub max_state_bytes: Option<u64>,
    /// The mechanism: auto (compares all), or one of those that `inspect --help` lists
    #[arg(long, short = 's', value_name = "S", default_value = "auto", value_parser = parse::strategy_choice)]
    pub strategy: StrategyChoice,
    /// How batches are drawn, for one strategy and one dataset: poisson, block-poisson:B (B blocks take turns), cyclic (shuffled once; the
    /// default), balls-in-bins, or none (your own pipeline passes over the dataset, always in the same order)
    #[arg(long, value_name = "SAMPLING", value_parser = parse::sampling)]
    pub sampling: Option<SamplingSpec>,
    /// ChaCha rounds: 8, 12 or 20
    #[arg(long, value_name = "ROUNDS", default_value = "12", value_parser = parse::rounds)]
    pub rounds: Rounds,
    /// The plan to write
    #[arg(long, short = 'o', value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// A strategy's numbers and pictures: sensitivity, errors, loss, state, coefficients
///
/// Coefficients are the first columns of C and of C⁻¹, up to 16 entries: for a Toeplitz strategy the whole matrix follows from them. A tree
/// has a row of C, and a column of what stands for C⁻¹, per node. Sensitivity is that of clip norm 1; errors are those of noise of
/// standard deviation 1; loss is their product.
///
/// Of a plan: the same for the coefficients that run, as they are rounded, under the participation, workload and adjacency of its
/// certificate, or those given beside it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  corrnoise inspect --strategy toeplitz --steps 1024
  corrnoise inspect --strategy banded-opt:32 --steps 2000 --participation minsep:400,5
  corrnoise inspect --strategy blt:4 --steps 2000 --workload momentum:0.9 --plot blt.svg
  corrnoise inspect plan.json --plot plan.svg")]
pub(crate) struct InspectArgs {
    /// A plan, instead of a strategy and a number of steps
    #[arg(value_name = "PLAN", conflicts_with_all = ["strategy", "steps", "column_normalize"])]
    pub plan: Option<PathBuf>,
    #[arg(long, short = 's', value_name = "S", help = STRATEGIES, value_parser = parse::strategy, required_unless_present = "plan")]
    pub strategy: Option<StrategySpec>,
    /// Number of steps
    #[arg(long, short = 'n', value_name = "N", value_parser = parse::count, allow_negative_numbers = true, required_unless_present = "plan")]
    pub steps: Option<u64>,
    /// Who takes part when: single (the default), cyclic:B,K (one fixed step of each of K epochs of B steps, from any epoch on), minsep:B,K (at most K
    /// times, at least B steps apart), full (every step)
    #[arg(long, short = 'p', value_name = "P", value_parser = parse::participation)]
    pub participation: Option<Participation>,
    /// What is released: prefix (plain SGD; the default), momentum:BETA, momentum:BETA,DECAY (with weight decay), nesterov:BETA
    #[arg(long, short = 'w', value_name = "W", value_parser = parse::workload)]
    pub workload: Option<Workload>,
    /// Neighbouring datasets: zero-out (one unit's gradients become zero; the default), replace-one (twice as far)
    #[arg(long, value_name = "A", value_parser = parse::adjacency)]
    pub adjacency: Option<Adjacency>,
    /// Divide every column of C by its norm
    #[arg(long)]
    pub column_normalize: bool,
    /// Which loss the optimised strategies make small: max or rms
    #[arg(long, value_name = "LOSS", default_value = "max", value_parser = parse::objective)]
    pub objective: Objective,
    /// Draw C, C⁻¹, the coefficients and the error of every step: FILE.svg or FILE.png
    #[arg(long, value_name = "FILE", value_parser = parse::picture)]
    pub plot: Option<Picture>,
}

/// Privacy: from any of μ, σ, ρ, (ε, δ) to the others
///
/// Without --sampling-prob: the Gaussian mechanism, exactly, for one release of the whole matrix CG + Z with noise multiplier σ per unit
/// of sensitivity. With it: N steps of the Poisson-subsampled Gaussian mechanism with independent noise, by privacy loss
/// distributions, rounded so that ε (or δ) is an upper bound, under adding or removing one unit.
///
/// Of a plan: its claim, computed again from its coefficients, its standard deviation and its sampling scheme. Exit code 1 if it says
/// something else.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("what").args(["mu", "noise_multiplier", "rho"]))]
#[command(after_help = "Examples:
  corrnoise account --epsilon 8 --delta 1e-6
  corrnoise account --noise-multiplier 1.3 --delta 1e-6
  corrnoise account --sampling-prob 0.01 --steps 1000 --noise-multiplier 0.8 --delta 1e-6
  corrnoise account --sampling-prob 0.01 --steps 1000 --epsilon 2 --delta 1e-6    finds the noise multiplier
  corrnoise account plan.json")]
pub(crate) struct AccountArgs {
    /// A plan whose claim to check, instead of numbers
    #[arg(value_name = "PLAN", conflicts_with_all = ["mu", "noise_multiplier", "rho", "epsilon", "delta", "sampling_prob", "steps"])]
    pub plan: Option<PathBuf>,
    /// μ of Gaussian differential privacy
    #[arg(long, value_name = "MU", value_parser = parse::number, allow_negative_numbers = true)]
    pub mu: Option<f64>,
    /// σ: standard deviation of the noise over the sensitivity
    #[arg(long, value_name = "SIGMA", value_parser = parse::number, allow_negative_numbers = true)]
    pub noise_multiplier: Option<f64>,
    /// ρ of zero-concentrated differential privacy
    #[arg(long, value_name = "RHO", value_parser = parse::number, allow_negative_numbers = true)]
    pub rho: Option<f64>,
    /// ε: with --delta alone it asks for μ, σ and ρ; beside one of those it asks for δ
    #[arg(long, value_name = "EPSILON", value_parser = parse::number, allow_negative_numbers = true)]
    pub epsilon: Option<f64>,
    /// δ: beside μ, σ or ρ it asks for ε
    #[arg(long, value_name = "DELTA", value_parser = parse::number, allow_negative_numbers = true)]
    pub delta: Option<f64>,
    /// The probability that a unit takes part in a step (Poisson subsampling)
    #[arg(long, value_name = "P", value_parser = parse::number, allow_negative_numbers = true, requires = "steps")]
    pub sampling_prob: Option<f64>,
    /// Steps, with --sampling-prob
    #[arg(long, value_name = "N", value_parser = parse::count, allow_negative_numbers = true, requires = "sampling_prob")]
    pub steps: Option<u64>,
}

/// Rows of noise as a .npy file of f32, one row per step
///
/// What a plan adds to a gradient, C⁻¹Z times its standard deviation, for some steps and coordinates; the same bytes on every backend
/// and for every division of the coordinates. Past steps are run through where the form has a state, and skipped where it has none.
/// Memory is a few rows, whatever the number of steps. Noise is as secret as its key.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("key").args(["key_hex", "key_file"]))]
#[command(after_help = "Examples:
  corrnoise generate --plan plan.json --steps 0..10 --coords 0..1000000 --key-file noise.key --out noise.npy
  corrnoise generate --plan plan.json --steps 0..10 --coords 0..1000 --key-file noise.key --iid --out z.npy")]
pub(crate) struct GenerateArgs {
    /// The plan
    #[arg(long, value_name = "FILE")]
    pub plan: PathBuf,
    /// The key as 64 hexadecimal digits. Other users of the machine can see a command line: for real runs use --key-file. Without a
    /// key a fresh one is drawn, used and forgotten
    #[arg(long, value_name = "HEX")]
    pub key_hex: Option<String>,
    /// A file that holds the key: 32 raw bytes or 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Name of the run: one key makes different noise for every name
    #[arg(long, value_name = "NAME", default_value = "")]
    pub run_id: String,
    /// Steps, the last one excluded
    #[arg(long, value_name = "A..B", value_parser = parse::range, allow_hyphen_values = true)]
    pub steps: Range<u64>,
    /// Coordinates of the model, the last one excluded
    #[arg(long, value_name = "LO..HI", value_parser = parse::range, allow_hyphen_values = true)]
    pub coords: Range<u64>,
    /// Parameters of the whole model, to check the coordinates against
    #[arg(long, value_name = "M", value_parser = parse::count, allow_negative_numbers = true)]
    pub dim: Option<u64>,
    /// Rows of Z, independent and of standard deviation 1, instead of C⁻¹Z
    #[arg(long)]
    pub iid: bool,
    /// What makes the noise: cpu (all cores, SIMD), scalar (plain Rust on one thread), cuda. The bytes are the same
    #[arg(long, value_name = "BACKEND", default_value = "cpu", value_parser = parse::backend)]
    pub backend: Backend,
    /// The file to write, for its owner alone (mode 0600): noise is as secret as the key
    #[arg(long, short = 'o', value_name = "FILE")]
    pub out: PathBuf,
}

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    Cpu,
    Cuda,
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
    /// A known model
    #[arg(long, value_name = "NAME")]
    pub preset: Option<Preset>,
    /// Examples per step
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
    /// Where to measure
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: Device,
    /// Fewer parameters and fewer timed steps: seconds, and rougher numbers
    #[arg(long)]
    pub quick: bool,
    /// Draw the share of a step that every form takes: FILE.svg or FILE.png
    #[arg(long, value_name = "FILE", value_parser = parse::picture)]
    pub plot: Option<Picture>,
}

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

/// A completion script for a shell
#[derive(Args, Debug)]
#[command(after_help = "Example:
  corrnoise completions bash > /etc/bash_completion.d/corrnoise")]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}
