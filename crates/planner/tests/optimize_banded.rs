//! The optimiser of banded strategies with normalised columns.

mod random;

use corrnoise_planner::optimize::{Objective, Problem, banded, dense, toeplitz, unobserved};
use corrnoise_planner::{Exactness, Factorization, Participation, Strategy, Workload};
use random::Random;

/// With as many bands as steps this is the dense optimum: the monograph's Dense columns.
#[test]
fn all_bands_are_the_dense_optimum() {
    for (n, max, rms) in [(8, 1.51, 1.494), (16, 1.704, 1.689), (32, 1.905, 1.892), (64, 2.111, 2.1)] {
        for (objective, printed) in [(Objective::Max, max), (Objective::Rms, rms)] {
            let optimum = banded::optimize(&Problem::streaming(n, objective), n, &mut unobserved()).unwrap();
            println!("n = {n}, {objective:?}: {:.5}, {:?}", optimum.loss, optimum.time);
            assert!(optimum.loss <= printed * 1.001 + 5e-4, "n = {n}, {objective:?}: {}", optimum.loss);
            assert!(optimum.loss >= optimum.lower_bound);
        }
    }
}

#[test]
fn free_rows_beat_toeplitz_ones() {
    for objective in [Objective::Max, Objective::Rms] {
        for (num_steps, participation) in [
            (300, Participation::Single),
            (400, Participation::MinSep { min_sep: 40, max_participations: 10 }),
        ] {
            let problem = Problem { num_steps, workload: Workload::Prefix, participation, objective };
            let free = banded::optimize(&problem, 12, &mut unobserved()).unwrap();
            let toeplitz = toeplitz::banded(&problem, 12, &mut unobserved()).unwrap();
            println!("{objective:?}, {num_steps}: {} and {}, {:?}", free.loss, toeplitz.loss, free.time);
            assert!(free.loss < toeplitz.loss, "{} and {}", free.loss, toeplitz.loss);
            assert_eq!(free.exactness, Exactness::Exact);
            assert!(free.factorization.form().is_ok());
        }
    }
}

#[test]
fn ten_thousand_steps() {
    let optimum = banded::optimize(&Problem::streaming(10_000, Objective::Rms), 8, &mut unobserved());
    // The loss of any free strategy is quadratic to evaluate, and still within its limit here.
    let optimum = optimum.unwrap();
    println!("n = 10⁴, 8 bands: {:.4}, {} iterations, {:?}", optimum.loss, optimum.iterations, optimum.time);
    let toeplitz =
        toeplitz::banded(&Problem::streaming(10_000, Objective::Rms), 8, &mut unobserved()).unwrap();
    assert!(optimum.loss < toeplitz.loss);
}

#[test]
fn what_cannot_be_optimised_is_named() {
    let participation = Participation::MinSep { min_sep: 5, max_participations: 2 };
    let problem = Problem { participation, ..Problem::streaming(20, Objective::Rms) };
    let message = banded::optimize(&problem, 6, &mut unobserved()).unwrap_err().to_string();
    assert!(message.contains("number of bands is 6: expected 1 to 5"), "{message}");
}

/// Compares free rows and dense matrices over random sizes, bands and participations.
#[test]
fn nothing_invalid_comes_back() {
    let mut random = Random(11);
    let mut below = |bound| random.below(bound);
    for _ in 0..60 {
        let num_steps = 2 + below(40);
        let min_sep = 1 + below(num_steps);
        let max_participations = num_steps.div_ceil(min_sep);
        let objective = if below(3) == 0 { Objective::Max } else { Objective::Rms };
        let participation = match below(3) {
            0 => Participation::Single,
            1 => Participation::MinSep { min_sep, max_participations },
            _ => Participation::Cyclic { separation: min_sep, max_participations },
        };
        let problem = Problem { num_steps, workload: Workload::Prefix, participation, objective };
        let identity = problem.loss(&Factorization::new(Strategy::Identity, num_steps).unwrap()).unwrap().0;
        let bands = 1 + below(min_sep);
        for (name, optimum) in [
            ("banded", banded::optimize(&problem, bands, &mut unobserved()).unwrap()),
            ("dense", dense::optimize(&problem, &mut unobserved()).unwrap()),
        ] {
            let what = || format!("{name}, {bands} bands, {problem:?}: {}", optimum.loss);
            assert!(optimum.loss.is_finite() && optimum.loss <= identity * (1.0 + 1e-6), "{}", what());
            assert!(optimum.loss >= optimum.lower_bound * (1.0 - 1e-9), "{}", what());
            assert_eq!(optimum.exactness, Exactness::Exact, "{}", what());
            assert!(optimum.factorization.form().is_ok(), "{}", what());
        }
    }
}
