"""Correlated noise for a tree of JAX gradients, as an optax-style gradient transformation.

What it costs: JAX arrays are immutable and the noise is made by the CPU engine outside XLA, so a step copies every gradient twice (to
the host callback's own memory and back) on top of the engine's pass; on a GPU, twice across the bus.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax.experimental import io_callback

from ._native import Key, Layout, Mechanism, Plan
from .errors import BatchRefused, InvalidArgument

__all__ = ["CorrelatedNoiseState", "GradientTransformation", "correlated_noise", "layout_of", "transformation"]

try:
    from optax import GradientTransformation
except ImportError:

    class GradientTransformation(NamedTuple):
        """What optax calls by this name: `init(params)` and `update(updates, state, params)`."""

        init: Any
        update: Any


class CorrelatedNoiseState(NamedTuple):
    """The step, for people and for optax. The noise's own state is the mechanism's: save that."""

    count: jax.Array


def layout_of(params: Any) -> Layout:
    """The layout of a tree: its leaves in JAX's order, named by their paths."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return Layout({jax.tree_util.keystr(path): int(np.size(leaf)) for path, leaf in leaves})


def transformation(mechanism: Mechanism, *, batch: Literal["unchecked"] | None = None) -> GradientTransformation:
    """Adds the mechanism's next step to every call's updates, under `jax.jit` too.

    The callback is ordered: steps are made in the program's order, each once. It cannot be batched by `vmap`.

    A compiled program cannot show which batch its gradients are of. Where the plan draws batches, `batch="unchecked"` says that
    the caller vouches for it.
    """
    check_batch(mechanism.plan, batch)
    sizes = [stop - start for start, stop in mechanism.segments]

    def add_noise(*leaves: Any) -> tuple[np.ndarray, ...]:
        arrays = [np.array(leaf, order="C", copy=True) for leaf in leaves]
        mechanism.add_to(arrays, batch)
        return tuple(arrays)

    def init(params: Any) -> CorrelatedNoiseState:
        check([np.size(leaf) for leaf in jax.tree_util.tree_leaves(params)])
        return CorrelatedNoiseState(count=jax.numpy.asarray(mechanism.next_step, dtype=jax.numpy.int32))

    def check(got: list[int]) -> None:
        if got != sizes:
            raise InvalidArgument(f"the tree has leaves of sizes {got}: expected {sizes}, the mechanism's")

    def update(updates: Any, state: CorrelatedNoiseState, params: Any = None) -> tuple[Any, CorrelatedNoiseState]:
        del params
        leaves, tree = jax.tree_util.tree_flatten(updates)
        check([leaf.size for leaf in leaves])
        shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
        noisy = io_callback(add_noise, shapes, *leaves, ordered=True)
        return tree.unflatten(noisy), CorrelatedNoiseState(count=state.count + 1)

    return GradientTransformation(init, update)


def check_batch(plan: Plan, batch: object) -> None:
    """Refuses a transformation that would make steps of which nobody vouches for the batch."""
    if not (batch is None or isinstance(batch, str) and batch == "unchecked"):
        raise InvalidArgument(f'batch is {batch!r}: expected "unchecked", a compiled program cannot show a batch')
    if batch is None and plan.draws_batches:
        raise BatchRefused(
            "the plan's claim holds for the batches it draws, and a compiled program cannot show them: "
            'expected batch="unchecked", which says that the gradients of step t are of sampler.batch(t)'
        )


def correlated_noise(
    params: Any, plan: Plan, key: Key, *, batch: Literal["unchecked"] | None = None, threads: int = 0
) -> tuple[GradientTransformation, Mechanism]:
    """A new run on a tree of parameters: the transformation, and the mechanism that is saved and resumed."""
    # Asked before the key is taken.
    check_batch(plan, batch)
    mechanism = Mechanism(plan, key, layout_of(params), threads=threads)
    return transformation(mechanism, batch=batch), mechanism
