"""The attributes of a tag: `name="f" index="1"`.

Separate because the syntax inside a tag is independent of the order of the tags in a call.
"""

from __future__ import annotations

import re
from html import unescape

from ..engine.style import ParseContext

__all__ = ["find_attributes", "parse_attributes", "report_head"]

_ATTRIBUTE = re.compile(
    r"""(?<![\w-])([\w-]++)\s*+=\s*+(?:"(?P<quoted>[^"]*+)"|'(?P<single>[^']*+)'|(?P<bare>[^\s"'<>=/]++))"""
)

find_attributes = _ATTRIBUTE.finditer
"""Find the attributes in the head of a tag: group 1 is the name, the last group the value without its quotes."""


def parse_attributes(head: str) -> dict[str, str]:
    """Return the attributes of a tag. A value may have no quotes, as some models write it."""
    return {one[1]: unescape(one[one.lastgroup or 0]) for one in find_attributes(head)}


def report_head(turn: ParseContext, head: str) -> None:
    """Report text in a tag besides its attributes."""
    rest = _ATTRIBUTE.sub("", head).strip().removesuffix("/").strip()
    if rest:
        turn.writer.add_diagnostic("malformed", turn.reader.position, f"{rest!r} in a tag is ignored")
