"""`toolwire tools cost`: the tokens of each declaration, the tools that were called, and the saving by retrieval.

Calls are counted in recordings: traces of runs and exchanges, HAR files, JSON Lines, single documents.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...ir.errors import ConfigError, ProtocolError, ToolwireError
from ...ir.terminal import count_of
from ...wire import get
from ..sources.documents import har_entries, is_recording, parse_file, read_bytes, replace_file
from ..sources.tool_source import add_source_options
from ..terminal.bar_chart import Bar, BarGroup, check_plot_path, draw_bar, render_plot
from ..terminal.options import add_command, add_flag, positive_number
from ..terminal.output import json_text, print_note, print_text, table
from .groups import GROUP_SOURCE_HELP, read_groups

if TYPE_CHECKING:
    from ...ir.tools import Tool
    from ...run.traces.format import TraceEvent


_KEYS = ("request", "response", "body", "payload", "json", "content", "postData", "text", "answer", "output")
_MAX_DEPTH = 5  # objects around an answer; a HAR entry in a log line has four. Deeper search only costs time
_TRACE = b'"toolwire_trace"'


class RecordedCalls:
    """The calls of recordings, by the name of the tool.

    A call is in the answer of the model, and again in every later request of its conversation. It is counted once: calls
    with the same id, name and arguments are equal.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.requests = 0
        self._known: set[bytes] = set()

    def add_file(self, file: str) -> None:
        """Add a recording. Raise ConfigError if it has no request, answer or call."""
        data = read_bytes(file)
        before = (self.requests, self.counts.total())
        found = self._add_trace(file, data) if _TRACE in data[:4096].partition(b"\n")[0] else self._add_data(file, data)
        if not found and before == (self.requests, self.counts.total()):
            hint = "give a trace, a HAR file, or JSON Lines of requests and answers"
            raise ConfigError(f"{file} has no requests or answers of a model", hint=hint)

    def _add_data(self, file: str, data: bytes) -> bool:
        if (entries := har_entries(file, data)) is not None:
            return self._add_all(entries)
        if is_recording(file, data):
            return self._add_all(line for line in data.split(b"\n") if line.strip())
        return self._add_document(parse_file(file, data))

    def _add_all(self, documents: Iterable[Any], depth: int = 0) -> bool:
        found = [self._add_document(document, depth) for document in documents]  # all of them, not up to the first
        return any(found)

    def _add_trace(self, file: str, data: bytes) -> bool:
        """Count the calls and requests of a run, or of the request and the answer of an exchange.

        Returns whether anything was added; requests with a purpose, such as a summary, do not count.
        """
        from ...run.traces.format import decode_traces
        from ...run.traces.recordings import exchange_of

        name, found = Path(file).name, False
        for header, events in decode_traces(data.splitlines(keepends=True), name):
            if header.kind == "exchange":
                exchange = exchange_of(header, events, name).ingress
                answer = b"" if exchange.answer is None else exchange.answer.data
                found |= self._add_all((exchange.data, answer))
            else:
                self._add_run(events)
                found = True
        return found

    def _add_run(self, events: Sequence[TraceEvent]) -> None:
        from ...run.traces.format import CallStarted, RequestSent

        for event in events:
            if isinstance(event, RequestSent):
                self.requests += not event.purpose
            elif isinstance(event, CallStarted) and type(event.call) is dict:
                call = event.call
                self._add_call(str(call.get("name")), call.get("id"), call.get("arguments", call.get("raw")))

    def _add_document(self, document: Any, depth: int = 0) -> bool:
        """Count the calls of a request, an answer or a stream, or of such a document inside.

        Returns whether there was any.
        """
        from ...bridge.translation.detection import detect, is_stream

        try:
            if isinstance(document, str):
                document = document.encode("utf-8", "replace")
            if isinstance(document, bytes):
                if is_stream(document):
                    return self._add_stream(detect(document).wire, document)
                document = parse_file("", document) if document.lstrip()[:1] == b"{" else None
            if type(document) is not dict:
                return False
            kind, wire = _detect_answer(document)
        except ToolwireError:
            return False
        if kind == "":
            inside = [document[key] for key in _KEYS if type(document.get(key)) in (dict, str)]
            return depth < _MAX_DEPTH and self._add_all(inside, depth + 1)
        return self._add_decoded(kind, wire, document)

    def _add_decoded(self, kind: str, wire: str, document: Any) -> bool:
        """Decode a request or response and count its calls. Returns whether it could be decoded."""
        try:
            if kind == "request":
                parts = [part for message in get(wire).decode_request(document).messages for part in message.parts]
                self.requests += 1
            else:
                parts = list(get(wire).decode_response(document).parts)
        except ToolwireError:  # a truncated or invalid document
            return False
        self._add_parts(parts)
        return True

    def _add_stream(self, wire: str, data: bytes) -> bool:
        from ...ir.folding import fold

        decoder = get(wire).stream_decoder()
        self._add_parts(fold([*decoder.feed(data), *decoder.close()]).parts)
        return True

    def _add_parts(self, parts: Iterable[Any]) -> None:
        from ...ir.parts import ToolCall

        for part in parts:
            if isinstance(part, ToolCall):
                self._add_call(part.name, part.id, part.raw if part.arguments is None else part.arguments)

    def _add_call(self, name: str, call_id: Any, arguments: Any) -> None:
        from ...run.values.keys import canonical_json

        key = sha256(canonical_json([name, call_id, arguments])).digest()
        if key not in self._known:
            self._known.add(key)
            self.counts[name] += 1


