//! Loops over columns that memory bounds or divisions do, compiled once for AVX2 with fused multiply-adds and once for any processor.
//!
//! Sums are kept in eight lanes whose order is fixed: vectors of any length give the same bits.

/// Partial sums of a dot product.
const LANES: usize = 8;
/// Columns that are visited together, so that a vector is loaded and stored once for all of them.
const GROUP: usize = 4;

#[inline(always)]
pub(crate) fn multiply_add<const FUSED: bool>(left: f64, right: f64, addend: f64) -> f64 {
    if FUSED { left.mul_add(right, addend) } else { left * right + addend }
}

/// Defines functions with a body that is compiled for two instruction sets, of which the processor chooses.
macro_rules! vectorised {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $output:ty)? = $body:ident $(::<$way:literal>)?;)*) => {$(
        $(#[$attribute])*
        pub fn $name($($argument: $type),*) $(-> $output)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn fused($($argument: $type),*) $(-> $output)? {
                    $body::<$($way,)? true>($($argument),*)
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: the processor has these instructions.
                    return unsafe { fused($($argument),*) };
                }
            }
            $body::<$($way,)? { cfg!(target_arch = "aarch64") }>($($argument),*)
        }
    )*};
}

pub(crate) use vectorised;

vectorised! {
    /// The dot product of two vectors.
    fn dot(left: &[f64], right: &[f64]) -> f64 = dot_body;

    /// `out += Σ_k weights_k · column_k`, where `columns` starts with the first entry of the first column.
    fn add_columns(columns: &[f64], stride: usize, weights: &[f64], out: &mut [f64]) = add_columns_body;

    /// `out_k = column_k · vector`, where `columns` starts with the first entry of the first column.
    fn dot_columns(columns: &[f64], stride: usize, vector: &[f64], out: &mut [f64]) = dot_columns_body;

    /// `out = S·vector` for a symmetric matrix of which the lower triangle is read, once.
    fn symmetric_times(lower: &[f64], stride: usize, vector: &[f64], out: &mut [f64]) = symmetric_times_body;

    /// `Σ_i weight_i² / (pole_i − at)` and its derivative.
    fn pole_sum(poles: &[f64], weights: &[f64], at: f64) -> (f64, f64) = pole_sum_body;
}

#[inline(always)]
fn dot_body<const FUSED: bool>(left: &[f64], right: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    let (left_chunks, left_rest) = left.as_chunks::<LANES>();
    let (right_chunks, right_rest) = right.as_chunks::<LANES>();
    for (left, right) in left_chunks.iter().zip(right_chunks) {
        for i in 0..LANES {
            sums[i] = multiply_add::<FUSED>(left[i], right[i], sums[i]);
        }
    }
    let rest = left_rest.iter().zip(right_rest);
    rest.fold(sums.iter().sum(), |sum, (left, right)| multiply_add::<FUSED>(*left, *right, sum))
}

#[inline(always)]
fn add_columns_body<const FUSED: bool>(columns: &[f64], stride: usize, weights: &[f64], out: &mut [f64]) {
    let n = out.len();
    let (groups, rest) = weights.as_chunks::<GROUP>();
    for (group, weights) in groups.iter().enumerate() {
        let [a, b, c, d] = std::array::from_fn(|k| &columns[(GROUP * group + k) * stride..][..n]);
        for i in 0..n {
            let mut sum = out[i];
            for (column, weight) in [a, b, c, d].iter().zip(weights) {
                sum = multiply_add::<FUSED>(column[i], *weight, sum);
            }
            out[i] = sum;
        }
    }
    for (k, weight) in rest.iter().enumerate() {
        let column = &columns[(GROUP * groups.len() + k) * stride..][..n];
        for (out, entry) in out.iter_mut().zip(column) {
            *out = multiply_add::<FUSED>(*entry, *weight, *out);
        }
    }
}

#[inline(always)]
fn dot_columns_body<const FUSED: bool>(columns: &[f64], stride: usize, vector: &[f64], out: &mut [f64]) {
    for (k, out) in out.iter_mut().enumerate() {
        *out = dot_body::<FUSED>(&columns[k * stride..][..vector.len()], vector);
    }
}

#[inline(always)]
fn symmetric_times_body<const FUSED: bool>(lower: &[f64], stride: usize, vector: &[f64], out: &mut [f64]) {
    let n = vector.len();
    out.fill(0.0);
    for start in (0..n).step_by(GROUP) {
        let end = (start + GROUP).min(n);
        // The triangle on the diagonal, and then what lies below it.
        for s in start..end {
            out[s] = multiply_add::<FUSED>(lower[s * stride + s], vector[s], out[s]);
            for t in s + 1..end {
                let entry = lower[s * stride + t];
                out[t] = multiply_add::<FUSED>(entry, vector[s], out[t]);
                out[s] = multiply_add::<FUSED>(entry, vector[t], out[s]);
            }
        }
        if end == n {
            break;
        }
        let columns: [&[f64]; GROUP] =
            std::array::from_fn(|k| &lower[(start + k) * stride + end..][..n - end]);
        let weights: [f64; GROUP] = std::array::from_fn(|k| vector[start + k]);
        let sums = both_sides::<FUSED>(columns, weights, &vector[end..], &mut out[end..]);
        (start..end).zip(sums).for_each(|(s, sum)| out[s] += sum);
    }
}

