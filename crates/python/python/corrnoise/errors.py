"""What can go wrong, as classes. Each is an `Error` and, where Python has one, the usual class as well."""


class Error(Exception):
    """Anything that corrnoise refuses or fails at."""


class InvalidArgument(Error, ValueError):
    """A number, a length, a type, a device or a layout in memory. Nothing was changed."""


class PlanError(Error, ValueError):
    """A plan that cannot be used."""


class KeyRefused(Error, ValueError):
    """Key material that cannot be used, or a key that already serves a mechanism."""


class RepeatedNoise(KeyRefused):
    """A start, or a resume, that would make noise which was made before. Nothing was changed."""


class CheckpointError(Error, ValueError):
    """A checkpoint that cannot be used: another plan, key or model, or a damaged file."""


class BatchRefused(Error, ValueError):
    """A batch of another step, plan or run than the noise, or none where the plan draws batches. Nothing was changed."""


class FileError(Error, OSError):
    """A file could not be read or written."""


class StepError(Error, RuntimeError):
    """A step that cannot be made or did not end well."""


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
