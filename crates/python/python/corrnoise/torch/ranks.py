"""A mechanism per rank, checkpoints of all ranks, and the agreement between them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist

from .._native import Batch, Key, Layout, Mechanism, Plan, Sampler
from ..errors import CheckpointError, Error, InvalidArgument
from .agreement import gathered, on_all, shared_nonce
from .noise import check_fingerprints
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
        self._layout = layout
        # The states of all ranks, on the first one, and the step that they were gathered at.
        self._gathered: tuple[int, list[torch.Tensor]] | None = None
        self._begun = False
        nonce = shared_nonce(self._group) if folder is not None and resume == "new" else None

        def make() -> None:
            if folder is None:
                # A program that goes on may load a state dict: until then, no step that was made before.
                self._mechanism = Mechanism(plan, key, layout, awaits_state=True, **options)
            else:
                files = self._files(Path(folder))
                self._mechanism = Mechanism.resume(plan, key, layout, files, resume=resume, nonce=nonce, **options)

        self._on_all(make)
        self._agree()

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
        return gathered(value, self._group)

    def _on_all(self, work: Callable[[], None]) -> None:
        on_all(work, self._group)

    def _agree(self) -> None:
        own = (self._mechanism.commitment, self._layout.fingerprint, self._mechanism.next_step)
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

    def gather_state(self) -> None:
        """Sends the state of all ranks to the first one, whose `state_dict` then holds it until the next step.

        To be called by all ranks where a checkpoint is due, for trainers that ask the first rank alone for a state dict.
        """
        own: list[bytes] = []
        self._on_all(lambda: own.extend([self._mechanism.state()] if self._saves else []))
        states: list[Any] | None = [None] * self._world if self._rank == 0 else None
        first = dist.get_global_rank(self._group or dist.group.WORLD, 0)
        dist.gather_object(own, states, dst=first, group=self._group)
        if states is not None:
            tensors = [torch.frombuffer(bytearray(state), dtype=torch.uint8) for part in states for state in part]
            self._gathered = (self.next_step, tensors)

    def state_dict(self) -> dict[str, Any]:
        """A checkpoint of all ranks, as secret as the key: for the first rank, without the others, after `gather_state` at this step."""
        if self._gathered is None or self._gathered[0] != self.next_step:
            raise CheckpointError(
                f"the states of step {self.next_step} were not gathered on rank {self._rank}: expected gather_state() on all ranks since "
                "the last step, then state_dict() on the first one, or save(folder)"
            )
        fingerprints = {"plan": self._mechanism.plan.fingerprint, "layout": self._layout.fingerprint}
        return {**fingerprints, "states": list(self._gathered[1])}

    def load_state_dict(self, state_dict: dict[str, Any], *, resume: Literal["new", "exact"] = "new") -> None:
        """Resumes from the state dict of any number of ranks, with the same plan, key and model. To be called by all ranks, with all of it.

        `resume` means what it means for `CorrelatedNoise`.
        """
        nonce = shared_nonce(self._group) if resume == "new" else None

        def load() -> None:
            check_fingerprints(state_dict, self._mechanism, self._layout)
            states = [state.cpu().numpy().tobytes() for state in state_dict["states"]]
            self._mechanism.load_state(states, resume=resume, nonce=nonce)

        self._on_all(load)
        self._agree()
        self._begun, self._gathered = False, None

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
