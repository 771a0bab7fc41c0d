//! Mixtures of rows with weights that are not negative, for eight lanes at a time: what a backward recursion over a Gaussian chain is
//! made of. Lanes are independent of each other, so results do not depend on how many there are.

use crate::vector::{multiply_add, vectorised};

/// Numbers that are worked on together.
pub const LANES: usize = 8;
/// Numbers of a block: a few lanes' worth, so that sums stay in registers.
pub const BLOCK: usize = 32;
/// What is worked on together.
pub type Lane = [f64; LANES];

/// A matrix of few entries per row, by the columns that they are in.
#[derive(Clone, Debug, Default)]
pub struct Sparse {
    /// Where each row's entries start, and where the last one's end.
    pub starts: Vec<u32>,
    /// The column of every entry.
    pub columns: Vec<u32>,
    /// The value of every entry.
    pub values: Vec<f64>,
}

vectorised! {
    /// Adds a sparse matrix times rows of lanes to constants: `out_r = constant_r + Σ_c entry_rc · rows_c`.
    fn sparse_times_lanes(matrix: &Sparse, constants: &[f64], rows: &[Lane], out: &mut [Lane]) = sparse_lanes_body;

    /// The same for one number per row.
    fn sparse_times_numbers(matrix: &Sparse, constants: &[f64], rows: &[f64], out: &mut [f64]) = sparse_numbers_body;

    /// `out = start + Σ_k weights_k · blocks_k`, where lane `i` of a weight is for the numbers `i` modulo eight of a block.
    fn blend_blocks(weights: &[Lane], blocks: &[[f64; BLOCK]], start: &Lane, out: &mut [f64; BLOCK]) = blend_body;

    /// `φ(z)·p(z)` with the normal density φ, polynomials p and `z = (node − mean)/sd`, for means in lanes: nodes in a row, with the
    /// first and the last one's own polynomials.
    fn density_times_polynomials(polynomials: &[&[f64]], nodes: &[f64], means: &Lane, sd: f64, out: &mut [Lane]) = density_body;
}

#[inline(always)]
fn sparse_lanes_body<const FUSED: bool>(matrix: &Sparse, constants: &[f64], rows: &[Lane], out: &mut [Lane]) {
    for (r, out) in out.iter_mut().enumerate() {
        let entries = matrix.starts[r] as usize..matrix.starts[r + 1] as usize;
        let (columns, values) = (&matrix.columns[entries.clone()], &matrix.values[entries]);
        // Two sums, so that additions need not wait for each other.
        let mut sums = [[constants[r]; LANES], [0.0; LANES]];
        let (column_pairs, last_column) = columns.as_chunks::<2>();
        let (value_pairs, last_value) = values.as_chunks::<2>();
        for (columns, values) in column_pairs.iter().zip(value_pairs) {
            for half in 0..2 {
                let row = &rows[columns[half] as usize];
                for i in 0..LANES {
                    sums[half][i] = multiply_add::<FUSED>(values[half], row[i], sums[half][i]);
                }
            }
        }
        for (column, value) in last_column.iter().zip(last_value) {
            let row = &rows[*column as usize];
            for i in 0..LANES {
                sums[0][i] = multiply_add::<FUSED>(*value, row[i], sums[0][i]);
            }
        }
        *out = std::array::from_fn(|i| sums[0][i] + sums[1][i]);
    }
}

