//! Products of long polynomials by Fourier transforms of a power of two.
//!
//! The transform there leaves its values in the order in which its passes write them, and the transform back starts from that order:
//! squares do not care which frequency is where, and nothing is permuted. Passes divide a run of values into four, or once into two;
//! a quarter that fits into a cache is finished before the next one begins.

use crate::vector::{multiply_add, vectorised};
use std::f64::consts::TAU;

/// Factors of a pass that are multiplied out together.
const FINE: usize = 256;
/// Runs of up to so many values are transformed pass by pass, longer ones quarter by quarter.
const CACHED: usize = 1 << 10;

/// The coefficients of the product of two polynomials. Errors are relative to the largest coefficients.
pub fn convolve(a: &[f64], b: &[f64]) -> Vec<f64> {
    if a.is_empty() || b.is_empty() {
        return Vec::new();
    }
    let count = a.len() + b.len() - 1;
    let size = count.next_power_of_two().max(4);
    // Both in one transform: a is the real part, b the imaginary one, and the product is half the imaginary part of the square.
    let [mut re, mut im] = [a, b].map(|values| {
        let mut padded = vec![0.0; size];
        padded[..values.len()].copy_from_slice(values);
        padded
    });
    let passes = Passes::new(size);
    passes.there(&mut re, &mut im);
    for (re, im) in re.iter_mut().zip(&mut im) {
        (*re, *im) = (*re * *re - *im * *im, 2.0 * *re * *im);
    }
    passes.back(&mut re, &mut im);
    let scale = 0.5 / size as f64;
    im.truncate(count);
    im.iter_mut().for_each(|value| *value *= scale);
    im
}

/// A complex vector as two real ones.
#[derive(Clone, Debug, Default)]
struct Complexes {
    re: Vec<f64>,
    im: Vec<f64>,
}

impl Complexes {
    /// `e^{−2πi·step·k/size}` for k below `count`.
    fn roots(size: usize, step: usize, count: usize) -> Complexes {
        let angle = |k: usize| -TAU * (step * k) as f64 / size as f64;
        Complexes {
            re: (0..count).map(|k| angle(k).cos()).collect(),
            im: (0..count).map(|k| angle(k).sin()).collect(),
        }
    }
}

/// The factors of a pass over runs of one size: root `k` is `coarse[k / FINE] · fine[k % FINE]`.
struct Pass {
    run: usize,
    fine: Complexes,
    coarse: Complexes,
}

impl Pass {
    fn new(run: usize) -> Pass {
        let quarter = run / 4;
        Pass {
            run,
            fine: Complexes::roots(run, 1, quarter.min(FINE)),
            coarse: Complexes::roots(run, FINE, quarter.div_ceil(FINE)),
        }
    }

