//! Structured matrices are never written out: large sizes are answered fast, and quadratic computations name their limit.

use corrnoise_planner::{
    Adjacency, Blt, Estimator, Exactness, Factorization, Participation, Strategy, Workload,
};
use std::time::{Duration, Instant};

/// The median time of five runs.
fn median_time<T>(mut run: impl FnMut() -> T) -> (T, Duration) {
    let mut last = run();
    let mut times: Vec<Duration> = (0..5)
        .map(|_| {
            let start = Instant::now();
            last = run();
            start.elapsed()
        })
        .collect();
    times.sort();
    (last, times[2])
}

fn assert_faster<T>(what: &str, limit: Duration, run: impl FnMut() -> T) -> T {
    let (value, time) = median_time(run);
    println!("{what}: {time:?}, at most {limit:?}");
    assert!(time < limit, "{what} took {time:?}, expected at most {limit:?}");
    value
}

#[test]
fn toeplitz_min_sep_sensitivity_at_a_million_steps() {
    let root = Factorization::new(Strategy::square_root(Workload::Prefix).unwrap(), 1_000_000).unwrap();
    let participation = Participation::MinSep { min_sep: 10_000, max_participations: 100 };
    let sensitivity =
        assert_faster("Toeplitz min-sep, n = 10⁶, k = 100", Duration::from_millis(100), || {
            root.sensitivity(&participation, Adjacency::ZeroOut).unwrap()
        });
    assert_eq!(sensitivity.exactness, Exactness::Exact);
    assert!(sensitivity.value > 10.0 && sensitivity.value < 100.0);
}

#[test]
fn per_query_error_of_a_banded_strategy_at_a_million_steps() {
    let banded = Factorization::new(Strategy::banded_square_root(64).unwrap(), 1_000_000).unwrap();
    let errors = assert_faster("64 bands, per-query error, n = 10⁶", Duration::from_millis(200), || {
        banded.per_query_error_squared(&Workload::Prefix).unwrap()
    });
    assert!(errors.windows(2).all(|pair| pair[0] <= pair[1]));
}

#[test]
fn banded_dynamic_program_at_a_hundred_thousand_steps() {
    let n = 100_000;
    let rows: Vec<Vec<f64>> =
        (0..n).map(|t| (0..=t.min(7)).map(|a| 1.0 + (t % 13) as f64 - 0.1 * a as f64).collect()).collect();
    let banded = Factorization::new(Strategy::banded(rows).unwrap(), n).unwrap();
    let participation = Participation::MinSep { min_sep: 900, max_participations: 100 };
    let sensitivity =
        assert_faster("banded dynamic program, n = 10⁵, k = 100", Duration::from_millis(200), || {
            banded.sensitivity(&participation, Adjacency::ZeroOut).unwrap()
        });
    assert_eq!(sensitivity.exactness, Exactness::Exact);
}

#[test]
fn blt_at_a_billion_steps() {
    let blt = Blt::new(&[0.29, 0.13, 0.06, 0.015], &[0.22, 0.71, 0.944, 0.999_999_9]).unwrap();
    let factorization = Factorization::new(Strategy::Blt(blt), 1_000_000_000).unwrap();
    let loss = assert_faster("BLT, n = 10⁹, loss", Duration::from_millis(1), || {
        factorization.loss(&Workload::Prefix, &Participation::Single, Adjacency::ZeroOut).unwrap()
    });
    assert!(loss.max_loss().is_finite() && loss.rms_loss() <= loss.max_loss());
    let participation = Participation::MinSep { min_sep: 10_000_000, max_participations: 20 };
    assert_faster("BLT, n = 10⁹, k = 20", Duration::from_millis(1), || {
        factorization.sensitivity(&participation, Adjacency::ZeroOut).unwrap()
    });
}

/// Compares closed forms with the coefficients that they stand for.
#[test]
fn closed_forms_agree_with_coefficients() {
    let blt = Blt::new(&[0.29, 0.13, 0.06, 0.015], &[0.22, 0.71, 0.944, 0.9957]).unwrap();
    let n = 3_000;
    let closed = Factorization::new(Strategy::Blt(blt.clone()), n).unwrap();
    let written = Factorization::new(Strategy::toeplitz(blt.strategy_coefs(n)).unwrap(), n).unwrap();
    for participation in [
        Participation::Single,
        Participation::MinSep { min_sep: 100, max_participations: 30 },
        Participation::Cyclic { separation: 1_000, max_participations: 3 },
    ] {
        let loss = |f: &Factorization| f.loss(&Workload::Prefix, &participation, Adjacency::ZeroOut).unwrap();
        let (a, b) = (loss(&closed), loss(&written));
        assert!(
            (a.max_loss() / b.max_loss() - 1.0).abs() < 1e-9
                && (a.rms_loss() / b.rms_loss() - 1.0).abs() < 1e-9
        );
    }
}

