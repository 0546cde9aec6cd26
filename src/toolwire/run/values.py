"""Get the values of an argument as the tool receives them: converted, with defaults filled in.

A check on the JSON would see other values than the tool: `"5000"` is text in JSON and a number for a tool that declares
`Decimal`, and an omitted argument may have a default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from ..ir.pointer import split
from .pending import Pending
from .signature import function_signature

__all__ = ["ABSENT", "Uncheckable", "argument_default", "format_value", "received", "split_argument"]

ABSENT: Final = object()
"""Marks an omitted argument without a default."""

_MAX_SHOWN = 80  # characters of a value in a message
_SCALARS = (str, bytes, bytearray, int, float)


class Uncheckable(Exception):
    """The argument has no member of this name, so its value cannot be checked."""


def split_argument(argument: str) -> list[str]:
    """Split the name of an argument (`amount`) or a JSON pointer into the arguments (`/order/amount`) into segments."""
    return split(argument) if argument.startswith("/") else [argument]


def received(pending: Pending, argument: str) -> Iterator[Any]:
    """Yield every value that the tool receives at `argument`; for a list, each of its items.

    Yields nothing for an omitted argument without a default. Raises Uncheckable if the values cannot be determined.
    """
    first, *rest = split_argument(argument)
    values = pending.values
    # If the function will not be called, JSON is sufficient: a stored result of an earlier call may be returned.
    if values is None:
        is_unfit = pending.conversion_error is not None
        values = pending.arguments if is_unfit else function_signature(pending.tool.function).convert(pending.arguments)
    value = values[first] if first in values else argument_default(pending, first)
    yield from _iterate_values(value, rest)


def argument_default(pending: Pending, name: str) -> Any:
    """Return the default of an omitted argument: the function's, else the schema's, else ABSENT."""
    defaults = function_signature(pending.tool.function).defaults
    if name in defaults:
        return defaults[name]
    properties = (pending.tool.tool.input_schema or {}).get("properties")
    declared: Any = properties.get(name) if isinstance(properties, dict) else None
    return declared.get("default", ABSENT) if isinstance(declared, dict) else ABSENT


def format_value(value: Any) -> str:
    """Format a value for a message: short, and without raising."""
    try:
        text = repr(value[:_MAX_SHOWN]) if isinstance(value, str) else str(value)
    except Exception:  # noqa: BLE001  # a user-defined __str__, or an int with too many digits
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _iterate_values(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """Yield the values at `path` below `value`; every item of a list is followed."""
    if value is ABSENT:
        return
    if _is_list(value):
        for item in value:
            yield from _iterate_values(item, path)
    elif not path:
        yield value
    elif value is not None:  # an omitted object has no values
        yield from _iterate_values(_member(value, path[0]), path[1:])


def _is_list(value: Any) -> bool:
    if isinstance(value, (str, bytes, bytearray)) or hasattr(value, "_fields"):  # a NamedTuple is a record
        return False
    return isinstance(value, (Sequence, AbstractSet))


def _member(value: Any, name: str) -> Any:
    """Return a member of a dict, or of a model or dataclass that pydantic built."""
    if isinstance(value, Mapping):
        return value.get(name, ABSENT)
    for attribute, field in getattr(type(value), "model_fields", {}).items():
        if name in (field.alias, field.validation_alias):
            return getattr(value, attribute)
    if isinstance(value, _SCALARS) or not hasattr(value, name):
        raise Uncheckable(f"{format_value(value)} has no member {name!r}")
    return getattr(value, name)
