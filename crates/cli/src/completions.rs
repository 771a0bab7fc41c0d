//! `completions`: what a shell needs to complete command lines.

use crate::Cli;
use crate::failure::{Failure, Outcome, Result};
use crate::output::Output;
use clap::{Args, CommandFactory};
use serde_json::json;

/// A completion script for a shell
#[derive(Args, Debug)]
#[command(after_help = "Example:
  corrnoise completions bash > /etc/bash_completion.d/corrnoise")]
pub(crate) struct CompletionsArgs {
    /// The shell to complete for
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Prints the script that the shell reads.
pub(crate) fn run(args: &CompletionsArgs, output: &mut Output<'_>) -> Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "corrnoise", &mut script);
    let script = String::from_utf8(script).map_err(|error| Failure::input(error.to_string()))?;
    output.text(&script)?;
    output.json(&json!({ "shell": args.shell.to_string(), "script": script }))?;
    Ok(Outcome::Passed)
}
