// Adding noise to four neighbours of a gradient, section 6 of docs/noise-spec.md. CPU twin: crates/core/src/cpu/lanes.rs.
#pragma once
#include "gauss.cuh"

// Half precision without cuda_fp16.h, which NVRTC would need at run time: one instruction each way.
#ifdef __CUDACC__
DEVICE float f16_to_f32(u16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
DEVICE u16 f32_to_f16(float f) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
#endif

// Integer arithmetic, so that GPUs without bf16 instructions run the same code.
DEVICE float bf16_to_f32(u16 h) { return __uint_as_float((u32)h << 16); }
DEVICE u16 f32_to_bf16(float f) {
    const u32 bits = __float_as_uint(f);
    const u32 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (bits & 0x7fffffff) > 0x7f800000 ? (u16)(bits >> 16 | 0x40) : (u16)rounded;
}

struct alignas(16) Quad32 { float v[4]; };
struct alignas(8) Quad16 { u16 v[4]; };

// A number type: how it is stored, one by one and in fours, and whether a value has left its range.
struct F32 {
    typedef float Stored;
    typedef Quad32 Quad;
    static DEVICE float widen(float g) { return g; }
    static DEVICE float round(float g) { return g; }
    static DEVICE bool overflows(float) { return false; }
};
struct Bf16 {
    typedef u16 Stored;
    typedef Quad16 Quad;
    static DEVICE float widen(u16 g) { return bf16_to_f32(g); }
    static DEVICE u16 round(float g) { return f32_to_bf16(g); }
    static DEVICE bool overflows(u16) { return false; }
};
struct F16 {
    typedef u16 Stored;
    typedef Quad16 Quad;
    static DEVICE float widen(u16 g) { return f16_to_f32(g); }
    static DEVICE u16 round(float g) { return f32_to_f16(g); }
    static DEVICE bool overflows(u16 g) { return (g & 0x7fff) == 0x7c00; }
};

// g <- fma(scale, z, g) at indices `index` to `index + 3`, of which only those in 0..length exist. Says whether one left its range.
template <class G>
DEVICE bool add_quad(typename G::Stored *gradient, i64 index, i64 length, bool aligned, float scale, const float z[4]) {
    bool overflow = false;
#ifdef FULL_TILES_ONLY
    const bool whole = true;
#else
    const bool whole = aligned && index >= 0 && index + 4 <= length;
#endif
    if (whole) {
        typename G::Quad *place = (typename G::Quad *)(gradient + index);
        typename G::Quad quad = *place;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            quad.v[j] = G::round(__fmaf_rn(scale, z[j], G::widen(quad.v[j])));
            overflow |= G::overflows(quad.v[j]);
        }
        *place = quad;
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (index + j >= 0 && index + j < length) {
                const typename G::Stored sum = G::round(__fmaf_rn(scale, z[j], G::widen(gradient[index + j])));
                gradient[index + j] = sum;
                overflow |= G::overflows(sum);
            }
        }
    }
    return overflow;
}
