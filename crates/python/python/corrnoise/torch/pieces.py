"""The coordinates of a model that a rank holds, for models that are cut into pieces."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard

from ..errors import InvalidArgument
from .parameters import named_parameters

# Name, size of the whole tensor, first coordinate of this rank's piece in it, and the parameter that holds the piece.
Piece = tuple[str, int, int, torch.Tensor]


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The values that this rank holds, without a copy."""
    with torch.no_grad():
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def pieces_of(module: torch.nn.Module) -> tuple[list[Piece], bool, bool]:
    """A module's pieces after `fully_shard` (FSDP2), whether several ranks hold the same ones, and whether this is the first of them.

    Rows of every parameter are cut across one dimension of the mesh; along the others it is replicated (HSDP).
    """
    pieces, replica, first = [], False, True
    for name, parameter in named_parameters(module).items():
        if not isinstance(parameter, DTensor):
            raise InvalidArgument(f"parameter {name!r} is no DTensor: expected a module after fully_shard")
        mesh, cut = parameter.device_mesh, []
        for dimension, placement in enumerate(parameter.placements):
            coordinate = mesh.get_local_rank(dimension)
            # Subclasses of Shard interleave.
            if type(placement) is Shard and placement.dim == 0:
                cut.append((coordinate, mesh.size(dimension)))
            elif isinstance(placement, Replicate):
                first = first and coordinate == 0
                replica = replica or mesh.size(dimension) > 1
            else:
                cut.extend([(0, 0)] * 2)
        if len(cut) != 1:
            placements = parameter.placements
            raise InvalidArgument(f"parameter {name!r} is placed as {placements}: expected one Shard(0), else Replicate()")
        pieces.append((name, parameter.numel(), first_coordinate(name, parameter, *cut[0]), parameter))
    return pieces, replica, first


def first_coordinate(name: str, parameter: DTensor, rank: int, world: int) -> int:
    """The first coordinate that this rank holds: ranks hold equal numbers of rows, the last ones fewer or none."""
    rows = parameter.shape[0]
    each = math.ceil(rows / world)
    start, stop = min(rank * each, rows), min((rank + 1) * each, rows)
    held = local(parameter).shape[0]
    if held != stop - start:
        raise InvalidArgument(f"parameter {name!r} has {held} rows on this rank: expected {stop - start}")
    return start * (parameter.numel() // max(rows, 1))


def held_pieces(pieces: Iterable[Piece]) -> tuple[dict[str, int], list[tuple[str, int, int]], dict[str, torch.Tensor]]:
    """The sizes of all tensors, the ranges held here by name, and the parameters that hold them."""
    sizes: dict[str, int] = {}
    ranges: list[tuple[str, int, int]] = []
    held: dict[str, torch.Tensor] = {}
    for name, size, first, parameter in pieces:
        if name in sizes:
            raise InvalidArgument(f"pieces share the name {name!r}: expected one piece of every tensor")
        sizes[name] = size
        stop = first + local(parameter).numel()
        if first < 0 or stop > size:
            raise InvalidArgument(f"the piece of {name!r} is {first} to {stop}: expected a part of 0 to {size}")
        if stop > first:
            ranges.append((name, first, stop))
            held[name] = parameter
    return sizes, ranges, held
