// Adding noise to the sixteen values of a thread, section 6 of docs/noise-spec.md. CPU twins: crates/core/src/grid.rs, crates/core/src/cpu/lanes.rs.
#pragma once
#include "gauss.cuh"

// Half precision without cuda_fp16.h, which NVRTC would need at run time: one instruction each way.
#ifdef __CUDACC__
DEVICE float f16_to_f32(u16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
DEVICE u16 f32_to_f16(float f) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
// Two at once, from compute capability 8.0 on: the second goes into the upper half.
DEVICE u32 f32_to_bf16x2(float first, float second) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}
#endif

// Integer arithmetic, so that GPUs without bf16 instructions run the same code.
DEVICE u16 f32_to_bf16(float f) {
    const u32 bits = __float_as_uint(f);
    const u32 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (bits & 0x7fffffff) > 0x7f800000 ? (u16)(bits >> 16 | 0x40) : (u16)rounded;
}

struct alignas(16) Quad32 { float v[4]; };

// A number type: how it is stored, how two values lie in registers, what a quad of them is in memory, and whether a value has left its
// range: bits 15 and 31 of `in_range` are set if neither has.
struct F32 {
    typedef float Stored;
    struct Pair { float v[2]; };
    struct alignas(16) Quad { Pair v[2]; };
    static DEVICE Pair pair(float first, float second) { return Pair{{first, second}}; }
    static DEVICE float stored(const Pair &pair, int j) { return pair.v[j]; }
    static DEVICE float widen(const Pair &pair, int j) { return pair.v[j]; }
    static DEVICE Pair round(float first, float second) { return Pair{{first, second}}; }
    static DEVICE u32 in_range(const Pair &) { return ~0u; }
};

// Sixteen bits each, two in a word: taken apart and put together again, they would cost instructions.
struct Pair16 {
    typedef u16 Stored;
    typedef u32 Pair;
    struct alignas(8) Quad { u32 v[2]; };
    static DEVICE u32 pair(u16 first, u16 second) { return first | (u32)second << 16; }
    static DEVICE u16 stored(u32 pair, int j) { return (u16)(pair >> 16 * j); }
};
struct Bf16 : Pair16 {
    static DEVICE float widen(u32 pair, int j) { return __uint_as_float(j ? pair & 0xffff0000 : pair << 16); }
    static DEVICE u32 round(float first, float second) {
#ifdef NATIVE_BF16
        return f32_to_bf16x2(first, second);
#else
        return pair(f32_to_bf16(first), f32_to_bf16(second));
#endif
    }
    static DEVICE u32 in_range(u32) { return ~0u; }
};
struct F16 : Pair16 {
    static DEVICE float widen(u32 pair, int j) { return f16_to_f32(stored(pair, j)); }
    static DEVICE u32 round(float first, float second) { return pair(f32_to_f16(first), f32_to_f16(second)); }
    // Without its sign, an infinity is 0x7c00.
    static DEVICE u32 in_range(u32 pair) { return ((pair & 0x7fff7fff) ^ 0x7c007c00) + 0x7fff7fff; }
};

// Every number type: the name in that of its entry, and the type above. tools/variants.py knows their sizes. NATIVE_BF16 is for GPUs
// from compute capability 8.0 on: what they have an instruction for, and nothing else.
#ifdef NATIVE_BF16
#define NUMBER_TYPES(ENTRY, kernel, blocks) ENTRY(kernel, bf16, Bf16, blocks)
#else
#define NUMBER_TYPES(ENTRY, kernel, blocks) \
    ENTRY(kernel, f32, F32, blocks) ENTRY(kernel, bf16, Bf16, blocks) ENTRY(kernel, f16, F16, blocks)
#endif

// What noise is added with: the grid's unit and its reciprocal, the step's scale in units, and what a dither word counts.
struct Grid {
    float unit, per_unit, scale, dither;
};

// A bijection of words, every bit of whose result depends on all bits of the argument.
DEVICE u32 mix(u32 x) {
    x = (x ^ x >> 16) * 0x7feb352d;
    x = (x ^ x >> 15) * 0x846ca68b;
    return x ^ x >> 16;
}

