//! Laws by brute force over all patterns, estimates against quadrature, known limits and a peer.

mod bets;

use super::Law;
use super::estimate::{Proposal, usual_tilt};
use super::source::{Source, cipher};
use crate::privacy::account::Subsampled;
use crate::privacy::account::allocation::Bins;
use crate::privacy::account::allocation::grid::Direction;
use crate::{Factorization, Strategy};
use corrnoise_numerics::{LANES, Lane, exponentials, sparse_times_lanes};

const BOTH: [Direction; 2] = [Direction::Add, Direction::Remove];

fn key(number: u64) -> [u8; 32] {
    std::array::from_fn(|i| if i < 8 { number.to_le_bytes()[i] } else { 7 })
}

fn toeplitz(coefs: &[f64], n: usize) -> Factorization {
    let coefs: Vec<f64> = (0..n).map(|t| coefs.get(t).copied().unwrap_or(0.0)).collect();
    Factorization::new(Strategy::toeplitz(coefs).unwrap(), n).unwrap()
}

/// All patterns of spaced Poisson sampling and their probabilities, by following a unit step by step.
fn patterns(n: usize, b: usize, p: f64) -> Vec<(Vec<usize>, f64)> {
    let mut out: Vec<(Vec<usize>, f64)> = Vec::new();
    let period = (b - 1) as f64 + 1.0 / p;
    // (the step, from which step on it is free, its steps so far, probability)
    let mut open: Vec<(usize, usize, Vec<usize>, f64)> =
        (0..b).map(|wait| (0, wait, Vec::new(), if wait == 0 { 1.0 / p } else { 1.0 } / period)).collect();
    while let Some((t, free, steps, prob)) = open.pop() {
        if t == n {
            match out.iter_mut().find(|(known, _)| *known == steps) {
                Some((_, sum)) => *sum += prob,
                None => out.push((steps, prob)),
            }
            continue;
        }
        if t < free {
            open.push((t + 1, free, steps, prob));
            continue;
        }
        let joined = [steps.clone(), vec![t]].concat();
        open.push((t + 1, t + b, joined, prob * p));
        open.push((t + 1, free, steps, prob * (1.0 - p)));
    }
    out
}

fn random(source: &mut Source<'_>, count: usize) -> Vec<Lane> {
    let mut out = Vec::new();
    source.normals(&mut Vec::new(), &mut out, count);
    out
}

/// The density ratio by its definition, for every pattern's mean vector, against the recursion over steps.
#[test]
fn the_recursion_is_the_sum_over_all_patterns() {
    let cipher = cipher(&key(1));
    for (case, (n, b, p, coefs)) in [
        (9, 3, 0.35, &[1.0, 0.7, 0.4][..]),
        (9, 3, 1.0, &[1.0, 0.7, 0.4]),
        (7, 1, 0.2, &[1.3]),
        (8, 5, 0.6, &[1.0, 0.2]),
        (4, 9, 0.3, &[1.0, 0.5, 0.25]),
        (1, 2, 0.4, &[1.0]),
    ]
    .into_iter()
    .enumerate()
    {
        let running = toeplitz(coefs, n);
        let law = Law::spaced(&running, b as u64, p, 1e-6).unwrap();
        let matrix = running.matrix().unwrap();
        let all = patterns(n, b, p);
        assert!((all.iter().map(|(_, p)| p).sum::<f64>() - 1.0).abs() < 1e-14);
        let output = random(&mut Source::new(&cipher, case as u64), n);
        let constants: Vec<f64> = law.squares.iter().map(|square| -0.5 * square).collect();
        let mut weights = vec![[0.0; LANES]; n];
        sparse_times_lanes(&law.vectors, &constants, &output, &mut weights);
        exponentials(weights.as_flattened_mut());
        let found = law.mean(&mut weights);
        for lane in 0..LANES {
            let ratio: f64 = all
                .iter()
                .map(|(steps, prob)| {
                    let mean: Vec<f64> = (0..n)
                        .map(|t| steps.iter().filter(|s| **s <= t).map(|s| matrix.get(t, *s)).sum())
                        .collect();
                    let (dot, square): (f64, f64) = mean
                        .iter()
                        .zip(&output)
                        .fold((0.0, 0.0), |(dot, square), (m, y)| (dot + m * y[lane], square + m * m));
                    prob * (dot - 0.5 * square).exp()
                })
                .sum();
            assert!((found[lane] / ratio - 1.0).abs() < 1e-7, "case {case}: {} {ratio}", found[lane]);
        }
        let participation: f64 =
            all.iter().filter(|(steps, _)| steps.contains(&(n - 1))).map(|(_, p)| p).sum();
        assert!((law.participation() / participation - 1.0).abs() < 1e-13, "case {case}");
    }
}

