//! The backward programme: both hockey sticks of a kernel's W, from above.
//!
//! With `y_i = x_i − variance_i/2`, s the sum so far and L the white noise's lognormal factor,
//!
//! ```text
//! V_{m−1}(y, s) = φ(s)
//! A_i(y, s)     = E_L V_i(y, s + e^y·L/m)
//! V_{i−1}(y, s) = E[A_i(y_i, s) | y_{i−1} = y, x_0]
//! δ             = E A_0(x_0 − v_0/2, 0)
//! ```
//! where φ has taken in the common part: a call or put of Black and Scholes. V is convex in s, and in y when adding, in e^y when removing, so
//! every mean is at most that of a chord (`hats.rs`), and no weight is negative: values at nodes stay above the true ones, turn after
//! turn. What lies beyond the ends is charged (`turn.rs`).

use super::grid::{Aim, Direction, Fineness, Grid};
use super::hats::{Hat, shares};
use super::kernel::{Kernel, Turns};
use super::turn::{Turn, Workspace, is_whole};
use crate::error::Result;
use crate::privacy::account::gdp::ln_delta;
use corrnoise_numerics::{BLOCK, LANES, Lane, Sparse, sparse_times_lanes, sparse_times_numbers};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// What a weight may have lost by rounding, and a result, relative to itself. Everything is a sum of products that are not negative,
/// so losses do not grow by cancellation: a turn's are below 1e-11 (`hats.rs`), and a result is known to far more digits than its own.
pub(super) const WEIGHT_ROUNDING: f64 = 1e-10;
const RESULT_ROUNDING: f64 = 1e-6;
/// A sum is moved by this much of itself, to the side where values are larger: more than its rounding and its place's.
const SUM_ROUNDING: f64 = 1e-12;

/// The mean of `(spot·G − strike)₊` for a lognormal G of mean 1, from above.
pub(super) fn call(spot: f64, strike: f64, variance: f64) -> Result<f64> {
    if spot <= 0.0 || strike <= 0.0 {
        return Ok((spot - strike).max(0.0));
    }
    let rest = |low: f64, high: f64| -> Result<f64> {
        Ok(low * ln_delta(variance.sqrt(), (high / low).ln() * (1.0 - 1e-15))?.exp() * (1.0 + 1e-12))
    };
    // A call in the money is a put and the difference.
    if spot < strike { rest(spot, strike) } else { Ok(spot - strike + rest(strike, spot)?) }
}

/// Factors of the white noise with their weights, and the mean of what lies beyond the last.
type Jumps = (Vec<(f64, f64)>, f64);

/// A kernel at a noise level, an ε and a direction, with everything that all turns need.
pub(super) struct Programme {
    pub(super) turns: Turns,
    pub(super) direction: Direction,
    pub(super) hat: Hat,
    pub(super) grid: Grid,
    circle: bool,
    /// `A` of `V`, for every node of the state.
    steps: Vec<(Sparse, Vec<f64>)>,
    /// φ at the sums.
    last: Vec<f64>,
}

impl Programme {
    /// `None` where the kernel is out of reach: its variances are too large, or its steps too small.
    pub(super) fn new(
        kernel: &Kernel,
        stddev: f64,
        epsilon: f64,
        delta: f64,
        direction: Direction,
        fineness: Fineness,
    ) -> Result<Option<Programme>> {
        let mut turns = kernel.turns(stddev);
        // More variance is more loss; so little of it would cost digits.
        for variance in [&mut turns.common, &mut turns.white] {
            if *variance > 0.0 {
                *variance = variance.max(1e-9);
            }
        }
        let circle = kernel.is_circle();
        let block = if circle { BLOCK / LANES } else { BLOCK };
        let Some(grid) =
            Grid::new(kernel, &turns, stddev, Aim { epsilon, delta, direction, fineness }, block)
        else {
            return Ok(None);
        };
        let strike = epsilon.exp();
        let value = |s: f64| match direction {
            Direction::Add => call(s, strike, turns.common),
            // E(1 − e^ε·s·G)₊ is a call with both sides exchanged; below 0 it goes on as a line.
            Direction::Remove if s > 0.0 => call(1.0, strike * s, turns.common),
            Direction::Remove => Ok(1.0 - strike * s),
        };
        let charged = |r: &f64| Ok(value(r + grid.drift)? * (1.0 + WEIGHT_ROUNDING));
        let last = grid.sums.iter().map(charged).collect::<Result<_>>()?;
        let hat = match direction {
            Direction::Add => Hat::Linear,
            Direction::Remove => Hat::Exponential,
        };
        let mut programme = Programme { turns, direction, hat, grid, circle, steps: Vec::new(), last };
        let Some(jumps) = programme.jumps()? else { return Ok(None) };
        programme.steps = programme.grid.nodes.iter().map(|y| programme.step(*y, &jumps, strike)).collect();
        Ok(Some(programme))
    }

