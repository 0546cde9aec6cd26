"""Restore an answer of an emulated request: text goes through the format's parser, all other events pass through."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ...ir.events import (
    ArgumentEnd,
    CallDelta,
    CallEnd,
    CallStart,
    Event,
    ResponseEnd,
    StreamFault,
    TextDelta,
    TextEnd,
    TextStart,
)
from ...ir.losses import Losses
from ...ir.response import Stop
from ...ir.tools import Tool
from ...text.engine.event_builder import Diagnostic
from ...text.engine.format import Format, Parser

RETRYABLE_CODES = frozenset({"malformed", "invalid_arguments", "truncated", "other_format"})
"""The diagnostics after which the model is asked again."""
_TRUNCATING_REASONS = frozenset({"length", "context_window", "content_filter", "error", "unknown"})


class AnswerReader:
    """Convert the events of an answer to events with calls. Calls beyond `max_calls` are dropped, with a loss."""

    def __init__(
        self,
        form: Format,
        tools: Iterable[Tool],
        *,
        first_call: int = 0,
        max_calls: int | None = None,
        freeform: frozenset[str] = frozenset(),
        losses: Losses | None = None,
        answer_start: str = "",
        reasoning: bool | None = None,
        stops_after_calls: bool = False,
    ) -> None:
        """Create the reader of one answer in the text format `form`.

        `first_call` is the number of the first call id, `max_calls` the number of calls that the request allows.
        `freeform` are the names of freeform tools, which were sent as functions.
        `answer_start` is the beginning of the answer that the prompt already contains. `reasoning`: the answer begins
        inside reasoning; None: as the format does. `stops_after_calls` sets `should_stop` when the calls that the
        request allows are complete.
        """
        self.losses = Losses() if losses is None else losses
        self._answer_start = answer_start
        self._reasoning = reasoning
        self._stops_after_calls = stops_after_calls
        self._ended_calls: dict[int, int] = {}  # number of complete calls by choice
        self._form = form
        self._tools = tuple(tools)
        self._first_call = first_call
        self._max_calls = max_calls
        self._freeform = freeform
        self._parsers: dict[int, Parser] = {}  # by choice
        self._choice_of: dict[int, int] = {}  # by the key of a text item
        self._keys: dict[tuple[int, int], int] = {}  # by choice (-1: not from a parser) and original key
        self._next_key = 0
        self._calls: dict[int, int] = {}  # number of calls by choice
        self._dropped_keys: set[int] = set()
        self._truncated_choices: set[int] = set()  # choices with an incomplete call
        self._inputs: dict[int, str] = {}  # keys of open freeform calls
        self._ended = False

    @property
    def should_stop(self) -> bool:
        """True if later events are irrelevant: abort the generation, then call `close`."""
        return bool(self._parsers) and all(
            parser.should_stop or self._has_all_calls(choice) for choice, parser in self._parsers.items()
        )

    def _has_all_calls(self, choice: int) -> bool:
        return self._stops_after_calls and bool(self._max_calls) and self._ended_calls.get(choice, 0) == self._max_calls

    @property
    def diagnostics(self) -> list[Diagnostic]:
        return [note for parser in self._parsers.values() for note in parser.diagnostics]

    @property
    def has_problem(self) -> bool:
        """True if a call in the text could not be parsed."""
        return any(note.code in RETRYABLE_CODES for note in self.diagnostics)

    def feed(self, event: Event) -> list[Event]:
        """Return the events for `event`: calls in its text become events of their own, other items get new keys."""
        if isinstance(event, TextStart) and not event.refusal:
            self._choice_of[event.key] = event.choice
            return self._begin(event.choice)
        if isinstance(event, TextDelta) and event.key in self._choice_of:
            choice = self._choice_of[event.key]
            return self._convert_events(choice, self._parser_for(choice).feed(event.text))
        if isinstance(event, TextEnd) and event.key in self._choice_of:
            return []  # the parser ends its own items
        if isinstance(event, ResponseEnd):
            return self._finish(event)
        if isinstance(event, StreamFault):
            return [*self._close_all({}), event]
        key = getattr(event, "key", None)
        return [event] if key is None else [replace(event, key=self._key_for(-1, key))]

    def close(self) -> list[Event]:
        """End a stream that was aborted because of `should_stop`."""
        return [] if self._ended else self._finish(ResponseEnd((Stop("stop"),)))

    def _finish(self, end: ResponseEnd) -> list[Event]:
        self._ended = True
        stops = dict(enumerate(end.stops))
        events = [*self._begin(0), *self._close_all(stops)]
        adjusted = tuple(self._adjust_stop(choice, stop) for choice, stop in stops.items())
        return [*events, replace(end, stops=adjusted)]

    def _close_all(self, stops: dict[int, Stop | None]) -> list[Event]:
        """Close the parsers. Without a stop, or after a truncating one, an open call is incomplete."""
        events: list[Event] = []
        for choice, parser in self._parsers.items():
            stop = stops.get(choice)
            events += self._convert_events(
                choice, parser.close(finished=stop is not None and stop.reason not in _TRUNCATING_REASONS)
            )
        return events

    def _adjust_stop(self, choice: int, stop: Stop | None) -> Stop | None:
        """Return `tool_calls` for an answer with calls, and `length` if a call is incomplete."""
        if stop is None:
            return Stop("length") if choice in self._truncated_choices else None
        has_calls = self._calls.get(choice, 0) > 0
        if choice in self._truncated_choices and stop.reason not in _TRUNCATING_REASONS:
            return replace(stop, reason="length", sequence=None)  # a client must not run an incomplete call
        return (
            replace(stop, reason="tool_calls", sequence=None)
            if has_calls and stop.reason not in _TRUNCATING_REASONS
            else stop
        )

    def _begin(self, choice: int) -> list[Event]:
        """Parse the beginning of the answer that is in the prompt, once, also if no text follows it."""
        if not self._answer_start or choice in self._parsers:
            return []
        return self._convert_events(choice, self._parser_for(choice).feed(self._answer_start))

    def _parser_for(self, choice: int) -> Parser:
        found = self._parsers.get(choice)
        if found is None:
            found = self._form.parser(self._tools, first_call=self._first_call, reasoning=self._reasoning)
            self._parsers[choice] = found
        return found

    def _key_for(self, source: int, key: int) -> int:
        found = self._keys.get((source, key))
        if found is None:
            found = self._keys[source, key] = self._next_key
            self._next_key += 1
        return found

    def _convert_events(self, choice: int, events: Iterable[Event]) -> list[Event]:
        """Return the parser's events with our keys, for this choice, without surplus calls; count its calls."""
        converted: list[Event] = []
        for event in events:
            key = self._key_for(choice, event.key)  # type: ignore[union-attr]  # a parser emits only items
            if isinstance(event, CallStart):
                number = self._calls.get(choice, 0)
                if self._max_calls is not None and number >= self._max_calls:
                    self._drop_call(key, choice, event.name)
                else:
                    self._calls[choice] = number + 1
            if key in self._dropped_keys:
                continue
            if isinstance(event, CallEnd):
                self._ended_calls[choice] = self._ended_calls.get(choice, 0) + 1
                if event.state == "truncated":
                    self._truncated_choices.add(choice)
            rekeyed: Event = replace(event, key=key)
            if hasattr(rekeyed, "choice") and choice:
                rekeyed = replace(rekeyed, choice=choice)
            converted += self._as_freeform(rekeyed, key)
        return converted

    def _drop_call(self, key: int, choice: int, name: str) -> None:
        """Drop a call that the request does not allow."""
        self._dropped_keys.add(key)
        allowed = "no calls" if self._max_calls == 0 else "one call at a time"
        path = f"/alternatives/{choice - 1}/parts" if choice else "/parts"
        self.losses.add(path, f"call of {name}", "dropped", f"the request allows {allowed}", "error")

    def _as_freeform(self, event: Event, key: int) -> list[Event]:
        """Turn the events of a call back into a freeform call if its tool was sent as a function with one input.

        The deltas are JSON of that function, so they are dropped; the input is emitted at the end of the call.
        """
        if isinstance(event, CallStart) and event.name in self._freeform:
            self._inputs[key] = ""
            return [replace(event, kind="freeform")]
        if key not in self._inputs:
            return [event]
        if isinstance(event, (CallDelta, ArgumentEnd)):
            return []
        if isinstance(event, CallEnd):
            given = (event.arguments or {}).get("input")
            raw = given if isinstance(given, str) else event.raw or ""
            return [CallDelta.of(key, raw), replace(event, arguments=None, raw=raw)]
        return [event]
