"""Patterns of a schema that the local validator does not check, and the schema without them.

The engine refuses few patterns: lookaround and backreferences, syntax errors, and those that would cost too much (see
`patterns.py`). Each becomes a finding with its pointer. The rest of the schema is still checked, so one such pattern
does not disable its tool, and no valid call is refused because of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..ir.pointer import JSON, Object, join
from .patterns import SCHEMA_SIZE, automaton_size, engine_size, refusal

__all__ = ["UncheckedPattern", "pattern_uses", "remove_patterns", "total_size", "unchecked_patterns"]

_DATA = frozenset({"enum", "const", "default", "example", "examples"})
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
# Keywords whose schema must not match: without its pattern it would match more, and valid values would be rejected.
_NEGATED = ("not", "if")
_OTHER_NAMES = ("additionalProperties", "unevaluatedProperties")


class UncheckedPattern(NamedTuple):
    """One use of a refused pattern. `at` points at the keyword, or at the key under `patternProperties`."""

    at: str
    pattern: str
    reason: str

    def __str__(self) -> str:
        short_pattern = self.pattern if len(self.pattern) <= 100 else f"{self.pattern[:97]}…"
        return f"{self.at}: the pattern {short_pattern} is not checked: {self.reason}"


def pattern_uses(schema: JSON) -> Iterator[tuple[str, str]]:
    """Yield every pattern of a schema with its pointer, in document order."""
    pending: list[tuple[str, JSON, bool]] = [("", schema, False)]
    while pending:
        at, node, is_map = pending.pop()
        found: list[tuple[str, JSON, bool]] = []
        if type(node) is list:
            found = [(f"{at}/{index}", item, False) for index, item in enumerate(node)]
        elif type(node) is dict:
            for key, value in node.items():
                if key == "pattern" and type(value) is str and not is_map:
                    yield f"{at}/pattern", value
                elif is_map or key not in _DATA:
                    found.append((at + join(key), value, not is_map and key in _MAPS))
            if at.endswith("/patternProperties") and is_map:
                yield from ((at + join(key), key) for key in node)
        pending.extend(item for item in reversed(found) if type(item[1]) is dict or type(item[1]) is list)


def total_size(schema: JSON) -> int:
    """Estimate the bytes of the automata of all patterns; each distinct pattern counts once."""
    return sum(map(automaton_size, {pattern for _, pattern in pattern_uses(schema)}))


def unchecked_patterns(schema: JSON) -> list[UncheckedPattern]:
    """List the uses of refused patterns: refused individually, or because all together would be too large."""
    reasons: dict[str, str | None] = {}
    total = 0
    found: list[UncheckedPattern] = []
    for at, pattern in pattern_uses(schema):
        if pattern not in reasons:
            size = engine_size(pattern)
            if size <= SCHEMA_SIZE:  # otherwise it is refused individually, at no cost
                total += size
            reasons[pattern] = refusal(pattern) if total <= SCHEMA_SIZE else "all patterns together are too large"
        reason = reasons[pattern]
        if reason is not None:
            found.append(UncheckedPattern(at, pattern, reason))
    return found


def remove_patterns(schema: JSON, refused: frozenset[str]) -> JSON:
    """Return a copy of the schema that accepts every value that the refused patterns may accept."""
    if type(schema) is list:
        return [remove_patterns(item, refused) for item in schema]
    if type(schema) is not dict:
        return schema
    out: Object = {}
    for key, value in schema.items():
        if key in _DATA:
            out[key] = value
        elif key in _MAPS and type(value) is dict:
            names = [name for name in value if key != "patternProperties" or name not in refused]
            out[key] = {name: remove_patterns(value[name], refused) for name in names}
        elif not (key == "pattern" and type(value) is str and value in refused):
            out[key] = remove_patterns(value, refused)
    _allow_other_names(schema, out)
    _drop_negations(schema, out, refused)
    return out


def _allow_other_names(schema: Object, out: Object) -> None:
    """Allow additional names, because a refused pattern may allow them."""
    if type(out.get("patternProperties")) is dict and len(out["patternProperties"]) < len(schema["patternProperties"]):
        for keyword in _OTHER_NAMES:
            out.pop(keyword, None)


def _drop_negations(schema: Object, out: Object, refused: frozenset[str]) -> None:
    """Drop `not` and `if` with a refused pattern, and weaken such a `oneOf` to `anyOf`.

    Without its pattern, a subschema matches more, so a negation of it would reject valid values.
    """

    def uses_refused(keyword: str) -> bool:
        return keyword in schema and any(pattern in refused for _, pattern in pattern_uses(schema[keyword]))

    for keyword in _NEGATED:
        if uses_refused(keyword):
            del out[keyword]
    if type(out.get("oneOf")) is list and uses_refused("oneOf"):
        out["allOf"] = [*(out["allOf"] if type(out.get("allOf")) is list else ()), {"anyOf": out.pop("oneOf")}]
