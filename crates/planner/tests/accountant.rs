//! The accountant against an oracle that shares nothing with it: lower bounds of ε of the subsampled Gaussian mechanism, by another
//! method, in another language, in ball arithmetic (`data/subsampled.py`). The accountant is never below them, and hardly above.

use corrnoise_planner::account::{Budget, Search, Subsampled};

/// The oracle's settings: σ, p, steps, δ, a lower bound of ε, and ε.
fn settings() -> Vec<[f64; 6]> {
    let lines = include_str!("data/subsampled.txt").lines().filter(|line| !line.starts_with('#'));
    let numbers = |line: &str| line.split(' ').map(|word| word.parse().unwrap()).collect::<Vec<f64>>();
    lines.map(|line| numbers(line).try_into().unwrap_or_else(|_| panic!("{line}"))).collect()
}

#[test]
fn subsampled_claims_are_never_below_the_truth_and_hardly_above() {
    let settings = settings();
    let mut worst = 0.0_f64;
    for [sigma, p, steps, delta, lower, truth] in &settings {
        let mechanism = Subsampled::new(*sigma, *p, *steps as u64).unwrap();
        let got = mechanism.epsilon(*delta).unwrap();
        let most = (lower * 1.001).max(lower + 1e-6);
        assert!(
            got >= *lower && got <= most,
            "{mechanism:?}, δ = {delta:e}: {got}, expected {lower} to {most}"
        );
        worst = worst.max((got - truth) / truth.max(1e-3));
    }
    println!("{} settings, at most {worst:.2e} above the truth", settings.len());
    assert!(settings.len() >= 66, "{}", settings.len());
}

/// The δ of each of the oracle's ε is never below the oracle's δ.
#[test]
fn delta_inverts_epsilon() {
    for [sigma, p, steps, delta, lower, _] in
        settings().into_iter().filter(|row| row[4] > 1e-4 && row[4] < 1e3)
    {
        let mechanism = Subsampled::new(sigma, p, steps as u64).unwrap();
        let got = mechanism.delta(lower).unwrap();
        assert!(
            got >= delta * (1.0 - 1e-9) && got < 1.5 * delta,
            "{mechanism:?}, ε = {lower}: {got:e}, {delta:e}"
        );
    }
}

/// Calibration ends, with no less noise than the oracle allows.
#[test]
fn calibration_meets_the_settings() {
    for [sigma, p, steps, delta, _, truth] in settings() {
        // Where one step decides, or nothing is lost, less noise may be enough.
        if !(1e-3..=50.0).contains(&truth) || sigma < 0.06 {
            continue;
        }
        let budget = Budget::new(truth, delta).unwrap();
        let found = Subsampled::calibrated(budget, p, steps as u64, Search::Fine).unwrap().noise_multiplier;
        assert!(
            found >= sigma * (1.0 - 1e-9) && found < sigma * 1.001,
            "{sigma}, {p}, {steps}, {delta}: {found}"
        );
    }
}
