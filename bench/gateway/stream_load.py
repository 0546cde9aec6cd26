"""Open many slow streams, and measure how late their events arrive. Run by `streams.py`.

    python stream_load.py PORT STREAMS RAMP EVENTS FROM UNTIL < request

The streams begin within RAMP seconds, at a constant rate. The events have the time at which the upstream has sent
them, by a clock that all processes of a machine share. Delays of events between FROM and UNTIL seconds after the
start count. Prints JSON: errors by their reason, the number of events, and percentiles of the delay in milliseconds.
"""

import asyncio
import json
import re
import sys
from array import array
from collections import Counter
from contextlib import suppress
from time import monotonic_ns

_TIMES = re.compile(rb"<(\d+)>")
_ENDS = (b"data: [DONE]\n\n", b'data: {"type":"message_stop"}\n\n')
_PATIENCE = 60.0  # seconds after which a stream without its end is an error


class Measurement:
    def __init__(self, streams: int, events: int, start: int, end: int) -> None:
        self.streams = streams
        self.events = events
        self.start = start
        self.end = end
        self.delays = array("q")  # ns
        self.errors: Counter[str] = Counter()
        self.complete = 0
        self.has_ended = asyncio.Event()  # all streams

    def end_stream(self, error: str | None) -> None:
        if error is None:
            self.complete += 1
        else:
            self.errors[error] += 1
        if self.complete + self.errors.total() == self.streams:
            self.has_ended.set()


class MeasuredStream(asyncio.Protocol):
    def __init__(self, measurement: Measurement, request: bytes) -> None:
        self._measurement = measurement
        self._request = request
        self._tail = b""
        self._is_started = False
        self._has_end = False
        self._events = 0
        self._last = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = monotonic_ns()
        if self._tail:
            data = self._tail + data
        if not self._is_started:
            if b"\r\n\r\n" not in data:
                self._tail = data
                return
            self._is_started = True
            if not data.startswith(b"HTTP/1.1 200"):
                self._fail(data[9:12].decode())
                return
        cut = data.rfind(b"\n\n") + 2  # an event may be split
        self._tail = data[cut:] if cut > 1 else data
        measurement = self._measurement
        for match in _TIMES.finditer(data, 0, max(cut, 0)):
            sent = int(match[1])
            self._events += 1
            if sent < self._last:
                self._fail("order")
                return
            self._last = sent
            if measurement.start <= now < measurement.end:
                measurement.delays.append(now - sent)
        self._has_end = self._has_end or any(end in data for end in _ENDS)
        if data.endswith(b"\r\n0\r\n\r\n"):
            if self._events != measurement.events or not self._has_end:
                self._fail(f"{self._events} events")
                return
            measurement.end_stream(None)
            self._measurement = None
            self._transport.close()

    def _fail(self, reason: str) -> None:
        if self._measurement is not None:
            self._measurement.end_stream(reason)
            self._measurement = None
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail("connection lost")


async def main(port: int, streams: int, ramp: float, events: int, start: float, end: float) -> None:
    request = sys.stdin.buffer.read()
    loop = asyncio.get_running_loop()
    began = monotonic_ns()
    measurement = Measurement(streams, events, began + int(start * 1e9), began + int(end * 1e9))
    opened_at = loop.time()

    async def open_stream() -> None:
        try:
            await loop.create_connection(lambda: MeasuredStream(measurement, request), "127.0.0.1", port)
        except OSError as error:
            measurement.end_stream(type(error).__name__)

    opening: set[asyncio.Task[None]] = set()
    for number in range(streams):
        delay = opened_at + number * ramp / streams - loop.time()
        if delay > 0:
            await asyncio.sleep(delay)
        task = loop.create_task(open_stream())
        opening.add(task)
        task.add_done_callback(opening.discard)
    with suppress(TimeoutError):
        async with asyncio.timeout(end + _PATIENCE):
            await measurement.has_ended.wait()
    unfinished = streams - measurement.complete - measurement.errors.total()
    if unfinished:
        measurement.errors["not complete"] = unfinished
    delays = sorted(measurement.delays)
    shares = {
        str(share): delays[min(len(delays) - 1, int(len(delays) * share / 100))] / 1e6 if delays else None
        for share in (50, 90, 99, 99.9, 100)
    }
    print(json.dumps({"complete": measurement.complete, "errors": measurement.errors, "events": len(delays), **shares}))


if __name__ == "__main__":
    import uvloop

    numbers = [float(argument) for argument in sys.argv[1:]]
    uvloop.run(main(int(numbers[0]), int(numbers[1]), numbers[2], int(numbers[3]), numbers[4], numbers[5]))
