//! The AVX2 + FMA engine: 8 lanes, and a sampler that computes 16 ChaCha blocks side by side.
//!
//! Per 8 normals (12 rounds): 50 integer instructions of ChaCha, 23 of Box-Muller, 3 of transposing. One group of 8 blocks
//! is bound by latency (a quarter round is a chain of 16 instructions), so two groups run interleaved: 18% faster, although
//! half of the 32 state vectors then live in L1.

use super::kernels::{self, Engine, Job, Piece, Tile};
use super::lanes::{Lanes, Stored};
use super::prefetch::Ahead;
use crate::chacha::{ChaCha, quarter_round};
use crate::gauss::{COS, HALF_PI, LOG, MINUS_2_LN_2, SIN, TAIL_LIMIT, TWO_POW_MINUS_32};
use crate::noise::{TILE, extend_tails};
use crate::row::Row;
use half::{bf16, f16};
use std::arch::x86_64::*;

/// True if this machine has what the engine needs.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

/// Runs a piece with this engine.
///
/// # Safety
/// The machine must have AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run<G: Stored, H: Stored>(job: &Job<'_>, piece: Piece<'_, G, H>) {
    // SAFETY: the features are enabled here, and `kernels::run` inlines into this function.
    unsafe { kernels::run::<Avx2, G, H>(job, piece) }
}

/// The engine's name in types.
pub(super) struct Avx2;

