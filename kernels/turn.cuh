// Rows ahead: whose turn it is, and which rows it makes. Host twin of the parameters: crates/cuda/src/launch.rs.
//
// The noise of a step lies in a row of memory, made by a kernel `make` before, and a small kernel adds it (add.cu). A tile makes the rows
// of K = rows_ahead steps in one turn, so that the K sums share one read of the state. Local time u counts steps since time `base`;
// tiles take turns by phases, contiguous runs of tiles, so that every step costs the same:
//
//     phase = tile * K / tiles    turns at u = 0 and whenever (u + phase) % K == 0    at time 0 the turn has K - phase rows
//
//     K = 4    u =  0 1 2 3 4 5 6 7 8
//     phase 0       * - - - * - - - *    * begins a turn, - has its row already
//     phase 1       * - - * - - - * -
//     phase 2       * - * - - - * - -
//     phase 3       * * - - - * - - -
//
// The row of time u lies in slot u mod R of `rows`, laid out as state. `due` holds for every tile the time of the first row that is not
// made: `make` does nothing where that is not the time of its step, so a step's second `make` changes nothing.
#pragma once
#include "launch.cuh"

// What one tile makes in a launch.
struct Turn {
    u64 tile;
    u64 block;   // ChaCha block of the tile's first sixteen coordinates
    u64 row;     // name of the first row; the next ones have the next names
    u32 head;    // slot of the first row
    u32 list;    // as in `Step`
    u32 rows;    // how many to make
    u32 before;  // how many the turn before made
    u32 due;     // when these end
};

// Numbers that need 64 bits are rare, and the division in 32 bits costs a fifth.
DEVICE u64 divide(u64 number, u32 by) {
#ifndef FULL_TILES_ONLY
    if (number >> 32) return number / by;
#endif
    return (u32)number / by;
}

// The turn of the tile with this index among those of the step's phase; false if there is none, or it was made.
DEVICE bool find_turn(const Args &args, u64 index, Turn &turn) {
    u64 number = args.step.number;
    u32 count = args.step.count;
    turn.row = args.step.row;
    turn.head = args.step.head;
    turn.list = args.step.list;
#ifndef FULL_TILES_ONLY
    if (args.schedule) {
        const u64 at = *args.counter;
        // Past the end nothing else is touched: the run's memory may be gone.
        if (at >= args.num_scheduled) return false;
        const Step &step = args.schedule[at];
        number = step.number;
        count = step.count;
        turn.row = step.row;
        turn.head = step.head;
        turn.list = step.list;
    }
#endif
    const u32 K = args.rows_ahead;
    const u64 time = number - args.base;
    const u32 over = (u32)(time - divide(time, K) * K);
    const u32 phase = over ? K - over : 0;
    turn.tile = index + divide(phase * args.num_tiles + K - 1, K);
    turn.rows = K;
    turn.before = time < K ? (u32)time : K;
#ifndef FULL_TILES_ONLY
    if (time == 0) {
        turn.tile = index;
        turn.rows = K - (u32)(index * K / args.num_tiles);
    }
#endif
    // Tiles of other phases are due at other times.
    if (turn.tile >= args.num_tiles || args.due[turn.tile] != (u32)time) return false;
    turn.rows = min(turn.rows, count);
    turn.due = (u32)time + turn.rows;
    const Segment segment = segment_of(args, turn.tile);
    turn.block = 32 * (segment.first / TILE + (turn.tile - segment.first_tile));
    return true;
}

// The turn of a warp, which is the tile's only one; marks it as made.
DEVICE bool find_warp_turn(const Args &args, Turn &turn) {
    if (!find_turn(args, (u64)blockIdx.x * WARPS_PER_BLOCK + threadIdx.x / 32, turn)) return false;
    // Every thread has read the mark before one changes it.
    __syncwarp();
    if (threadIdx.x % 32 == 0) args.due[turn.tile] = turn.due;
    return true;
}

// The key of the turn's rows. A schedule's key comes from memory, not from the launch: a captured graph outlives the run.
DEVICE void turn_key(const Args &args, const Turn &turn, u32 key[8]) {
#pragma unroll
    for (int i = 0; i < 8; i++) key[i] = args.key[i];
#ifndef FULL_TILES_ONLY
    if (args.schedule) {
        // Bits 40 to 55 of a row's name are the incarnation that made it, which chooses the key.
        const u32 *of_life = args.keys + 8 * (turn.row >> 40 & 0xffff);
#pragma unroll
        for (int i = 0; i < 8; i++) key[i] = of_life[i];
    }
#endif
}

// Sixteen values of a thread, as it owns them in a row of memory.
DEVICE void load_row(const float *row, float z[16]) {
    Quad32 quad[4];
#pragma unroll
    for (int i = 0; i < 4; i++) quad[i] = *(const Quad32 *)(row + 128 * i);
#pragma unroll
    for (int i = 0; i < 16; i++) z[i] = quad[i / 4].v[i % 4];
}

// Four values of a row, in one access: left to itself, the compiler splits some of these stores.
DEVICE void store_quad(float *row, const Quad32 &quad) {
#ifdef __CUDACC__
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" :
                 : "l"(__cvta_generic_to_global(row)), "f"(quad.v[0]), "f"(quad.v[1]), "f"(quad.v[2]), "f"(quad.v[3])
                 : "memory");
#else
    *(Quad32 *)row = quad;
#endif
}

DEVICE void store_row(float *row, const float z[16]) {
#pragma unroll
    for (int i = 0; i < 16; i += 4) store_quad(row + place_of(i), Quad32{{z[i], z[i + 1], z[i + 2], z[i + 3]}});
}

// A kernel that makes rows. It has no number type: rows are f32.
#define MAKE(kernel, blocks) \
    extern "C" __global__ void __launch_bounds__(THREADS_PER_BLOCK, blocks) make(const Args args) { kernel(args); }