#[inline(always)]
fn sparse_numbers_body<const FUSED: bool>(matrix: &Sparse, constants: &[f64], rows: &[f64], out: &mut [f64]) {
    for (r, out) in out.iter_mut().enumerate() {
        let entries = matrix.starts[r] as usize..matrix.starts[r + 1] as usize;
        let mut sums = [constants[r], 0.0, 0.0, 0.0];
        for (k, e) in entries.enumerate() {
            let term = rows[matrix.columns[e] as usize];
            sums[k % 4] = multiply_add::<FUSED>(matrix.values[e], term, sums[k % 4]);
        }
        *out = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
}

#[inline(always)]
fn blend_body<const FUSED: bool>(
    weights: &[Lane],
    blocks: &[[f64; BLOCK]],
    start: &Lane,
    out: &mut [f64; BLOCK],
) {
    let mut sum: [f64; BLOCK] = std::array::from_fn(|i| start[i % LANES]);
    for (weight, block) in weights.iter().zip(blocks) {
        for i in 0..BLOCK {
            sum[i] = multiply_add::<FUSED>(weight[i % LANES], block[i], sum[i]);
        }
    }
    *out = sum;
}

/// The normal density at its mean, `1/√(2π)`.
const DENSITY: f64 = 0.398_942_280_401_432_7;

#[inline(always)]
fn density_body<const FUSED: bool>(
    polynomials: &[&[f64]],
    nodes: &[f64],
    means: &Lane,
    sd: f64,
    out: &mut [Lane],
) {
    let scale = 1.0 / sd;
    for ((polynomial, node), out) in polynomials.iter().zip(nodes).zip(out) {
        let z: Lane = std::array::from_fn(|i| (node - means[i]) * scale);
        let mut sum = [0.0; LANES];
        for coef in polynomial.iter().rev() {
            for i in 0..LANES {
                sum[i] = multiply_add::<FUSED>(sum[i], z[i], *coef);
            }
        }
        for i in 0..LANES {
            out[i] = DENSITY * sum[i] * exp::<FUSED>(-0.5 * z[i] * z[i]);
        }
    }
}

/// The exponential function to a few units in the last place, without branches; arguments are cut to ±700.
#[inline(always)]
fn exp<const FUSED: bool>(x: f64) -> f64 {
    // Adding this leaves an integer in the last bits.
    const ROUNDER: f64 = 6_755_399_441_055_744.0;
    const LN_2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    let x = x.clamp(-700.0, 700.0);
    let shifted = x * std::f64::consts::LOG2_E + ROUNDER;
    let k = shifted - ROUNDER;
    let r = (x - k * LN_2_HIGH) - k * LN_2_LOW;
    // Taylor's series to r¹³: |r| ≤ 0.35 leaves 5e-18.
    const COEFS: [f64; 14] = [
        1.0 / 6_227_020_800.0,
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    let mut sum = 0.0;
    for coef in COEFS {
        sum = multiply_add::<FUSED>(sum, r, coef);
    }
    sum * f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_has_all_its_digits() {
        for i in -70_000..70_000 {
            let x = f64::from(i) * 0.009_97;
            let (found, exact) = (exp::<false>(x), x.exp());
            assert!((found / exact - 1.0).abs() < 1e-15, "{x}: {found} {exact}");
        }
        assert!(exp::<false>(-1e9) > 0.0 && exp::<false>(-1e9) < 1e-303);
    }

    #[test]
    fn mixtures_are_sums_of_products() {
        let matrix =
            Sparse { starts: vec![0, 3, 3, 4], columns: vec![0, 2, 1, 1], values: vec![0.5, 2.0, 3.0, 7.0] };
        let rows: Vec<Lane> = (0..3).map(|r| std::array::from_fn(|i| (10 * r + i) as f64)).collect();
        let mut out = vec![[0.0; LANES]; 3];
        sparse_times_lanes(&matrix, &[1.0, 2.0, 3.0], &rows, &mut out);
        let x = |r: usize, i: usize| (10 * r + i) as f64;
        let expected: [Lane; 3] = [
            std::array::from_fn(|i| 1.0 + 0.5 * x(0, i) + 2.0 * x(2, i) + 3.0 * x(1, i)),
            [2.0; LANES],
            std::array::from_fn(|i| 3.0 + 7.0 * x(1, i)),
        ];
        assert_eq!(out, expected);
        let mut numbers = [0.0; 3];
        sparse_times_numbers(&matrix, &[1.0, 2.0, 3.0], &[1.0, 2.0, 4.0], &mut numbers);
        assert_eq!(numbers, [1.0 + 0.5 + 8.0 + 6.0, 2.0, 17.0]);
        let blocks = [std::array::from_fn(|i| i as f64), [2.0; BLOCK]];
        let weights = [std::array::from_fn(|i| 1.0 + i as f64), [0.25; LANES]];
        let mut block = [0.0; BLOCK];
        blend_blocks(&weights, &blocks, &[3.0; LANES], &mut block);
        assert_eq!((block[1], block[9], block[31]), (3.0 + 2.0 + 0.5, 3.0 + 18.0 + 0.5, 3.0 + 248.0 + 0.5));
    }

    #[test]
    fn densities_are_those_of_the_formula() {
        let (means, nodes) = (std::array::from_fn(|i| 0.3 * i as f64), [0.1, 1.7, -2.0]);
        let polynomials: [&[f64]; 3] = [&[1.0, 0.5, 0.25], &[2.0], &[0.0, -1.0]];
        let mut out = [[0.0; LANES]; 3];
        density_times_polynomials(&polynomials, &nodes, &means, 0.7, &mut out);
        for (k, node) in nodes.iter().enumerate() {
            for i in 0..LANES {
                let z: f64 = (node - means[i]) / 0.7;
                let polynomial = polynomials[k].iter().rev().fold(0.0, |sum, coef| sum * z + coef);
                let exact = polynomial * (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
                assert!((out[k][i] - exact).abs() < 1e-14 * (1.0 + exact.abs()), "{} {exact}", out[k][i]);
            }
        }
    }
}