/// Every pattern is drawn as often as its reweighted probability says, within five standard deviations.
#[test]
fn patterns_are_drawn_as_often_as_they_should() {
    let cipher = cipher(&key(2));
    for (case, (n, b, p)) in [(6, 2, 0.4), (5, 3, 1.0), (4, 1, 0.5), (3, 7, 0.3)].into_iter().enumerate() {
        let law = Law::spaced(&toeplitz(&[1.0], n), b as u64, p, 1e-6).unwrap();
        let factors: Vec<f64> = (0..n).map(|t| 1.0 + 0.4 * t as f64).collect();
        let mut weights: Vec<Lane> = factors.iter().map(|factor| [*factor; LANES]).collect();
        let mean = law.mean(&mut weights);
        let all = patterns(n, b, p);
        let weight = |steps: &[usize]| steps.iter().map(|s| factors[*s]).product::<f64>();
        let total: f64 = all.iter().map(|(steps, prob)| prob * weight(steps)).sum();
        assert!((mean[case] / total - 1.0).abs() < 1e-13);
        let mut counts = std::collections::BTreeMap::new();
        let mut source = Source::new(&cipher, case as u64);
        const DRAWS: f64 = 40_000.0;
        for _ in 0..DRAWS as usize {
            let mut steps = Vec::new();
            law.draw(&weights, &mean, case, &mut source, |step| steps.push(step));
            *counts.entry(steps).or_insert(0.0) += 1.0;
        }
        for (steps, prob) in &all {
            let expected = prob * weight(steps) / total;
            let found = counts.remove(steps).unwrap_or(0.0) / DRAWS;
            let error = (expected * (1.0 - expected) / DRAWS).sqrt();
            assert!((found - expected).abs() < 5.0 * error + 1e-9, "{case} {steps:?}: {found} {expected}");
        }
        assert!(counts.is_empty(), "{counts:?}");
    }
}

fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, (values.iter().map(|y| (y - mean).powi(2)).sum::<f64>()).sqrt() / n)
}

fn usual(law: &Law, stddev: f64, epsilon: f64, direction: Direction) -> Proposal<'_> {
    Proposal::new(law, stddev, epsilon, direction, usual_tilt(law, stddev, epsilon, direction))
}

/// The 260 Gram matrices of two and three bins whose hockey sticks are known by quadrature: no sample is above its bound, and means are right.
#[test]
fn estimates_are_those_of_quadrature() {
    let data = include_str!("../../../../tests/data/allocation_small.txt");
    let (mut squares, mut cases) = (0.0, 0.0);
    for (case, line) in data.lines().filter(|line| !line.starts_with('#')).enumerate() {
        let numbers: Vec<f64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let (b, epsilon, entries) = (numbers[0] as usize, numbers[1], &numbers[6..]);
        let entry = |j: usize, l: usize| entries[j.max(l) * (j.max(l) + 1) / 2 + j.min(l)];
        let all = (0..b * b).map(|at| entry(at / b, at % b)).collect();
        let law = Law::bins(&Bins::written(all, b, 1)).unwrap();
        for (direction, exact) in BOTH.into_iter().zip([numbers[2], numbers[4]]) {
            let proposal = usual(&law, 1.0, epsilon, direction);
            let values = proposal.samples(1 << 13, &key(case as u64));
            let largest = values.iter().fold(0.0_f64, |most, y| most.max(*y));
            assert!(largest <= proposal.most(), "{case} {direction:?}: {largest:e} {:e}", proposal.most());
            let (mean, error) = mean_and_error(&values);
            let off = (mean - exact) / (error + 1e-6 * exact);
            assert!(off.abs() < 5.5, "{case} {direction:?}: {mean:e} ± {error:e}, {exact:e}");
            squares += off * off;
            cases += 1.0;
        }
    }
    // The mean square of so many standard scores.
    assert!(cases == 520.0 && (0.75..1.25).contains(&(squares / cases)), "{cases} {}", squares / cases);
}

