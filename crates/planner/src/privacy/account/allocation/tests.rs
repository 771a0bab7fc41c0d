//! The programme against quadrature, limits, recorded values and plain Monte Carlo.

use super::gram::Bins;
use super::grid::{Direction, Fineness};
use super::kernel::{Chain, Kernel};
use super::programme::Programme;
use super::search::{delta, least_epsilon, least_stddev};
use crate::privacy::account::{Budget, Redrawn, delta_of_epsilon, gdp_mu_of_budget};
use crate::{Blt, Factorization, Strategy, Workload};

const BOTH: [Direction; 2] = [Direction::Add, Direction::Remove];

fn bound(kernel: &Kernel, epsilon: f64, direction: Direction, fineness: Fineness) -> f64 {
    kernel.check().unwrap();
    let programme = Programme::new(kernel, 1.0, epsilon, 1e-6, direction, fineness).unwrap().unwrap();
    programme.bound().unwrap()
}

fn circle(m: usize, a: f64, rho: f64, common: f64, white: f64) -> Kernel {
    Kernel { common, white, chain: Chain::circle(m, a, rho) }
}

/// Numbers in [0, 1) by SplitMix64.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// The covariance of a kernel, and its Cholesky factor.
fn factor(kernel: &Kernel) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let mut rows = Vec::new();
    kernel.for_each_row(|_, row| rows.push(row.to_vec()));
    let lower = cholesky(&rows);
    (rows, lower)
}

fn cholesky(rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut lower: Vec<Vec<f64>> = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        let mut out = vec![0.0; i + 1];
        for l in 0..=i {
            let known: f64 = (0..l).map(|k| out[k] * if l == i { out[k] } else { lower[l][k] }).sum();
            out[l] = if l == i { (row[i] - known).max(0.0).sqrt() } else { (row[l] - known) / lower[l][l] };
        }
        lower.push(out);
    }
    lower
}

/// Both hockey sticks by the trapezoidal rule, which is exact to many digits for smooth functions of normals; a kink costs some.
fn quadrature(kernel: &Kernel, epsilon: f64) -> [f64; 2] {
    let (rows, lower) = factor(kernel);
    let m = rows.len();
    let (reach, count) = (9.0, if m == 2 { 1200 } else { 180 });
    let step = 2.0 * reach / count as f64;
    let mut sums = [0.0; 2];
    let mut place = vec![0_usize; m];
    'all: loop {
        let z: Vec<f64> = place.iter().map(|p| -reach + (*p as f64 + 0.5) * step).collect();
        let density: f64 = z.iter().map(|z| super::super::normal::density(*z) * step).product();
        let exponent = |i: usize| (0..=i).map(|k| lower[i][k] * z[k]).sum::<f64>() - 0.5 * rows[i][i];
        let w = (0..m).map(|i| exponent(i).exp()).sum::<f64>() / m as f64;
        sums[0] += density * (w - epsilon.exp()).max(0.0);
        sums[1] += density * (1.0 - epsilon.exp() * w).max(0.0);
        for p in &mut place {
            *p += 1;
            if *p < count {
                continue 'all;
            }
            *p = 0;
        }
        return sums;
    }
}

