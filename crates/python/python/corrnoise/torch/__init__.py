"""Correlated noise for the gradients of a PyTorch model, one call per step for all parameters."""

from .batches import BatchSampler
from .noise import CorrelatedNoise
from .parameters import Parameters, named_parameters

__all__ = ["BatchSampler", "CorrelatedNoise", "Parameters", "named_parameters"]
