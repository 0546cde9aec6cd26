"""Show the messages between the client and its servers (`--traffic`), and measure the latency of each request.

     0.214 s → #2 tools/call add {"a": 1, "b": 2}
     0.219 s ← #2 tools/call add, 4.8 ms {"content": [...]}

Secrets are removed, control characters are escaped, and long or many messages are cut unless `--all` is given.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from ...ir.terminal import neutralise_line
from ..terminal.layout import StreamWrap
from ..terminal.options import add_flag
from ..terminal.output import paint, terminal_width

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...ir.pointer import JSON, Object
    from ...mcp.client.config import ServerSpec
    from ...mcp.client.link import TrafficEvent
    from ...mcp.protocol.rpc import RequestId


_MAX_LENGTH = 2_000  # characters of one message, about a screen
_MAX_MESSAGES = 1_000  # a chatty server would scroll the result out of view; --all lifts the limit
_MAX_LATENCIES = 10_000  # values of the percentiles at the end; bounds the memory of a long session
# a server that never answers leaves them; a request beyond the limit is shown without its duration
_MAX_PENDING = 10_000
_GREETINGS = ("server/discover", "initialize")


def add_traffic_options(parser: Any) -> None:
    """Add `--traffic` and `--all`."""
    add_flag(parser, "--traffic", "print every message in both directions, with its time, to standard error")
    add_flag(parser, "--all", "cut no text and no list, however long")


class RequestLatency(NamedTuple):
    """The time between a request and its answer. `name` is the tool, prompt or resource, if there is one."""

    server: str
    method: str
    name: str
    seconds: float


class _SentRequest(NamedTuple):
    method: str
    name: str
    sent: float


class TrafficLog:
    """Receives every message (`McpClient(traffic=…)`). `show`: print them."""

    def __init__(self, *, show: bool = False, show_all: bool = False) -> None:
        """Record latencies; with `show` also print each message, sanitised, and with `show_all` without limits."""
        from ...run.traces.redact import Redactor, environment_secrets
        from ...run.traces.sanitise import Sanitiser

        self.latencies: list[RequestLatency] = []
        self.connected: dict[str, float] = {}  # by server: seconds from the start until it had introduced itself
        self._show = show
        self._show_all = show_all
        self._redactor = Redactor(environment_secrets(os.environ))
        self._sanitiser = Sanitiser(self._redactor)
        self._pending: dict[tuple[str, str, RequestId], _SentRequest] = {}
        self._count = 0
        self._start = time.monotonic()
        self._has_several = False

    def add_servers(self, specs: Iterable[ServerSpec]) -> None:
        """Add the secrets of the servers: the values of headers and environment variables, and those in URLs."""
        specs = list(specs)
        self._has_several = len(specs) > 1
        for spec in specs:
            parts = urlsplit(spec.url or "")
            values = [*spec.headers.values(), *spec.env.values(), *dict(parse_qsl(parts.query)).values()]
            tokens = [value.partition(" ")[2] for value in spec.headers.values()]  # without `Bearer`
            self._redactor.add_secrets([*values, *tokens, parts.password or ""])

    def __call__(self, server: str, event: TrafficEvent) -> None:
        """Print a message, remember a request until its response, and record the latency of our own requests."""
        from ...mcp.protocol.rpc import Failure, Notification, Result, RpcRequest

        now = time.monotonic()
        message = event.message
        if isinstance(message, Notification):
            self._print(now, server, event, message.method, message.params)
        elif isinstance(message, RpcRequest):
            name = _target_name(message.params)
            if len(self._pending) < _MAX_PENDING:
                self._pending[server, event.direction, message.id] = _SentRequest(message.method, name, now)
            self._print(now, server, event, f"#{message.id} {message.method} {name}".rstrip(), message.params)
        else:
            assert isinstance(message, (Result, Failure))
            asked_by = "sent" if event.direction == "received" else "received"
            asked = None if message.id is None else self._pending.pop((server, asked_by, message.id), None)
            label = f"#{message.id}"
            if asked is not None:
                label = f"{label} {asked.method} {asked.name}".rstrip() + f", {milliseconds(now - asked.sent)}"
                if event.direction == "received":
                    self._record(server, asked, now)
            self._print(now, server, event, label, _answer_body(message))

    def _record(self, server: str, asked: _SentRequest, now: float) -> None:
        if asked.method in _GREETINGS:
            self.connected[server] = now - self._start
        is_subscription = asked.method == "subscriptions/listen"  # answered when it ends
        if len(self.latencies) < _MAX_LATENCIES and not is_subscription:
            self.latencies.append(RequestLatency(server, asked.method, asked.name, now - asked.sent))

    def _print(self, now: float, server: str, event: TrafficEvent, label: str, body: JSON) -> None:
        """Print a message on one line, and its HTTP headers on a second line.

        Without `show_all`, only the first `_MAX_MESSAGES`.
        """
        if not self._show:
            return
        self._count += 1
        if self._count > _MAX_MESSAGES and not self._show_all:
            if self._count == _MAX_MESSAGES + 1:
                self._write(f"… more than {_MAX_MESSAGES} messages; --all shows them")
            return
        arrow = "→" if event.direction == "sent" else "←"
        status = "" if event.status is None else f" HTTP {event.status}"
        who = f" {server}" if self._has_several else ""
        prefix = f"{now - self._start:8.3f} s{who} {arrow} {self._redactor(label)}{status} "
        self._write(neutralise_line(prefix + self._cut(body)))
        if event.headers:
            shown = ", ".join(f"{name}: {value}" for name, value in self._sanitise(event.headers).items())
            self._write(neutralise_line(f"{'':12}{shown}"))

    def _sanitise(self, document: Any) -> Any:
        return self._sanitiser.sanitise_document(document)

    def _cut(self, body: JSON) -> str:
        from ...ir.text import dumps

        text = dumps(_keep_progress_token(body, self._sanitise(body)))
        if self._show_all or len(text) <= _MAX_LENGTH:
            return text
        return f"{text[:_MAX_LENGTH]}… ({len(text):,} characters; --all shows them)"

    def _write(self, line: str) -> None:
        if sys.stderr.isatty():
            wrap = StreamWrap(terminal_width(sys.stderr), hang=12, splits_words=True)
            line = wrap.feed(line.lstrip()) + wrap.flush()
        for part in line.split("\n"):
            print(paint(part, "dim", sys.stderr), file=sys.stderr, flush=True)

    def summary(self, server: str) -> str:
        """Return the latencies of a server in one line: connect, then each method with its number of requests."""
        parts = [f"connect {milliseconds(self.connected[server])}"] if server in self.connected else []
        by_method: dict[str, list[float]] = {}
        for latency in self.latencies:
            if latency.server == server and latency.method not in _GREETINGS:
                by_method.setdefault(latency.method, []).append(latency.seconds)
        for method, seconds in by_method.items():
            times = f" ({len(seconds)} requests)" if len(seconds) > 1 else ""
            parts.append(f"{method} {milliseconds(sum(seconds))}{times}")
        return ", ".join(parts)

    def as_json(self, server: str) -> Object:
        """Return the latencies of a server in milliseconds."""
        connected = self.connected.get(server)
        return {
            "connect_ms": None if connected is None else round(1000 * connected, 3),
            "requests": [
                {"method": latency.method, "name": latency.name or None, "ms": round(1000 * latency.seconds, 3)}
                for latency in self.latencies
                if latency.server == server
            ],
        }


def _target_name(params: Object) -> str:
    """Return the tool, prompt or resource that a request names."""
    found = params.get("name", params.get("uri"))
    return found[:200] if type(found) is str else ""


def _keep_progress_token(body: JSON, sanitised: JSON) -> JSON:
    """Show the progress token, which is a number and no secret."""
    for path in ((), ("_meta",)):
        source, target = body, sanitised
        for key in path:
            source, target = source.get(key), target.get(key)
            if type(source) is not dict or type(target) is not dict:
                return sanitised
        if type(source) is dict and type(source.get("progressToken")) is int:
            target["progressToken"] = source["progressToken"]
    return sanitised


def _answer_body(message: Any) -> JSON:
    from ...mcp.protocol.rpc import Result

    if isinstance(message, Result):
        return message.result
    return {"error": {"code": message.code, "message": message.message, "data": message.data}}


def milliseconds(seconds: float) -> str:
    """Format a duration: `4.2 ms`, `312 ms`.

    >>> milliseconds(0.0042), milliseconds(0.3124)
    ('4.2 ms', '312 ms')
    """
    value = 1000 * seconds
    return f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"