def _detect_answer(document: Any) -> tuple[str, str]:
    """Return the kind and wire of a request or an answer; empty for any other document."""
    from ...bridge.translation.detection import detect

    try:
        found = detect(document)
    except ProtocolError:
        return "", ""
    return (found.kind, found.wire) if found.kind in ("request", "response") else ("", "")


_WIRES = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama", "cohere", "gemini_interactions")
_BAR_WIDTH = 20  # characters; the table has up to five columns before it
_MAX_PLOTTED = 60  # bars of 20 pixels; the picture stays below 1,300 pixels
_MAX_SERVERS = 20  # rows of the table of servers, which shares the screen with the table of tools
_HELP = """\
Estimate the tokens of each declaration, and the saving if a request has only the best tools.

examples:
  toolwire tools cost mcp.json                                  tokens of the tools of your MCP servers
  toolwire tools cost tools.py --recordings traces/*.jsonl      also the number of calls of each tool
  toolwire tools cost pets.yaml -k 8 --plot cost.svg
  toolwire tools cost requests.jsonl --recordings requests.jsonl --json

tokens: an estimate for the declaration on the wire of --wire. sum: the share of this tool and of those above it.
Recordings: traces, HAR files, and JSON Lines of requests and answers.
exit codes: 0 done   2 wrong usage, or unreadable source
"""


class ToolCost(NamedTuple):
    """The cost of one declaration. `calls` is None without recordings."""

    name: str
    server: str
    tokens: int
    calls: int | None


def add_cost(actions: Any) -> None:
    """Register `toolwire tools cost` with its options."""
    parser = add_command(
        actions, "cost", "count the tokens of the declarations, and the calls in recordings", _HELP, _cost
    )
    parser.add_argument("source", nargs="+", metavar="[NAME=]SOURCE", help=GROUP_SOURCE_HELP)
    parser.add_argument(
        "--recordings", nargs="+", default=[], metavar="FILE", help="recordings whose calls are counted"
    )
    parser.add_argument(
        "-k", type=positive_number, default=5, metavar="NUMBER", help="tools per request with retrieval (5)"
    )
    parser.add_argument("--wire", choices=_WIRES, default=_WIRES[0], help="the form of the declarations (openai_chat)")
    parser.add_argument("--top", type=positive_number, default=30, metavar="NUMBER", help="rows of the table (30)")
    parser.add_argument("--plot", metavar="FILE", help="write a chart to FILE.svg or FILE.html")
    add_flag(parser, "--json", "print the result as JSON")
    add_source_options(parser)


def _cost(arguments: argparse.Namespace) -> int:
    """Print the tokens of each declaration, with --recordings also its calls, and with --plot write a chart."""
    check_plot_path(arguments.plot)
    tools = [(group.server, tool) for group in read_groups(arguments.source, arguments) for tool in group.tools]
    recorded = None
    if arguments.recordings:
        recorded = RecordedCalls()
        for file in arguments.recordings:
            recorded.add_file(file)
    costs = _measure(tools, arguments.wire, recorded)
    if arguments.json:
        print(json_text(_document(costs, arguments, recorded)))
    else:
        _print_table(costs, arguments.top)
        _print_servers(costs)
        _print_summary(costs, arguments.k, recorded)
    if arguments.plot:
        _plot(costs, arguments.plot)
        print_note(f"wrote {arguments.plot}", None)
    return 0


def _measure(tools: Sequence[tuple[str, Tool]], wire: str, recorded: RecordedCalls | None) -> list[ToolCost]:
    """Return the cost of each tool, the largest first; its calls are None without recordings."""
    from ...audit.tokens import declaration_tokens

    costs = [
        ToolCost(
            tool.name,
            server,
            declaration_tokens(tool, wire),
            None if recorded is None else recorded.counts[tool.name],
        )
        for server, tool in tools
    ]
    return sorted(costs, key=lambda cost: (-cost.tokens, cost.name))


