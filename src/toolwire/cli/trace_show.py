"""`toolwire trace show`: show one recorded exchange."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ir.errors import ToolwireError
from ..ir.parts import ToolCall, ToolResult
from ..ir.terminal import neutralise_line
from ..ir.text import dumps
from .show import columns, json_text, losses_table, paint, table

if TYPE_CHECKING:
    from ..gateway.observe.trace import RecordedAnswer, RecordedExchange, Trace
    from ..ir.parts import Part
    from ..ir.request import Request
    from ..ir.response import Response

__all__ = ["decode_answer", "decode_client_request", "show"]

_MAX_WIDTH = 80  # characters shown of arguments and results


def show(arguments: argparse.Namespace) -> int:
    """Print the times, calls, results and losses of a recording, and with `--bodies` the bodies."""
    from ..gateway.observe.trace import load_recording

    trace = load_recording(Path(arguments.file))
    if arguments.json:
        print(json_text(_trace_as_json(trace)))
        return 0
    print(paint(_format_title(trace), "bold"))
    print()
    print("\n".join(table(_event_times(trace), ("ms", "event"))))
    request, response = decode_client_request(trace), decode_answer(trace.ingress)
    _print_calls(request, response)
    if trace.outcome.losses:
        print(f"\n{paint('losses', 'bold')}")
        print("\n".join(losses_table(trace.outcome.losses, sys.stdout)))
    if arguments.bodies:
        _print_bodies(trace)
    return 0


def decode_client_request(trace: Trace) -> Request | None:
    """Decode the client's request; return None if it is not valid."""
    from msgspec.structs import replace

    from ..gateway.routes import match_route
    from ..stream.strict import parse_object
    from ..wire import get

    try:
        request = get(trace.ingress.wire).decode_request(parse_object(trace.ingress.data))
    except ToolwireError:
        return None
    place = match_route("POST", trace.ingress.path, {})
    return replace(request, model=place.model) if place is not None and place.model else request


def decode_answer(exchange: RecordedExchange) -> Response | None:
    """Decode the response; return None for an error or a truncated response."""
    from ..ir.folding import fold
    from ..stream.strict import parse_object
    from ..wire import get

    answer = exchange.answer
    if answer is None or not 200 <= answer.status < 300:
        return None
    wire = get(exchange.wire)
    try:
        if not answer.pieces:
            return wire.decode_response(parse_object(answer.data))
        decoder = wire.stream_decoder()
        return fold([*decoder.feed(answer.data), *decoder.close()])
    except ToolwireError:
        return None


def _format_title(trace: Trace) -> str:
    """Summarise the exchange in one line: wire, model, upstream, status, error or stop reason, tokens."""
    outcome = trace.outcome
    there = f"{outcome.upstream}/{outcome.upstream_model}" if outcome.upstream else "no upstream"
    how = " unchanged" if outcome.passed else ""
    words = [f"{trace.ingress.wire} {outcome.model} → {there}{how}", str(outcome.status)]
    words += [outcome.error] if outcome.error else [outcome.stop] if outcome.stop else []
    if outcome.usage is not None:
        words.append(f"{outcome.usage.input} + {outcome.usage.output} tokens")
    return neutralise_line("   ".join(words))


def _event_times(trace: Trace) -> list[tuple[str, str]]:
    """Return (milliseconds, event) rows of both sides of the gateway, in the order of time."""
    rows = [(0.0, f"{trace.ingress.method} {trace.ingress.path}, {len(trace.ingress.data)} bytes")]
    for exchange in trace.upstreams:
        rows.append((exchange.ms, f"request to {exchange.upstream} on {exchange.wire}, {len(exchange.data)} bytes"))
        if exchange.answer is not None:
            rows += _answer_times(exchange.answer, exchange.upstream)
    if trace.ingress.answer is not None:
        rows += _answer_times(trace.ingress.answer, "response")
    rows.append((trace.outcome.ms, f"done; gateway overhead {trace.outcome.overhead_ms} ms"))
    return [(f"{ms:.1f}", what) for ms, what in sorted(rows, key=lambda row: row[0])]


