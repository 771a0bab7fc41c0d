"""Noise for models on many processes: each makes its own coordinates only, and the bits are those of one process.

`ReplicatedNoise` is for replicated models (DDP): every rank holds all gradients, equal after the all-reduce. A rank adds noise to
its part of the coordinates, and the noisy parts are gathered. `ShardedNoise` is for models whose ranks hold a piece of every
tensor each (FSDP): no communication at all.

Every rank must have the same plan and the same key; a rank that does not is found when the noise is made.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal, Unpack

import torch
import torch.distributed as dist

from .._native import Batch, Key, Layout, Plan
from ..errors import Error, InvalidArgument
from ..options import RankOptions, takes
from .agreement import raise_on_all
from .parameters import Parameters, Place, gradients_of, mark_changed, named_parameters
from .pieces import Piece, held_pieces, local, pieces_of
from .ranks import Ranks

__all__ = ["Piece", "ReplicatedNoise", "ShardedNoise"]

TILE = 512


class ReplicatedNoise(Ranks):
    """Noise for a replicated model: rank `r` of `n` makes one `n`-th of the coordinates, and all ranks get all noisy gradients.

    Gradients must be equal on all ranks before the call, as they are after DDP's all-reduce; they are equal afterwards.
    """

    @takes(RankOptions)
    def __init__(
        self,
        parameters: Parameters,
        plan: Plan,
        key: Key,
        *,
        group: dist.ProcessGroup | None = None,
        folder: str | os.PathLike[str] | None = None,
        resume: Literal["new", "exact"] = "new",
        **options: Unpack[RankOptions],
    ) -> None:
        """Begins a run, or with `folder` resumes the one that was saved there, by any number of ranks."""
        self._named = named_parameters(parameters)
        self._device = next(iter(self._named.values())).device
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
        place = Place(self._device, **options)
        super().__init__(plan, key, layout, ranges, place, group=group, folder=folder, resume=resume)

    def add_noise(self, batch: Batch | Literal["unchecked"] | None = None) -> None:
        """Adds the noise of the next step to every gradient. To be called by all ranks, with the whole batch of the step.

        A batch of another step, plan or run is refused, and so is none where the plan draws batches. "unchecked" says that the caller
        vouches for it.
        """
        gradients: list[torch.Tensor] = []
        parts: list[list[torch.Tensor]] = [[] for _ in self._pieces]
        failure: Exception | None = None
        try:
            gradients = self._gradients()
            self._place.check()
            flat = [gradient.detach().view(-1) for gradient in gradients]
            parts = [[flat[i][a:b] for i, a, b in pieces] for pieces in self._pieces]
            self._add(parts[self._rank], batch)
        except (Error, TypeError) as error:
            # The others wait in the gather, and are told there.
            failure = error
        if self._world > 1:
            self._exchange(parts, failure)
        elif failure is not None:
            raise failure
        mark_changed(gradients)

    def _exchange(self, parts: list[list[torch.Tensor]], failure: Exception | None) -> None:
        """Sends every rank's part to all others: one gather of equal lengths; parts differ by less than a tile for each tensor.

        One more value tells whether the rank failed. Then all ranks raise an exception, and none takes what another one sent.
        """
        lengths = [sum(stop - start for _, start, stop in pieces) for pieces in self._pieces]
        most = max(lengths)
        own = torch.zeros(most + 1, dtype=next(iter(self._named.values())).dtype, device=self._device)
        if failure is not None:
            own[most] = 1
        elif parts[self._rank]:
            torch.cat(parts[self._rank], out=own[: lengths[self._rank]])
        received = [torch.empty_like(own) for _ in parts]
        dist.all_gather(received, own, group=self._group)
        if torch.stack([values[most] for values in received]).any():
            raise_on_all(failure, self._group)
        for rank, values in enumerate(received):
            if rank != self._rank:
                sizes = [view.numel() for view in parts[rank]]
                for view, noisy in zip(parts[rank], values[: lengths[rank]].split(sizes)):
                    view.copy_(noisy)

    def _gradients(self) -> list[torch.Tensor]:
        """All gradients. A mistake in any of them is found on every rank, before noise is added on one."""
        gradients = gradients_of(self._named)
        for name, gradient in zip(self._named, gradients):
            if not gradient.is_contiguous():
                raise InvalidArgument(f"the gradient of {name!r} is not C-contiguous: call .contiguous()")
            if gradient.device != self._device:
                raise InvalidArgument(f"the gradient of {name!r} is on {gradient.device}: expected {self._device}")
            if gradient.dtype != gradients[0].dtype:
                raise InvalidArgument(
                    f"the gradient of {name!r} is {gradient.dtype}: expected {gradients[0].dtype}, the first one's type"
                )
        return gradients


class ShardedNoise(Ranks):
    """Noise for a model of which each rank holds pieces: every rank makes its own coordinates, and nothing is sent."""

    @takes(RankOptions)
    def __init__(
        self,
        pieces: torch.nn.Module | Iterable[Piece],
        plan: Plan,
        key: Key,
        *,
        group: dist.ProcessGroup | None = None,
        folder: str | os.PathLike[str] | None = None,
        resume: Literal["new", "exact"] = "new",
        replica: bool = False,
        **options: Unpack[RankOptions],
    ) -> None:
        """Begins a run on a module after `fully_shard`, or on pieces.

        Pieces name every tensor of the model in the same order on all ranks; an empty piece is a tensor of no values. `replica` says that
        other ranks hold the same pieces, with the same gradients; a module knows it by itself (HSDP).
        """
        first = True
        if isinstance(pieces, torch.nn.Module):
            pieces, replica, first = pieces_of(pieces)
        sizes, held, self._held = held_pieces(pieces)
        layout = Layout(sizes)
        starts = {name: start for name, start, _ in layout.tensors}
        ranges = [(starts[name] + low, starts[name] + high) for name, low, high in held]
        device = next((local(p).device for p in self._held.values()), torch.device("cpu"))
        place = Place(device, **options)
        super().__init__(plan, key, layout, ranges, place, group=group, folder=folder, resume=resume, saves=first, replica=replica)

    def add_noise(self, batch: Batch | Literal["unchecked"] | None = None) -> None:
        """Adds the noise of the next step to the gradient of every piece. To be called by all ranks, with the whole batch of the step.

        A batch of another step, plan or run is refused, and so is none where the plan draws batches. "unchecked" says that the caller
        vouches for it.
        """
        gradients = [local(gradient) for gradient in gradients_of(self._held)]
        self._place.check()
        if self._begun:
            self._add(gradients, batch)
        else:
            # The ledger may refuse the first step, on ranks that own coordinates alone.
            self._on_all(lambda: self._add(gradients, batch))
            self._begun = True
        mark_changed(gradients)
