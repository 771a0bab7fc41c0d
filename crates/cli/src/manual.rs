//! `docs/cli.md`, made of the help texts: it cannot say anything else than `--help` does.

use crate::{Cli, JSON_KEYS};
use clap::CommandFactory;
use std::fmt::Write;

/// The whole reference in Markdown.
pub fn markdown() -> String {
    let mut command = Cli::command().term_width(120);
    command.build();
    let mut text = String::from(include_str!("manual/head.md"));
    let _ =
        write!(text, "\n```text\n{}```\n", without_trailing_spaces(&command.render_long_help().to_string()));
    let names: Vec<String> = command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set())
        .map(|sub| sub.get_name().to_owned())
        .collect();
    for name in names {
        let Some(subcommand) = command.find_subcommand_mut(&name) else { continue };
        let help = without_trailing_spaces(&subcommand.render_long_help().to_string());
        let _ = write!(text, "\n## {name}\n\n```text\n{help}```\n");
        if let Some((_, keys)) = JSON_KEYS.iter().find(|(own, _)| *own == name) {
            let _ = write!(text, "\n{keys}");
        }
    }
    text
}

fn without_trailing_spaces(text: &str) -> String {
    text.lines().fold(String::new(), |all, line| all + line.trim_end() + "\n")
}
