"""Turns of messages with headers: the recipient and the channel determine the kind of the body."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from ...ir.parts import ToolCall
from ...ir.text import dumps
from ..engine.envelope import read_arguments
from ..engine.offered_tools import OfferedTools
from ..engine.reader import Malformed, Parsing, Truncated, terminals
from ..engine.style import ParseContext, StyleBase
from .tagged_calls import TaggedCalls

__all__ = ["ChannelCalls"]

_WEAK = "to="
_RECIPIENT = re.compile(r"\bto=([^\s<]+)").search


class ChannelCalls(StyleBase, frozen=True):
    """`start` header `message` body `end`. The header may begin at the start of the turn, without its `start`.

    A body addressed to `tool_prefix`NAME is a call: JSON, or tags (`body`). On a channel or to a recipient in
    `reasoning_channels` it is reasoning. Anything else is text, up to one of `ends` if `closed`, or up to the next
    header.
    """

    start: str
    message: str
    ends: tuple[str, ...]
    channel: str = ""
    constrain: str = ""
    tool_prefix: str = ""
    reasoning_channels: tuple[str, ...] = ()
    user_recipients: tuple[str, ...] = ()
    body: TaggedCalls | None = None
    closed: bool = False

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:  # required by the protocol
        return tuple(filter(None, (self.start, self.channel)))

    def weak_openers(self, offered: OfferedTools) -> tuple[str, ...]:  # required by the protocol
        return (_WEAK,)

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        """Read one message: its header, and then its body as a call, as reasoning or as text."""
        reader = turn.reader
        header, end = yield from self._read_header(turn, opener)
        if end is None:
            raise Truncated("the text ends inside a header")
        if end != self.message:
            reader.unread(end)
            raise Malformed(f"no message follows the header {header!r}")
        kind, name = self._route(header, turn.offered)
        if kind == "call":
            yield from self._read_call(turn, name)
        elif kind == "reasoning":
            yield from self._read_body(turn, turn.writer.add_reasoning)
        else:
            reader.taken = None
            turn.writer.end_item()
            if self.closed:
                yield from self._read_body(turn, turn.writer.add_text)

    def _read_header(self, turn: ParseContext, opener: str) -> Parsing[tuple[str, str | None]]:
        """Read the header and its end.

        A token must follow the recipient; otherwise it is a sentence that looks like a header.
        """
        reader = turn.reader
        before = opener
        if opener == _WEAK:
            tokens = tuple(filter(None, (self.message, self.channel, self.constrain, *self.ends)))
            recipient, end = yield from reader.read_word(terminals(*tokens, " ", "\n"))
            if end is None or not recipient:
                raise (Truncated if end is None else Malformed)("the header has no recipient")
            before += recipient
            if end in tokens:
                reader.unread(end)
            else:
                before += end + (yield from reader.read_spaces())
                reader.unread((yield from reader.expect(*tokens)))
        header, end = yield from reader.read_word(terminals(self.message, *self.ends))
        return before + header, end

    def _route(self, header: str, offered: OfferedTools) -> tuple[Literal["call", "reasoning", "text"], str]:
        """Return the kind of a message and, for a call, the tool name, by the recipient and the channel."""
        found = _RECIPIENT(header)
        recipient = found[1] if found else ""
        channel = header.rpartition(self.channel)[2].split()[:1] if self.channel and self.channel in header else []
        spoken_to = recipient in (*self.user_recipients, *self.reasoning_channels)
        if recipient and not spoken_to and (recipient.startswith(self.tool_prefix) or recipient in offered.names):
            return "call", recipient.removeprefix(self.tool_prefix)
        if recipient in self.reasoning_channels or (channel and channel[0].strip("<|>") in self.reasoning_channels):
            return "reasoning", ""
        return "text", ""

    def _read_body(self, turn: ParseContext, sink: Callable[[str], object]) -> Parsing[None]:
        """Pass a body of text or reasoning to `sink`, up to its end or to the next header.

        If the style is `closed`, a header inside the body is text and is reported.
        """
        reader = turn.reader
        reader.taken = None
        stops = terminals(*self.ends, self.start, self.channel)
        end = yield from reader.read_until(stops, sink)
        while end is not None and end not in self.ends and self.closed:
            turn.writer.add_diagnostic("malformed", reader.position, f"{end!r} inside a message")
            sink(end)
            end = yield from reader.read_until(stops, sink)
        if end is not None and end not in self.ends:
            reader.unread(end)
        turn.writer.end_item()

    def _read_call(self, turn: ParseContext, name: str) -> Parsing[None]:
        """Read a call up to the end of its message; a body without arguments is a call without arguments."""
        reader = turn.reader
        if self.body is not None:
            yield from reader.read_spaces()
            yield from reader.expect(self.body.section_open)
            yield from self.body.read(turn, self.body.section_open)
        else:
            turn.start_call(name)
            yield from reader.read_spaces()
            if (yield from reader.read_one_of(self.ends)):
                turn.writer.end_json(reader.position)
                return
            yield from read_arguments(turn, terminals(*self.ends, self.start))
            yield from turn.close(self.ends)

    def write(self, calls: Sequence[ToolCall]) -> str:
        between = "" if self.body is not None else f"{self.start}assistant"
        return between.join(map(self._write_call, calls))

    def _write_call(self, call: ToolCall) -> str:
        if self.body is not None:
            return f"{self.start}assistant to={call.name}{self.message}{self.body.write([call])}{self.ends[0]}"
        text = call.text if call.arguments is None else dumps(call.arguments)
        head = f"commentary to={self.tool_prefix}{call.name} {self.constrain}json"
        return f"{self.channel}{head}{self.message}{text}{self.ends[0]}"
