//! The command line of corrnoise, as a library: `corrnoise` the binary is one call of [`main`].
//!
//! Every subcommand is a function from its arguments to an [`Outcome`], and writes to an output that prints people's text or JSON.
//! Exit codes: 0, 1 if a check failed, 2 for bad input: one line on stderr, and no file left half-written.

mod account;
mod bench;
mod completions;
mod failure;
mod generate;
mod inspect;
mod manual;
mod npy;
mod output;
mod parse;
mod plan;
mod plot;
mod progress;
mod strategies;
mod table;
mod verify;
mod wrap;

pub use bench::{remark, traffic};
pub use failure::{Failure, Outcome, Result};
pub use manual::markdown;
pub use output::Screen;

use clap::{Parser, Subcommand};
use output::Output;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

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
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Plan(plan::PlanArgs),
    Inspect(inspect::InspectArgs),
    Account(account::AccountArgs),
    Generate(generate::GenerateArgs),
    Bench(bench::BenchArgs),
    Verify(verify::VerifyArgs),
    Completions(completions::CompletionsArgs),
}

fn dispatch(command: Command, output: &mut Output<'_>) -> Result<Outcome> {
    match command {
        Command::Plan(args) => plan::run(&args, output),
        Command::Inspect(args) => inspect::run(&args, output),
        Command::Account(args) => account::run(&args, output),
        Command::Generate(args) => generate::run(&args, output),
        Command::Bench(args) => bench::run(&args, output),
        Command::Verify(args) => verify::run(&args, output),
        Command::Completions(args) => completions::run(&args, output),
    }
}

/// What `--json` prints, by subcommand.
pub(crate) const JSON_KEYS: [(&str, &str); 7] = [
    ("plan", include_str!("manual/plan.md")),
    ("inspect", include_str!("manual/inspect.md")),
    ("account", include_str!("manual/account.md")),
    ("generate", include_str!("manual/generate.md")),
    ("bench", include_str!("manual/bench.md")),
    ("verify", include_str!("manual/verify.md")),
    ("completions", include_str!("manual/completions.md")),
];

/// Runs the process's own command line.
pub fn main() -> ExitCode {
    let screen = Screen::of_stdout();
    let mut stdout = std::io::stdout().lock();
    ExitCode::from(run(std::env::args_os(), &mut stdout, &mut std::io::stderr(), screen))
}

/// Runs a command line, and says with which code to exit.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
    screen: Screen,
) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let outcome = match Cli::try_parse_from(&arguments) {
        Ok(cli) => {
            let mut output = Output::new(stdout, stderr, cli.json, screen);
            dispatch(cli.command, &mut output).and_then(|outcome| {
                output.flush()?;
                Ok(outcome)
            })
        }
        Err(error) if error.use_stderr() => Err(Failure::usage(&error)),
        Err(help) => write!(stdout, "{help}").map_err(Failure::stdout).map(|()| Outcome::Passed),
    };
    match outcome {
        Ok(Outcome::Passed) | Err(Failure::ClosedPipe) => 0,
        Ok(Outcome::Failed) => 1,
        Err(Failure::Input(message)) => {
            // Nothing better can be done about a stderr that is closed.
            let _ = writeln!(stderr, "corrnoise: {}", failure::without_keys(message, &arguments));
            2
        }
    }
}
