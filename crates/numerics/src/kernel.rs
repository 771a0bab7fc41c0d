//! The inner kernel of a matrix product: a tile of the result stays in registers while a run of products is added to it.
//!
//! Every entry of the tile is one chain of fused multiply-adds in the order of the run, whatever the size of the tile: instruction sets
//! that fuse give the same bits.

use std::cell::RefCell;

/// A number type that products are computed in.
pub trait Number: Copy + Default + Send + Sync + std::fmt::Debug + 'static {
    /// One, to scale with.
    const ONE: Self;

    /// `self · factor + addend`, fused where the processor that was compiled for does so in one instruction.
    fn multiply_add(self, factor: Self, addend: Self) -> Self;

    /// The fastest kernel of this machine.
    #[doc(hidden)]
    fn kernel() -> Kernel<Self>;

    /// Lends the thread's memory for copies of factors: that of a small product would cost as much as the product.
    #[doc(hidden)]
    fn with_scratch<R>(use_it: impl FnOnce(&mut Vec<Self>) -> R) -> R;
}

/// Adds `scale · Σ_p left[p,·] right[p,·]ᵀ` to a tile of columns that are `stride` apart: `left` holds `rows` numbers for each p,
/// `right` holds `columns`.
type Run<T> = unsafe fn(left: &[T], right: &[T], scale: T, out: &mut [T], stride: usize);

/// Kernels for one instruction set, and the size of their tile.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Kernel<T: 'static> {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// The rows of one vector.
    pub(crate) lanes: usize,
    /// For tiles whose first one, two, … vectors of rows are needed.
    runs: &'static [Run<T>],
}

impl<T: Number> Kernel<T> {
    /// Only the first `rows` rows of the tile, a multiple of the lanes, are computed.
    pub(crate) fn run(&self, rows: usize, left: &[T], right: &[T], scale: T, out: &mut [T], stride: usize) {
        assert!(stride >= rows && out.len() >= (self.columns - 1) * stride + rows);
        // SAFETY: `Number::kernel` returns what the processor has the instructions of, and the tile lies inside `out`.
        unsafe { (self.runs[rows / self.lanes - 1])(left, right, scale, out, stride) }
    }

    /// Plain Rust, for every processor.
    const PORTABLE: Kernel<T> = Kernel { rows: 4, columns: 4, lanes: 4, runs: &[portable] };
}

fn portable<T: Number>(left: &[T], right: &[T], scale: T, out: &mut [T], stride: usize) {
    let mut sums = [[T::default(); 4]; 4];
    for (left, right) in left.as_chunks::<4>().0.iter().zip(right.as_chunks::<4>().0) {
        for (sums, right) in sums.iter_mut().zip(right) {
            for (sum, left) in sums.iter_mut().zip(left) {
                *sum = left.multiply_add(*right, *sum);
            }
        }
    }
    for (out, sums) in out.chunks_mut(stride).zip(&sums) {
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = sum.multiply_add(scale, *out);
        }
    }
}

macro_rules! number {
    ($number:ty, $avx512:ident, $avx2:ident) => {
        impl Number for $number {
            const ONE: $number = 1.0;

            fn multiply_add(self, factor: $number, addend: $number) -> $number {
                if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
                    self.mul_add(factor, addend)
                } else {
                    self * factor + addend
                }
            }

            fn kernel() -> Kernel<$number> {
                #[cfg(target_arch = "x86_64")]
                {
                    if is_x86_feature_detected!("avx512f") {
                        return x86::$avx512;
                    }
                    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                        return x86::$avx2;
                    }
                }
                Kernel::PORTABLE
            }

            fn with_scratch<R>(use_it: impl FnOnce(&mut Vec<$number>) -> R) -> R {
                thread_local!(static SCRATCH: RefCell<Vec<$number>> = const { RefCell::new(Vec::new()) });
                SCRATCH.with_borrow_mut(use_it)
            }
        }
    };
}

number!(f64, AVX512_F64, AVX2_F64);
number!(f32, AVX512_F32, AVX2_F32);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Kernel;
    use std::arch::x86_64::*;

    /// Kernels for tiles of `$vectors` vectors of `$lanes` rows by `$columns` columns.
    macro_rules! kernel {
        ($constant:ident = $name:ident, $feature:literal, $number:ty, $lanes:literal x $vectors:literal x $columns:literal,
         $zero:ident, $load:ident, $set:ident, $fma:ident, $store:ident, [$($used:literal)*]) => {
            #[target_feature(enable = $feature)]
            fn $name<const USED: usize>(
                left: &[$number],
                right: &[$number],
                scale: $number,
                out: &mut [$number],
                stride: usize,
            ) {
                let left = left.as_chunks::<$lanes>().0.as_chunks::<$vectors>().0;
                let mut sums = [[$zero(); USED]; $columns];
                for (left, right) in left.iter().zip(right.as_chunks::<$columns>().0) {
                    // SAFETY: one array of lanes is read.
                    let left: [_; USED] = std::array::from_fn(|v| unsafe { $load(left[v].as_ptr()) });
                    for (sums, right) in sums.iter_mut().zip(right) {
                        let right = $set(*right);
                        for (sum, left) in sums.iter_mut().zip(&left) {
                            *sum = $fma(*left, right, *sum);
                        }
                    }
                }
                let scale = $set(scale);
                for (out, sums) in out.chunks_mut(stride).zip(&sums) {
                    for (out, sum) in out.as_chunks_mut::<$lanes>().0.iter_mut().zip(sums) {
                        // SAFETY: one array of lanes is read and written.
                        unsafe { $store(out.as_mut_ptr(), $fma(*sum, scale, $load(out.as_ptr()))) };
                    }
                }
            }

            pub(super) const $constant: Kernel<$number> = Kernel {
                rows: $lanes * $vectors,
                columns: $columns,
                lanes: $lanes,
                runs: &[$($name::<$used>),*],
            };
        };
    }

    kernel!(
        AVX512_F64 = avx512_f64, "avx512f", f64, 8 x 3 x 8,
        _mm512_setzero_pd, _mm512_loadu_pd, _mm512_set1_pd, _mm512_fmadd_pd, _mm512_storeu_pd, [1 2 3]
    );
    kernel!(
        AVX512_F32 = avx512_f32, "avx512f", f32, 16 x 3 x 8,
        _mm512_setzero_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_storeu_ps, [1 2 3]
    );
    kernel!(
        AVX2_F64 = avx2_f64, "avx2,fma", f64, 4 x 2 x 6,
        _mm256_setzero_pd, _mm256_loadu_pd, _mm256_set1_pd, _mm256_fmadd_pd, _mm256_storeu_pd, [1 2]
    );
    kernel!(
        AVX2_F32 = avx2_f32, "avx2,fma", f32, 8 x 2 x 6,
        _mm256_setzero_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_storeu_ps, [1 2]
    );
}

/// All kernels that run on this machine.
#[cfg(test)]
pub(crate) fn kernels() -> Vec<Kernel<f64>> {
    let mut kernels = vec![Kernel::PORTABLE];
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            kernels.push(x86::AVX2_F64);
        }
        if is_x86_feature_detected!("avx512f") {
            kernels.push(x86::AVX512_F64);
        }
    }
    kernels
}