    fn apply(&self, re: &mut [f64], im: &mut [f64], direction: Direction) {
        let kernel = match direction {
            Direction::There => pass_there,
            Direction::Back => pass_back,
        };
        kernel(re, im, self.run, 0, [&self.fine.re, &self.fine.im]);
        let mut roots = [[0.0; FINE]; 2];
        for c in 1..self.coarse.re.len() {
            let (turn_re, turn_im) = (self.coarse.re[c], self.coarse.im[c]);
            for (k, (re, im)) in self.fine.re.iter().zip(&self.fine.im).enumerate() {
                roots[0][k] = turn_re * re - turn_im * im;
                roots[1][k] = turn_re * im + turn_im * re;
            }
            kernel(re, im, self.run, c * FINE, [&roots[0], &roots[1]]);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    There,
    Back,
}

/// The passes over runs of `size`, `size / 4`, …, or of `size / 2`, `size / 8`, … after one that halves.
struct Passes {
    /// The factors of the pass that halves, for an odd power of two.
    half: Option<Complexes>,
    quarters: Vec<Pass>,
}

impl Passes {
    fn new(size: usize) -> Passes {
        let odd = size.trailing_zeros() % 2 == 1;
        let half = odd.then(|| Complexes::roots(size, 1, size / 2));
        let first = if odd { size / 2 } else { size };
        let runs = std::iter::successors(Some(first), |run| Some(run / 4)).take_while(|run| *run >= 4);
        Passes { half, quarters: runs.map(Pass::new).collect() }
    }

    fn there(&self, re: &mut [f64], im: &mut [f64]) {
        let Some(roots) = &self.half else { return there(&self.quarters, re, im) };
        let half = re.len() / 2;
        let ((re, high_re), (im, high_im)) = (re.split_at_mut(half), im.split_at_mut(half));
        for k in 0..half {
            let (low, high) = ((re[k], im[k]), (high_re[k], high_im[k]));
            (re[k], im[k]) = (low.0 + high.0, low.1 + high.1);
            let (x, y) = (low.0 - high.0, low.1 - high.1);
            high_re[k] = x * roots.re[k] - y * roots.im[k];
            high_im[k] = x * roots.im[k] + y * roots.re[k];
        }
        there(&self.quarters, re, im);
        there(&self.quarters, high_re, high_im);
    }

    fn back(&self, re: &mut [f64], im: &mut [f64]) {
        let Some(roots) = &self.half else { return back(&self.quarters, re, im) };
        let half = re.len() / 2;
        let ((re, high_re), (im, high_im)) = (re.split_at_mut(half), im.split_at_mut(half));
        back(&self.quarters, re, im);
        back(&self.quarters, high_re, high_im);
        for k in 0..half {
            let x = high_re[k] * roots.re[k] + high_im[k] * roots.im[k];
            let y = high_im[k] * roots.re[k] - high_re[k] * roots.im[k];
            (high_re[k], high_im[k]) = (re[k] - x, im[k] - y);
            (re[k], im[k]) = (re[k] + x, im[k] + y);
        }
    }
}

fn there(passes: &[Pass], re: &mut [f64], im: &mut [f64]) {
    if re.len() <= CACHED {
        return passes.iter().for_each(|pass| pass.apply(re, im, Direction::There));
    }
    passes[0].apply(re, im, Direction::There);
    let quarter = re.len() / 4;
    for (re, im) in re.chunks_exact_mut(quarter).zip(im.chunks_exact_mut(quarter)) {
        there(&passes[1..], re, im);
    }
}

fn back(passes: &[Pass], re: &mut [f64], im: &mut [f64]) {
    if re.len() <= CACHED {
        return passes.iter().rev().for_each(|pass| pass.apply(re, im, Direction::Back));
    }
    let quarter = re.len() / 4;
    for (re, im) in re.chunks_exact_mut(quarter).zip(im.chunks_exact_mut(quarter)) {
        back(&passes[1..], re, im);
    }
    passes[0].apply(re, im, Direction::Back);
}

vectorised! {
    /// `y_r[k] = root_k^r · Σ_l (−i)^{lr} x_l[k]` for the quarters x of every run, and `k` from `at` on.
    fn pass_there(re: &mut [f64], im: &mut [f64], run: usize, at: usize, roots: [&[f64]; 2]) = pass_body::<true>;

    /// `x_l[k] = Σ_r i^{lr} root_k^{−r} y_r[k]`: undoes `pass_there`, but for a factor of 4.
    fn pass_back(re: &mut [f64], im: &mut [f64], run: usize, at: usize, roots: [&[f64]; 2]) = pass_body::<false>;
}

/// Neighbouring values that are worked on together.
type Lanes = [f64; 4];

#[inline(always)]
fn pass_body<const THERE: bool, const FUSED: bool>(
    re: &mut [f64],
    im: &mut [f64],
    run: usize,
    at: usize,
    roots: [&[f64]; 2],
) {
    let quarter = run / 4;
    for (re, im) in re.chunks_exact_mut(run).zip(im.chunks_exact_mut(run)) {
        if quarter == 1 {
            let (x, y): (Lanes, Lanes) = (std::array::from_fn(|l| re[l]), std::array::from_fn(|l| im[l]));
            let values = butterfly::<THERE, 1>(std::array::from_fn(|l| ([x[l]], [y[l]])));
            values.iter().enumerate().for_each(|(l, (x, y))| (re[l], im[l]) = (x[0], y[0]));
            continue;
        }
        let count = roots[0].len();
        let [root_re, root_im] = roots.map(|part| part.as_chunks::<4>().0);
        let [r0, r1, r2, r3] = quarters(re, quarter, at, count);
        let [i0, i1, i2, i3] = quarters(im, quarter, at, count);
        for k in 0..count / 4 {
            let values = [(r0[k], i0[k]), (r1[k], i1[k]), (r2[k], i2[k]), (r3[k], i3[k])];
            let one = (root_re[k], root_im[k]);
            let two = times::<true, FUSED>(one, one);
            let three = times::<true, FUSED>(two, one);
            let [a, b, c, d] = if THERE {
                let [a, b, c, d] = butterfly::<THERE, 4>(values);
                [
                    a,
                    times::<true, FUSED>(b, one),
                    times::<true, FUSED>(c, two),
                    times::<true, FUSED>(d, three),
                ]
            } else {
                let [a, b, c, d] = values;
                butterfly::<THERE, 4>([
                    a,
                    times::<false, FUSED>(b, one),
                    times::<false, FUSED>(c, two),
                    times::<false, FUSED>(d, three),
                ])
            };
            (r0[k], i0[k]) = a;
            (r1[k], i1[k]) = b;
            (r2[k], i2[k]) = c;
            (r3[k], i3[k]) = d;
        }
    }
}

/// The same stretch of all quarters.
#[inline(always)]
fn quarters(values: &mut [f64], quarter: usize, at: usize, count: usize) -> [&mut [Lanes]; 4] {
    let (low, high) = values.split_at_mut(2 * quarter);
    let ((a, b), (c, d)) = (low.split_at_mut(quarter), high.split_at_mut(quarter));
    [a, b, c, d].map(|part| part[at..at + count].as_chunks_mut::<4>().0)
}

#[inline(always)]
fn map<const N: usize>(left: [f64; N], right: [f64; N], f: impl Fn(f64, f64) -> f64) -> [f64; N] {
    std::array::from_fn(|i| f(left[i], right[i]))
}

/// The Fourier transform of four values, with `−i` there and `i` back.
#[inline(always)]
fn butterfly<const THERE: bool, const N: usize>(x: [([f64; N], [f64; N]); 4]) -> [([f64; N], [f64; N]); 4] {
    let plus = |a: [f64; N], b: [f64; N]| map(a, b, |a, b| a + b);
    let minus = |a: [f64; N], b: [f64; N]| map(a, b, |a, b| a - b);
    let [a, b, c, d] = x;
    let (even, odd) = ((plus(a.0, c.0), plus(a.1, c.1)), (plus(b.0, d.0), plus(b.1, d.1)));
    let straight = (minus(a.0, c.0), minus(a.1, c.1));
    let (x, y) = (minus(b.0, d.0), minus(b.1, d.1));
    let one = (plus(straight.0, y), minus(straight.1, x));
    let three = (minus(straight.0, y), plus(straight.1, x));
    let (one, three) = if THERE { (one, three) } else { (three, one) };
    [(plus(even.0, odd.0), plus(even.1, odd.1)), one, (minus(even.0, odd.0), minus(even.1, odd.1)), three]
}

/// A product of complex numbers, or that with the second one's conjugate.
#[inline(always)]
fn times<const STRAIGHT: bool, const FUSED: bool>(x: (Lanes, Lanes), w: (Lanes, Lanes)) -> (Lanes, Lanes) {
    let sign = if STRAIGHT { 1.0 } else { -1.0 };
    let re = std::array::from_fn(|i| multiply_add::<FUSED>(x.0[i], w.0[i], -sign * (x.1[i] * w.1[i])));
    let im = std::array::from_fn(|i| multiply_add::<FUSED>(x.1[i], w.0[i], sign * (x.0[i] * w.1[i])));
    (re, im)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direct(a: &[f64], b: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; a.len() + b.len() - 1];
        for (t, a) in a.iter().enumerate() {
            out[t..].iter_mut().zip(b).for_each(|(out, b)| *out += a * b);
        }
        out
    }

    #[test]
    fn products_are_the_sums_they_say() {
        for (left, right) in
            [(1, 1), (1, 3), (2, 2), (5, 4), (9, 8), (30, 40), (200, 57), (1000, 1100), (3000, 5000)]
        {
            let a: Vec<f64> = (0..left).map(|t| (1.0 + 0.7 * t as f64).sin()).collect();
            let b: Vec<f64> = (0..right).map(|t| (0.3 * (t * t) as f64).cos()).collect();
            let (found, expected) = (convolve(&a, &b), direct(&a, &b));
            assert_eq!(found.len(), expected.len());
            let largest = found.iter().zip(&expected).map(|(f, e)| (f - e).abs()).fold(0.0, f64::max);
            assert!(largest < 1e-13 * (left.min(right) as f64).sqrt(), "{left} {right}: {largest:e}");
        }
        assert!(convolve(&[], &[1.0]).is_empty());
    }

    #[test]
    fn long_products_of_square_roots_are_prefix_sums() {
        // (1 − x)^{-1/2} squared is 1/(1 − x).
        for n in [100_000, 300_000] {
            let mut root = vec![1.0; n];
            (1..n).for_each(|t| root[t] = root[t - 1] * (t as f64 - 0.5) / t as f64);
            let found = convolve(&root, &root);
            assert!(found[..n].iter().all(|value| (value - 1.0).abs() < 1e-13), "{n}");
        }
    }
}
