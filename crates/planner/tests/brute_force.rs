//! Every sensitivity against all patterns, one by one, on small matrices of all kinds.

use corrnoise_planner::{Adjacency, Factorization, Kind, Lower, Participation, Strategy};

/// A generator of test numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 11) as usize % limit
    }
    /// In [−1, 1).
    fn signed(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
    fn unit(&mut self) -> f64 {
        self.signed().abs()
    }
}

/// All patterns of a schema.
fn patterns(participation: &Participation, n: usize) -> Vec<Vec<usize>> {
    let subset = |bits: u32| (0..n).filter(|t| bits >> t & 1 == 1).collect::<Vec<_>>();
    match participation {
        Participation::Single => (0..n).map(|t| vec![t]).collect(),
        Participation::Full => vec![(0..n).collect()],
        Participation::Cyclic { separation, max_participations } => (0..(*separation).min(n))
            .map(|first| (first..n).step_by(*separation).take(*max_participations).collect())
            .collect(),
        Participation::MinSep { min_sep, max_participations } => (1..1_u32 << n)
            .filter(|bits| bits.count_ones() as usize <= *max_participations)
            .map(subset)
            .filter(|pattern| pattern.windows(2).all(|pair| pair[1] - pair[0] >= *min_sep))
            .collect(),
        Participation::Patterns(patterns) => patterns.clone(),
    }
}

/// The best pattern by sums of absolute values, and whether an allowed pair has a negative entry.
fn enumerate(matrix: &Lower, participation: &Participation) -> (f64, bool) {
    let n = matrix.len();
    let gram = |s: usize, t: usize| (0..n).map(|r| matrix.get(r, s) * matrix.get(r, t)).sum::<f64>();
    let entries: Vec<Vec<f64>> = (0..n).map(|s| (0..n).map(|t| gram(s, t)).collect()).collect();
    let (mut best, mut negative) = (0.0_f64, false);
    for pattern in patterns(participation, n) {
        let mut sum = 0.0;
        for &s in &pattern {
            for &t in &pattern {
                sum += entries[s][t].abs();
                negative |= entries[s][t] < -1e-12 * (entries[s][s] * entries[t][t]).sqrt();
            }
        }
        best = best.max(sum);
    }
    (best.sqrt(), negative)
}

/// ‖Σ_t C[:,t] u_tᵀ‖ over random unit vectors in a few dimensions and random patterns: no sensitivity may be below.
fn reachable(matrix: &Lower, participation: &Participation, random: &mut Random) -> f64 {
    let (n, dim) = (matrix.len(), 3);
    let all = patterns(participation, n);
    let mut best = 0.0_f64;
    for _ in 0..20 {
        let pattern = &all[random.below(all.len())];
        let mut moved = vec![0.0; n * dim];
        for &t in pattern {
            let mut u: Vec<f64> = (0..dim).map(|_| random.signed()).collect();
            let norm = u.iter().map(|x| x * x).sum::<f64>().sqrt();
            u.iter_mut().for_each(|x| *x /= norm);
            for row in t..n {
                (0..dim).for_each(|i| moved[row * dim + i] += matrix.get(row, t) * u[i]);
            }
        }
        best = best.max(moved.iter().map(|x| x * x).sum::<f64>().sqrt());
    }
    best
}

fn random_dense(random: &mut Random, n: usize, entry: fn(&mut Random) -> f64) -> Strategy {
    let mut rows = vec![vec![0.0; n]; n];
    for (t, row) in rows.iter_mut().enumerate() {
        row[..t].iter_mut().for_each(|value| *value = entry(random));
        row[t] = 0.1 + random.unit();
    }
    Strategy::Dense(Lower::new(&rows).unwrap())
}

fn random_strategy(random: &mut Random, n: usize) -> Strategy {
    let positive = |random: &mut Random| 0.1 + random.unit();
    match random.below(7) {
        0 => random_dense(random, n, Random::unit),
        1 => random_dense(random, n, Random::signed),
        2 => {
            let bands = 1 + random.below(n);
            let row = |t: usize, random: &mut Random| {
                (0..bands.min(t + 1))
                    .map(|a| if a == 0 { positive(random) } else { random.signed() })
                    .collect()
            };
            Strategy::banded((0..n).map(|t| row(t, random)).collect()).unwrap()
        }
        3 => {
            let bands = 1 + random.below(n);
            Strategy::toeplitz(
                (0..bands).map(|a| if a == 0 { positive(random) } else { random.signed() }).collect(),
            )
            .unwrap()
        }
        4 => {
            let mut coefs: Vec<f64> = (0..1 + random.below(n)).map(|_| positive(random)).collect();
            coefs.sort_by(|a, b| b.total_cmp(a));
            Strategy::toeplitz(coefs).unwrap()
        }
        5 => Strategy::banded_inverse_square_root(1 + random.below(n)).unwrap(),
        _ => Strategy::one_parameter(random.unit() * 0.99).unwrap(),
    }
}

