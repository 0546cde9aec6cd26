"""Run an upstream of negligible cost: fixed responses on every wire, from a bare asyncio protocol.

    python provider.py PORT [PACE]

The response depends on the path and on `stream` in the body; with `/pace` before the path, one event is sent every two
milliseconds, otherwise all of them at once. With PACE, it is that number of seconds, and a stream has only eight events.
"""

import asyncio
import json
import sys

EVENTS = 120
CHUNK_PACE = 0.002


def chat_whole() -> bytes:
    calls = [
        {
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": "get_weather", "arguments": f'{{"city":"{city}"}}'},
        }
        for n, city in enumerate(("Paris", "Rome"))
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 120, "completion_tokens": 40, "total_tokens": 160}
    return json.dumps(
        {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    ).encode()


def anthropic_whole() -> bytes:
    content = [
        {"type": "tool_use", "id": f"toolu_{n}", "name": "get_weather", "input": {"city": city}}
        for n, city in enumerate(("Paris", "Rome"))
    ]
    usage = {"input_tokens": 120, "output_tokens": 40}
    body = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content}
    return json.dumps({**body, "stop_reason": "tool_use", "stop_sequence": None, "usage": usage}).encode()


def chat_events() -> list[bytes]:
    def chunk(delta: dict, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        return b"data: " + json.dumps(body).encode() + b"\n\n"

    def call(fields: dict) -> dict:
        return {"tool_calls": [{"index": 0, **fields}]}

    first = call({"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": ""}})
    pieces = ['{"city":"', *["word"] * EVENTS, '"}']
    deltas = [chunk(call({"function": {"arguments": piece}})) for piece in pieces]
    return [chunk({"role": "assistant", **first}), *deltas, chunk({}, "tool_calls"), b"data: [DONE]\n\n"]


def anthropic_events() -> list[bytes]:
    def event(kind: str, **fields: object) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()

    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    usage = {"input_tokens": 120, "output_tokens": 1}
    block = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}}
    pieces = ['{"city":"', *["word"] * EVENTS, '"}']
    return [
        event("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": usage}),
        event("content_block_start", index=0, content_block=block),
        *[event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": p}) for p in pieces],
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "tool_use", "stop_sequence": None}, usage={"output_tokens": 40}),
        event("message_stop"),
    ]


WHOLE = {b"chat": chat_whole(), b"messages": anthropic_whole()}
STREAM = {b"chat": chat_events(), b"messages": anthropic_events()}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Mock(asyncio.Protocol):
    pace: float | None = None  # seconds between the events of a slow stream

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.data = b""
        self.tasks: set[asyncio.Task[None]] = set()

    def data_received(self, data: bytes) -> None:
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = self.data[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 : head.find(b"\r", at) if head.find(b"\r", at) > 0 else None]) if at >= 0 else 0
            if len(self.data) < end + 4 + length:
                return
            body, self.data = self.data[end + 4 : end + 4 + length], self.data[end + 4 + length :]
            self.answer(head, body)

    def answer(self, head: bytes, body: bytes) -> None:
        wire = b"messages" if b"/messages" in head[:80] else b"chat"
        if b'"stream":true' not in body.replace(b" ", b""):
            self.transport.write(HEAD % (len(WHOLE[wire]), WHOLE[wire]))
        elif b"/pace" in head[:80]:
            task = asyncio.ensure_future(self.slowly(STREAM[wire]))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        else:
            self.transport.write(STREAM_HEAD + b"".join(chunked(event) for event in STREAM[wire]) + b"0\r\n\r\n")

    async def slowly(self, events: list[bytes]) -> None:
        self.transport.write(STREAM_HEAD)
        for event in events if self.pace is None else [*events[:4], *events[-4:]]:
            self.transport.write(chunked(event))
            await asyncio.sleep(self.pace or CHUNK_PACE)
        if not self.transport.is_closing():  # some clients close after the last event
            self.transport.write(b"0\r\n\r\n")


async def main() -> None:
    if len(sys.argv) > 2:
        Mock.pace = float(sys.argv[2])
    server = await asyncio.get_running_loop().create_server(Mock, "127.0.0.1", int(sys.argv[1]))
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        import uvloop

        uvloop.run(main())
    except ImportError:
        asyncio.run(main())
