"""The batches of a plan for PyTorch's DataLoader."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

import torch.utils.data

from .._native import Batch, Sampler
from ..errors import InvalidArgument

__all__ = ["BatchSampler", "Steps"]


class Steps(Protocol):
    """An object that knows the step that comes next: a mechanism, or the noise of a model."""

    @property
    def next_step(self) -> int:
        """The step that the next call makes."""


class BatchSampler(torch.utils.data.Sampler[list[int]]):
    """Every step's indices, from step `start` to the plan's last: one pass over the loader is the rest of the run.

        batches = BatchSampler(sampler, start=noise)
        loader = DataLoader(dataset, batch_sampler=batches)
        for batch, (inputs, targets) in batches.paired(loader):
            ...
            noise.add_noise(batch)

    `start` is the noise, or a step. With the noise, every iteration begins at the step that the noise is at: a loop that was left
    goes on there when it is entered again. A loader with workers takes batches ahead of the loop, so this cannot know by itself how
    many of them were used: with a number, a second iteration is refused.

    With `num_ranks` processes, each with its `rank`, a step's batch is dealt out among them; every rank has the same number of steps. A
    batch under Poisson sampling, and a rank's part of any batch, may be empty: `collate_fn` must take an empty list, and noise is
    added all the same.
    """

    def __init__(self, sampler: Sampler, *, start: int | Steps = 0, rank: int = 0, num_ranks: int = 1) -> None:
        self._noise: Any = start if hasattr(start, "next_step") else None
        self._number = operator.index(start) if self._noise is None else 0
        first = self._first()
        if not 0 <= first <= sampler.num_steps:
            raise InvalidArgument(f"start is {first}: expected 0 to {sampler.num_steps}, the plan's steps")
        if not 0 <= rank < num_ranks:
            raise InvalidArgument(f"rank is {rank}: expected at least 0 and below {num_ranks}, the number of ranks")
        self._sampler = sampler
        self._rank, self._num_ranks = rank, num_ranks
        self._begun = False
        # Where the next iteration keeps its batches for `paired`.
        self._kept: deque[Batch] | None = None

    def _first(self) -> int:
        return self._number if self._noise is None else self._noise.next_step

    def __iter__(self) -> Iterator[list[int]]:
        # A loader with workers asks for two iterators and uses the second: an iteration begins with its first batch.
        kept, self._kept = self._kept, None
        first = self._first()
        if self._begun and self._noise is None and first < self._sampler.num_steps:
            raise InvalidArgument(
                f"this BatchSampler has begun at step {first} before, and would take the same batches again: expected a new "
                "BatchSampler(sampler, start=noise.next_step), or one with start=noise, which goes on where the noise is"
            )
        self._begun = True
        for step in range(first, self._sampler.num_steps):
            batch = self._sampler.batch(step)
            if kept is not None:
                kept.append(batch)
            yield batch.tolist()[self._rank :: self._num_ranks]

    def paired(self, loader: torch.utils.data.DataLoader[Any]) -> Iterator[tuple[Batch, Any]]:
        """Yields the loader's items, each with its step's batch, which `add_noise` compares with its own step."""
        if loader.batch_sampler is not self:
            raise InvalidArgument("the loader has another batch sampler: expected DataLoader(..., batch_sampler=this one)")
        if not getattr(loader, "in_order", True):
            raise InvalidArgument("the loader has in_order=False: expected batches in the order of the steps")
        return self._pairs(loader)

    def _pairs(self, loader: torch.utils.data.DataLoader[Any]) -> Iterator[tuple[Batch, Any]]:
        # At most as many as the loader takes ahead.
        self._kept = kept = deque()
        for data in loader:
            yield kept.popleft(), data

    def __len__(self) -> int:
        return self._sampler.num_steps - self._first()
