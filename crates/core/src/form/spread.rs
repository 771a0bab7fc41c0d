//! How large a form's noise becomes: the output grid must be coarse enough for it.

use super::{Form, Kernel, Ring};
use crate::gauss;

/// The work that is spent on following coefficients that are the same at every step, in multiplications.
const WORK: u64 = 1 << 22;

/// The number of steps that are followed at least, if there are as many.
const FOLLOWED: u64 = 64;

/// The number of normals per row, where coefficients change from step to step. The mean of their squares is off by a quarter, and to a
/// fifth of the standard deviation, where the grid would end, by less than one time in 10¹².
const PROBES: usize = 32;

impl Form {
    /// The smallest size of a row of noise in unit scale: the weight of the noise that no earlier step used. It is 1 except for
    /// regenerated sums.
    pub(crate) fn smallest_row(&self) -> f64 {
        match &self.kernel {
            Kernel::Blt(_) | Kernel::Ring(_) => 1.0,
            Kernel::Regenerate(regenerate) => f64::from(regenerate.smallest_row()),
        }
    }

    /// About the largest standard deviation, in unit scale, of a row of noise and of the sums on the way to it: exact for weights, for
    /// coefficients by age as far as they are followed, then no less unless they grow; an estimate for coefficients that change. It decides
    /// how fine the grid may be and is no part of a claim.
    ///
    /// A sum that is large on its way and then cancels has rounded the row's own normal to its last place. (Weights have independent normals,
    /// which do not cancel.)
    pub(crate) fn largest_row(&self, num_steps: u64) -> f64 {
        let steps = self.restart_every.map_or(num_steps, |every| every.min(num_steps));
        match &self.kernel {
            Kernel::Regenerate(regenerate) => regenerate.largest_row(),
            Kernel::Blt(blt) => {
                let mut buffers: Vec<f64> = vec![0.0; blt.scale().len()];
                let mut energies = Energies::new(buffers.len());
                let largest = by_age(steps, 2 * blt.scale().len(), |impulse| {
                    let mut output = impulse;
                    for ((scale, m), energy) in blt.scale().iter().zip(&buffers).zip(&mut energies.parts) {
                        output -= f64::from(*scale) * m;
                        *energy += output * output;
                    }
                    energies.whole += output * output;
                    for (m, decay) in buffers.iter_mut().zip(blt.decay()) {
                        *m = f64::from(*decay) * *m + output;
                    }
                    output
                });
                largest * energies.excess()
            }
            Kernel::Ring(ring) => match ring.toeplitz_coefs() {
                Some(coefs) => {
                    let mut past = Past::<1>::new(coefs.len());
                    let mut energies = Energies::new(coefs.len());
                    let largest = by_age(steps, coefs.len(), |impulse| {
                        let parts = &mut energies.parts;
                        past.parts([impulse], coefs, |at, [sum]| parts[at] += sum * sum);
                        let [output] = past.next([impulse], coefs);
                        energies.whole += output * output;
                        output
                    });
                    largest * energies.excess()
                }
                None => self.largest_of_probes(ring, num_steps),
            },
        }
    }

    /// The largest root mean square of a row, and of the sums on the way to it, over runs with other normals.
    fn largest_of_probes(&self, ring: &Ring, num_steps: u64) -> f64 {
        // The normals follow from the coefficients, so that none can be chosen to cancel.
        let coefs = (0..num_steps).flat_map(|step| ring.coefs(step));
        let seed = coefs.fold(0, |seed, coef| mix(seed ^ u64::from(coef.to_bits())));
        let mut past = Past::<PROBES>::new(ring.num_slots());
        let mut mean_square = |step: u64| {
            if self.age(step) == 0 {
                past.outputs.fill([0.0; PROBES]);
            }
            let impulses = normals(mix(seed.wrapping_add(step)));
            let mean = |values: [f64; PROBES]| values.iter().map(|x| x * x).sum::<f64>() / PROBES as f64;
            let mut largest = 0.0_f64;
            past.parts(impulses, ring.coefs(step), |_, sums| largest = largest.max(mean(sums)));
            largest.max(mean(past.next(impulses, ring.coefs(step))))
        };
        // No row is smaller than its own noise.
        (0..num_steps).fold(1.0_f64, |largest, step| largest.max(mean_square(step))).sqrt()
    }
}

/// Sums of squares of an answer to an impulse, and of the sums on the way to it.
struct Energies {
    parts: Vec<f64>,
    whole: f64,
}

impl Energies {
    fn new(parts: usize) -> Energies {
        Energies { parts: vec![0.0; parts], whole: 0.0 }
    }

