"""Correlated noise for the gradients of a PyTorch model, one call per step for all parameters."""

from .batches import BatchSampler
from .noise import CorrelatedNoise
from .parameters import Parameters, named_parameters
from .private import make_private

__all__ = ["BatchSampler", "CorrelatedNoise", "Parameters", "make_private", "named_parameters"]
