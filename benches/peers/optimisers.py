"""Times our optimisers against those of jax_privacy, and compares the losses they reach.

Each case runs in this process as a user would call it, once per repetition; jax_privacy compiles anew on every call. What it spends on
tracing and compiling is measured by JAX itself and reported apart. Strategies of both sides are evaluated by the same code.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from jax_privacy.matrix_factorization import buffered_toeplitz, dense, toeplitz

jax.config.update("jax_enable_x64", True)
TIMINGS = os.environ["OPTIMISER_TIMINGS"]
# Their longest call takes minutes.
REPEATS = int(os.environ.get("REPEATS", 3))

compiling = 0.0


def listen(event, seconds, **_):
    global compiling
    if event.startswith("/jax/core/compile/"):
        compiling += seconds


jax.monitoring.register_event_duration_secs_listener(listen)


def blt(n, min_sep=1, participations=1):
    found = buffered_toeplitz.optimize(
        n=n, min_sep=min_sep, max_participations=participations, error="max", min_buffers=4, max_buffers=4
    )
    return np.concatenate([np.asarray(found.output_scale), np.asarray(found.buf_decay)])


def banded(n):
    return np.asarray(toeplitz.optimize_banded_toeplitz(n, 64))


def dense_lower(n):
    return np.asarray(dense.optimize(n))


# Case: their call, how much faster ours must be as users see it, and without their compilation.
CASES = {
    "blt4-10000": (lambda: blt(10_000), 100, 10),
    "blt4-1000000": (lambda: blt(1_000_000), 100, 10),
    "blt4-min-sep": (lambda: blt(1000, 100, 10), 100, 10),
    "banded64-2048": (lambda: banded(2048), 20, 20),
    "banded64-100000": (lambda: banded(100_000), 20, 20),
    "dense-256": (lambda: dense_lower(256), 10, 5),
    "dense-512": (lambda: dense_lower(512), 10, 5),
}


def theirs(call):
    """(seconds, seconds without compiling, strategy), medians over the repetitions."""
    global compiling
    whole, rest = [], []
    for _ in range(REPEATS):
        compiling = 0.0
        start = time.perf_counter()
        strategy = call()
        seconds = time.perf_counter() - start
        whole.append(seconds)
        rest.append(max(seconds - compiling, 1e-9))
    return statistics.median(whole), statistics.median(rest), strategy


def main():
    ours = subprocess.Popen([TIMINGS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(line):
        ours.stdin.write(line + "\n")
        ours.stdin.flush()
        return [float(word) for word in ours.stdout.readline().split()]

    chosen = sys.argv[1:] or list(CASES)
    missed = []
    print(f"{'case':<18}{'ours':>10}{'theirs':>10}{'times':>8}{'compiled':>10}{'times':>8}{'our loss':>12}{'their loss':>12}")
    for name in chosen:
        call, as_seen, compiled = CASES[name]
        seconds, loss = ask(f"optimise {name} 5")
        their_seconds, their_rest, strategy = theirs(call)
        with tempfile.NamedTemporaryFile(suffix=".f64") as file:
            Path(file.name).write_bytes(np.ascontiguousarray(strategy, dtype="<f8").tobytes())
            (their_loss,) = ask(f"evaluate {name} {file.name}")
        print(
            f"{name:<18}{seconds:>10.4f}{their_seconds:>10.2f}{their_seconds / seconds:>8.0f}{their_rest:>10.2f}"
            f"{their_rest / seconds:>8.1f}{loss:>12.5f}{their_loss:>12.5f}",
            flush=True,
        )
        if their_seconds / seconds < as_seen or their_rest / seconds < compiled or loss > 1.0005 * their_loss:
            missed.append(name)
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


main()
