"""Vectors that Rust made (tests/data/bindings.json), and gradients as its text defines them."""

import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import corrnoise

ROOT = Path(__file__).resolve().parents[3]
VECTORS = json.loads((ROOT / "tests/data/bindings.json").read_text())
SIZES = dict(VECTORS["sizes"])
CASES = {case["name"]: case for case in VECTORS["cases"]}


def key(run_id=VECTORS["run_id"]):
    return corrnoise.Key.from_hex(VECTORS["key"], run_id)


def plan(name="blt"):
    return corrnoise.Plan.from_json(CASES[name]["plan"])


def gradients():
    """The gradients as float32 arrays, one per tensor."""
    return [
        (((37 * np.arange(size) + 11 * k) % 101 - 50) / 16).astype(np.float32)
        for k, size in enumerate(SIZES.values())
    ]


def expected(name, dtype):
    return bytes.fromhex(CASES[name][dtype])


@pytest.fixture
def layout():
    return corrnoise.Layout(SIZES)


@pytest.fixture
def mechanism(layout):
    return corrnoise.Mechanism(plan(), key(), layout)


def guide_blocks(page, language="python"):
    """The code of a page of docs/, block by block."""
    text = (ROOT / "docs" / page).read_text()
    return [block.split("```")[0] for block in text.split(f"```{language}\n")[1:]]


def ticks_during(call):
    """Counts how often another thread of the interpreter gets its turn while `call` runs."""
    ticks, done = [], threading.Event()

    def count():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0002)

    thread = threading.Thread(target=count)
    thread.start()
    start = time.perf_counter()
    call()
    stop = time.perf_counter()
    done.set()
    thread.join()
    return sum(start < tick < stop for tick in ticks)
