"""Show a recorded exchange of the gateway: a timeline of both sides, calls, results and losses.

In a timeline, operations are bars on a common time axis, so that parallel operations are below each other.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ...ir.errors import ToolwireError
from ...ir.parts import Part, ToolCall, ToolResult
from ...ir.terminal import count_of, neutralise_line
from ...ir.text import dumps, shorten
from ...stream.strict import parse_object
from ...wire import get
from ..terminal.layout import wrap_text
from ..terminal.output import columns, json_text, losses_table, paint, table, terminal_width

if TYPE_CHECKING:
    from ...ir.request import Request
    from ...ir.response import Response
    from ...run.traces.recordings import ExchangeTrace, RecordedAnswer, RecordedExchange


_WIDEST = 160  # columns, also of a file; in longer bars the labels are far from their ends
_MIN_BAR = 8  # characters: both ends of the axis, such as `0 413 ms`
_MAX_LABEL = 28  # characters, at most half of the terminal
_MAX_NOTE = 28  # characters, at most the rest beside the shortest bar
_DURATION = 8  # characters of a duration column, such as `12.345 s`


class TimelineRow(NamedTuple):
    """An operation. `end` is None if it never ended; `colour` is the colour of its bar."""

    label: str
    start: float  # milliseconds
    end: float | None
    note: str = ""
    colour: str = "blue"
    depth: int = 0


def draw_timeline(rows: Sequence[TimelineRow], total: float) -> list[str]:
    """Return the lines of a timeline: label, bar, duration and note. `total` is the length of the axis in milliseconds.

    A note that does not fit beside its bar has lines of its own below it.
    """
    width = min(terminal_width(), _WIDEST)
    most = min(_MAX_LABEL, width // 2)
    labels = [shorten("  " * min(row.depth, 6) + neutralise_line(row.label), most) for row in rows]
    label_width = max(map(len, ["operation", *labels]))
    room = max(width - label_width - _DURATION - 6, _MIN_BAR)
    notes = [neutralise_line(row.note) for row in rows]
    widest = min(_MAX_NOTE, room - _MIN_BAR)
    note_width = max((len(note) for note in notes if len(note) <= widest), default=0)
    note_width = max(note_width, len("note")) if note_width else 0
    bar_width, indent = room - note_width, " " * (label_width + 2)
    end = format_ms(total)
    axis = ("0".ljust(bar_width - len(end)) + end)[-bar_width:]
    lines = [paint(f"{'operation'.ljust(label_width)}  {axis}  duration{'  note' if note_width else ''}", "dim")]
    for row, label, note in zip(rows, labels, notes, strict=True):
        bar = paint(_bar(row, total, bar_width), row.colour)
        duration = "no end" if row.end is None else format_ms(row.end - row.start)
        is_beside = len(note) <= note_width
        beside = note if is_beside else ""
        lines.append(f"{label.ljust(label_width)}  {bar}  {duration.rjust(_DURATION)}  {beside}".rstrip())
        lines += [] if is_beside else [f"{indent}{part}" for part in wrap_text(note, max(width - len(indent), 1))]
    return lines


def _bar(row: TimelineRow, total: float, width: int) -> str:
    """Return the bar of a row: at least one character, and never longer than the axis."""
    scale = width / total if total > 0 else 0.0
    first = min(int(row.start * scale), width - 1)
    last = width if row.end is None else math.ceil(row.end * scale)
    length = max(min(last, width) - first, 1)
    body = "━" * length if row.end is not None else "━" * (length - 1) + "╌"
    return (" " * first + body).ljust(width)


def format_ms(ms: float) -> str:
    """Format a duration: 0.4 ms, 412 ms, 1.84 s, 12 min.

    >>> [format_ms(ms) for ms in (0.42, 412.6, 1842.0, 720_000.0)]
    ['0.4 ms', '413 ms', '1.84 s', '12.0 min']
    """
    if ms < 10:
        return f"{ms:.1f} ms"
    if ms < 1000:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.2f} s" if ms < 120_000 else f"{ms / 60_000:.1f} min"


MAX_CONTENT = 2000  # characters shown of an argument or a result, a screen
MAX_LISTED = 160  # the same, in a list of several traces
CONTENT_HEADERS = ("kind", "tool", "content")


def print_exchange(trace: ExchangeTrace, *, bodies: bool, most: int) -> None:
    """Print the timeline, calls, results and losses, and with `bodies` the bodies. `most`: characters of a result."""
    print_title(_title_fields(trace))
    print()
    print("\n".join(draw_timeline(_rows(trace), trace.outcome.ms)))
    print(f"gateway overhead {format_ms(trace.outcome.overhead_ms)}")
    _print_calls(decode_client_request(trace), decode_answer(trace.ingress), most)
    if trace.losses:
        print(f"\n{paint('losses', 'bold')}")
        print("\n".join(losses_table(trace.losses, sys.stdout)))
    if bodies:
        _print_bodies(trace)


def decode_client_request(trace: ExchangeTrace) -> Request | None:
    """Decode the client's request, with the model of its path if the wire has it there; None if it is not valid."""
    from ...gateway.request.routes import match_route

    recorded = trace.ingress.request
    try:
        request = get(recorded.wire).decode_request(parse_object(trace.ingress.data))
    except ToolwireError:
        return None
    place = match_route("POST", recorded.path, {})
    return replace(request, model=place.model) if place is not None and place.model else request


