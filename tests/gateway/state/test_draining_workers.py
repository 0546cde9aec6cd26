"""Connections to workers that drain, freeze or start: other workers take them, and streams in progress are not cut."""

import asyncio
import json
import os
import signal
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from hostile import read_answer, request_bytes
from waiting import SAFETY, until
from worker_gateway import CHAT, HISTORY, settings_text, worker_gateway, worker_of

KEY = {"authorization": "Bearer ann"}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\nconnection: close\r\n\r\n"
ANSWER = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
ANSWER["choices"] = [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]


def chunk(content, finish=None):
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    return b"data: %b\n\n" % json.dumps({**ANSWER, "object": "chat.completion.chunk", "choices": [choice]}).encode()


class GatedUpstream:
    """A Chat server whose streams begin at once and end when `release` is set."""

    def __init__(self):
        self.release = asyncio.Event()
        self.streams = 0

    async def serve(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        body = json.loads(await reader.readexactly(size))
        if body.get("stream"):
            self.streams += 1
            writer.write(HEAD % b"text/event-stream" + chunk("Hello"))
            await self.release.wait()
            writer.write(chunk("", "stop") + b"data: [DONE]\n\n")
        else:
            writer.write(HEAD % b"application/json" + json.dumps(ANSWER).encode())
        writer.close()


@asynccontextmanager
async def gated_gateway(folder, server="", more=""):
    upstream = GatedUpstream()
    listener = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    text = settings_text(url, str(folder / "s.db"), more=f"{more}\n[server]\n{server}\n")
    try:
        async with worker_gateway(folder, text, 2) as gateway:
            yield gateway, upstream
    finally:
        upstream.release.set()
        listener.close()


async def stream(gateway):
    """Read a stream on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=2**24)
    body = json.dumps({"model": "openai_chat/m", "messages": HISTORY, "stream": True}).encode()
    writer.write(request_bytes(CHAT, body, KEY))
    try:
        return await read_answer(reader)
    finally:
        writer.close()


async def ask_all(gateway, count):
    """Ask on new connections, and count the answers of each worker."""
    answers = await asyncio.gather(*(gateway.ask("openai_chat/m") for _ in range(count)))
    assert {answer.status for answer in answers} == {200}
    return Counter(map(worker_of, answers))


async def until_answered_by(gateway, workers):
    """Ask until so many workers answer."""
    while len(await ask_all(gateway, 20)) != workers:  # noqa: ASYNC110  # they are other processes
        await asyncio.sleep(0.1)


@pytest.mark.finding("OP4")
def test_draining_worker_gets_no_connections_and_its_streams_finish(tmp_path):
    async def run():
        async with gated_gateway(tmp_path, f"drain = {SAFETY}") as (gateway, upstream):
            streams = [asyncio.ensure_future(stream(gateway)) for _ in range(40)]
            await until(lambda: upstream.streams == 40)
            before = gateway.workers
            os.kill(before[0], signal.SIGTERM)
            await until_answered_by(gateway, 1)  # the worker has handled the signal
            assert len(await ask_all(gateway, 60)) == 1  # while the streams of the other worker are in progress
            assert gateway.workers == before
            upstream.release.set()
            answers = await asyncio.gather(*streams)
            assert [(answer.status, answer.body.count(b"[DONE]")) for answer in answers] == [(200, 1)] * 40
            # both had streams, about as many: the workers balance their connections
            assert min(Counter(map(worker_of, answers)).values()) >= 10
            await until(lambda: set(gateway.workers) - set(before))

    asyncio.run(run())


@pytest.mark.finding("OP4")
def test_frozen_worker_gets_no_connections_and_is_replaced(tmp_path):
    async def run():
        async with gated_gateway(tmp_path, "heartbeat = 4") as (gateway, _):
            before = gateway.workers
            os.kill(before[0], signal.SIGSTOP)
            assert len(await ask_all(gateway, 60)) == 1
            await until(lambda: set(gateway.workers) - set(before))
            assert before[0] not in gateway.workers
            assert before[1] in gateway.workers
            await until_answered_by(gateway, 2)  # the new worker is ready a little later
            assert "does not respond; replacing it" in (tmp_path / "log").read_text()

    asyncio.run(run())


SLOW_TOOLS = """
import time
from pathlib import Path

while not Path({go!r}).exists():
    time.sleep(0.02)

def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
"""


@pytest.mark.finding("SE11")
def test_restarted_worker_accepts_connections_when_it_is_ready(tmp_path):
    go = tmp_path / "go"
    go.touch()
    (tmp_path / "slow.py").write_text(SLOW_TOOLS.format(go=str(go)))

    async def run():
        async with gated_gateway(tmp_path, more='[tools."*"]\nfiles = ["slow.py"]') as (gateway, _):
            before = gateway.workers
            go.unlink()
            os.kill(before[0], signal.SIGKILL)
            await until(lambda: set(gateway.workers) - set(before))
            assert len(await ask_all(gateway, 60)) == 1  # by the other worker: the new one cannot start yet
            go.touch()
            await until_answered_by(gateway, 2)

    asyncio.run(run())


@pytest.mark.finding("OP4")
def test_worker_that_is_frozen_in_its_start_is_replaced(tmp_path):
    go = tmp_path / "go"
    go.touch()
    (tmp_path / "slow.py").write_text(SLOW_TOOLS.format(go=str(go)))

    async def run():
        tools = '[tools."*"]\nfiles = ["slow.py"]'
        async with gated_gateway(tmp_path, "heartbeat = 3", more=tools) as (gateway, _):
            before = gateway.workers
            go.unlink()
            os.kill(before[0], signal.SIGKILL)
            await until(lambda: "does not respond; replacing it" in (tmp_path / "log").read_text())
            go.touch()
            await until_answered_by(gateway, 2)
            assert before[1] in gateway.workers

    asyncio.run(run())
