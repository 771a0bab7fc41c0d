// Makes the next rows of a ring, at most MAX_ROWS (8 or 16): y = z - sum_a c_a y_(t-a), oldest first.
// CPU twin: `RingRows::make` in crates/core/src/cpu/ring/rows.rs.
//
// A block owns a tile. Its warps sample the rows in turn into shared memory; after a barrier a thread owns four coordinates of all rows, so
// that the K sums share one read of every past output. Rows are the state: R = h + K slots, of which a turn at time u reads those of
// times u - h to u - 1 and writes u to u + K - 1. Per parameter and turn: h rows read, K written.
//
// The table of a turn, in words: how many past outputs each row uses; for each age a at time u, 1 to h, the coefficients -c_(a + k) of
// rows k; for each row j of the turn the coefficients -c_(k - j) of rows k > j. Where a row has no such coefficient nothing is multiplied:
// memory may hold anything, NaN too.
#include "turn.cuh"

#define QUADS (MAX_ROWS / 4)
// Ages of the table that shared memory holds at a time. Rings up to 64 bands have no more.
#define AGES 64
// Past outputs that are read at a time.
#define AT_ONCE (MAX_ROWS == 8 ? 4 : 2)

struct Row {
    Quad32 k[QUADS];
};

// What the warps of a block share.
struct Shared {
    float z[MAX_ROWS][TILE];
    Row old[AGES], own[MAX_ROWS];
    u32 counts[MAX_ROWS];
};

// Walks over past outputs from old to young, and ends at the first row of the turn. That of age `head` lies in the first slot.
struct Past {
    float *at;
    u32 age, head;
    u64 stride, all;

    DEVICE Quad32 next() {
        const Quad32 row = *(const Quad32 *)at;
        age--;
        at += stride;
        if (age == head) at -= all;
        return row;
    }
};

// Adds an output to the sum of one row.
DEVICE void add_output(const Row &coefs, int k, const Quad32 &output, Quad32 y[MAX_ROWS]) {
#pragma unroll
    for (int j = 0; j < 4; j++) y[k].v[j] = __fmaf_rn(coefs.k[k / 4].v[k % 4], output.v[j], y[k].v[j]);
}

// The next N past outputs, which all rows use; `coefs` are those of the oldest.
template <int N>
DEVICE void add_outputs(const Row *coefs, Past &past, Quad32 y[MAX_ROWS]) {
    Quad32 output[N];
#pragma unroll
    for (int i = 0; i < N; i++) output[i] = past.next();
#pragma unroll
    for (int i = 0; i < N; i++) {
        const Row row = coefs[-i];
#pragma unroll
        for (int k = 0; k < MAX_ROWS; k++) add_output(row, k, output[i], y);
    }
}

// Copies the coefficients of ages low + 1 to high.
DEVICE void share_ages(const Row *table, u32 low, u32 high, Shared &shared) {
    const Quad32 *from = (const Quad32 *)(table + low);
    Quad32 *to = (Quad32 *)shared.old;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < (high - low) * QUADS; i += THREADS_PER_BLOCK) to[i] = from[i];
}

// Samples the turn's rows, and shares the beginning of its table.
DEVICE void share(const Args &args, const Turn &turn, u32 h, Shared &shared) {
    const u32 *words = (const u32 *)args.list + turn.list;
    const Row *table = (const Row *)(words + MAX_ROWS);
    if (threadIdx.x < MAX_ROWS) shared.counts[threadIdx.x] = threadIdx.x < turn.rows ? words[threadIdx.x] : 0;
    if (threadIdx.x < MAX_ROWS * QUADS) ((Quad32 *)shared.own)[threadIdx.x] = ((const Quad32 *)(table + h))[threadIdx.x];
    share_ages(table, h > AGES ? h - AGES : 0, h, shared);
    u32 key[8];
    turn_key(args, turn, key);
#pragma unroll 1
    for (u32 k = threadIdx.x / 32; k < turn.rows; k += WARPS_PER_BLOCK) {
        float z[16];
        block_normals(key, turn.row + k, turn.block + threadIdx.x % 32, args.four_rounds, z);
        Quad32 *to = (Quad32 *)shared.z[k] + threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < 16; i += 4) to[8 * i] = Quad32{{z[i], z[i + 1], z[i + 2], z[i + 3]}};
    }
}

