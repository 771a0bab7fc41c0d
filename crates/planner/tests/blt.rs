//! Closed forms of BLT strategies against materialised matrices and against 512-bit arithmetic.

use corrnoise_planner::Blt;
use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive};

/// The generator SplitMix64, which is good enough to draw parameters.
struct Draw(u64);

impl Draw {
    fn uniform(&mut self, low: f64, high: f64) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        low + (high - low) * ((z ^ (z >> 31)) >> 11) as f64 / 2f64.powi(53)
    }

    fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        self.uniform(low.ln(), high.ln()).exp()
    }

    /// Draws pairs: d from 1 to 6, complements of the decays from 1e-6 to 0.9, scales of very different size with a given sum.
    fn pairs(&mut self, total: f64) -> (Vec<f64>, Vec<f64>) {
        let d = self.uniform(1.0, 7.0) as usize;
        let weight: Vec<f64> = (0..d).map(|_| self.log_uniform(1e-4, 1.0)).collect();
        let sum: f64 = weight.iter().sum();
        let decay = (0..d).map(|_| 1.0 - self.log_uniform(1e-6, 0.9)).collect();
        (weight.iter().map(|w| w * total / sum).collect(), decay)
    }

    fn blt(&mut self) -> Blt {
        let total = self.uniform(0.05, 1.0);
        let (scale, decay) = self.pairs(total);
        Blt::new(&scale, &decay).expect("scales that add to at most 1 have a stable inverse")
    }
}

/// A sum with Neumaier's compensation for rounding.
#[derive(Default)]
struct Sum(f64, f64);

impl Sum {
    fn add(&mut self, x: f64) {
        let sum = self.0 + x;
        self.1 += if self.0.abs() >= x.abs() { (self.0 - sum) + x } else { (x - sum) + self.0 };
        self.0 = sum;
    }
    fn value(&self) -> f64 {
        self.0 + self.1
    }
}

fn relative(got: f64, expected: f64) -> f64 {
    ((got - expected) / expected).abs()
}

/// The coefficients of `A C⁻¹`: the noise recursion (algorithm "Noise Generation with BLTs") fed with ones.
fn decoder_coefs(blt: &Blt, n: usize) -> Vec<f64> {
    let mut buffers = vec![0.0; blt.num_buffers()];
    let step = |_| {
        let coef = 1.0 - blt.scale().iter().zip(&buffers).map(|(alpha, m)| alpha * m).sum::<f64>();
        buffers.iter_mut().zip(blt.decay()).for_each(|(m, decay)| *m = decay * *m + coef);
        coef
    };
    (0..n).map(step).collect()
}

#[test]
fn inverse_multiplies_to_the_identity() {
    let mut draw = Draw(1);
    for _ in 0..300 {
        let blt = draw.blt();
        let (c, inverse) = (blt.strategy_coefs(200), blt.noising_coefs(200));
        for t in 0..200 {
            let entry: f64 = (0..=t).map(|k| c[k] * inverse[t - k]).sum();
            let expected = if t == 0 { 1.0 } else { 0.0 };
            assert!((entry - expected).abs() < 1e-14, "{blt:?}: coefficient {t} of C C^-1 is {entry}");
        }
        assert!(blt.inverse_scale().iter().all(|&alpha| alpha > 0.0));
    }
}

#[test]
fn decays_of_both_sides_determine_the_strategy() {
    let mut draw = Draw(2);
    for _ in 0..1000 {
        let d = draw.uniform(1.0, 7.0) as usize;
        // Complements fall by a random factor from one decay to the next: they interlace by construction.
        let mut complement = draw.uniform(1.05, 1.8);
        let mut next = || {
            complement *= draw.uniform(0.1, 0.7);
            1.0 - complement
        };
        let first = draw_first(&mut next);
        let mut inverse = vec![first.0];
        let mut decay = vec![first.1];
        for _ in 1..d {
            inverse.push(next());
            decay.push(next());
        }
        let blt = Blt::from_decays(&decay, &inverse).unwrap();
        for (&got, &given) in blt.inverse_decay().iter().zip(&inverse) {
            assert!(relative(1.0 - got, 1.0 - given) < 1e-9, "{got} for {given}");
            assert!((got - given).abs() < 4e-16, "{got} for {given}");
        }
        // The order of the lists does not matter, and is kept.
        decay.reverse();
        inverse.rotate_left(1);
        let reversed = Blt::from_decays(&decay, &inverse).unwrap();
        assert_eq!(reversed.decay(), decay);
        assert!(reversed.scale().iter().rev().zip(blt.scale()).all(|(&a, &b)| relative(a, b) < 1e-14));
        assert!(relative(reversed.max_error_squared(1000), blt.max_error_squared(1000)) < 1e-13);
    }
}

