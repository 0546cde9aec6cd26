"""Fields that only the answering provider has: convert log probabilities, and report one loss for each other field.

The same losses are reported for whole answers and for streams.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter, methodcaller
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.events import (
    CallEnd,
    CallStart,
    Event,
    PartStart,
    ReasoningEnd,
    ReasoningStart,
    ResponseEnd,
    ResponseStart,
    StreamFault,
    TextEnd,
    TextStart,
    UsageUpdate,
    WholePart,
)
from ...ir.folding import unfold_end
from ...ir.losses import Losses
from ...ir.parts import Extra, Opaque, Part, Text
from ...ir.pointer import Object
from ...ir.response import Response, Stop, Usage
from ...wire import get
from ...wire.codec import LogprobForm
from ..fitting.fields import report_extra

# Every wire has log probabilities at the end of a stream, so they are delivered there: Chat in the chunk with the finish reason,
# Gemini and Ollama in their last event, Responses in the text of `response.completed`.


class LogprobConverter:
    """Move an answer's log probabilities from its wire's extras to the extras of `wire`.

    `take` and `take_event` remove them from the answer, so that they are not reported as lost; `put` and `put_event` add
    them in their new form. A wire without log probabilities gets the answer as it is.
    """

    __slots__ = ("_losses", "_target", "_tokens", "_wire")

    def __init__(self, wire: str, losses: Losses) -> None:
        self._wire = wire
        self._target: LogprobForm | None = getattr(get(wire), "logprobs", None)
        self._losses = losses
        self._tokens: dict[int, list[Object]] = {}  # by choice

    def take(self, response: Response) -> Response:
        """Return a whole answer without log probabilities of another wire; keep their tokens for `put`."""
        if self._target is None:
            return response
        parts = tuple([self._take_text(part) for part in response.parts])
        stop = self._take_stop(0, response.stop)
        others = tuple(
            [
                replace(other, stop=self._take_stop(number, other.stop))
                for number, other in enumerate(response.alternatives, 1)
            ]
        )
        extra = self._take(0, response.extra, "response", "")
        return replace(response, parts=parts, stop=stop, alternatives=others, extra=extra)

    def put(self, response: Response) -> Response:
        """Return a whole answer with the tokens that `take` kept, in the target's position.

        Report a loss if the position is a text and there is none.
        """
        target, tokens = self._target, self._tokens
        if target is None or not tokens:
            return response
        if target.position == "response":
            return replace(response, extra=self._put(0, response.extra, target))
        if target.position == "text":
            parts, number = list(response.parts), _first_text(response.parts)
            text = None if number is None else parts[number]
            if number is None or not isinstance(text, Text):
                self._losses.add("/stop", "logprobs", "dropped", "the answer has no text", "info")
                return response
            parts[number] = replace(text, extra=self._put(0, text.extra, target))
            return replace(response, parts=tuple(parts))
        others = [
            replace(other, stop=self._put_stop(number, other.stop, target))
            for number, other in enumerate(response.alternatives, 1)
        ]
        return replace(response, stop=self._put_stop(0, response.stop, target), alternatives=tuple(others))

    def take_event(self, event: Event) -> Event:
        """Like `take`, for an event of a stream: only the ends of texts and of the answer have log probabilities."""
        if self._target is None:
            return event
        if type(event) is TextEnd:
            return replace(event, extra=self._take(0, event.extra, "text", "")) if event.extra else event
        if type(event) is ResponseEnd:
            stops = tuple([self._take_stop(number, stop) for number, stop in enumerate(event.stops)])
            return replace(event, stops=stops, extra=self._take(0, event.extra, "response", ""))
        return event

    def put_event(self, event: Event) -> Event:
        """Like `put`, for the end of the answer; any other event is unchanged."""
        target = self._target
        if target is None or not self._tokens or type(event) is not ResponseEnd:
            return event
        if target.position == "response":
            return replace(event, extra=self._put(0, event.extra, target))
        # the texts of a stream have ended, so the encoder finds the first choice's log probabilities at its stop
        return replace(
            event, stops=tuple([self._put_stop(number, stop, target) for number, stop in enumerate(event.stops)])
        )

    def _take_text(self, part: Part) -> Part:
        if not isinstance(part, Text) or not part.extra:
            return part
        return replace(part, extra=self._take(0, part.extra, "text", ""))

    def _take_stop(self, choice: int, stop: Stop | None) -> Stop | None:
        if stop is None or not stop.extra:
            return stop
        path = f"/alternatives/{choice - 1}/stop" if choice else "/stop"
        return replace(stop, extra=self._take(choice, stop.extra, "stop", path))

    def _take(self, choice: int, extra: Extra, position: str, path: str) -> Extra:
        """Return `extra` without another wire's log probabilities at this `position`; keep their tokens for `choice`.

        A part of the tokens that the target has no field for is reported.
        """
        for scope, fields in extra.items():
            form = None if scope.partition("/")[0] == self._wire else _find_form(scope)
            if form is None or form.position != position or form.field not in fields:
                continue
            tokens = form.read(fields[form.field])
            if tokens is None:
                continue
            self._tokens.setdefault(choice, []).extend(tokens)
            if form.omitted is not None:
                detail = f"{self._wire} has no such field of a token"
                self._losses.add(f"{path}/{form.field}", form.omitted, "dropped", detail, "info")
            rest = {name: value for name, value in fields.items() if name != form.field}
            return {name: rest if name == scope else value for name, value in extra.items() if name != scope or rest}
        return extra

    def _put(self, choice: int, extra: Extra, target: LogprobForm) -> Extra:
        tokens = self._tokens.get(choice)
        if not tokens:
            return extra
        return {**extra, target.scope: {**extra.get(target.scope, {}), target.field: target.write(tokens)}}

    def _put_stop(self, choice: int, stop: Stop | None, target: LogprobForm) -> Stop | None:
        return stop if stop is None else replace(stop, extra=self._put(choice, stop.extra, target))


_extra = attrgetter("extra")


def _has_only_forms(response: Response) -> bool:
    """Return whether an answer has no fields of its provider besides the form of the document. Nearly all have none."""
    stop, usage, parts = response.stop, response.usage, response.parts
    if response.alternatives or (stop is not None and stop.extra):
        return False
    if usage is not None and (usage.extra or usage.tool_input):
        return False
    if Opaque in map(type, parts) or any(map(_extra, parts)):
        return False
    return all(map(_is_form, response.extra))


_is_form = methodcaller("endswith", "~")


def may_have_logprobs(response: Response) -> bool:
    """Return whether an answer may have log probabilities. Nearly all have none, and need no converter."""
    stop = response.stop
    if response.alternatives or (stop is not None and stop.extra) or any(map(_find_form, response.extra)):
        return True
    return any(part.extra for part in response.parts if type(part) is Text)


@lru_cache(256)
def _find_form(scope: str) -> LogprobForm | None:
    """Return the form of the wire whose extras have this name, or None if they have no log probabilities."""
    try:
        form: LogprobForm | None = getattr(get(scope.partition("/")[0]), "logprobs", None)
    except ConfigError:
        return None  # an extra of something else than a wire
    return form if form is not None and form.scope == scope else None


def _first_text(parts: tuple[Part, ...]) -> int | None:
    return next((number for number, part in enumerate(parts) if isinstance(part, Text)), None)


class AnswerReporter(Struct, eq=False):
    """Report the losses of one answer that is translated to `wire`.

    A lost field of the envelope has the severity `info`; a lost field of a part is more severe.
    """

    _wire: str
    _losses: Losses
    _paths: dict[int, str] = {}  # the path of each item of a stream, by key
    _sizes: dict[int, int] = {}  # number of items by choice
    _converter: LogprobConverter | None = None

    @property
    def _logprobs(self) -> LogprobConverter:
        if self._converter is None:
            self._converter = LogprobConverter(self._wire, self._losses)
        return self._converter

    def report_response(self, response: Response) -> Response:
        """Report the losses of a complete answer and its alternatives. Return it with converted log probabilities."""
        if _has_only_forms(response):
            self._sizes[0] = len(response.parts)
            return response
        if not may_have_logprobs(response):
            self._report_whole(response)
            return response
        response = self._logprobs.take(response)
        self._report_whole(response)
        return self._logprobs.put(response)

    def _report_whole(self, response: Response) -> None:
        """Report the fields of a whole answer that the target lacks: in parts, usage, stops and envelope."""
        self._report_parts(0, response.parts)
        for choice, other in enumerate(response.alternatives, 1):
            self._report_parts(choice, other.parts)
        usage, stop = response.usage, response.stop
        if usage is not None and (usage.extra or usage.tool_input):
            self._report_usage(usage)
        if response.alternatives or (stop is not None and stop.extra):
            self._report_end(unfold_end(response))
        elif response.extra:
            self._report_extra(response.extra, "")

    def _report_parts(self, choice: int, parts: tuple[Part, ...]) -> None:
        self._sizes[choice] = len(parts)
        for number, part in enumerate(parts):
            if not isinstance(part, Opaque) and part.extra:
                self._report_part_extra(part.extra, f"{_choice_path(choice)}/parts/{number}")

    def report_event(self, event: Event) -> Event:
        """Report the losses of one event of a stream; deltas have none. Return it with converted log probabilities."""
        kind = type(event)
        report = _STEPS.get(kind)
        if report is None:
            return event
        if kind is not ResponseEnd and not (kind is TextEnd and event.extra):  # type: ignore[union-attr]
            report(self, event)
            return event
        event = self._logprobs.take_event(event)
        report(self, event)
        return self._logprobs.put_event(event)

    def _report_start(self, event: TextStart | ReasoningStart | CallStart) -> None:
        path = self._paths.get(event.key) or self._allocate_path(event.key, event.choice)
        self._report_part_extra(event.extra, path)

    def _report_part_start(self, event: PartStart) -> None:
        if event.key not in self._paths:
            self._allocate_path(event.key, event.choice)

    def _report_whole_part(self, event: WholePart) -> None:
        path = self._paths.get(event.key) or self._allocate_path(event.key, event.choice)
        self._report_part_extra(getattr(event.part, "extra", {}), path)

    def _report_item_end(self, event: TextEnd | ReasoningEnd | CallEnd) -> None:
        if event.extra:
            self._report_part_extra(event.extra, self._paths.get(event.key, "/parts"))

    def _report_usage_update(self, event: UsageUpdate) -> None:
        self._report_usage(event.usage)

    def _report_response_start(self, event: ResponseStart) -> None:
        self._report_extra(event.extra, "")

    def _report_stream_fault(self, event: StreamFault) -> None:
        self._report_end(event.end)
        self.report_fault(has_items=any(self._sizes.values()))

    def report_fault(self, *, has_items: bool) -> None:
        """Report that the items so far are not an answer, because a fault ended it."""
        if has_items:
            detail = "the answer ends in an error: none of its calls may be run"
            self._losses.add("", "answer", "dropped", detail, "error")

    def _report_end(self, end: ResponseEnd) -> None:
        if end.extra:
            self._report_extra(end.extra, "")
        for choice, extra in enumerate(end.choice_extras, 1):
            self._report_extra(extra, _choice_path(choice))
        for choice, stop in enumerate(end.stops):
            if stop is not None and stop.extra:
                self._report_extra(stop.extra, f"{_choice_path(choice)}/stop")

    def _allocate_path(self, key: int, choice: int) -> str:
        number = self._sizes.get(choice, 0)
        self._sizes[choice] = number + 1
        path = self._paths[key] = f"{_choice_path(choice)}/parts/{number}"
        return path

    def _report_usage(self, usage: Usage) -> None:
        """Report usage fields that the target cannot carry."""
        if usage.extra:
            self._report_extra(usage.extra, "/usage")
        if usage.tool_input and not get(self._wire).capabilities.counts_tool_input:
            detail = f"{self._wire} does not count them separately"
            self._losses.add("/usage/tool_input", "input tokens of hosted tools", "dropped", detail, "info")

    def _report_part_extra(self, extra: Extra, path: str) -> None:
        if extra:
            report_extra(extra, path, self._wire, self._losses, scoped=False)

    def _report_extra(self, extra: Extra, path: str) -> None:
        if extra:
            report_extra(extra, path, self._wire, self._losses, as_info=True, scoped=False)


def _choice_path(choice: int) -> str:
    return f"/alternatives/{choice - 1}" if choice else ""


_STEPS: dict[type, Callable[[AnswerReporter, Any], None]] = {
    ResponseStart: AnswerReporter._report_response_start,
    TextStart: AnswerReporter._report_start,
    TextEnd: AnswerReporter._report_item_end,
    ReasoningStart: AnswerReporter._report_start,
    ReasoningEnd: AnswerReporter._report_item_end,
    CallStart: AnswerReporter._report_start,
    CallEnd: AnswerReporter._report_item_end,
    PartStart: AnswerReporter._report_part_start,
    WholePart: AnswerReporter._report_whole_part,
    UsageUpdate: AnswerReporter._report_usage_update,
    ResponseEnd: AnswerReporter._report_end,
    StreamFault: AnswerReporter._report_stream_fault,
}