// SAFETY: `Lanes` of this engine are used only inside `run`, where the features are enabled.
unsafe impl Engine for Avx2 {
    type Lanes = __m256;
    #[inline(always)]
    unsafe fn sample(cipher: &ChaCha, row: Row, tile: u64, out: &mut Tile, ahead: &mut impl Ahead) {
        // SAFETY: the caller has the features.
        unsafe { sample(cipher, row, tile, out, ahead) }
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

/// All 512 normals of a tile: the same bits as [`crate::noise::tile`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn sample(cipher: &ChaCha, row: Row, tile: u64, out: &mut Tile, ahead: &mut impl Ahead) {
    let mut words = [[_mm256_setzero_si256(); 16]; 2];
    let mut small = 0;
    for half in 0..2 {
        let first_lane = 16 * half;
        // SAFETY: features are enabled; the blocks' 256 normals lie inside the tile, see `store_transposed`.
        let below = unsafe {
            chacha_16(cipher, row.stream(), 32 * tile + first_lane as u64, &mut words, ahead);
            let mut smallest = [int(u32::MAX); 2];
            for quad in 0..4 {
                ahead.pull();
                let (a, b, q) = (&words[0], &words[1], 4 * quad);
                let z =
                    box_muller([a[q], a[q + 2], b[q], b[q + 2]], [a[q + 1], a[q + 3], b[q + 1], b[q + 3]]);
                for group in 0..2 {
                    let [(z0, z1), (z2, z3)] = [z[2 * group], z[2 * group + 1]];
                    let at = 128 * quad + 4 * (first_lane + 8 * group);
                    store_transposed([z0, z1, z2, z3], out.as_mut_ptr().add(at));
                    let pair = _mm256_min_epu32(words[group][q], words[group][q + 2]);
                    smallest[group] = _mm256_min_epu32(smallest[group], pair);
                }
            }
            below_limit(smallest[0]) | below_limit(smallest[1]) << 8
        };
        small |= below << first_lane;
    }
    if small != 0 {
        // SAFETY: all 512 were written.
        let out = unsafe { out.0.assume_init_mut() };
        extend_lanes(cipher, row, tile, small, out);
    }
}

/// Which of the 8 lanes hold a word below the tail limit, as bits.
#[inline(always)]
unsafe fn below_limit(words: __m256i) -> u32 {
    // SAFETY: callers run with AVX2 enabled.
    unsafe {
        let limit = int(TAIL_LIMIT - 1);
        let below = _mm256_cmpeq_epi32(_mm256_max_epu32(words, limit), limit);
        _mm256_movemask_ps(_mm256_castsi256_ps(below)) as u32
    }
}

#[cold]
#[inline(never)]
fn extend_lanes(cipher: &ChaCha, row: Row, tile: u64, small: u32, out: &mut [f32; TILE]) {
    for lane in (0..32).filter(|lane| small >> lane & 1 == 1) {
        extend_tails(cipher, row, tile, lane, out);
    }
}

macro_rules! quarter_round {
    ($x:ident, $a:expr, $b:expr, $c:expr, $d:expr, $by_16:ident, $by_8:ident) => {
        $x[$a] = _mm256_add_epi32($x[$a], $x[$b]);
        $x[$d] = _mm256_shuffle_epi8(_mm256_xor_si256($x[$d], $x[$a]), $by_16);
        $x[$c] = _mm256_add_epi32($x[$c], $x[$d]);
        $x[$b] = rotate::<12, 20>(_mm256_xor_si256($x[$b], $x[$c]));
        $x[$a] = _mm256_add_epi32($x[$a], $x[$b]);
        $x[$d] = _mm256_shuffle_epi8(_mm256_xor_si256($x[$d], $x[$a]), $by_8);
        $x[$c] = _mm256_add_epi32($x[$c], $x[$d]);
        $x[$b] = rotate::<7, 25>(_mm256_xor_si256($x[$b], $x[$c]));
    };
}

#[inline(always)]
unsafe fn rotate<const LEFT: i32, const RIGHT: i32>(x: __m256i) -> __m256i {
    // SAFETY: callers run with AVX2 enabled.
    unsafe { _mm256_or_si256(_mm256_slli_epi32::<LEFT>(x), _mm256_srli_epi32::<RIGHT>(x)) }
}

/// Words of 16 neighbouring blocks: `[group][word]`, lane = block within the group of 8. `first` is a multiple of 16, so
/// the low counter word does not wrap inside.
#[inline(always)]
unsafe fn chacha_16(
    cipher: &ChaCha,
    stream: u64,
    first: u64,
    out: &mut [[__m256i; 16]; 2],
    ahead: &mut impl Ahead,
) {
    // SAFETY: callers run with AVX2 enabled.
    unsafe {
        let words = cipher.initial_state(stream, first);
        // Only word 12 differs between the blocks, so the first quarter rounds of the other three columns are the same for
        // all: done once in scalar registers, they save 1/16 of the cipher at 12 rounds.
        let mut columns = words;
        for i in 1..4 {
            quarter_round(&mut columns, i, 4 + i, 8 + i, 12 + i);
        }
        let (mut x, mut y) = ([_mm256_setzero_si256(); 16], [_mm256_setzero_si256(); 16]);
        for i in 0..16 {
            x[i] = int(columns[i]);
            y[i] = x[i];
        }
        let counters = [
            _mm256_add_epi32(x[12], _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
            _mm256_add_epi32(x[12], _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)),
        ];
        (x[12], y[12]) = (counters[0], counters[1]);
        // Hidden from the optimiser, which would otherwise "simplify" one byte shuffle into two word shuffles.
        let by_16 = std::hint::black_box(_mm256_set_epi8(
            13, 12, 15, 14, 9, 8, 11, 10, 5, 4, 7, 6, 1, 0, 3, 2, 13, 12, 15, 14, 9, 8, 11, 10, 5, 4, 7, 6,
            1, 0, 3, 2,
        ));
        let by_8 = std::hint::black_box(_mm256_set_epi8(
            14, 13, 12, 15, 10, 9, 8, 11, 6, 5, 4, 7, 2, 1, 0, 3, 14, 13, 12, 15, 10, 9, 8, 11, 6, 5, 4, 7,
            2, 1, 0, 3,
        ));
        macro_rules! both {
            ($a:expr, $b:expr, $c:expr, $d:expr) => {
                quarter_round!(x, $a, $b, $c, $d, by_16, by_8);
                quarter_round!(y, $a, $b, $c, $d, by_16, by_8);
            };
        }
        macro_rules! diagonals {
            () => {
                both!(0, 5, 10, 15);
                both!(1, 6, 11, 12);
                both!(2, 7, 8, 13);
                both!(3, 4, 9, 14);
            };
        }
        both!(0, 4, 8, 12);
        diagonals!();
        for _ in 1..cipher.rounds().double_rounds() {
            both!(0, 4, 8, 12);
            both!(1, 5, 9, 13);
            both!(2, 6, 10, 14);
            both!(3, 7, 11, 15);
            ahead.pull();
            diagonals!();
        }
        for i in 0..16 {
            out[0][i] = _mm256_add_epi32(x[i], int(words[i]));
            out[1][i] = _mm256_add_epi32(y[i], int(words[i]));
        }
        out[0][12] = _mm256_add_epi32(x[12], counters[0]);
        out[1][12] = _mm256_add_epi32(y[12], counters[1]);
    }
}

/// Four Box-Muller transforms in step, so that their chains of fma overlap. The operations of [`crate::gauss`], in its order.
#[inline(always)]
unsafe fn box_muller(radius_words: [__m256i; 4], angle_words: [__m256i; 4]) -> [(__m256, __m256); 4] {
    // SAFETY: callers run with AVX2 and FMA enabled. Loops instead of closures: a closure does not inherit the features.
    unsafe {
        let (zero, one) = (_mm256_setzero_ps(), float(1.0));
        let fraction = float(TWO_POW_MINUS_32);
        let (mut f, mut e, mut radius) = ([zero; 4], [zero; 4], [zero; 4]);
        for k in 0..4 {
            let x = _mm256_or_si256(radius_words[k], int(1));
            let u = _mm256_mul_ps(_mm256_cvtepi32_ps(x), fraction);
            let bits = _mm256_castps_si256(u);
            let exponent = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32::<23>(bits), int(126)));
            let mantissa = _mm256_or_si256(_mm256_and_si256(bits, int(0x007f_ffff)), int(0x3f00_0000));
            let below_half = _mm256_sub_ps(_mm256_castsi256_ps(mantissa), one);
            let negative = _mm256_castsi256_ps(x);
            f[k] = _mm256_blendv_ps(below_half, u, negative);
            e[k] = _mm256_blendv_ps(exponent, zero, negative);
        }
        let mut log = [float(LOG[8]); 4];
        for coef in LOG[..8].iter().rev() {
            for k in 0..4 {
                log[k] = _mm256_fmadd_ps(log[k], f[k], float(*coef));
            }
        }
        for k in 0..4 {
            let p = _mm256_mul_ps(log[k], f[k]);
            radius[k] = _mm256_sqrt_ps(_mm256_fmadd_ps(e[k], float(MINUS_2_LN_2), p));
        }
        let (mut t, mut y) = ([zero; 4], [zero; 4]);
        for k in 0..4 {
            let angle = _mm256_or_si256(_mm256_slli_epi32::<2>(angle_words[k]), int(2));
            t[k] = _mm256_mul_ps(_mm256_cvtepi32_ps(angle), fraction);
            y[k] = _mm256_mul_ps(t[k], t[k]);
        }
        let mut sin = [float(SIN[3]); 4];
        for coef in SIN[..3].iter().rev() {
            for k in 0..4 {
                sin[k] = _mm256_fmadd_ps(sin[k], y[k], float(*coef));
            }
        }
        let mut cos = [float(COS[4]); 4];
        for coef in COS[..4].iter().rev() {
            for k in 0..4 {
                cos[k] = _mm256_fmadd_ps(cos[k], y[k], float(*coef));
            }
        }
        let mut normals = [(zero, zero); 4];
        for k in 0..4 {
            let sin = _mm256_fmadd_ps(t[k], float(HALF_PI), _mm256_mul_ps(sin[k], t[k]));
            let sign = _mm256_and_si256(_mm256_slli_epi32::<1>(angle_words[k]), int(0x8000_0000));
            let cos = _mm256_xor_ps(cos[k], _mm256_castsi256_ps(sign));
            let (rs, rc) = (_mm256_mul_ps(radius[k], sin), _mm256_mul_ps(radius[k], cos));
            let swap = _mm256_castsi256_ps(angle_words[k]);
            normals[k] = (_mm256_blendv_ps(rc, rs, swap), _mm256_blendv_ps(rs, rc, swap));
        }
        normals
    }
}