/// Adds weighted columns to `out`, and returns the columns' dot products with a vector.
#[inline(always)]
fn both_sides<const FUSED: bool>(
    columns: [&[f64]; GROUP],
    weights: [f64; GROUP],
    vector: &[f64],
    out: &mut [f64],
) -> [f64; GROUP] {
    let n = vector.len();
    let chunks: [&[[f64; LANES]]; GROUP] = columns.map(|column| column[..n].as_chunks::<LANES>().0);
    let mut sums = [[0.0; LANES]; GROUP];
    for (c, (vector, out)) in
        vector.as_chunks::<LANES>().0.iter().zip(out.as_chunks_mut::<LANES>().0).enumerate()
    {
        for k in 0..GROUP {
            let column = &chunks[k][c];
            for i in 0..LANES {
                out[i] = multiply_add::<FUSED>(column[i], weights[k], out[i]);
            }
            for i in 0..LANES {
                sums[k][i] = multiply_add::<FUSED>(column[i], vector[i], sums[k][i]);
            }
        }
    }
    let mut sums = sums.map(|lanes| lanes.iter().sum::<f64>());
    for i in n / LANES * LANES..n {
        for k in 0..GROUP {
            out[i] = multiply_add::<FUSED>(columns[k][i], weights[k], out[i]);
            sums[k] = multiply_add::<FUSED>(columns[k][i], vector[i], sums[k]);
        }
    }
    sums
}

#[inline(always)]
fn pole_sum_body<const FUSED: bool>(poles: &[f64], weights: &[f64], at: f64) -> (f64, f64) {
    let (mut values, mut slopes) = ([0.0; LANES], [0.0; LANES]);
    let (pole_chunks, pole_rest) = poles.as_chunks::<LANES>();
    let (weight_chunks, weight_rest) = weights.as_chunks::<LANES>();
    for (poles, weights) in pole_chunks.iter().zip(weight_chunks) {
        for i in 0..LANES {
            let ratio = weights[i] / (poles[i] - at);
            values[i] = multiply_add::<FUSED>(weights[i], ratio, values[i]);
            slopes[i] = multiply_add::<FUSED>(ratio, ratio, slopes[i]);
        }
    }
    let (mut value, mut slope) = (values.iter().sum(), slopes.iter().sum());
    for (pole, weight) in pole_rest.iter().zip(weight_rest) {
        let ratio = weight / (pole - at);
        value = multiply_add::<FUSED>(*weight, ratio, value);
        slope = multiply_add::<FUSED>(ratio, ratio, slope);
    }
    (value, slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(n: usize, phase: f64) -> Vec<f64> {
        (0..n).map(|i| (phase + 1.7 * i as f64).sin()).collect()
    }

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-12
    }

    #[test]
    fn every_length_is_the_sum_it_says() {
        for n in [1, 2, 3, 4, 5, 7, 8, 9, 12, 31, 40, 65] {
            let (stride, vector) = (n + 3, wave(n, 0.4));
            let matrix = wave(stride * n, 0.1);
            let entry = |t: usize, s: usize| matrix[s * stride + t];
            assert!(close(dot(&vector, &matrix[..n]), (0..n).map(|t| vector[t] * matrix[t]).sum()));

            let mut out = vec![0.0; n];
            symmetric_times(&matrix, stride, &vector, &mut out);
            for (t, found) in out.iter().enumerate() {
                let sum = (0..n).map(|s| entry(t.max(s), t.min(s)) * vector[s]).sum();
                assert!(close(*found, sum), "{n} {t}");
            }

            let mut out = wave(n, 0.9);
            add_columns(&matrix, stride, &vector, &mut out);
            for (t, found) in out.iter().enumerate() {
                let sum: f64 = (0..n).map(|s| entry(t, s) * vector[s]).sum();
                assert!(close(*found, wave(n, 0.9)[t] + sum), "{n} {t}");
            }

            let mut out = vec![0.0; n];
            dot_columns(&matrix, stride, &vector, &mut out);
            for (s, found) in out.iter().enumerate() {
                assert!(close(*found, (0..n).map(|t| entry(t, s) * vector[t]).sum()), "{n} {s}");
            }

            let poles: Vec<f64> = (0..n).map(|i| i as f64).collect();
            let (value, slope) = pole_sum(&poles, &vector, -0.5);
            assert!(close(value, (0..n).map(|i| vector[i].powi(2) / (poles[i] + 0.5)).sum()), "{n}");
            assert!(close(slope, (0..n).map(|i| (vector[i] / (poles[i] + 0.5)).powi(2)).sum()), "{n}");
        }
    }
}
