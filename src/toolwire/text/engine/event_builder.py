"""Write events for text, reasoning and calls, each opened once, grown by deltas and closed once.

White space between items is structure, not text: it is held until text follows, and is emitted with it. So text is
preserved byte for byte, and a line break between two calls is not a text.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from ...ir.errors import ProtocolError
from ...ir.events import (
    ArgumentEnd,
    CallDelta,
    CallEnd,
    CallStart,
    Event,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    TextDelta,
    TextEnd,
    TextStart,
    WholePart,
)
from ...ir.parts import CallState, Reasoning, Text
from ...ir.pointer import JSON, Object
from ...ir.text import dumps, escape
from ...ir.value import Value
from ...stream.scanner import Scanner
from ...stream.strict import parse, parse_arguments
from .offered_tools import OfferedTools
from .spans import SpanRecorder

DiagnosticCode: TypeAlias = Literal[
    "malformed",
    "unclosed",
    "truncated",
    "invalid_arguments",
    "unknown_tool",
    "unwrapped",
    "python_literal",
    "other_format",
    "after_stop",
    "draft",
    "quoted",
    "unopened",
    "direct_answer",
]


_MAX_DIAGNOSTICS = 100
"""More notes add no information, and a hostile text could cause one for each of its tags."""


_ItemKind: TypeAlias = Literal["", "text", "reasoning"]


class _Checkpoint(NamedTuple):
    """The state before held events, to which `drop` returns."""

    items: int
    key: int
    open: _ItemKind
    calls: int
    space: list[str]
    diagnostics: int
    ends: int
    ids: int
    pieces: list[str]
    pieces_length: int
    spans: tuple[int, int]


class Diagnostic(Value, frozen=True):
    """A problem or peculiarity in the text, for the caller or the model, with its character position."""

    code: DiagnosticCode
    position: int
    detail: str


class EventBuilder:
    """Collect events; `take` returns them.

    Without `deltas`, a text or a reasoning is one `WholePart` and a call has only its start and its end: for a caller
    that needs the parts of the turn, the text is neither escaped nor scanned again.
    """

    def __init__(self, offered: OfferedTools, first_call: int, *, deltas: bool = True) -> None:
        self.offered = offered
        self.diagnostics: list[Diagnostic] = []
        self.calls = 0
        self.in_call = False
        self.holds_ends = False  # calls end with the turn, because text after them may show that they are invalid
        self._ends: list[CallEnd] = []  # held, in the order of the calls
        self._ids: dict[str, None] = {}  # ids that the text gave, in order
        self._first_call = first_call  # the number in the first generated id
        self._events: list[Event] = []
        self._items = 0  # number of items so far; the key of the next one
        self._key = -1  # of the last item
        self._open: _ItemKind = ""
        self._space: list[str] = []  # white space that is emitted only if text follows
        self._reasoning_space = ""  # white space at the start of reasoning, emitted only if more of it follows
        self.spans: SpanRecorder | None = None
        self._deltas = deltas
        self._pieces: list[str] = []  # the current text or reasoning, without `deltas`
        self._raw: list[str] = []  # the argument text of the current call
        self._unescaped: list[int] = []  # indexes in `_raw` of the inside of strings that is not escaped yet
        self._scanner: Scanner | None = None
        self._held: tuple[list[Event], _Checkpoint] | None = None  # events before `hold`, and the state then
        self._arguments: Object = {}  # values of the current call that were given one by one
        self._flaw = ""

    def take(self) -> list[Event]:
        """Return and remove the events that are certain; events after `hold` stay."""
        if self._held is not None:
            events, self._held = self._held[0], ([], self._held[1])
            return events
        events, self._events = self._events, []
        return events

    def hold(self) -> None:
        """Hold the following events, because they may have to be dropped, and remember the present state."""
        state = _Checkpoint(
            self._items,
            self._key,
            self._open,
            self.calls,
            list(self._space),
            len(self.diagnostics),
            len(self._ends),
            len(self._ids),
            self._pieces,
            len(self._pieces),
            (0, 0) if self.spans is None else self.spans.checkpoint(),
        )
        self._held = (self._events, state)
        self._events = []

    def release(self) -> None:
        """Release the held events."""
        if self._held is not None:
            self._events = [*self._held[0], *self._events]
            self._held = None

    def truncate_held(self, position: int) -> None:
        """Mark held calls as truncated: the text ends before it is known whether they are drafts."""
        if self._held is None:
            return
        first = self._held[1].ends
        self._events = [_truncate(event) if isinstance(event, CallEnd) else event for event in self._events]
        self._ends[first:] = map(_truncate, self._ends[first:])
        self.add_diagnostic("truncated", position, "the text ends before the reasoning around a call")

    def drop(self) -> None:
        """Drop the held events and restore the state before them, as if they had never been written."""
        assert self._held is not None
        self._events, state = self._held
        self._items, self._key, self._open, self.calls, self._space = state[:5]
        del self.diagnostics[state.diagnostics :]
        del self._ends[state.ends :]
        while len(self._ids) > state.ids:
            self._ids.popitem()
        self._pieces = state.pieces
        del self._pieces[state.pieces_length :]
        if self.spans is not None:
            self.spans.drop(state.spans)
        self._held = None

    def add_diagnostic(self, code: DiagnosticCode, position: int, detail: str) -> None:
        if len(self.diagnostics) < _MAX_DIAGNOSTICS:
            self.diagnostics.append(Diagnostic(code, position, detail))

    def add_text(self, piece: str) -> None:
        """Write text. White space before a text is held in `_space`, because it may only separate two items."""
        if self.spans is not None:
            self.spans.add_text(len(piece))
        if self._open != "text":
            if not piece or piece.isspace():
                self._space.append(piece)
                return
            self._begin_item("text")
            piece = "".join(self._space) + piece
            self._space.clear()
        if self._deltas:
            self._events.append(TextDelta(self._key, escape(piece)))
        else:
            self._pieces.append(piece)

    def add_reasoning(self, piece: str) -> None:
        """Write reasoning. White space before its opener is structure and is dropped; white space alone is none."""
        if self._open != "reasoning":
            piece, self._reasoning_space = self._reasoning_space + piece, ""
            if not piece.strip():
                self._reasoning_space = piece
                return
            self._begin_item("reasoning")
            self._space.clear()
        if self.spans is not None:
            self.spans.add_reasoning(self._key, len(piece))
        if self._deltas:
            self._events.append(ReasoningDelta(self._key, escape(piece)))
        else:
            self._pieces.append(piece)

    def end_item(self) -> None:
        """End the current text or reasoning, if any; without deltas, it is emitted as a whole now."""
        self._reasoning_space = ""
        kind, self._open = self._open, ""
        if not kind:
            return
        if self._deltas:
            self._events.append(TextEnd(self._key) if kind == "text" else ReasoningEnd(self._key))
            return
        whole, self._pieces = "".join(self._pieces), []
        self._events.append(WholePart(self._key, Text(whole) if kind == "text" else Reasoning(whole)))

    def start_call(self, name: str, position: int, call_id: str = "") -> None:
        """Start a call whose arguments follow as JSON text (`add_json_arguments`), or one by one (`begin_argument`).

        Ids are unique in a turn: an id that the text gives twice is replaced, because results refer to it.
        """
        self.end_item()
        self._space.clear()
        self._key = self._next_key()
        self.in_call = True
        if not self.offered.has_tool(name):
            self.add_diagnostic("unknown_tool", position, f"unknown tool {name!r}")
        if not call_id or call_id in self._ids:
            call_id = f"call{self._first_call + self.calls:05d}"
        self._ids[call_id] = None
        self._events.append(CallStart(self._key, call_id, name))
        if self.spans is not None:
            self.spans.start_call(self._key)
        self.calls += 1
        self._raw = []
        self._unescaped = []
        self._arguments = {}
        self._flaw = ""
        self._scanner = None

    def mark_invalid(self, flaw: str) -> None:
        """Mark the call as invalid, whatever follows."""
        self._flaw = self._flaw or flaw

    def add_json_arguments(self, piece: str) -> None:
        """Write more of the arguments as JSON text, and emit the end of each top-level argument that is complete."""
        if not self._deltas:
            self._raw.append(piece)
            return
        if self._scanner is None:
            self._scanner = Scanner()
        done = self._scanner.feed(piece)
        if not done:
            self.add_raw(piece)
            return
        start = 0
        for (name, raw), end in zip(done, self._scanner.ends, strict=True):
            try:
                value = parse(raw)
            except ProtocolError:
                self._scanner.invalid = True
                break
            self.add_raw(piece[start:end])
            start = end
            self._events.append(ArgumentEnd(self._key, name, value))
        if start < len(piece):
            self.add_raw(piece[start:])

    def begin_argument(self, key: str) -> None:
        """Begin an argument of an object that the writer serialises."""
        if key in self._arguments:
            self.mark_invalid("an argument is given twice")
        self.add_raw(("," if self._raw else "{") + dumps(key) + ":")

    def add_string(self, piece: str) -> None:
        """Write more of the inside of a string, given as unescaped text."""
        if self._deltas:
            piece = escape(piece).decode()
            self._events.append(CallDelta(self._key, escape(piece)))
        else:
            self._unescaped.append(len(self._raw))
        self._raw.append(piece)

    def end_argument(self, key: str, value: JSON) -> None:
        self._arguments[key] = value
        if self._deltas and not self._flaw:
            self._events.append(ArgumentEnd(self._key, key, value))

    def end_object(self, state: CallState, position: int) -> None:
        """End a call whose arguments were given one by one.

        An invalid call stays unclosed, for clients that use its text, and ends in a comma where a repair could close it.
        """
        state = self._final_state(state, position)
        if state == "complete":
            self.add_raw("}" if self._raw else "{}")
        elif state == "invalid" and not self._raw:
            self.add_raw("{")  # empty text would be a call without arguments
        elif state == "invalid" and parse_arguments(self._raw_text() + "}")[1] == "complete":
            self.add_raw(",")
        whole = state == "complete"
        arguments, raw = (self._arguments, None) if whole else (None, self._raw_text())
        self._end_call(CallEnd(self._key, arguments, raw, state), position)

    def end_json(self, position: int, *, value: Object | None = None, is_truncated: bool = False) -> None:
        """End a call whose arguments were given as JSON text. `value`: the arguments, if they are known.

        `is_truncated`: the text ends inside them.
        """
        raw = self._raw_text()
        arguments, state = parse_arguments(raw) if value is None else (value, "complete")
        if is_truncated:
            arguments, state = None, "truncated"
        elif state == "truncated":
            state = "invalid"
        state = self._final_state(state, position)
        self._end_call(CallEnd(self._key, arguments if state == "complete" else None, raw, state), position)

    def end(self) -> None:
        """End the text."""
        self.release()
        if self._open != "text" and self._space and not self._items:
            self._begin_item("text")
            self.add_text("".join(self._space))
        self.end_item()
        self._events += self._ends

    def invalidate_calls(self) -> None:
        """Mark the calls so far as invalid: their values are not those that the model meant."""
        self._ends = [
            replace(end, arguments=None, raw=_text_of(end), state="invalid") if end.state == "complete" else end
            for end in self._ends
        ]

    def _final_state(self, state: CallState, position: int) -> CallState:
        """Return `invalid` for a complete call that `mark_invalid` marked, with a diagnostic."""
        if not self._flaw or state != "complete":
            return state
        self.add_diagnostic("invalid_arguments", position, self._flaw)
        return "invalid"

    def _end_call(self, end: CallEnd, position: int) -> None:
        """Emit the end of the call, with a diagnostic if it is truncated or not an object."""
        if end.state == "truncated":
            self.add_diagnostic("truncated", position, "the text ends inside a call")
        elif end.state == "invalid" and not self._flaw:
            self.add_diagnostic("invalid_arguments", position, "the arguments are not a JSON object")
        if self.spans is not None:
            self.spans.end_call(position)
        (self._ends if self.holds_ends else self._events).append(end)
        self.in_call = False

    def add_raw(self, piece: str) -> None:
        """Write more of the argument text: a value as JSON, or arguments that are no longer JSON."""
        self._raw.append(piece)
        if self._deltas:
            self._events.append(CallDelta(self._key, escape(piece)))

    def _raw_text(self) -> str:
        """Return the argument text of the current call."""
        for index in self._unescaped:
            self._raw[index] = escape(self._raw[index]).decode()
        self._unescaped = []
        return "".join(self._raw)

    def _next_key(self) -> int:
        self._items += 1
        return self._items - 1

    def _begin_item(self, kind: Literal["text", "reasoning"]) -> None:
        self.end_item()
        self._key = self._next_key()
        self._open = kind
        if self._deltas:
            self._events.append(TextStart(self._key) if kind == "text" else ReasoningStart(self._key))


def _truncate(end: CallEnd) -> CallEnd:
    """Return the end of a call that is not complete."""
    if end.state != "complete":
        return end
    return replace(end, arguments=None, raw=_text_of(end), state="truncated")


def _text_of(end: CallEnd) -> str:
    return dumps(end.arguments or {}) if end.raw is None else end.raw
