"""Mistral's two notations after one token: an array of objects, or the name and its arguments.

Separate because formats are data, and this is a style: code that reads and writes calls.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.parts import ToolCall
from ..engine.call_template import CallTemplate
from ..engine.envelope import CallFields
from ..engine.offered_tools import OfferedTools
from ..engine.reader import Parsing
from ..engine.style import ParseContext, StyleBase
from .header_calls import HeaderCalls
from .json_calls import JsonCalls

__all__ = ["MistralCalls"]

_OPEN = "[TOOL_CALLS]"
_ARRAY = JsonCalls((_OPEN,), keys=CallFields(id_last=True), array=True)
_HEADER = r"\s*(?P<name>[^\s\[\]{}]+)\s*(?:\[CALL_ID\]\s*(?P<id>\w+)\s*)?"
_PLAIN = HeaderCalls((_OPEN,), ("[ARGS]",), header=_HEADER)
_WITH_ID = HeaderCalls((_OPEN,), ("[ARGS]",), header=_HEADER, write_header="{name}[CALL_ID]{id}")


class MistralCalls(StyleBase, frozen=True):
    """`[TOOL_CALLS]NAME[ARGS]{…}`, with `[CALL_ID]` between them if `ids`; also reads the older notation."""

    ids: bool = False

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:  # required by the protocol
        return (_OPEN,)

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        yield from turn.reader.read_spaces()
        style = _ARRAY if (yield from turn.reader.peek()) == "[" else _PLAIN
        yield from style.read(turn, opener)

    def write(self, calls: Sequence[ToolCall]) -> str:
        return (_WITH_ID if self.ids else _PLAIN).write(calls)

    def template(self) -> CallTemplate:
        return (_WITH_ID if self.ids else _PLAIN).template()
