"""Functions that turn a privacy budget into a plan."""

from __future__ import annotations

import functools
from typing import Literal, TypedDict, Unpack

from ._native import Plan, recommend

__all__ = ["PlanOptions", "plan"]


class PlanOptions(TypedDict, total=False):
    """The keywords of `plan` and `recommend`, for type checkers."""

    epochs: float | None
    epsilon: float | None
    delta: float | None
    mu: float | None
    noise_multiplier: float | None
    dataset_size: int | None
    batch_size: int | None
    min_sep: int | None
    max_participations: int | None
    participation: str | None
    setting: Literal["centralized", "federated", "streaming"] | None
    strategy: str
    sampling: str | None
    workload: str
    objective: Literal["max", "rms"]
    adjacency: Literal["zero-out", "replace-one"]
    unit: Literal["example", "user"]
    clip_norm: float
    max_state_bytes: int | None
    claims: Literal["proven", "confident"]
    rounds: Literal[8, 12, 20]


def plan(steps: int | None = None, **options: Unpack[PlanOptions]) -> Plan:
    """The plan that `recommend` recommends for these options, its claim verified: what `corrnoise plan` writes.

        corrnoise.plan(epochs=10, dataset_size=50_000, batch_size=500, epsilon=2, delta=1e-6)
        corrnoise.plan(2000, min_sep=400, max_participations=5, epsilon=8, delta=1e-8, strategy="blt:4")

    `help(corrnoise.recommend)` says what every option means. Takes milliseconds for one strategy, seconds for "auto".
    """
    best = recommend(steps, **options).best.plan
    best.verify()
    return best


# Lets help() and inspect.signature() show every keyword.
functools.update_wrapper(plan, recommend, assigned=(), updated=())
