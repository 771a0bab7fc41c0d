//! `completions`: what a shell needs to complete command lines.

use crate::args::{Cli, CompletionsArgs};
use crate::failure::{Failure, Outcome, Result};
use crate::output::Output;
use clap::CommandFactory;
use serde_json::json;

/// Prints the script.
pub fn run(args: &CompletionsArgs, output: &mut Output<'_>) -> Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "corrnoise", &mut script);
    let script = String::from_utf8(script).map_err(|error| Failure::input(error.to_string()))?;
    output.text(&script)?;
    output.json(&json!({ "shell": args.shell.to_string(), "script": script }))?;
    Ok(Outcome::Passed)
}
