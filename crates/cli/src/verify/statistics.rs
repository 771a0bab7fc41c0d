//! The normals themselves: moments, tails and distribution of many of them.
//!
//! Each quantity is compared with what it should be, in its own standard errors. Of an engine that is right, a key taken at random
//! fails the whole check once in 10⁵ tries at most; the key is fixed, so that what passed once passes always.

use super::Finding;
use crate::failure::Result;
use corrnoise::{Form, Key, Mechanism, Plan, Shard};

/// 16.8 million normals, or a tenth.
const COORDS: u64 = 1 << 20;
const ROWS: u64 = 16;
const BINS_PER_SIGMA: i32 = 1024;
const EDGE: i32 = 10;
/// Thirteen quantities beyond this many standard errors: once in 130,000.
const MOST_ERRORS: f64 = 5.0;
/// √n times the largest distance between distributions: beyond once in 10⁶ (2·exp(−2x²)).
const MOST_DISTANCE: f64 = 2.7;

struct Sums {
    count: f64,
    powers: [f64; 8],
    histogram: Vec<u64>,
}

impl Sums {
    fn of(values: &[f32]) -> Sums {
        let mut sums = Sums {
            count: values.len() as f64,
            powers: [0.0; 8],
            histogram: vec![0; (2 * EDGE * BINS_PER_SIGMA) as usize],
        };
        for &value in values {
            let x = f64::from(value);
            let mut power = 1.0;
            for sum in &mut sums.powers {
                power *= x;
                *sum += power;
            }
            let bin = (value * BINS_PER_SIGMA as f32).floor() as i32 + EDGE * BINS_PER_SIGMA;
            let last = sums.histogram.len() as i32 - 1;
            sums.histogram[bin.clamp(0, last) as usize] += 1;
        }
        sums
    }

    fn add(&mut self, other: &Sums) {
        self.count += other.count;
        self.powers.iter_mut().zip(&other.powers).for_each(|(sum, part)| *sum += part);
        self.histogram.iter_mut().zip(&other.histogram).for_each(|(sum, part)| *sum += part);
    }

    /// Values whose size is at least `limit` standard deviations.
    fn beyond(&self, limit: i32) -> f64 {
        let (middle, bins) = ((EDGE * BINS_PER_SIGMA) as usize, (limit * BINS_PER_SIGMA) as usize);
        let tails = self.histogram[..middle - bins].iter().chain(&self.histogram[middle + bins..]);
        tails.sum::<u64>() as f64
    }

    /// √n times the largest distance to Φ at the bins' edges.
    fn distance(&self) -> f64 {
        let mut below = 0;
        let mut most = 0.0_f64;
        for (bin, count) in self.histogram.iter().enumerate() {
            below += count;
            let edge = (bin as f64 + 1.0) / f64::from(BINS_PER_SIGMA) - f64::from(EDGE);
            most = most.max((below as f64 / self.count - cdf(edge)).abs());
        }
        most * self.count.sqrt()
    }
}

/// Φ, the distribution function of a standard normal.
pub fn cdf(x: f64) -> f64 {
    0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

/// The k-th moment of a standard normal: (k − 1)!! for even k.
fn moment(k: i32) -> f64 {
    if k % 2 == 1 { 0.0 } else { (1..k).step_by(2).map(f64::from).product() }
}

/// Samples with one factor on all values, 1 but for tests.
fn sample(quick: bool, factor: f32) -> Result<Sums> {
    let rows = if quick { ROWS / 8 } else { ROWS };
    // Four points of the grid to a bin.
    let plan = Plan::new(rows, Form::independent(), 1.0)?.with_finest_grid()?;
    let key = Key::from_bytes(*b"corrnoise verify: a public key!!", "statistics");
    let mut mechanism = Mechanism::cpu(&plan, key, Shard::whole(COORDS)?)?;
    let mut values = vec![0.0_f32; COORDS as usize];
    let mut sums = Sums::of(&[]);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..rows {
        values.fill(0.0);
        mechanism.add_to(&mut values)?;
        values.iter_mut().for_each(|value| *value *= factor);
        let parts: Vec<Sums> = std::thread::scope(|scope| {
            let share = values.len().div_ceil(threads);
            let parts: Vec<_> =
                values.chunks(share).map(|part| scope.spawn(move || Sums::of(part))).collect();
            parts.into_iter().filter_map(|part| part.join().ok()).collect()
        });
        parts.iter().for_each(|part| sums.add(part));
    }
    Ok(sums)
}

pub fn normals(quick: bool) -> Result<Finding> {
    Ok(judge(&sample(quick, 1.0)?))
}

fn judge(sums: &Sums) -> Finding {
    let n = sums.count;
    let mut worst = (0.0_f64, String::new());
    let mut compare = |name: String, got: f64, expected: f64, error: f64| {
        let errors = ((got - expected) / error).abs();
        if !errors.is_finite() || errors > worst.0 {
            worst = (if errors.is_finite() { errors } else { f64::INFINITY }, name);
        }
    };
    for k in 1..=8 {
        let variance = moment(2 * k) - moment(k) * moment(k);
        compare(format!("moment {k}"), sums.powers[k as usize - 1] / n, moment(k), (variance / n).sqrt());
    }
    for limit in [1, 2, 3, 4, 5] {
        let p = 2.0 * cdf(-f64::from(limit));
        compare(format!("tail beyond {limit}σ"), sums.beyond(limit), n * p, (n * p * (1.0 - p)).sqrt());
    }
    let distance = sums.distance();
    let passed = worst.0 <= MOST_ERRORS && distance <= MOST_DISTANCE;
    Finding::new(
        passed,
        format!(
            "{n:.1e} normals: worst {} at {:.1} standard errors (limit {MOST_ERRORS}); √n·KS {distance:.2} (limit {MOST_DISTANCE})",
            worst.1, worst.0
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::Verdict;

    #[test]
    fn what_is_not_quite_normal_is_refused() {
        let verdict = |factor| judge(&sample(true, factor).unwrap()).verdict;
        assert_eq!(verdict(1.0), Verdict::Passed);
        for factor in [2.0 / 3.0, 0.99, 1.01, 1.5, f32::NAN] {
            assert_eq!(verdict(factor), Verdict::Failed, "{factor}");
        }
    }
}
