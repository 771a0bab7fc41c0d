"""The keywords of a mechanism, for type checkers and for the classes that pass them on."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, TypeVar, cast

from ._native import Mechanism

__all__ = ["EngineOptions", "MechanismOptions", "RankOptions", "takes"]

Init = TypeVar("Init", bound=Callable[..., None])


class RankOptions(TypedDict, total=False):
    """Options of the engines, none of which changes the noise. `help(corrnoise.Mechanism)` says what they mean."""

    threads: int
    prepare_threads: int
    rows_ahead: int | None
    prepare_stream: bool
    max_state_bytes: int | None


class EngineOptions(RankOptions, total=False):
    """All options of the engines: those of a run on many processes, and one more."""

    compact: bool


class MechanismOptions(EngineOptions, total=False):
    """The keywords that a new mechanism and a resumed one share."""

    ranges: Sequence[tuple[int, int]] | None
    replica: bool
    device: str
    stream: int


def takes(options: Any) -> Callable[[Init], Init]:
    """Lets a constructor take the keywords of `options` as `**options`.

    `help()` and `inspect.signature()` show each of them, with the default that it has in `Mechanism`; any other is refused by its name.
    """
    native = inspect.signature(Mechanism).parameters.values()
    keywords = [parameter for parameter in native if parameter.name in options.__optional_keys__]

    def decorate(init: Init) -> Init:
        own = inspect.signature(init)
        *first, _ = own.parameters.values()
        signature = own.replace(parameters=[*first, *keywords])

        @functools.wraps(init)
        def checked(*args: Any, **kwargs: Any) -> None:
            signature.bind(*args, **kwargs)
            init(*args, **kwargs)

        checked.__signature__ = signature  # type: ignore[attr-defined]
        return cast(Init, checked)

    return decorate