    /// The white noise's factor: nodes and weights, and `E(L − last)₊`.
    fn jumps(&self) -> Result<Option<Jumps>> {
        let variance = self.turns.white;
        if variance == 0.0 {
            return Ok(Some((vec![(1.0, 1.0)], 0.0)));
        }
        let sd = variance.sqrt();
        // Where the factor varies much, its tail alone may lose ε.
        let close_up_to = if sd > 0.7 { 8.5 } else { 3.7 };
        let positions: Vec<f64> = (0..)
            .map(|k| -3.6 + 0.4 * f64::from(k))
            .take_while(|z| *z < close_up_to)
            .chain([4.2, 4.9, 5.8, 7.0, 8.5].into_iter().filter(|z| *z > close_up_to))
            .collect();
        // ln L has mean −variance/2.
        let nodes: Vec<f64> = positions.iter().map(|z| z * sd).collect();
        let Some(mut weights) = shares(&nodes, sd, Hat::Exponential) else { return Ok(None) };
        // Below the first node the chord goes on to L = 0: the mass there is shared out between both.
        let (_, mean_below) = below(nodes[0], sd);
        let mass = super::super::normal::upper(-nodes[0] / sd);
        let to_first = (mean_below / nodes[0].exp()).min(mass);
        weights[0] += to_first - mass;
        let mut out = vec![(0.0, (mass - to_first) * (1.0 + WEIGHT_ROUNDING))];
        for (node, weight) in nodes.iter().zip(weights) {
            out.push(((node - 0.5 * variance).exp(), weight.max(0.0) * (1.0 + WEIGHT_ROUNDING)));
        }
        let end = out[out.len() - 1].0;
        Ok(Some((out, call(1.0, end, variance)?)))
    }

    /// What adding a bin with state y does: for every sum before, where sums after lie.
    fn step(&self, y: f64, (jumps, excess): &Jumps, strike: f64) -> (Sparse, Vec<f64>) {
        let (sums, m) = (&self.grid.sums, self.turns.num_bins() as f64);
        let size = y.exp() / m;
        let toward = match self.direction {
            Direction::Add => SUM_ROUNDING,
            Direction::Remove => -SUM_ROUNDING,
        };
        let (lowest, highest) = (sums[0], sums[sums.len() - 1]);
        let mut matrix = Sparse { starts: vec![0], ..Sparse::default() };
        let mut constants = Vec::with_capacity(sums.len());
        let mut row: Vec<(u32, f64)> = Vec::new();
        for start in sums {
            let mut constant = match self.direction {
                Direction::Add => size * excess * (1.0 + WEIGHT_ROUNDING),
                Direction::Remove => 0.0,
            };
            row.clear();
            let mut place = 0;
            let mut put = |column: usize, weight: f64| match row.last_mut() {
                Some((last, sum)) if *last == column as u32 => *sum += weight,
                _ => row.push((column as u32, weight)),
            };
            for (jump, weight) in jumps {
                let to = start - self.grid.drift / m + size * jump;
                let to = to + toward * (start.abs() + self.grid.drift + size * jump);
                if to >= highest {
                    put(sums.len() - 1, *weight);
                    if self.direction == Direction::Add {
                        constant += weight * (to - highest);
                    }
                    continue;
                }
                if to <= lowest {
                    // Sums that no run has: slopes are at most e^ε.
                    put(0, *weight);
                    if self.direction == Direction::Remove {
                        constant += weight * strike * (lowest - to);
                    }
                    continue;
                }
                while sums[place + 1] < to {
                    place += 1;
                }
                let above = ((to - sums[place]) / (sums[place + 1] - sums[place])).clamp(0.0, 1.0);
                put(place, weight * (1.0 - above));
                put(place + 1, weight * above);
            }
            constants.push(constant);
            row.sort_by_key(|(column, _)| *column);
            for (column, weight) in &row {
                let repeated = matrix.starts.last().is_some_and(|start| {
                    matrix.columns.len() > *start as usize && matrix.columns.last() == Some(column)
                });
                match matrix.values.last_mut() {
                    Some(sum) if repeated => *sum += weight,
                    _ => {
                        matrix.columns.push(*column);
                        matrix.values.push(*weight);
                    }
                }
            }
            matrix.starts.push(matrix.columns.len() as u32);
        }
        (matrix, constants)
    }

    /// The bound, with as many threads as there are processors; the same for any number of them.
    pub(super) fn bound(&self) -> Option<f64> {
        let nodes = &self.grid.nodes;
        let half = 0.5 * self.turns.variance[0];
        let roots: Vec<usize> =
            if self.circle { self.grid.roots.clone() } else { (0..nodes.len()).collect() };
        let places: Vec<f64> = roots.iter().map(|k| nodes[*k] + half).collect();
        let values = if self.circle { self.at_roots(&roots)? } else { self.line()? };
        let weights = shares(&places, self.turns.variance[0].sqrt(), self.hat)?;
        if !is_whole(weights.iter().sum()) {
            return None;
        }
        let sum: f64 =
            weights.iter().zip(&values).map(|(w, value)| w * (1.0 + WEIGHT_ROUNDING) * value).sum();
        let total = (sum + self.beyond_roots(&places)) * (1.0 + RESULT_ROUNDING);
        total.is_finite().then_some(total)
    }