// A thread's dither words: that of its first coordinate, and the difference between neighbours.
struct Dither {
    u32 first, stride;
};

// `block` is the thread's ChaCha block: 32 of them make a tile.
DEVICE Dither dither_of(const u32 key[4], u64 block) {
    const u64 tile = block / 32;
    const u32 x = mix((mix((u32)tile ^ key[0]) ^ (u32)(tile >> 32)) + key[1]);
    Dither dither;
    dither.stride = mix(x + key[2]) | 1;
    dither.first = x + key[3] + dither.stride * (4 * (u32)(block % 32));
    return dither;
}

// The word of the coordinate `place` of a tile behind the thread's first.
DEVICE u32 dither_word(const Dither &dither, u32 place) { return dither.first + dither.stride * place; }

// unit * floor((g + x) / unit + 1/2), rounded once, of the exact sum of a gradient and noise.
DEVICE float add_on_grid(const Grid &grid, float g, float z, u32 word) {
    const float to_integer = 12582912.0f, offset = 3.0f;
    const float whole = __fmul_rn(g, grid.per_unit);
    const float nearest = rintf(whole);
    const float rest = __fadd_rn(whole, -nearest);
    const float integer = __fadd_rn(__fmaf_rn(grid.scale, z, to_integer), -(to_integer + offset));
    const float undithered = __fmaf_rn(grid.scale, z, -integer);
    const float fraction = __fmaf_rn(__int2float_rn((int)word), grid.dither, undithered);
    // The specification compares `rest` with differences of a constant and `fraction`. This sum, cut off, is on the same side of the
    // constant as the exact sum; and where `rest` comes near a difference, that is exact too.
    const float sum = __fadd_rz(rest, fraction);
    const float not_down = sum >= offset + 0.5f ? offset + 1.0f : offset;
    const float carry = sum < offset - 0.5f ? offset - 1.0f : not_down;
    return __fmul_rn(__fadd_rn(nearest, __fadd_rn(integer, carry)), grid.unit);
}

// A thread owns sixteen values of a gradient: at its first index, at the three after it, and at as many 128, 256 and 384 further.
DEVICE i64 place_of(int i) { return 128 * (i / 4) + i % 4; }

// The thread's values, by fours if `whole`; else those at indices in 0..length, and zeros for the others.
template <class G>
DEVICE void load(const typename G::Stored *gradient, i64 index, i64 length, bool whole, typename G::Pair g[8]) {
    if (whole) {
#pragma unroll
        for (int i = 0; i < 16; i += 4) {
            const typename G::Quad quad = *(const typename G::Quad *)(gradient + index + place_of(i));
            g[i / 2] = quad.v[0];
            g[i / 2 + 1] = quad.v[1];
        }
    } else {
#pragma unroll
        for (int i = 0; i < 16; i += 2) {
            typename G::Stored two[2];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const i64 at = index + place_of(i + j);
                two[j] = 0;
                if (at >= 0 && at < length) two[j] = gradient[at];
            }
            g[i / 2] = G::pair(two[0], two[1]);
        }
    }
}

// The reverse of `load`. Says whether a value has left its range.
template <class G>
DEVICE bool store(typename G::Stored *gradient, i64 index, i64 length, bool whole, const typename G::Pair g[8]) {
    u32 in_range = ~0u;
    if (whole) {
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            typename G::Quad quad;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                quad.v[j] = g[i + j];
                in_range &= G::in_range(g[i + j]);
            }
            *(typename G::Quad *)(gradient + index + place_of(2 * i)) = quad;
        }
    } else {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const i64 at = index + place_of(i);
            if (at >= 0 && at < length) {
                gradient[at] = G::stored(g[i / 2], i % 2);
                in_range &= G::in_range(g[i / 2]) >> 16 * (i % 2) | 0xffff0000;
            }
        }
        in_range |= 0x80000000;
    }
    return (in_range & 0x80008000) != 0x80008000;
}
