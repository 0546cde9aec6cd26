"""The values of an argument in the form in which the tool receives them: converted, with defaults filled in.

A check that looks at the JSON judges something else than the tool gets: `"5000"` is text in JSON and a number for a tool that
declares `Decimal`, and an argument that is left out may have a default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from ..ir.pointer import split
from .gates import Pending
from .signature import signature

__all__ = ["ABSENT", "Uncheckable", "default_of", "received", "segments_of", "shown"]

ABSENT: Final = object()
"""Stands for an argument that was left out and has no default."""

_SHOWN = 80  # characters of a value in a message
_SCALARS = (str, bytes, bytearray, int, float)


class Uncheckable(Exception):
    """The argument has no place of this name: the value cannot be judged."""


def segments_of(argument: str) -> list[str]:
    """`amount` is the name of an argument, `/order/amount` a JSON pointer into the arguments."""
    return split(argument) if argument.startswith("/") else [argument]


def received(pending: Pending, argument: str) -> Iterator[Any]:
    """Every value that the tool receives at `argument`; for a list, each of its items. Uncheckable if there is no telling.

    Yields nothing for an argument that is left out and has no default.
    """
    first, *rest = segments_of(argument)
    values = pending.values
    if values is None:  # where nothing will be run, JSON is as good: the result of an earlier call may be at hand
        is_unfit = pending.unfit is not None
        values = pending.arguments if is_unfit else signature(pending.tool.function).convert(pending.arguments)
    value = values[first] if first in values else default_of(pending, first)
    yield from _items(value, rest)


def default_of(pending: Pending, name: str) -> Any:
    """The value that the tool uses where the argument is left out: the function's, else the schema's; or ABSENT."""
    defaults = signature(pending.tool.function).defaults
    if name in defaults:
        return defaults[name]
    properties = (pending.tool.tool.input_schema or {}).get("properties")
    declared: Any = properties.get(name) if isinstance(properties, dict) else None
    return declared.get("default", ABSENT) if isinstance(declared, dict) else ABSENT


def shown(value: Any) -> str:
    """A value in a message: short, and never an exception."""
    try:
        text = repr(value[:_SHOWN]) if isinstance(value, str) else str(value)
    except Exception:  # noqa: BLE001  # a __str__ of the author's own, or an int with too many digits
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _items(value: Any, path: Sequence[str]) -> Iterator[Any]:
    if value is ABSENT:
        return
    if _is_list(value):
        for item in value:
            yield from _items(item, path)
    elif not path:
        yield value
    elif value is not None:  # an object that was left out holds no values
        yield from _items(_member(value, path[0]), path[1:])


def _is_list(value: Any) -> bool:
    if isinstance(value, (str, bytes, bytearray)) or hasattr(value, "_fields"):  # a NamedTuple is a record
        return False
    return isinstance(value, (Sequence, AbstractSet))


def _member(value: Any, name: str) -> Any:
    """A member of a dict, or of a model or dataclass that pydantic built."""
    if isinstance(value, Mapping):
        return value.get(name, ABSENT)
    for attribute, field in getattr(type(value), "model_fields", {}).items():
        if name in (field.alias, field.validation_alias):
            return getattr(value, attribute)
    if isinstance(value, _SCALARS) or not hasattr(value, name):
        raise Uncheckable(f"{shown(value)} has no member {name!r}")
    return getattr(value, name)
