"""Noise for models on many processes: each makes its own coordinates only, and the bits are those of one process.

`ReplicatedNoise` is for replicated models (DDP): every rank holds all gradients, equal after the all-reduce. A rank adds noise to
its part of the coordinates, and the noisy parts are gathered. `ShardedNoise` is for models whose ranks hold a piece of every
tensor each (FSDP): no communication at all.

Every rank must have the same plan and the same key; a rank that does not is found when the noise is made.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist

from .._native import Key, Layout, Mechanism, Plan
from ..errors import CheckpointError, InvalidArgument
from . import Parameters, named_parameters

__all__ = ["Piece", "ReplicatedNoise", "ShardedNoise"]

# Name, size of the whole tensor, first coordinate of this rank's piece in it, and the parameter that holds the piece.
Piece = tuple[str, int, int, torch.Tensor]

TILE = 512


class _Ranks:
    """A mechanism per rank, checkpoints of all ranks in one folder, and the agreement between them."""

    def __init__(self, plan: Plan, key: Key, layout: Layout, ranges, group, folder, resume, threads) -> None:
        self._group = group
        self._rank, self._world = dist.get_rank(group), dist.get_world_size(group)
        self._mechanism = None
        if folder is None:
            if ranges:
                self._mechanism = Mechanism(plan, key, layout, ranges=ranges, threads=threads)
        else:
            files = self._files(Path(folder))
            nonce = self._shared_nonce() if resume == "new" else None
            if ranges:
                self._mechanism = Mechanism.resume(
                    plan, key, layout, files, resume=resume, nonce=nonce, ranges=ranges, threads=threads
                )
        self._agree(layout)

    @staticmethod
    def _files(folder: Path) -> list[Path]:
        files = sorted(folder.glob("noise-*.safetensors"))
        if not files:
            raise CheckpointError(f"{folder} holds no noise-*.safetensors: expected those of every rank")
        return files

    def _gather(self, value: object) -> list:
        values = [None] * self._world
        dist.all_gather_object(values, value, group=self._group)
        return values

    def _shared_nonce(self) -> bytes:
        """16 bytes drawn by the first rank: what starts one new incarnation on all."""
        return self._gather(os.urandom(16) if self._rank == 0 else None)[0]

    def _agree(self, layout: Layout) -> None:
        own = self._mechanism and (self._mechanism.commitment, layout.fingerprint, self._mechanism.next_step)
        for rank, other in enumerate(self._gather(own)):
            if own and other and own != other:
                raise InvalidArgument(
                    f"ranks {self._rank} and {rank} disagree about key, plan, parameters or step: expected equal ones"
                )

    @property
    def next_step(self) -> int | None:
        """The step that the next call makes; None on a rank without coordinates."""
        return self._mechanism and self._mechanism.next_step

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes one checkpoint per rank into a folder that all ranks see. Each file is as secret as the key.

        Any number of ranks can go on from it. The folder must hold nothing but these files.
        """
        Path(folder).mkdir(parents=True, exist_ok=True)
        if self._mechanism:
            self._mechanism.save(Path(folder) / f"noise-{self._rank:05}.safetensors")
        dist.barrier(group=self._group)


