//! The AVX2 + FMA engine: 8 lanes, and a sampler that computes 16 ChaCha blocks side by side.

mod sample;

use super::assignment::Piece;
use super::kernels::{self, Job, Simd, Tile};
use super::lanes::{Lanes, Stored};
use super::prefetch::Ahead;
use crate::chacha::ChaCha;
use crate::grid::{Grid, OFFSET, TO_INTEGER};
use crate::row::Row;
use half::{bf16, f16};
use std::arch::x86_64::*;

/// True if this machine has the instructions that the engine needs.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

/// Runs a piece with this engine.
///
/// # Safety
/// The machine must have AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run<G: Stored, const AHEAD: bool>(job: &Job<'_>, piece: Piece<'_, G>) {
    // SAFETY: the features are enabled here, and `kernels::run` inlines into this function.
    unsafe { kernels::run::<Avx2, G, AHEAD>(job, piece) }
}

/// The type that selects this engine at compile time.
pub(super) struct Avx2;

// SAFETY: `sample` writes whole tiles; the lanes of this engine are used only inside `run`, where the features are enabled.
unsafe impl Simd for Avx2 {
    type Lanes = __m256;
    #[inline(always)]
    unsafe fn sample(cipher: &ChaCha, row: Row, tile: u64, out: &mut Tile, ahead: &mut impl Ahead) {
        // SAFETY: the caller has the features.
        unsafe { sample::sample(cipher, row, tile, out, ahead) }
    }
}

#[inline(always)]
unsafe fn float(value: f32) -> __m256 {
    // SAFETY: callers run with AVX2 enabled.
    unsafe { _mm256_set1_ps(value) }
}

#[inline(always)]
unsafe fn int(value: u32) -> __m256i {
    // SAFETY: callers run with AVX2 enabled.
    unsafe { _mm256_set1_epi32(value as i32) }
}