/// A first pair λ̃ < λ with λ in (0, 1).
fn draw_first(next: &mut impl FnMut() -> f64) -> (f64, f64) {
    let (mut low, mut high) = (next(), next());
    while high <= 0.0 {
        (low, high) = (high, next());
    }
    (low, high)
}

#[test]
fn closed_forms_match_materialised_matrices() {
    let mut draw = Draw(3);
    let (mut worst, mut negative, mut refused) = ([0.0_f64; 3], 0, 0);
    for _ in 0..10_000 {
        let total = draw.uniform(0.05, 2.0);
        let (scale, decay) = draw.pairs(total);
        let n = draw.log_uniform(2.0, 1e5) as usize;
        let at_minus_one = 1.0 - scale.iter().zip(&decay).map(|(a, l)| a / (1.0 + l)).sum::<f64>();
        let blt = Blt::new(&scale, &decay);
        assert_eq!(blt.is_ok(), at_minus_one > 0.0, "f(-1) = {at_minus_one} decides");
        let Ok(blt) = blt else {
            refused += 1;
            continue;
        };
        negative += usize::from(blt.inverse_decay()[0] < 0.0);
        let (mut column, mut row, mut frobenius) = (Sum::default(), Sum::default(), Sum::default());
        let mut powers = scale.clone();
        column.add(1.0);
        for _ in 1..n {
            column.add(powers.iter().sum::<f64>().powi(2));
            powers.iter_mut().zip(&decay).for_each(|(power, decay)| *power *= decay);
        }
        for (t, coef) in decoder_coefs(&blt, n).into_iter().enumerate() {
            row.add(coef * coef);
            frobenius.add((n - t) as f64 * (coef * coef));
        }
        let errors = [
            relative(blt.column_norm_squared(n as u64), column.value()),
            relative(blt.max_error_squared(n as u64), row.value()),
            relative(blt.mean_error_squared(n as u64), frobenius.value() / n as f64),
        ];
        for (worst, error) in worst.iter_mut().zip(errors) {
            *worst = worst.max(error);
            assert!(error < 1e-11, "{blt:?}, n = {n}: {errors:?}");
        }
    }
    println!("worst {worst:?}, {negative} with a negative inverse decay, {refused} refused");
    assert!(negative > 1000 && refused > 100, "{negative} {refused}");
}

#[test]
fn gram_and_sensitivity_match_materialised_matrices() {
    let mut draw = Draw(4);
    for _ in 0..2000 {
        let blt = draw.blt();
        let n = draw.log_uniform(1.0, 2000.0) as usize;
        let c = blt.strategy_coefs(n);
        let (s, t) = (draw.uniform(0.0, n as f64) as usize, draw.uniform(0.0, n as f64) as usize);
        let mut entry = Sum::default();
        (s.max(t)..n).for_each(|r| entry.add(c[r - s] * c[r - t]));
        let gram = blt.gram(n as u64, s as u64, t as u64);
        // Far from the diagonal an entry may underflow to 0.
        let tolerance = 1e-12 * entry.value() + 1e-300;
        assert!((gram - entry.value()).abs() <= tolerance, "{blt:?}: {gram} for {}", entry.value());

        let min_sep = draw.log_uniform(1.0, n as f64 + 1.0) as usize;
        let k = draw.log_uniform(1.0, 50.0) as usize;
        let mut columns = vec![0.0; n];
        for start in (0..n).step_by(min_sep).take(k) {
            columns[start..].iter_mut().zip(&c).for_each(|(sum, c)| *sum += c);
        }
        let mut norm = Sum::default();
        columns.iter().for_each(|x| norm.add(x * x));
        let got = blt.min_sep_sensitivity_squared(n as u64, min_sep as u64, k as u64);
        assert!(relative(got, norm.value()) < 1e-12, "{blt:?}: {got} for {}", norm.value());
    }
    let blt = Blt::new(&[0.5], &[0.5]).unwrap();
    assert_eq!((blt.gram(3, 1, 3), blt.column_norm_squared(0)), (0.0, 0.0), "outside the matrix");
    assert_eq!((blt.max_error_squared(0), blt.mean_error_squared(0)), (0.0, 0.0), "no prefix sums");
    assert_eq!(blt.min_sep_sensitivity_squared(9, 2, 0), 0.0);
    assert!(blt.is_non_increasing() && !Blt::new(&[0.75, 0.5], &[0.5, 0.25]).unwrap().is_non_increasing());
}

