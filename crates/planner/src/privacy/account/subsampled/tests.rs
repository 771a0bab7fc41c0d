//! Bounds of the subsampled Gaussian mechanism against independent ones.

use super::*;

fn epsilon(noise_multiplier: f64, sampling_prob: f64, num_steps: u64, delta: f64) -> f64 {
    Subsampled::new(noise_multiplier, sampling_prob, num_steps).unwrap().epsilon(delta).unwrap()
}

/// What the transforms make of p close to 1 must meet the closed form of p = 1 from below.
#[test]
fn nearly_certain_sampling_is_nearly_gaussian() {
    for (sigma, steps) in [(1.0, 2), (5.0, 30), (20.0, 1000), (300.0, 1_000_000), (0.7, 2), (0.05, 3)] {
        for delta in [1e-3, 1e-5, 1e-8, 1e-30, 1e-200] {
            // Losses of adding end at −ln(1 − p) = 16 per step.
            let mechanism = Subsampled::new(sigma, 1.0 - 1e-7, steps).unwrap();
            let exact = gdp::epsilon_of_delta((steps as f64).sqrt() / sigma, delta).unwrap();
            let reachable =
                |direction: &Direction| *direction == Direction::Remove || exact < 8.0 * steps as f64;
            for direction in [Direction::Remove, Direction::Add].into_iter().filter(reachable) {
                let got = mechanism.composed_epsilon(direction, FINE, delta.ln(), 0.0);
                let ratio = got / exact;
                assert!(ratio > 1.0 - 1e-5 && ratio < 1.000_3, "{sigma}, {steps}, {delta}: {exact} {got}");
            }
        }
    }
}

/// Limits of dp_accounting 0.6.0 on ever finer grids.
#[test]
fn rare_sampling_over_many_steps() {
    for (sigma, p, steps, delta, limit) in [
        (0.5, 1e-4, 10_000, 1e-6, 1.953_224),
        (0.9, 1e-4, 100_000, 1e-8, 0.241_22),
        (2.0, 1e-3, 1, 1e-10, 0.011_004_6),
    ] {
        let got = epsilon(sigma, p, steps, delta);
        assert!(got >= limit * 0.999_95 && got <= limit * 1.001, "{sigma}, {p}, {steps}: {limit} {got}");
    }
}

/// Atoms: both distributions keep their mass, and the pair's moments are no smaller than the true ones.
#[test]
fn atoms_are_a_pair_that_dominates() {
    for (sigma, p) in [(0.05, 1e-3), (0.5, 1e-6), (1.0, 0.3), (30.0, 0.9)] {
        let step = Step { sigma, p };
        let ends = step.cells(-9.0 * sigma, 1.0 + 9.0 * sigma);
        let losses = step.losses(&ends, Direction::Remove);
        for (order, total) in [(0.0, 1.0), (1.0, 1.0 - losses.ln_infinite.exp())] {
            let sum: f64 = (0..losses.len()).map(|j| losses.tilted(j, order, 0.0)).sum();
            assert!((sum - total).abs() < 1e-12, "{sigma}, {p}: {sum} {total}");
        }
        // E[(1 + y)²] = 1 + p²(e^{1/σ²} − 1) exactly, where its integrand has not left the cells.
        if sigma >= 0.5 {
            let exact = (p * p * (1.0 / (sigma * sigma)).exp_m1()).ln_1p();
            let got = losses.ln_moment(2.0, losses.len());
            assert!(got >= exact * (1.0 - 1e-9) && got < exact * 1.01, "{sigma}, {p}: {exact} {got}");
            // Finer cells come closer.
            let fine = step.losses(&divided(&ends, &vec![20; ends.len() - 1]), Direction::Remove);
            let closer = fine.ln_moment(2.0, fine.len());
            assert!(closer <= got && closer >= exact * (1.0 - 1e-9) && closer < exact * 1.000_1);
        }
    }
}

/// Rényi divergences of integer orders: another route to an upper bound, which is never below the truth.
fn renyi_epsilon(sigma: f64, p: f64, steps: u64, delta: f64) -> f64 {
    let ln_binomial =
        |n: f64, k: f64| libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0);
    let order = |alpha: u32| {
        let a = f64::from(alpha);
        let terms: Vec<f64> = (0..=alpha)
            .map(f64::from)
            .map(|k| {
                ln_binomial(a, k)
                    + (a - k) * (-p).ln_1p()
                    + k * p.ln()
                    + k * (k - 1.0) / (2.0 * sigma * sigma)
            })
            .collect();
        let most = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let divergence = (terms.iter().map(|t| (t - most).exp()).sum::<f64>().ln() + most) / (a - 1.0);
        steps as f64 * divergence - delta.ln() / (a - 1.0)
    };
    (2..256).map(order).fold(f64::INFINITY, f64::min)
}

#[test]
fn renyi_is_never_better() {
    for (sigma, p, steps) in [(1.0, 0.01, 1000), (0.6, 0.001, 10_000), (4.0, 0.2, 500), (1.5, 1e-4, 100_000)]
    {
        let (tight, loose) = (epsilon(sigma, p, steps, 1e-6), renyi_epsilon(sigma, p, steps, 1e-6));
        assert!(tight < loose && tight > 0.2 * loose, "{sigma}, {p}, {steps}: {tight} {loose}");
    }
}

#[test]
fn more_noise_fewer_steps_and_less_sampling_never_cost_more() {
    let base = epsilon(1.0, 0.02, 300, 1e-6);
    assert!(epsilon(1.1, 0.02, 300, 1e-6) < base && epsilon(1.0, 0.018, 300, 1e-6) < base);
    assert!(epsilon(1.0, 0.02, 270, 1e-6) < base && epsilon(1.0, 0.02, 300, 1e-5) < base);
    let back = Subsampled::new(1.0, 0.02, 300).unwrap().delta(base).unwrap();
    assert!((back / 1e-6 - 1.0).abs() < 1e-3, "{back}");
}

/// No run is better than one of its steps or worse than certain participation, and both ends are exact.
#[test]
fn extremes_lie_between_exact_bounds() {
    for sigma in [1e-3, 0.01, 0.05, 0.3, 300.0] {
        for p in [1e-12, 1e-9, 1e-3, 0.5, 1.0 - 1e-16, 1.0] {
            for steps in [1, 5, 1000, 1_000_000_000_000] {
                for delta in [1e-300, 1e-70, 1e-6, 0.3, 1.0 - 1e-12] {
                    let mechanism = Subsampled::new(sigma, p, steps).unwrap();
                    let got = mechanism.epsilon_with(COARSE, delta).unwrap();
                    let least = Subsampled { num_steps: 1, ..mechanism }.epsilon(delta).unwrap();
                    let ever = 1.0 - (1.0 - p).powf(steps as f64) <= delta;
                    let least = if ever { 0.0 } else { least };
                    let most = gdp::epsilon_of_delta((steps as f64).sqrt() / sigma, delta).unwrap();
                    let fits = got >= least * (1.0 - 1e-14) && got <= most * (1.0 + 1e-14);
                    assert!(fits, "{sigma}, {p}, {steps}, {delta}: {got} in {least}..{most}");
                }
            }
        }
    }
}

#[test]
fn what_is_no_mechanism_is_named() {
    let message = |sigma, p, steps| Subsampled::new(sigma, p, steps).unwrap_err().to_string();
    assert!(message(0.0, 0.1, 1).contains("noise multiplier is 0"));
    assert!(message(1.0, 1.5, 1).contains("sampling probability is 1.5"));
    assert!(message(1.0, 0.1, 0).contains("number of steps is 0"));
}