def _print_table(costs: Sequence[ToolCost], top: int) -> None:
    """Print the `top` first tools (the longest declarations) with their share and the running sum."""
    total = sum(cost.tokens for cost in costs)
    sums = list(accumulate(cost.tokens for cost in costs))
    rows = [
        (
            cost.name,
            cost.server,
            str(cost.tokens),
            _percent(cost.tokens, total),
            _percent(reached, total),
            *(() if cost.calls is None else (str(cost.calls),)),
            draw_bar(cost.tokens, costs[0].tokens, _BAR_WIDTH),
        )
        for cost, reached in zip(costs[:top], sums, strict=False)
    ]
    calls = () if costs[0].calls is None else ("calls",)
    print("\n".join(table(rows, ("tool", "server", "tokens", "share", "sum", *calls, ""), bold=True)))
    if len(costs) > top:
        print(f"… {count_of(len(costs) - top, 'more tool')}; show them with --top {len(costs)}")


def _print_servers(costs: Sequence[ToolCost]) -> None:
    """Print the sum of each server, if there are several."""
    servers: dict[str, list[ToolCost]] = {}
    for cost in costs:
        servers.setdefault(cost.server, []).append(cost)
    if len(servers) < 2:
        return
    total = sum(cost.tokens for cost in costs)
    sums = sorted(((sum(cost.tokens for cost in own), server) for server, own in servers.items()), reverse=True)
    rows = []
    for tokens, server in sums[:_MAX_SERVERS]:
        own = servers[server]
        calls = () if own[0].calls is None else (str(sum(cost.calls or 0 for cost in own)),)
        bar = draw_bar(tokens, sums[0][0], _BAR_WIDTH)
        rows.append((server, str(len(own)), str(tokens), _percent(tokens, total), *calls, bar))
    headers = ("server", "tools", "tokens", "share", *(("calls",) if costs[0].calls is not None else ()), "")
    print("\n".join(["", *table(rows, headers, bold=True)]))
    if len(sums) > _MAX_SERVERS:
        print(f"… {count_of(len(sums) - _MAX_SERVERS, 'more server')}")


def _print_summary(costs: Sequence[ToolCost], k: int, recorded: RecordedCalls | None) -> None:
    """Print the total, the tokens of tools that are never called, and the saving with `k` retrieved tools."""
    total = sum(cost.tokens for cost in costs)
    print_text(f"\n{count_of(len(costs), 'tool')}, about {total} tokens in every request")
    if recorded is not None:
        unused = [cost.tokens for cost in costs if not cost.calls]
        where = count_of(recorded.requests, "request") if recorded.requests else "answers without their requests"
        print_text(
            f"{count_of(recorded.counts.total(), 'call')} in {where}; "
            f"{count_of(len(unused), 'tool')} never called: {sum(unused)} tokens ({_percent(sum(unused), total)})"
        )
    if len(costs) > k:
        mean, most = _retrieved_tokens(costs, k)
        print_text(
            f"with {count_of(k, 'retrieved tool')} per request: about {mean} tokens, at most {most}; "
            f"saves about {_percent(total - mean, total)}"
        )


def _retrieved_tokens(costs: Sequence[ToolCost], k: int) -> tuple[int, int]:
    """Return the tokens of `k` tools: `k` times the mean, and the sum of the `k` longest declarations."""
    total = sum(cost.tokens for cost in costs)
    return round(total * min(k, len(costs)) / len(costs)), sum(cost.tokens for cost in costs[:k])


def _percent(part: int, total: int) -> str:
    return f"{100 * part / total:.1f} %" if total else "0.0 %"


def _plot(costs: Sequence[ToolCost], path: str) -> None:
    """Write a chart of the longest declarations; tools that are never called have another colour."""
    bars = []
    for cost in costs[:_MAX_PLOTTED]:
        calls = "" if cost.calls is None else f", {count_of(cost.calls, 'call')}"
        kind = 1 if cost.calls == 0 else 0
        bars.append(Bar(cost.name, cost.tokens, f"{cost.tokens}{calls}", kind))
    title = "Tokens per declaration"
    if len(costs) > _MAX_PLOTTED:
        title += f" (the {_MAX_PLOTTED} longest of {len(costs)})"
    replace_file(path, render_plot(path, title, [BarGroup("", bars)], costs[0].tokens), mode=0o666)


def _document(
    costs: Sequence[ToolCost], arguments: argparse.Namespace, recorded: RecordedCalls | None
) -> dict[str, Any]:
    """Return the costs as JSON, with the counts of the recordings if there are any."""
    total = sum(cost.tokens for cost in costs)
    mean, most = _retrieved_tokens(costs, arguments.k)
    document: dict[str, Any] = {
        "wire": arguments.wire,
        "tokens": total,
        "tools": [
            {
                "name": cost.name,
                "server": cost.server,
                "tokens": cost.tokens,
                **({} if cost.calls is None else {"calls": cost.calls}),
            }
            for cost in costs
        ],
        "retrieval": {"k": arguments.k, "mean_tokens": mean, "max_tokens": most},
    }
    if recorded is not None:
        names = {cost.name for cost in costs}
        document["recordings"] = {
            "requests": recorded.requests,
            "calls": recorded.counts.total(),
            "unknown_tools": sorted(name for name in recorded.counts if name not in names),
        }
    return document