/// A real number as an integer multiple of 2^−512: cancellation that ruins f64 costs it nothing.
#[derive(Clone)]
struct Fixed(BigInt);

impl Fixed {
    const BITS: u32 = 512;

    fn new(x: f64) -> Fixed {
        let (mantissa, exponent, sign) = num_traits::Float::integer_decode(x);
        Fixed((BigInt::from(mantissa) * sign) << (Self::BITS as i32 + i32::from(exponent)) as usize)
    }
    fn add(&self, other: &Fixed) -> Fixed {
        Fixed(&self.0 + &other.0)
    }
    fn sub(&self, other: &Fixed) -> Fixed {
        Fixed(&self.0 - &other.0)
    }
    fn mul(&self, other: &Fixed) -> Fixed {
        Fixed((&self.0 * &other.0) >> Self::BITS)
    }
    fn div(&self, other: &Fixed) -> Fixed {
        Fixed((&self.0 << Self::BITS) / &other.0)
    }
    fn pow(&self, n: u64) -> Fixed {
        let (mut power, mut square) = (Fixed::new(1.0), self.clone());
        for bit in 0..64 {
            if n >> bit & 1 == 1 {
                power = power.mul(&square);
            }
            square = square.mul(&square);
        }
        power
    }
    fn to_f64(&self) -> f64 {
        (&self.0 >> (Self::BITS - 200)).to_f64().unwrap() / 2f64.powi(200)
    }

    /// The geometric sum `γ_n(self) = Σ_{t<n} selfᵗ`.
    fn sum(&self, n: u64) -> Fixed {
        let one = Fixed::new(1.0);
        one.sub(&self.pow(n)).div(&one.sub(self))
    }
    /// The weighted geometric sum `Σ_{t<n} (n − t) selfᵗ`.
    fn ramp_sum(&self, n: u64) -> Fixed {
        let one = Fixed::new(1.0);
        Fixed::new(n as f64).sub(&self.mul(&self.sum(n))).div(&one.sub(self))
    }
}

/// The scales and decays of the inverse by bisection between the poles; the decays are given in ascending order.
fn wide_inverse(scale: &[Fixed], decay: &[Fixed]) -> (Vec<Fixed>, Vec<Fixed>) {
    let f = |y: &Fixed, power: usize| {
        let term = |(a, l): (&Fixed, &Fixed)| (0..power).fold(a.clone(), |a, _| a.div(&y.sub(l)));
        scale.iter().zip(decay).map(term).fold(Fixed(BigInt::ZERO), |sum, x| sum.add(&x))
    };
    let root = |i: usize| {
        let (mut low, mut high) = (Fixed::new(-1.0), decay[i].clone());
        if i > 0 {
            low = decay[i - 1].clone();
        }
        for _ in 0..Fixed::BITS - 8 {
            let middle = Fixed((&low.0 + &high.0) >> 1);
            let value = Fixed::new(1.0).add(&f(&middle, 1));
            if value.0.is_positive() { low = middle } else { high = middle }
        }
        low
    };
    let roots: Vec<Fixed> = (0..decay.len()).map(root).collect();
    (roots.iter().map(|y| Fixed::new(1.0).div(&f(y, 2))).collect(), roots)
}

