"""Correlated noise for the gradients of a PyTorch model, one call per step for all parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch

from .._native import Key, Layout, Mechanism, Plan
from ..errors import CheckpointError, InvalidArgument
from .batches import BatchSampler

__all__ = ["BatchSampler", "CorrelatedNoise", "Parameters", "named_parameters"]

Parameters = torch.nn.Module | Iterable[torch.Tensor] | Iterable[tuple[str, torch.Tensor]]


def named_parameters(parameters: Parameters) -> dict[str, torch.Tensor]:
    """The parameters that get noise, by name: a module's that require gradients, or those given, with or without names.

    Names, sizes and order are what a checkpoint is bound to. A parameter that several names share counts once.
    """
    if isinstance(parameters, torch.nn.Module):
        pairs = [(name, p) for name, p in parameters.named_parameters() if p.requires_grad]
    else:
        pairs = [p if isinstance(p, tuple) else (str(i), p) for i, p in enumerate(parameters)]
    named = dict(pairs)
    if not named:
        raise InvalidArgument("list of parameters is empty: expected at least one that requires a gradient")
    if len(named) != len(pairs):
        raise InvalidArgument("parameters share a name: expected different names")
    if len({id(p) for p in named.values()}) != len(named):
        raise InvalidArgument("a parameter is listed twice: its gradient would get noise twice")
    return named


class CorrelatedNoise:
    """Adds one step of a plan's noise to the clipped, summed gradients of all parameters.

        noise = CorrelatedNoise(model, plan, Key.create_file("noise.key"))
        ...
        noise.add_noise()  # after clipping and summing, before optimizer.step()

    Every parameter must have a gradient of one type (float32, bfloat16 or float16), contiguous, on one device; otherwise an
    exception says which does not, and no gradient is changed. On a CUDA device the noise is enqueued on the stream that was
    current when this was made, and must be current at every step. `attribute` names where gradients are: "grad", or Opacus's
    "summed_grad". The parameters' order is fixed here; gradients may be new tensors at every step.
    """

    def __init__(
        self,
        parameters: Parameters,
        plan: Plan,
        key: Key,
        *,
        attribute: str = "grad",
        threads: int = 0,
        compact: bool = False,
    ) -> None:
        self._named = named_parameters(parameters)
        self._attribute = attribute
        self._layout = Layout({name: p.numel() for name, p in self._named.items()})
        self._device = next(iter(self._named.values())).device
        self._stream = self._current_stream()
        if self._device.type == "cuda":
            place = {"device": f"cuda:{self._device.index}", "stream": self._stream}
        else:
            place = {"threads": threads, "compact": compact}
        self._mechanism = Mechanism(plan, key, self._layout, **place)

    def _current_stream(self) -> int:
        """The address of the stream that PyTorch uses on the parameters' device; 0 on the CPU."""
        return torch.cuda.current_stream(self._device).cuda_stream if self._device.type == "cuda" else 0

    def gradients(self) -> list[torch.Tensor]:
        """The gradients in the order of the parameters; an exception names the parameter that has none."""
        gradients = []
        for name, parameter in self._named.items():
            gradient = getattr(parameter, self._attribute, None)
            if gradient is None:
                raise InvalidArgument(f"parameter {name!r} has no {self._attribute}: expected a gradient for each")
            gradients.append(gradient)
        return gradients

    def add_noise(self) -> None:
        """Adds the noise of the next step to every gradient, in place."""
        gradients = self.gradients()
        if self._current_stream() != self._stream:
            raise InvalidArgument("the current CUDA stream is another: expected the one that this noise was made on")
        self._mechanism.add_to(gradients)
        # Memory was written behind autograd's back: whoever saved a gradient for later must notice.
        torch.autograd.graph.increment_version([g for g in gradients if not g.is_inference()])

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism, for its step and its plan."""
        return self._mechanism

    @property
    def next_step(self) -> int:
        """The step that the next call makes."""
        return self._mechanism.next_step

    def state_dict(self) -> dict[str, Any]:
        """A checkpoint: the plan's and the layout's fingerprints, and the state. As secret as the key."""
        state = torch.frombuffer(bytearray(self._mechanism.state()), dtype=torch.uint8)
        return {
            "plan": self._mechanism.plan.fingerprint,
            "layout": self._layout.fingerprint,
            "state": state,
        }

    def load_state_dict(self, state_dict: dict[str, Any], *, resume: Literal["new", "exact"] = "new") -> None:
        """Goes on from a checkpoint of the same plan, key and model.

        "new" never makes noise again that the dead run made after the checkpoint. "exact" goes on bit for bit, only for a run of
        which it is certain that it released nothing after the checkpoint.
        """
        for name, own in [("plan", self._mechanism.plan.fingerprint), ("layout", self._layout.fingerprint)]:
            if state_dict.get(name) != own:
                raise CheckpointError(f"state_dict belongs to {name} {state_dict.get(name)}: expected {own}")
        self._mechanism.load_state([state_dict["state"].cpu().numpy().tobytes()], resume=resume)