/// Independent noise under Poisson sampling, which has an accountant of its own that is a ten-thousandth above the truth.
#[test]
fn no_separation_is_poisson_sampling() {
    for (case, (n, p, sigma, delta, order)) in
        [(4_u64, 0.3, 2.0, 1e-3, 5.0), (50, 0.05, 0.8, 1e-6, 3.0)].into_iter().enumerate()
    {
        let law = Law::spaced(&toeplitz(&[1.0], n as usize), 1, p, 1e-6).unwrap();
        let epsilon = Subsampled::new(sigma, p, n).unwrap().epsilon(delta).unwrap();
        let sides = BOTH.map(|direction| {
            let proposal = match direction {
                Direction::Add => Proposal::new(&law, sigma, epsilon, direction, order),
                Direction::Remove => usual(&law, sigma, epsilon, direction),
            };
            mean_and_error(&proposal.samples(1 << 17, &key(case as u64)))
        });
        let (mean, error) = if sides[0].0 > sides[1].0 { sides[0] } else { sides[1] };
        assert!((mean - delta).abs() < 4.0 * error + 1e-3 * delta, "{n}: {mean:e} ± {error:e}");
        assert!(error < 0.05 * delta, "{n}: {error:e}");
    }
}

/// A certain unit of a separation that divides the run is a ball in bins; so is its bound.
#[test]
fn certain_units_are_balls_in_bins() {
    let (n, b) = (12, 4);
    let running = toeplitz(&[1.0, 0.6, 0.3], n);
    let spaced = Law::spaced(&running, b as u64, 1.0, 1e-6).unwrap();
    let bins = Law::bins(&Bins::of(&running, b as u64).unwrap()).unwrap();
    for direction in BOTH {
        let [a, c] = [&spaced, &bins].map(|law| {
            let proposal = usual(law, 2.5, 1.0, direction);
            mean_and_error(&proposal.samples(1 << 16, &key(3)))
        });
        let ((mean, error), (other, other_error)) = (a, c);
        let off = (mean - other) / error.hypot(other_error);
        assert!(off.abs() < 4.0, "{direction:?}: {mean:e} {other:e}");
    }
}

/// Plain Monte Carlo of the run, with every pattern in a sum of its own, against the tilted estimate.
#[test]
fn spaced_estimates_are_those_of_plain_sampling() {
    let (n, b, p, sigma, epsilon) = (7, 3, 0.4, 1.2, 0.8_f64);
    let running = toeplitz(&[1.0, 0.5, 0.2], n);
    let law = Law::spaced(&running, b as u64, p, 1e-6).unwrap();
    let matrix = running.matrix().unwrap();
    let all: Vec<(Vec<f64>, f64)> = patterns(n, b, p)
        .into_iter()
        .map(|(steps, prob)| {
            let at = |t: usize| steps.iter().filter(|s| **s <= t).map(|s| matrix.get(t, *s)).sum::<f64>();
            ((0..n).map(|t| at(t) / sigma).collect(), prob)
        })
        .collect();
    let cipher = cipher(&key(4));
    let mut source = Source::new(&cipher, 0);
    let mut plain = [Vec::new(), Vec::new()];
    for _ in 0..20_000 / LANES {
        let noise = random(&mut source, n);
        #[allow(clippy::needless_range_loop)] // of all rows
        for lane in 0..LANES {
            let mut at = source.uniform();
            let own = all.iter().find(|(_, prob)| {
                at -= prob;
                at < 0.0
            });
            let own = &own.unwrap_or(&all[0]).0;
            for (side, shift) in [(0, 1.0), (1, 0.0)] {
                let ratio: f64 = all
                    .iter()
                    .map(|(mean, prob)| {
                        let exponent: f64 = (0..n)
                            .map(|t| mean[t] * (noise[t][lane] + shift * own[t]) - 0.5 * mean[t] * mean[t])
                            .sum();
                        prob * exponent.exp()
                    })
                    .sum();
                let loss = if side == 0 { epsilon.exp() / ratio } else { epsilon.exp() * ratio };
                plain[side].push((1.0 - loss).max(0.0));
            }
        }
    }
    for (direction, plain) in BOTH.into_iter().zip(&plain) {
        let proposal = usual(&law, sigma, epsilon, direction);
        let values = proposal.samples(1 << 16, &key(5));
        assert!(values.iter().all(|y| *y <= proposal.most()));
        let ((mean, error), (expected, plain_error)) = (mean_and_error(&values), mean_and_error(plain));
        let off = (mean - expected) / error.hypot(plain_error);
        assert!(
            off.abs() < 4.0 && error < plain_error,
            "{direction:?}: {mean:e} ± {error:e}, {expected:e} ± {plain_error:e}"
        );
    }
}

