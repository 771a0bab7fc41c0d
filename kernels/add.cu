// Adds the row that `make` wrote for this step to the gradient. Per parameter: the row read, the gradient read and written.
// CPU twin: `RingRows::add` in crates/core/src/cpu/ring/rows.rs. `state` is the first of the rows, `head` the slot of this one (turn.cuh).
#include "turn.cuh"

template <class G>
DEVICE void add_made(const Args &args) {
    Work work;
    if (!find_work(args, work)) return;
    float z[16] = {};
    if (work.live) load_row((const float *)args.state + work.head * (TILE * args.num_tiles) + work.place, z);
    add<G>(args, work, z);
}

ENTRIES(add_made, 8)
