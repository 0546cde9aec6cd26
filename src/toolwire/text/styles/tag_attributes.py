"""The attributes of a tag: `name="f" index="1"`.

Separate because the syntax inside a tag is independent of the order of the tags in a call.
"""

from __future__ import annotations

import re
from html import unescape

from ..engine.style import ParseContext

__all__ = ["find_attributes", "parse_attributes", "report_head"]

_ATTRIBUTE = re.compile(r"""(?<![\w-])([\w-]++)\s*+=\s*+("[^"]*+"|'[^']*+')""")

find_attributes = _ATTRIBUTE.finditer
"""Find the attributes in the head of a tag: group 1 is the name, group 2 the value in its quotes."""


def parse_attributes(head: str) -> dict[str, str]:
    return {name: unescape(value[1:-1]) for name, value in _ATTRIBUTE.findall(head)}


def report_head(turn: ParseContext, head: str) -> None:
    """Report text in a tag besides its attributes."""
    rest = _ATTRIBUTE.sub("", head).strip().removesuffix("/").strip()
    if rest:
        turn.writer.add_diagnostic("malformed", turn.reader.position, f"{rest!r} in a tag is ignored")
