"""Several notations of calls in one format: each is read, the first is written.

Mistral's two notations begin with the same token, so the text after it distinguishes them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...ir.parts import ToolCall
from ..engine.envelope import CallFields
from ..engine.offered_tools import OfferedTools
from ..engine.reader import Parsing
from ..engine.style import CallTemplate, ParseContext, Style, StyleBase
from .header_calls import HeaderCalls
from .json_calls import JsonCalls


class AlternativeCalls(StyleBase, frozen=True):
    """The opener of a call selects the style that reads it."""

    styles: tuple[Style, ...]

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:
        return tuple(opener for style in self.styles for opener in style.openers(offered))

    def weak_openers(self, offered: OfferedTools) -> tuple[str, ...]:
        return tuple(opener for style in self.styles for opener in style.weak_openers(offered))

    def inline_openers(self, offered: OfferedTools) -> tuple[str, ...]:
        return tuple(opener for style in self.styles for opener in style.inline_openers(offered))

    def closers(self) -> tuple[str, ...]:
        return tuple(closer for style in self.styles for closer in style.closers())

    def markers(self) -> tuple[str, ...]:
        return tuple(marker for style in self.styles for marker in style.markers())

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        """Read a call with the first style that has the opener."""
        chosen = next(style for style in self.styles if opener in _all_openers(style, turn.offered))
        yield from chosen.read(turn, opener)

    def write(self, calls: Sequence[ToolCall]) -> str:
        return self.styles[0].write(calls)

    def template(self) -> CallTemplate:
        """Return the template of the style that writes, which excludes the openers of the others."""
        first, *others = (style.template() for style in self.styles)
        more = [text for other in others for text in (other.trigger, *other.forbidden) if text]
        own = tuple(dict.fromkeys((*first.forbidden, *more)))
        return msgspec.structs.replace(first, forbidden=tuple(text for text in own if text != first.trigger))


def _all_openers(style: Style, offered: OfferedTools) -> tuple[str, ...]:
    return (*style.openers(offered), *style.weak_openers(offered), *style.inline_openers(offered))


_OPEN = "[TOOL_CALLS]"
_ARRAY = JsonCalls((_OPEN,), keys=CallFields(id_last=True), array=True)
_HEADER = r"\s*(?P<name>[^\s\[\]{}]+)\s*(?:\[CALL_ID\]\s*(?P<id>\w+)\s*)?"
_PLAIN = HeaderCalls((_OPEN,), ("[ARGS]",), header=_HEADER)
_WITH_ID = HeaderCalls((_OPEN,), ("[ARGS]",), header=_HEADER, write_header="{name}[CALL_ID]{id}")


class MistralCalls(StyleBase, frozen=True):
    """`[TOOL_CALLS]NAME[ARGS]{…}`, with `[CALL_ID]` between them if `ids`; also reads the older notation."""

    ids: bool = False

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:  # the protocol passes `offered`
        return (_OPEN,)

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        yield from turn.reader.read_spaces()
        style = _ARRAY if (yield from turn.reader.peek()) == "[" else _PLAIN
        yield from style.read(turn, opener)

    def write(self, calls: Sequence[ToolCall]) -> str:
        return (_WITH_ID if self.ids else _PLAIN).write(calls)

    def template(self) -> CallTemplate:
        return (_WITH_ID if self.ids else _PLAIN).template()
