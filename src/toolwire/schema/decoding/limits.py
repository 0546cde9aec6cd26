"""The limits and the state of one conversion to a decoding schema.

Lengths and counts that a schema does not declare get a limit, because a model that repeats itself would otherwise run
until its token limit. The state counts nodes and collects the residual keywords.
"""

from __future__ import annotations

from typing import Any

from ...ir.pointer import Object, child_pointer
from ...ir.value import Value

# Limits on lengths and counts that a schema does not declare.
#
# Without them, a model that repeats itself runs until its token limit.


_STRING_LIMITS = frozenset({"maxLength", "pattern", "format"})


class DecodingLimits(Value, frozen=True):
    """Limits for values whose schema declares none; None for no limit. A declared minimum is never undercut.

    `max_integer` has no default, because the engine needs more time to compile a large range than for all of a usual
    schema. If more than `max_limited` arrays and maps would get a limit, none of them does: each limit takes time to
    compile. `close_objects` forbids undeclared properties in objects that declare some and do not mention others.
    """

    max_length: int | None = 4_000  # a longer text is most likely a loop of the model
    max_items: int | None = 64  # as max_length; the engine unrolls them
    max_properties: int | None = 64  # as max_items
    max_integer: int | None = None
    max_limited: int | None = None
    close_objects: bool = False


DEFAULT_LIMITS = DecodingLimits()


class AddedLimits:
    """The limits that were added to the schemas of one document."""

    __slots__ = ("_added", "_limits")

    def __init__(self, limits: DecodingLimits) -> None:
        self._limits = limits
        self._added: list[tuple[Object, str]] = []

    def add(self, out: Object, schema: Object) -> None:
        """Add missing limits for the declared types of `schema` to its conversion `out`; without a type, close it."""
        kinds = schema.get("type")
        if kinds is None:
            self._close(out)
            return
        limits = self._limits
        for kind in (kinds,) if type(kinds) is str else kinds:
            if kind == "string":
                if limits.max_length is not None and out.keys().isdisjoint(_STRING_LIMITS):
                    self._set(out, "maxLength", max(limits.max_length, out.get("minLength", 0)))
            elif kind == "array":
                if limits.max_items is not None and "maxItems" not in out and out.get("items", True) is not False:
                    least = max(out.get("minItems", 0), len(out.get("prefixItems", ())))
                    self._set(out, "maxItems", max(limits.max_items, least))
            elif kind == "object":
                self._limit_object(out)
            elif kind == "integer" and limits.max_integer is not None:
                self._limit_integer(out, limits.max_integer)

    def _set(self, out: Object, keyword: str, value: int) -> None:
        out[keyword] = value
        self._added.append((out, keyword))

    def _close(self, out: Object) -> None:
        if self._limits.close_objects and out.get("properties") and "patternProperties" not in out:
            out.setdefault("additionalProperties", False)

    def _limit_object(self, out: Object) -> None:
        """Limit the undeclared properties. The engine does not count properties if a declared one is optional."""
        self._close(out)
        most = self._limits.max_properties
        if most is None or "maxProperties" in out or out.get("additionalProperties", True) is False:
            return
        required = out.get("required", ())
        if all(name in required for name in out.get("properties", ())):
            self._set(out, "maxProperties", max(most + len(required), out.get("minProperties", 0)))

    def _limit_integer(self, out: Object, most: int) -> None:
        low, high = out.get("minimum", out.get("exclusiveMinimum")), out.get("maximum", out.get("exclusiveMaximum"))
        if low is None and (high is None or high >= -most):
            self._set(out, "minimum", -most)
        if high is None and (low is None or low <= most):
            self._set(out, "maximum", most)

    def drop_many(self) -> None:
        """Drop the limits of all arrays and maps if there are more than `max_limited`."""
        most = self._limits.max_limited
        if most is None:
            return
        counts = [(out, keyword) for out, keyword in self._added if keyword in ("maxItems", "maxProperties")]
        if len(counts) > most:
            for out, keyword in counts:
                del out[keyword]
            self._added = [(out, keyword) for out, keyword in self._added if keyword in out]

    def weaken(self, least: int, *, has_patterns: bool, has_wide_numbers: bool, cautious: bool) -> None:
        """Raise or drop limits where schemas are intersected, because the minimum may be declared in the other schema.

        `least` is the greatest minimum of lengths and counts in the document. A limit is dropped where the conflicting
        keyword is a pattern, a bound beyond exact integers or a count of properties, and always if `cautious`.
        """
        for out, keyword in self._added:
            if keyword in ("maxLength", "maxItems"):
                out[keyword] = max(out[keyword], least)
            if (
                keyword == "maxProperties"
                or (keyword == "maxLength" and has_patterns)
                or (keyword in ("minimum", "maximum") and has_wide_numbers)
                or cautious
            ):
                del out[keyword]


# The state of one conversion to a decoding schema that the readers of keywords share.
#
# A path is a pointer, or a pair of a path and a segment: pointers are only built where they are needed.


MAX_COUNT = 1_000
"""Items that a declared maximum may allow; the engine unrolls them."""

SchemaPath = Any


class Residual(Value, frozen=True):
    """A keyword that decoding does not enforce, or not exactly. `pointer` points to its schema."""

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
