"""The loader of a private run: every pass is an epoch of the plan's batches, and the optimiser knows which batch it was given."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch.utils.data

from .._native import Batch, Sampler
from .batches import Steps

__all__ = ["LogicalBatches", "PrivateLoader"]


class LogicalBatches(torch.utils.data.BatchSampler):
    """The batches of one epoch, from the step that the noise is at; an empty one is a filler, whose gradient is not counted.

    With `num_ranks` processes, each with its `rank`, a step's batch is dealt out among them, and a rank that gets nothing has a filler.
    `batch_size` is the expected one of a rank, rounded up, which Opacus's memory manager reads.
    """

    def __init__(self, sampler: Sampler, noise: Steps, dataset_size: int, rank: int = 0, num_ranks: int = 1) -> None:
        # The base class would sample by itself: what it offers is its name, by which others know that batches come from here.
        self.plan_sampler, self._noise = sampler, noise
        expected = sampler.expected_batch_size
        self.batch_size, self.drop_last = math.ceil(expected / num_ranks), False
        self._rank, self._num_ranks = rank, num_ranks
        # The expected size was divided before: what is left of a rounding is no step.
        self.steps_per_epoch = math.ceil(dataset_size / expected * (1 - 1e-9))
        # What is called when a pass begins, whatever became of the one before. The optimiser, which holds the noise and this, is not held
        # from here: a key is free again as soon as its optimiser is gone.
        self.on_begin: Callable[[], Callable[[], None] | None] = lambda: None
        self._drawn: dict[int, Batch] = {}
        # The batch that the loop was given last, where that is known: not where workers take batches ahead for a loader of others.
        self.given: Batch | None = None
        self.taken_ahead = False

    @property
    def next_step(self) -> int:
        """The step that comes next."""
        return self._noise.next_step

    def batch(self, step: int) -> Batch:
        """The batch of a step, drawn once where the loader took it; those before it are forgotten."""
        for past in [drawn for drawn in self._drawn if drawn < step]:
            del self._drawn[past]
        drawn = self._drawn.get(step)
        return self.plan_sampler.batch(step) if drawn is None else drawn

    def share(self, batch: Batch) -> int:
        """How many examples of a batch are this rank's."""
        return len(range(self._rank, len(batch), self._num_ranks))

    def __iter__(self) -> Iterator[list[int]]:
        begin = self.on_begin()
        if begin is not None:
            begin()
        self._drawn.clear()
        self.given = None
        first, last = self._noise.next_step, self.plan_sampler.num_steps
        stop = min(last, (first // self.steps_per_epoch + 1) * self.steps_per_epoch)
        for step in range(first, stop):
            self._drawn[step] = batch = self.plan_sampler.batch(step)
            if not self.taken_ahead:
                self.given = batch
            yield batch.tolist()[self._rank :: self._num_ranks] or [0]

    def __len__(self) -> int:
        return self.steps_per_epoch


class PrivateLoader(torch.utils.data.DataLoader[Any]):
    """A loader of `LogicalBatches`: one pass is one epoch, or the rest of one that was left."""

    batch_sampler: LogicalBatches

    def __init__(self, dataset: torch.utils.data.Dataset[Any], batches: LogicalBatches, **options: Any) -> None:
        super().__init__(dataset, batch_sampler=batches, **options)
        batches.taken_ahead = self.num_workers > 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        batches = self.batch_sampler
        step = batches.next_step
        for step, data in enumerate(super().__iter__(), start=step):
            batches.given = batches.batch(step)
            yield data
