// What the kernels need of CUDA, for a host compiler: threads one after another, or from barrier to barrier (make.cpp), intrinsics as the
// operations they name.
// Compile without contraction (-ffp-contract=off), or the comparison is void.
#include <cmath>
#include <cstdlib>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __isGlobal(pointer) true
#undef __builtin_assume
#define __builtin_assume(fact)

struct Index { unsigned x; };
static thread_local Index blockIdx, threadIdx, blockDim;

// Where a thread waits for the others. Only make.cpp runs kernels that do.
static void wait_for_others();
static inline void __syncthreads() { wait_for_others(); }
static inline void __syncwarp() { wait_for_others(); }

static inline float __uint_as_float(unsigned bits) { float f; std::memcpy(&f, &bits, 4); return f; }
static inline unsigned __float_as_uint(float f) { unsigned bits; std::memcpy(&bits, &f, 4); return bits; }
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
    return high << (n & 31) | low >> (32 - (n & 31));
}
static inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
// Rounded towards zero: one step back where the nearest sum lies beyond the exact one.
static inline float __fadd_rz(float a, float b) {
    const float sum = a + b, part = sum - a, lost = (a - (sum - part)) + (b - part);
    const bool beyond = sum > 0 ? lost < 0 : sum < 0 && lost > 0;
    return beyond ? __uint_as_float(__float_as_uint(sum) - 1) : sum;
}
// Any value that the PTX manual allows, within 2^-22.9 of the exact one: some arguments get one that is too large, others one that is
// too small.
static inline float approximate_rsqrt(float x) {
    const unsigned mixed = __float_as_uint(x) * 0x9e3779b9u;
    const double error = ((mixed >> 8) / 8388608.0 - 1) * (1 / 16777216.0 + 1 / 134217728.0);
    return (float)(1 / std::sqrt((double)x) * (1 + error));
}
static inline float __int2float_rn(int i) { return (float)i; }
static inline float __ull2float_rn(unsigned long long i) { return (float)i; }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static inline void atomicMin(unsigned long long *place, unsigned long long value) {
    if (value < *place) *place = value;
}
static inline unsigned f32_to_bf16x2(float first, float second) {
    const float values[2] = {first, second};
    unsigned pair = 0;
    for (int i = 0; i < 2; i++) {
        const unsigned bits = __float_as_uint(values[i]);
        const unsigned half = values[i] != values[i] ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        pair |= half << 16 * i;
    }
    return pair;
}
static inline float f16_to_f32(unsigned short bits) { _Float16 h; std::memcpy(&h, &bits, 2); return (float)h; }
static inline unsigned short f32_to_f16(float f) {
    const _Float16 h = (_Float16)f;
    unsigned short bits;
    std::memcpy(&bits, &h, 2);
    return bits;
}
