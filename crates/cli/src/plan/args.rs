//! The options of `plan`: every one is a field of the planner's request.

use crate::parse::{self, SamplingSpec, StrategyChoice};
use clap::{ArgGroup, Args};
use corrnoise::Rounds;
use corrnoise::planner::{
    Adjacency, Claims, Participation, PrivacyUnit, Request, SettingName, Workload, optimize::Objective,
};
use std::path::PathBuf;

/// A plan: which strategy, how much noise, which batches, for the numbers that a trainer knows
///
/// Every class of strategy is optimised, calibrated to one (ε, δ) and compared by the noise in what is released, memory and work per
/// step. The plan holds what training needs, and a certificate: the privacy claim, how it is known, and what it assumes. The claim is
/// computed again from the plan's own numbers before the file is written; an older file of that name is replaced.
///
/// Recommended is the least memory among those whose noise is within 2% of the least, at up to 32 rows of normals per step. With one dataset of at most 200
/// batches, a BLT of one buffer and the best banded inverse are made for balls in bins, too, which takes some seconds for each; with --sampling
/// balls-in-bins for up to 2,000 batches, and BLTs of two buffers, which takes a minute or a few.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("length").args(["steps", "epochs"]).required(true))]
#[command(group = ArgGroup::new("budget").args(["epsilon", "mu", "noise_multiplier"]).required(true))]
#[command(after_help = "Examples:
  corrnoise plan --dataset-size 50000 --batch-size 500 --epochs 10 --epsilon 2 --delta 1e-6 --out plan.json
  corrnoise plan --min-sep 400 --max-participations 5 --steps 2000 --epsilon 8 --delta 1e-8
  corrnoise plan --participation minsep:400,5 --steps 2000 --mu 1 --strategy blt:4 --out plan.json
  corrnoise plan --dataset-size 50000 --batch-size 500 --steps 1000 --noise-multiplier 1.1 --strategy identity --sampling poisson")]
pub(crate) struct PlanArgs {
    /// Number of training steps
    #[arg(long, short = 'n', value_name = "N", value_parser = parse::count, allow_negative_numbers = true)]
    pub steps: Option<u64>,
    /// Passes over the dataset, for E · ⌈dataset / batch⌉ steps; 2.5 is allowed
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
    /// engine admits them; see --min-sep), streaming (everyone takes part at most once). Default: federated if --min-sep is given,
    /// centralized if a dataset is given, else streaming
    #[arg(long, value_name = "SETTING", value_parser = parse::setting())]
    pub setting: Option<SettingName>,
    /// Federated: steps between two participations of one client, at least
    #[arg(long, value_name = "B", value_parser = parse::count, allow_negative_numbers = true, requires = "max_participations")]
    pub min_sep: Option<u64>,
    /// Federated: participations of one client, at most
    #[arg(long, value_name = "K", value_parser = parse::count, allow_negative_numbers = true, requires = "min_sep")]
    pub max_participations: Option<u64>,
    /// Privacy budget ε, with --delta
    #[arg(long, value_name = "EPSILON", value_parser = parse::number, allow_negative_numbers = true, requires = "delta")]
    pub epsilon: Option<f64>,
    /// δ of the claim; 1e-6 where the budget is given by --mu or --noise-multiplier
    #[arg(long, value_name = "DELTA", value_parser = parse::number, allow_negative_numbers = true)]
    pub delta: Option<f64>,
    /// Privacy budget as μ of Gaussian differential privacy, of the whole run and without amplification; where strategies are compared,
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
    #[arg(long, value_name = "UNIT", default_value = "example", value_parser = parse::unit())]
    pub unit: PrivacyUnit,
    /// What is released: prefix (plain SGD), momentum:BETA, momentum:BETA,DECAY (with weight decay), nesterov:BETA
    #[arg(long, short = 'w', value_name = "W", default_value = "prefix", value_parser = parse::workload)]
    pub workload: Workload,
    /// Which error counts: max (the worst released value) or rms
    #[arg(long, value_name = "OBJECTIVE", default_value = "max", value_parser = parse::objective)]
    pub objective: Objective,
    /// Memory for noise, in bytes per parameter, at most: of what the CPU engine holds, rows made ahead included
    #[arg(long, value_name = "BYTES", value_parser = parse::size, allow_negative_numbers = true)]
    pub max_state_bytes: Option<u64>,
    /// The strategy: auto (compares all), or one of those that `inspect --help` lists
    #[arg(long, short = 's', value_name = "S", default_value = "auto", value_parser = parse::strategy_choice)]
    pub strategy: StrategyChoice,
    #[arg(long, value_name = "SAMPLING", help = parse::sampling_help(), value_parser = parse::sampling)]
    pub sampling: Option<SamplingSpec>,
    /// What a claim may rest on: proven, or confident (for balls-in-bins and spaced-poisson:B also samples, which mislead with a probability of at most 1e-9 that δ pays
    /// for; zero-out, no negative entries, no more bands than B)
    #[arg(long, value_name = "CLAIMS", default_value = "proven", value_parser = parse::claims)]
    pub claims: Claims,
    /// ChaCha rounds: 8, 12 or 20
    #[arg(long, value_name = "ROUNDS", default_value = "12", value_parser = parse::rounds)]
    pub rounds: Rounds,
    /// The plan to write
    #[arg(long, short = 'o', value_name = "FILE")]
    pub out: Option<PathBuf>,
}

impl From<&PlanArgs> for Request {
    fn from(args: &PlanArgs) -> Request {
        Request {
            steps: args.steps,
            epochs: args.epochs,
            dataset_size: args.dataset_size,
            batch_size: args.batch_size,
            participation: args.participation.clone(),
            setting: args.setting,
            min_sep: args.min_sep,
            max_participations: args.max_participations,
            epsilon: args.epsilon,
            delta: args.delta,
            mu: args.mu,
            noise_multiplier: args.noise_multiplier,
            clip_norm: args.clip_norm,
            adjacency: args.adjacency,
            unit: args.unit,
            workload: args.workload.clone(),
            objective: args.objective,
            max_state_bytes: args.max_state_bytes,
            strategy: args.strategy.clone(),
            sampling: args.sampling,
            claims: args.claims,
            rounds: args.rounds,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use corrnoise::planner::OptionName;

    /// The options of a request, and no others but the file, under the names of its fields.
    #[test]
    fn the_vocabulary_is_the_request_s() {
        let mut command = crate::Cli::command();
        command.build();
        let plan = command.find_subcommand("plan").unwrap();
        let own = plan.get_arguments().filter_map(|arg| arg.get_long());
        let mut own: Vec<String> = own.map(|flag| flag.replace('-', "_")).collect();
        own.retain(|name| !["out", "json", "help", "version"].contains(&name.as_str()));
        let mut expected: Vec<&str> = OptionName::ALL.iter().map(|option| option.keyword()).collect();
        own.sort();
        expected.sort();
        assert_eq!(own, expected);
    }
}
