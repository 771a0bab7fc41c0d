//! 10⁹ normals of the engine against the normal distribution.
//!
//! What the engine releases for a gradient of zeros lies on the output grid, here the finest, 2⁻¹²: the value k·2⁻¹² stands for all noise between
//! (k − ½)·2⁻¹² and (k + ½)·2⁻¹². Counts are therefore compared with the distribution function at these edges, half-way between grid points.

use corrnoise::{CpuOptions, Form, Key, Mechanism, Plan, Shard};
use corrnoise_testkit::normal::cdf;

/// The number of values per buffer: whole tiles, and small enough to stay in cache between sampling and counting.
const LEN: usize = 1 << 16;
const BUFFERS: u64 = 15_360; // 15,360 · 65,536 = 1.0066·10⁹ normals
/// One bin per point of the output grid.
const BINS_PER_SIGMA: i32 = 4096;
const EDGE: i32 = 10;
const LAGS: [usize; 6] = [1, 2, 4, 128, 256, 512];

/// The sums over all values.
#[derive(Clone)]
struct Sums {
    count: u64,
    powers: [f64; 8],
    histogram: Vec<u64>,
    /// Sums over Box-Muller pairs: Σ x·y, Σ x²·y², and the number of pairs.
    pairs: (f64, f64, u64),
    /// The autocorrelation sums Σ x[i]·x[i + lag], by lag.
    lags: [f64; LAGS.len()],
    lag_counts: [u64; LAGS.len()],
    /// Sums over pairs of neighbouring rows: Σ x·y, and the number of pairs.
    rows: (f64, u64),
}

impl Sums {
    fn new() -> Sums {
        Sums {
            count: 0,
            powers: [0.0; 8],
            histogram: vec![0; (2 * EDGE * BINS_PER_SIGMA) as usize],
            pairs: (0.0, 0.0, 0),
            lags: [0.0; LAGS.len()],
            lag_counts: [0; LAGS.len()],
            rows: (0.0, 0),
        }
    }

    fn add(&mut self, values: &[f32], previous: Option<&[f32]>) {
        self.count += values.len() as u64;
        // Sums per buffer, then added up: 65,536 terms lose nothing in f64.
        let mut powers = [0.0_f64; 8];
        for &value in values {
            let x = f64::from(value);
            let mut power = 1.0;
            for sum in &mut powers {
                power *= x;
                *sum += power;
            }
            let bin = (value * BINS_PER_SIGMA as f32).floor() as i32 + EDGE * BINS_PER_SIGMA;
            self.histogram[bin as usize] += 1;
        }
        powers.iter().zip(&mut self.powers).for_each(|(part, sum)| *sum += part);
        let Some(previous) = previous else { return };
        let product = |pair: (&f32, &f32)| f64::from(*pair.0) * f64::from(*pair.1);
        self.rows.0 += values.iter().zip(previous).map(product).sum::<f64>();
        self.rows.1 += values.len() as u64;
        for pair in values.as_chunks::<2>().0 {
            let xy = f64::from(pair[0]) * f64::from(pair[1]);
            self.pairs = (self.pairs.0 + xy, self.pairs.1 + xy * xy, self.pairs.2 + 1);
        }
        for (i, lag) in LAGS.into_iter().enumerate() {
            self.lags[i] += values.iter().zip(&values[lag..]).map(product).sum::<f64>();
            self.lag_counts[i] += (values.len() - lag) as u64;
        }
    }

    fn merge(mut self, other: Sums) -> Sums {
        self.count += other.count;
        (0..8).for_each(|i| self.powers[i] += other.powers[i]);
        self.histogram.iter_mut().zip(other.histogram).for_each(|(a, b)| *a += b);
        self.pairs.0 += other.pairs.0;
        self.pairs.1 += other.pairs.1;
        self.pairs.2 += other.pairs.2;
        for i in 0..LAGS.len() {
            self.lags[i] += other.lags[i];
            self.lag_counts[i] += other.lag_counts[i];
        }
        self.rows.0 += other.rows.0;
        self.rows.1 += other.rows.1;
        self
    }
}