/// How many cases of a long test are tried: all with the variable.
fn cases(sample: usize) -> usize {
    std::env::var("CORRNOISE_ALLOCATION_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(sample)
}

#[test]
fn never_below_quadrature() {
    let mut random = Random(1);
    for case in 0..cases(16) {
        let m = if case % 4 == 3 { 3 } else { 2 };
        let mut number = |low: f64, high: f64| low * (high / low).powf(random.unit());
        let (scale, epsilon) = (number(0.02, 3.0), number(0.02, 2.5));
        let chain = match case % 3 {
            0 => Chain::circle(m, scale, number(0.05, 0.97)),
            1 => Chain::Line { num_bins: m, variance: scale, correlation: number(0.05, 0.97) },
            _ => Chain::Circle {
                variance: (0..m).map(|_| scale * number(0.2, 1.0)).collect(),
                previous: (1..m).map(|_| number(0.1, 0.6)).collect(),
                first: (1..m).map(|_| number(0.01, 0.3)).collect(),
            },
        };
        let kernel = Kernel { common: scale * number(0.01, 1.0), white: scale * number(0.01, 1.0), chain };
        let exact = quadrature(&kernel, epsilon);
        for (direction, exact) in BOTH.into_iter().zip(exact) {
            let found = bound(&kernel, epsilon, direction, Fineness(1.5));
            // What is far below any δ is known to no more digits than the sum of squares allows.
            assert!(
                found >= exact * (1.0 - 2e-4) - 1e-12,
                "{case} {direction:?}: {found:e} {exact:e} {kernel:?}"
            );
            assert!(found <= 1.5 * exact + 1e-9, "{case} {direction:?}: {found:e} {exact:e} {kernel:?}");
        }
    }
}

#[test]
fn recorded_values() {
    let small = circle(2, 0.5, 0.6, 0.1, 0.2);
    for (direction, exact) in [(Direction::Add, 0.069_971_7), (Direction::Remove, 0.069_704_7)] {
        for fineness in [Fineness::FINE, Fineness(2.0)] {
            let found = bound(&small, 1.0, direction, fineness);
            assert!(found >= exact && found < (1.0 + 0.04 * fineness.0 * fineness.0) * exact);
        }
    }
    // Monte Carlo: 8.53e-7 ± 0.06e-7; both directions of an earlier programme: 8.99e-7 and 8.37e-7.
    let large = circle(25, 0.22, 0.82, 0.1, 0.17);
    for (direction, close) in [(Direction::Add, 8.53e-7), (Direction::Remove, 8.2e-7)] {
        let found = bound(&large, 2.0, direction, Fineness::FINE);
        assert!(found > close && found < 1.09 * close, "{direction:?}: {found:e}");
    }
    // 9.26e-5 ± 0.14e-5 and 5.81e-5 ± 0.06e-5.
    let line = |chain| Kernel { common: 0.1, white: 0.2, chain };
    let along = line(Chain::Line { num_bins: 12, variance: 0.5, correlation: 0.7 });
    let mut variance = vec![0.5 * (1.0 - 0.49); 12];
    variance[0] = 0.5;
    let around = line(Chain::Circle { variance, previous: vec![0.7; 11], first: vec![0.0; 11] });
    for (direction, close) in [(Direction::Add, 9.26e-5), (Direction::Remove, 5.81e-5)] {
        let found = [&along, &around].map(|kernel| bound(kernel, 2.0, direction, Fineness::FINE));
        assert!(found[0] > 0.985 * close && found[0] < 1.09 * close, "{direction:?}: {found:?}");
        assert!((found[0] / found[1] - 1.0).abs() < 0.02, "{direction:?}: {found:?}");
    }
}

/// A common part alone hides in no bin; white noise alone is random allocation; and one that is all but common is a Gaussian pair.
#[test]
fn limits() {
    for (common, epsilon) in [(0.3, 1.0), (1.0, 2.0)] {
        let kernel = circle(4, 1e-9, 0.5, common, 0.0);
        let exact = delta_of_epsilon(f64::sqrt(common), epsilon).unwrap();
        for direction in BOTH {
            let found = bound(&kernel, epsilon, direction, Fineness(0.5));
            assert!(found >= exact && found < exact * 1.001, "{direction:?}: {found:e} {exact:e}");
        }
    }
    // Two bins with white noise: a sum of two lognormals, by quadrature.
    let white = circle(2, 1e-9, 0.5, 0.0, 0.8);
    let exact = quadrature(&white, 0.7);
    for (direction, exact) in BOTH.into_iter().zip(exact) {
        let found = bound(&white, 0.7, direction, Fineness(0.25));
        assert!(found >= exact * (1.0 - 1e-4) && found < 1.05 * exact, "{direction:?}: {found:e} {exact:e}");
    }
}

/// Bins that share next to nothing are one epoch of a random allocation, whose bound shares no method with this one: on fine grids the same
/// noise to a thousandth.
#[test]
fn a_diagonal_covariance_is_a_random_allocation() {
    for (bins, variance, epsilon) in [(4, 1.0, 1.0), (12, 1.4, 1.3)] {
        let chain = Chain::Line { num_bins: bins, variance, correlation: 1e-6 };
        let kernel = Kernel { common: 0.0, white: 0.0, chain };
        let found = BOTH
            .map(|direction| bound(&kernel, epsilon, direction, Fineness(0.25)))
            .into_iter()
            .fold(0.0, f64::max);
        let by = |factor: f64| {
            let allocation = Redrawn::new(factor / f64::sqrt(variance), bins as u64, 1).unwrap();
            allocation.delta(epsilon).unwrap()
        };
        let [more, same, less] = [1.001, 1.0, 0.999].map(by);
        assert!(found > more && found < less, "{bins}: {more:e} {same:e} {less:e}, {found:e}");
    }
}

/// The whole way from a strategy to a δ, against the run's own pair: plain Monte Carlo of W by its covariance.
#[test]
fn never_below_the_run() {
    let mut random = Random(7);
    let samples = if cases(0) > 0 { 4_000_000 } else { 150_000 };
    for case in 0..cases(5) {
        let b = [8, 5, 12, 16, 3][case % 5];
        let n = b * (1 + case % 4) + case % 3;
        let decay = 0.3 + 0.6 * random.unit();
        let scale = decay * (0.2 + 0.8 * random.unit());
        let coefs: Vec<f64> =
            (0..n).map(|t| if t == 0 { 1.0 } else { scale * decay.powi(t as i32 - 1) }).collect();
        let mut columns = vec![vec![0.0; n]; b];
        for (j, column) in columns.iter_mut().enumerate() {
            for start in (j..n).step_by(b) {
                (start..n).for_each(|t| column[t] += coefs[t - start]);
            }
        }
        let epsilon = 0.4 + random.unit();
        let bins = Bins::moved(&coefs, b, 0.0);
        let plain = (columns[0].iter().map(|c| c * c).sum::<f64>()).sqrt()
            / gdp_mu_of_budget(Budget { epsilon, delta: 0.02 }).unwrap();
        let Some((stddev, kernel)) =
            least_stddev(&bins, Budget { epsilon, delta: 0.02 }, plain, |_| 0.02).unwrap()
        else {
            panic!("no amplification in case {case}")
        };
        super::check(&kernel, &bins).unwrap();
        let claimed = delta(&kernel, stddev, epsilon, 0.02).unwrap().unwrap();
        assert!(claimed <= 0.02 && claimed > 0.0195, "{claimed}");
        let entry = |j: usize, l: usize| -> f64 {
            columns[j].iter().zip(&columns[l]).map(|(a, b)| a * b).sum::<f64>() / (stddev * stddev)
        };
        let rows: Vec<Vec<f64>> = (0..b).map(|j| (0..=j).map(|l| entry(j, l)).collect()).collect();
        let lower = cholesky(&rows);
        let (mut sums, mut squares) = ([0.0; 2], [0.0; 2]);
        for _ in 0..samples {
            let z: Vec<f64> = (0..b).map(|_| random.normal()).collect();
            let exponent =
                |j: usize| lower[j].iter().zip(&z).map(|(a, z)| a * z).sum::<f64>() - 0.5 * rows[j][j];
            let w = (0..b).map(|j| exponent(j).exp()).sum::<f64>() / b as f64;
            let lost = [(w - epsilon.exp()).max(0.0), (1.0 - epsilon.exp() * w).max(0.0)];
            for (k, lost) in lost.into_iter().enumerate() {
                sums[k] += lost;
                squares[k] += lost * lost;
            }
        }
        for k in 0..2 {
            let mean = sums[k] / samples as f64;
            let error = (squares[k] / samples as f64 - mean * mean).sqrt() / (samples as f64).sqrt();
            assert!(mean - 4.5 * error <= claimed, "case {case}, {k}: {mean} ± {error} above {claimed}");
        }
        let most = sums[0].max(sums[1]) / samples as f64;
        assert!(most > 0.7 * claimed, "case {case}: {claimed} far above {most}");
        // The least ε of that noise is the one it was made for.
        if case == 0 {
            let (found, kernel) = least_epsilon(&bins, stddev, 0.02, 3.0 * epsilon, 0.02).unwrap().unwrap();
            assert!((found / epsilon - 1.0).abs() < 0.02, "{found} {epsilon}");
            assert!(delta(&kernel, stddev, found, 0.02).unwrap().unwrap() <= 0.02);
        }
    }
}

#[test]
fn kernels_that_do_not_dominate_are_refused() {
    let coefs: Vec<f64> = (0..40).map(|t| 0.9_f64.powi(t)).collect();
    let bins = Bins::moved(&coefs, 10, 0.0);
    let (_, kernel) =
        least_stddev(&bins, Budget { epsilon: 1.0, delta: 1e-5 }, 1e9, |_| 1e-5).unwrap().unwrap();
    super::check(&kernel, &bins).unwrap();
    let message = super::check(&kernel.times(1.0 - 1e-3), &bins).unwrap_err().to_string();
    assert!(message.contains("expected one that is nowhere below them"), "{message}");
    let more = Bins::moved(&coefs.iter().map(|c| 1.01 * c).collect::<Vec<_>>(), 10, 0.0);
    assert!(super::check(&kernel, &more).is_err());
    let fewer = Bins::moved(&coefs, 4, 0.0);
    assert!(super::check(&kernel, &fewer).is_err(), "more bins are kept than there are");
}

/// Extremes of ε, δ and noise: an answer or none, and soon.
#[test]
fn extremes_end() {
    let coefs: Vec<f64> = (0..20).map(|t| 0.8_f64.powi(t)).collect();
    let bins = Bins::moved(&coefs, 10, 0.0);
    let budgets = [0.01, 1.0, 50.0].into_iter().flat_map(|epsilon| [(epsilon, 1e-3), (epsilon, 1e-15)]);
    // Small δ and small or large ε take longest.
    for (epsilon, delta) in budgets.filter(|budget| cases(0) > 0 || *budget == (1.0, 1e-3)) {
        let plain = 4.0 / gdp_mu_of_budget(Budget { epsilon, delta }).unwrap();
        if let Some((stddev, kernel)) =
            least_stddev(&bins, Budget { epsilon, delta }, plain, |_| delta).unwrap()
        {
            let found = super::delta(&kernel, stddev, epsilon, delta).unwrap().unwrap();
            assert!(found <= delta && stddev < plain, "{epsilon} {delta:e}");
        }
    }
    let kernel = circle(8, 1.0, 0.5, 1.0, 1.0);
    assert!(delta(&kernel, 1e-3, 1.0, 1e-6).unwrap().is_none(), "so little noise is out of reach");
    assert!(delta(&kernel, 1e6, 1.0, 1e-6).unwrap().is_none_or(|delta| delta < 1e-10));
}

/// A strategy of `allocation_real.txt`.
pub(super) fn strategy(name: &str) -> Strategy {
    match name.split_once(':').unwrap() {
        ("bisr", rows) => {
            let mut weights = vec![1.0];
            for i in 1..rows.parse::<usize>().unwrap() {
                weights.push(weights[i - 1] * (i as f64 - 1.5) / i as f64);
            }
            Strategy::BandedInverse(weights)
        }
        ("blt", "1") => Strategy::Blt(Blt::new(&[0.1509], &[0.9668]).unwrap()),
        _ => Strategy::Blt(Blt::new(&[0.2265, 0.0987], &[0.5583, 0.9765]).unwrap()),
    }
}

/// Proven errors at real sizes, against Monte Carlo: a bound that became loose would be noticed.
#[test]
fn proofs_are_close_to_the_oracle() {
    let table = include_str!("../../../../tests/data/allocation_real.txt");
    let mut compared = 0;
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if cases(0) == 0 && words[0] != "bisr:32" {
            continue;
        }
        let number = |i: usize| words[i].parse::<f64>().unwrap();
        let run = Factorization::new(strategy(words[0]), number(1) as usize).unwrap();
        let bins = Bins::of(&run, number(2) as u64).unwrap();
        let budget = Budget { epsilon: number(3), delta: number(4) };
        let (stddev, kernel) = least_stddev(&bins, budget, 1e9, |_| budget.delta).unwrap().unwrap();
        let error = stddev * run.errors(&Workload::Prefix).unwrap().max;
        let (ratio, known) = (error / number(7), 3.0 * number(8) / number(7));
        println!(
            "{} {}: {error:.3}, {ratio:.4} of Monte Carlo, {} bins",
            words[0],
            words[2],
            kernel.num_bins()
        );
        // A kernel has one length of correlation: two, as this BLT has, it follows less closely.
        let most = match words[0] {
            "blt:1" => 1.025,
            "blt:2" => 1.05,
            _ => 1.035,
        };
        assert!(ratio > 1.0 - known && ratio < most, "{line}: {ratio}");
        compared += 1;
    }
    assert!(compared == 9 || cases(0) == 0 && compared == 1);
}
