"""The batches of a plan for PyTorch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator

import torch.utils.data

from .._native import Sampler
from ..errors import InvalidArgument

__all__ = ["BatchSampler"]


class BatchSampler(torch.utils.data.Sampler[list[int]]):
    """Every step's indices, from step `start` to the plan's last: one pass over the loader is the rest of the run.

        loader = DataLoader(dataset, batch_sampler=BatchSampler(sampler, start=noise.next_step))

    After a resume make it anew, with the step that the noise is at. With `num_ranks` processes, each with its `rank`, a step's batch is
    dealt out among them; every rank has the same number of steps. A batch under Poisson sampling, and a rank's part of any
    batch, may be empty: `collate_fn` must take an empty list, and noise is added all the same.
    """

    def __init__(self, sampler: Sampler, *, start: int = 0, rank: int = 0, num_ranks: int = 1) -> None:
        if not 0 <= start <= sampler.num_steps:
            raise InvalidArgument(f"start is {start}: expected 0 to {sampler.num_steps}, the plan's steps")
        if not 0 <= rank < num_ranks:
            raise InvalidArgument(f"rank is {rank}: expected at least 0 and below {num_ranks}, the number of ranks")
        self._sampler, self._start = sampler, start
        self._rank, self._num_ranks = rank, num_ranks

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self._start, self._sampler.num_steps):
            yield self._sampler.batch(step).tolist()[self._rank :: self._num_ranks]

    def __len__(self) -> int:
        return self._sampler.num_steps - self._start
