// Blt: z~ = z - sum_i scale_i m_i, then m_i <- decay_i m_i + z~, with BUFFERS buffers (0: independent noise).
// CPU twin: crates/core/src/cpu/blt.rs. Per parameter: the gradient and each buffer, read and written once.
#include "launch.cuh"

template <class G>
DEVICE void blt(const Args &args) {
    Work work;
    if (!find_work(args, work)) return;
    float z[16];
    step_normals(args, work, BUFFERS < 6 ? args.one : 1, z);
    const bool fresh = work.head;
    const u64 slot = TILE * args.num_tiles;
#pragma unroll
    for (int quad = 0; quad < (BUFFERS ? 4 : 0); quad++) {
        if (!work.live) break;
        float *at = (float *)args.state + work.place + 128 * quad;
        Quad32 m[BUFFERS + 1];
#pragma unroll
        for (int i = 0; i < BUFFERS; i++) {
            if (fresh) m[i] = Quad32{};
            else m[i] = *(const Quad32 *)(at + i * slot);
#pragma unroll
            for (int j = 0; j < 4; j++) z[4 * quad + j] = __fmaf_rn(-args.scale[i], m[i].v[j], z[4 * quad + j]);
        }
#pragma unroll
        for (int i = 0; i < BUFFERS; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) m[i].v[j] = __fmaf_rn(args.decay[i], m[i].v[j], z[4 * quad + j]);
            *(Quad32 *)(at + i * slot) = m[i];
        }
    }
    add<G>(args, work, z);
}

// Without buffers between them, the compiler mixes sampling and the edges of a gradient: 64 registers would not do.
ENTRIES(blt, BUFFERS == 0 ? 7 : BUFFERS < 6 ? 8 : 6)
