//! Our side of `accountant.py`: one setting per line, one answer per line.
//!
//! `SIGMA SAMPLING_PROB STEPS DELTA` → ε and the seconds it took.

use corrnoise::planner::account::Subsampled;
use std::io::{BufRead, Write};
use std::time::Instant;

fn main() {
    for line in std::io::stdin().lock().lines().map(|line| line.expect("a line")) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words[i].parse::<f64>().expect("a number");
        let steps = words[2].parse().expect("a whole number");
        let start = Instant::now();
        let mechanism = Subsampled::new(number(0), number(1), steps).expect("a mechanism");
        let epsilon = mechanism.epsilon(number(3)).expect("an ε");
        println!("{epsilon} {}", start.elapsed().as_secs_f64());
        std::io::stdout().flush().expect("a pipe");
    }
}