def decode_answer(exchange: RecordedExchange) -> Response | None:
    """Decode the response; return None for an error or a truncated response."""
    from ...ir.folding import fold

    answer = exchange.answer
    if answer is None or not 200 <= answer.head.status < 300:
        return None
    wire = get(exchange.request.wire)
    try:
        if not answer.pieces:
            return wire.decode_response(parse_object(answer.data))
        decoder = wire.stream_decoder()
        return fold([*decoder.feed(answer.data), *decoder.close()])
    except ToolwireError:
        return None


def print_title(fields: Sequence[str]) -> None:
    """Print the fields of a summary in bold. On a narrow terminal they wrap between fields."""
    joined = "   ".join(field.replace(" ", "\0") for field in map(neutralise_line, fields) if field)
    width = terminal_width() if sys.stdout.isatty() else sys.maxsize
    for line in wrap_text(joined, width, splits_words=False):
        print("\n".join(paint(part, "bold") for part in wrap_text(line.replace("\0", " "), width)))


def _title_fields(trace: ExchangeTrace) -> list[str]:
    """Summarise the exchange: wire, model, upstream, status, error or stop reason, tokens."""
    outcome = trace.outcome
    there = f"{outcome.upstream}/{outcome.upstream_model}" if outcome.upstream else "no upstream"
    how = ", passed on unchanged" if outcome.passed else ""
    fields = [f"{trace.ingress.request.wire} {outcome.model} → {there}{how}", str(outcome.status)]
    fields += [outcome.error] if outcome.error else [outcome.stop] if outcome.stop else []
    if outcome.usage is not None:
        fields.append(f"tokens {outcome.usage.input} in, {outcome.usage.output} out")
    return fields


def _rows(trace: ExchangeTrace) -> list[TimelineRow]:
    """Return the client's side, each attempt on an upstream with its stream, and the answer to the client."""
    client = trace.ingress
    status = "no response" if client.answer is None else f"{client.answer.head.status}"
    note = f"{len(client.data)} bytes → {status}"  # the request's size
    rows = [TimelineRow(f"{client.request.method} {client.request.path}", 0.0, trace.outcome.ms, note, "green")]
    for exchange in trace.upstreams:
        rows += _side_rows(exchange, f"{exchange.request.upstream} ({exchange.request.wire})", exchange.request.ms)
    if client.answer is not None and client.answer.pieces:
        rows.append(_stream_row(client.answer, 1))
    return rows


