// What the host hands to a kernel, and which thread owns what. Host twin: crates/cuda/src/launch.rs.
//
// A warp owns a tile of 512 coordinates, a thread one ChaCha block and the 16 coordinates it feeds:
//
//     tile:  thread 0        thread 1     ...  thread 31
//     r =    0   1   2   3   4 ...             124 ... 127     quad 0
//            128 ...         132 ...                           quad 1
//            256 ...                                           quad 2
//            384 ...                           508 ... 511     quad 3
//
// so that the 32 threads touch 512 contiguous bytes per quad. State is [slot][tile][512] over the shard's tiles, ragged tiles
// included: always aligned, and never in need of a bound. Only the gradient has edges.
//
// FULL_TILES_ONLY leaves out what almost no thread executes (tails, edges, schedules, more than one segment): never run, it is how
// `kernels/build budget` counts the instructions of the common path. With PLAIN=true they are those without the output grid.
#pragma once
#include "gradient.cuh"

#ifndef PLAIN
#define PLAIN false
#endif

#define TILE 512
#define WARPS_PER_BLOCK 4
#define THREADS_PER_BLOCK (32 * WARPS_PER_BLOCK)

// A run of coordinates and its gradient.
struct Segment {
    void *gradient;
    u64 first;       // coordinate
    u64 length;
    u64 first_tile;  // tiles of the segments before it
};

// One step, by value or from the schedule of a captured graph.
struct Step {
    u64 number;
    u64 row;
    u32 dither[4];   // secret words
    u32 columns[8];  // of the row, secret as the key: see `RowKey`
    float scale;     // of the noise, in units of the grid
    u32 head;   // BLT: 1 if the buffers are zero, whatever memory holds. Ring: slot of the youngest output.
    u32 list;   // ring: first coefficient, regenerate: first term, as an index into the list
    u32 count;  // how many of them
    // With rows ahead (turn.cuh), these three are: slot of this step's row; the step's table, as an index into the list in words, or a
    // BLT's mask of fresh rows; rows that the plan has left from this step on, at most `rows_ahead`.
};

struct Args {
    const Segment *segments;
    void *state;
    const void *list;
    const u32 *keys;        // regenerate and schedules: 8 words per incarnation of the run
    const Step *schedule;   // null: `step` counts
    const u64 *counter;     // index into the schedule; what an ended schedule still has, with its segments
    u64 num_scheduled;
    u64 *overflow;          // smallest step number at which a gradient left the range of its number type
    u64 num_tiles;
    Step step;
    u32 num_segments;
    u32 four_rounds;
    u32 num_slots;
    u32 one;                // 1: see `plus`
    float unit;             // the grid
    float per_unit;         // its reciprocal; 0: noise is added without a grid
    u32 key[8];             // of this step's incarnation; zero in a captured graph
    float scale[8];         // BLT
    float decay[8];
    u32 *due;               // from here on for rows ahead, see turn.cuh: per tile, the local time of the first row that is not made
    u64 base;               // number of the step at local time 0
    float *rows;            // what `make` writes; other forms than BLT have it in `state`, the same address
    u32 rows_ahead;
    u32 padding;
};
static_assert(sizeof(Step) == 80 && sizeof(Segment) == 32, "as in launch.rs");
static_assert(sizeof(Args) == 304, "as in launch.rs");

// A thread's share of a launch. What only `add` needs of the step is read there: held until then, it would cost registers.
struct Work {
    u64 row;       // these four as in `Step`
    u32 head;
    u32 list;
    u32 count;
    bool live;     // false past the end of a schedule: the state is not to be touched
    u64 block;     // ChaCha block
    u64 place;     // of its first coordinate in a slot of the state
    void *gradient;
    i64 index;     // of its first coordinate in the gradient; negative before the segment's first
    i64 length;
};

DEVICE void take(const Step &step, Work &work) {
    work.row = step.row;
    work.head = step.head;
    work.list = step.list;
    work.count = step.count;
}

// The last segment that begins at or before this tile.
DEVICE Segment segment_of(const Args &args, u64 tile) {
    u32 low = 0;
#ifndef FULL_TILES_ONLY
    u32 high = args.num_segments;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (args.segments[middle].first_tile <= tile) low = middle; else high = middle;
    }
#endif
    return args.segments[low];
}

// False for the threads that fill the last block.
DEVICE bool find_work(const Args &args, Work &work) {
    const u64 tile = (u64)blockIdx.x * WARPS_PER_BLOCK + threadIdx.x / 32;
    if (tile >= args.num_tiles) return false;
    const u32 lane = threadIdx.x % 32;
    const Segment segment = segment_of(args, tile);
    const u64 noise_tile = segment.first / TILE + (tile - segment.first_tile);
    work.block = 32 * noise_tile + lane;
    work.place = TILE * tile + 4 * lane;
    work.gradient = segment.gradient;
    work.index = (i64)(TILE * noise_tile + 4 * lane - segment.first);
    work.length = (i64)segment.length;
    take(args.step, work);
    work.live = true;
#ifndef FULL_TILES_ONLY
    if (args.schedule) {
        const u64 count = *args.counter;
        work.live = count < args.num_scheduled;
        // A gradient without noise of its own must not leave: past the end it becomes NaN. Then nothing but counter and segments is
        // touched: schedule, list, keys and state may be gone, if the run ended before the graph did.
        if (work.live) take(args.schedule[count], work);
    }
#endif
    return true;
}

