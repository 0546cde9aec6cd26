"""A provider that does what the user's text asks for. As a process of its own, it prints its address.

The text is `TOKEN HOW`. The token is in every answer, so that an answer to another client's question is noticed.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import uvloop

from toolwire import Request, Response, Text, ToolCall
from toolwire.ir.parts import Artefact, Reasoning
from toolwire.ir.response import Fault, Stop, Usage
from toolwire.testing import PartialReply, RawReply, Upstream
from toolwire.testing.upstream import ReceivedRequest

USAGE = Usage(10, 20)
TOKEN = re.compile(rb"token-\d{9}")
GARBAGE = b"data: {\xff\x00 not json\n\n<html>502</html>\n"


def answer(request: Request) -> object:
    token, how = _user_text(request).split(" ")[:2]
    if how == "signed":
        return _signed_answer(request, token)
    words = Response(parts=(Text(f"{token} says that it rains. " * 20),), stop=Stop("stop"), usage=USAGE)
    if how == "call":
        call = ToolCall(f"call-{token}", "get_weather", {"city": token})
        return Response(parts=(call,), stop=Stop("tool_calls"), usage=USAGE)
    if how in ("stall", "cut", "reset"):
        return PartialReply(words, 700, how)
    if how == "silent":
        return PartialReply(words, None, "stall")
    if how == "garbage":
        return RawReply(
            GARBAGE, headers={"content-type": "text/event-stream" if request.stream else "application/json"}
        )
    if how == "limited":
        return Fault("rate_limit", f"{token} is too much", 429, retry_after=1.0)
    if how == "failing":
        return Fault("server", f"{token} went wrong", 500)
    if how == "brief":
        return Response(parts=(Text(f"{token} " * 5),), stop=Stop("stop"))
    return words


def _signed_answer(request: Request, token: str) -> Response:
    """A signed turn with a call; after its result, whether the turn came back with its signature."""
    signature = f"c2lnbmVk{token.removeprefix('token-')}"
    if len(request.messages) == 1:
        thought = Reasoning(f"{token}?", artefacts=(Artefact("anthropic", "signature", signature),))
        call = ToolCall(f"call-{token}", "get_weather", {"city": token})
        return Response(parts=(thought, call), stop=Stop("tool_calls"), usage=USAGE)
    parts = [part for message in request.messages for part in message.parts if isinstance(part, Reasoning)]
    is_kept = any(item.data == signature for part in parts for item in part.artefacts)
    return Response(parts=(Text(f"{token} {'kept' if is_kept else 'lost'}"),), stop=Stop("stop"), usage=USAGE)


def _user_text(request: Request) -> str:
    return next(part.text for message in request.messages for part in message.parts if isinstance(part, Text))


class Endless(list):
    """A script that is never over."""

    def __init__(self, reply: Callable[[Request], object]) -> None:
        self._reply = reply

    def __bool__(self) -> bool:
        return True

    def pop(self, _: int = 0) -> object:
        return self._reply


class Provider(Upstream):
    """An upstream that works, fails or hangs (`change`). While `release` is not set, answers stop after their first piece.

    `tokens` counts the requests for each token, `in_flight` the requests without the end of their answer, `held` those
    that wait for `release`, and `most` is the maximum of `in_flight`. `raw`: the body of every answer, which costs less CPU.
    """

    def __init__(self, *, raw: bytes = b"", **options: Any) -> None:
        super().__init__(**{"piece": 256, "delta": 64, **options})
        self._raw = raw
        self.script = Endless(self._reply)
        self.mode = "works"
        self._thawed = asyncio.Event()
        self._thawed.set()
        self.tokens: Counter[bytes] = Counter()
        self.release = asyncio.Event()
        self.release.set()
        self.in_flight = self.held = self.most = 0

    def _parse_request(self, path: str, headers: dict[str, str], body: bytes) -> ReceivedRequest:
        return ReceivedRequest(path, headers, body) if self._raw else super()._parse_request(path, headers, body)

    def _reply(self, request: Request) -> object:
        if self._raw:
            return RawReply(self._raw)
        return Fault("server", "failed", 500) if self.mode == "fails" else answer(request)

    def change(self, mode: Literal["works", "fails", "hangs"]) -> None:
        """Change the mode. Requests that came while the provider hung are answered then, as by a process that was frozen."""
        self.mode, self.answers_probes = mode, mode != "hangs"
        if mode == "hangs":
            self._thawed.clear()
        else:
            self._thawed.set()

    async def _answer(self, path: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter) -> bool:
        del self.requests[:-10]
        self.tokens.update(set(TOKEN.findall(body)))
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            if not path.endswith("/models"):
                await self._thawed.wait()
            if b" late" in body:
                await asyncio.sleep(0.8)
            return await super()._answer(path, headers, body, writer)
        finally:
            self.in_flight -= 1

    async def _send(self, answer: Any, size: int | None, writer: asyncio.StreamWriter) -> None:
        if self.release.is_set():
            await super()._send(answer, size, writer)
            return
        if answer.streamed:
            await super()._send(answer, self._piece, writer)
        self.held += 1
        try:
            await self.release.wait()
        finally:
            self.held -= 1
        if answer.streamed:
            rest = answer.body[self._piece : size]
            writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(rest), rest))
        else:
            await super()._send(answer, size, writer)


async def main(pace: float) -> None:
    async with Provider(pace=pace) as provider:
        print(provider.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(float(sys.argv[1])))