fn random_participation(random: &mut Random, n: usize) -> Participation {
    let separation = 1 + random.below(n);
    let max_participations = 1 + random.below(n.div_ceil(separation));
    match random.below(5) {
        0 => Participation::Single,
        1 => Participation::Full,
        2 => Participation::Cyclic { separation, max_participations },
        3 => Participation::MinSep { min_sep: separation, max_participations },
        _ => {
            let pattern = |random: &mut Random| {
                let bits = 1 + random.below((1 << n) - 1);
                (0..n).filter(|t| bits >> t & 1 == 1).collect()
            };
            Participation::Patterns((0..1 + random.below(4)).map(|_| pattern(random)).collect())
        }
    }
}

#[test]
fn every_sensitivity_agrees_with_all_patterns() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut exact, mut bounds, mut tight) = (0, 0, 0);
    for case in 0..12_000 {
        let n = 2 + random.below(if case % 10 == 0 { 13 } else { 8 });
        let strategy = random_strategy(&mut random, n);
        let mut factorization = Factorization::new(strategy, n).unwrap();
        if random.below(4) == 0 {
            factorization = factorization.restarted(1 + random.below(n)).unwrap();
        }
        if random.below(4) == 0 {
            factorization = factorization.column_normalized().unwrap();
        }
        let participation = random_participation(&mut random, n);
        let matrix = factorization.matrix().unwrap();
        let (best, negative) = enumerate(&matrix, &participation);
        let got = factorization.sensitivity(&participation, Adjacency::ZeroOut).unwrap();
        let what = || {
            format!(
                "case {case}: {}, {participation:?}: {got:?}, brute force {best}",
                factorization.describe()
            )
        };
        match got.kind {
            Kind::Exact => {
                assert!((got.value / best - 1.0).abs() <= 1e-12, "{}", what());
                exact += 1;
            }
            Kind::UpperBound => {
                assert!(negative, "an exact answer exists: {}", what());
                assert!(got.value >= best * (1.0 - 1e-12), "{}", what());
                tight += usize::from(got.value <= best * (1.0 + 1e-9));
                bounds += 1;
            }
        }
        assert!(got.value >= reachable(&matrix, &participation, &mut random) * (1.0 - 1e-12), "{}", what());
        let replaced = factorization.sensitivity(&participation, Adjacency::ReplaceOne).unwrap();
        assert_eq!(replaced.value, 2.0 * got.value);
    }
    println!(
        "{exact} exact, {bounds} upper bounds, {tight} of them the sum of absolute values of the best pattern"
    );
    assert!(exact > 8_000 && bounds > 500);
}

/// Bounds that are used where enumeration is too long: never below the truth, here by the exact answer at small sizes.
#[test]
fn large_signed_matrices_get_upper_bounds() {
    let mut random = Random(12345);
    let coefs: Vec<f64> = (0..200).map(|t| random.signed() / (1.0 + t as f64)).map(|c| c + 0.001).collect();
    let factorization = Factorization::new(Strategy::toeplitz(coefs).unwrap(), 200).unwrap();
    let participation = Participation::MinSep { min_sep: 20, max_participations: 7 };
    let toeplitz = factorization.sensitivity(&participation, Adjacency::ZeroOut).unwrap();
    assert_eq!(toeplitz.kind, Kind::UpperBound);
    let normalized = factorization.clone().column_normalized().unwrap();
    let windows = normalized.sensitivity(&participation, Adjacency::ZeroOut).unwrap();
    assert_eq!(windows.kind, Kind::UpperBound);
    for (matrix, bound) in
        [(factorization.matrix().unwrap(), toeplitz), (normalized.matrix().unwrap(), windows)]
    {
        // Early and often, and random patterns.
        for trial in 0..300 {
            let mut t = if trial == 0 { 0 } else { random.below(20) };
            let mut pattern = Vec::new();
            while t < 200 && pattern.len() < 7 {
                pattern.push(t);
                t += 20 + if trial == 0 { 0 } else { random.below(10) };
            }
            let schema = Participation::Patterns(vec![pattern]);
            assert!(bound.value >= reachable(&matrix, &schema, &mut random), "{bound:?}");
        }
    }
}
