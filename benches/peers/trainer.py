"""What a PyTorch trainer sees: `corrnoise.torch.CorrelatedNoise` against the same mechanisms written in PyTorch.

One process, a module of 10⁷ parameters in 120 tensors, float32. The contenders take turns, and a ratio is the median over the rounds
of the ratio within a round. Then what a call costs beyond the engine, on tensors so small that little else is left.
"""

import os
import statistics
import sys
import time
from collections import deque

import torch
from peer_process import Peer

import cases
import corrnoise
from corrnoise.torch import CorrelatedNoise

ROUNDS = 9
STEPS = 3
MINIMUM_RATIO = 5.0
MAXIMUM_OVERHEAD = 50e-6
MECHANISMS = {"independent": "identity", "blt4": "blt:4", "ring16": "banded:16"}
BANDS = 16


def transformer(layers=10, width=288):
    """The tensors of a small transformer, with a gradient each."""
    shapes = []
    for _ in range(layers):
        for rows, columns in [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)]:
            shapes += [(rows, columns), (rows,)]
        shapes += [(width,)] * 4
    return with_gradients(shapes)


def with_gradients(shapes):
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    return parameters


def plain(case, parameters):
    """As a training script writes it: parameter by parameter, out of place, state in lists."""
    buffers = [[torch.zeros_like(p) for _ in cases.DECAY] for p in parameters]
    past = [deque((torch.randn_like(p) for p in [p] * (BANDS - 1)), maxlen=BANDS - 1) for p in parameters]
    coefs = cases.ring_coefs(BANDS).tolist()

    def step():
        for i, parameter in enumerate(parameters):
            noise = torch.randn_like(parameter)
            if case == "blt4":
                for scale, buffer in zip(cases.SCALE, buffers[i]):
                    noise -= scale * buffer
                buffers[i] = [decay * buffer + noise for decay, buffer in zip(cases.DECAY, buffers[i])]
            elif case == "ring16":
                for coef, row in zip(coefs[1:], past[i]):
                    noise -= coef * row
                past[i].appendleft(noise)
            parameter.grad = parameter.grad + noise

    return step


def in_place(case, parameters):
    """As a careful one does: nothing allocated, lists of tensors in one call."""
    gradients = [p.grad for p in parameters]
    buffers = [[torch.zeros_like(p) for p in parameters] for _ in cases.DECAY]
    ring = deque(([torch.randn_like(p) for p in parameters] for _ in range(BANDS)), maxlen=BANDS)
    coefs = cases.ring_coefs(BANDS).tolist()
    scratch = [torch.empty_like(p) for p in parameters]

    def step():
        noise = scratch
        if case == "ring16":
            ring.rotate(1)
            noise = ring[0]
        for values in noise:
            values.normal_()
        if case == "blt4":
            for scale, buffer in zip(cases.SCALE, buffers):
                torch._foreach_add_(noise, buffer, alpha=-scale)
            for decay, buffer in zip(cases.DECAY, buffers):
                torch._foreach_mul_(buffer, decay)
                torch._foreach_add_(buffer, noise)
        elif case == "ring16":
            for age in range(1, BANDS):
                torch._foreach_add_(noise, ring[age], alpha=-coefs[age])
        torch._foreach_add_(gradients, noise)

    return step


def ours(case, parameters, threads=0):
    plan = corrnoise.plan(4096, epsilon=8.0, delta=1e-6, setting="streaming", strategy=MECHANISMS[case])
    return CorrelatedNoise(parameters, plan, corrnoise.Key.from_os(), threads=threads).add_noise


def is_judged(case, name):
    """Correlated noise as users write it. Independent noise is for comparison, and what a careful one writes says how much is care."""
    return case != "independent" and name == "as users write it"


def seconds(step, steps):
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


@torch.no_grad()
def compare(case):
    """Medians of both and of their ratio, against each of the two ways to write it."""
    noise = ours(case, transformer())
    for _ in range(2 * BANDS):
        noise()
    for name, contender in [("as users write it", plain), ("in place", in_place)]:
        peer = contender(case, transformer())
        seconds(peer, 2)
        rounds = [(seconds(peer, STEPS), seconds(noise, STEPS)) for _ in range(ROUNDS)]
        theirs, own = (statistics.median(column) for column in zip(*rounds))
        yield name, theirs, own, statistics.median(a / b for a, b in rounds)


def overhead(engine, count):
    """Seconds of a call on `count` tensors of 64 values, and of the engine alone on the same; one thread, which none has to wake."""
    noise = ours("independent", with_gradients([(64,)] * count), threads=1)
    rounds = [(seconds(noise, 50), engine.seconds("independent", f"64x{count}", 1, 50)) for _ in range(ROUNDS)]
    return tuple(statistics.median(column) for column in zip(*rounds))


def main():
    torch.set_num_threads(cases.THREADS)
    missed = []
    print(f"torch {torch.__version__}, {cases.THREADS} threads, 10⁷ parameters in 120 tensors")
    for case in MECHANISMS:
        for name, theirs, own, ratio in compare(case):
            print(f"{case:12} {name:18} {theirs * 1e3:8.1f} ms   corrnoise {own * 1e3:6.1f} ms   {ratio:5.1f} times", flush=True)
            if is_judged(case, name) and ratio < MINIMUM_RATIO:
                missed.append(f"{case}, {name}: {ratio:.2f} times, expected {MINIMUM_RATIO}")
    with Peer([os.environ["PEER_TIMINGS"]]) as engine:
        for count in (1, 20, 100):
            call, alone = overhead(engine, count)
            print(f"{count:3} tensors: {call * 1e6:6.1f} µs a call, {alone * 1e6:6.1f} µs in the engine")
            if call - alone > MAXIMUM_OVERHEAD:
                missed.append(f"{count} tensors: {(call - alone) * 1e6:.0f} µs beyond the engine, expected at most 50")
    if missed:
        sys.exit("; ".join(missed))


if __name__ == "__main__":
    main()
