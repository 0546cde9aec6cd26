"""The written form of calls as data: literals with slots, from which a grammar is derived.

A style returns one `CallTemplate`. It describes exactly the text that `Style.write` produces, so a grammar of the
template accepts rendered calls, and the parser reads each text of the grammar in one way.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Literal, TypeAlias

from ...ir.value import Value
from .literal import LiteralSyntax

__all__ = [
    "ARGUMENTS",
    "ATTRIBUTE_NAME",
    "JSON_NAME",
    "NAME",
    "ArgumentNotation",
    "CallTemplate",
    "JsonArguments",
    "LiteralArguments",
    "NestedArguments",
    "Slot",
    "TagArguments",
    "closing_texts",
]


class Slot(Value, frozen=True):
    """A variable part of a call. A `pattern` is a regular expression for an id or a number."""

    kind: Literal["name", "json_name", "attribute_name", "arguments", "pattern"]
    pattern: str = ""
    optional: bool = False


NAME = Slot("name")
JSON_NAME = Slot("json_name")
"""The name as a JSON string, with its quotes."""
ATTRIBUTE_NAME = Slot("attribute_name")
"""The name with the escapes of an XML attribute."""
ARGUMENTS = Slot("arguments")


class JsonArguments(Value, frozen=True):
    """One JSON object."""


class TagArguments(Value, frozen=True):
    """Each argument is `opening` value `closing`, with the value as raw text or as JSON.

    `{key}`, `{name}` and `{type}` in the texts are replaced; `types` selects the spelling of `{type}` as in
    `TaggedCalls.type_attribute`. A value never contains a `forbidden` text. If `trims_lines`, a line break at either
    end of a value belongs to the tags, so no value begins or ends with one.
    """

    opening: str
    closing: str
    forbidden: tuple[str, ...]
    types: Literal["", "string", "type"] = ""
    is_attribute: bool = False  # the key is the value of an attribute, with escapes
    trims_lines: bool = False
    drops_return: bool = False  # a carriage return before the line break of the closer belongs to it


class LiteralArguments(Value, frozen=True):
    """Literals of a language: `key=value` in parentheses, or a dictionary with braces if `braces`."""

    language: LiteralSyntax
    braces: bool = False


class NestedArguments(Value, frozen=True):
    """Nested tags named after their keys, each after `mark`; the items of a list are in `item`."""

    mark: str
    item: str = "item"


ArgumentNotation: TypeAlias = JsonArguments | TagArguments | LiteralArguments | NestedArguments


class CallTemplate(Value, frozen=True):
    """The text of a turn's calls: `before`, calls with `between` between two of them, `after`.

    In a turn that may also contain text, calls begin at `trigger`; the text before it in the template is free there.
    Without a trigger, they begin at the name of an offered tool after the literal before it. `only_at_start`: a call is
    recognised only at the start of the message. `closed`: text may follow the calls.

    `forbidden` are texts that open a call in another spelling, or that are only valid inside a call; `forbidden_start`
    the same at the start of the message. `reasoning` are pairs of texts around reasoning that the style itself reads.
    `not_before` is a pattern that free text must not end with where a trigger follows.
    """

    call: tuple[str | Slot, ...]
    arguments: ArgumentNotation
    before: str = ""
    between: str = ""
    after: str = ""
    trigger: str = ""
    only_at_start: bool = False
    closed: bool = True
    forbidden: tuple[str, ...] = ()
    forbidden_start: tuple[str, ...] = ()
    reasoning: tuple[tuple[str, str], ...] = ()
    not_before: str = ""


def closing_texts(template: CallTemplate, keys: Sequence[str]) -> tuple[str, ...]:
    """Return the texts that close a value, a call or all calls, the longest first; `keys` are those of arguments."""
    notation = template.arguments
    last = template.call[-1]
    tail = last if isinstance(last, str) else ""
    found = [tail + template.after, tail, template.after]
    if isinstance(notation, TagArguments):
        names = map(escape, keys) if notation.is_attribute else keys
        found += [notation.closing.replace("{key}", key) for key in names]
    elif isinstance(notation, NestedArguments):
        found += [f"{notation.mark}</{key}>" for key in (*keys, notation.item)]
    elif isinstance(notation, LiteralArguments):
        found += ["'" if notation.language.escapes else notation.language.quotes[0], ")", "]", "}"]
    return tuple(sorted(filter(None, dict.fromkeys(found)), key=len, reverse=True))
