// One launch of a kernel that makes rows (KERNEL, a .cu file), block by block on one thread of the host.
//
// The threads of a block take turns, each with a stack of its own: all of them run to the next barrier before any
// of them goes on. Every other block runs its threads backwards, so that a missing barrier shows whichever way data flows.
#include "host.h"
#include KERNEL
#include <memory>
#include <setjmp.h>
#include <ucontext.h>

#define STACK (1 << 16)

struct Fiber {
    ucontext_t first;
    jmp_buf at;
    std::unique_ptr<char[]> stack;
    bool begun, done;
};
struct Block {
    jmp_buf host;
    Fiber fibers[THREADS_PER_BLOCK];
    const Args *args;
};
static std::unique_ptr<Block> block;

// A context is used to begin on a stack, jumps from then on: they leave the signal mask alone, which is a call of the kernel each time.
static void wait_for_others() {
    if (!_setjmp(block->fibers[threadIdx.x].at)) _longjmp(block->host, 1);
}

static void run_thread() {
    for (;;) {
        make(*block->args);
        block->fibers[threadIdx.x].done = true;
        wait_for_others();
    }
}

static void resume(Fiber &fiber) {
    if (_setjmp(block->host)) return;
    if (fiber.begun) _longjmp(fiber.at, 1);
    fiber.begun = true;
    setcontext(&fiber.first);
}

static void run_block(bool backwards) {
    for (Fiber &fiber : block->fibers) fiber.done = false;
    for (bool running = true; running;) {
        running = false;
        for (unsigned i = 0; i < THREADS_PER_BLOCK; i++) {
            const unsigned thread = backwards ? THREADS_PER_BLOCK - 1 - i : i;
            Fiber &fiber = block->fibers[thread];
            if (fiber.done) continue;
            threadIdx.x = thread;
            resume(fiber);
            running |= !fiber.done;
        }
    }
}

EXPORT void run_blocks(const Args *args, u64 blocks) {
    if (!block) {
        block.reset(new Block);
        for (Fiber &fiber : block->fibers) {
            fiber.stack.reset(new char[STACK]);
            getcontext(&fiber.first);
            fiber.first.uc_stack.ss_sp = fiber.stack.get();
            fiber.first.uc_stack.ss_size = STACK;
            fiber.first.uc_link = nullptr;
            makecontext(&fiber.first, run_thread, 0);
            fiber.begun = false;
        }
    }
    block->args = args;
    for (u64 i = 0; i < blocks; i++) {
        blockIdx.x = (unsigned)i;
        run_block(i % 2);
    }
}
