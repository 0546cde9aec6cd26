"""Report fields that only the answering provider has: one loss for each field, in whole answers and in streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ..ir.events import (
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
from ..ir.folding import unfold_end
from ..ir.losses import Losses
from ..ir.parts import Extra, Opaque, Part
from ..ir.response import Response, Usage
from ..wire import get
from .convert_logprobs import LogprobConverter, may_have_logprobs
from .foreign import report_extra

__all__ = ["AnswerReporter"]


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
        if not may_have_logprobs(response):
            self._report_whole(response)
            return response
        response = self._logprobs.take(response)
        self._report_whole(response)
        return self._logprobs.put(response)

    def _report_whole(self, response: Response) -> None:
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
        self.report_fault()

    def report_fault(self) -> None:
        """Report that the items so far are not an answer, because a fault ended it."""
        if any(self._sizes.values()):
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