/// `z[j]` lane `l` → `out[4·l + j]`: 32 neighbouring coordinates.
#[inline(always)]
unsafe fn store_transposed(z: [__m256; 4], out: *mut f32) {
    use {_mm256_castpd_ps as ps, _mm256_castps_pd as pd};
    // SAFETY: callers run with AVX2 enabled and give room for 32 floats.
    unsafe {
        let (low_a, high_a) = (_mm256_unpacklo_ps(z[0], z[1]), _mm256_unpackhi_ps(z[0], z[1]));
        let (low_b, high_b) = (_mm256_unpacklo_ps(z[2], z[3]), _mm256_unpackhi_ps(z[2], z[3]));
        let lanes_04 = ps(_mm256_unpacklo_pd(pd(low_a), pd(low_b)));
        let lanes_15 = ps(_mm256_unpackhi_pd(pd(low_a), pd(low_b)));
        let lanes_26 = ps(_mm256_unpacklo_pd(pd(high_a), pd(high_b)));
        let lanes_37 = ps(_mm256_unpackhi_pd(pd(high_a), pd(high_b)));
        _mm256_storeu_ps(out, _mm256_permute2f128_ps::<0x20>(lanes_04, lanes_15));
        _mm256_storeu_ps(out.add(8), _mm256_permute2f128_ps::<0x20>(lanes_26, lanes_37));
        _mm256_storeu_ps(out.add(16), _mm256_permute2f128_ps::<0x31>(lanes_04, lanes_15));
        _mm256_storeu_ps(out.add(24), _mm256_permute2f128_ps::<0x31>(lanes_26, lanes_37));
    }
}

// SAFETY: every method needs AVX2, FMA and F16C, which only `run` and its callees use, with the features enabled.
#[allow(clippy::undocumented_unsafe_blocks)] // each block is the one access that the trait's contract covers
unsafe impl Lanes for __m256 {
    const WIDTH: usize = 8;
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
            // To nearest, ties to even: add just under half, plus one if the kept part is odd.
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

    /// Every upper half of an f32, with lower halves at, just below and just above the ties of both formats.
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
}
