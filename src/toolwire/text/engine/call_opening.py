"""The beginning of a call, for a prompt that forces the model to make one.

It is the common prefix of all calls of the offered tools, derived by writing such calls in the format. The model
chooses the name, if there are several, and the call's id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...ir.parts import ToolCall
from ...ir.pointer import Object
from ...ir.tools import Tool
from .style import Style

__all__ = ["call_opening"]

_ARGUMENTS: tuple[Object, ...] = ({"a": "x"}, {"b": 1}, {"c": [True], "d": None})
_ANY_TOOL = ("a", "b")  # names without a common beginning


def call_opening(style: Style, tools: Sequence[Tool]) -> str:
    """Return the text with which every call of these tools begins; empty if they have nothing in common."""
    if not tools:
        return ""
    names = (tools[0].name,) if len(tools) == 1 else _ANY_TOOL
    arguments = _ARGUMENTS if all((tool.input_schema or {}).get("required") for tool in tools) else (*_ARGUMENTS, {})
    return _without_partial_token(_common_prefix(list(_write_samples(style, names, arguments))))


def _write_samples(style: Style, names: Sequence[str], arguments: Sequence[Object]) -> Iterator[str]:
    """Write calls with different ids, because some formats write the id, and some number their calls in it."""
    for name in names:
        for number, sample in enumerate(arguments):
            for call_id in (str(number) * 9, f"functions.{name}:{number}"):
                yield style.write([ToolCall(call_id, name, sample)])


def _common_prefix(texts: Sequence[str]) -> str:
    """Return the common prefix: that of the first and the last text in sorted order."""
    first, last = min(texts), max(texts)
    length = next((index for index, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:length]


def _without_partial_token(text: str) -> str:
    """Remove the beginning of a special token from the end, because the model has to write such a token as a whole.

    A tag with attributes, such as `<invoke name="`, is not one token.
    """
    start = text.rfind("<")
    return text[:start] if start > text.rfind(">") and "=" not in text[start:] else text