// SAFETY: every method needs AVX2, FMA and F16C, which only `run` and its callees use, with the features enabled.
#[allow(clippy::undocumented_unsafe_blocks)] // each block is the one access that the trait's contract covers
unsafe impl Lanes for __m256 {
    const WIDTH: usize = 8;
    type Words = __m256i;
    #[inline(always)]
    unsafe fn words(first: u32, stride: u32) -> __m256i {
        unsafe {
            let numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            _mm256_add_epi32(int(first), _mm256_mullo_epi32(numbers, int(stride)))
        }
    }
    #[inline(always)]
    unsafe fn add_words(words: __m256i, number: u32) -> __m256i {
        unsafe { _mm256_add_epi32(words, int(number)) }
    }
    #[inline(always)]
    unsafe fn add_on_grid(self, grid: Grid, z: Self, words: __m256i) -> Self {
        unsafe {
            let whole = _mm256_mul_ps(self, float(grid.per_unit));
            let nearest = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(whole);
            let rest = _mm256_sub_ps(whole, nearest);
            let scale = float(grid.scale);
            let shifted = _mm256_fmadd_ps(scale, z, float(TO_INTEGER));
            let integer = _mm256_sub_ps(shifted, float(TO_INTEGER + OFFSET));
            let undithered = _mm256_fmsub_ps(scale, z, integer);
            let fraction = _mm256_fmadd_ps(_mm256_cvtepi32_ps(words), float(grid.dither), undithered);
            let up = _mm256_cmp_ps::<_CMP_GE_OQ>(rest, _mm256_sub_ps(float(OFFSET + 0.5), fraction));
            let down = _mm256_cmp_ps::<_CMP_LT_OQ>(rest, _mm256_sub_ps(float(OFFSET - 0.5), fraction));
            // A true comparison is −1 as an integer.
            let carry = _mm256_sub_epi32(_mm256_castps_si256(down), _mm256_castps_si256(up));
            let carry = _mm256_cvtepi32_ps(_mm256_add_epi32(carry, int(OFFSET as u32)));
            _mm256_mul_ps(_mm256_add_ps(nearest, _mm256_add_ps(integer, carry)), float(grid.unit))
        }
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        unsafe { _mm256_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn zero() -> Self {
        unsafe { _mm256_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn fma(self, factor: Self, term: Self) -> Self {
        unsafe { _mm256_fmadd_ps(self, factor, term) }
    }
    #[inline(always)]
    unsafe fn load_f32(from: *const f32) -> Self {
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store_f32(self, to: *mut f32) {
        unsafe { _mm256_storeu_ps(to, self) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self {
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut bf16) {
        unsafe {
            let bits = _mm256_castps_si256(self);
            let top = _mm256_srli_epi32::<16>(bits);
            // This rounds to nearest, ties to even: it adds just under half, plus one if the kept part is odd.
            let bias = _mm256_add_epi32(_mm256_and_si256(top, int(1)), int(0x7fff));
            let rounded = _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, bias));
            let quiet = _mm256_or_si256(top, int(0x40));
            let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(self, self));
            let chosen = _mm256_blendv_epi8(rounded, quiet, is_nan);
            let packed = _mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(chosen, chosen));
            _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(packed));
        }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> Self {
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16) {
        unsafe { _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds eight floats at a time with the vector path and compares with the crate `half`.
    #[target_feature(enable = "avx2,fma,f16c")]
    fn compare(bits: [u32; 8]) {
        let values = bits.map(f32::from_bits);
        let (mut brain, mut half) = ([bf16::ZERO; 8], [f16::ZERO; 8]);
        let (mut brain_back, mut half_back) = ([0.0_f32; 8], [0.0_f32; 8]);
        // SAFETY: eight values each; the features are enabled here.
        unsafe {
            let lanes = __m256::load_f32(values.as_ptr());
            lanes.store_bf16(brain.as_mut_ptr());
            lanes.store_f16(half.as_mut_ptr());
            __m256::load_bf16(brain.as_ptr()).store_f32(brain_back.as_mut_ptr());
            __m256::load_f16(half.as_ptr()).store_f32(half_back.as_mut_ptr());
        }
        for i in 0..8 {
            let (exact_brain, exact_half) = (bf16::from_f32(values[i]), f16::from_f32(values[i]));
            if values[i].is_nan() {
                assert!(
                    brain[i].is_nan() && half[i].is_nan() && brain_back[i].is_nan() && half_back[i].is_nan()
                );
            } else {
                assert_eq!(brain[i].to_bits(), exact_brain.to_bits(), "{:x}", bits[i]);
                assert_eq!(half[i].to_bits(), exact_half.to_bits(), "{:x}", bits[i]);
                assert_eq!(brain_back[i].to_bits(), exact_brain.to_f32().to_bits(), "{:x}", bits[i]);
                assert_eq!(half_back[i].to_bits(), exact_half.to_f32().to_bits(), "{:x}", bits[i]);
            }
        }
    }

    /// Tests every upper half of an f32, with lower halves at, just below and just above the ties of both formats.
    #[test]
    fn sixteen_bit_rounding_is_that_of_half() {
        if !is_available() {
            println!("no AVX2, FMA and F16C on this machine: nothing to compare");
            return;
        }
        const LOW: [u32; 16] = [
            0, 1, 0x0fff, 0x1000, 0x1001, 0x1fff, 0x2000, 0x2fff, 0x3000, 0x3001, 0x7000, 0x7fff, 0x8000,
            0x8001, 0xf000, 0xffff,
        ];
        for upper in 0..=0xffff_u32 {
            for low in LOW.as_chunks::<8>().0 {
                // SAFETY: the features were found above.
                unsafe { compare(low.map(|low| upper << 16 | low)) };
            }
        }
    }

    /// Adds eight values at a time on the output grid and compares with the reference, over the cases of its own test.
    #[test]
    fn the_grid_is_that_of_the_reference() {
        use crate::grid::tests::{Random, cases, gradient, noise};
        #[target_feature(enable = "avx2,fma,f16c")]
        fn eight(grid: Grid, g: &[f32; 8], z: &[f32; 8], first: u32, stride: u32) -> [f32; 8] {
            let mut out = [0.0; 8];
            // SAFETY: eight values each; the features are enabled here.
            unsafe {
                let words = __m256::words(first, stride);
                let (g, z) = (__m256::load_f32(g.as_ptr()), __m256::load_f32(z.as_ptr()));
                g.add_on_grid(grid, z, words).store_f32(out.as_mut_ptr());
            }
            out
        }
        if !is_available() {
            println!("no AVX2, FMA and F16C on this machine: nothing to compare");
            return;
        }
        let mut random = Random(2);
        for case in 0..cases(400_000) / 8 {
            let grid = Grid::new(-(12 + (case % 3) as i32 * 9), [1.0, 0.7e-3, 1.3e-6][(case % 3) as usize]);
            let (first, stride) = (random.next() as u32, random.next() as u32 | 1);
            let word = |lane: usize| first.wrapping_add(stride.wrapping_mul(lane as u32));
            let z: [f32; 8] = std::array::from_fn(|_| noise(&mut random));
            let mut g: [f32; 8] = std::array::from_fn(|i| gradient(&mut random, &grid, z[i], word(i)));
            if case % 64 == 0 {
                g[(case / 64 % 8) as usize] =
                    [f32::NAN, f32::INFINITY, f32::MIN, f32::MAX][(case / 512 % 4) as usize];
            }
            // SAFETY: the features were found above.
            let got = unsafe { eight(grid, &g, &z, first, stride) };
            for i in 0..8 {
                let expected = grid.add(g[i], z[i], word(i));
                let same = got[i].to_bits() == expected.to_bits() || (got[i].is_nan() && expected.is_nan());
                assert!(
                    same,
                    "g {:e}, z {:e}, word {:08x}: {:e} and {expected:e}",
                    g[i],
                    z[i],
                    word(i),
                    got[i]
                );
            }
        }
    }
}
