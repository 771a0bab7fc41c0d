"""Correlated noise for differentially private training, added to gradients in place.

    plan = corrnoise.Plan.load("plan.json")
    noise = corrnoise.Mechanism(plan, corrnoise.Key.create_file("noise.key"), 1_000_000)
    noise.add_to(gradient)  # float32, float16 or bfloat16: NumPy, PyTorch, anything with a buffer or DLPack

`corrnoise.torch` and `corrnoise.jax` do it for a module's parameters and for a tree of gradients.
"""

from ._native import NOISE_SPEC_VERSION, Key, Layout, Mechanism, Plan, __version__
from .errors import Error, InvalidArgument, StepError, CheckpointError, PlanError
from . import errors

__all__ = [
    "NOISE_SPEC_VERSION",
    "CheckpointError",
    "Error",
    "InvalidArgument",
    "Key",
    "Layout",
    "Mechanism",
    "Plan",
    "PlanError",
    "StepError",
    "__version__",
    "errors",
]
