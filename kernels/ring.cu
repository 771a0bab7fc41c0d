// Ring: y = z - sum_a c_a y_(t-a), oldest first; y replaces the oldest output.
// CPU twin: `RingRows::make` in crates/core/src/cpu/ring/rows.rs. Per parameter: the gradient read and written, every past output that has
// a coefficient read once, one written.
#include "launch.cuh"

template <class G>
DEVICE void ring(const Args &args) {
    Work work;
    if (!find_work(args, work)) return;
    float y[16];
    step_normals(args, work, 1, y);
    const u64 stride = TILE * args.num_tiles;
    float *state = (float *)args.state + work.place;
    const float *coefs = (const float *)args.list + work.list;
    const u32 count = work.live ? work.count : 0;
    // Of the oldest output with a coefficient, and one further; younger ones lie before it.
    u32 slot = work.head + count;
    if (slot >= args.num_slots) slot -= args.num_slots;
#pragma unroll 1
    for (u32 age = count; age > 0; age--) {
        slot = (slot ? slot : args.num_slots) - 1;
        const float coef = -coefs[age - 1];
        const float *past = state + slot * stride;
        Quad32 row[4];
#pragma unroll
        for (int quad = 0; quad < 4; quad++) row[quad] = *(const Quad32 *)(past + 128 * quad);
#pragma unroll
        for (int i = 0; i < 16; i++) y[i] = __fmaf_rn(coef, row[i / 4].v[i % 4], y[i]);
    }
    if (args.num_slots && work.live) {
        const u32 oldest = (work.head ? work.head : args.num_slots) - 1;
        float *place = state + oldest * stride;
#pragma unroll
        for (int quad = 0; quad < 4; quad++) {
            Quad32 kept;
#pragma unroll
            for (int j = 0; j < 4; j++) kept.v[j] = y[4 * quad + j];
            *(Quad32 *)(place + 128 * quad) = kept;
        }
    }
    add<G>(args, work, y);
}

ENTRIES(ring, 8)