/// The error `Σ w_t b_t²` in the monograph's form, `b_t = 1 − Σ α̃ᵢ (1 − λ̃ᵢᵗ)/(1 − λ̃ᵢ)`, for weights with `sum(λ) = Σ w_t λᵗ`.
fn wide_error(inverse: &(Vec<Fixed>, Vec<Fixed>), ones: &Fixed, sum: impl Fn(&Fixed) -> Fixed) -> Fixed {
    let one = Fixed::new(1.0);
    let terms = || inverse.0.iter().zip(&inverse.1);
    let mut total = ones.clone();
    for (alpha, decay) in terms() {
        let weight = alpha.div(&one.sub(decay));
        total = total.sub(&weight.mul(&ones.sub(&sum(decay))).mul(&Fixed::new(2.0)));
        for (other_alpha, other) in terms() {
            let pair = ones.sub(&sum(decay)).sub(&sum(other)).add(&sum(&decay.mul(other)));
            total = total.add(&weight.mul(&other_alpha.div(&one.sub(other))).mul(&pair));
        }
    }
    total
}

fn wide_column_norm(scale: &[Fixed], decay: &[Fixed], n: u64) -> Fixed {
    let mut total = Fixed::new(1.0);
    for (a, l) in scale.iter().zip(decay) {
        for (b, m) in scale.iter().zip(decay) {
            total = total.add(&a.mul(b).mul(&l.mul(m).sum(n - 1)));
        }
    }
    total
}

#[test]
fn decays_near_one_keep_their_digits() {
    let sets: [(&[f64], &[f64]); 11] = [
        (&[0.25], &[1e-9]),
        (&[1e-5], &[1e-12]),
        (&[1e-13], &[1e-14]),
        (&[0.4, 1e-3, 1e-6], &[0.5, 1e-5, 1e-9]),
        (&[0.3, 0.1, 1e-3, 1e-6], &[0.75, 0.01, 1e-9, 1e-12]),
        (&[0.5, 1e-7], &[1e-9, 1e-12]),
        (&[0.9, 0.05, 0.04], &[0.875, 0.5, 1e-9]),
        (&[1e-6, 0.25], &[1e-9, 0.9999e-9]),
        (&[1e-9, 1e-7, 0.01], &[1.5e-14, 1e-14, 1e-15]),
        // The inverse has decays near -1.
        (&[1.5 - 1e-9], &[0.5]),
        (&[1.25, 0.25, 1e-6], &[0.5, 0.25, 1e-9]),
    ];
    let mut worst = 0.0_f64;
    for (scale, complement) in sets {
        let decay: Vec<f64> = complement.iter().map(|mu| 1.0 - mu).collect();
        let blt = Blt::new(scale, &decay).unwrap();
        let wide_scale: Vec<Fixed> = scale.iter().map(|&a| Fixed::new(a)).collect();
        let wide_decay: Vec<Fixed> = decay.iter().map(|&l| Fixed::new(l)).collect();
        let inverse = wide_inverse(&wide_scale, &wide_decay);
        for n in [1, 2, 10_000, 1_234_567, 1_000_000_000, 10_000_000_000] {
            let triangle = Fixed::new(n as f64).mul(&Fixed::new(0.5 * (n as f64 + 1.0)));
            let max = wide_error(&inverse, &Fixed::new(n as f64), |l| l.sum(n));
            let mean = wide_error(&inverse, &triangle, |l| l.ramp_sum(n)).div(&Fixed::new(n as f64));
            let expected = [wide_column_norm(&wide_scale, &wide_decay, n), max, mean].map(|x| x.to_f64());
            let got = [blt.column_norm_squared(n), blt.max_error_squared(n), blt.mean_error_squared(n)];
            for (got, expected) in got.into_iter().zip(expected) {
                worst = worst.max(relative(got, expected));
                assert!(relative(got, expected) < 1e-12, "{blt:?}, n = {n}: {got:e} for {expected:e}");
            }
        }
    }
    println!("worst {worst:e}");
}

#[test]
fn a_billion_steps_cost_microseconds() {
    let blt = Blt::rational(8, 1_000_000_000).unwrap();
    let time = |_| {
        let start = std::time::Instant::now();
        let n = std::hint::black_box(1_000_000_000);
        let total = blt.column_norm_squared(n) + blt.max_error_squared(n) + blt.mean_error_squared(n);
        assert!(std::hint::black_box(total) > 0.0);
        start.elapsed()
    };
    let mut times: Vec<_> = (0..21).map(time).collect();
    times.sort();
    println!("median {:?}", times[10]);
    assert!(times[10] < std::time::Duration::from_millis(1), "{times:?}");
}

