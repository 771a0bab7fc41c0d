//! What ends a command early: one line for people, and never a panic.

use clap::error::ErrorKind;
use std::ffi::OsString;
use std::path::Path;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command ended as it should.
    Passed,
    /// A check of the command failed.
    Failed,
}

/// Why a command did not run to its end.
#[derive(Debug)]
pub enum Failure {
    /// Bad input, or a machine that refused: one line that names the value, what was expected and what to do.
    Input(String),
    /// Whoever read the output has had enough, as `head` does.
    ClosedPipe,
}

/// Result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// One line, whatever the text holds.
    pub fn input(message: impl AsRef<str>) -> Failure {
        Failure::Input(message.as_ref().split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// A value outside its domain.
    pub fn value(name: &str, value: impl std::fmt::Display, expected: impl std::fmt::Display) -> Failure {
        Failure::input(format!("{name} is {value}: expected {expected}"))
    }

    /// A file that could not be read or written.
    pub fn io(action: &str, path: &Path, error: std::io::Error) -> Failure {
        Failure::input(format!("cannot {action} {}: {error}", path.display()))
    }

    /// Standard output that could not be written to.
    pub fn stdout(error: std::io::Error) -> Failure {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
            _ => Failure::input(format!("cannot write to standard output: {error}")),
        }
    }

    /// A command line that clap refused: its message without the usage, on one line.
    pub(crate) fn usage(error: &clap::Error) -> Failure {
        if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            return Failure::input("no subcommand: expected one of those that 'corrnoise --help' lists");
        }
        let message = on_one_line(&error.render().to_string());
        Failure::input(format!("{}; see --help", message.trim_start_matches("error: ")))
    }
}

/// Clap's paragraphs and lists with the punctuation that line breaks stand for: semicolons before tips, commas between entries.
fn on_one_line(text: &str) -> String {
    let is_end = |line: &&str| line.starts_with("Usage:") || line.starts_with("For more information");
    let mut message = String::new();
    for line in text.lines().map(str::trim).take_while(|line| !is_end(line)).filter(|line| !line.is_empty()) {
        message += match message.chars().last() {
            None => "",
            Some(':') => " ",
            Some(_) if line.starts_with("tip:") || line.starts_with('[') => "; ",
            Some(_) => ", ",
        };
        message += line;
    }
    message
}

/// Digits in a row that may be a key, or one of which some got lost. Counts and names are shorter.
const KEY_LIKE: usize = 48;

/// A message without the keys of its command line: a key that stands where another value belongs would be shown as a bad value, and
/// what is written to stderr is kept by logs.
pub(crate) fn without_keys(message: String, arguments: &[OsString]) -> String {
    let hide = |message: String, argument: &OsString| {
        let text = argument.to_string_lossy();
        let runs = text.split(|c: char| !c.is_ascii_hexdigit()).filter(|run| run.len() >= KEY_LIKE);
        runs.fold(message, |message, run| {
            message.replace(run, &format!("<{} hexadecimal digits>", run.len()))
        })
    };
    arguments.iter().fold(message, hide)
}

impl From<corrnoise::Error> for Failure {
    fn from(error: corrnoise::Error) -> Failure {
        Failure::input(error.to_string())
    }
}

impl From<corrnoise::planner::Error> for Failure {
    fn from(error: corrnoise::planner::Error) -> Failure {
        Failure::input(error.spelled(|option| format!("--{}", option.keyword().replace('_', "-"))))
    }
}

/// What to do about a build without the CUDA engine.
pub(crate) fn without_cuda(what: &str) -> Failure {
    Failure::input(format!(
        "{what}: this corrnoise was built without the CUDA engine; build it with `cargo build --release -p corrnoise-cli --features cuda`"
    ))
}

#[cfg(test)]
mod tests {
    use super::on_one_line;

    #[test]
    fn tips_and_lists_keep_their_punctuation() {
        let unknown = "error: unexpected argument '--step' found\n\n  tip: a similar argument exists: '--steps'\n\nUsage: x";
        assert_eq!(
            on_one_line(unknown),
            "error: unexpected argument '--step' found; tip: a similar argument exists: '--steps'"
        );
        let missing = "error: the following required arguments were not provided:\n  --steps <N>\n  --strategy <S>\n\nUsage: x";
        assert_eq!(
            on_one_line(missing),
            "error: the following required arguments were not provided: --steps <N>, --strategy <S>"
        );
    }
}
