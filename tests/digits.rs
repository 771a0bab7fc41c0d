//! Correlated noise trains a better model than independent noise, on real data at equal (ε, δ): `examples/digits.rs` in short.

use corrnoise::planner::account::Budget;
use corrnoise_testkit::digits::{DIM, Digits, Mean, Noise, SETUP, in_parallel, prefix_noise, train};

const SEEDS: usize = 6;

fn digits() -> Digits {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/digits.csv");
    Digits::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The mean test error at ε = 2; the rates are those that the example finds.
fn mean_error(digits: &Digits, noise: Noise, rate: f64) -> Mean {
    let plan = noise.plan(&SETUP, digits.train.len(), Budget::new(2.0, 1e-5).unwrap()).unwrap();
    Mean::of(&in_parallel(SEEDS, |seed| train(digits, &SETUP, &plan, seed as u64, rate)).unwrap())
}

#[test]
fn banded_noise_beats_independent_noise() {
    let digits = digits();
    assert_eq!((digits.train.len(), digits.test.len()), (1437, 360));
    let independent = mean_error(&digits, Noise::Independent, 0.1);
    let banded = mean_error(&digits, Noise::Banded, 0.8);
    let standard_error = independent.standard_error.hypot(banded.standard_error);
    assert!(independent.mean - banded.mean > 3.0 * standard_error, "{independent:?}, {banded:?}");
    assert!(independent.mean - banded.mean > 0.08 && banded.mean < 0.09, "{independent:?}, {banded:?}");
}

/// For independent noise, the prefix sum after t steps has √t times the plan's standard deviation.
#[test]
fn prefix_noise_is_that_of_the_plan() {
    let budget = Budget::new(8.0, 1e-5).unwrap();
    let plan = Noise::Independent.plan(&SETUP, 1437, budget).unwrap();
    let measured = prefix_noise(&plan, 1).unwrap();
    assert_eq!(measured.len(), SETUP.num_steps());
    // The relative standard error of a root mean square over DIM coordinates.
    let tolerance = 5.0 / (2.0 * DIM as f64).sqrt();
    for step in [1, 10, 1024] {
        let expected = plan.stddev() * (step as f64).sqrt();
        let ratio = measured[step - 1] / expected;
        assert!((ratio - 1.0).abs() < tolerance, "step {step}: {ratio}");
    }
}

#[test]
fn lines_that_are_no_images_are_refused() {
    for text in ["1,2,3", "x", &format!("{}10", "0,".repeat(64)), &"0,".repeat(65)] {
        assert!(Digits::parse(text).is_err(), "{text:?}");
    }
    assert!(Digits::parse(&format!("# comment\n{}9\n", "0,".repeat(64))).is_ok());
}