DEVICE void make_ring(const Args &args) {
    __shared__ Shared shared;
    Turn turn;
    if (!find_turn(args, blockIdx.x, turn)) return;
    const u32 K = args.rows_ahead, h = args.num_slots - K;
    share(args, turn, h, shared);
    __syncthreads();
    if (threadIdx.x == 0) args.due[turn.tile] = turn.due;

    const u64 stride = TILE * args.num_tiles;
    const u64 all = args.num_slots * stride;
    Quad32 y[MAX_ROWS];
    // Ages low + 1 to low + AGES are shared. Rows use ages up to `oldest`, and all of them use ages up to `common`.
    u32 low = h > AGES ? h - AGES : 0, oldest = h, common = h - (MAX_ROWS - 1);
    bool steady = h >= MAX_ROWS - 1;
#pragma unroll
    for (int k = 0; k < MAX_ROWS; k++) steady &= shared.counts[k] == h;
#ifdef FULL_TILES_ONLY
    steady = true;
#else
    if (!steady) {
        oldest = 0;
        common = h;
#pragma unroll 1
        for (u32 k = 0; k < turn.rows; k++) {
            const u32 count = shared.counts[k] > k ? shared.counts[k] - k : 0;
            oldest = max(oldest, count);
            common = min(common, count);
        }
    }
#endif
    u32 slot = turn.head + args.num_slots - oldest;
    if (slot >= args.num_slots) slot -= args.num_slots;
    Past past = {args.rows + slot * stride + TILE * turn.tile + 4 * threadIdx.x, oldest, turn.head, stride, all};
    const float *z = shared.z[0] + 4 * threadIdx.x;
    if (steady) {
        // Row i needs no output that is older than the i-th of these.
        y[0] = *(const Quad32 *)z;
#pragma unroll
        for (int i = 0; i < MAX_ROWS - 1; i++) {
            const Row coefs = shared.old[h - low - 1 - i];
            const Quad32 output = past.next();
#pragma unroll
            for (int k = 0; k <= i; k++) add_output(coefs, k, output, y);
            y[i + 1] = *(const Quad32 *)(z + TILE * (i + 1));
        }
    } else {
#pragma unroll
        for (int k = 0; k < MAX_ROWS; k++) {
            if (k < turn.rows) y[k] = *(const Quad32 *)(z + TILE * k);
            else y[k] = Quad32{};
        }
    }
#pragma unroll 1
    for (;;) {
        const Row *coefs = shared.old + (past.age > low ? past.age - low : 0);
#ifndef FULL_TILES_ONLY
#pragma unroll 1
        while (past.age > max(low, common)) {
            const u32 age = past.age;
            const Row row = *--coefs;
            const Quad32 output = past.next();
#pragma unroll
            for (int k = 0; k < MAX_ROWS; k++)
                if (age + k <= shared.counts[k]) add_output(row, k, output, y);
        }
#endif
        u32 left = past.age > low ? past.age - low : 0;
#pragma unroll 1
        for (; left >= AT_ONCE; left -= AT_ONCE, coefs -= AT_ONCE) add_outputs<AT_ONCE>(coefs - 1, past, y);
#ifdef FULL_TILES_ONLY
        break;
#else
#pragma unroll 1
        for (; left > 0; left--) add_outputs<1>(--coefs, past, y);
        if (low == 0) break;
        const u32 high = low;
        low = low > AGES ? low - AGES : 0;
        __syncthreads();
        share_ages((const Row *)((const u32 *)args.list + turn.list + MAX_ROWS), low, high, shared);
        __syncthreads();
#endif
    }

    float *row = past.at;
#pragma unroll
    for (int j = 0; j < MAX_ROWS; j++) {
        // Row j is complete.
        if (steady || j < turn.rows) store_quad(row, y[j]);
        row += stride;
        if (turn.head + j + 1 == args.num_slots) row -= all;
        const Row coefs = shared.own[j];
#pragma unroll
        for (int k = j + 1; k < MAX_ROWS; k++)
            if (steady || k - j <= shared.counts[k]) add_output(coefs, k, y[j], y);
    }
}

MAKE(make_ring, MAX_ROWS == 8 ? 5 : 4)
