"""Clients: each asks one question after the other, and checks that the answer belongs to its question."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from provider import TOKEN

from hostile import WEATHER, Answer, body_of, path_of, read_answer, request_bytes
from serving import WIRES
from toolwire import Message, Request, Text
from toolwire.ir.errors import ToolwireError
from toolwire.ir.events import StreamFault
from toolwire.wire import get

OVERLOADED = ("503", "529")  # 529 for clients of Anthropic
REFUSAL = b"the gateway is overloaded"  # in the errors of all protocols; other failures may have the status 503, too
# outcomes other than "ok"; "error" is a stream that ends in an error event
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


def question(front: str, model: str, how: str, number: int, *, stream: bool, key: str = "") -> tuple[bytes, bytes]:
    """The bytes of a request, and the token in it. `key` is the client's."""
    token = b"token-%09d" % number
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


def is_refused(answer: Answer) -> bool:
    """Check whether the gateway refuses a request because of its own load, with the time of the next attempt."""
    return str(answer.status) in OVERLOADED and "retry-after" in answer.headers and REFUSAL in answer.body


async def ask_until_admitted(port: int, data: bytes, *, patience: float = 30.0) -> Answer:
    """Send a request on a new connection, and repeat it while it is refused, for at most `patience` seconds."""
    until = time.monotonic() + patience
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
        try:
            writer.write(data)
            async with asyncio.timeout(patience):
                answer = await read_answer(reader)
        finally:
            writer.close()
        if not is_refused(answer) or time.monotonic() >= until:
            return answer
        await asyncio.sleep(float(answer.headers["retry-after"]))


class Load:
    """Questions and their outcomes. `wrong` has a line for everything that must not happen. `patience` is in seconds.

    With `repeats`, a question that is refused because of overload is asked again, as its answer demands.
    """

    def __init__(self, port: int, key: str = "", *, patience: float = 30.0, repeats: bool = False) -> None:
        self.port = port
        self.key = key
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.asked = 0
        self.without_retry_after = 0  # answers that refuse a request because of overload or an outage
        self.expected = dict(EXPECTED)
        self.patience = patience
        self.repeats = repeats
        self._numbers = iter(range(1, 10**9))

    async def run(self, clients: int, seconds: float) -> None:
        """Ask random questions for so long: some of them fail, and some clients leave."""
        until = time.monotonic() + seconds

        async def ask_randomly(chance: random.Random) -> None:
            connection = None
            while time.monotonic() < until:
                how, stream = chance.choice(MIX), chance.random() < 0.5
                front, model = chance.choice(WIRES), f"{chance.choice(WIRES)}/m"
                connection = await self._ask(connection, front, model, how, stream=stream)
            _close(connection)

        await asyncio.gather(*(ask_randomly(random.Random(seed)) for seed in range(clients)))

    async def ask(
        self, clients: int, each: int, model: str, how: str = "words", *, kinds: Sequence[bool] = (False, True)
    ) -> None:
        """Let each client ask so many questions in all protocols. `kinds`: whether the answers are streams."""

        async def ask_in_turn(client: int) -> None:
            connection = None
            for number in range(client, client + each):
                stream = kinds[number // len(WIRES) % len(kinds)]
                connection = await self._ask(connection, WIRES[number % len(WIRES)], model, how, stream=stream)
            _close(connection)

        await asyncio.gather(*(ask_in_turn(client) for client in range(clients)))

    async def _ask(self, connection, front, model, how, *, stream):
        """Return the connection, or None if it cannot be used again."""
        leaves = how == "leave"
        number = next(self._numbers)
        self.asked += 1
        data, token = question(front, model, "late" if leaves else how, number, stream=stream, key=self.key)
        label = f"{how}: {front}, {model}, {'stream' if stream else 'whole'}"
        until = time.monotonic() + self.patience
        while True:
            try:
                async with asyncio.timeout(self.patience):
                    if connection is None:
                        connection = await asyncio.open_connection("127.0.0.1", self.port, limit=2**22)
                    connection[1].write(data)
                    if leaves:
                        await asyncio.sleep(0.05)
                        self.outcomes["left"] += 1
                        return _close(connection)
                    answer = await read_answer(connection[0])
            except (TimeoutError, asyncio.IncompleteReadError, OSError) as error:
                self.outcomes[f"{how}: {type(error).__name__}"] += 1
                self.wrong.append(f"{label}: {error!r}")
                return _close(connection)
            if answer.headers.get("connection") == "close":
                connection = _close(connection)
            if not (self.repeats and is_refused(answer)) or time.monotonic() >= until:
                break
            self.outcomes["refused, and asked again"] += 1
            await asyncio.sleep(float(answer.headers["retry-after"]))
        self._judge(label, how, answer, outcome(answer, front, stream=stream), token)
        return connection

    def _judge(self, label: str, how: str, answer: Answer, found: str, token: bytes) -> None:
        self.outcomes[f"{how}: {found}"] += 1
        tokens = set(TOKEN.findall(answer.body))
        expected = self.expected.get(how, {"ok"})
        self.without_retry_after += found in OVERLOADED and "retry-after" not in answer.headers
        if tokens - {token}:
            self.wrong.append(f"{label}: {tokens} is not {token}")
        if found not in expected or (found == "ok" and tokens != {token}):
            self.wrong.append(f"{label}: {found}, {answer.body[:300]!r}")


def _close(connection) -> None:
    if connection is not None:
        connection[1].close()
