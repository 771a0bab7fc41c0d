"""What processes tell each other so that none of them goes on alone, and none waits for one that failed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from .. import errors
from ..errors import Error

# What a rank tells the others of its failure: the class and the text of an exception.
Failure = tuple[str, str]


def gathered(value: object, group: dist.ProcessGroup | None) -> list[Any]:
    """The values of all ranks, on every rank."""
    values: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def shared_nonce(group: dist.ProcessGroup | None) -> bytes:
    """16 bytes drawn by the first rank, which start one new incarnation on all ranks."""
    return gathered(os.urandom(16) if dist.get_rank(group) == 0 else None, group)[0]


def raise_on_all(failure: Exception | None, group: dist.ProcessGroup | None) -> None:
    """Raises this rank's failure, or else the first one of another rank. To be called by all ranks."""
    told: Failure | None = failure and (type(failure).__name__, str(failure))
    failures: list[Failure | None] = gathered(told, group)
    if failure is not None:
        raise failure
    for rank, other in enumerate(failures):
        if other is not None:
            name, text = other
            raise getattr(errors, name, Error)(f"rank {rank}: {text}")


def on_all(work: Callable[[], None], group: dist.ProcessGroup | None) -> None:
    """Does work that may fail on some ranks alone; then it fails on every rank, and none waits for another."""
    failure = None
    try:
        work()
    except (Error, OSError, TypeError) as error:
        failure = error
    raise_on_all(failure, group)
