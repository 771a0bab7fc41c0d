//! Eigenvalues of a diagonal matrix plus a matrix of rank one: `D + ρzzᵀ` with ρ > 0, from its secular equation
//!
//! ```text
//! 1/ρ + Σ_i z_i² / (d_i − λ) = 0      one root between two neighbouring poles, and one beyond the last
//! ```
//!
//! A root is found as its distance from the closer pole, which keeps the digits of all its distances. The iteration interpolates the
//! sums over the poles on either side by one pole each (Li: Solving secular equations stably and efficiently, "the middle way").

use crate::vector::pole_sum;

/// Iterations at most; about five are usual.
const MAX_ITERATIONS: usize = 100;

/// A root as the sum of a pole and a distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Root {
    pub(crate) pole: usize,
    pub(crate) distance: f64,
}

/// Root `j` for ascending poles. `moved` is scratch space of as many numbers.
pub(crate) fn root(j: usize, poles: &[f64], weights: &[f64], rho: f64, moved: &mut [f64]) -> Root {
    let n = poles.len();
    let inverse = 1.0 / rho;
    if n == 1 {
        return Root { pole: 0, distance: rho * weights[0] * weights[0] };
    }
    let is_last = j + 1 == n;
    // Poles on either side of the root; those of the last root are both on its left.
    let (left, right) = if is_last { (j - 1, j) } else { (j, j + 1) };
    let shift = |moved: &mut [f64], pole: usize| {
        moved.iter_mut().zip(poles).for_each(|(moved, d)| *moved = d - poles[pole]);
    };
    let sum = |moved: &[f64], at: f64| {
        let (below, below_slope) = pole_sum(&moved[..=left], &weights[..=left], at);
        let (above, above_slope) = pole_sum(&moved[right..], &weights[right..], at);
        Sum {
            value: inverse + below + above,
            size: inverse + below.abs() + above.abs(),
            below_slope,
            above_slope,
        }
    };
    // The half of the interval that the root lies in decides which pole it is measured from.
    let (pole, mut low, mut high, mut at);
    if is_last {
        shift(moved, j);
        let length: f64 = rho * weights.iter().map(|z| z * z).sum::<f64>();
        (pole, low, high, at) = (j, 0.0, length, 0.5 * length);
    } else {
        shift(moved, j);
        let gap = moved[j + 1];
        let middle = sum(moved, 0.5 * gap);
        let [own, next] = [weights[j].powi(2), weights[j + 1].powi(2)];
        // What the two poles leave of the sum, taken as constant.
        let rest = middle.value + (own - next) / (0.5 * gap);
        let both = own + next;
        if middle.value >= 0.0 {
            (pole, low, high) = (j, 0.0, 0.5 * gap);
            at = smaller_root(rest, rest * gap + both, own * gap);
        } else {
            shift(moved, j + 1);
            (pole, low, high) = (j + 1, -0.5 * gap, 0.0);
            at = smaller_root(rest, both - rest * gap, -next * gap);
        }
    }
    if !(low < at && at < high) {
        at = 0.5 * (low + high);
    }
    for _ in 0..MAX_ITERATIONS {
        let now = sum(moved, at);
        let slope = now.below_slope + now.above_slope;
        if now.value.abs() <= f64::EPSILON * (8.0 * now.size + at.abs() * slope) {
            break;
        }
        if now.value < 0.0 {
            low = at;
        } else {
            high = at;
        }
        let (to_left, to_right) = (moved[left] - at, moved[right] - at);
        let c = now.value - to_left * now.below_slope - to_right * now.above_slope;
        let a = (to_left + to_right) * now.value - to_left * to_right * slope;
        let b = to_left * to_right * now.value;
        let mut step = if is_last { larger_root(c.abs(), a, b) } else { smaller_root(c, a, b) };
        // A step the wrong way, of zero or NaN: Newton's instead.
        let is_toward_root = step * now.value < 0.0;
        if !is_toward_root {
            step = -now.value / slope;
        }
        let next = at + step;
        let next = if low < next && next < high { next } else { 0.5 * (low + high) };
        if next == at || next == low || next == high {
            break;
        }
        at = next;
    }
    Root { pole, distance: at }
}

/// The secular function, what it was summed from, and its derivatives by parts.
struct Sum {
    value: f64,
    size: f64,
    below_slope: f64,
    above_slope: f64,
}

/// The root of `cx² − ax + b` of the smaller modulus, without cancellation.
fn smaller_root(c: f64, a: f64, b: f64) -> f64 {
    let root = (a * a - 4.0 * b * c).abs().sqrt();
    if a <= 0.0 { (a - root) / (2.0 * c) } else { 2.0 * b / (a + root) }
}

/// The root that lies further to the right.
fn larger_root(c: f64, a: f64, b: f64) -> f64 {
    let root = (a * a - 4.0 * b * c).abs().sqrt();
    if a >= 0.0 { (a + root) / (2.0 * c) } else { 2.0 * b / (a - root) }
}
