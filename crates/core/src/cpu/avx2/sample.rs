//! The vector sampler, which makes all normals of a tile.
//!
//! Per 8 normals (12 rounds): 50 integer instructions of ChaCha, 23 of Box-Muller, 3 of transposing. Both are chains of dependent
//! instructions, so the sampler always has two at hand. ChaCha has two groups of 8 blocks that take turns after every half of a
//! double round: the 32 state vectors do not fit into registers, and what a group leaves in L1 comes back while the other
//! computes. Box-Muller forms the radii of the next four vectors, which end in a square root, while it uses the last four.

use super::{float, int};
use crate::chacha::{ChaCha, quarter_round};
use crate::cpu::kernels::Tile;
use crate::cpu::prefetch::Ahead;
use crate::gauss::{COS, HALF_PI, LOG, MINUS_2_LN_2, SIN, TAIL_LIMIT};
use crate::noise::{TILE, extend_tails};
use crate::row::Row;
use std::arch::x86_64::*;

/// Writes all 512 normals of a tile, with the same bits as [`crate::noise::tile`].
///
/// # Safety
/// The machine must have AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn sample(cipher: &ChaCha, row: Row, tile: u64, out: &mut Tile, ahead: &mut impl Ahead) {
    let mut words = [[_mm256_setzero_si256(); 16]; 2];
    let mut small = 0;
    for half in 0..2 {
        let first_lane = 16 * half;
        // SAFETY: features are enabled; the blocks' 256 normals lie inside the tile, see `store_transposed`.
        unsafe {
            chacha_16(cipher, row.stream(), 32 * tile + first_lane as u64, &mut words, ahead);
            let out = out.as_mut_ptr().add(4 * first_lane);
            let mut radius = radii(&words, 0);
            for quad in 0..3 {
                ahead.pull();
                let next = radii(&words, quad + 1);
                store_quad(&words, quad, radius, out);
                radius = next;
            }
            ahead.pull();
            store_quad(&words, 3, radius, out);
            small |= small_lanes(&words) << first_lane;
        }
    }
    if small != 0 {
        // SAFETY: all 512 were written.
        let out = unsafe { out.0.assume_init_mut() };
        extend_lanes(cipher, row, tile, small, out);
    }
}

/// A mask of those of the 16 blocks that hold a radius word below the tail limit.
#[inline(always)]
unsafe fn small_lanes(words: &[[__m256i; 16]; 2]) -> u32 {
    // SAFETY: callers run with AVX2 enabled.
    unsafe {
        let limit = int(TAIL_LIMIT - 1);
        let mut lanes = 0;
        for (group, words) in words.iter().enumerate() {
            let mut smallest = words[0];
            for pair in 1..8 {
                smallest = _mm256_min_epu32(smallest, words[2 * pair]);
            }
            let below = _mm256_cmpeq_epi32(_mm256_max_epu32(smallest, limit), limit);
            lanes |= (_mm256_movemask_ps(_mm256_castsi256_ps(below)) as u32) << (8 * group);
        }
        lanes
    }
}

#[cold]
#[inline(never)]
fn extend_lanes(cipher: &ChaCha, row: Row, tile: u64, small: u32, out: &mut [f32; TILE]) {
    for lane in (0..32).filter(|lane| small >> lane & 1 == 1) {
        extend_tails(cipher, row, tile, lane, out);
    }
}

/// Several quarter rounds, interleaved instruction by instruction so that their dependency chains overlap.
macro_rules! quarter_rounds {
    ($x:ident, $masks:ident, $([$a:expr, $b:expr, $c:expr, $d:expr]),*) => {
        $($x[$a] = _mm256_add_epi32($x[$a], $x[$b]);)*
        $($x[$d] = _mm256_shuffle_epi8(_mm256_xor_si256($x[$d], $x[$a]), $masks[0]);)*
        $($x[$c] = _mm256_add_epi32($x[$c], $x[$d]);)*
        $($x[$b] = rotate::<12, 20>(_mm256_xor_si256($x[$b], $x[$c]));)*
        $($x[$a] = _mm256_add_epi32($x[$a], $x[$b]);)*
        $($x[$d] = _mm256_shuffle_epi8(_mm256_xor_si256($x[$d], $x[$a]), $masks[1]);)*
        $($x[$c] = _mm256_add_epi32($x[$c], $x[$d]);)*
        $($x[$b] = rotate::<7, 25>(_mm256_xor_si256($x[$b], $x[$c]));)*
    };
}

macro_rules! columns {
    ($x:ident, $masks:ident) => {
        quarter_rounds!($x, $masks, [0, 4, 8, 12], [1, 5, 9, 13]);
        quarter_rounds!($x, $masks, [2, 6, 10, 14], [3, 7, 11, 15]);
    };
}

macro_rules! diagonals {
    ($x:ident, $masks:ident) => {
        quarter_rounds!($x, $masks, [0, 5, 10, 15], [1, 6, 11, 12]);
        quarter_rounds!($x, $masks, [2, 7, 8, 13], [3, 4, 9, 14]);
    };
}

