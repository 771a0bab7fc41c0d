//! Redrawn allocation against oracles that share nothing with it: lattices for one epoch, importance-sampled Monte Carlo for several.

use super::Redrawn;
use crate::privacy::account::Subsampled;

/// The numbers of an oracle's lines.
fn rows(text: &str) -> Vec<Vec<f64>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect()).collect()
}

/// One epoch: independent lognormals, to 1e-3 from above.
#[test]
fn one_epoch_is_hardly_above_the_truth() {
    let mut count = 0;
    for row in rows(include_str!("../../../../tests/data/allocation_limits.txt")) {
        let [b, eps, add, add_error, rem, rem_error, g, d] = row.try_into().unwrap();
        if g != 0.0 || b == 1.0 {
            continue;
        }
        let got = Redrawn::new(1.0 / f64::sqrt(d), b as u64, 1).unwrap().delta(eps).unwrap();
        let truth = f64::max(add - add_error, rem - rem_error);
        assert!(got >= truth && got < 1.001 * truth, "b = {b}, ε = {eps}, d = {d}: {got:e}, {truth:e}");
        count += 1;
    }
    assert_eq!(count, 12);
}

/// Several epochs: within four standard errors from below and from above.
#[test]
fn epochs_compose() {
    let mut count = 0;
    for row in rows(include_str!("../../../../tests/data/allocation_epochs.txt")) {
        let [b, k, eps, add, add_error, rem, rem_error, d] = row.try_into().unwrap();
        let got = Redrawn::new(1.0 / f64::sqrt(d), b as u64, k as u64).unwrap();
        let delta = got.delta(eps).unwrap();
        let (truth, error) = if add > rem { (add, add_error) } else { (rem, rem_error) };
        assert!(
            delta > truth - 4.0 * error && delta < 1.002 * truth + 4.0 * error,
            "{got:?}, ε = {eps}: {delta:e}, {truth:e} ± {error:e}"
        );
        let back = got.epsilon(delta).unwrap();
        assert!((back / eps - 1.0).abs() < 1e-3, "{got:?}: {back}, {eps}");
        count += 1;
    }
    assert!(count >= 12, "{count}");
}

/// An epoch of one step is the Gaussian mechanism; more bins, more noise and fewer epochs are never worse; Poisson sampling is close.
#[test]
fn limits_and_order() {
    let epsilon = |sigma, b, k| Redrawn::new(sigma, b, k).unwrap().epsilon(1e-6).unwrap();
    let gaussian = crate::privacy::account::epsilon_of_delta(f64::sqrt(3.0) / 2.0, 1e-6).unwrap();
    assert_eq!(epsilon(2.0, 1, 3), gaussian);
    let center = epsilon(1.0, 50, 5);
    assert!(epsilon(1.0, 60, 5) < center && epsilon(1.1, 50, 5) < center && epsilon(1.0, 50, 4) < center);
    let poisson = Subsampled::new(1.0, 0.02, 250).unwrap().epsilon(1e-6).unwrap();
    assert!(center < 1.01 * poisson && center > 0.8 * poisson, "{center} {poisson}");
}

/// Any noise ends soon with a bound that is no larger than the one without amplification.
#[test]
fn sizes_without_atoms_have_the_plain_bound() {
    for (sigma, delta) in
        [(1e-100, 1e-6), (0.05, 1e-6), (0.3, 1e-300), (1e6, 1e-3), (1e17, 1e-12), (1e100, 0.5)]
    {
        let plain = crate::privacy::account::epsilon_of_delta(2.0 / sigma, delta).unwrap();
        assert_eq!(Redrawn::new(sigma, 100, 4).unwrap().epsilon(delta).unwrap(), plain, "{sigma} {delta}");
    }
    for (sigma, b, k, delta) in
        [(0.25, 1 << 20, 3, 1e-6), (1e4, 1000, 1 << 20, 1e-9), (3.0, 2, 1, 1.0 - 1e-9)]
    {
        let plain = crate::privacy::account::epsilon_of_delta(f64::sqrt(k as f64) / sigma, delta).unwrap();
        let found = Redrawn::new(sigma, b, k).unwrap().epsilon(delta).unwrap();
        assert!(found <= plain && found >= 0.0, "{sigma} {b} {k}: {found} {plain}");
    }
}

#[test]
fn what_is_no_mechanism_is_refused() {
    for (sigma, b, k, name) in [
        (0.0, 2, 2, "noise multiplier is 0"),
        (f64::NAN, 2, 2, "noise multiplier"),
        (1.0, 0, 2, "number of bins is 0: expected 1 to"),
        (1.0, 2, 0, "number of epochs is 0: expected 1 to"),
    ] {
        let error = Redrawn::new(sigma, b, k).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}
