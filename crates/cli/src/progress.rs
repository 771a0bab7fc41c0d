//! Progress bars on stderr, for people only: on a terminal, and only for what takes longer than a second.

use corrnoise::planner::optimize::{self, Observe, Stage};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::ops::ControlFlow;
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
        let style = ProgressStyle::with_template("{msg} [{bar:24}] {percent}% {eta}");
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

    /// Says how many units are done so far.
    pub fn set(&mut self, done: u64) {
        self.bar.set_position(done);
        if !self.shown && self.start.elapsed() > PATIENCE {
            self.shown = true;
            // Draws nothing where stderr is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// Says how many units are done so far, of a length that is only known now.
    pub fn bar_of(&mut self, done: u64, len: u64) {
        self.bar.set_length(len);
        self.set(done);
    }

    /// Says what is being done now.
    pub fn message(&mut self, message: &str) {
        self.bar.set_message(message.to_owned());
    }

    /// Prints while the bar is out of the way: it is cleared before and drawn again afterwards.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

/// Shows on a spinner what the planner is doing, and how far an optimiser is.
pub struct Stages {
    spinner: Progress,
    stage: String,
}

impl Stages {
    /// A spinner that says `message` until the first stage is heard of.
    pub fn new(message: &str) -> Stages {
        Stages { spinner: Progress::waiting(message), stage: message.to_owned() }
    }
}

impl Observe for Stages {
    fn iteration(&mut self, progress: optimize::Iteration) -> ControlFlow<()> {
        let optimize::Iteration { number, limit, .. } = progress;
        self.spinner.message(&format!("{}, iteration {number} of at most {limit}", self.stage));
        ControlFlow::Continue(())
    }

    fn stage(&mut self, stage: Stage<'_>) {
        self.stage = stage.to_string();
        self.spinner.message(&self.stage);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::io::Result;
    use std::sync::{Arc, Mutex};

    /// A terminal that remembers what was done to it.
    #[derive(Clone, Debug, Default)]
    struct Recorder(Arc<Mutex<String>>);

    impl Recorder {
        fn add(&self, text: &str) -> Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
    }

    impl TermLike for Recorder {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, lines: usize) -> Result<()> {
            self.add(&format!("<up {lines}>"))
        }
        fn move_cursor_down(&self, lines: usize) -> Result<()> {
            self.add(&format!("<down {lines}>"))
        }
        fn move_cursor_right(&self, columns: usize) -> Result<()> {
            self.add(&format!("<right {columns}>"))
        }
        fn move_cursor_left(&self, columns: usize) -> Result<()> {
            self.add(&format!("<left {columns}>"))
        }
        fn write_line(&self, text: &str) -> Result<()> {
            self.add(&format!("{text}\n"))
        }
        fn write_str(&self, text: &str) -> Result<()> {
            self.add(text)
        }
        fn clear_line(&self) -> Result<()> {
            self.add("<clear>")
        }
        fn flush(&self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_bar_is_out_of_the_way_while_something_is_printed() {
        let terminal = Recorder::default();
        let mut progress = Progress::new(4, "verifying");
        progress.bar.set_draw_target(ProgressDrawTarget::term_like(Box::new(terminal.clone())));
        progress.set(1);
        progress.bar.tick();
        terminal.0.lock().unwrap().clear();
        progress.suspend(|| terminal.add("|printed|")).unwrap();
        let seen = terminal.0.lock().unwrap().clone();
        let (before, after) = seen.split_once("|printed|").unwrap();
        assert!(before.contains("<clear>") && !before.contains("verifying"), "{seen}");
        assert!(after.contains("verifying ["), "{seen}");
    }

    #[test]
    fn a_spinner_names_its_stage() {
        let mut stages = Stages::new("comparing mechanisms");
        assert_eq!(stages.spinner.bar.message(), "comparing mechanisms");
        stages.stage(Stage::Optimizing("dense"));
        assert_eq!(stages.spinner.bar.message(), "optimising dense");
        let report = optimize::Iteration { number: 7, limit: 1000, loss: 1.0 };
        assert!(stages.iteration(report).is_continue());
        assert_eq!(stages.spinner.bar.message(), "optimising dense, iteration 7 of at most 1000");
        stages.stage(Stage::Certifying("blt:3"));
        assert_eq!(stages.spinner.bar.message(), "certifying blt:3");
    }
}
