//! Where a command's answer goes: text or JSON to standard output, remarks to standard error.

use crate::failure::{Failure, Result};
use serde::Serialize;
use std::io::Write;

/// Standard output, and what it should hold.
pub struct Output<'a> {
    stdout: &'a mut dyn Write,
    stderr: &'a mut dyn Write,
    /// JSON is wanted.
    pub json: bool,
    /// A terminal that shows colours.
    pub colour: bool,
}

impl<'a> Output<'a> {
    pub fn new(stdout: &'a mut dyn Write, stderr: &'a mut dyn Write, json: bool, colour: bool) -> Output<'a> {
        Output { stdout, stderr, json, colour }
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

    /// Text in bold or colour (an ANSI code), on a terminal.
    pub fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
