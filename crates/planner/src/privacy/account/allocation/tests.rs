//! The programme against quadrature, limits and recorded values.

use super::grid::{Direction, Fineness};
use super::kernel::{Chain, Kernel};
use super::programme::Programme;

fn bound(kernel: &Kernel, epsilon: f64, direction: Direction, fineness: Fineness) -> f64 {
    kernel.check().unwrap();
    let programme = Programme::new(kernel, 1.0, epsilon, 1e-6, direction, fineness).unwrap().unwrap();
    programme.bound().unwrap()
}

fn circle(m: usize, a: f64, rho: f64, common: f64, white: f64) -> Kernel {
    Kernel { common, white, chain: Chain::circle(m, a, rho) }
}

#[test]
fn recorded_values() {
    let small = circle(2, 0.5, 0.6, 0.1, 0.2);
    for (direction, exact) in [(Direction::Add, 0.069_971_7), (Direction::Remove, 0.069_704_7)] {
        for fineness in [Fineness::FINE, Fineness::COARSE] {
            let found = bound(&small, 1.0, direction, fineness);
            println!("{direction:?} {fineness:?}: {found} {}", found / exact);
            assert!(found >= exact && found < (1.0 + 0.04 * fineness.0 * fineness.0) * exact);
        }
    }
    let large = circle(25, 0.22, 0.82, 0.1, 0.17);
    for (direction, close) in [(Direction::Add, 8.53e-7), (Direction::Remove, 8.37e-7)] {
        for fineness in [Fineness::FINE, Fineness::COARSE] {
            let start = std::time::Instant::now();
            let found = bound(&large, 2.0, direction, fineness);
            println!("{direction:?} {fineness:?}: {found:e} {}, {:?}", found / close, start.elapsed());
        }
    }
    let line = Kernel {
        common: 0.1,
        white: 0.2,
        chain: Chain::Line { num_bins: 12, variance: 0.5, correlation: 0.7 },
    };
    for (direction, close) in [(Direction::Add, 9.26e-5), (Direction::Remove, 5.81e-5)] {
        let found = bound(&line, 2.0, direction, Fineness::FINE);
        println!("line {direction:?}: {found:e} {}", found / close);
    }
}

#[test]
#[ignore = "lab"]
fn lab() {
    use super::gram::Bins;
    use super::search::least_stddev;
    let n = 1000;
    let bisr = |bands: usize| -> Vec<f64> {
        let mut w = vec![1.0_f64];
        for t in 1..bands {
            w.push(w[t - 1] * (t as f64 - 1.5) / t as f64);
        }
        let mut c = vec![0.0; n];
        for t in 0..n {
            let sum: f64 = (1..bands.min(t + 1)).map(|a| w[a] * c[t - a]).sum();
            c[t] = if t == 0 { 1.0 } else { -sum };
        }
        c
    };
    let blt = |scale: &[f64], decay: &[f64]| -> Vec<f64> {
        (0..n)
            .map(|t| {
                if t == 0 {
                    1.0
                } else {
                    scale.iter().zip(decay).map(|(a, l)| a * l.powi(t as i32 - 1)).sum()
                }
            })
            .collect()
    };
    let cases = vec![
        ("blt1", blt(&[0.1509], &[0.9668])),
        ("bisr32", bisr(32)),
        ("bisr24", bisr(24)),
        ("blt2", blt(&[0.2265, 0.0987], &[0.5583, 0.9765])),
    ];
    for (name, c) in cases {
        // Worst error: the norm of the last row of prefix sums times the inverse.
        let mut inverse = vec![0.0; n];
        for t in 0..n {
            let sum: f64 = (1..=t).map(|a| c[a] * inverse[t - a]).sum();
            inverse[t] = if t == 0 { 1.0 } else { -sum };
        }
        let mut sum = 0.0;
        let error = inverse
            .iter()
            .map(|w| {
                sum += w;
                sum * sum
            })
            .sum::<f64>()
            .sqrt();
        let bins = Bins::moved(&c, 100, 0.0);
        let start = std::time::Instant::now();
        for choice in super::choose::choices(&bins, 2.0, 1e-6) {
            let Choice { kernel, expected } = choice;
            println!("  {} bins: expected {}", kernel.num_bins(), expected * error);
        }
        println!("{name}: choices {:?}", start.elapsed());
        let (stddev, kernel) = least_stddev(&bins, 2.0, 1e-6, 1e9, |_| 1e-6).unwrap().unwrap();
        println!("{name}: {} with {} bins, {:?}", stddev * error, kernel.num_bins(), start.elapsed());
    }
}
#[cfg(test)]
use super::choose::Choice;
