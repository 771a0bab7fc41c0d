"""A mechanism per rank, checkpoints of all ranks in one folder, and the agreement between them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist

from .._native import Batch, Key, Layout, Mechanism, Plan, Sampler
from ..errors import CheckpointError, Error, InvalidArgument
from .parameters import Place


class Ranks:
    """The common part of noise on many processes. `ranges` are this rank's coordinates, possibly none."""

    def __init__(
        self,
        plan: Plan,
        key: Key,
        layout: Layout,
        ranges: list[tuple[int, int]],
        place: Place,
        *,
        group: dist.ProcessGroup | None,
        folder: str | os.PathLike[str] | None,
        resume: str,
        saves: bool = True,
        replica: bool = False,
    ) -> None:
        self._group = group
        self._rank, self._world = dist.get_rank(group), dist.get_world_size(group)
        self._place = place
        # Where several ranks hold the same coordinates, one of them writes the checkpoint.
        self._saves = saves and bool(ranges)
        self._idle = not ranges
        options = {"ranges": ranges, "replica": replica, **place.options}
        if self._idle:
            # A rank without coordinates refuses what the others refuse, before it waits for them: it makes one coordinate's noise,
            # and throws it away.
            first = next(start for _, start, stop in layout.tensors if start < stop)
            options = {"ranges": [(first, first + 1)], "threads": 1}
            key = key.without_ledger()
        if folder is None:
            self._mechanism = Mechanism(plan, key, layout, **options)
        else:
            files = self._files(Path(folder))
            nonce = self._shared_nonce() if resume == "new" else None
            self._mechanism = Mechanism.resume(plan, key, layout, files, resume=resume, nonce=nonce, **options)
        self._agree(layout)

    @staticmethod
    def _saved(folder: Path) -> list[Path]:
        return sorted(folder.glob("noise-*.safetensors"))

    @classmethod
    def _files(cls, folder: Path) -> list[Path]:
        files = cls._saved(folder)
        if not files:
            raise CheckpointError(f"{folder} holds no noise-*.safetensors: expected those of every rank")
        return files

    def _gather(self, value: object) -> list[Any]:
        values: list[Any] = [None] * self._world
        dist.all_gather_object(values, value, group=self._group)
        return values

    def _shared_nonce(self) -> bytes:
        """16 bytes drawn by the first rank, which start one new incarnation on all ranks."""
        return self._gather(os.urandom(16) if self._rank == 0 else None)[0]

    def _agree(self, layout: Layout) -> None:
        own = (self._mechanism.commitment, layout.fingerprint, self._mechanism.next_step)
        for rank, other in enumerate(self._gather(own)):
            if own != other:
                raise InvalidArgument(
                    f"ranks {self._rank} and {rank} disagree about key, plan, parameters or step: expected equal ones"
                )

    def _add(self, gradients: list[torch.Tensor], batch: Batch | Literal["unchecked"] | None) -> None:
        """Adds the next step's noise to this rank's gradients."""
        self._mechanism.add_to([torch.zeros(1)] if self._idle else gradients, batch)

    def prepare(self) -> None:
        """Begins to make this rank's noise of the next step in the background and returns at once; the bits are the same with and without.

        To be called after `optimizer.step()`, before the next forward pass, by any of the ranks: nothing is sent. On CUDA it does nothing
        without `prepare_stream`.
        """
        self._mechanism.prepare()

    @property
    def next_step(self) -> int:
        """The step that the next call makes."""
        return self._mechanism.next_step

    def sampler(self) -> Sampler:
        """The sampler of this run: the batches that its plan's claim assumes, the same on all ranks."""
        return self._mechanism.sampler()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes one checkpoint per rank into a folder that all ranks see. Each file is as secret as the key.

        To be called by all ranks, with a new folder for every checkpoint: a rank that dies here leaves the one before whole. Any
        number of ranks can go on from it.
        """
        folder = Path(folder)
        # Asked of all ranks before any of them writes.
        if any(self._gather(bool(self._saved(folder)))):
            raise CheckpointError(f"{folder} holds a checkpoint: expected a new folder for every checkpoint")
        failure = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self._saves:
                self._mechanism.save(folder / f"noise-{self._rank:05}.safetensors")
        except (Error, OSError) as error:
            failure = str(error)
        for rank, failure in enumerate(self._gather(failure)):
            if failure:
                raise CheckpointError(f"rank {rank} could not write: {failure}")
