//! Our side of `accountant.py`: it reads one setting per line and answers with one line.
//!
//! `SIGMA SAMPLING_PROB STEPS DELTA` → ε and the seconds it took, the faster of two runs.

use corrnoise::planner::account::Subsampled;
use std::io::{BufRead, Write};
use std::time::Instant;

fn main() {
    for line in std::io::stdin().lock().lines().map(|line| line.expect("a line")) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words[i].parse::<f64>().expect("a number");
        let steps = words[2].parse().expect("a whole number");
        let mechanism = Subsampled::new(number(0), number(1), steps).expect("a mechanism");
        let run = || {
            let start = Instant::now();
            (mechanism.epsilon(number(3)).expect("an ε"), start.elapsed().as_secs_f64())
        };
        let ((epsilon, first), (_, second)) = (run(), run());
        println!("{epsilon} {}", first.min(second));
        std::io::stdout().flush().expect("a pipe");
    }
}