    /// How many times larger than the answer the largest sum on the way is, at least 1.
    fn excess(&self) -> f64 {
        let largest = self.parts.iter().copied().fold(0.0, f64::max);
        // The last sum is the answer, up to the order of its terms: rounding must not count as an excess.
        if largest > (1.0 + 1e-9) * self.whole { (largest / self.whole).sqrt() } else { 1.0 }
    }
}

/// The last outputs of several runs of a ring, in the order of time from `next` on.
struct Past<const N: usize> {
    outputs: Vec<[f64; N]>,
    next: usize,
}

impl<const N: usize> Past<N> {
    fn new(len: usize) -> Past<N> {
        Past { outputs: vec![[0.0; N]; len], next: 0 }
    }

    /// Calls `seen` with every sum on the way to the next output, as the engine forms them: the oldest output comes first. The sum that
    /// ends with the output of age `a` has the number `a − 1`.
    fn parts(&self, mut sum: [f64; N], coefs: &[f32], mut seen: impl FnMut(usize, [f64; N])) {
        let (older, younger) = self.outputs.split_at(self.next);
        let by_time = younger.iter().chain(older).skip(self.outputs.len() - coefs.len());
        for ((at, coef), past) in coefs.iter().enumerate().rev().zip(by_time) {
            for (sum, past) in sum.iter_mut().zip(past) {
                *sum -= f64::from(*coef) * past;
            }
            seen(at, sum);
        }
    }

    fn next(&mut self, mut output: [f64; N], coefs: &[f32]) -> [f64; N] {
        let (older, younger) = self.outputs.split_at(self.next);
        let by_age = older.iter().rev().chain(younger.iter().rev());
        for (coef, past) in coefs.iter().zip(by_age) {
            for (sum, past) in output.iter_mut().zip(past) {
                *sum -= f64::from(*coef) * past;
            }
        }
        if !self.outputs.is_empty() {
            self.outputs[self.next] = output;
            self.next = (self.next + 1) % self.outputs.len();
        }
        output
    }
}

/// The standard deviation of the last row of `steps`, from the answer to a single impulse, of which a step costs so many multiplications.
///
/// The answer is followed through ranges that double, until what is left is small even if it decays no more. An answer that costs too
/// much to follow goes on as in the last range, or grows as it did.
fn by_age(steps: u64, cost: usize, mut answer: impl FnMut(f64) -> f64) -> f64 {
    let most = WORK / (cost as u64 + 1);
    // Coefficients may be zero up to the last: their answer is not over before.
    let (mut from, mut to) = (0, steps.min(FOLLOWED.max(4 * cost as u64)));
    let (mut total, mut before) = (0.0, 0.0);
    loop {
        let squares = (from..to).map(|step| answer(if step == 0 { 1.0 } else { 0.0 }).powi(2));
        let energy: f64 = squares.sum();
        total += energy;
        let left = (steps - to) as f64 / (to - from) as f64;
        let rest = energy * left;
        if to == steps || (energy <= before && rest <= 1e-3 * total) {
            return (total + rest).sqrt();
        }
        if to >= most {
            // A steady answer has twice the energy in a range of twice the length.
            let growth = if from == 0 { 1.0 } else { (energy / (2.0 * before)).max(1.0) };
            let ranges = (1.0 + left).log2().ceil();
            return (total + rest * growth.powi(ranges as i32)).sqrt();
        }
        (from, to, before) = (to, steps.min(2 * to), energy);
    }
}

