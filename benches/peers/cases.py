"""The cases every contender times, the mechanisms behind them, and the ratios corrnoise must reach.

Coefficients only have to be ordinary ones: no contender's speed depends on their values, as long as
the recursion is stable (values stay of order one) and no coefficient is zero.
"""

from dataclasses import dataclass

import numpy as np

THREADS = 2

# BLT strategy C: c_k = sum_i SCALE_i * DECAY_i^(k-1). sum_i SCALE_i / DECAY_i < 1 keeps every pole
# of C^-1 real and inside the unit circle.
DECAY = (0.9995, 0.97, 0.8, 0.3)
SCALE = (0.02, 0.07, 0.15, 0.08)

DENSE_STEPS = 256


@dataclass(frozen=True)
class Case:
    """`minimum` maps a contender to the smallest acceptable ratio of its time to corrnoise's."""

    dim: int
    minimum: dict[str, float]
    bands: int = 0
    torch: bool = True


JAX, JAX_HUGE = "jax_privacy", "jax_privacy (huge pages)"
TORCH_PLAIN, TORCH_STRONG = "torch (as users write it)", "torch (strongest)"

CASES = {
    "independent": Case(10_000_000, {JAX: 7, TORCH_STRONG: 4}),
    "blt4": Case(10_000_000, {JAX: 13, TORCH_STRONG: 4}),
    "ring16": Case(10_000_000, {JAX: 13, TORCH_STRONG: 4}, bands=16),
    "ring64": Case(10_000_000, {JAX: 12, TORCH_STRONG: 2}, bands=64),
    "dense255": Case(1_000_000, {JAX: 5}, torch=False),
}

# A plain read-modify-write of the bytes blt4 moves bounds it from below.
BANDWIDTH_CASE, BANDWIDTH_BOUND, MINIMUM_SHARE = "blt4", "rmw-blt4", 0.5


def ring_coefs(bands):
    """First column of C: the leading coefficients of (1 - x)^(-1/2), cut off after `bands`.

    They decrease strictly, so all roots of the polynomial lie outside the unit circle and C^-1 is
    stable.
    """
    k = np.arange(1, bands)
    return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))]).astype(np.float32)


def history(slots, dim):
    """A full history: `slots` rows of unit normals, all bands live from the first step on.

    The rows are shifted copies of one row, because drawing 63 rows of 10^7 takes longer than the
    measurement and the arithmetic cannot tell.
    """
    row = np.random.default_rng(1).standard_normal(dim, dtype=np.float32)
    rows = np.empty((slots, dim), np.float32)
    for slot in range(slots):
        rows[slot] = np.roll(row, 7919 * slot)
    return rows
