// Makes the next rows of a regenerated sum: z~_k = sum over rows of weight_k z_row, every row made once for all K sums.
// CPU twin: crates/core/src/cpu/regenerate.rs.
//
// A warp owns a tile, a thread 16 coordinates of all sums. The table of a turn is a header, whose first word is the number of entries,
// and one entry per row, from the youngest on: then every sum meets its terms in the order of the specification. Per parameter and turn:
// K rows written.
#include "turn.cuh"

#define MAX_ROWS 8

struct alignas(16) Entry {
    u64 row, unused;
    Quad32 weight[MAX_ROWS / 4];  // in the sum of each step of the turn; 0 where the row is no term, which adds exactly nothing
};
static_assert(sizeof(Entry) == 48, "as in the table that the host writes");

DEVICE void make_regenerate(const Args &args) {
    Turn turn;
    if (!find_warp_turn(args, turn)) return;
    const u32 *table = (const u32 *)args.list + turn.list;
    const Entry *entries = (const Entry *)(table + 4);
    float sum[MAX_ROWS][16] = {};
    const u64 block = turn.block + threadIdx.x % 32;
    u32 left = *table;
#pragma unroll 1
    while (left) {
        // Bits 40 to 55 of a row's name are the incarnation that made it, which chooses the key.
        const u64 row = entries->row;
        float z[16];
        block_normals(args.keys + 8 * (row >> 40 & 0xffff), row, block, args.four_rounds, z);
#pragma unroll
        for (int k = 0; k < MAX_ROWS; k += 4) {
            const Quad32 weight = entries->weight[k / 4];
#pragma unroll
            for (int i = 0; i < 64; i++) sum[k + i / 16][i % 16] = __fmaf_rn(weight.v[i / 16], z[i % 16], sum[k + i / 16][i % 16]);
        }
        entries++;
        left--;
    }
    const u64 stride = TILE * args.num_tiles;
    float *rows = args.rows + TILE * turn.tile + 4 * (threadIdx.x % 32);
    u32 slot = turn.head;
#pragma unroll
    for (int k = 0; k < MAX_ROWS; k++) {
        if (k < turn.rows) store_row(rows + slot * stride, sum[k]);
        if (++slot == args.rows_ahead) slot = 0;
    }
}

MAKE(make_regenerate, 2)
