"""Arguments that arrive as JSONPath assignments (Vertex, `streamFunctionCallArguments`).

    {"jsonPath": "$.trip.stops[1].city", "stringValue": "Par", "willContinue": true}

A string continues while `willContinue` is true; numbers, booleans and nulls are complete. Containers are created as
needed.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, NamedTuple

from ...ir.errors import ProtocolError
from ...ir.pointer import JSON, Object
from ..fields import read_boolean, read_string, require_object, type_error
from .field_names import to_camel_case

__all__ = ["PartialArguments"]

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,6})\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]")


class PartialArguments:
    """Accumulator for the `partialArgs` of one call; `value` is the object so far."""

    def __init__(self) -> None:
        self._root: Object = {}
        self._texts: dict[tuple[int, str | int], _StringBuffer] = {}  # by id of the holder, and step

    @property
    def value(self) -> Object:
        """The arguments so far, with all string fragments joined."""
        for text in self._texts.values():
            _set(text.holder, text.step, "".join(text.pieces))
        return self._root

    def feed(self, raw: JSON) -> None:
        """Apply one assignment: create the containers on its path, then set the value or append to the string there."""
        fields = to_camel_case(require_object(raw))
        steps = _parse_path(read_string(fields, "jsonPath"))
        holder: Any = self._root
        for step, next_step in pairwise(steps):
            holder = _enter(holder, step, [] if isinstance(next_step, int) else {})
        last = steps[-1]
        if "stringValue" in fields:
            self._append_text(holder, last, read_string(fields, "stringValue"))
            return
        self._texts.pop((id(holder), last), None)
        if "numberValue" in fields:
            number = fields["numberValue"]
            if type(number) not in (int, float):
                raise type_error("a number", number, "numberValue")
            _set(holder, last, int(number) if isinstance(number, float) and number.is_integer() else number)
        elif "boolValue" in fields:
            _set(holder, last, read_boolean(fields, "boolValue"))
        elif "nullValue" in fields:
            _set(holder, last, None)

    def _append_text(self, holder: Any, step: str | int, fragment: str) -> None:
        """Append a fragment of a string. The fragments are joined only when `value` is read."""
        text = self._texts.get((id(holder), step))
        if text is None:
            _set(holder, step, "")
            text = self._texts[id(holder), step] = _StringBuffer(holder, step, [])
        text.pieces.append(fragment)


class _StringBuffer(NamedTuple):
    """A string that arrives in pieces: `holder[step]` is where it belongs."""

    holder: Any
    step: str | int
    pieces: list[str]


def _parse_path(path: str) -> list[str | int]:
    """Split a JSONPath such as `$.trip.stops[1]` into keys and indexes; raise for any other syntax."""
    steps: list[str | int] = []
    position = 1
    while path[:1] == "$" and position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            break
        name, index, single, double = found.groups()
        steps.append(int(index) if index is not None else name or single or double or "")
        position = found.end()
    if not steps or position < len(path):
        raise ProtocolError(f"unsupported JSONPath for arguments: {path!r}", pointer="/jsonPath", status=502)
    return steps


def _get(holder: Any, step: str | int) -> Any:
    if isinstance(step, int):
        return holder[step] if isinstance(holder, list) and step < len(holder) else None
    return holder.get(step) if isinstance(holder, dict) else None


def _set(holder: Any, step: str | int, value: Any) -> None:
    """Set a value; a list grows as needed, but an index more than 1000 beyond its end is an error."""
    if isinstance(step, int) and isinstance(holder, list):
        if step > len(holder) + 1000:
            raise ProtocolError(
                f"array index {step} is too far beyond the end of the array", pointer="/jsonPath", status=502
            )
        holder.extend([None] * (step + 1 - len(holder)))
        holder[step] = value
    elif isinstance(step, str) and isinstance(holder, dict):
        holder[step] = value
    else:
        raise ProtocolError("the JSONPath contradicts an earlier one", pointer="/jsonPath", status=502)


def _enter(holder: Any, step: str | int, empty: Any) -> Any:
    inner = _get(holder, step)
    if not isinstance(inner, (dict, list)):
        _set(holder, step, empty)
        inner = empty
    return inner
