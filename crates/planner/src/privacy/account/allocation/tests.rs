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
