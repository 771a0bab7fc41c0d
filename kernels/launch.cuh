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
// `kernels/build budget` counts the instructions of the common path.
#pragma once
#include "gradient.cuh"

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
    float scale;
    u32 head;   // BLT: 1 if the buffers are zero, whatever memory holds. Ring: slot of the youngest output.
    u32 list;   // ring: first coefficient, regenerate: first term, as an index into the list
    u32 count;  // how many of them
};

struct Args {
    const Segment *segments;
    void *state;
    const void *list;
    const u32 *keys;        // regenerate and schedules: 8 words per incarnation of the run
    const Step *schedule;   // null: `step` counts
    const u64 *counter;     // index into the schedule; what an ended schedule still has, with its segments
    u64 num_scheduled;
    u64 *overflow;          // smallest step number at which an f16 gradient left its range
    u64 num_tiles;
    Step step;
    u32 num_segments;
    u32 four_rounds;
    u32 num_slots;
    u32 unused;
    u32 key[8];             // of this step's incarnation; zero in a captured graph
    float scale[8];         // BLT
    float decay[8];
};
static_assert(sizeof(Step) == 32 && sizeof(Segment) == 32, "as in launch.rs");
static_assert(sizeof(Args) == 216, "as in launch.rs");

// A thread's share of a launch.
struct Work {
    Step step;
    bool live;     // false past the end of a schedule: the state is not to be touched
    u64 block;     // ChaCha block
    u64 place;     // of its first coordinate in a slot of the state
    void *gradient;
    i64 index;     // of its first coordinate in the gradient; negative before the segment's first
    i64 length;
};

// False for the threads that fill the last block.
DEVICE bool find_work(const Args &args, Work &work) {
    const u64 tile = (u64)blockIdx.x * WARPS_PER_BLOCK + threadIdx.x / 32;
    if (tile >= args.num_tiles) return false;
    const u32 lane = threadIdx.x % 32;
    // The last segment that begins at or before this tile.
    u32 low = 0;
#ifndef FULL_TILES_ONLY
    u32 high = args.num_segments;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (args.segments[middle].first_tile <= tile) low = middle; else high = middle;
    }
#endif
    const Segment segment = args.segments[low];
    const u64 noise_tile = segment.first / TILE + (tile - segment.first_tile);
    work.block = 32 * noise_tile + lane;
    work.place = TILE * tile + 4 * lane;
    work.gradient = segment.gradient;
    work.index = (i64)(TILE * noise_tile + 4 * lane - segment.first);
    work.length = (i64)segment.length;
    work.step = args.step;
    work.live = true;
#ifndef FULL_TILES_ONLY
    if (args.schedule) {
        const u64 count = *args.counter;
        work.live = count < args.num_scheduled;
        // A gradient without noise of its own must not leave: past the end it becomes NaN. Then nothing but counter and segments is
        // touched: schedule, list, keys and state may be gone, if the run ended before the graph did.
        if (work.live) work.step = args.schedule[count];
        else work.step.scale = __uint_as_float(0x7fc00000);
    }
#endif
    return true;
}

// The normals of this step's row. A schedule's key comes from memory, not from the launch: a captured graph outlives the run.
DEVICE void step_normals(const Args &args, const Work &work, float z[16]) {
    u32 key[8];
#pragma unroll
    for (int i = 0; i < 8; i++) key[i] = args.key[i];
#ifndef FULL_TILES_ONLY
    if (args.schedule && work.live) {
        // Bits 40 to 55 of a row's name are the incarnation that made it, which chooses the key.
        const u32 *of_life = args.keys + 8 * (work.step.row >> 40 & 0xffff);
#pragma unroll
        for (int i = 0; i < 8; i++) key[i] = of_life[i];
    }
#endif
    block_normals(key, work.step.row, work.block, args.four_rounds, z);
}

// Adds the 16 normals of a thread to its gradient.
template <class G>
DEVICE void add(const Args &args, const Work &work, const float z[16]) {
    typename G::Stored *gradient = (typename G::Stored *)work.gradient;
    // A pointer out of a table could lead anywhere; the compiler is told that it leads to global memory.
    __builtin_assume(__isGlobal(gradient));
    // Of every fourth coordinate, in memory.
    const bool aligned = (u64)(gradient + work.index) % sizeof(typename G::Quad) == 0;
    bool overflow = false;
#pragma unroll
    for (int quad = 0; quad < 4; quad++)
        overflow |= add_quad<G>(gradient, work.index + 128 * quad, work.length, aligned, work.step.scale, z + 4 * quad);
    if (overflow) atomicMin(args.overflow, work.step.number);
}

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

// One entry per gradient type.
#define ENTRIES(kernel)                                                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS_PER_BLOCK, 4) noise_f32(const Args args) { kernel<F32>(args); }   \
    extern "C" __global__ void __launch_bounds__(THREADS_PER_BLOCK, 4) noise_bf16(const Args args) { kernel<Bf16>(args); } \
    extern "C" __global__ void __launch_bounds__(THREADS_PER_BLOCK, 4) noise_f16(const Args args) { kernel<F16>(args); }
