//! Progress bars on stderr, for people only: on a terminal, and only for what takes longer than a second.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(1);

/// A bar that shows itself when its work turns out to be long.
pub struct Progress {
    bar: ProgressBar,
    start: Instant,
    shown: bool,
}

impl Progress {
    /// A bar of `len` units.
    pub fn new(len: u64, message: &str) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{msg} [{bar:32}] {percent}% {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        bar.set_message(message.to_owned());
        Progress { bar, start: Instant::now(), shown: false }
    }

    /// For work of unknown length: says what is being done and for how long, by itself.
    pub fn waiting(message: &str) -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.set_message(message.to_owned());
        bar.enable_steady_tick(PATIENCE / 4);
        Progress { bar, start: Instant::now(), shown: true }
    }

    /// Done so far.
    pub fn set(&mut self, done: u64) {
        self.bar.set_position(done);
        if !self.shown && self.start.elapsed() > PATIENCE {
            self.shown = true;
            // Draws nothing where stderr is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Done so far, of a length that is only known now.
    pub fn bar_of(&mut self, done: u64, len: u64) {
        self.bar.set_length(len);
        self.set(done);
    }

    /// What is being done now.
    pub fn message(&mut self, message: &str) {
        self.bar.set_message(message.to_owned());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
