"""Run an upstream of slow streams: an event every PERIOD seconds on each, with the time at which it was sent.

    python paced_upstream.py PERIOD EVENTS

It prints its port. The answer has the events of Anthropic below `/v1/messages`, of OpenAI Chat elsewhere. One timer wheel serves all
streams: a timer for each would cost more than the events. Request bodies are small, and arrive at once.
"""

import asyncio
import sys
from time import monotonic_ns

from provider import STREAM_HEAD, chunked

TICK = 0.005  # seconds; the events of 10,000 streams are sent in groups of 25


def _json_event(data: bytes, kind: bytes = b"") -> bytes:
    return (b"event: %b\n" % kind if kind else b"") + b"data: " + data + b"\n\n"


def _chat(delta: bytes, stop: bytes, more: bytes = b"") -> bytes:
    choice = b'{"index":0,"delta":{%b},"finish_reason":%b}' % (delta, stop)
    return _json_event(
        b'{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[%b]%b}' % (choice, more)
    )


# the start, the format of an event with its time, and the end
CHAT = (
    _chat(b'"role":"assistant","content":""', b"null"),
    _chat(b'"content":"<%d>"', b"null"),
    _chat(b"", b'"stop"', b',"usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}')
    + _json_event(b"[DONE]"),
)
ANTHROPIC = (
    _json_event(
        b'{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],'
        b'"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":1}}}',
        b"message_start",
    )
    + _json_event(
        b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}', b"content_block_start"
    ),
    _json_event(
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"<%d>"}}', b"content_block_delta"
    ),
    _json_event(b'{"type":"content_block_stop","index":0}', b"content_block_stop")
    + _json_event(
        b'{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":9}}',
        b"message_delta",
    )
    + _json_event(b'{"type":"message_stop"}', b"message_stop"),
)


class Wheel:
    """Sends the events of all streams: those of a slot once in a period."""

    def __init__(self, period: float, events: int) -> None:
        self._events = events
        self._slots: list[list[PacedStream]] = [[] for _ in range(max(1, round(period / TICK)))]
        self._now = 0
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time()
        self._turn()

    def add(self, stream: "PacedStream") -> None:
        stream.left = self._events
        self._slots[self._now].append(stream)

    def _turn(self) -> None:
        """Send the events of the next slot. A late turn is not made up for: the following ones come earlier."""
        self._now = (self._now + 1) % len(self._slots)
        due = self._slots[self._now]
        for stream in due:
            stream.send_event()
        self._slots[self._now] = [stream for stream in due if stream.left]
        self._due += TICK
        self._loop.call_at(self._due, self._turn)


class PacedStream(asyncio.Protocol):
    def __init__(self, wheel: Wheel) -> None:
        self._wheel = wheel
        self._data = b""
        self.left = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.left = 0

    def data_received(self, data: bytes) -> None:
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0 or not self._data.rstrip().endswith(b"}"):
            return
        start, event, self._end = ANTHROPIC if b"/messages" in self._data[:80] else CHAT
        self._event, self._data = event, b""
        self._transport.write(STREAM_HEAD + chunked(start))
        self._wheel.add(self)

    def send_event(self) -> None:
        if self.left:
            self.left -= 1
            last = b"" if self.left else chunked(self._end) + b"0\r\n\r\n"
            self._transport.write(chunked(self._event % monotonic_ns()) + last)


async def main(period: float, events: int) -> None:
    loop = asyncio.get_running_loop()
    wheel = Wheel(period, events)
    server = await loop.create_server(lambda: PacedStream(wheel), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(float(sys.argv[1]), int(sys.argv[2])))