def _answer_times(answer: RecordedAnswer, who: str) -> list[tuple[float, str]]:
    """Return the rows of one answer. `who` is the upstream, or "response" for the answer to the client."""
    if not answer.status:
        return [(answer.ms, f"{who}: {answer.error or 'no response'}")]
    rows = [(answer.ms, f"{who}: {answer.status}, {len(answer.data)} bytes")]
    if answer.pieces:
        first, last = answer.pieces[0], answer.pieces[-1]
        rows[0] = (answer.ms, f"{who}: {answer.status}, a stream of {len(answer.data)} bytes")
        rows += [
            (first.ms, f"{who}: first of {len(answer.pieces)} chunks"),
            (last.ms, f"{who}: last chunk"),
        ]
    if answer.error:
        rows.append((rows[-1][0], f"{who}: {answer.error}"))
    return rows


def _print_calls(request: Request | None, response: Response | None) -> None:
    """Print the results in the request, then the calls and the text of the response."""
    rows: list[tuple[str, str, str]] = []
    names = {part.id: part.name for part in _request_parts(request) if isinstance(part, ToolCall)}
    for result in _last_results(request):
        rows.append(("result", result.name or names.get(result.call_id, result.call_id), _shorten(result.text)))
    for call in response.calls if response is not None else ():
        rows.append(("call", call.name, _shorten(_format_arguments(call))))
    if response is not None and response.text:
        rows.append(("text", "", _shorten(response.text)))
    if rows:
        print()
        print("\n".join(table(rows, ("", "tool", "content"))))


def _request_parts(request: Request | None) -> list[Part]:
    return [part for message in request.messages for part in message.parts] if request is not None else []


def _last_results(request: Request | None) -> list[ToolResult]:
    return [part for part in _request_parts(request) if isinstance(part, ToolResult)]


def _format_arguments(call: ToolCall) -> str:
    return dumps(call.arguments) if call.arguments is not None else call.raw or ""


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_WIDTH else text[: _MAX_WIDTH - 1] + "…"


def _print_bodies(trace: Trace) -> None:
    """Print the requests of both sides next to each other, then the answers."""
    asked = {f"{trace.ingress.wire} request": _format_body(trace.ingress.body)}
    said = {f"{trace.ingress.wire} answer": _answer_text(trace.ingress.answer)}
    for number, exchange in enumerate(trace.upstreams, 1):
        name = f"{exchange.upstream} {number}" if len(trace.upstreams) > 1 else exchange.upstream
        asked[f"{name} ({exchange.wire}) request"] = _format_body(exchange.body)
        said[f"{name} ({exchange.wire}) answer"] = _answer_text(exchange.answer)
    for side in (asked, said):
        print()
        print("\n".join(columns(side)).rstrip())


def _format_body(body: Any) -> str:
    return body if isinstance(body, str) else json_text(body)


def _answer_text(answer: RecordedAnswer | None) -> str:
    if answer is None:
        return ""
    if answer.pieces:
        return answer.data.decode("utf-8", "replace")
    return _format_body(answer.body)


def _trace_as_json(trace: Trace) -> dict[str, Any]:
    import msgspec

    response = decode_answer(trace.ingress)
    return {
        "id": trace.id,
        "recorded": trace.recorded,
        "ingress": trace.ingress.wire,
        "outcome": msgspec.to_builtins(trace.outcome),
        "calls": msgspec.to_builtins(response.calls) if response is not None else [],
        "results": msgspec.to_builtins(_last_results(decode_client_request(trace))),
        "text": response.text if response is not None else "",
        "times": [{"ms": float(ms), "what": what} for ms, what in _event_times(trace)],
    }
