"""Check the dependencies of an agent: the value of a run, and the types that tools declare with `CallContext[…]`.

Separate because it needs no I/O: `Agent` is in `net`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import NoneType
from typing import Any, get_args

from ..ir.errors import ConfigError
from ..schema.inference.signatures import is_context
from .toolbox import Entry

__all__ = ["check_context_types", "check_deps"]


def check_deps(expected: object, deps: object) -> None:
    """Raise ConfigError for dependencies of another type than `expected`."""
    if isinstance(expected, type) and not isinstance(deps, expected):
        given = "none" if deps is None else f"a value of type {type(deps).__name__}"
        name = expected.__name__
        hint = "do not pass deps, or set deps_type" if expected is NoneType else f"pass deps={name}(…)"
        raise ConfigError(f"the agent takes dependencies of type {name}, got {given}", hint=hint)


def check_context_types(deps_type: object, entries: Iterable[Entry]) -> None:
    """Raise ConfigError for a tool whose `CallContext[…]` declares dependencies that the agent does not have.

    Type checkers cannot find this: a tool does not know its agent. Only classes are compared.
    """
    if not isinstance(deps_type, type):
        return
    for entry in entries:
        for declared in _declared_types(entry.function):
            if not _accepts(declared, deps_type):
                given = "no dependencies" if deps_type is NoneType else f"dependencies of type {deps_type.__name__}"
                raise ConfigError(
                    f"the tool {entry.name} takes a CallContext[{declared.__name__}], but the agent has {given}",
                    hint=f"set deps_type={declared.__name__}, or change the annotation of the tool",
                )


def _declared_types(function: Callable[..., Any]) -> Iterator[type]:
    """Yield the classes in the annotations `CallContext[…]` of a function."""
    annotations: dict[str, Any] = getattr(function, "__annotations__", {})
    if any(isinstance(annotation, str) and "[" in annotation for annotation in annotations.values()):
        with suppress(Exception):  # a name that is defined later, or only for type checkers
            annotations = inspect.get_annotations(function, eval_str=True)
    for annotation in annotations.values():
        if is_context(annotation):
            yield from (argument for argument in get_args(annotation) if isinstance(argument, type))


def _accepts(declared: Any, deps_type: type) -> bool:
    if declared is Any or declared is NoneType:  # such a tool does not use them
        return True
    try:
        return issubclass(deps_type, declared)
    except TypeError:  # a protocol that cannot be checked
        return True
