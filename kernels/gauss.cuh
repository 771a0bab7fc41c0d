// Words to standard normals, section 4 of docs/noise-spec.md. CPU twin: crates/core/src/gauss.rs.
//
// Every float operation is an intrinsic with its rounding in its name, so no compiler flag can contract, reorder or flush it.
#pragma once
#include "chacha.cuh"

#define TAIL_LIMIT 0x10000u
#define TAIL_STREAM (1ull << 63)

// Coefficients of ascending powers, as bits: Q, S and C of the specification.
#define BITS(word) __uint_as_float(word)

DEVICE float horner_log(float f) {
    float p = BITS(0xc0351ec0);
    p = __fmaf_rn(p, f, BITS(0xc051fbc8));
    p = __fmaf_rn(p, f, BITS(0xc01acf67));
    p = __fmaf_rn(p, f, BITS(0xbeb99ea7));
    p = __fmaf_rn(p, f, BITS(0xbf070c70));
    p = __fmaf_rn(p, f, BITS(0x3ef98553));
    p = __fmaf_rn(p, f, BITS(0xbf2ad1ea));
    p = __fmaf_rn(p, f, BITS(0x3f7fff5f));
    return __fmaf_rn(p, f, BITS(0xc0000000));
}

DEVICE float horner_sin(float y) {
    float p = BITS(0xbb96dec9);
    p = __fmaf_rn(p, y, BITS(0x3da32fe2));
    p = __fmaf_rn(p, y, BITS(0xbf255ddf));
    return __fmaf_rn(p, y, BITS(0xb33bbd2e));
}

DEVICE float horner_cos(float y) {
    float p = BITS(0x3a6b4255);
    p = __fmaf_rn(p, y, BITS(0xbcaadbe7));
    p = __fmaf_rn(p, y, BITS(0x3e81e0dc));
    p = __fmaf_rn(p, y, BITS(0xbf9de9e6));
    return __fmaf_rn(p, y, BITS(0x3f800000));
}

// The uniform of a radius word; from one half on, minus 1 (the integer complement keeps its digits).
DEVICE float uniform(u32 word) { return __fmul_rn(__int2float_rn((int)(word | 1)), BITS(0x2f800000)); }

// The uniform of a small radius word and 32 more bits, or of 64 other bits if it is 0.
DEVICE float tail_uniform(u32 word, u32 first, u32 second) {
    const u32 high = word ? word : first, low = word ? first : second;
    return __fmul_rn(__ull2float_rn((u64)high << 32 | (low | 1)), BITS(word ? 0x1f800000 : 0x0f800000));
}

#ifdef __CUDACC__
// Within 2^-22.9 of 1/sqrt(x), says the PTX manual, and no more.
DEVICE float approximate_rsqrt(float x) { float y; asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
#endif

// The square root of x, correctly rounded, from any y within 2^-21.5 of 1/sqrt(x): `roots_are_correctly_rounded` in tests/twin.rs tries
// them all. x must be far from both ends of the range, so that nothing here is subnormal: at 0 this is NaN.
DEVICE float root_from(float x, float y) {
    float s = __fmul_rn(x, y), h = __fmul_rn(y, 0.5f);
    const float e = __fmaf_rn(-h, s, 0.5f);
    s = __fmaf_rn(s, e, s);
    h = __fmaf_rn(h, e, h);
    return __fmaf_rn(__fmaf_rn(-s, s, x), h, s);
}

// __fsqrt_rn without its test for other arguments, its call and its barriers. A radius' square is from 2^-31, that of the word nearest to 1, to 134,
// that of a tail of zeros.
DEVICE float root(float x) { return root_from(x, approximate_rsqrt(x)); }

// sqrt(-2 ln u).
DEVICE float radius(float u) {
    const u32 bits = __float_as_uint(u);
    const bool upper = u < 0.0f;
    const float exponent = upper ? 0.0f : __int2float_rn((int)(bits >> 23) - 126);
    const float f = upper ? u : __fadd_rn(BITS((bits & 0x007fffff) | 0x3f000000), -1.0f);
    return root(__fmaf_rn(exponent, BITS(0xbfb17218), __fmul_rn(horner_log(f), f)));
}

// The two normals of a radius and an angle word.
DEVICE void normal_pair(float r, u32 angle, float &first, float &second) {
    const float t = __fmul_rn(__int2float_rn((int)(angle << 2 | 2)), BITS(0x2f800000));
    const float y = __fmul_rn(t, t);
    const float s = __fmaf_rn(t, BITS(0x3fc90fdb), __fmul_rn(horner_sin(y), t));
    const float c = BITS(__float_as_uint(horner_cos(y)) ^ (angle << 1 & 0x80000000));
    const float rs = __fmul_rn(r, s), rc = __fmul_rn(r, c);
    const bool swap = (int)angle < 0;
    first = swap ? rs : rc;
    second = swap ? rc : rs;
}

// The 16 normals of the words of one block of a row.
DEVICE void words_to_normals(const u32 words[16], const u32 *key, u64 row, u64 block, u32 four_rounds, float z[16]) {
    float u[8];
#ifndef FULL_TILES_ONLY
    u32 smallest = words[0];
#pragma unroll
    for (int pair = 1; pair < 8; pair++) smallest = min(smallest, words[2 * pair]);
    // One thread in 8192, one warp in 257. Uniforms made before it would cost eight registers more here.
    if (smallest < TAIL_LIMIT) {
        u32 tail[16];
        chacha_block(key, row | TAIL_STREAM, block, four_rounds, tail);
#pragma unroll
        for (int pair = 0; pair < 8; pair++) {
            u[pair] = uniform(words[2 * pair]);
            if (words[2 * pair] < TAIL_LIMIT) u[pair] = tail_uniform(words[2 * pair], tail[2 * pair], tail[2 * pair + 1]);
        }
    } else
#endif
#pragma unroll
    for (int pair = 0; pair < 8; pair++) u[pair] = uniform(words[2 * pair]);
#pragma unroll
    for (int pair = 0; pair < 8; pair++)
        normal_pair(radius(u[pair]), words[2 * pair + 1], z[2 * pair], z[2 * pair + 1]);
}

// The 16 normals of one block of a row, word by word.
DEVICE void block_normals(const u32 *key, u64 row, u64 block, u32 four_rounds, float z[16]) {
    u32 words[16];
    chacha_block(key, row, block, four_rounds, words);
    words_to_normals(words, key, row, block, four_rounds, z);
}

// The same normals, from a row whose columns are known.
DEVICE void block_normals(const RowKey &key, u64 row, u64 block, u32 four_rounds, u32 one, float z[16]) {
    u32 words[16];
    chacha_block(key, row, block, four_rounds, one, words);
    words_to_normals(words, key.key, row, block, four_rounds, z);
}