def _side_rows(exchange: RecordedExchange, label: str, start: float) -> list[TimelineRow]:
    """Return the timeline rows of an exchange from `start`: the response, and a second row for its stream."""
    answer = exchange.answer
    if answer is None:
        return [TimelineRow(label, start, None, "no response", "red", 1)]
    head, colour = answer.head, "blue" if 200 <= answer.head.status < 300 and not answer.head.error else "red"
    note = f"{head.status}, {len(answer.data)} bytes" if head.status else ""
    note = ", ".join(filter(None, (note, head.error)))
    if not answer.pieces:
        return [TimelineRow(label, start, head.ms, note, colour, 1)]
    return [TimelineRow(label, start, answer.pieces[-1].ms, note, colour, 1), _stream_row(answer, 2)]


def _stream_row(answer: RecordedAnswer, depth: int) -> TimelineRow:
    first, last, count = answer.pieces[0].ms, answer.pieces[-1].ms, count_of(len(answer.pieces), "piece")
    return TimelineRow(f"stream, {count}", first, last, f"first at {format_ms(first)}", "dim", depth)


def _print_calls(request: Request | None, response: Response | None, most: int) -> None:
    """Print the results in the request, then the calls and the text of the response."""
    rows: list[tuple[str, str, str]] = []
    names = {part.id: part.name for part in _request_parts(request) if isinstance(part, ToolCall)}
    for result in _last_results(request):
        rows.append(("result", result.name or names.get(result.call_id, result.call_id), short_line(result.text, most)))
    for call in response.calls if response is not None else ():
        arguments = dumps(call.arguments) if call.arguments is not None else call.raw or ""
        rows.append(("call", call.name, short_line(arguments, most)))
    if response is not None and response.text:
        rows.append(("text", "", short_line(response.text, most)))
    if rows:
        print()
        print("\n".join(table(rows, CONTENT_HEADERS, bold=True)))


def _request_parts(request: Request | None) -> list[Part]:
    return [part for message in request.messages for part in message.parts] if request is not None else []


def _last_results(request: Request | None) -> list[ToolResult]:
    return [part for part in _request_parts(request) if isinstance(part, ToolResult)]


def short_line(text: str, most: int) -> str:
    return shorten(" ".join(text.split()), most)


def _print_bodies(trace: ExchangeTrace) -> None:
    """Print the requests of both sides next to each other, then the answers."""
    wire = trace.ingress.request.wire
    requests = {f"{wire} request": _format_body(trace.ingress.request.body)}
    answers = {f"{wire} answer": _answer_text(trace.ingress.answer)}
    for number, exchange in enumerate(trace.upstreams, 1):
        start = exchange.request
        name = f"{start.upstream} {number}" if len(trace.upstreams) > 1 else start.upstream
        requests[f"{name} ({start.wire}) request"] = _format_body(start.body)
        answers[f"{name} ({start.wire}) answer"] = _answer_text(exchange.answer)
    for side in (requests, answers):
        print()
        print("\n".join(columns(side)).rstrip())


def _format_body(body: Any) -> str:
    return body if isinstance(body, str) else json_text(body)


def _answer_text(answer: RecordedAnswer | None) -> str:
    if answer is None:
        return ""
    if answer.pieces:
        return answer.data.decode("utf-8", "replace")
    return _format_body(answer.head.body)


def exchange_as_json(trace: ExchangeTrace) -> dict[str, Any]:
    """Return a recorded exchange as JSON, with the decoded answer and the timeline."""
    response = decode_answer(trace.ingress)
    return {
        "kind": "exchange",
        "id": trace.id,
        "recorded": trace.recorded,
        "ingress": trace.ingress.request.wire,
        "outcome": msgspec.to_builtins(trace.outcome),
        "losses": msgspec.to_builtins(trace.losses),
        "calls": msgspec.to_builtins(response.calls) if response is not None else [],
        "results": msgspec.to_builtins(_last_results(decode_client_request(trace))),
        "text": response.text if response is not None else "",
        "timeline": [row._asdict() for row in _rows(trace)],
    }
