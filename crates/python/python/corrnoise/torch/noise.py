"""Correlated noise for the gradients of a model in one process, one call per step for all parameters."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import torch

from .._native import Batch, Key, Layout, Mechanism, Plan
from ..errors import CheckpointError
from ..options import EngineOptions, takes
from .parameters import Parameters, Place, gradients_of, mark_changed, named_parameters


def check_fingerprints(state_dict: dict[str, Any], mechanism: Mechanism, layout: Layout) -> None:
    """Refuses the state dict of another plan or another list of parameters."""
    for name, own in [("plan", mechanism.plan.fingerprint), ("layout", layout.fingerprint)]:
        if state_dict.get(name) != own:
            raise CheckpointError(f"state_dict belongs to {name} {state_dict.get(name)}: expected {own}")


class CorrelatedNoise:
    """Adds one step of a plan's noise to the clipped, summed gradients of all parameters.

        noise = CorrelatedNoise(model, plan, Key.create_file("noise.key"))
        ...
        noise.add_noise(batch)  # after clipping and summing, before optimizer.step()

    Every parameter must have a gradient of one type (such as float32 or bfloat16), contiguous, on one device; otherwise an
    exception says which does not, and no gradient is changed. On a CUDA device the noise is enqueued on the stream that was
    current when this was made, and must be current at every step. `attribute` names where gradients are: "grad", or Opacus's
    "summed_grad". The parameters' order is fixed here; gradients may be new tensors at every step. `replica` says that other processes
    add the same noise to the same gradients, each all of it.

    `threads`, `compact` and `prepare_threads` are options of the CPU. On CUDA, `rows_ahead` is the number of rows made at a time (None:
    the engine's rule; 1: none ahead, which `compact` means too), `prepare_stream` lets `prepare` work, and `max_state_bytes` limits what
    state and rows ahead take per parameter. The bits are the same with all of them.
    """

    @takes(EngineOptions)
    def __init__(
        self,
        parameters: Parameters,
        plan: Plan,
        key: Key,
        *,
        attribute: str = "grad",
        replica: bool = False,
        **options: Unpack[EngineOptions],
    ) -> None:
        self._named = named_parameters(parameters)
        self._attribute = attribute
        self._layout = Layout({name: p.numel() for name, p in self._named.items()})
        self._place = Place(next(iter(self._named.values())).device, **options)
        # A program that goes on makes this first and then loads a state: until then, no step that was made before.
        self._mechanism = Mechanism(plan, key, self._layout, replica=replica, awaits_state=True, **self._place.options)

    def gradients(self) -> list[torch.Tensor]:
        """The gradients in the order of the parameters; an exception names the parameter that has none."""
        return gradients_of(self._named, self._attribute)

    def add_noise(self, batch: Batch | Literal["unchecked"] | None = None) -> None:
        """Adds the noise of the next step to every gradient, in place.

        A batch of another step, plan or run is refused, and so is none where the plan draws batches. "unchecked" says that the caller
        vouches for it.
        """
        gradients = self.gradients()
        self._place.check()
        self._mechanism.add_to(gradients, batch)
        mark_changed(gradients)

    def prepare(self) -> None:
        """Begins to make the noise of the next step in the background and returns at once; the bits are the same with and without.

        To be called after `optimizer.step()`, before the next forward pass. On CUDA it does nothing without `prepare_stream`.
        """
        self._mechanism.prepare()

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism, for its step and its plan."""
        return self._mechanism

    @property
    def next_step(self) -> int:
        """The step that the next call makes."""
        return self._mechanism.next_step

    def state_dict(self, *, sealed: bool = False) -> dict[str, Any]:
        """A checkpoint: the plan's and the layout's fingerprints, and the state. It is as secret as the key.

        With `sealed` the state is encrypted and authenticated under the run's key, for files that others may read.
        """
        state = torch.frombuffer(bytearray(self._mechanism.state(sealed=sealed)), dtype=torch.uint8)
        return {
            "plan": self._mechanism.plan.fingerprint,
            "layout": self._layout.fingerprint,
            "state": state,
        }

    def load_state_dict(
        self, state_dict: dict[str, Any], *, resume: Literal["new", "exact"] = "new", nonce: bytes | None = None
    ) -> None:
        """Resumes from a checkpoint of the same plan, key and model, sealed or not.

        "new" never makes noise again that the dead run made after the checkpoint. "exact" goes on bit for bit, only for a run of
        which it is certain that it released nothing after the checkpoint. Copies of one model in several processes, which add the same
        noise, need the same `nonce` beside "new": 16 random bytes that one of them drew.
        """
        check_fingerprints(state_dict, self._mechanism, self._layout)
        self._mechanism.load_state([state_dict["state"].cpu().numpy().tobytes()], resume=resume, nonce=nonce)