// The normals of this step's row. A schedule's key comes from memory, not from the launch: a captured graph outlives the run.
DEVICE void step_normals(const Args &args, const Work &work, u32 one, float z[16]) {
    RowKey row;
#pragma unroll
    for (int i = 0; i < 8; i++) row.key[i] = args.key[i];
#pragma unroll
    for (int i = 0; i < 8; i++) row.columns[i] = args.step.columns[i];
#ifndef FULL_TILES_ONLY
    if (args.schedule && work.live) {
        // Bits 40 to 55 of a row's name are the incarnation that made it, which chooses the key.
        const u32 *of_life = args.keys + 8 * (work.row >> 40 & 0xffff);
        const u32 *of_row = args.schedule[*args.counter].columns;
#pragma unroll
        for (int i = 0; i < 8; i++) row.key[i] = of_life[i];
#pragma unroll
        for (int i = 0; i < 8; i++) row.columns[i] = of_row[i];
    }
#endif
    block_normals(row, work.row, work.block, args.four_rounds, one, z);
}

// What `add` needs of a step.
struct Adding {
    u64 number;
    u32 dither[4];
    float scale;
};

DEVICE Adding adding_of(const Step &step) {
    Adding adding;
    adding.number = step.number;
#pragma unroll
    for (int i = 0; i < 4; i++) adding.dither[i] = step.dither[i];
    adding.scale = step.scale;
    return adding;
}

// Adds the 16 values of a thread to its gradient.
template <class G>
DEVICE void add(const Args &args, const Work &work, const float z[16]) {
    typename G::Stored *gradient = (typename G::Stored *)work.gradient;
    // A pointer out of a table could lead anywhere; the compiler is told that it leads to global memory.
    __builtin_assume(__isGlobal(gradient));
#ifdef FULL_TILES_ONLY
    const bool whole = true, plain = PLAIN;
#else
    // Every fourth coordinate is aligned in memory, and none lies outside of the segment.
    const bool aligned = (u64)(gradient + work.index) % sizeof(typename G::Quad) == 0;
    const bool whole = aligned && work.index >= 0 && work.index + place_of(15) < work.length;
    const bool plain = args.per_unit == 0.0f;
#endif
    typename G::Pair g[8];
    load<G>(gradient, work.index, work.length, whole, g);
    // Read behind the gradient, whose edges need the most registers.
    Adding adding = adding_of(args.step);
#ifndef FULL_TILES_ONLY
    if (args.schedule) {
        if (work.live) adding = adding_of(args.schedule[*args.counter]);
        else adding.scale = __uint_as_float(0x7fc00000);
    }
#endif
    if (plain) {
#pragma unroll
        for (int i = 0; i < 16; i += 2) {
            float sum[2];
#pragma unroll
            for (int j = 0; j < 2; j++) sum[j] = __fmaf_rn(adding.scale, z[i + j], G::widen(g[i / 2], j));
            g[i / 2] = G::round(sum[0], sum[1]);
        }
    } else {
        // The digits of the scale, with a power of two that makes all dither words an eighth to a quarter of a unit.
        const float of_word = BITS((__float_as_uint(adding.scale) & 0x007fffff) | 0x2e000000);
        const Grid grid = {args.unit, args.per_unit, adding.scale, of_word};
        const Dither dither = dither_of(adding.dither, work.block);
#pragma unroll
        for (int i = 0; i < 16; i += 2) {
            float sum[2];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const u32 word = dither_word(dither, (u32)place_of(i + j));
                sum[j] = add_on_grid(grid, G::widen(g[i / 2], j), z[i + j], word);
            }
            g[i / 2] = G::round(sum[0], sum[1]);
        }
    }
    if (store<G>(gradient, work.index, work.length, whole, g)) atomicMin(args.overflow, adding.number);
}

// Modules that have another one beside them leave these kernels to that one.
#if !defined(NATIVE_BF16) && !defined(MAKES_ROWS)
// The step's list arrives as launch parameters: the one kind of host memory that a launch copies by itself, without pinned
// memory, without waiting, and in a captured graph too.
#define STAGED_WORDS 960
struct Words { u32 word[STAGED_WORDS]; };
static_assert(sizeof(Words) + 16 <= 4096, "launch parameters end at 4096 bytes");

extern "C" __global__ void stage(u32 *to, u32 count, const Words words) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] = words.word[i];
}

// After a scheduled step; a kernel of its own, since every thread of the step reads the counter.
extern "C" __global__ void advance(u64 *counter) { *counter += 1; }

// Ends a schedule: the count moves to the next word, and no step is live any more, however often a graph is still launched. One
// kernel, so that no launch of the graph can come between.
#define ENDED (1ull << 63)
extern "C" __global__ void finish(u64 *counter) {
    counter[1] = counter[0];
    counter[0] = ENDED;
}
#endif

// One entry per number type. `blocks` share a multiprocessor: 8 of them leave 64 registers to a thread, 7 leave 72, 6 leave 80.
#define ENTRY(kernel, name, G, blocks) \
    extern "C" __global__ void __launch_bounds__(THREADS_PER_BLOCK, blocks) noise_##name(const Args args) { kernel<G>(args); }
#define ENTRIES(kernel, blocks) NUMBER_TYPES(ENTRY, kernel, blocks)
