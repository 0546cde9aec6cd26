"""The state of one conversion to a decoding schema that the readers of keywords share.

A path is a pointer, or a pair of a path and a segment: pointers are only built where they are needed.
"""

from __future__ import annotations

from typing import Any

from ..ir.pointer import Object, child_pointer
from ..ir.value import Value

__all__ = ["MAX_COUNT", "DecodingState", "Residual", "SchemaPath", "schema_pointer"]

MAX_COUNT = 1_000
"""Items that a declared maximum may allow; the engine unrolls them."""

SchemaPath = Any


class Residual(Value, frozen=True):
    """A keyword that decoding does not enforce, or not exactly. `pointer` is that of its schema."""

    pointer: str
    keyword: str


class DecodingState:
    """Residual keywords, schemas that accept no value, and facts about the keywords read so far."""

    __slots__ = (
        "causes",
        "cautious",
        "has_patterns",
        "has_wide_numbers",
        "items_left",
        "least",
        "multiples",
        "residual",
    )

    def __init__(self, *, cautious: bool) -> None:
        self.cautious = cautious
        self.residual: dict[Residual, None] = {}
        self.causes: dict[str, tuple[str, str]] = {}  # schema that accepts no value → pointer and reason of the cause
        self.items_left = 20 * MAX_COUNT
        self.has_patterns = False
        self.has_wide_numbers = False
        self.least = 0  # the greatest minimum of lengths and counts
        self.multiples: list[tuple[Object, SchemaPath, float]] = []

    def leave(self, path: SchemaPath, keyword: str) -> None:
        """Leave a keyword to the validator."""
        self.residual[Residual(schema_pointer(path), keyword)] = None

    def refuse(self, path: SchemaPath, reason: str, child: SchemaPath = None) -> bool:
        """Record that a schema accepts no value; `child` is the subschema that is the cause."""
        pointer = schema_pointer(path)
        inherited = self.causes.get(schema_pointer(child)) if child is not None else None
        self.causes[pointer] = inherited or (pointer, reason)
        return False


def schema_pointer(path: SchemaPath) -> str:
    """Return the pointer of a path.

    >>> schema_pointer((("/properties", "city"), "enum"))
    '/properties/city/enum'
    """
    segments: list[str | int] = []
    while type(path) is tuple:
        path, segment = path
        segments.append(segment)
    return child_pointer(path, *reversed(segments)) if segments else str(path)