/// Samples are the same however they are dealt out.
#[test]
fn samples_depend_on_their_place_alone() {
    let law = Law::spaced(&toeplitz(&[1.0, 0.5], 9), 3, 0.4, 1e-6).unwrap();
    for direction in BOTH {
        let proposal = usual(&law, 1.5, 1.0, direction);
        let [short, long] = [520, 2048].map(|count| proposal.samples(count, &key(6)));
        assert_eq!(short[..], long[..520]);
        assert_ne!(short[..8], short[8..16]);
        assert_ne!(proposal.samples(8, &key(7)), short[..8]);
    }
}

#[test]
fn laws_that_are_not_known_are_refused_by_name() {
    let refused =
        |running: &Factorization, b: u64| Law::spaced(running, b, 0.5, 1e-6).unwrap_err().to_string();
    let four = toeplitz(&[1.0, 0.5, 0.2, 0.1], 20);
    assert!(refused(&four, 3).contains("number of bands is 4: expected at most 3, the separation"));
    assert!(refused(&toeplitz(&[1.0, -0.5], 20), 3).contains("coefficient of the strategy 1 is -0.5"));
    let inverse = Factorization::new(Strategy::banded_inverse(vec![1.0, -0.5]).unwrap(), 20).unwrap();
    assert!(refused(&inverse, 3).contains("number of bands is 20"));
    // Restarts and scales are part of the matrix that runs.
    let restarted = inverse.restarted(3).unwrap();
    let law = Law::spaced(&restarted, 3, 0.5, 1e-6).unwrap();
    let norms = restarted.column_norms_squared().unwrap();
    assert!(law.squares.iter().zip(&norms).all(|(a, b)| (a / b - 1.0).abs() < 1e-8));
    let scaled = four.columns_divided((0..20).map(|t| 1.0 + f64::from(t)).collect()).unwrap();
    let law = Law::spaced(&scaled, 4, 0.5, 1e-6).unwrap();
    let norms = scaled.column_norms_squared().unwrap();
    assert!(law.squares.iter().zip(&norms).all(|(a, b)| (a / b - 1.0).abs() < 1e-8));
    let many = Bins::moved(&vec![1.0; 5000], 2500, 0.0);
    assert!(Law::bins(&many).unwrap_err().to_string().contains("number of bins is 2500"));
}

/// jax_privacy's own estimates, by plain means of a million samples (`confident_peer.py`): within both confidence intervals.
#[test]
fn estimates_are_those_of_a_peer() {
    let data = include_str!("../../../../tests/data/confident_peer.txt");
    let mut cases = 0;
    for line in data.lines().filter(|line| !line.starts_with('#')) {
        let (kind, numbers) = line.split_once(' ').unwrap();
        let numbers: Vec<f64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        let [n, apart] = [0, 1].map(|at| numbers[at] as u64);
        let [prob, sigma, epsilon] = [2, 3, 4].map(|at| numbers[at]);
        let running = toeplitz(&numbers[9..], n as usize);
        let law = match kind {
            "bins" => Law::bins(&Bins::of(&running, apart).unwrap()).unwrap(),
            _ => Law::spaced(&running, apart, prob, 1e-6).unwrap(),
        };
        for (side, direction) in BOTH.into_iter().enumerate() {
            let values = usual(&law, sigma, epsilon, direction).samples(1 << 16, &key(9));
            let ((mean, error), peer, peer_error) =
                (mean_and_error(&values), numbers[5 + 2 * side], numbers[6 + 2 * side]);
            // Three standard errors of each.
            let apart = (mean - peer).abs();
            assert!(
                apart <= 3.0 * (error + peer_error),
                "{line} {direction:?}: {mean:e} ± {error:e}, {peer:e} ± {peer_error:e}"
            );
            assert!(error <= peer_error.max(0.03 * mean), "{line} {direction:?}: {mean:e} ± {error:e}");
        }
        cases += 1;
    }
    assert!(cases >= 9);
}
