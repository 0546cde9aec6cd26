"""Clients: each asks one question after the other and looks whether the answer is its own."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from functools import lru_cache

from gateway.hostile import WEATHER, Answer, body_of, path_of, read_answer, request_bytes
from gateway.serving import WIRES

from toolwire import Message, Request, Text
from toolwire.ir.errors import ToolwireError
from toolwire.ir.events import StreamFault
from toolwire.wire import get

TOKEN = re.compile(rb"token-\d{9}")
VALID = ("words", "call", "late")
# what may be answered to each; "error" is a stream that ends in an error event
EXPECTED = {
    "stall": {"502", "504", "error"},
    "silent": {"502", "504", "error"},
    "cut": {"502", "error"},
    "reset": {"502", "error"},
    "garbage": {"502", "error"},
    "limited": {"429", "error"},
    "failing": {"502", "error"},
}
MIX = [*["words"] * 8, *["call"] * 6, "late", *EXPECTED, "leave"]


@lru_cache(None)
def _template(front: str, wire: str, stream: bool) -> bytes:
    asked = Request(messages=(Message("user", (Text("token-000000000 xxxxxxx"),)),), tools=(WEATHER,))
    return body_of(front, asked, wire, stream=stream)


def question(front: str, upstream: str, how: str, number: int, *, stream: bool, key: str = "") -> tuple[bytes, bytes]:
    """The bytes of a request, and the token in it. `key` is the client's."""
    token = b"token-%09d" % number
    model = f"{upstream}/m"
    body = _template(front, model, stream).replace(b"token-000000000 xxxxxxx", token + b" " + how.encode() + b" ")
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return request_bytes(path_of(front, model, stream=stream), body, headers), token


def outcome(answer: Answer, front: str, *, stream: bool) -> str:
    """`ok`, a status, or `error` for a stream that ends in one."""
    if answer.status != 200:
        return str(answer.status)
    if not answer.whole:
        return "cut off"
    if not stream:
        return "ok"
    decoder = get(front).stream_decoder()
    try:
        events = [*decoder.feed(answer.body), *decoder.close()]
    except ToolwireError as error:
        return f"no stream: {error}"
    return "error" if any(isinstance(event, StreamFault) for event in events) else "ok"


class Load:
    """What was asked and what came of it. `wrong` has a line for everything that must not happen."""

    def __init__(self, port: int, key: str = "") -> None:
        self.port = port
        self.key = key
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._numbers = iter(range(1, 10**9))

    async def run(self, clients: int, seconds: float) -> None:
        until = time.monotonic() + seconds
        await asyncio.gather(*(self._client(random.Random(seed), until) for seed in range(clients)))

    async def _client(self, chance: random.Random, until: float) -> None:
        connection = None
        while time.monotonic() < until:
            how = chance.choice(MIX)
            front, wire, stream = chance.choice(WIRES), chance.choice(WIRES), chance.random() < 0.5
            if connection is None:
                connection = await asyncio.open_connection("127.0.0.1", self.port, limit=2**22)
            keep = await self._one(connection, front, wire, how, stream=stream)
            if not keep:
                connection[1].close()
                connection = None
        if connection is not None:
            connection[1].close()

    async def _one(self, connection, front, wire, how, *, stream) -> bool:
        """Whether the connection can be used again."""
        reader, writer = connection
        leaves = how == "leave"
        number = next(self._numbers)
        data, token = question(front, wire, "late" if leaves else how, number, stream=stream, key=self.key)
        label = f"{how}: {front} over {wire}, {'stream' if stream else 'whole'}"
        writer.write(data)
        if leaves:
            await asyncio.sleep(0.05)
            self.outcomes["left"] += 1
            return False
        try:
            async with asyncio.timeout(30):
                answer = await read_answer(reader)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError) as error:
            self.wrong.append(f"{label}: {error!r}")
            return False
        self._judge(label, how, answer, outcome(answer, front, stream=stream), token)
        return answer.headers.get("connection") != "close"

    def _judge(self, label: str, how: str, answer: Answer, found: str, token: bytes) -> None:
        self.outcomes[f"{how}: {found}"] += 1
        tokens = set(TOKEN.findall(answer.body))
        if tokens - {token}:
            self.wrong.append(f"{label}: {tokens} is not {token}")
        if how in VALID and (found != "ok" or tokens != {token}):
            self.wrong.append(f"{label}: {found}, {answer.body[:300]!r}")
        if how in EXPECTED and found not in EXPECTED[how]:
            self.wrong.append(f"{label}: {found}, {answer.body[-300:]!r}")
