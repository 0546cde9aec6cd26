"""Read one turn of a model for a serving stack: deltas of reasoning, content and calls, and the records that servers keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ..ir.events import (
    CallDelta,
    CallEnd,
    CallStart,
    Event,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    TextDelta,
    TextStart,
)
from ..ir.text import dumps
from ..ir.tools import Tool
from ..ir.value import Value
from ..text.engine.event_builder import Diagnostic
from ..text.engine.format import Format, Parser
from ..text.engine.offered_tools import OfferedTools

# One turn of a model as deltas of chat completions: reasoning, content, and calls with an index and an id.
#
# A serving stack feeds the text of each step and passes the deltas on. The deltas of a turn add up to the same answer
# for any chunking, so a complete text is read as one chunk.


_DEFAULT_TAGS = ("<think>", "</think>")
"""For reasoning in the content of a format that marks it by other means than tags."""


class CallPiece(Value, frozen=True):
    """A piece of the call number `index`. Only the first piece has an id and a name."""

    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None


class TurnDelta(Value, frozen=True):
    """The new output of one step, with at most one piece per call."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[CallPiece, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.reasoning or self.content or self.calls)


class ReadCall:
    """A call as far as it is known. `state` is None until it has ended."""

    __slots__ = ("_pieces", "id", "name", "state")

    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.name = name
        self.state: str | None = None
        self._pieces: list[str] = []

    @property
    def arguments(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def has_arguments(self) -> bool:
        return bool(self._pieces)

    def add(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)


class TurnReader:
    """Read one turn; `feed` and `close` return deltas.

    `new_id` makes the id of a call without a unique id of the model. `opened`: the prompt opened the reasoning.
    `tagged_content`: reasoning is part of the content, in its tags, because the caller has no other field for it.
    """

    def __init__(
        self,
        form: Format,
        tools: Iterable[Tool] = (),
        *,
        new_id: Callable[[str], str],
        opened: bool = False,
        tagged_content: bool = False,
    ) -> None:
        """Create the parser of an answer.

        `opened`: the prompt already opened the reasoning; `tagged_content`: reasoning stays in the content, in tags.
        """
        self._parser = form.parser(tools, reasoning=opened)
        self._new_id = new_id
        self._index: dict[int, int] = {}  # index of each call, by the key of its events
        self._ids: set[str] = set()
        self._tags: tuple[str, str] | None = None
        if tagged_content:
            self._tags = form.reasoning[0] if form.reasoning else _DEFAULT_TAGS
        self.calls: list[ReadCall] = []
        self.in_reasoning = opened and bool(form.reasoning)
        self.closed = False

    @property
    def diagnostics(self) -> list[Diagnostic]:
        return self._parser.diagnostics

    def feed(self, text: str) -> TurnDelta:
        """Read more text."""
        return self._delta(self._parser.feed(text))

    def close(self, *, finished: bool = True) -> TurnDelta:
        """End the turn; `finished` is False if the model was interrupted, so that an open call is truncated."""
        self.closed = True
        return self._delta(self._parser.close(finished=finished))

    def read(self, text: str, *, finished: bool = True) -> TurnDelta:
        """Read a whole turn."""
        first, last = self.feed(text), self.close(finished=finished)
        pieces = tuple(CallPiece(index, call.arguments, call.id, call.name) for index, call in enumerate(self.calls))
        return TurnDelta(first.reasoning + last.reasoning, first.content + last.content, pieces)

    def _delta(self, events: Iterable[Event]) -> TurnDelta:
        """Return the events as a delta: joined reasoning and content, and a piece per call.

        Also updates `calls` and `in_reasoning`.
        """
        reasoning: list[str] = []
        content: list[str] = []
        pieces: dict[int, tuple[CallPiece | None, list[str]]] = {}
        thought = reasoning if self._tags is None else content
        for event in events:
            match event:
                case TextDelta():
                    content.append(event.text)
                case ReasoningDelta():
                    thought.append(event.text)
                case ReasoningStart():
                    self._enter_reasoning(content)
                case ReasoningEnd():
                    self._leave_reasoning(content)
                case CallStart():
                    first = self._start_call(event)
                    pieces[first.index] = (first, [])
                case CallDelta():
                    self._add(pieces, self._index[event.key], event.text)
                case CallEnd():
                    self._end_call(pieces, event)
                case _:  # the end of a text, or of one argument
                    pass
        calls = tuple(_merge(index, first, texts) for index, (first, texts) in pieces.items())
        return TurnDelta("".join(reasoning), "".join(content), calls)

    def _enter_reasoning(self, content: list[str]) -> None:
        if self._tags is not None and not self.in_reasoning:
            content.append(self._tags[0])
        self.in_reasoning = True

    def _leave_reasoning(self, content: list[str]) -> None:
        if self._tags is not None:
            content.append(self._tags[1])
        self.in_reasoning = False

    def _start_call(self, event: CallStart) -> CallPiece:
        """Register a call and end the reasoning.

        Generated ids (`call00000`) are unique only within the turn, so they are replaced.
        """
        index = self._index[event.key] = len(self.calls)
        call_id = event.id
        if call_id == f"call{index:05d}" or call_id in self._ids:
            call_id = self._new_id(event.name)
        self._ids.add(call_id)
        self.calls.append(ReadCall(call_id, event.name))
        self.in_reasoning = False
        return CallPiece(index, "", call_id, event.name)

    def _add(self, pieces: dict[int, tuple[CallPiece | None, list[str]]], index: int, text: str) -> None:
        if text:
            self.calls[index].add(text)
            pieces.setdefault(index, (None, []))[1].append(text)

    def _end_call(self, pieces: dict[int, tuple[CallPiece | None, list[str]]], event: CallEnd) -> None:
        """End a call. Clients read empty arguments as an empty object, so an incomplete call gets a brace."""
        index = self._index[event.key]
        call = self.calls[index]
        call.state = event.state
        if not call.has_arguments:
            self._add(pieces, index, dumps(event.arguments or {}) if event.state == "complete" else "{")


class NamedCallReader(TurnReader):
    """Read a turn whose content is the arguments of one tool: constrained decoding for a named tool choice."""

    def __init__(self, name: str, form: Format, *, new_id: Callable[[str], str], opened: bool = False) -> None:
        super().__init__(form, new_id=new_id, opened=opened)
        self._name = name

    def _delta(self, events: Iterable[Event]) -> TurnDelta:
        """Return the events with their content as arguments of the only call, which begins with the first content."""
        delta = super()._delta(events)
        if not delta.content:
            return delta
        first = not self.calls
        if first:
            self.calls.append(ReadCall(self._new_id(self._name), self._name))
        call = self.calls[0]
        call.add(delta.content)
        piece = CallPiece(0, delta.content, call.id, call.name) if first else CallPiece(0, delta.content)
        return TurnDelta(delta.reasoning, "", (piece,))


def _merge(index: int, first: CallPiece | None, texts: list[str]) -> CallPiece:
    arguments = "".join(texts)
    if first is None:
        return CallPiece(index, arguments)
    return CallPiece(index, arguments, first.id, first.name)


# Split a turn into its reasoning and the text after it, for servers that read calls with a separate parser.


class ReasoningSplitter:
    """Return the reasoning at the start of a turn, and then the text after it, byte for byte.

    The whole turn is parsed, because a call also ends the reasoning. Such a call is passed on at the end of the turn: until
    then the closing tag may follow, and show that the call was a draft. `opened`: the prompt may have opened the reasoning;
    an answer that begins with the opening tag opens it itself.
    """

    def __init__(self, form: Format, *, opened: bool) -> None:
        self._form = form
        self._opened = opened
        self._parser: Parser | None = None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self.ended = not form.reasoning  # True after the reasoning, once text or a call has begun

    def feed(self, text: str) -> tuple[str, str]:
        """Read more text; return the new reasoning, and the new text after it.

        If the prompt opened the reasoning, text is held while it may still be a repeated opening tag.
        """
        if self.ended:
            return "", text
        self._text.append(text)
        if self._parser is None:
            text = "".join(self._text)
            if self._opened and self._may_begin_with_tag(text):
                return "", ""
            self._parser = self._start(text)
        return self._split(self._parser.feed(text))

    def close(self) -> tuple[str, str]:
        """End the turn."""
        first = "", ""
        if self._parser is None:
            text = "".join(self._text)
            self._parser = self._start(text)
            first = self._split(self._parser.feed(text))
        last = self._split(self._parser.close())
        return first[0] + last[0], first[1] + last[1]

    def _may_begin_with_tag(self, text: str) -> bool:
        """Return whether more text can complete an opening tag at the start."""
        start = text.lstrip()
        return any(opening.startswith(start) and opening != start for opening, _ in self._form.reasoning)

    def _start(self, text: str) -> Parser:
        begins_with_tag = any(opening and text.lstrip().startswith(opening) for opening, _ in self._form.reasoning)
        self._opened = self._opened and not begins_with_tag
        return self._form.parser(reasoning=self._opened)

    def _split(self, events: Iterable[Event]) -> tuple[str, str]:
        """Return new reasoning and, when text or a call begins, all text after the reasoning; this sets `ended`.

        After that, both are empty, because `feed` passes further text on itself.
        """
        if self.ended:
            return "", ""
        more: list[str] = []
        for event in events:
            if isinstance(event, ReasoningDelta):
                more.append(event.text)
            elif isinstance(event, TextStart | CallStart):
                self.ended = True
                break
        self._reasoning += more
        return "".join(more), self._rest() if self.ended else ""

    def _rest(self) -> str:
        """Return the text after the reasoning and its closing tag."""
        text, reasoning = "".join(self._text), "".join(self._reasoning)
        start, closing = self._bounds(text)
        if start is None:
            return text
        end = start + len(reasoning)
        if not text.startswith(reasoning, start):
            end = self._find_end(text, end, closing)
        if text.startswith(closing, end):
            end += len(closing)
        return text[end:]

    def _find_end(self, text: str, at: int, closing: str) -> int:
        """Return the position of the tag after `at` that ends the reasoning, if the parser removed markers from it."""
        tags = (closing, *self._form.ends_reasoning, *self._form.calls.openers(OfferedTools(())))
        found = [position for tag in tags if (position := text.find(tag, at)) >= 0]
        return min(found, default=at)

    def _bounds(self, text: str) -> tuple[int | None, str]:
        """Return the start of the reasoning in the text and its closing tag; None if the text begins without it."""
        if self._opened:
            return 0, self._form.reasoning[0][1]
        begin = len(text) - len(text.lstrip())
        for opening, closing in self._form.reasoning:
            if opening and text.startswith(opening, begin):
                return begin + len(opening), closing
        return None, ""


# The record of streamed calls that vLLM and SGLang keep in their parsers, in the same attributes.
#
# At the end of a stream the servers send arguments that are in `prev_tool_call_arr` and not in
# `streamed_args_for_tool`. These parsers send everything themselves, so both are equal at any time: empty during the
# turn, because growing them would cost a copy of all arguments per token, and complete at its end.


class CallRecord(Protocol):
    """The attributes of the servers' base classes."""

    prev_tool_call_arr: list[dict[str, Any]]
    streamed_args_for_tool: list[str]
    current_tool_id: int
    current_tool_name_sent: bool


def record_calls(record: CallRecord, turn: TurnReader, delta: TurnDelta) -> None:
    """Add the calls that the delta starts; fill in the arguments at the end of the turn."""
    for piece in delta.calls:
        if piece.name is not None:
            record.prev_tool_call_arr.append({"name": piece.name, "arguments": ""})
            record.streamed_args_for_tool.append("")
            record.current_tool_id = piece.index
            record.current_tool_name_sent = True
    if turn.closed:
        for call, known in zip(turn.calls, record.prev_tool_call_arr, strict=True):
            known["arguments"] = call.arguments
        record.streamed_args_for_tool[:] = [call.arguments for call in turn.calls]
