"""Terminals for values that are written as raw text, and that the parser converts by the types of the schema."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.pointer import JSON, Object
from .grammar_schema import SchemaBranches, exclusion_pattern
from .lark import LarkRules, any_text, quote_regex, union
from .offered_tools import ANY, Types, convert_text, json_type
from .written_json import write_json

__all__ = ["SCALARS", "TEXT_TYPES", "RawText", "raw_terminal"]

TEXT_TYPES: Types = frozenset({"string"})
_NUMBER = r"-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,15})?([eE][+\-]?[0-9]{1,2})?"
SCALARS = {
    "null": '"null"',
    "boolean": '("true" | "false")',
    "integer": r"/-?(0|[1-9][0-9]{0,15})/",
    "number": f"/{_NUMBER}/",
}
_SPACE = r"[\s\x1c-\x1f]*"
_LOOKALIKES = {
    "null": "(?i:null)|NONE|[nN][oO][nN][eE]",
    "boolean": "(?i:true|false)",
    "integer": r"-?[0-9]+",
    "number": r"-?[0-9]+(\.[0-9]+)?([eE][+\-]?[0-9]+)?",
    "array": r"\[(?s:.*)",
    "object": r"\{(?s:.*)",
}
"""Text that the parser may convert to a value of the type."""


class RawText:
    """The text that raw values must not contain, and the edges that belong to their tags."""

    def __init__(self, forbidden: Sequence[str], *, trims_lines: bool = False, drops_return: bool = False) -> None:
        self.forbidden = tuple(forbidden)
        self.trims_lines = trims_lines
        self.banned = "\r" if drops_return else ""
        heads = {text[0] for text in self.forbidden}
        self.is_simple = len(heads) == 1 and all(text.find(text[0], 1) < 0 for text in self.forbidden)

    def terminal(self, rules: LarkRules, least: int, most: int | None) -> tuple[str, bool]:
        """Return a terminal for text, and whether it enforces the length.

        A count in combination with a negation is too expensive for the engine.
        """
        if not self.is_simple:
            return rules.without(any_text(), self.forbidden), False
        pattern = f"/{exclusion_pattern(self.forbidden, self.banned)}/"
        if self.trims_lines:
            return rf"{pattern} & ~/\n(?s:.*)|(?s:.*)\n/", False
        return (f"{any_text(least, most)} & {pattern}" if least or most is not None else pattern), True

    def admits(self, text: str) -> bool:
        """Return whether a constant may be written as a raw value."""
        at_edge = self.trims_lines and (text.startswith("\n") or text.endswith("\n"))
        return not at_edge and not any(one in text for one in (*self.forbidden, *self.banned))


def raw_terminal(
    rules: LarkRules, reader: SchemaBranches, branches: Sequence[Object], pointer: str, raw: RawText, types: Types
) -> str:
    """Return a terminal for all `branches` that are text or scalars, or an empty string if there is none.

    `types` are those by which the parser converts the text; a text that it would convert to another type is excluded.
    """
    options = [_option(rules, reader, branch, pointer, raw, types) for branch in branches]
    written = list(filter(None, options))
    return union(written) if written else ""


def _option(rules: LarkRules, reader: SchemaBranches, branch: Object, pointer: str, raw: RawText, types: Types) -> str:
    if "enum" in branch:
        return _constants(branch["enum"], raw, types)
    kind = branch.get("type")
    if kind is None:
        reader.leave(branch, pointer)
        return f"({raw.terminal(rules, 0, None)[0]})"
    if kind == "string":
        lookalikes = _without_lookalikes(types)
        bounds = (0, None) if lookalikes else (branch.get("minLength", 0), branch.get("maxLength"))
        text, is_exact = raw.terminal(rules, *bounds)
        reader.leave(branch, pointer, *(() if lookalikes or not is_exact else ("minLength", "maxLength")))
        return f"({text}{lookalikes})"
    reader.leave(branch, pointer)
    return SCALARS.get(str(kind), "")


def _constants(values: Sequence[JSON], raw: RawText, types: Types) -> str:
    """Return the constants that the parser reads back unchanged."""
    kept = []
    for value in values:
        text = value if isinstance(value, str) else write_json(value)
        back = convert_text(text, types)
        if raw.admits(text) and json_type(back) == json_type(value) and back == value:
            kept.append(f"/{quote_regex(text)}/" if text else '""')
    return union(kept) if kept else ""


def _without_lookalikes(types: Types) -> str:
    """Exclude text that the parser would convert to another type than a string."""
    kinds = types - TEXT_TYPES if types != ANY else frozenset(_LOOKALIKES)
    if not kinds:
        return ""
    patterns = "|".join(pattern for kind, pattern in _LOOKALIKES.items() if kind in kinds)
    return f" & ~/{_SPACE}({patterns}){_SPACE}/"