class ReplicatedNoise(_Ranks):
    """Noise for a replicated model: rank `r` of `n` makes one `n`-th of the coordinates, and all ranks get all noisy gradients.

    Gradients must be equal on all ranks before the call, as they are after DDP's all-reduce; they are equal afterwards.
    """

    def __init__(
        self,
        parameters: Parameters,
        plan: Plan,
        key: Key,
        *,
        group: dist.ProcessGroup | None = None,
        folder: str | os.PathLike[str] | None = None,
        resume: Literal["new", "exact"] = "new",
        threads: int = 0,
    ) -> None:
        """A new run, or with `folder` the one that was saved there, by any number of ranks."""
        self._named = named_parameters(parameters)
        layout = Layout({name: p.numel() for name, p in self._named.items()})
        world = dist.get_world_size(group)
        tiles = -(-layout.dim // TILE)
        bounds = [min(tiles * r // world * TILE, layout.dim) for r in range(world)] + [layout.dim]
        # Of every rank: which tensor, from where to where.
        self._pieces = [
            [
                (i, max(start, low) - start, min(stop, high) - start)
                for i, (_, start, stop) in enumerate(layout.tensors)
                if max(start, low) < min(stop, high)
            ]
            for low, high in zip(bounds, bounds[1:])
        ]
        rank = dist.get_rank(group)
        ranges = [(bounds[rank], bounds[rank + 1])] if self._pieces[rank] else []
        super().__init__(plan, key, layout, ranges, group, folder, resume, threads)

    def add_noise(self) -> None:
        """Adds the noise of the next step to every gradient. To be called by all ranks."""
        gradients = self._gradients()
        views = [[gradients[i][a:b] for i, a, b in pieces] for pieces in self._pieces]
        if self._mechanism:
            self._mechanism.add_to(views[self._rank])
        if self._world == 1:
            return
        # One gather of equal lengths: parts differ by the gaps between tensors, less than a tile for each.
        lengths = [sum(view.numel() for view in part) for part in views]
        own = gradients[0].new_zeros(max(lengths))
        if views[self._rank]:
            torch.cat(views[self._rank], out=own[: lengths[self._rank]])
        parts = [torch.empty_like(own) for _ in range(self._world)]
        dist.all_gather(parts, own, group=self._group)
        for rank, part in enumerate(parts):
            if rank != self._rank:
                sizes = [view.numel() for view in views[rank]]
                for view, values in zip(views[rank], part[: lengths[rank]].split(sizes)):
                    view.copy_(values)

    def _gradients(self) -> list[torch.Tensor]:
        """All gradients as vectors. What is wrong with any of them is found on every rank, before noise is added on one."""
        gradients: list[torch.Tensor] = []
        for name, parameter in self._named.items():
            gradient = parameter.grad
            if gradient is None:
                raise InvalidArgument(f"parameter {name!r} has no grad: expected a gradient for each")
            if not gradient.is_contiguous():
                raise InvalidArgument(f"the gradient of {name!r} is not C-contiguous: call .contiguous()")
            if not gradient.is_cpu:
                raise InvalidArgument(f"the gradient of {name!r} is on {gradient.device}: expected memory of the CPU")
            if gradients and gradient.dtype != gradients[0].dtype:
                raise InvalidArgument(
                    f"the gradient of {name!r} is {gradient.dtype}: expected {gradients[0].dtype}, the first one's type"
                )
            gradients.append(gradient.detach().view(-1))
        return gradients


class ShardedNoise(_Ranks):
    """Noise for a model of which each rank holds pieces: every rank makes its own coordinates, and nothing is sent."""

    def __init__(
        self,
        pieces: Iterable[Piece],
        plan: Plan,
        key: Key,
        *,
        group: dist.ProcessGroup | None = None,
        folder: str | os.PathLike[str] | None = None,
        resume: Literal["new", "exact"] = "new",
        threads: int = 0,
    ) -> None:
        """Pieces name every tensor of the model in the same order on all ranks; an empty piece is a tensor of no values."""
        pieces = list(pieces)
        layout = Layout({name: size for name, size, _, _ in pieces})
        ranges = []
        self._held = []
        for (name, size, first, parameter), (_, start, _) in zip(pieces, layout.tensors):
            if first < 0 or first + parameter.numel() > size:
                raise InvalidArgument(
                    f"the piece of {name!r} ends at {first + parameter.numel()}: expected at most {size}, its size"
                )
            if parameter.numel():
                ranges.append((start + first, start + first + parameter.numel()))
                self._held.append((name, parameter))
        super().__init__(plan, key, layout, ranges, group, folder, resume, threads)

    def add_noise(self) -> None:
        """Adds the noise of the next step to the gradient of every piece."""
        for name, parameter in self._held:
            if parameter.grad is None:
                raise InvalidArgument(f"the piece of {name!r} has no grad: expected a gradient for each")
        if self._mechanism:
            self._mechanism.add_to([parameter.grad for _, parameter in self._held])