/// Samples `buffers` rows of one shard and sums them, each value multiplied by `factor`.
fn sample(shard: Shard, buffers: u64, factor: f32) -> Sums {
    let plan = Plan::new(buffers, Form::independent(), 1.0).unwrap().with_finest_grid().unwrap();
    assert_eq!(2.0_f64.powi(-plan.grid_exponent()), f64::from(BINS_PER_SIGMA));
    let key = Key::from_bytes(*b"statistics of one fixed key, ok?", "statistics");
    let options = CpuOptions { threads: 1, ..CpuOptions::default() };
    let mut mechanism = Mechanism::cpu_with(&plan, key, shard, options).unwrap();
    let mut sums = Sums::new();
    let mut values = vec![0.0_f32; LEN];
    let mut previous = values.clone();
    for row in 0..buffers {
        values.fill(0.0);
        mechanism.add_to(&mut values).unwrap();
        values.iter_mut().for_each(|z| *z *= factor);
        // Correlations are summed on every fourth row; moments and counts on all.
        sums.add(&values, (row % 4 == 1).then_some(&previous));
        std::mem::swap(&mut values, &mut previous);
    }
    sums
}

/// The 2k-th moment of a standard normal, (2k − 1)!!; odd moments are 0.
fn moment(k: i32) -> f64 {
    if k % 2 == 1 { 0.0 } else { (1..k).step_by(2).map(f64::from).product() }
}

/// The statistic of Kolmogorov and Smirnov: √n times the largest distance to Φ at the bins' edges; 1.95 is exceeded once in a thousand tries.
fn kolmogorov_smirnov(sums: &Sums) -> f64 {
    let mut below = 0;
    let mut distance = 0.0_f64;
    for (bin, count) in sums.histogram.iter().enumerate() {
        below += count;
        let edge = (bin as f64 + 0.5) / f64::from(BINS_PER_SIGMA) - f64::from(EDGE);
        distance = distance.max((below as f64 / sums.count as f64 - cdf(edge)).abs());
    }
    distance * (sums.count as f64).sqrt()
}

/// Samples both halves of the coordinate space, each on a thread.
fn sample_on_two_threads(buffers: u64, factor: f32) -> Sums {
    let space = Shard::whole(2 * LEN as u64).unwrap();
    let half = |i: u64| space.within(i * LEN as u64..(i + 1) * LEN as u64).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| sample(half(1), buffers / 2, factor));
        sample(half(0), buffers / 2, factor).merge(other.join().unwrap())
    })
}

#[test]
fn a_billion_normals() {
    let sums = sample_on_two_threads(BUFFERS, 1.0);
    let n = sums.count as f64;
    assert!(n >= 1e9);
    let check = |name: String, got: f64, expected: f64, standard_error: f64| {
        let z = (got - expected) / standard_error;
        println!("{name}: {got:.9}, expected {expected:.9}, {z:+.2} standard errors");
        assert!(z.abs() < 4.0, "{name}: {got} is {z} standard errors from {expected}");
    };
    for k in 1..=8 {
        let variance = moment(2 * k) - moment(k) * moment(k);
        check(format!("moment {k}"), sums.powers[k as usize - 1] / n, moment(k), (variance / n).sqrt());
    }
    for (limit, name) in [(3.0, "3"), (4.0, "4"), (5.0, "5"), (5.5, "5.5")] {
        let bins = (limit * f64::from(BINS_PER_SIGMA)) as usize;
        let middle = (EDGE * BINS_PER_SIGMA) as usize;
        let outside = sums.histogram[..middle - bins].iter().sum::<u64>()
            + sums.histogram[middle + bins + 1..].iter().sum::<u64>();
        // The first grid point beyond the limit begins half a bin after it.
        let p = 2.0 * cdf(-limit - 0.5 / f64::from(BINS_PER_SIGMA));
        check(format!("beyond {name} sigma"), outside as f64, n * p, (n * p * (1.0 - p)).sqrt());
    }
    let ks = kolmogorov_smirnov(&sums);
    println!("sqrt(n) KS: {ks:.3}");
    assert!(ks < 1.95, "{ks}");
    let pairs = sums.pairs.2 as f64;
    check("pair correlation".into(), sums.pairs.0 / pairs, 0.0, pairs.recip().sqrt());
    // Var(x²y²) = 9 − 1.
    check("pair correlation of squares".into(), sums.pairs.1 / pairs, 1.0, (8.0 / pairs).sqrt());
    for (i, lag) in LAGS.into_iter().enumerate() {
        let count = sums.lag_counts[i] as f64;
        check(format!("correlation at lag {lag}"), sums.lags[i] / count, 0.0, count.recip().sqrt());
    }
    let rows = sums.rows.1 as f64;
    check("correlation with the row before".into(), sums.rows.0 / rows, 0.0, rows.recip().sqrt());
}

#[test]
fn the_test_itself_rejects_a_wrong_scale() {
    for (factor, accepted) in [(1.0, true), (2.0 / 3.0, false), (1.5, false), (1.01, false)] {
        let ks = kolmogorov_smirnov(&sample_on_two_threads(64, factor));
        assert_eq!(ks < 1.95, accepted, "factor {factor}: {ks}");
    }
}