#[inline(always)]
unsafe fn rotate<const LEFT: i32, const RIGHT: i32>(x: __m256i) -> __m256i {
    // SAFETY: callers run with AVX2 enabled.
    unsafe { _mm256_or_si256(_mm256_slli_epi32::<LEFT>(x), _mm256_srli_epi32::<RIGHT>(x)) }
}

/// The words of 16 neighbouring blocks: `[group][word]`, lane = block within the group of 8. `first` is a multiple of 16, so
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
        // Rotations by 16 and by 8 bits. They are hidden from the optimiser, which would otherwise "simplify" one byte shuffle into two
        // word shuffles.
        let masks = std::hint::black_box([
            _mm256_set_epi8(
                13, 12, 15, 14, 9, 8, 11, 10, 5, 4, 7, 6, 1, 0, 3, 2, 13, 12, 15, 14, 9, 8, 11, 10, 5, 4, 7,
                6, 1, 0, 3, 2,
            ),
            _mm256_set_epi8(
                14, 13, 12, 15, 10, 9, 8, 11, 6, 5, 4, 7, 2, 1, 0, 3, 14, 13, 12, 15, 10, 9, 8, 11, 6, 5, 4,
                7, 2, 1, 0, 3,
            ),
        ]);
        quarter_rounds!(x, masks, [0, 4, 8, 12]);
        quarter_rounds!(y, masks, [0, 4, 8, 12]);
        diagonals!(x, masks);
        diagonals!(y, masks);
        for _ in 1..cipher.rounds().double_rounds() {
            columns!(x, masks);
            columns!(y, masks);
            ahead.pull();
            diagonals!(x, masks);
            diagonals!(y, masks);
        }
        for i in 0..16 {
            out[0][i] = _mm256_add_epi32(x[i], int(words[i]));
            out[1][i] = _mm256_add_epi32(y[i], int(words[i]));
        }
        out[0][12] = _mm256_add_epi32(x[12], counters[0]);
        out[1][12] = _mm256_add_epi32(y[12], counters[1]);
    }
}

/// Computes `f32(x) · 2⁻³²` for an `x` that is not 0: a subtraction in the exponent is exact, and leaves the multipliers to the polynomials.
#[inline(always)]
unsafe fn fraction(x: __m256i) -> __m256 {
    // SAFETY: callers run with AVX2 enabled.
    unsafe {
        let bits = _mm256_castps_si256(_mm256_cvtepi32_ps(x));
        _mm256_castsi256_ps(_mm256_sub_epi32(bits, int(32 << 23)))
    }
}

/// Box-Muller's radii of words `4·quad…` of both groups: four vectors in step, so that their chains of fma overlap. The operations
/// and their order are those of [`crate::gauss`].
#[inline(always)]
unsafe fn radii(words: &[[__m256i; 16]; 2], quad: usize) -> [__m256; 4] {
    // SAFETY: callers run with AVX2 and FMA enabled. Loops instead of closures: a closure does not inherit the features.
    unsafe {
        let (zero, one) = (_mm256_setzero_ps(), float(1.0));
        let (a, b, q) = (&words[0], &words[1], 4 * quad);
        let radius_words = [a[q], a[q + 2], b[q], b[q + 2]];
        let (mut f, mut e, mut radius) = ([zero; 4], [zero; 4], [zero; 4]);
        for k in 0..4 {
            let x = _mm256_or_si256(radius_words[k], int(1));
            let u = fraction(x);
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
        radius
    }
}

/// The normals of words `4·quad…` of both groups, from their radii and angle words. `out` is where the first block's normals begin.
#[inline(always)]
unsafe fn store_quad(words: &[[__m256i; 16]; 2], quad: usize, radius: [__m256; 4], out: *mut f32) {
    // SAFETY: as above; a group's 32 normals follow those of the other.
    unsafe {
        let zero = _mm256_setzero_ps();
        let (a, b, q) = (&words[0], &words[1], 4 * quad);
        let angle_words = [a[q + 1], a[q + 3], b[q + 1], b[q + 3]];
        let (mut t, mut y) = ([zero; 4], [zero; 4]);
        for k in 0..4 {
            t[k] = fraction(_mm256_or_si256(_mm256_slli_epi32::<2>(angle_words[k]), int(2)));
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
        let mut z = [(zero, zero); 4];
        for k in 0..4 {
            let sin = _mm256_fmadd_ps(t[k], float(HALF_PI), _mm256_mul_ps(sin[k], t[k]));
            let sign = _mm256_and_si256(_mm256_slli_epi32::<1>(angle_words[k]), int(0x8000_0000));
            let cos = _mm256_xor_ps(cos[k], _mm256_castsi256_ps(sign));
            let (rs, rc) = (_mm256_mul_ps(radius[k], sin), _mm256_mul_ps(radius[k], cos));
            let swap = _mm256_castsi256_ps(angle_words[k]);
            z[k] = (_mm256_blendv_ps(rc, rs, swap), _mm256_blendv_ps(rs, rc, swap));
        }
        for group in 0..2 {
            let [(z0, z1), (z2, z3)] = [z[2 * group], z[2 * group + 1]];
            store_transposed([z0, z1, z2, z3], out.add(128 * quad + 32 * group));
        }
    }
}

/// Transposes 32 neighbouring coordinates: `z[j]` lane `l` → `out[4·l + j]`.
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