/// A word for every word, by SplitMix64.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// The normals of a seed: signs would do, but could cancel in a row of two equal weights.
fn normals(seed: u64) -> [f64; PROBES] {
    let mut list = [0.0; PROBES];
    for (at, pair) in list.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        let word = mix(seed ^ at as u64);
        let radius = gauss::radius(((word >> 32) as u32).max(gauss::TAIL_LIMIT));
        *pair = <[f32; 2]>::from(gauss::normals(radius, word as u32)).map(f64::from);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_as_large_as_their_sums_say() {
        let near = |form: &Form, steps, expected: f64| {
            let got = form.largest_row(steps);
            assert!((got / expected - 1.0).abs() < 1e-6, "{got}, expected {expected}");
        };
        near(&Form::independent(), 1 << 30, 1.0);
        // 1 − x + x² − …: as large as the number of steps allows.
        let alternating = Form::banded_toeplitz(&[1.0, 1.0]).unwrap();
        near(&alternating, 100, 10.0);
        near(&alternating.clone().with_restarts(49).unwrap(), 100, 7.0);
        assert!(alternating.largest_row(1 << 20) >= 1024.0);
        // A geometric series, once as a BLT and once as a ring.
        let geometric = (1.0_f64 / (1.0 - 0.25)).sqrt();
        near(&Form::banded_toeplitz(&[1.0, 0.5]).unwrap(), 10_000, geometric);
        near(&Form::regenerate(&[3.0, -4.0]).unwrap(), 5, 5.0);
        // A slow decay is followed to its end by its own law.
        let slow = Form::banded_toeplitz(&[1.0, -0.999]).unwrap().largest_row(1_000_000);
        assert!((slow / (1.0_f64 / (1.0 - 0.999_f64.powi(2))).sqrt() - 1.0).abs() < 1e-3, "{slow}");
        let rows: Vec<Vec<f64>> = (0..200).map(|t| if t == 0 { vec![1.0] } else { vec![1.0, 1.0] }).collect();
        let varying = Form::banded(&rows).unwrap().largest_row(200);
        assert!((10.0..30.0).contains(&varying), "{varying}");
    }

    /// Two equal weights that are large beside the row's own noise: random signs would cancel one time in two.
    #[test]
    fn a_row_of_few_large_weights_is_not_overlooked() {
        for k in 0..300 {
            let large = -1000.0 - f64::from(k);
            let rows = [vec![1.0], vec![1.0, 0.0], vec![1.0, large, large]];
            let found = Form::banded(&rows).unwrap().largest_row(3) / (large * 2.0_f64.sqrt()).abs();
            assert!((0.5..2.0).contains(&found), "{large}: {found}");
        }
    }

    /// Terms that are large and cancel: what they leave of the row's own normal is no finer than their last place.
    #[test]
    fn sums_that_cancel_count_as_they_are_on_the_way() {
        // Buffers that are nearly the same, each a million times its sum with the other.
        let (large, apart) = (2.0_f64.powi(20), 2.0_f64.powi(-22));
        let blt = Form::blt(&[large, -large], &[0.5, 0.5 - apart]).unwrap().with_restarts(2).unwrap();
        let found = blt.largest_row(100);
        assert!((found / large - 1.0).abs() < 1e-6, "{found}");
        // The third row is z − 64·z₁, but on its way to that there is 4096·z₀.
        let ring = Form::banded_toeplitz(&[1.0, 64.0, 4096.0]).unwrap().with_restarts(3).unwrap();
        assert!((ring.largest_row(100) / 4096.0 - 1.0).abs() < 1e-3, "{}", ring.largest_row(100));
        let rows = [vec![1.0], vec![1.0, 64.0], vec![1.0, 64.0, 4096.0]];
        let varying = Form::banded(&rows).unwrap().largest_row(3);
        assert!((2000.0..8000.0).contains(&varying), "{varying}");
        for form in [blt, ring] {
            assert!(crate::Plan::new(100, form, 1.0).map_or(true, |plan| plan.largest_noise() < 65_536.0));
        }
        assert!(
            crate::Plan::new(100, Form::blt(&[large, -large], &[0.5, 0.5 - apart]).unwrap(), 1.0).is_err()
        );
        // Of all positive coefficients that decay, none is larger on the way than a few rows.
        let plain = Form::blt(&[0.29, 0.13, 0.06, 0.015], &[0.22, 0.71, 0.944, 0.9957]).unwrap();
        assert!(plain.largest_row(10_000) < 1.5, "{}", plain.largest_row(10_000));
    }

    /// An answer that grows after a while, a small part that stays, a coefficient of great age: each is followed.
    #[test]
    fn what_comes_late_counts() {
        let growing = Form::banded_toeplitz(&[1.0, 1.001]).unwrap().largest_row(8192);
        let ratio = f64::from(1.001_f32).powi(2);
        let expected = ((ratio.powi(8192) - 1.0) / (ratio - 1.0)).sqrt();
        assert!((growing / expected - 1.0).abs() < 1e-6, "{growing}, expected {expected}");
        // An answer of 1 at first and 2⁻⁹ ever after: little at every step, and much in the end.
        let part = 2.0_f64.powi(-9);
        let steady = Form::blt(&[-part], &[1.0 - part]).unwrap().largest_row(1 << 30);
        assert!((steady / 4097.0_f64.sqrt() - 1.0).abs() < 1e-3, "{steady}");
        let mut late = vec![0.0; 1001];
        (late[0], late[1000]) = (1.0, 0.999);
        let late = Form::banded_toeplitz(&late).unwrap().largest_row(10_000_000);
        // True is 22: what costs too much to follow counts as if it did not decay.
        assert!((22.0..120.0).contains(&late), "{late}");
    }
}
