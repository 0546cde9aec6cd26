"""Turns of messages with headers: the recipient and the channel determine the kind of the body."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from ...ir.parts import ToolCall
from ..engine.envelope import read_arguments
from ..engine.offered_tools import OfferedTools
from ..engine.reader import Malformed, Parsing, Truncated, terminals
from ..engine.style import ARGUMENTS, NAME, CallTemplate, JsonArguments, ParseContext, Slot, StyleBase, write_arguments
from .tagged_calls import TaggedCalls

_WEAK = "to="
_RECIPIENT = re.compile(r"\bto=([^\s<]+)").search
_WORD = re.compile(r"\s*([\w.-]*)").match
_MessageKind: TypeAlias = Literal["call", "reasoning", "text", "foreign"]


class ChannelCalls(StyleBase, frozen=True):
    """`start` header `message` body `end`. The header may begin at the start of the turn, without its `start`.

    A body with a recipient is a call: JSON, or tags (`body`). The recipient of a function is `tool_prefix`NAME; any
    other one, such as `python` or `browser.search`, is a tool that the model was trained on, and its input may be text.
    A message on a channel or to a recipient in `reasoning_channels` is reasoning. A message to `user_recipients` or
    without a recipient is text, up to one of `ends` if `closed`, or up to the next header. A message that another role
    wrote, such as a result, is dropped. gpt-oss may repeat a role or a channel before a header.
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

    def openers(self, offered: OfferedTools) -> tuple[str, ...]:  # the protocol passes `offered`
        repeated = (f"assistant{self.channel}", f"commentary{self.channel}", f"commentary{self.start}")
        return (self.start, self.channel, *repeated) if self.channel else (self.start,)

    def weak_openers(self, offered: OfferedTools) -> tuple[str, ...]:  # the protocol passes `offered`
        return (_WEAK,) if self.body is None else (_WEAK, self.message)

    def read(self, turn: ParseContext, opener: str) -> Parsing[None]:
        """Read a header, and then the body as a call, as reasoning or as text; another message may end reasoning."""
        header = yield from self._read_header(turn, opener)
        while header:
            self._mark_recipient(turn, header)
            kind, recipient = self._route(header)
            if kind == "reasoning":
                header = yield from self._read_reasoning(turn)
                continue
            if kind == "call":
                yield from self._read_call(turn, recipient)
            elif kind == "foreign":
                yield from self._skip_body(turn, header)
            else:
                yield from self._read_text(turn, recipient)
            return

    def _mark_recipient(self, turn: ParseContext, header: str) -> None:
        """Mark the start of a message whose header was just read, and the recipient as the name of a call."""
        start = turn.reader.position - len(self.message) - len(header.removesuffix(self.message))
        turn.spans.open_call(start)
        found = _RECIPIENT(header)
        if found is not None:
            prefix = len(self.tool_prefix) if found[1].startswith(self.tool_prefix) else 0
            turn.spans.mark_name(start + found.start(1) + prefix, start + found.end(1))

    def _read_header(self, turn: ParseContext, opener: str) -> Parsing[str]:
        """Read the header and the start of its message, or raise Malformed.

        A token must follow the recipient; otherwise it is a sentence that looks like a header.
        """
        reader = turn.reader
        before = opener
        if opener == self.message:
            return opener
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
        if end is None:
            raise Truncated("the text ends inside a header")
        if end != self.message:
            reader.unread(end)
            raise Malformed(f"no message follows the header {before + header!r}")
        return before + header

    def _route(self, header: str) -> tuple[_MessageKind, str]:
        """Return the kind of a message by its role, recipient and channel, and the recipient.

        A role other than the assistant is foreign: the model must not write such a message.
        """
        if header.startswith(self.start) and _first_word(header.removeprefix(self.start)) not in (
            "",
            "assistant",
            "to",
        ):
            return "foreign", ""
        found = _RECIPIENT(header)
        recipient = found[1] if found else ""
        if recipient and recipient not in (*self.user_recipients, *self.reasoning_channels):
            return "call", recipient
        channel = _first_word(header.rpartition(self.channel)[2]) if self.channel and self.channel in header else ""
        return "reasoning" if {recipient, channel} & set(self.reasoning_channels) else "text", recipient

    def _read_text(self, turn: ParseContext, recipient: str) -> Parsing[None]:
        """Read text. Tags of a call at the start of a message without a recipient are a call nevertheless."""
        reader, writer = turn.reader, turn.writer
        if self.body is not None and not recipient:
            spaces = yield from reader.read_spaces()
            if (yield from reader.read_one_of((self.body.section_open,))):
                yield from self.body.read(turn, self.body.section_open)
                return
            reader.unread(spaces)
        reader.taken = None
        writer.end_item()
        if self.closed:
            yield from self._read_body(turn, writer.add_text)

    def read_open_reasoning(self, turn: ParseContext) -> Parsing[None]:
        """Read reasoning whose header is in the prompt, unless the text begins with a header of its own."""
        reader = turn.reader
        spaces = yield from reader.read_spaces()
        header = yield from reader.read_one_of((*self.openers(turn.offered), _WEAK))
        reader.unread(spaces + (header or ""))
        if header is None and (yield from self._read_reasoning(turn)):
            reader.unread("".join(reader.taken or ()))
            reader.taken = None

    def _read_reasoning(self, turn: ParseContext) -> Parsing[str]:
        """Read reasoning up to its end or to the next header. Return that header if it was read, else an empty string.

        A model may leave out the end. In a `closed` style, a header inside the body must be complete to count.
        """
        reader, writer = turn.reader, turn.writer
        if not self.closed:
            yield from self._read_body(turn, writer.add_reasoning)
            return ""
        stops = terminals(*self.ends, self.start, _WEAK)
        header = ""
        while not header:
            reader.taken = None
            found = yield from reader.read_until(stops, writer.add_reasoning)
            if found is None or found in self.ends:
                break
            reader.taken = [found]
            try:
                header = yield from self._read_header(turn, found)
            except Malformed:
                writer.add_reasoning("".join(reader.taken))
        writer.end_item()
        return header

    def _skip_body(self, turn: ParseContext, header: str) -> Parsing[None]:
        """Drop a message of another role, such as a result that the model invented."""
        dropped: list[str] = []
        start = turn.reader.position
        yield from self._read_body(turn, dropped.append)
        turn.writer.add_diagnostic(
            "after_stop", start, f"the model must not write {header!r}: {''.join(dropped)[:200]!r}"
        )

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

    def _read_call(self, turn: ParseContext, recipient: str) -> Parsing[None]:
        """Read a call up to the end of its message; a body without arguments is a call without arguments."""
        reader = turn.reader
        is_function = recipient.startswith(self.tool_prefix) or recipient in turn.offered.names
        if self.body is not None:
            yield from reader.read_spaces()
            yield from reader.expect(self.body.section_open)
            yield from self.body.read(turn, self.body.section_open)
        else:
            turn.start_call(recipient.removeprefix(self.tool_prefix))
            if not is_function and not turn.offered:
                turn.writer.add_diagnostic("unknown_tool", reader.position, f"{recipient!r} is not a function")
            yield from reader.read_spaces()
            if (yield from reader.read_one_of(self.ends)):
                turn.writer.end_json(reader.position)
            elif is_function or (yield from reader.peek()) == "{":
                yield from read_arguments(turn, terminals(*self.ends, self.start))
                yield from turn.close(self.ends)
            else:
                yield from self._read_text_input(turn)

    def _read_text_input(self, turn: ParseContext) -> Parsing[None]:
        """Read input that is not JSON, such as code. The call is invalid, because no offered tool accepts text."""
        reader = turn.reader
        turn.spans.begin_arguments()
        end = yield from reader.read_until(terminals(*self.ends, self.start), turn.writer.add_raw)
        turn.spans.end_arguments(len(end or ""))
        if end == self.start:
            reader.unread(end)
        turn.writer.end_json(reader.position, is_truncated=end is None and not reader.finished)

    def write(self, calls: Sequence[ToolCall]) -> str:
        between = "" if self.body is not None else f"{self.start}assistant"
        return between.join(map(self._write_call, calls))

    def _write_call(self, call: ToolCall) -> str:
        if self.body is not None:
            return f"{self.start}assistant to={call.name}{self.message}{self.body.write([call])}{self.ends[0]}"
        text = write_arguments(call)
        head = f"commentary to={self.tool_prefix}{call.name} {self.constrain}json"
        return f"{self.channel}{head}{self.message}{text}{self.ends[0]}"

    def template(self) -> CallTemplate:
        """Return the text of `write` as data. In a turn with other messages, a call begins at its recipient."""
        if self.body is not None:
            return self._body_template(self.body.template())
        head = f"{self.channel}commentary {_WEAK}{self.tool_prefix}"
        tail = f" {self.constrain}json{self.message}"
        thoughts = tuple(
            (f"{self.channel}{channel}{self.message}", f"{end}{self.start}assistant")
            for channel in self.reasoning_channels
            for end in self.ends[1:2]
        )
        return CallTemplate(
            (head, NAME, tail, ARGUMENTS, self.ends[0]),
            JsonArguments(),
            between=f"{self.start}assistant",
            trigger=f"{_WEAK}{self.tool_prefix}",
            reasoning=thoughts,
            not_before=f"{_WEAK}[^<]*",  # the first recipient of a header counts
        )

    def _body_template(self, body: CallTemplate) -> CallTemplate:
        """Return the template of calls in tags, each in a message to the tool."""
        call: tuple[str | Slot, ...] = (
            f"{self.start}assistant {_WEAK}",
            NAME,
            f"{self.message}{body.before}",
            *body.call,
            f"{body.after}{self.ends[0]}",
        )
        thoughts = tuple(
            (f"{self.start}assistant {_WEAK}{name}{self.message}", self.ends[0]) for name in self.reasoning_channels
        )
        return CallTemplate(call, body.arguments, trigger=body.trigger, forbidden=body.forbidden, reasoning=thoughts)


def _first_word(text: str) -> str:
    found = _WORD(text)
    return found[1] if found is not None else ""
