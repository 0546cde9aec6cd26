"""Send requests at a fixed rate, whether or not earlier ones were answered (an open loop).

    python tests/load/open_loop.py PORT RATE SECONDS < request

A closed loop sends the next request after an answer, so a slow server lowers its own load. Users do not wait for each
other, so only an open loop shows overload. A request uses an idle connection, or opens a new one if there is none, as
the connection pools of SDKs do. The latency of a request counts from the time at which it was due, so a generator that
is late itself does not hide delays ("coordinated omission").
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

_PATIENCE = 60.0  # seconds after the last request


@dataclass
class Outcome:
    """The answers. `errors` are requests without a complete answer, by the reason."""

    seconds: float = 0.0
    sent: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    without_retry_after: int = 0  # of the 503
    opened: int = 0  # connections
    latencies: list[float] = field(default_factory=list)  # of the 200, in seconds
    first_bytes: list[float] = field(default_factory=list)  # the same, until the first byte
    refusals: list[float] = field(default_factory=list)  # latencies of the 503

    def summary(self) -> dict[str, object]:
        row = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in ("latencies", "first_bytes", "refusals"):
            times = row.pop(name)
            row[name] = {share: percentile(times, share) for share in (50, 99, 100)}
        return row


def percentile(values: list[float], share: float) -> float:
    """Return the value below which `share` percent of the values are; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))] if ordered else 0.0


class Connection(asyncio.Protocol):
    """A keep-alive connection with at most one request. `on_answer` gets the status and the head of an answer."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._buffer = b""
        self.on_answer: Callable[[Connection, int, bytes], None] | None = None
        self.on_failure: Callable[[str], None] | None = None
        self.is_closing = False
        self.first_byte_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if not self._buffer:
            self.first_byte_at = time.perf_counter()
        self._buffer = self._buffer + data if self._buffer else data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._buffer[:end].lower()
        if not self._is_complete(head, end + 4):
            return
        self._buffer = b""
        self.is_closing = b"\r\nconnection: close" in head
        done, self.on_answer = self.on_answer, None
        if done is not None:
            done(self, int(head[9:12]), head)

    def _is_complete(self, head: bytes, start: int) -> bool:
        at = head.find(b"\r\ncontent-length:")
        if at < 0:
            return self._buffer.endswith(b"0\r\n\r\n")
        stop = head.find(b"\r", at + 2)
        return len(self._buffer) >= start + int(head[at + 17 : stop if stop > 0 else None])

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closing = True
        if self.on_answer is not None and self.on_failure is not None:
            self.on_answer = None
            self.on_failure("closed" if error is None else type(error).__name__)


class OpenLoop:
    """Requests to a server on this machine. `messages` returns the bytes of the next request."""

    def __init__(self, port: int, messages: Callable[[], bytes]) -> None:
        self._port = port
        self._messages = messages
        self._idle: list[Connection] = []
        self._waiting: set[asyncio.Task[None]] = set()
        self.unanswered = 0  # requests so far
        self.outcome = Outcome()

    async def run(self, rate: float, seconds: float) -> Outcome:
        """Send `rate` requests a second for `seconds`, and wait for their answers."""
        started_at = time.perf_counter()
        total = int(rate * seconds)
        sent = 0
        while sent < total:
            now = time.perf_counter() - started_at
            due = min(total, int(now * rate) + 1)
            for number in range(sent, due):
                self._send(started_at + number / rate)
            sent = due
            await asyncio.sleep(max(0.001, started_at + sent / rate - time.perf_counter()))
        self.outcome.seconds = time.perf_counter() - started_at
        deadline = time.perf_counter() + _PATIENCE
        while self.unanswered and time.perf_counter() < deadline:  # noqa: ASYNC110  # nothing else runs, and no time is measured
            await asyncio.sleep(0.01)
        self.outcome.errors["no answer"] += self.unanswered
        for connection in self._idle:
            if connection.transport is not None:
                connection.transport.abort()
        return self.outcome

    def _send(self, due: float) -> None:
        self.outcome.sent += 1
        self.unanswered += 1
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closing:
                self._write(connection, due)
                return
        task = asyncio.ensure_future(self._connect(due))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _connect(self, due: float) -> None:
        self.outcome.opened += 1
        try:
            _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", self._port)
        except OSError as error:
            self._fail(f"connect: {type(error).__name__}")
            return
        self._write(connection, due)

    def _write(self, connection: Connection, due: float) -> None:
        def on_answer(connection: Connection, status: int, head: bytes) -> None:
            self.unanswered -= 1
            taken = time.perf_counter() - due
            outcome = self.outcome
            outcome.statuses[str(status)] += 1
            if status == 200:
                outcome.latencies.append(taken)
                outcome.first_bytes.append(connection.first_byte_at - due)
            elif status == 503:
                outcome.refusals.append(taken)
                outcome.without_retry_after += b"\r\nretry-after:" not in head
            if connection.is_closing and connection.transport is not None:
                connection.transport.close()
            elif not connection.is_closing:
                self._idle.append(connection)

        connection.on_answer, connection.on_failure = on_answer, self._fail
        assert connection.transport is not None
        connection.transport.write(self._messages())

    def _fail(self, reason: str) -> None:
        self.unanswered -= 1
        self.outcome.errors[reason] += 1


def main() -> None:
    port, rate, seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    message = sys.stdin.buffer.read()

    async def run() -> Outcome:
        return await OpenLoop(port, lambda: message).run(rate, seconds)

    try:
        import uvloop

        outcome = uvloop.run(run())
    except ImportError:
        outcome = asyncio.run(run())
    print(json.dumps(outcome.summary()))


if __name__ == "__main__":
    main()
