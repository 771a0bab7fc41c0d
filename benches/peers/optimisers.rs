//! Our side of `optimisers.py`: it reads one command per line and answers with one line.
//!
//! `optimise CASE REPEATS` → median seconds and loss. `evaluate CASE FILE` → the loss of a strategy given as little-endian f64
//! (scales then decays of a BLT, coefficients of a Toeplitz strategy, rows of a dense one): theirs is judged by the same code as ours.

use corrnoise::planner::optimize::{Objective, Optimum, Problem, blt, dense, toeplitz, unobserved};
use corrnoise::planner::{Blt, Factorization, LowerTriangular, Participation, Strategy, Workload};
use std::io::{BufRead, Write};

/// The problem of a case, and how we optimise it.
fn case(name: &str) -> (Problem, fn(&Problem) -> corrnoise::planner::Result<Optimum>) {
    let streaming = Problem::streaming;
    match name {
        "blt4-10000" => (streaming(10_000, Objective::Max), |p| blt::optimize(p, 4, &mut unobserved())),
        "blt4-1000000" => (streaming(1_000_000, Objective::Max), |p| blt::optimize(p, 4, &mut unobserved())),
        "blt4-min-sep" => {
            let participation = Participation::MinSep { min_sep: 100, max_participations: 10 };
            let workload = Workload::Prefix;
            let problem = Problem { num_steps: 1000, workload, participation, objective: Objective::Max };
            (problem, |p| blt::optimize(p, 4, &mut unobserved()))
        }
        "banded64-2048" => (streaming(2048, Objective::Rms), |p| toeplitz::banded(p, 64, &mut unobserved())),
        "banded64-100000" => {
            (streaming(100_000, Objective::Rms), |p| toeplitz::banded(p, 64, &mut unobserved()))
        }
        "dense-256" => (streaming(256, Objective::Rms), |p| dense::optimize(p, &mut unobserved())),
        "dense-512" => (streaming(512, Objective::Rms), |p| dense::optimize(p, &mut unobserved())),
        other => panic!("unknown case {other}"),
    }
}

fn strategy(name: &str, n: usize, numbers: Vec<f64>) -> Strategy {
    if name.starts_with("blt") {
        let (scale, decay) = numbers.split_at(numbers.len() / 2);
        Strategy::Blt(Blt::new(scale, decay).expect("a BLT"))
    } else if name.starts_with("banded") {
        Strategy::toeplitz(numbers).expect("coefficients")
    } else {
        let rows: Vec<Vec<f64>> = numbers.chunks(n).map(<[f64]>::to_vec).collect();
        Strategy::Dense(LowerTriangular::new(&rows).expect("a lower-triangular matrix"))
    }
}

fn main() {
    for line in std::io::stdin().lock().lines().map(|line| line.expect("a line")) {
        let words: Vec<&str> = line.split(' ').collect();
        let (problem, optimise) = case(words[1]);
        if words[0] == "optimise" {
            let repeats: usize = words[2].parse().expect("a number");
            let mut runs: Vec<Optimum> =
                (0..repeats).map(|_| optimise(&problem).expect("an optimum")).collect();
            runs.sort_by_key(|run| run.time);
            let run = &runs[repeats / 2];
            println!("{} {}", run.time.as_secs_f64(), run.loss);
        } else {
            let bytes = std::fs::read(words[2]).expect("a file");
            let numbers = bytes.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
            let strategy = strategy(words[1], problem.num_steps, numbers);
            let factorization = Factorization::new(strategy, problem.num_steps).expect("a factorisation");
            println!("{}", problem.loss(&factorization).expect("a loss").0);
        }
        std::io::stdout().flush().expect("a pipe");
    }
}
