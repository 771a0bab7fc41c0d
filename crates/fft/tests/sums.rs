//! Transforms against the sums that define them. As unit tests they would compile the library a second time.

use corrnoise_fft::{Complex64, Transforms};

#[test]
fn transforms_are_the_sums_they_say() {
    for size in [1, 8, 30, 64] {
        let values: Vec<Complex64> =
            (0..size).map(|t| Complex64::new((t * t) as f64 * 0.1 - 1.0, (3.0 - t as f64).sin())).collect();
        let transforms = Transforms::new(size);
        let mut there = values.clone();
        transforms.forward(&mut there);
        let angle = |k: usize, t: usize| -std::f64::consts::TAU * ((k * t) % size) as f64 / size as f64;
        for (k, found) in there.iter().enumerate() {
            let sum: Complex64 =
                values.iter().enumerate().map(|(t, value)| value * Complex64::cis(angle(k, t))).sum();
            assert!((found - sum).norm() < 1e-11 * size as f64, "{size} {k}");
        }
        transforms.inverse(&mut there);
        for (found, value) in there.iter().zip(&values) {
            assert!((found / size as f64 - value).norm() < 1e-12 * size as f64);
        }
    }
}
