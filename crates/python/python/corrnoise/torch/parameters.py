"""A model's parameters by name, their gradients, and where noise for them is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ..errors import InvalidArgument

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


def gradients_of(named: Mapping[str, torch.Tensor], attribute: str = "grad") -> list[torch.Tensor]:
    """The gradients in the order of the parameters; an exception names the parameter that has none."""
    gradients = []
    for name, parameter in named.items():
        gradient = getattr(parameter, attribute, None)
        if gradient is None:
            raise InvalidArgument(f"parameter {name!r} has no {attribute}: expected a gradient for each")
        gradients.append(gradient)
    return gradients


def mark_changed(gradients: list[torch.Tensor]) -> None:
    """Tells autograd that memory was written without it, so that whoever saved a gradient for later notices."""
    torch.autograd.graph.increment_version(gradients)  # leaves out what was made in inference mode


class Place:
    """The device on which noise is made: the CPU, or a CUDA device in the order of the stream that is current when this is made.

    The options are keywords of `Mechanism`, which refuses those that the device does not have.
    """

    def __init__(self, device: torch.device, **options: Any) -> None:
        self._device = device
        self._stream = self._current_stream()
        # Keywords of a mechanism.
        self.options: dict[str, Any] = options
        if device.type == "cuda":
            self.options |= {"device": f"cuda:{device.index}", "stream": self._stream}

    def _current_stream(self) -> int:
        """The address of the stream that PyTorch uses on the device; 0 on the CPU."""
        return torch.cuda.current_stream(self._device).cuda_stream if self._device.type == "cuda" else 0

    def check(self) -> None:
        """Refuses a step while another stream is current."""
        if self._current_stream() != self._stream:
            raise InvalidArgument("the current CUDA stream is another: expected the one that this noise was made on")
