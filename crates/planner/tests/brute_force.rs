//! Every sensitivity is compared with an enumeration of all patterns, on small matrices of all kinds.

use corrnoise_planner::optimize::{Objective, Problem};
use corrnoise_planner::{
    Adjacency, Blt, Estimator, Exactness, Factorization, LowerTriangular, Participation, Strategy, Tree,
    Workload,
};

/// A generator of pseudo-random test numbers.
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
    /// A uniform number in [−1, 1).
    fn signed(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
    fn unit(&mut self) -> f64 {
        self.signed().abs()
    }
}

/// All patterns of a participation schema.
fn patterns(participation: &Participation, n: usize) -> Vec<Vec<usize>> {
    let subset = |bits: u32| (0..n).filter(|t| bits >> t & 1 == 1).collect::<Vec<_>>();
    match participation {
        Participation::Single => (0..n).map(|t| vec![t]).collect(),
        Participation::Full => vec![(0..n).collect()],
        // Cycles begin at every step, and every part of such a cycle is a pattern too.
        Participation::Cyclic { separation, max_participations } => (0..n)
            .flat_map(|first| {
                let cycle: Vec<usize> = (first..n).step_by(*separation).take(*max_participations).collect();
                let part = |bits: u32, cycle: &[usize]| {
                    (0..cycle.len()).filter(|i| bits >> i & 1 == 1).map(|i| cycle[i]).collect::<Vec<_>>()
                };
                (1..1_u32 << cycle.len()).map(move |bits| part(bits, &cycle)).collect::<Vec<_>>()
            })
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
fn enumerate(rows: &[Vec<f64>], participation: &Participation) -> (f64, bool) {
    let n = rows[0].len();
    let gram = |s: usize, t: usize| rows.iter().map(|row| row[s] * row[t]).sum::<f64>();
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

/// The largest ‖Σ_t C[:,t] u_tᵀ‖ over random unit vectors in a few dimensions and random patterns: no sensitivity may be below.
fn reachable(rows: &[Vec<f64>], participation: &Participation, random: &mut Random) -> f64 {
    let (n, dim) = (rows[0].len(), 3);
    let all = patterns(participation, n);
    let mut best = 0.0_f64;
    for _ in 0..20 {
        let pattern = &all[random.below(all.len())];
        let mut moved = vec![0.0; rows.len() * dim];
        for &t in pattern {
            let mut u: Vec<f64> = (0..dim).map(|_| random.signed()).collect();
            let norm = u.iter().map(|x| x * x).sum::<f64>().sqrt();
            u.iter_mut().for_each(|x| *x /= norm);
            for (r, row) in rows.iter().enumerate() {
                (0..dim).for_each(|i| moved[r * dim + i] += row[t] * u[i]);
            }
        }
        best = best.max(moved.iter().map(|x| x * x).sum::<f64>().sqrt());
    }
    best
}

/// The rows of a square matrix.
fn rows_of(matrix: &LowerTriangular) -> Vec<Vec<f64>> {
    let n = matrix.len();
    (0..n).map(|t| (0..n).map(|s| if s <= t { matrix.get(t, s) } else { 0.0 }).collect()).collect()
}

/// The rows of `C`; a tree has one per node and block, which no square matrix stands for.
fn rows(factorization: &Factorization, norms: &[f64]) -> Vec<Vec<f64>> {
    let Strategy::Tree(estimator) = factorization.strategy() else {
        return rows_of(&factorization.matrix().unwrap());
    };
    let (n, every) = (factorization.num_steps(), factorization.restart_every());
    let mut rows = Vec::new();
    for start in (0..n).step_by(every) {
        let len = every.min(n - start);
        for row in Tree::new(*estimator, len).unwrap().strategy_matrix().unwrap().1 {
            let entry = |t: usize| {
                if (start..start + len).contains(&t) { row[t - start] / norms[t] } else { 0.0 }
            };
            rows.push((0..n).map(entry).collect());
        }
    }
    rows
}

fn random_dense(random: &mut Random, n: usize, entry: fn(&mut Random) -> f64) -> Strategy {
    let mut rows = vec![vec![0.0; n]; n];
    for (t, row) in rows.iter_mut().enumerate() {
        row[..t].iter_mut().for_each(|value| *value = entry(random));
        row[t] = 0.1 + random.unit();
    }
    Strategy::Dense(LowerTriangular::new(&rows).unwrap())
}

fn random_strategy(random: &mut Random, n: usize) -> Strategy {
    let positive = |random: &mut Random| 0.1 + random.unit();
    match random.below(13) {
        7 => {
            let buffers = 1 + random.below(3);
            let decay: Vec<f64> =
                (0..buffers).map(|i| (i as f64 + 0.9 * random.unit() + 0.05) / buffers as f64).collect();
            // Scales that sum to more than 1 make the second coefficient the largest.
            let scale: Vec<f64> = (0..buffers).map(|_| 0.6 * random.unit() + 1e-3).collect();
            Blt::new(&scale, &decay).map_or(Strategy::Identity, Strategy::Blt)
        }
        8 => Strategy::square_root(Workload::momentum(0.9 * random.unit(), 0.1).unwrap()).unwrap(),
        9 => Strategy::damped(0.9 * random.unit()).unwrap(),
        10 => Strategy::Output(Workload::nesterov(0.9 * random.unit()).unwrap()),
        11 => Strategy::Tree([Estimator::Plain, Estimator::Streaming, Estimator::Full][random.below(3)]),
        12 => Strategy::banded_inverse(
            (0..1 + random.below(n)).map(|a| if a == 0 { 1.0 } else { 0.5 * random.signed() }).collect(),
        )
        .unwrap(),
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
        let mut norms = vec![1.0; n];
        if random.below(4) == 0 {
            norms = factorization.column_norms_squared().unwrap().into_iter().map(f64::sqrt).collect();
            factorization = factorization.column_normalized().unwrap();
        }
        let participation = random_participation(&mut random, n);
        let matrix = rows(&factorization, &norms);
        let (best, negative) = enumerate(&matrix, &participation);
        let got = factorization.sensitivity(&participation, Adjacency::ZeroOut).unwrap();
        let what = || {
            format!(
                "case {case}: {}, {participation:?}: {got:?}, brute force {best}",
                factorization.describe()
            )
        };
        match got.exactness {
            Exactness::Exact => {
                assert!((got.value / best - 1.0).abs() <= 1e-12, "{}", what());
                exact += 1;
            }
            Exactness::UpperBound => {
                assert!(negative, "an exact answer exists: {}", what());
                assert!(got.value >= best * (1.0 - 1e-12), "{}", what());
                tight += usize::from(got.value <= best * (1.0 + 1e-9));
                bounds += 1;
            }
        }
        assert!(got.value >= reachable(&matrix, &participation, &mut random) * (1.0 - 1e-12), "{}", what());
        let (loss, bound) = bounded(&factorization, &participation, case);
        assert!(
            bound.is_none_or(|bound| bound <= loss * (1.0 + 1e-9)),
            "bound {bound:?}, rms loss {loss}: {}",
            what()
        );
        let replaced = factorization.sensitivity(&participation, Adjacency::ReplaceOne).unwrap();
        assert_eq!(replaced.value, 2.0 * got.value);
    }
    println!(
        "{exact} exact, {bounds} upper bounds, {tight} of them the sum of absolute values of the best pattern"
    );
    assert!(exact > 8_000 && bounds > 500);
}

/// The RMS loss of a strategy for some workload, and the lower bound of all strategies.
fn bounded(factorization: &Factorization, participation: &Participation, case: usize) -> (f64, Option<f64>) {
    let n = factorization.num_steps();
    let rates = (0..n).map(|t| 1.0 / (1.0 + t as f64)).collect();
    let workload = match case % 4 {
        0 | 1 => Workload::Prefix,
        2 => Workload::momentum(0.9, 0.01).unwrap(),
        _ => Workload::Prefix.with_learning_rates(rates).unwrap(),
    };
    let problem =
        Problem { workload, participation: participation.clone(), ..Problem::streaming(n, Objective::Rms) };
    let bound = problem.nuclear_bound().unwrap().map(|(bound, _)| bound);
    let cheap = problem.lower_bound().0;
    let (loss, _) = problem.loss(factorization).unwrap();
    assert!(cheap <= loss * (1.0 + 1e-9), "{} {participation:?}: {cheap} {loss}", factorization.describe());
    (loss, bound)
}

/// Tests a tree whose last steps have fewer nodes over them: cycles that begin late are the worst.
#[test]
fn cycles_may_begin_late() {
    let tree = Factorization::new(Strategy::Tree(Estimator::Streaming), 100).unwrap();
    for (separation, max_participations) in [(1, 1), (10, 3), (7, 7), (1, 40)] {
        let cyclic = Participation::Cyclic { separation, max_participations };
        let listed = |first: usize| (first..100).step_by(separation).take(max_participations).collect();
        let patterns = Participation::Patterns((0..100).map(listed).collect());
        let [a, b] = [cyclic, patterns].map(|p| tree.sensitivity(&p, Adjacency::ZeroOut).unwrap());
        assert_eq!(a.exactness, Exactness::Exact);
        assert!((a.value / b.value - 1.0).abs() < 1e-14, "{a:?} {b:?}");
    }
    // Columns grow here, so the last cycle is the worst.
    let rows = (0..20).map(|t| vec![1.0 + t as f64]).collect();
    let growing = Factorization::new(Strategy::banded(rows).unwrap(), 20).unwrap();
    let cyclic = Participation::Cyclic { separation: 6, max_participations: 2 };
    let sensitivity = growing.sensitivity(&cyclic, Adjacency::ZeroOut).unwrap().exact().unwrap();
    assert_eq!(sensitivity, (20.0_f64 * 20.0 + 14.0 * 14.0).sqrt());
}

/// The bounds that are used where enumeration takes too long are never below the exact answer, which is known at small sizes.
#[test]
fn large_signed_matrices_get_upper_bounds() {
    let mut random = Random(12345);
    let coefs: Vec<f64> = (0..200).map(|t| random.signed() / (1.0 + t as f64)).map(|c| c + 0.001).collect();
    let factorization = Factorization::new(Strategy::toeplitz(coefs).unwrap(), 200).unwrap();
    let participation = Participation::MinSep { min_sep: 20, max_participations: 7 };
    let toeplitz = factorization.sensitivity(&participation, Adjacency::ZeroOut).unwrap();
    assert_eq!(toeplitz.exactness, Exactness::UpperBound);
    let normalized = factorization.clone().column_normalized().unwrap();
    let windows = normalized.sensitivity(&participation, Adjacency::ZeroOut).unwrap();
    assert_eq!(windows.exactness, Exactness::UpperBound);
    for (matrix, bound) in
        [(factorization.matrix().unwrap(), toeplitz), (normalized.matrix().unwrap(), windows)]
    {
        let matrix = rows_of(&matrix);
        // The patterns are one that takes part early and often, and random ones.
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
