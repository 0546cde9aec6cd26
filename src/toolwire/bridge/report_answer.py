"""Report fields that only the answering provider has: one loss for each field, in whole answers and in streams."""

from __future__ import annotations

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
from ..ir.parts import Extra
from ..ir.response import Response, Stop, Usage
from ..wire import get
from .foreign import report_extra

__all__ = ["AnswerReporter"]

_STARTS = (TextStart, ReasoningStart, CallStart, PartStart, WholePart)
_ENDS = (TextEnd, ReasoningEnd, CallEnd)


class AnswerReporter:
    """Report the losses of one answer that is translated to `wire`.

    A lost field of the envelope has the severity `info`; a lost field of a part is more severe.
    """

    __slots__ = ("_counts_tool_input", "_losses", "_paths", "_sizes", "_wire")

    def __init__(self, wire: str, losses: Losses) -> None:
        self._wire = wire
        self._counts_tool_input = get(wire).capabilities.counts_tool_input
        self._losses = losses
        self._paths: dict[int, str] = {}  # the path of each item of a stream, by key
        self._sizes: dict[int, int] = {}  # number of items by choice

    def report_response(self, response: Response) -> None:
        """Report the losses of a complete answer and its alternatives."""
        for choice, parts in enumerate((response.parts, *[other.parts for other in response.alternatives])):
            self._sizes[choice] = len(parts)
            for number, part in enumerate(parts):
                if extra := getattr(part, "extra", None):
                    path = f"{_choice_path(choice)}/parts/{number}"
                    report_extra(extra, path, self._wire, self._losses, scoped=False)
        self._report_usage(response.usage)
        self._report_end(unfold_end(response))

    def report_event(self, event: Event) -> None:
        """Report the losses of one event of a stream."""
        if isinstance(event, _STARTS):
            path = self._paths.get(event.key) or self._allocate_path(event.key, event.choice)
            if isinstance(event, WholePart):
                report_extra(getattr(event.part, "extra", {}), path, self._wire, self._losses, scoped=False)
            elif not isinstance(event, PartStart):
                report_extra(event.extra, path, self._wire, self._losses, scoped=False)
        elif isinstance(event, _ENDS):
            report_extra(event.extra, self._paths.get(event.key, "/parts"), self._wire, self._losses, scoped=False)
        elif isinstance(event, UsageUpdate):
            self._report_usage(event.usage)
        elif isinstance(event, ResponseStart):
            self._report_extra(event.extra, "")
        elif isinstance(event, ResponseEnd):
            self._report_end(event)
        elif isinstance(event, StreamFault):
            self._report_end(event.end)
            self.report_fault()

    def report_fault(self) -> None:
        """Report that the items so far are not an answer, because a fault ended it."""
        if any(self._sizes.values()):
            detail = "the answer ends in an error: none of its calls may be run"
            self._losses.add("", "answer", "dropped", detail, "error")

    def _report_end(self, end: ResponseEnd) -> None:
        self._report_extra(end.extra, "")
        for choice, extra in enumerate(end.choice_extras, 1):
            self._report_extra(extra, _choice_path(choice))
        for choice, stop in enumerate(end.stops):
            self._report_stop(stop, _choice_path(choice))

    def _allocate_path(self, key: int, choice: int) -> str:
        number = self._sizes.get(choice, 0)
        self._sizes[choice] = number + 1
        path = self._paths[key] = f"{_choice_path(choice)}/parts/{number}"
        return path

    def _report_stop(self, stop: Stop | None, path: str) -> None:
        if stop is not None:
            self._report_extra(stop.extra, f"{path}/stop")

    def _report_usage(self, usage: Usage | None) -> None:
        """Report usage fields that the target cannot carry."""
        if usage is None:
            return
        self._report_extra(usage.extra, "/usage")
        if usage.tool_input and not self._counts_tool_input:
            detail = f"{self._wire} does not count them separately"
            self._losses.add("/usage/tool_input", "input tokens of hosted tools", "dropped", detail, "info")

    def _report_extra(self, extra: Extra, path: str) -> None:
        if extra:
            report_extra(extra, path, self._wire, self._losses, as_info=True, scoped=False)


def _choice_path(choice: int) -> str:
    return f"/alternatives/{choice - 1}" if choice else ""
