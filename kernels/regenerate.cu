// Regenerate: z~ = sum_k weight_k z_(row k), every row made again from its name.
// CPU twin: crates/core/src/cpu/regenerate.rs. Per parameter: the gradient, read and written once, and nothing else;
// the sum stays in registers.
#include "launch.cuh"

struct Term {
    u64 row;
    float weight;
    u32 unused;
    u32 columns[8];  // of the row, secret as the key: see `RowKey`
};

template <class G>
DEVICE void regenerate(const Args &args) {
    Work work;
    if (!find_work(args, work)) return;
    float sum[16] = {};
    const Term *terms = (const Term *)args.list + work.list;
#pragma unroll 1
    for (u32 k = 0; k < (work.live ? work.count : 0); k++) {
        const Term term = terms[k];
        // Bits 40 to 55 of a row's name are the incarnation that made it, which chooses the key.
        const u32 *key = args.keys + 8 * (term.row >> 40 & 0xffff);
        RowKey row;
#pragma unroll
        for (int i = 0; i < 8; i++) row.key[i] = key[i];
#pragma unroll
        for (int i = 0; i < 8; i++) row.columns[i] = term.columns[i];
        float z[16];
        block_normals(row, term.row, work.block, args.four_rounds, args.one, z);
#pragma unroll
        for (int i = 0; i < 16; i++) sum[i] = __fmaf_rn(term.weight, z[i], sum[i]);
    }
    add<G>(args, work, sum);
}

ENTRIES(regenerate, 6)