    /// What the first bin's tail beyond its nodes may add: the value's slope in the sum is at most 1, and its size when removing.
    fn beyond_roots(&self, places: &[f64]) -> f64 {
        let sd = self.turns.variance[0].sqrt();
        let m = self.turns.num_bins() as f64;
        let tail = |z: f64| super::super::normal::upper(z) * (1.0 + 1e-9);
        match self.direction {
            Direction::Add => {
                let top = places[places.len() - 1];
                self.turns.root.iter().map(|with_first| tail((top - with_first) / sd) / m).sum()
            }
            Direction::Remove => tail(-places[0] / sd),
        }
    }

    /// `A_0` for a circle, with the first bin at each root: eight of them at a time, on all processors.
    fn at_roots(&self, roots: &[usize]) -> Option<Vec<f64>> {
        let groups: Vec<[usize; LANES]> =
            roots.chunks(LANES).map(|chunk| std::array::from_fn(|i| chunk[i.min(chunk.len() - 1)])).collect();
        let (next, found) = (AtomicUsize::new(0), Mutex::new(vec![None; groups.len()]));
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(groups.len());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut workspace = Workspace::default();
                    loop {
                        let g = next.fetch_add(1, Ordering::Relaxed);
                        let Some(group) = groups.get(g) else { return };
                        let values = self.group(group, &mut workspace);
                        found.lock().unwrap_or_else(PoisonError::into_inner)[g] = Some(values);
                    }
                });
            }
        });
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let all: Option<Vec<Lane>> = found.into_iter().map(Option::flatten).collect();
        Some(all?.into_iter().flatten().take(roots.len()).collect())
    }

    /// `A_0` with the first bin at eight nodes.
    fn group(&self, roots: &[usize; LANES], work: &mut Workspace) -> Option<Lane> {
        let (n, sums) = (self.grid.nodes.len(), self.grid.sums.len());
        let half = 0.5 * self.turns.variance[0];
        let first: Lane = roots.map(|k| self.grid.nodes[k] + half);
        let lanes: Vec<Lane> = self.last.iter().map(|value| [*value; LANES]).collect();
        work.start(n, &lanes);
        let mut rows = vec![[0.0; LANES]; sums];
        let mut out = vec![[0.0; LANES]; sums];
        for i in (1..self.turns.num_bins()).rev() {
            for (k, (matrix, constants)) in self.steps.iter().enumerate() {
                work.read(n, k, rows.as_flattened_mut());
                sparse_times_lanes(matrix, constants, &rows, &mut out);
                work.write(n, k, out.as_flattened());
            }
            Turn::new(self, i, &first)?.apply(work);
        }
        let mut values = [0.0; LANES];
        for (lane, k) in roots.iter().enumerate() {
            let (matrix, constants) = &self.steps[*k];
            work.read(n, *k, rows.as_flattened_mut());
            sparse_times_lanes(matrix, constants, &rows, &mut out);
            values[lane] = out[self.grid.origin][lane];
        }
        Some(values)
    }

    /// `A_0` at every node, where the first bin is like any other.
    fn line(&self) -> Option<Vec<f64>> {
        let n = self.grid.nodes.len();
        let mut work = Workspace::default();
        work.start(n, self.last.as_chunks::<LANES>().0);
        let mut rows = vec![0.0; self.grid.sums.len()];
        let mut out = rows.clone();
        let mut turn: Option<Turn> = None;
        for i in (1..self.turns.num_bins()).rev() {
            for (k, (matrix, constants)) in self.steps.iter().enumerate() {
                work.read(n, k, &mut rows);
                sparse_times_numbers(matrix, constants, &rows, &mut out);
                work.write(n, k, &out);
            }
            // All turns share their weights but not what is charged.
            let next = match turn.take() {
                Some(turn) => turn.again(self, i),
                None => Turn::new(self, i, &[0.0; LANES])?,
            };
            next.apply(&mut work);
            turn = Some(next);
        }
        let last = |(k, (matrix, constants)): (usize, &(Sparse, Vec<f64>))| {
            work.read(n, k, &mut rows);
            sparse_times_numbers(matrix, constants, &rows, &mut out);
            out[self.grid.origin]
        };
        Some(self.steps.iter().enumerate().map(last).collect())
    }
}

/// The mass of a normal below a point, and the mean of its exponential there, over that point's side alone.
fn below(point: f64, sd: f64) -> (f64, f64) {
    let upper = super::super::normal::upper;
    (upper(-point / sd), (0.5 * sd * sd).exp() * upper(sd - point / sd))
}
