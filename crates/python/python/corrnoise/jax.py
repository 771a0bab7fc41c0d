"""Correlated noise for a tree of JAX gradients, as an optax-style gradient transformation.

What it costs: JAX arrays are immutable and the noise is made by the CPU engine outside XLA, so a step copies every gradient twice (to
the host callback's own memory and back) on top of the engine's pass; on a GPU, twice across the bus.
"""

from __future__ import annotations

import threading
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax.experimental import io_callback

from ._native import Key, Layout, Mechanism, Plan
from .errors import BatchRefused, InvalidArgument, StepError

__all__ = ["CorrelatedNoiseState", "GradientTransformation", "correlated_noise", "layout_of", "transformation"]

try:
    from optax import GradientTransformation
except ImportError:

    class GradientTransformation(NamedTuple):
        """The pair of functions that optax calls by this name: `init(params)` and `update(updates, state, params)`."""

        init: Any
        update: Any


# JAX counts in 32 bits unless told otherwise; after the last step the count is the number of steps.
MOST_STEPS = 2**31 - 1


class CorrelatedNoiseState(NamedTuple):
    """The step that the next update makes. The noise's own state is the mechanism's: save that too."""

    count: jax.Array


def layout_of(params: Any) -> Layout:
    """The layout of a tree: its leaves in JAX's order, named by their paths."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return Layout({jax.tree_util.keystr(path): int(np.size(leaf)) for path, leaf in leaves})


def transformation(
    mechanism: Mechanism, *, batch: Literal["unchecked"] | None = None, prepare: bool = False
) -> GradientTransformation:
    """Adds the mechanism's next step to every call's updates, under `jax.jit` too.

    The callback is ordered: steps are made in the program's order. A state that is not at the mechanism's next step is refused before
    anything is made: one that was restored, used twice, or kept back as `optax.MultiSteps` does. JAX raises the callback's exception
    as its own, with this one's text. `vmap` and differentiation are refused by JAX.

    A compiled program cannot show which batch its gradients are of. Where the plan draws batches, `batch="unchecked"` says that
    the caller vouches for it.

    With `prepare`, every update begins to make the noise of the next one in the background, for the time in which XLA computes the
    gradients. The bits are the same with and without.
    """
    check_batch(mechanism.plan, batch)
    if mechanism.plan.num_steps > MOST_STEPS:
        raise InvalidArgument(
            f"the plan has {mechanism.plan.num_steps} steps: expected at most {MOST_STEPS}, what an int32 count can hold"
        )
    sizes = [stop - start for start, stop in mechanism.segments]
    # Between the comparison and the step, no other thread's program may make one.
    one_at_a_time = threading.Lock()

    def add_noise(count: Any, *leaves: Any) -> tuple[np.ndarray, ...]:
        arrays = [np.array(leaf, order="C", copy=True) for leaf in leaves]
        with one_at_a_time:
            check_count(int(count), mechanism.next_step)
            mechanism.add_to(arrays, batch)
            # Here and not in the caller's loop, which runs ahead of the program that it dispatched.
            if prepare:
                mechanism.prepare()
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
        noisy = io_callback(add_noise, shapes, state.count, *leaves, ordered=True)
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


def check_count(count: int, next_step: int) -> None:
    """Refuses an optimiser's state that is not at the mechanism's next step."""
    if count != next_step:
        raise StepError(
            f"the optimiser's state is at step {count}, the mechanism's next step is {next_step}: expected the state that the last "
            "update returned, or that of init() after a resume; a state that is used twice, restored from a copy or kept back (as "
            "optax.MultiSteps does) asks for noise that another update got"
        )


def correlated_noise(
    params: Any,
    plan: Plan,
    key: Key,
    *,
    batch: Literal["unchecked"] | None = None,
    prepare: bool = False,
    threads: int = 0,
    prepare_threads: int = 0,
) -> tuple[GradientTransformation, Mechanism]:
    """Begins a run on a tree of parameters. Returns the transformation, and the mechanism that is saved and resumed."""
    # Asked before the key is taken.
    check_batch(plan, batch)
    mechanism = Mechanism(plan, key, layout_of(params), threads=threads, prepare_threads=prepare_threads)
    return transformation(mechanism, batch=batch, prepare=prepare), mechanism
