"""Measure how long new connections wait while one of two workers drains (SIGTERM) or is frozen (SIGSTOP), with 100 streams.

    python bench/gateway/drain.py

Each of 300 connections sends a health check, a few milliseconds after the connection before it. The streams last for
some seconds. Printed: the longest and the median wait, and the number of streams that were complete.
"""

import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path

STREAMS = 100
CONNECTIONS = 300
PAUSE = 0.01  # seconds between two connections
PIECES = 16  # of a stream, each half a second after the piece before it
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def _chunk(content: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    document = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: %b\n\n" % json.dumps(document).encode()


async def _serve_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]))
    writer.write(HEAD)
    for _ in range(PIECES):
        writer.write(_chunk("word "))
        await asyncio.sleep(0.5)
    writer.write(_chunk("", "stop") + b"data: [DONE]\n\n")
    writer.close()


async def _exchange(port: int, data: bytes) -> tuple[float, bytes]:
    """Send a request on a new connection, and return the seconds that it took, and the answer."""
    started = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        answer = await reader.read()
    finally:
        writer.close()
    return time.perf_counter() - started, answer


def _stream(port: int) -> Awaitable[tuple[float, bytes]]:
    body = json.dumps({"model": "chat/m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    return _exchange(port, head % len(body) + body)


def _first_worker(parent: int) -> int:
    return int(Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()[0])


def _write_settings(folder: str, address: str) -> str:
    file = Path(folder, "toolwire.toml")
    file.write_text(
        f'[server]\nworkers = 2\n[upstreams]\nchat = {{ base_url = "{address}", wire = "openai_chat" }}\n'
        f'[state]\nurl = "{folder}/state.db"\n[log]\nto = "nowhere"\n',
        encoding="utf-8",
    )
    return str(file)


async def _measure(port: int, parent: int, number: int) -> None:
    streams = [asyncio.ensure_future(_stream(port)) for _ in range(STREAMS)]
    await asyncio.sleep(2)
    os.kill(_first_worker(parent), number)
    probe = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    probes = []
    for _ in range(CONNECTIONS):
        probes.append(asyncio.ensure_future(_exchange(port, probe)))
        await asyncio.sleep(PAUSE)
    waits = [seconds for seconds, answer in await asyncio.gather(*probes) if b" 200 " in answer[:20]]
    ends = await asyncio.gather(*streams, return_exceptions=True)
    complete = sum(not isinstance(end, BaseException) and b"[DONE]" in end[1] for end in ends)
    print(
        f"{signal.Signals(number).name}: {len(waits)} of {CONNECTIONS} answered, longest wait {max(waits) * 1000:.0f} ms,"
        f" median {statistics.median(waits) * 1000:.1f} ms, {complete} of {STREAMS} streams complete"
    )


async def main() -> None:
    upstream = await asyncio.start_server(_serve_stream, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{upstream.sockets[0].getsockname()[1]}"
    for number in (signal.SIGTERM, signal.SIGSTOP):
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable,
                "-m",
                "toolwire",
                "serve",
                "--quiet",
                "--config",
                _write_settings(folder, address),
                "--port",
                "0",
            ]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
            try:
                assert process.stdout is not None
                found = re.search(r"http://[\d.]+:(\d+)", process.stdout.readline())
                assert found is not None
                await _measure(int(found[1]), process.pid, number)
            finally:
                process.terminate()
                await asyncio.to_thread(process.wait)


if __name__ == "__main__":
    asyncio.run(main())
