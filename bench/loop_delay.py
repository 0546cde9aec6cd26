"""Measure how long large requests and answers keep the event loop of a gateway from other clients.

python bench/loop_delay.py               attacks of 1 MB
python bench/loop_delay.py --large       also bodies of up to 31 MB
python bench/loop_delay.py --only NAME   attacks whose name contains NAME

A gateway runs in a process of its own, with a timer that fires every millisecond. `delay` is the longest time between two of
its ticks, `p99` the 99th percentile, during one attack. `time` is the duration of the attack, `peak` the largest memory of
the process so far. The tests count loop turns and threads instead, because times depend on the machine.
"""

import asyncio
import gzip
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

MEGABYTE = 1024 * 1024
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
ANSWERS = {
    "openai_chat": {
        "id": "x",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    },
    "anthropic": {
        "id": "x",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
}


class Attack(NamedTuple):
    path: str
    target: str  # the wire of the upstream
    body: Callable[[], bytes]
    answer: Callable[[], bytes] | None = None  # the upstream's whole HTTP response; default: a small answer
    count: int = 1  # requests at the same time


def chat(messages: object = None, **more: object) -> bytes:
    body = {"model": "TARGET/m", "messages": messages or [{"role": "user", "content": "hi"}], "max_tokens": 9, **more}
    return json.dumps(body).encode()


def repeated(message: dict, size: int) -> list[dict]:
    return [message] * (size // (len(json.dumps(message)) + 2))


def tools(schema: object, size: int) -> list[dict]:
    count = max(1, size // (len(json.dumps(schema)) + 80))
    return [
        {"type": "function", "function": {"name": f"tool_{n}", "description": "d", "parameters": schema}}
        for n in range(count)
    ]


def properties(count: int, schema: Callable[[int], dict]) -> dict:
    return {"type": "object", "properties": {f"p{n}": schema(n) for n in range(count)}}


def nested(depth: int) -> dict:
    value: dict = {"type": "string"}
    for _ in range(depth):
        value = {"type": "object", "properties": {"p": value}}
    return value


def history(size: int) -> list[dict]:
    call = {"id": "c0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    turn = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c0", "content": "1"},
    ]
    count = size // len(json.dumps(turn))
    return [message for _ in range(count) for message in turn]


def http(body: bytes, content_type: str, *more: str) -> bytes:
    head = [f"content-type: {content_type}", f"content-length: {len(body)}", "connection: close", *more]
    return ("HTTP/1.1 200 OK\r\n" + "\r\n".join(head) + "\r\n\r\n").encode() + body


def stream(event: bytes, size: int, *, packed: bool = False) -> bytes:
    data = event * (size // len(event))
    more = ("content-encoding: gzip",) if packed else ()
    return http(gzip.compress(data, 6) if packed else data, "text/event-stream", *more)


def chat_event(**delta: object) -> bytes:
    chunk = {"choices": [{"index": 0, "delta": delta}]}
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


def whole_answer(size: int) -> bytes:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    message = {"role": "assistant", "content": "x", "tool_calls": [call] * (size // 80)}
    return http(json.dumps({"choices": [{"index": 0, "message": message}]}).encode(), "application/json")


def attacks(large: bool) -> dict[str, Attack]:
    size = MEGABYTE
    numbers = list(range(10)) * (size // 30)
    rows = {
        "messages": Attack(CHAT, "anthropic", lambda: chat(repeated({"role": "user", "content": "x"}, size))),
        "messages, same wire": Attack(
            CHAT, "openai_chat", lambda: chat(repeated({"role": "user", "content": "x"}, size))
        ),
        "messages, 16 at once": Attack(
            CHAT, "anthropic", lambda: chat(repeated({"role": "user", "content": "x"}, size)), count=16
        ),
        "calls and results": Attack(CHAT, "anthropic", lambda: chat(history(size))),
        "numbers in an unknown field": Attack(CHAT, "anthropic", lambda: chat(x=numbers)),
        "numbers in arguments": Attack(
            MESSAGES,
            "openai_chat",
            lambda: chat(
                [
                    {"role": "user", "content": "x"},
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"x": numbers}}],
                    },
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "1"}]},
                ],
            ),
        ),
        "many small tools": Attack(CHAT, "anthropic", lambda: chat(tools=tools({"type": "object"}, size))),
        "tools to gemini": Attack(
            CHAT, "gemini", lambda: chat(tools=tools({"type": "object", "properties": {"a": {"type": "string"}}}, size))
        ),
        "one tool, many properties": Attack(
            CHAT,
            "gemini",
            lambda: chat(
                tools=tools(
                    {
                        "type": "object",
                        "properties": {f"p{n}": {"type": ["string", "null"]} for n in range(size // 40)},
                    },
                    1,
                ),
            ),
        ),
        "deep schemas": Attack(CHAT, "gemini", lambda: chat(tools=tools(nested(60), size))),
        "a pattern of 1 MB": Attack(
            CHAT,
            "gemini",
            lambda: chat(
                tools=tools({"type": "object", "properties": {"p": {"type": "string", "pattern": "a" * size}}}, 1)
            ),
        ),
        "an enum of 1 MB": Attack(
            CHAT,
            "gemini",
            lambda: chat(tools=tools({"type": "object", "properties": {"p": {"enum": list(range(size // 8))}}}, 1)),
        ),
        "60 KB: new patterns": Attack(
            CHAT, "anthropic", lambda: chat(tools=tools(properties(2_000, lambda n: {"pattern": f"a{n}"}), 1))
        ),
        "60 KB: new allOf": Attack(
            CHAT,
            "gemini",
            lambda: chat(tools=tools({"allOf": [{"properties": {f"a{n}": {}}} for n in range(1_800)]}, 1)),
        ),
        "60 KB: new anyOf": Attack(
            CHAT,
            "gemini",
            lambda: chat(
                tools=tools(
                    properties(700, lambda n: {"anyOf": [{"type": "string"}, {"type": "null"}, {"const": n}]}), 1
                )
            ),
        ),
        "7 KB: new allOf": Attack(
            CHAT, "gemini", lambda: chat(tools=tools({"allOf": [{"properties": {f"b{n}": {}}} for n in range(210)]}, 1))
        ),
        "60 KB: results without calls": Attack(
            CHAT,
            "anthropic",
            lambda: chat([{"role": "tool", "tool_call_id": f"c{n}", "content": "x"} for n in range(1_100)]),
        ),
        "7 KB: results without calls": Attack(
            CHAT,
            "anthropic",
            lambda: chat([{"role": "tool", "tool_call_id": f"c{n}", "content": "x"} for n in range(130)]),
        ),
        "losses": Attack(
            CHAT,
            "gemini",
            lambda: chat(repeated({"role": "user", "content": "x", "name": "n", "y": 1}, size), logit_bias={"1": 1}),
        ),
        "refused: duplicate key": Attack(
            CHAT, "anthropic", lambda: b'{"x":[' + b"1," * (size // 2) + b'1],"model":"m","model":"m"}'
        ),
        "nesting of brackets": Attack(CHAT, "anthropic", lambda: b'{"model":"m","x":' + b"[" * (size // 2) + b"]}"),
        "answer: many calls": Attack(MESSAGES, "openai_chat", lambda: chat(), lambda: whole_answer(size)),
        "answer: stream of tiny events": Attack(
            MESSAGES, "openai_chat", lambda: chat(stream=True), lambda: stream(b"data:{}\n\n", size)
        ),
        "answer: stream of deltas": Attack(
            MESSAGES, "openai_chat", lambda: chat(stream=True), lambda: stream(chat_event(content="x"), size)
        ),
        "answer: stream of deltas, same wire": Attack(
            CHAT, "openai_chat", lambda: chat(stream=True), lambda: stream(chat_event(content="x"), size)
        ),
        "answer: one event of 8 MB": Attack(
            MESSAGES,
            "openai_chat",
            lambda: chat(stream=True),
            lambda: stream(chat_event(content="x" * 8 * size), 9 * size),
        ),
        "answer: gzip of SSE comments": Attack(
            MESSAGES, "openai_chat", lambda: chat(stream=True), lambda: stream(b":\n\n", 60 * size, packed=True)
        ),
        "answer: gzip of SSE comments, same wire": Attack(
            CHAT, "openai_chat", lambda: chat(stream=True), lambda: stream(b":\n", 60 * size, packed=True)
        ),
    }
    if large:
        rows |= {
            "120,000 messages": Attack(CHAT, "anthropic", lambda: chat([{"role": "user", "content": "x"}] * 120_000)),
            "31 MB of dense numbers": Attack(
                CHAT, "anthropic", lambda: chat()[:-1] + b',"x":[' + b"1," * 15_000_000 + b"1]}"
            ),
            "2 MB of empty lists": Attack(
                CHAT, "anthropic", lambda: chat()[:-1] + b',"x":[' + b"[]," * 700_000 + b"1]}"
            ),
            "31 MB of numbers": Attack(CHAT, "anthropic", lambda: chat(x=list(range(10)) * 1_000_000)),
            "31 MB of numbers, same wire": Attack(CHAT, "openai_chat", lambda: chat(x=list(range(10)) * 1_000_000)),
            "31 MB of text": Attack(CHAT, "anthropic", lambda: chat([{"role": "user", "content": "x" * 31_000_000}])),
            "31 MB, 24 at once": Attack(
                CHAT, "anthropic", lambda: chat([{"role": "user", "content": "x" * 31_000_000}]), count=24
            ),
        }
    return rows


class Upstream:
    """Answers every request with the bytes in `answer`."""

    answer = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0] or 0)
            remaining = length
            while remaining > 0:
                remaining -= len(await reader.read(min(remaining, MEGABYTE)) or b" " * remaining)
            writer.write(self.answer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def post(port: int, path: str, body: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
    try:
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        status = await reader.readline()
        while await reader.read(MEGABYTE):
            pass
        return int(status.split()[1]) if status else 0
    except ConnectionError:
        return 0
    finally:
        writer.close()


async def statistics(port: int) -> dict[str, float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /delays HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    data = await reader.read(-1)
    writer.close()
    return json.loads(data.partition(b"\r\n\r\n")[2])


async def measure(only: str, *, large: bool) -> None:
    upstream = Upstream()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, limit=MEGABYTE)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with TemporaryDirectory() as folder:
        settings = Path(folder) / "toolwire.toml"
        rows = [
            f'[upstreams.{wire}]\nwire = "{wire}"\nbase_url = "{address}"\nretries = 0\n'
            for wire in ("anthropic", "gemini", "openai_chat")
        ]
        settings.write_text("\n".join(rows))
        gateway = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--gateway", str(settings), stdout=asyncio.subprocess.PIPE
        )
        assert gateway.stdout is not None
        port = int(await gateway.stdout.readline())
        try:
            await run_attacks(port, upstream, {k: v for k, v in attacks(large).items() if only in k})
        finally:
            gateway.terminate()
            await gateway.wait()


async def run_attacks(port: int, upstream: Upstream, rows: dict[str, Attack]) -> None:
    small = chat().replace(b"TARGET", b"anthropic")
    upstream.answer = http(json.dumps(ANSWERS["anthropic"]).encode(), "application/json")
    await post(port, CHAT, small)  # everything is imported
    print(f"{'attack':42} {'bytes':>11} {'status':>6} {'time':>8} {'p99':>9} {'delay':>9} {'peak':>8}", flush=True)
    for name, attack in rows.items():
        body = attack.body().replace(b"TARGET", attack.target.encode(), 1)
        default = json.dumps(ANSWERS.get(attack.target, ANSWERS["openai_chat"])).encode()
        upstream.answer = http(default, "application/json") if attack.answer is None else attack.answer()
        await statistics(port)
        started = time.perf_counter()
        statuses = await asyncio.gather(*[post(port, attack.path, body) for _ in range(attack.count)])
        seconds = time.perf_counter() - started
        found = await statistics(port)
        print(
            f"{name:42} {len(body):>11,} {max(statuses):>6} {seconds:>6.2f} s {found['p99'] * 1000:>6.1f} ms"
            f" {found['longest'] * 1000:>6.1f} ms {found['peak'] / 1024:>5.0f} MB",
            flush=True,
        )


def run_gateway(settings_file: str) -> None:
    """Run the gateway with the ticking timer; `/delays` returns its statistics and resets them."""
    import uvloop

    from toolwire.gateway import Gateway, load_settings
    from toolwire.gateway.processes.server import bind, serve

    settings = load_settings(Path(settings_file))
    gateway = Gateway(settings, environment={})
    delays: list[float] = []

    async def tick() -> None:
        before = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            delays.append(now - before)
            before = now

    async def app(scope: dict, receive: Callable, send: Callable) -> None:
        if scope.get("path") != "/delays":
            await gateway(scope, receive, send)
            return
        ordered = sorted(delays) or [0.0]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        body = json.dumps({"longest": ordered[-1], "p99": ordered[len(ordered) * 99 // 100], "peak": peak}).encode()
        delays.clear()
        length = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": body})

    async def main() -> None:
        listener = bind(settings, port=0)
        print(listener.getsockname()[1], flush=True)
        ticking = asyncio.ensure_future(tick())
        await serve(gateway, settings, listener, app=app)
        ticking.cancel()

    uvloop.run(main())


if __name__ == "__main__":
    if "--gateway" in sys.argv:
        run_gateway(sys.argv[-1])
    else:
        asyncio.run(
            measure(sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else "", large="--large" in sys.argv)
        )
