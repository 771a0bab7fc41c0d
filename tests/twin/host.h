// What the kernels need of CUDA, for a host compiler: threads one after another, intrinsics as the operations they name.
// Compile without contraction (-ffp-contract=off), or the comparison is void.
#include <cmath>
#include <cstring>

#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __isGlobal(pointer) true
#undef __builtin_assume
#define __builtin_assume(fact)

struct Index { unsigned x; };
static thread_local Index blockIdx, threadIdx, blockDim;

static inline float __uint_as_float(unsigned bits) { float f; std::memcpy(&f, &bits, 4); return f; }
static inline unsigned __float_as_uint(float f) { unsigned bits; std::memcpy(&bits, &f, 4); return bits; }
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
    return high << (n & 31) | low >> (32 - (n & 31));
}
static inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsqrt_rn(float a) { return std::sqrt(a); }
static inline float __int2float_rn(int i) { return (float)i; }
static inline float __ull2float_rn(unsigned long long i) { return (float)i; }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline void atomicMin(unsigned long long *place, unsigned long long value) {
    if (value < *place) *place = value;
}
static inline float f16_to_f32(unsigned short bits) { _Float16 h; std::memcpy(&h, &bits, 2); return (float)h; }
static inline unsigned short f32_to_f16(float f) {
    const _Float16 h = (_Float16)f;
    unsigned short bits;
    std::memcpy(&bits, &h, 2);
    return bits;
}
