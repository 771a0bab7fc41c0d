//! Optimised Toeplitz strategies: the monograph's columns, certificates, and that nothing invalid ever comes out.

mod random;

use corrnoise_planner::optimize::{Objective, Problem, toeplitz, unobserved};
use corrnoise_planner::{Adjacency, Exactness, Factorization, Participation, Strategy, Workload};
use random::Random;

/// Compares with the columns Toeplitz and Col-Norm. of the RMSE table: the Toeplitz strategy of least RMS loss, and the same with its
/// columns normalised.
#[test]
fn the_rms_columns_of_the_monograph() {
    let printed = [
        (8, 1.544, 1.512),
        (16, 1.75, 1.714),
        (32, 1.963, 1.922),
        (64, 2.179, 2.135),
        (128, 2.397, 2.35),
        (256, 2.616, 2.567),
        (512, 2.836, 2.784),
        (1024, 3.057, 3.003),
        (2048, 3.277, 3.221),
        (4096, 3.498, 3.44),
        (8192, 3.718, 3.66),
    ];
    for (n, toeplitz_loss, normalized_loss) in printed {
        let problem = Problem::streaming(n, Objective::Rms);
        let optimum = toeplitz::full(&problem, &mut unobserved()).unwrap();
        println!("n = {n}: {:.5}, {} iterations, {:?}", optimum.loss, optimum.iterations, optimum.time);
        assert!(optimum.loss <= toeplitz_loss + 5.01e-4, "{n}: {}", optimum.loss);
        assert!(optimum.loss >= toeplitz_loss - 2e-3, "{n}: {} is too good to be true", optimum.loss);
        let normalized = optimum.factorization.clone().column_normalized().unwrap();
        let loss = problem.loss(&normalized).unwrap().0;
        println!("n = {n}, normalised: {loss:.5}, printed {normalized_loss}");
        assert!((loss - normalized_loss).abs() <= 5.01e-4, "{n}, normalised: {loss}");
    }
}

/// In a stream and for max loss, no Toeplitz strategy beats the square root.
#[test]
fn the_square_root_is_the_max_optimum() {
    let problem = Problem::streaming(200, Objective::Max);
    let optimum = toeplitz::full(&problem, &mut unobserved()).unwrap();
    let root = Factorization::new(Strategy::square_root(Workload::Prefix).unwrap(), 200).unwrap();
    let best = problem.loss(&root).unwrap().0;
    assert!((optimum.loss / best - 1.0).abs() < 1e-5, "{} and {best}", optimum.loss);
    assert!(optimum.lower_bound < optimum.loss && optimum.gap() < 0.4);
}

#[test]
fn nothing_invalid_and_nothing_worse_than_the_start() {
    let mut random = Random(7);
    let mut below = |bound| random.below(bound);
    for _ in 0..150 {
        let num_steps = 2 + below(300);
        let separation = 1 + below(num_steps);
        let max_participations = 1 + below(num_steps.div_ceil(separation));
        let bands = 1 + below(num_steps.min(40));
        let objective = if below(2) == 0 { Objective::Max } else { Objective::Rms };
        let participation = match below(3) {
            0 => Participation::Single,
            1 => Participation::MinSep { min_sep: separation, max_participations },
            _ => Participation::Cyclic { separation, max_participations },
        };
        let workload = match below(3) {
            0 => Workload::Prefix,
            1 => Workload::momentum(0.9, 0.001).unwrap(),
            _ => Workload::nesterov(0.5).unwrap(),
        };
        let problem = Problem { num_steps, workload: workload.clone(), participation, objective };
        let start = |strategy| problem.loss(&Factorization::new(strategy, num_steps).unwrap()).unwrap();
        let root = Strategy::square_root(workload).unwrap();
        let coefs = Factorization::new(root, num_steps).unwrap().strategy_coefs().unwrap().unwrap();
        let banded = toeplitz::banded(&problem, bands, &mut unobserved()).unwrap();
        let from = start(Strategy::toeplitz(coefs[..bands].to_vec()).unwrap());
        assert!(
            banded.loss.is_finite() && banded.loss <= from.0 * (1.0 + 1e-6),
            "{problem:?}, {bands} bands: {from:?}, {}",
            banded.loss
        );
        assert_eq!(banded.exactness, Exactness::Exact, "{problem:?}, {bands}");
        assert!(banded.factorization.form().is_ok(), "{problem:?}");
        let inverse = toeplitz::banded_inverse(&problem, bands, &mut unobserved()).unwrap();
        assert!(inverse.loss.is_finite() && inverse.factorization.form().is_ok());
        let noising = corrnoise_planner::strategy::series::inverse(&coefs, bands);
        let from = start(Strategy::banded_inverse(noising).unwrap());
        assert!(inverse.loss <= from.0 * (1.0 + 1e-6), "{problem:?}, {bands}: {from:?}, {}", inverse.loss);
    }
}

#[test]
fn bands_are_found_by_search() {
    let participation = Participation::MinSep { min_sep: 32, max_participations: 8 };
    let problem =
        Problem { num_steps: 256, workload: Workload::Prefix, participation, objective: Objective::Rms };
    let (bands, best) = toeplitz::best_bands(&problem, 64, &mut unobserved()).unwrap();
    for other in [1, bands.saturating_sub(3).max(1), bands + 3, 64] {
        let loss = toeplitz::banded(&problem, other, &mut unobserved()).unwrap().loss;
        assert!(best.loss <= loss * (1.0 + 1e-4), "{bands} bands {}, {other} bands {loss}", best.loss);
    }
    let sensitivity = best.factorization.sensitivity(&problem.participation, Adjacency::ZeroOut).unwrap();
    assert_eq!(sensitivity.exactness, Exactness::Exact);
}

#[test]
fn what_cannot_be_optimised_is_named() {
    let problem = Problem::streaming(10, Objective::Max);
    let message = toeplitz::banded(&problem, 11, &mut unobserved()).unwrap_err().to_string();
    assert!(message.contains("number of bands is 11: expected 1 to 10"), "{message}");
    let scaled = Workload::Prefix.with_learning_rates(vec![0.1; 10]).unwrap();
    let message = toeplitz::full(&Problem { workload: scaled, ..problem }, &mut unobserved()).unwrap_err();
    assert!(message.to_string().contains("not Toeplitz"), "{message}");
}