/// All computations of a workload's error agree: recursions on rows, coefficients, dense products.
#[test]
fn all_ways_to_an_error_agree() {
    let n = 90;
    let strategies = [
        Strategy::square_root(Workload::Prefix).unwrap(),
        Strategy::Blt(Blt::new(&[0.3, 0.1], &[0.4, 0.95]).unwrap()),
        Strategy::banded_square_root(7).unwrap(),
        Strategy::Tree(Estimator::Plain),
        Strategy::Tree(Estimator::Streaming),
        Strategy::Tree(Estimator::Full),
    ];
    let rates: Vec<f64> = (0..n).map(|t| 1.0 / (1.0 + t as f64)).collect();
    let workloads = [
        Workload::Prefix,
        Workload::momentum(0.9, 0.02).unwrap(),
        Workload::nesterov(0.8).unwrap(),
        Workload::Prefix.with_learning_rates(rates.clone()).unwrap().with_row_weights(rates).unwrap(),
    ];
    for strategy in &strategies {
        for workload in &workloads {
            let dense = Workload::Dense(workload.matrix(n).unwrap());
            for every in [n, 20] {
                let plain = Factorization::new(strategy.clone(), n).unwrap().restarted(every).unwrap();
                for factorization in [plain.clone(), plain.column_normalized().unwrap()] {
                    let fast = factorization.per_query_error_squared(workload).unwrap();
                    let slow = factorization.per_query_error_squared(&dense).unwrap();
                    for (t, (a, b)) in fast.iter().zip(&slow).enumerate() {
                        let what =
                            || format!("{}, {workload:?}, row {t}: {a}, {b}", factorization.describe());
                        assert!((a / b - 1.0).abs() < 1e-10, "{}", what());
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_too_large_says_so() {
    let root = Factorization::new(Strategy::square_root(Workload::Prefix).unwrap(), 1_000_000).unwrap();
    let normalized = root.clone().column_normalized().unwrap();
    let message = normalized.per_query_error_squared(&Workload::Prefix).unwrap_err().to_string();
    assert!(
        message.contains("takes n² operations: 1000000 steps are too many, expected at most 65536"),
        "{message}"
    );
    let message = root.matrix().unwrap_err().to_string();
    assert!(message.contains("expected at most 8192"), "{message}");
    let arbitrary = Strategy::square_root(Workload::nesterov(0.9).unwrap()).unwrap();
    let message = Factorization::new(arbitrary, 1_000_000).unwrap().strategy_coefs().unwrap_err().to_string();
    assert!(message.contains("square root of an arbitrary Toeplitz workload"), "{message}");
    let tree = Factorization::new(Strategy::Tree(Estimator::Full), 10_000).unwrap();
    assert!(tree.form().unwrap_err().to_string().contains("too many"));
    // A Toeplitz strategy with given coefficients is linear or nearly so at any size.
    let given = Strategy::toeplitz((0..1_000_000).map(|t| 1.0 / (1.0 + t as f64)).collect()).unwrap();
    let given = Factorization::new(given, 1_000_000).unwrap();
    assert!(given.errors(&Workload::Prefix).unwrap().max.is_finite());
}

#[test]
fn bad_sizes_and_schemas_are_named() {
    let message = |result: corrnoise_planner::Result<Factorization>| result.unwrap_err().to_string();
    assert!(message(Factorization::new(Strategy::Identity, 0)).contains("number of steps is 0"));
    let banded = Strategy::banded(vec![vec![1.0]]).unwrap();
    assert!(
        message(Factorization::new(banded, 5)).contains("rows of the strategy is 1: expected at least 5")
    );
    let identity = Factorization::new(Strategy::Identity, 10).unwrap();
    assert!(message(identity.clone().restarted(0)).contains("restart_every is 0"));
    let infeasible = Participation::MinSep { min_sep: 4, max_participations: 4 };
    let refused = identity.sensitivity(&infeasible, Adjacency::ZeroOut).unwrap_err().to_string();
    assert!(refused.contains("max participations is 4: expected 1 to 3"), "{refused}");
    assert!(Blt::new(&[0.1, 0.1], &[0.5, 0.5]).unwrap_err().to_string().contains("0.5"));
    assert!(Blt::new(&[0.1], &[1.0]).unwrap_err().to_string().contains("is 1"));
}
