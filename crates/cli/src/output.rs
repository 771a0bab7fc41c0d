//! Where a command's answer goes: text or JSON to standard output, remarks to standard error.

use crate::failure::{Failure, Result};
use crate::wrap::wrap;
use serde::Serialize;
use std::io::{IsTerminal, Write};

/// What standard output can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Whether it shows colours and bold text.
    pub colour: bool,
    /// How many columns it has.
    pub width: usize,
}

impl Screen {
    /// What a file or a pipe is taken for, so that the same command always writes the same text.
    pub const PLAIN: Screen = Screen { colour: false, width: 120 };
    /// A narrower terminal is treated as this wide: below, a table has no room for one column beside its names.
    const LEAST_WIDTH: usize = 40;
    /// The width of a terminal that does not say how wide it is.
    const USUAL_WIDTH: usize = 80;

    /// This process's standard output; colours are left out where `NO_COLOR` is set.
    pub fn of_stdout() -> Screen {
        if !std::io::stdout().is_terminal() {
            return Screen::PLAIN;
        }
        let size = console::Term::stdout().size_checked();
        let width = size.map_or(Screen::USUAL_WIDTH, |(_rows, columns)| usize::from(columns));
        let colour = std::env::var_os("NO_COLOR").is_none();
        Screen { colour, width: width.max(Screen::LEAST_WIDTH) }
    }
}

/// Standard output, and what it should hold.
pub struct Output<'a> {
    stdout: &'a mut dyn Write,
    stderr: &'a mut dyn Write,
    /// Whether JSON is wanted instead of text.
    pub json: bool,
    /// What the text is laid out for.
    pub screen: Screen,
}

impl<'a> Output<'a> {
    pub fn new(
        stdout: &'a mut dyn Write,
        stderr: &'a mut dyn Write,
        json: bool,
        screen: Screen,
    ) -> Output<'a> {
        Output { stdout, stderr, json, screen }
    }

    /// Prints text for people; nothing where JSON is wanted.
    pub fn text(&mut self, text: impl AsRef<str>) -> Result<()> {
        if self.json { Ok(()) } else { self.raw(text.as_ref()) }
    }

    /// Prints text whatever is wanted.
    pub fn raw(&mut self, text: &str) -> Result<()> {
        writeln!(self.stdout, "{}", text.trim_end_matches('\n')).map_err(Failure::stdout)
    }

    /// Prints JSON, where it is wanted.
    pub fn json(&mut self, value: &impl Serialize) -> Result<()> {
        if !self.json {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(value).map_err(|error| Failure::input(error.to_string()))?;
        self.raw(&text)
    }

    /// Prints a remark to stderr: something to know, not part of the answer.
    pub fn note(&mut self, text: &str) {
        // Nothing better can be done about a stderr that is closed.
        let _ = writeln!(self.stderr, "corrnoise: {text}");
    }

    pub fn flush(&mut self) -> Result<()> {
        self.stdout.flush().map_err(Failure::stdout)
    }

    /// Text whose lines end at words, within the width of the screen.
    pub fn wrap(&self, text: &str) -> String {
        wrap(text, self.screen.width)
    }

    /// Text in bold or colour (an ANSI code), on a terminal.
    pub fn paint(&self, code: &str, text: &str) -> String {
        if self.screen.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
