//! The kernels' square root with one operation rounded toward zero, not fused, or with the other sign: which of them change no result, whatever approximation
//! the root begins with. `excused/turns.rs` calls those equivalent.
//!
//! Results of arguments that differ by a power of four differ by its root, so one period of arguments stands for all. `CORRNOISE_ROOTS=all`
//! tries all of its 2²⁴; otherwise every 1,021st runs.

/// The largest relative error of `rsqrt.approx.ftz.f32`, 2^−22.9.
const ERROR: f64 = 1.277_550_292_141_467e-7;

/// What is wrong with an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    Nothing,
    Cut,
    Split,
    /// The product has the other sign.
    Minus,
}

/// `high + low` as f32, rounded toward zero.
fn cut(high: f64, low: f64) -> f32 {
    let nearest = high as f32;
    let above = (f64::from(nearest) - high) - low;
    let is_too_large = above != 0.0 && (above > 0.0) == (nearest > 0.0);
    if is_too_large { f32::from_bits(nearest.to_bits() - 1) } else { nearest }
}

fn product(wrong: Wrong, a: f32, b: f32) -> f32 {
    if wrong == Wrong::Cut { cut(f64::from(a) * f64::from(b), 0.0) } else { a * b }
}

fn fma(wrong: Wrong, a: f32, b: f32, c: f32) -> f32 {
    match wrong {
        Wrong::Nothing => a.mul_add(b, c),
        Wrong::Split => a * b + c,
        Wrong::Minus => (-a).mul_add(b, c),
        Wrong::Cut => {
            // The sum, and exactly what its rounding to f64 left out.
            let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
            let sum = product + c;
            let of_c = sum - product;
            cut(sum, (product - (sum - of_c)) + (c - of_c))
        }
    }
}

/// `root_from` of kernels/gauss.cuh with operation `at` wrong; the product with one half is exact.
fn root(x: f32, y: f32, at: usize, wrong: Wrong) -> f32 {
    let of = |number: usize| if number == at { wrong } else { Wrong::Nothing };
    let (s, h) = (product(of(0), x, y), y * 0.5);
    let e = fma(of(1), -h, s, 0.5);
    let s = fma(of(2), s, e, s);
    let h = fma(of(3), h, e, h);
    fma(of(5), fma(of(4), -s, s, x), h, s)
}

/// How many of the arguments have a wrong root with some approximation.
fn wrong_roots(at: usize, wrong: Wrong) -> usize {
    let step = if std::env::var("CORRNOISE_ROOTS").is_ok_and(|value| value == "all") { 1 } else { 1_021 };
    let arguments = (1_f32.to_bits()..4_f32.to_bits()).step_by(step).map(f32::from_bits);
    let is_wrong = |x: &f32| {
        let exact = 1.0 / f64::from(*x).sqrt();
        let near = (-3..=3).map(|i| f32::from_bits((exact as f32).to_bits().wrapping_add_signed(i)));
        let mut allowed = near.filter(|y| ((f64::from(*y) - exact) / exact).abs() <= ERROR);
        allowed.any(|y| root(*x, y, at, wrong) != x.sqrt())
    };
    arguments.filter(is_wrong).count()
}

#[test]
fn only_the_residue_and_the_last_rounding_matter() {
    assert_eq!(wrong_roots(0, Wrong::Nothing), 0);
    for at in 0..6 {
        for wrong in [Wrong::Cut, Wrong::Split] {
            let count = wrong_roots(at, wrong);
            println!("operation {at}, {wrong:?}: {count}");
            let matters = (at, wrong) == (4, Wrong::Split) || (at, wrong) == (5, Wrong::Cut);
            assert_eq!(count > 0, matters, "operation {at}, {wrong:?}: {count} wrong roots");
        }
    }
}

#[test]
fn the_sign_of_a_correction_seldom_matters_before_the_last() {
    for at in [2, 3] {
        let count = wrong_roots(at, Wrong::Minus);
        println!("operation {at}, {:?}: {count}", Wrong::Minus);
        assert!(count <= 8, "operation {at} with the other sign: {count} wrong roots");
    }
}
