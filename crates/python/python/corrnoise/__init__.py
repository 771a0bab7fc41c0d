"""Correlated noise for differentially private training, added to gradients in place.

    plan = corrnoise.plan(epochs=10, dataset_size=50_000, batch_size=500, epsilon=2, delta=1e-6)
    noise = corrnoise.Mechanism(plan, corrnoise.Key.create_file("noise.key"), 1_000_000)
    sampler = noise.sampler()
    batch = sampler.batch(noise.next_step)  # the examples of this step; clip and sum their gradients
    noise.add_to(gradient, batch)  # float32, float16, bfloat16: NumPy, PyTorch, anything with a buffer or DLPack

`corrnoise.torch` and `corrnoise.jax` do it for a module's parameters and for a tree of gradients.
"""

from ._native import (
    NOISE_SPEC_VERSION,
    Admission,
    Batch,
    Candidate,
    Guard,
    Key,
    Layout,
    Mechanism,
    Plan,
    Recommendation,
    Sampler,
    __version__,
    recommend,
)
from .errors import Error, InvalidArgument, StepError, CheckpointError, PlanError
from .planning import plan
from . import errors

__all__ = [
    "NOISE_SPEC_VERSION",
    "Admission",
    "Batch",
    "Candidate",
    "CheckpointError",
    "Error",
    "Guard",
    "InvalidArgument",
    "Key",
    "Layout",
    "Mechanism",
    "Plan",
    "PlanError",
    "Recommendation",
    "Sampler",
    "StepError",
    "__version__",
    "errors",
    "plan",
    "recommend",
]
