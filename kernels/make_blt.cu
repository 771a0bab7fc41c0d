// Makes the next rows of a BLT with BUFFERS buffers: z~ = z - sum_i scale_i m_i, then m_i <- decay_i m_i + z~.
// CPU twin: crates/core/src/cpu/blt.rs.
//
// A warp owns a tile, a thread 16 coordinates of all buffers and rows. Memory keeps the buffers of the turn's first step, so that the
// plain state of every step is there or can be made of them and of rows: the turn first folds the rows of the turn before into the
// buffers. Per parameter and turn of K rows: each buffer read and written, K rows read and K written.
#include "turn.cuh"

// The row that begins a run, or begins it anew, has zero buffers, whatever memory holds.
DEVICE void forget(bool fresh, float m[BUFFERS][16]) {
#ifndef FULL_TILES_ONLY
    if (!fresh) return;
#pragma unroll
    for (int i = 0; i < 16 * BUFFERS; i++) m[i / 16][i % 16] = 0.0f;
#endif
}

DEVICE void update(const Args &args, const float z[16], float m[BUFFERS][16]) {
#pragma unroll
    for (int i = 0; i < 16 * BUFFERS; i++) m[i / 16][i % 16] = __fmaf_rn(args.decay[i / 16], m[i / 16][i % 16], z[i % 16]);
}

DEVICE void make_blt(const Args &args) {
    Turn turn;
    if (!find_warp_turn(args, turn)) return;
    const u64 stride = TILE * args.num_tiles;
    const u64 place = TILE * turn.tile + 4 * (threadIdx.x % 32);
    float *buffers = (float *)args.state + place, *rows = args.rows + place;
    float m[BUFFERS][16];
#pragma unroll
    for (int i = 0; i < BUFFERS; i++) load_row(buffers + i * stride, m[i]);
    // Bit K + k of the mask is the row of time u + k, bit K - j that of time u - j.
    u32 fresh = turn.list >> (args.rows_ahead - turn.before);
    u32 slot = turn.head + (args.rows_ahead - turn.before);
    if (slot >= args.rows_ahead) slot -= args.rows_ahead;
    float *row = rows + slot * stride;
    u32 left = turn.before;
#pragma unroll 1
    while (left) {
        float z[16];
        load_row(row, z);
        forget(fresh & 1, m);
        update(args, z, m);
        fresh >>= 1;
        row += stride;
        if (++slot == args.rows_ahead) {
            slot = 0;
            row = rows;
        }
        left--;
    }
    if (turn.before) {
#pragma unroll
        for (int i = 0; i < BUFFERS; i++) store_row(buffers + i * stride, m[i]);
    }
    u32 key[8];
    turn_key(args, turn, key);
#pragma unroll 1
    while (turn.rows) {
        float z[16];
        block_normals(key, turn.row, turn.block + threadIdx.x % 32, args.four_rounds, z);
        forget(fresh & 1, m);
#pragma unroll
        for (int i = 0; i < 16 * BUFFERS; i++) z[i % 16] = __fmaf_rn(-args.scale[i / 16], m[i / 16][i % 16], z[i % 16]);
        update(args, z, m);
        store_row(row, z);
        fresh >>= 1;
        row += stride;
        if (++slot == args.rows_ahead) {
            slot = 0;
            row = rows;
        }
        turn.row++;
        turn.rows--;
    }
}

MAKE(make_blt, BUFFERS < 3 ? 5 : BUFFERS < 7 ? 3 : 2)
