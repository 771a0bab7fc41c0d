// One step of one kernel (KERNEL, a .cu file) on a run of tiles of a single segment.
#include "host.h"
#include KERNEL

static void wait_for_others() { std::abort(); }

// Runs a range of a launch's tiles, so that threads can share them.
EXPORT void run_tiles(const Args *launch, u32 element, u64 first_tile, u64 end_tile) {
    u64 overflow = ~0ull;
    Args args = *launch;
    args.overflow = &overflow;
    for (u64 tile = first_tile; tile < end_tile; tile++) {
        blockIdx.x = (unsigned)(tile / WARPS_PER_BLOCK);
        for (unsigned lane = 0; lane < 32; lane++) {
            threadIdx.x = (unsigned)(tile % WARPS_PER_BLOCK) * 32 + lane;
#ifdef NATIVE_BF16
            noise_bf16(args);
#else
            if (element == 0) noise_f32(args);
            else if (element == 1) noise_bf16(args);
            else noise_f16(args);
#endif
        }
    }
}

// The radius of a small radius word and the two words of its tail.
EXPORT float tail_radius(u32 word, u32 first, u32 second) { return radius(tail_uniform(word, first, second)); }

// How many of the roots of every `stride`-th float of a range are not correctly rounded, for every y within `bound` of the reciprocal root;
// `pairs` counts them all.
EXPORT u64 wrong_roots(u32 first, u32 end, u32 stride, double bound, u64 *pairs) {
    u64 wrong = 0;
    for (u32 bits = first; bits < end; bits += stride) {
        const float x = BITS(bits), expected = std::sqrt(x);
        const double exact = 1 / std::sqrt((double)x);
        float y = (float)(exact * (1 - bound));
        for (; y <= exact * (1 + bound); y = BITS(__float_as_uint(y) + 1), ++*pairs) wrong += root_from(x, y) != expected;
    }
    return wrong;
}

// A gradient with noise on the grid.
EXPORT float sum_on_grid(const float grid[4], float g, float z, u32 word) {
    return add_on_grid(Grid{grid[0], grid[1], grid[2], grid[3]}, g, z, word);
}

// The words of a thread's dither: that of its first coordinate, and the difference between neighbours.
EXPORT void thread_dither(const u32 key[4], u64 block, u32 words[2]) {
    const Dither dither = dither_of(key, block);
    words[0] = dither.first;
    words[1] = dither.stride;
}
