"""A stored run as a trace: `toolwire trace show` and `trace replay` read the events of a store like a recording.

    trace = trace_of_log(run_id, read_rows(runs, stored), Sanitiser(Redactor()))

The events of a store are complete and contain secrets; a trace is shown and shared, so it is sanitised here. A store has
no operations of subagents, whose runs are stored on their own, and only the names of a toolbox's tools: a replay needs
the agent or its tools.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import count
from typing import Any

import msgspec

from ...ir.errors import ProtocolError
from ...ir.parts import ToolResult
from ...ir.response import Usage
from ..session.events import RunEvent, RunFold, decode_events
from ..values.results import result_code
from .format import (
    VERSION,
    ApprovalAsked,
    ApprovalDecided,
    CallStarted,
    RequestSent,
    ResponseReceived,
    ResultReturned,
    RunEnded,
    RunStarted,
    TraceEvent,
    TraceHeader,
)
from .recordings import RunTrace, run_of
from .redact import REMOVED
from .sanitise import Sanitiser

_RUN = 1  # the span of the run itself


def trace_of_log(run_id: str, rows: Iterable[bytes], sanitiser: Sanitiser) -> RunTrace:
    """Return the trace of a stored run. Raises ProtocolError if its events are malformed."""
    builder = _TraceBuilder(sanitiser)
    for event in decode_events(rows):
        builder.add(event)
    if not builder.events:
        raise ProtocolError(f"run {run_id} has no events")
    recorded = datetime.fromtimestamp(builder.started, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    events = [sanitiser.sanitise_texts(event) for event in builder.events]
    return run_of(TraceHeader(VERSION, run_id, "run", recorded), events, f"run {run_id}")


class _TraceBuilder:
    """Folds the events of a run, and makes trace events of the steps."""

    def __init__(self, sanitiser: Sanitiser) -> None:
        self.events: list[TraceEvent] = []
        self.started = 0.0
        self._clean = sanitiser.sanitise_document
        self._clean_request = sanitiser.sanitise_request
        self._fold = RunFold()
        self._spans = count(_RUN + 1)
        self._at = 0.0  # the end of the step before: a request starts then
        self._base, self._sent = _RUN, 0  # the request before: its span and the number of its messages
        self._calls: dict[str, Any] = {}  # of the present turn, by id
        self._questions: dict[str, tuple[int, Any]] = {}  # spans of the calls that wait, by id

    def add(self, event: RunEvent) -> None:
        """Apply an event to the state, and append the trace events of its step."""
        before = self._fold.view()[self._sent :] if event.kind == "model_turn" else []
        total = self._sent + len(before)
        self._fold.add(event)
        document = self._fold.document
        if event.kind == "start":
            self.started = self._at = event.at
            request = self._clean_request(dict(document["request"]))
            run_id, agent = document["run_id"], document.get("agent") or ""
            self.events.append(RunStarted(ms=0.0, span=_RUN, run_id=run_id, agent=agent, request=request))
            self._sent = len(document["request"].get("messages", []))
        elif event.kind == "model_turn":
            self._add_turn(event, before, total)
        elif event.kind == "compaction":
            self._sent = 0  # the next request begins with other messages
        if event.kind in ("results", "decision"):
            self._add_results(event)
        self._add_questions(event)
        if document.get("phase") in ("done", "gave_up"):
            usage = msgspec.convert(document.get("usage"), Usage | None)
            reason, cost = document.get("reason", ""), document.get("cost")
            self.events.append(RunEnded(ms=self._ms(event.at), span=_RUN, reason=reason, usage=usage, cost=cost))
        self._at = event.at

    def _ms(self, at: float) -> float:
        return round((at - self.started) * 1000, 3)

    def _add_turn(self, event: RunEvent, added: list[Any], total: int) -> None:
        """Append a request and its response, and remember the calls.

        `added`: the messages since the last request; `total`: the number of all messages.
        """
        span, document = next(self._spans), self._fold.document
        others = {name: value for name, value in document["request"].items() if name not in ("messages", "tools")}
        body = {**self._clean_request({**others, "messages": added}), "tools": REMOVED}
        model = document["request"].get("model", "")
        where: dict[str, Any] = {"span": span, "parent": _RUN}
        self.events += [
            RequestSent(
                **where, ms=self._ms(self._at), model=model, body=body, base=self._base, kept=total - len(added)
            ),
            ResponseReceived(ms=self._ms(event.at), span=span, body=self._clean(document["response"])),
        ]
        self._base, self._sent = span, total
        self._calls = {call["id"]: call for call in document.get("turn", {}).get("calls", [])}

    def _add_results(self, event: RunEvent) -> None:
        """Add the calls of a turn with their results, once the conversation has them."""
        added = [item for splice in event.splices if splice.field == "request.messages" for item in splice.items]
        for part in [part for message in added for part in message.get("parts", [])]:
            call = self._calls.pop(part.get("call_id", ""), None) if part.get("part") == "result" else None
            if call is not None:
                span, code = next(self._spans), result_code(msgspec.convert(part, ToolResult))
                start = CallStarted(ms=self._ms(self._at), span=span, parent=_RUN, call=self._clean(call))
                self.events += [
                    start,
                    ResultReturned(ms=self._ms(event.at), span=span, result=self._clean(part), code=code),
                ]

    def _add_questions(self, event: RunEvent) -> None:
        """Add the questions that a step asked, and the decisions that it contains."""
        waiting = {call["call_id"]: call for call in self._fold.document.get("turn", {}).get("waiting", []) if call}
        for call_id, call in waiting.items():
            if call_id not in self._questions and not call.get("approved"):
                span = next(self._spans)
                self._questions[call_id] = span, call
                arguments, why = self._clean(call.get("arguments", {})), call.get("why", "")
                where: dict[str, Any] = {"ms": self._ms(event.at), "span": span, "parent": _RUN}
                self.events.append(ApprovalAsked(**where, tool=call["tool"], arguments=arguments, reason=why))
        for call_id, (span, _) in list(self._questions.items()):
            call = waiting.get(call_id)
            if call is None or call.get("approved"):
                edited = None if call is None else self._clean(call.get("edited_arguments"))
                decision = "denied" if call is None else "approved"
                self.events.append(
                    ApprovalDecided(ms=self._ms(event.at), span=span, decision=decision, arguments=edited)
                )
                del self._questions[call_id]
