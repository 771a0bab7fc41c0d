// One step of one kernel (KERNEL, a .cu file) on a run of tiles of a single segment.
#include "host.h"
#include KERNEL

// The one structure that crosses: what the caller knows of a step.
struct Call {
    void *gradient;
    u64 first, length;
    void *state;
    const void *list;
    const u32 *keys;
    const float *scale, *decay;
    u64 row, incarnation;
    float out_scale;
    u32 head, count, four_rounds, num_slots, num_buffers;
    u64 first_tile, end_tile;  // of the launch, to be shared among threads
};

extern "C" void run_tiles(const Call *call, u32 element) {
    const Segment segment = {call->gradient, call->first, call->length, 0};
    u64 overflow = ~0ull;
    Args args = {};
    args.segments = &segment;
    args.num_segments = 1;
    args.num_tiles = (call->first + call->length - 1) / TILE - call->first / TILE + 1;
    args.state = call->state;
    args.list = call->list;
    args.keys = call->keys;
    args.overflow = &overflow;
    args.step = Step{0, call->row, call->out_scale, call->head, 0, call->count};
    args.four_rounds = call->four_rounds;
    args.num_slots = call->num_slots;
    std::memcpy(args.key, call->keys + 8 * call->incarnation, 32);
    std::memcpy(args.scale, call->scale, 4 * call->num_buffers);
    std::memcpy(args.decay, call->decay, 4 * call->num_buffers);
    for (u64 tile = call->first_tile; tile < call->end_tile; tile++) {
        blockIdx.x = (unsigned)(tile / WARPS_PER_BLOCK);
        for (unsigned lane = 0; lane < 32; lane++) {
            threadIdx.x = (unsigned)(tile % WARPS_PER_BLOCK) * 32 + lane;
            if (element == 0) noise_f32(args);
            else if (element == 1) noise_bf16(args);
            else noise_f16(args);
        }
    }
}
