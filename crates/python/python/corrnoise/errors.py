"""The exception classes. Each is an `Error` and, where Python has one, the usual class as well."""


class Error(Exception):
    """Anything that corrnoise refuses or fails at."""


class InvalidArgument(Error, ValueError):
    """A number, a length, a type, a device or a layout in memory was refused. Nothing was changed."""


class PlanError(Error, ValueError):
    """The plan cannot be used."""


class KeyRefused(Error, ValueError):
    """The key material cannot be used, or the key already serves a mechanism."""


class RepeatedNoise(KeyRefused):
    """A start or a resume would make noise which was made before. Nothing was changed."""


class CheckpointError(Error, ValueError):
    """The checkpoint cannot be used: it belongs to another plan, key or model, or its file is damaged."""


class BatchRefused(Error, ValueError):
    """The batch belongs to another step, plan or run than the noise, or there is none and the plan draws batches. Nothing was changed."""


class FileError(Error, OSError):
    """A file could not be read or written."""


class StepError(Error, RuntimeError):
    """A step cannot be made, or it failed."""


class PastEnd(StepError):
    """The plan has no further step. Nothing was changed."""


class Poisoned(StepError):
    """An earlier step failed half-way: resume from a checkpoint."""


class Forked(StepError):
    """The mechanism belongs to the process that this one was forked from: make one here."""


class GradientOverflow(StepError, ArithmeticError):
    """A float16 gradient is infinite now. The step counts as made."""


class BusyError(Error, RuntimeError):
    """Another thread is using this object. Nothing was changed."""


class OutOfMemory(Error, MemoryError):
    """The state does not fit into memory."""


class DeviceError(Error, RuntimeError):
    """A device or a worker thread failed. During a step this poisons the mechanism."""