#[test]
fn rational_strategies_are_as_good_as_documented() {
    let documented = [
        (1, 0.19, 1.2),
        (2, 0.032, 0.34),
        (3, 2.8e-3, 0.081),
        (4, 4.4e-4, 0.022),
        (5, 8.0e-5, 5.7e-3),
        (6, 9.2e-6, 1.7e-3),
        (7, 3.0e-6, 5.7e-4),
        (8, 6.7e-7, 2.0e-4),
        (16, 8.3e-11, 8.9e-8),
        (32, 1e-13, 1e-12),
    ];
    for (d, thousand, million) in documented {
        for (n, bound) in [(1_000_u64, thousand), (1_000_000, million)] {
            let (mut coef, mut root_loss) = (1.0, Sum::default());
            for t in 1..=n {
                root_loss.add(coef * coef);
                coef *= 1.0 - 0.5 / t as f64;
            }
            let blt = Blt::rational(d, n).unwrap();
            let loss = (blt.column_norm_squared(n) * blt.max_error_squared(n)).sqrt();
            let excess = loss / root_loss.value() - 1.0;
            println!("d = {d}, n = {n}: {excess:.2e}");
            // A^(1/2) is the best Toeplitz factorisation: an excess below zero would be a wrong closed form.
            assert!((-1e-13..bound).contains(&excess), "d = {d}, n = {n}: {excess}");
            assert!(blt.is_non_increasing() && blt.num_buffers() == d);
        }
    }
    for n in [1, 2, 1_000_000_000_000, u64::MAX] {
        (1..=64).for_each(|d| assert!(Blt::rational(d, n).is_ok(), "{d} {n}"));
    }
    // The engine accepts as many buffers as it can hold.
    let blt = Blt::rational(8, 1_000_000).unwrap();
    assert!(corrnoise_core::Form::blt(blt.scale(), blt.decay()).is_ok());
}

#[test]
fn refusals_name_their_value() {
    let cases: [(corrnoise_planner::Result<Blt>, &str); 19] = [
        (Blt::new(&[0.25, 0.125], &[0.5]), "number of decays is 1: expected one per buffer: 2"),
        (Blt::new(&[0.25, -0.125], &[0.5, 0.25]), "scale 1 is -0.125: expected above 0"),
        (Blt::new(&[0.0], &[0.5]), "scale 0 is 0: expected above 0"),
        (Blt::new(&[f64::NAN], &[0.5]), "scale 0 is NaN"),
        (Blt::new(&[f64::INFINITY], &[0.5]), "scale 0 is inf"),
        (Blt::new(&[1e308, 1e308], &[0.5, 0.25]), "sum of the scales is inf"),
        (Blt::new(&[0.25], &[1.0]), "decay 0 is 1: expected above 0 and below 1"),
        (Blt::new(&[0.25], &[0.0]), "decay 0 is 0"),
        (Blt::new(&[0.25, 0.5], &[0.5, f64::NAN]), "decay 1 is NaN"),
        (Blt::new(&[0.1, 0.2, 0.3], &[0.75, 0.5, 0.75]), "decay 2 is 0.75: expected a value other than"),
        (Blt::new(&[1.75], &[0.5]), "smallest decay of the inverse is -1.25: expected above -1"),
        (Blt::new(&[1.5], &[0.5]), "smallest decay of the inverse is -1:"),
        (Blt::from_decays(&[0.5], &[0.25, 0.125]), "number of inverse decays is 2"),
        (
            Blt::from_decays(&[0.5, 0.25], &[0.125, 0.625]),
            "inverse decay 1 is 0.625: expected above 0.25 and below 0.5",
        ),
        (Blt::from_decays(&[0.5], &[-1.0]), "inverse decay 0 is -1: expected above -1 and below 1"),
        (
            Blt::from_decays(&[0.5, 0.25], &[0.375, 0.25]),
            "inverse decay 1 is 0.25: expected above -1 and below 0.25",
        ),
        (Blt::rational(0, 10), "number of buffers is 0"),
        (Blt::rational(65, 10), "number of buffers is 65: expected between 1 and 64"),
        (Blt::rational(4, 0), "number of steps is 0"),
    ];
    for (result, expected) in cases {
        let message = result.expect_err(expected).to_string();
        assert!(message.contains(expected), "{message:?} for {expected:?}");
    }
}
