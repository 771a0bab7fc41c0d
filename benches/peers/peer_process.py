"""Contenders as child processes that answer timing questions on stdin and stdout.

A question is `CASE DIM THREADS STEPS`, the answer the median seconds of one step or `error: ...`.
The Rust example speaks this already. The Python contenders use it too: each gets a fresh allocator
and its own environment, thread pools do not meet, and closing a process returns all its memory.
"""

import contextlib
import gc
import os
import statistics
import subprocess
import sys
import time
import traceback


class PeerError(Exception):
    """A contender that answered `error: ...`, or died."""


class Peer:
    """The asking side: one child process."""

    def __init__(self, command, environment=None):
        self.name = os.path.basename(command[-1])
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            env={**os.environ, **(environment or {})},
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def ask(self, question):
        with contextlib.suppress(BrokenPipeError):  # The missing answer below says more.
            self.process.stdin.write(question + "\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer:
            code = self.process.wait()
            raise PeerError(f"{self.name} ended with code {code} on `{question}`")
        if answer.startswith("error:"):
            raise PeerError(f"{self.name} on `{question}`: {answer}")
        return answer

    def seconds(self, case, dim, threads, steps):
        question = f"{case} {dim} {threads} {steps}"
        answer = self.ask(question)
        try:
            seconds = float(answer)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds < float("inf"):
            raise PeerError(f"{self.name} on `{question}`: expected seconds, got `{answer}`")
        return seconds


def serve(version, variants, build):
    """The answering side, for the Python contenders.

    `variants(case)` lists names; `build(case, variant, dim, threads)` returns a function that runs
    one whole step and comes back when it is finished. Questions name `CASE:VARIANT`; two more,
    `version` and `variants CASE`, describe the contender.
    """
    # Compilers called by the libraries may print; only answers may reach the asking side.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    built, step = None, None
    for line in sys.stdin:
        words = line.split()
        try:
            if words == ["version"]:
                answer = version
            elif words[0] == "variants":
                answer = " ".join(variants(words[1]))
            else:
                (case, variant), (dim, threads, steps) = words[0].split(":"), map(int, words[1:])
                if built != words[:3]:
                    # The old state must be gone before the new one is made: two may not fit.
                    built = step = None
                    gc.collect()
                    step = build(case, variant, dim, threads)
                    built = words[:3]
                    for _ in range(2):  # Compilation, then first touch of what it allocates.
                        step()
                answer = f"{statistics.median(timed(step) for _ in range(steps)):.9f}"
        except Exception as error:
            traceback.print_exc()
            answer = "error: " + " ".join(f"{type(error).__name__}: {error}".split())
        answers.write(answer + "\n")


def timed(step):
    start = time.perf_counter()
    step()
    return time.perf_counter() - start
